"""Simulated points as the panels of a plot: one for each benchmark of a board that has a curve."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.figures.microbench_plots import CurvePanel, CurvePoint
from gpusim.studies.microbench.benchmarks import BENCHMARKS
from gpusim.studies.microbench.parameters import Benchmark
from gpusim.studies.microbench.suite import SimulatedPoint

LABELS = {
    "footprint_kb": "footprint [KiB]",
    "footprint_b": "footprint [B]",
    "cta": "threads of a CTA",
    "ctas": "CTAs",
    "warps": "warps of an SM",
    "warps_per_sm": "warps of an SM",
    "ilp": "independent chains of a warp",
    "elements_f64": "elements of 8 B",
    "fma_iters": "multiply-adds of an element",
    "iters": "multiply-adds of an element",
    "clock_mhz_set": "highest clock, as set [MHz]",
    "m": "m = n = k",
    "n": "m = n = k",
}
"""Labels of parameters along an axis; other parameters go by their name."""


def panels_of(points: Sequence[SimulatedPoint]) -> list[CurvePanel]:
    """The panels of points that were simulated; benchmarks of single points have none."""
    found = []
    for gpu, name in dict.fromkeys((one.gpu, one.benchmark) for one in points if one.value is not None):
        benchmark = BENCHMARKS[name]
        own = [one for one in points if (one.gpu, one.benchmark) == (gpu, name) and one.value is not None]
        drawn = tuple(point for one in own if (point := _point(one, benchmark)) is not None)
        if len({point.x for point in drawn}) > 1:
            found.append(CurvePanel(f"{gpu}: {name}", LABELS.get(benchmark.x, benchmark.x), own[0].unit, drawn))
    return found


def _point(one: SimulatedPoint, benchmark: Benchmark) -> CurvePoint | None:
    try:
        x = float(one.parameters[benchmark.x])
    except (KeyError, ValueError):
        return None
    named = [f"{name} {one.parameters[name]}" for name in benchmark.series if name in one.parameters]
    return CurvePoint(", ".join(named), x, one.value or 0.0, one.published)
