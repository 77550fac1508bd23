"""Panels of plots over values of the spec that vary between the GPUs of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpusim.experiment.comparison import SHAPE, VARIANTS, Row, requested_type
from gpusim.experiment.plot_schema import PlotEntry
from gpusim.specs.overrides import is_number

GPU_NAME = "gpu_name"
"""Column of a row that names its GPU without the values that vary, present where some do."""


@dataclass(frozen=True, slots=True)
class Dot:
    """Value of a plot."""

    x: float
    other: float
    """On the other axis of a heat map, or what tells curves apart; 0 where nothing does."""
    metric: float
    gpu: str
    gemms: int = 1
    """How many are added up."""


@dataclass(frozen=True, slots=True)
class ValuePanel:
    """One panel: a board with some of its values varied, and a GEMM or a group of GEMMs."""

    title: str
    dots: Sequence[Dot]


def value_panels(plot: PlotEntry, rows: Sequence[Row]) -> list[ValuePanel]:
    """The panels of a plot, each of rows that differ in the GPU's values only; those in which ``x`` varies."""
    panels: dict[tuple[str, ...], dict[str, Dot]] = {}
    for row in rows:
        if all(is_number(row.get(key_path)) for key_path in plot.key_paths):
            dots = panels.setdefault(_words(plot, row), {})
            x, other, *_ = (*(row[key_path] for key_path in plot.key_paths), 0.0)
            dot = Dot(x, other, row.get(plot.metric, 0.0), row["gpu"])
            dots[dot.gpu] = _added(dots[dot.gpu], dot) if plot.total and dot.gpu in dots else dot
    whole = {words: _whole([*dots.values()]) for words, dots in panels.items()}
    drawn = {words: dots for words, dots in whole.items() if len({dot.x for dot in dots}) > 1}
    alike = [len(set(words)) == 1 for words in zip(*drawn, strict=True)]
    return [ValuePanel(_title(words, alike), dots) for words, dots in drawn.items()]


def _added(total: Dot, dot: Dot) -> Dot:
    return replace(total, metric=total.metric + dot.metric, gemms=total.gemms + 1)


def _whole(dots: Sequence[Dot]) -> list[Dot]:
    """Without the totals that lack a GEMM, which failed on that GPU."""
    most = max(dot.gemms for dot in dots)
    return [dot for dot in dots if dot.gemms == most]


def _words(plot: PlotEntry, row: Row) -> tuple[str, ...]:
    """What a row shares with the others of its panel: GEMM, type, name of the GPU and conditions."""
    conditions = (f"L2 {row[name]}" if name == "l2" else str(row[name]) for name in VARIANTS)
    return (_product(plot, row), requested_type(row), str(row[GPU_NAME]), *conditions)


def _title(words: Sequence[str], alike: Sequence[bool]) -> str:
    """The GEMM, and what differs between the panels."""
    gemm, *others = words
    return ", ".join(filter(None, [gemm, *(word for word, same in zip(others, alike[1:], strict=True) if not same)]))


def panel_problem(plot: PlotEntry, rows: Sequence[Row], varying: Sequence[str]) -> str:
    """Why a plot over values cannot be drawn, with the remedy; empty if it can."""
    for key_path in plot.key_paths:
        if key_path not in varying:
            known = ", ".join(varying) or "none; list values in the overrides of a GPU"
            return f"{key_path} does not vary between the GPUs; those that do: {known}"
        if not any(is_number(row[key_path]) for row in rows):
            return f"{key_path} is not a number; choose another value"
    panels = value_panels(plot, rows)
    if not panels:
        return f"{plot.x} has one value for each GPU; list more"
    for panel in panels:
        met: dict[tuple[float, float], str] = {}
        for dot in panel.dots:
            if other := met.get((dot.x, dot.other)):
                return f"'{other}' and '{dot.gpu}' are at one place; vary nothing else, or label one of two entries"
            met[dot.x, dot.other] = dot.gpu
    return ""


def _product(plot: PlotEntry, row: Row) -> str:
    """Name of the GEMM, or of the group of GEMMs, that a dot is the time of."""
    if plot.total:
        return str(row["group"])
    batch, *mnk = (row[axis] for axis in SHAPE)
    size = " × ".join(map(str, mnk)) if batch == 1 else f"{batch} of {' × '.join(map(str, mnk))}"
    return f"{row['label']}, {size}" if row["label"] else size
