"""Tables of an experiment: every prediction, speedups over a baseline, how training runs ended, claims judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.experiment.comparison import Row, requested_type, shape_key
from gpusim.experiment.key_units import heading, short_text
from gpusim.experiment.value_panels import GPU_NAME
from gpusim.report.formatting import number_text, shape_text, time_text
from gpusim.report.text_table import TextTable


def experiment_table(title: str, rows: Sequence[Row], varying: Sequence[str]) -> TextTable:
    """Every prediction of an experiment.

    Args:
        title: Of the experiment.
        rows: Its results.
        varying: Key paths of the values that vary between the GPUs, each a column.
    """
    body = [
        (
            row.get(GPU_NAME, row["gpu"]),
            *(short_text(row[key_path]) for key_path in varying),
            row["dtype"],
            row["label"] or row["group"],
            shape_text(row),
            time_text(row["time_us"]),
            f"{row['cycles']}",
            f"{row['tflops']:.2f}",
            f"{row['pct_of_peak']:.1f}",
            row["bottleneck"],
            row["kernel"],
        )
        for row in rows
    ]
    values = (f">{heading(key_path)}" for key_path in varying)
    metrics = (">m x n x k", ">time", ">cycles", ">TFLOP/s", ">% peak", "bottleneck", "kernel")
    return TextTable(
        title, ("GPU", *values, "type", "what", *metrics), tuple(body), optional=("kernel", ">cycles", "what")
    )


def speedup_table(
    title: str, rows: Sequence[Row], baseline: str, measured: Mapping[tuple[Any, ...], float]
) -> TextTable:
    """Each shape on each GPU that ran it, and how many times faster than the baseline.

    ``measured`` has measured speedups by :func:`~gpusim.experiment.comparison.shape_key` and GPU.
    """
    gpus = list(dict.fromkeys(row["gpu"] for row in rows))
    others = [gpu for gpu in gpus if gpu != baseline]
    by_run: dict[tuple[Any, ...], dict[str, Row]] = {}
    types = list(dict.fromkeys(requested_type(row) for row in rows))
    for row in sorted(rows, key=lambda row: types.index(requested_type(row))):
        by_run.setdefault((shape_key(row), row["layout"], row["detail"], row["l2"]), {})[row["gpu"]] = row
    body = []
    for (key, *_), on in by_run.items():
        first = next(iter(on.values()))
        cells = [requested_type(first), first["label"] or first["group"], shape_text(first)]
        for gpu in (baseline, *others):
            ran = on.get(gpu)
            cells += [time_text(ran["time_us"]), f"{ran['tflops']:.1f}", ran["bottleneck"]] if ran else ["", "", ""]
        for gpu in others:
            seen = measured.get((*key, gpu))
            ratio = f"{on[baseline]['time_us'] / on[gpu]['time_us']:.2f}" if {baseline, gpu} <= set(on) else ""
            cells += [ratio, f"{seen:.2f}" if seen else ""]
        body.append(tuple(cells))
    headings = ["type", "what", ">m x n x k"]
    for gpu in (baseline, *others):
        headings += [f">{gpu}", ">TFLOP/s", "bottleneck"]
    for gpu in others:
        headings += [">speedup" if len(others) == 1 else f">speedup {gpu}", ">measured"]
    return TextTable(title, tuple(headings), tuple(body))


def training_table(title: str, rows: Sequence[Row]) -> TextTable:
    """How each run of a training experiment ended."""
    last = {row["run"]: row for row in rows}
    body = tuple(
        (
            run,
            row["dtype"],
            row["weights"],
            str(row["step"] + 1),
            number_text(row["loss"]),
            f"2^{math.log2(row['loss_scale']):g}",
            str(row["skipped_steps"]),
            f"{100 * row['vanished_fraction']:.1f}",
            f"{100 * row['lost_update_fraction']:.1f}",
        )
        for run, row in last.items()
    )
    headings = ("run", "type", "weights", ">steps", ">loss", ">loss scale", ">steps skipped")
    return TextTable(title, (*headings, ">gradients vanished %", ">updates lost %"), body)


def claims_table(title: str, rows: Sequence[Row]) -> TextTable:
    """Each claim, what its page states, what was measured, what is predicted, and which of the two that meets."""
    body = tuple(
        (row["claim"], row["unit"], row["published"], row["measured"], number_text(row["predicted"]), row["meets"])
        for row in rows
    )
    return TextTable(title, ("claim", "unit", ">published", ">measured", ">predicted", "meets"), body)


def model_speedups_table(title: str, rows: Sequence[Row]) -> TextTable:
    """Each model on both GPUs, and how many times faster the other one is: predicted, measured, claimed."""
    body = tuple(
        (
            row["label"],
            f"{row['baseline_precision']} / {row['precision']}",
            str(row["gpus"]),
            str(row["batch"]),
            row["unit"],
            number_text(row["baseline_throughput"]),
            number_text(row["throughput"]),
            f"{row['speedup']:.2f}",
            *(f"{row[key]:.2f}" if row[key] else "" for key in ("measured_speedup", "claimed_speedup")),
            f"{row['tensor_active_pct']:.0f}",
        )
        for row in rows
    )
    boards = list(dict.fromkeys((row["baseline"], row["gpu"]) for row in rows))
    gpus = (">baseline", ">other") if len(boards) > 1 else tuple(f">{name}" for name in boards[0])
    headings = (
        "model",
        "precision",
        ">GPUs",
        ">batch",
        "unit",
        *gpus,
        ">speedup",
        ">measured",
        ">claimed",
        ">Tensor %",
    )
    return TextTable(title, headings, body)
