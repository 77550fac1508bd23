"""Played points as the panels of a plot: one for each benchmark of a board that has a curve."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.figures.microbench_plots import CurvePanel, CurvePoint
from gpusim.studies.microbench.parameters import Benchmark
from gpusim.studies.microbench.play import BENCHMARKS
from gpusim.studies.microbench.suite import PlayedPoint

UNITS = {"_kb": " [KiB]", "_b": " [B]", "_mhz_set": " [MHz]", "_f64": "", "_mb": " [MB]", "flop_per_byte": " [FLOP/B]"}
"""Of parameters, by the end of their names."""


def panels_of(points: Sequence[PlayedPoint]) -> list[CurvePanel]:
    """The panels of points that were played; benchmarks of single points have none."""
    found = []
    several = len({one.gpu for one in points}) > 1
    for gpu, name in dict.fromkeys((one.gpu, one.benchmark) for one in points if one.value is not None):
        benchmark = BENCHMARKS[name]
        own = [one for one in points if (one.gpu, one.benchmark) == (gpu, name) and one.value is not None]
        drawn = tuple(point for one in own if (point := _point(one, benchmark)) is not None)
        if len({point.x for point in drawn}) > 1:
            title = f"{gpu}: {name}" if several else name
            found.append(CurvePanel(title, _label(benchmark.x), f"[{own[0].unit}]", drawn))
    return found


def _point(one: PlayedPoint, benchmark: Benchmark) -> CurvePoint | None:
    try:
        x = float(one.parameters[benchmark.x])
    except (KeyError, ValueError):
        return None
    named = [f"{name} {one.parameters[name]}" for name in benchmark.series if name in one.parameters]
    return CurvePoint(", ".join(named), x, one.value or 0.0, one.published)


def _label(parameter: str) -> str:
    unit = next((unit for end, unit in UNITS.items() if parameter.endswith(end)), "")
    return parameter.removesuffix("_kb").removesuffix("_b").replace("_", " ") + unit
