"""Capture the networks that tables of whole models name, in the ways that their rows ran them.

python -m benchmarks.zoo TABLE... -o FOLDER [--jobs N] [--only PATTERN]

Writes a file for each network and image size (``NAME-SIZE.yaml.gz``), and skips those that are there. Networks are
those of timm, or of torchvision where the table says so.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import gzip
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from gpusim.capture.sources import source_of
from gpusim.capture.tracing import Source, captured
from gpusim.errors import InputError
from gpusim.models.aten.file import captured_text
from gpusim.models.aten.program import Variant
from gpusim.models.policy import MODES, NEWEST, Mode, Policy

LIBRARIES = ("timm", "torchvision")
TRACED = {"tf32": "fp32"}
UNTRACED = frozenset({"fp64", "int8"})


def wanted(tables: Sequence[Path], pattern: str) -> Mapping[tuple[str, str, int], set[Variant]]:
    """Variants of each network, by library, name and image size."""
    found: dict[tuple[str, str, int], set[Variant]] = defaultdict(set)
    for table in tables:
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                library = row["framework"]
                if (
                    library not in LIBRARIES
                    or row["precision"] in UNTRACED
                    or not fnmatch.fnmatch(row["model"], pattern)
                ):
                    continue
                key = library, row["model"], int(float(row["image_size"] or 224))
                version = row.get("torch") or NEWEST
                mode: Mode = "inference" if row["mode"] == MODES[1] else MODES[0]
                precision = TRACED.get(row["precision"], row["precision"])
                attention = "fused" if Policy(version=version).calls_fused_attention else "eager"
                found[key].add(Variant(mode, precision, row.get("layout") or "nchw", attention))
    return found


def capture(library: str, name: str, size: int, variants: Sequence[Variant], out: Path) -> float:
    """Capture a network; the seconds it took."""
    torch.set_num_threads(1)
    started = time.monotonic()
    source = source_of(f"{library}:{name}", {"image_size": size})
    # timm's benchmark.py runs the loss and its gradient in one context of autocast.
    source = replace(source, autocasts_gradients=library == "timm")
    inferring = [one for one in variants if one.mode == "inference"]
    parts = []
    for some in (inferring, [one for one in variants if one not in inferring]):
        if some:
            # No table says whether it ran with --fast-norm, which keeps norms in FP16 under autocast. In FP32 the
            # BiT networks, all group norms, would take 1.8 times the measured time of inference and the ConvNeXts 1.15
            # times. Rows of training are of timm 0.6.6, which has no such option.
            one = _with_fast_norms(source) if library == "timm" and some is inferring else source
            parts.append(
                captured(one, some, optimizer="sgd_momentum", precision=some[0].precision, symbols=("batch",))  # type: ignore[arg-type]
            )
    content = parts[0].model_copy(update={"traces": [trace for part in parts for trace in part.traces]})
    beside = out.with_suffix(".part")
    beside.write_bytes(gzip.compress(captured_text(content).encode(), mtime=0))
    beside.rename(out)
    return time.monotonic() - started


def _with_fast_norms(source: Source) -> Source:
    """A source whose norms are those of timm's ``set_fast_norm``; its constructor runs without."""

    def model(eager: bool) -> Any:
        module = source.model(eager)
        for one in module.modules():
            if hasattr(one, "_fast_norm"):
                one._fast_norm = True  # noqa: SLF001
        return module

    return replace(source, model=model)


def _attempt(one: tuple[str, str, int, list[Variant], Path]) -> tuple[str, str]:
    library, name, size, variants, out = one
    try:
        return f"{name}-{size}", f"{capture(library, name, size, variants, out):.1f} s"
    except InputError as error:
        return f"{name}-{size}", f"FAILED {error}"


def _left(tables: Sequence[Path], folder: Path, pattern: str) -> Iterator[tuple[str, str, int, list[Variant], Path]]:
    for (library, name, size), variants in sorted(wanted(tables, pattern).items()):
        out = folder / f"{name}-{size}.yaml.gz"
        if not out.exists():
            yield library, name, size, sorted(variants, key=str), out


def main() -> int:
    """Capture all that is missing; the exit status is the number of networks that fail, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", dest="folder", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="*", help="pattern of names")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    left = list(_left(options.tables, options.folder, options.only))
    failed = 0
    # A pool whose workers start anew: those of concurrent.futures hang then (CPython issue 115634).
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=40) as pool:
        for at, (name, text) in enumerate(pool.imap_unordered(_attempt, left), 1):
            failed += text.startswith("FAILED")
            print(f"{at}/{len(left)} {name} {text}", flush=True)
    print(f"{len(left) - failed} captured, {failed} failed", file=sys.stderr)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
