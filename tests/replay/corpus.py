"""The replay corpus: predictions that a refactor must not move, recorded figure by figure.

    python tests/replay/corpus.py        replay every case, record it again, print what moved

The first line of ``recorded.jsonl`` holds the model version, and a digest of the lines that follow; each of these a
case and what the simulator said of it when it was last recorded. These are not measurements: they say that two versions
agree, not that either is right. A commit either moves none of them, or increases ``MODEL_VERSION`` and says which moved
and why: results that an older program stored are then computed again. New cases move none.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.report.trace_events import timeline
from gpusim.sim.trace import Recorder
from gpusim.specs import list_archs, load_spec
from gpusim.specs.folders import search_folders
from gpusim.specs.inheritance import chain
from gpusim.specs.registry import spec_file
from gpusim.version import MODEL_VERSION
from gpusim.workloads.gemm import LAYOUTS
from gpusim.workloads.operators import parse_operator

RECORDED = Path(__file__).with_name("recorded.jsonl")
TRACE_EVENTS = 100_000
METRICS = (
    *("kernel", "split_k", "grid", "occupancy", "waves", "cycles", "clock_mhz", "kernel_time_us", "time_us"),
    *("bound_us", "bottleneck", "dram_read_bytes", "dram_write_bytes", "l2_bytes", "shared_bytes", "l2_hit_fraction"),
    *("power_w", "busy_fractions", "stall_cycles"),
)
"""What is recorded of a result: the choice, the cycles, the bytes, the ledger."""

SIZES = (1, 2, 7, 16, 64, 96, 128, 333, 512, 1000, 1024, 2048, 3000, 4096, 12288)
PREDICTED_PER_BOARD = 9
REFUSED_PER_BOARD = 1
WORKED_EXAMPLE = (
    {"arch": "teaching", "m": 32, "n": 32, "k": 32, "dtype": "fp32", "layout": "nt", "kernel": "teaching_ffma_32x4"},
    {"arch": "teaching", "m": 32, "n": 32, "k": 32, "dtype": "fp16", "layout": "nt", "kernel": "teaching_mma_32x4"},
)
ON_ROWS: tuple[dict[str, Any], ...] = (
    {"op": "gelu", "m": 512, "n": 4096, "dtype": "fp32"},
    {"op": "softmax", "m": 2048, "n": 512, "dtype": "fp16", "l2": "warm"},
    {"op": "softmax", "m": 512, "n": 3001, "dtype": "fp32"},
    {"op": "layernorm", "m": 512, "n": 2048, "dtype": "bf16", "load": "burst"},
    {"op": "sum", "m": 3, "n": 500_000, "dtype": "fp16"},
    {"op": "add", "m": 64, "n": 1000, "dtype": "fp32", "detail": "full"},
)
"""Operators on rows, on every board with kernels for them."""
_DECODING = {"op": "attention_fwd", "batch": 8, "heads": 32, "key_heads": 8, "k": 128, "dtype": "bf16", "packed": "yes"}
_DECODING |= {"page_tokens": 16, "l2": "warm", "load": "burst"}
SERVED: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (board, _DECODING | {"m": m, "n": n, **other})
        for board in ("A100-SXM4-80GB", "H100-SXM5-80GB", "L40S")
        for m, n, other in (
            (1, 4096, {}),
            (1, 65536, {"batch": 1, "appends": "yes"}),
            (4, 4096, {}),
            (2048, 2048, {"causal": "yes", "appends": "yes"}),
            (512, 4096, {"causal": "yes", "window": 1024}),
        )
    ),
    *((board, _DECODING | {"m": 1024, "n": 1024, "page_tokens": ""}) for board in ("A100-SXM4-80GB", "L40S")),
    ("H100-SXM5-80GB", _DECODING | {"m": 1024, "n": 1024, "page_tokens": "", "implementation": "flash3"}),
    (
        "A100-SXM4-80GB",
        {
            "op": "attention_fwd",
            "batch": 2,
            "heads": 16,
            "m": 2048,
            "n": 2048,
            "k": 64,
            "causal": "yes",
            "dtype": "fp16",
        },
    ),
    *(
        (board, {"m": m, "n": 4096, "k": 4096, "layout": "tn", **other})
        for m in (1, 16, 4096)
        for board, other in (
            ("H100-SXM5-80GB", {"dtype": "fp8", "scales": "row", "quantise": "kernel"}),
            ("L40S", {"dtype": "fp8", "scales": "row"}),
            ("A100-SXM4-80GB", {"dtype": "int8", "scales": "row"}),
            ("A100-SXM4-80GB", {"dtype": "fp16", "b_dtype": "int4", "group": 128}),
            ("T4", {"dtype": "fp16", "b_dtype": "int8"}),
        )
    ),
    ("H100-SXM5-80GB", {"m": 512, "n": 4096, "k": 1024, "dtype": "bf16", "layout": "tn", "counts": "300,120,60,32"}),
)
"""Attention and products of language models, on the boards that have them."""
TRACED = {"arch": "T4", "m": 512, "n": 512, "k": 256, "dtype": "fp16", "trace": True}

DRAWN: dict[str, tuple[Any, ...]] = {
    "batch": (1, 1, 4, 32),
    "layout": LAYOUTS,
    "order": ("row", "column"),
    "sparsity": ("dense", "dense", "dense", "2:4"),
    "l2": ("cold", "warm"),
    "load": ("sustained", "burst", "25"),
}

Case = dict[str, Any]
Figures = dict[str, Any]


def draw(board: str) -> Iterator[Case]:
    """The cases of a new board: every detail, and a seeded draw over types, shapes, layouts and states of L2."""
    for detail, dtype, size in (("full", "fp32", 256), ("full", "fp16", 512), ("bound", "fp16", 777)):
        yield {"arch": board, "m": size, "n": size, "k": 128, "dtype": dtype, "detail": detail, "load": "burst"}
    pick = random.Random(board)
    dtypes = sorted({name for one in load_spec(board).gpu.instructions.values() for name in one.inputs})
    for dtype in dtypes:
        yield {"arch": board, "m": 1024, "n": 2048, "k": 4096, "dtype": dtype}
    wanted = {False: PREDICTED_PER_BOARD, True: REFUSED_PER_BOARD}
    while wanted[False]:
        m, n, k = (pick.choice(SIZES) for _ in range(3))
        case = {"arch": board, "m": m, "n": n, "k": k}
        case |= {name: pick.choice(values) for name, values in DRAWN.items()} | {"dtype": pick.choice(dtypes)}
        refused = "refused" in replay(case)
        if wanted[refused]:
            wanted[refused] -= 1
            yield case


def replay(case: Case) -> Figures:
    """What the simulator says of a case today; a digest of the events for a trace."""
    of_options = ("detail", "l2", "kernel", "load")
    operator = parse_operator({name: case[name] for name in case if name not in ("arch", "trace", *of_options)})
    options = Options(**{name: case[name] for name in of_options if name in case})
    recorder = Recorder(TRACE_EVENTS) if "trace" in case else None
    try:
        result = predict(load_spec(case["arch"]).system, operator, options, recorder)
    except UnsupportedError:
        return {"refused": True}
    said = result.as_dict()
    figures = {name: said[name] for name in METRICS}
    figures["stall_cycles"] = {cause: cycles for cause, cycles in said["stall_cycles"].items() if cycles}
    if recorder is not None:
        events = json.loads("".join(timeline(result, recorder)))["traceEvents"]
        figures["events"] = len(events)
        figures["events_sha256"] = hashlib.sha256(json.dumps(events).encode()).hexdigest()
    return figures


def recorded() -> list[tuple[Case, Figures]]:
    """Every case with its figures, in the order of the file."""
    lines = _lines()[1:]
    return [(line["case"], line["figures"]) for line in map(json.loads, lines)]


def recorded_version() -> int:
    """The model version of the recorded figures.

    Raises:
        ValueError: the lines are not those that :func:`record` wrote.
    """
    head, *lines = _lines()
    version: int = json.loads(head)["model_version"]
    if head != _head(version, lines):
        raise ValueError(f"{RECORDED.name} was edited by hand or by a merge: check it out again, then make replay")
    return version


def record(cases: Sequence[tuple[Case, Figures]]) -> None:
    """Write the figures of the cases, and the model version that they are of.

    Raises:
        ValueError: a recorded figure has moved, and the model version has not.
    """
    before = recorded() if RECORDED.exists() else []
    after = {json.dumps(case): figures for case, figures in cases}
    changed = sum(after.get(json.dumps(case)) != figures for case, figures in before)
    if changed and recorded_version() >= MODEL_VERSION:
        raise ValueError(
            f"{changed} recorded predictions moved under model version {MODEL_VERSION}: increase MODEL_VERSION in "
            "gpusim/version.py, record again, and say in the changelog which moved and why"
        )
    lines = [json.dumps({"case": case, "figures": figures}) for case, figures in cases]
    RECORDED.write_text("\n".join((_head(MODEL_VERSION, lines), *lines)) + "\n", encoding="utf-8")


def _lines() -> list[str]:
    return RECORDED.read_text(encoding="utf-8").splitlines()


def _head(version: int, lines: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return json.dumps({"model_version": version, "sha256": digest})


def moved(before: Figures, after: Figures) -> dict[str, tuple[Any, Any]]:
    """Figures that differ, with both values."""
    names = dict.fromkeys((*before, *after))
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def boards() -> list[str]:
    """The boards with cases, and one of each base that no such board extends: others differ by a datasheet's values."""
    have = [*dict.fromkeys(str(case["arch"]) for case, _ in recorded())] if RECORDED.exists() else []
    of_base = {_base(board): board for board in (*(entry.name for entry in reversed(list_archs())), *reversed(have))}
    return list(dict.fromkeys((*have, *of_base.values())))


def _base(board: str) -> Path:
    """What a board's file extends, or itself."""
    return chain(spec_file(board), search_folders(()))[:2][-1].path


def has_kernels_on_rows(board: str) -> bool:
    """Whether a board's kernel catalogues have any."""
    return bool(load_spec(board).system.library.vector_kernels)


def main() -> None:
    """Record every case again; draw some for bases that have none."""
    before = recorded() if RECORDED.exists() else []
    have = {case["arch"] for case, _ in before}
    cases = [case for case, _ in before] or [*WORKED_EXAMPLE, TRACED]
    cases += [case for board in boards() if board not in have for case in draw(board)]
    on_rows = ({"arch": board, **case} for board in boards() for case in ON_ROWS if has_kernels_on_rows(board))
    served = ({"arch": board, **case} for board, case in SERVED)
    cases += [case for case in (*on_rows, *served) if case not in cases]
    with ProcessPoolExecutor() as pool:
        after = list(zip(cases, pool.map(replay, cases, chunksize=8), strict=True))
    changes = [(case, moved(old, new)) for (case, old), (_, new) in zip(before, after, strict=False) if old != new]
    for case, change in changes:
        print(json.dumps(case), *(f"  {name}: {was} -> {now}" for name, (was, now) in change.items()), sep="\n")
    refused = sum("refused" in figures for _, figures in after)
    new = len(after) - len(before)
    print(f"{len(after)} cases ({refused} refused): {len(changes)} moved, {new} new", file=sys.stderr)
    try:
        record(after)
    except ValueError as error:
        sys.exit(f"not recorded: {error}")


if __name__ == "__main__":
    main()
