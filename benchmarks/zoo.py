"""Capture the networks that tables of whole models name, in the ways that their rows ran them.

python -m benchmarks.zoo TABLE... -o FOLDER [--jobs N] [--only PATTERN] [--compiled] [--sample N [--seed N]]

Writes a file for each network and image size (``FRAMEWORK/NAME-SIZE.yaml.gz``, or ``FRAMEWORK/NAME.yaml.gz`` where the
table states no size), and skips those that are there. Networks are those of timm or torchvision, as the column
``framework`` says, or their equals that ``paddleclas.yaml`` names.

With ``--compiled`` the rows that torch.compile made are captured, and no others: each network as TorchInductor compiles
it at the batch of its row, since Inductor's kernels depend on sizes, and eager at that batch. They want a folder of
their own. ``--sample`` captures so many of the networks, drawn at random with a seed. ``gpusim validate TABLE
--model-path FOLDER/timm`` then predicts the rows whose networks are there.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import gzip
import os
import random
import sys
import time
from collections import Counter, defaultdict
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
from gpusim.evidence.end_to_end import TRUTH
from gpusim.models.aten.file import captured_text
from gpusim.models.aten.program import Variant
from gpusim.models.policy import MODES, NEWEST, Mode, Policy, default_layout

LIBRARIES = ("timm", "torchvision")
PADDLECLAS = "paddle-tensorrt"
EQUALS: Mapping[str, str] = yaml.safe_load(Path(__file__).with_name("paddleclas.yaml").read_text("utf-8"))
"""Networks of PaddleClas by their equals."""
TRACED = {"tf32": "fp32"}
UNTRACED = frozenset({"fp64", "int8"})


Key = tuple[str, str, int | None, int | None]
"""Column ``framework``, name, image size and, where that is fixed, batch of a network."""


def wanted(tables: Sequence[Path], pattern: str, *, compiled: bool = False) -> Mapping[Key, set[Variant]]:
    """Variants of each network, of eager rows or of those that torch.compile made, these at the batch of their row.

    Raises:
        InputError: a network was compiled at several batches, which one file does not hold.
    """
    found: dict[Key, set[Variant]] = defaultdict(set)
    for table in tables:
        with table.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                known = row["framework"] in LIBRARIES or (row["framework"] == PADDLECLAS and row["model"] in EQUALS)
                if not known or row["precision"] in UNTRACED or not fnmatch.fnmatch(row["model"], pattern):
                    continue
                if TRUTH[row.get("compiled") or ""] != compiled:
                    continue
                size = int(float(row["image_size"])) if row["image_size"] else None
                batch = int(row["batch_per_gpu"]) if compiled else None
                of_row = _variant(row, compiled=compiled)
                found[row["framework"], row["model"], size, batch] |= {of_row, replace(of_row, compiled=False)}
    twice = [name for (_, name, size), count in Counter(key[:3] for key in found).items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]}: compiled at several batches; --only and a folder for each")
    return found


def _variant(row: Mapping[str, str], *, compiled: bool) -> Variant:
    """The way in which a row ran its network; engines take images as their precision is used with."""
    mode: Mode = "inference" if row["mode"] == MODES[1] else MODES[0]
    precision = TRACED.get(row["precision"], row["precision"])
    if row["framework"] == PADDLECLAS:
        return Variant(mode, precision, default_layout(precision), "eager")
    attention = "fused" if Policy(version=row.get("torch") or NEWEST).calls_fused_attention else "eager"
    return Variant(mode, precision, row.get("layout") or "nchw", attention, compiled)


def capture(
    library: str, name: str, size: int | None, batch: int | None, variants: Sequence[Variant], out: Path
) -> float:
    """Capture a network; the seconds it took.

    Args:
        batch: the only one that it is captured at; None: any.
    """
    torch.set_num_threads(1)
    started = time.monotonic()
    spec = EQUALS[name] if library == PADDLECLAS else f"{library}:{name}"
    sizes = {"image_size": size, "batch": batch}
    source = source_of(spec, {key: value for key, value in sizes.items() if value})
    # timm's benchmark.py runs the loss and its gradient in one context of autocast.
    source = replace(source, autocasts_gradients=library == "timm")
    inferring = [one for one in variants if one.mode == "inference"]
    symbols = ("batch",) if batch is None else ()
    parts = []
    for some in (inferring, [one for one in variants if one not in inferring]):
        if some:
            # No table says whether it ran with --fast-norm, which keeps norms in FP16 under autocast. In FP32 the
            # BiT networks, all group norms, would take 1.8 times the measured time of inference and the ConvNeXts 1.15
            # times. Rows of training are of timm 0.6.6, which has no such option.
            one = _with_fast_norms(source) if library == "timm" and some is inferring else source
            parts.append(
                captured(one, some, optimizer="sgd_momentum", precision=some[0].precision, symbols=symbols)  # type: ignore[arg-type]
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


def _attempt(one: tuple[*Key, list[Variant], Path]) -> tuple[str, str]:
    library, name, size, batch, variants, out = one
    stem = out.name.partition(".yaml")[0]
    try:
        return stem, f"{capture(library, name, size, batch, variants, out):.1f} s"
    except InputError as error:
        return stem, f"FAILED {error}"


def _left(networks: Mapping[Key, set[Variant]], folder: Path) -> Iterator[tuple[*Key, list[Variant], Path]]:
    for (library, name, size, batch), variants in sorted(networks.items(), key=str):
        out = folder / library / (f"{name}-{size}.yaml.gz" if size else f"{name}.yaml.gz")
        if not out.exists():
            yield library, name, size, batch, sorted(variants, key=str), out


def main() -> int:
    """Capture all that is missing; the exit status is the number of networks that fail, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", dest="folder", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="*", help="pattern of names")
    parser.add_argument("--compiled", action="store_true", help="rows that torch.compile made, at their batch")
    parser.add_argument("--sample", type=int, help="so many of the networks, at random")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for library in (*LIBRARIES, PADDLECLAS):
        (options.folder / library).mkdir(parents=True, exist_ok=True)
    networks = wanted(options.tables, options.only, compiled=options.compiled)
    if options.sample is not None:
        drawn = random.Random(options.seed).sample(sorted(networks, key=str), min(options.sample, len(networks)))  # noqa: S311 -- seeded sampling is not cryptography
        networks = {key: networks[key] for key in drawn}
    left = list(_left(networks, options.folder))
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
