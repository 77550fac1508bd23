"""Tables of generated text: prompts and the tokens after them, one generation a line."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.report.calibration_notes import uncalibrated, uncalibrated_tables
from gpusim.report.formatting import gpu_text, shares_text, time_text
from gpusim.report.text_table import TextTable
from gpusim.step.serving import ServingPoint

LEFT_OUT = (">J a token", ">cache GiB", "a token is limited by", ">speedup")
"""Columns that a narrow terminal leaves out, in this order."""


def generation_tables(points: Sequence[ServingPoint]) -> list[TextTable]:
    """Prompts and the tokens after them, and what is said of their boards."""
    boards = uncalibrated(one.generation.prompt for one in points)
    return [generation_table(points), *uncalibrated_tables(boards)]


def generation_table(points: Sequence[ServingPoint]) -> TextTable:
    """Prompts and the tokens after them, one generation a line."""
    first = points[0].generation
    priced, several = any(point.dollars is not None for point in points), len(points) > 1
    rows = tuple(_row(point, first.tokens_per_s, priced=priced, several=several) for point in points)
    graph = first.prompt.graph
    batches = sorted({point.generation.prompt.graph.sizes["batch"] for point in points})
    batch = f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
    lengths = f"{graph.sizes['seq_len']} tokens, then {first.count} generated"
    on = f" on {first.prompt.gpus} of each GPU" if first.prompt.gpus > 1 else ""
    headings = ("GPU", "precision", ">batch", ">first token", ">token", ">tok/s", ">speedup", "a token is limited by")
    memory = (">J a token", ">cache GiB", ">memory GiB", ">largest batch")
    more = (*([">$ a million"] if priced else []), *(["front"] if several else []))
    title = f"{graph.name}: {batch}, {lengths}{on}"
    return TextTable(title, (*headings, *memory, *more), rows, LEFT_OUT, whole=("GPU",))


def _row(point: ServingPoint, over: float, *, priced: bool, several: bool) -> tuple[str, ...]:
    """A generation; its throughput is related to another one."""
    one = point.generation
    return (
        gpu_text(one.prompt.step.arch, one.prompt.overrides),
        one.prompt.policy.precision,
        str(one.prompt.graph.sizes["batch"]),
        time_text(1e3 * one.prompt.step_ms),
        time_text(1e3 * one.token_ms),
        f"{one.tokens_per_s:.4g}",
        f"{one.tokens_per_s / over:.2f}",
        shares_text(one.tokens[1].step.time_shares(), least=0.1),
        f"{one.energy_per_token_j:.3g}",
        f"{one.cache_gib:.3g}",
        f"{one.memory_gib:.1f}" + ("" if one.fits else " (does not fit)"),
        "" if one.largest_batch is None else str(one.largest_batch),
        *([f"{point.dollars:.3g}" if point.dollars is not None else ""] if priced else []),
        *(["*" if point.on_front else ""] if several else []),
    )
