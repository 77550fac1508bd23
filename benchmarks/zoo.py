"""Capture the networks that tables of whole models name, in the ways that their rows ran them.

python -m benchmarks.zoo TABLE... -o FOLDER [--jobs N] [--only PATTERN]

Writes a file for each network and image size (``FRAMEWORK/NAME-SIZE.yaml.gz``, or ``FRAMEWORK/NAME.yaml.gz`` where the
table states no size), and skips those that are there. Networks are those of timm or torchvision, as the column
``framework`` says, or their equals that ``paddleclas.yaml`` names.
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
import yaml

from gpusim.capture.sources import source_of
from gpusim.capture.tracing import Source, captured
from gpusim.errors import InputError
from gpusim.models.aten.file import captured_text
from gpusim.models.aten.program import Variant
from gpusim.models.policy import MODES, NEWEST, Mode, Policy, default_layout

LIBRARIES = ("timm", "torchvision")
PADDLECLAS = "paddle-tensorrt"
EQUALS: Mapping[str, str] = yaml.safe_load(Path(__file__).with_name("paddleclas.yaml").read_text("utf-8"))
"""Networks of PaddleClas by their equals."""
TRACED = {"tf32": "fp32"}
UNTRACED = frozenset({"fp64", "int8"})


Key = tuple[str, str, int | None]
"""Column ``framework``, name and image size of a network."""


def wanted(tables: Sequence[Path], pattern: str) -> Mapping[Key, set[Variant]]:
    """Variants of each network."""
    found: dict[Key, set[Variant]] = defaultdict(set)
    for table in tables:
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                known = row["framework"] in LIBRARIES or (row["framework"] == PADDLECLAS and row["model"] in EQUALS)
                if not known or row["precision"] in UNTRACED or not fnmatch.fnmatch(row["model"], pattern):
                    continue
                size = int(float(row["image_size"])) if row["image_size"] else None
                found[row["framework"], row["model"], size].add(_variant(row))
    return found


def _variant(row: Mapping[str, str]) -> Variant:
    """The way in which a row ran its network; engines take images as their precision is used with."""
    mode: Mode = "inference" if row["mode"] == MODES[1] else MODES[0]
    precision = TRACED.get(row["precision"], row["precision"])
    if row["framework"] == PADDLECLAS:
        return Variant(mode, precision, default_layout(precision), "eager")
    attention = "fused" if Policy(version=row.get("torch") or NEWEST).calls_fused_attention else "eager"
    return Variant(mode, precision, row.get("layout") or "nchw", attention)


def capture(library: str, name: str, size: int | None, variants: Sequence[Variant], out: Path) -> float:
    """Capture a network; the seconds it took."""
    torch.set_num_threads(1)
    started = time.monotonic()
    spec = EQUALS[name] if library == PADDLECLAS else f"{library}:{name}"
    source = source_of(spec, {"image_size": size} if size else {})
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


def _attempt(one: tuple[str, str, int | None, list[Variant], Path]) -> tuple[str, str]:
    library, name, size, variants, out = one
    stem = out.name.partition(".yaml")[0]
    try:
        return stem, f"{capture(library, name, size, variants, out):.1f} s"
    except InputError as error:
        return stem, f"FAILED {error}"


def _left(tables: Sequence[Path], folder: Path, pattern: str) -> Iterator[tuple[*Key, list[Variant], Path]]:
    for (library, name, size), variants in sorted(wanted(tables, pattern).items(), key=str):
        out = folder / library / (f"{name}-{size}.yaml.gz" if size else f"{name}.yaml.gz")
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
    for library in (*LIBRARIES, PADDLECLAS):
        (options.folder / library).mkdir(parents=True, exist_ok=True)
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
