"""A workload on a board, as shipped or with values replaced: what of its prediction is laid beside other boards.

The record is small, whether an operator or a step of a thousand kernels was predicted, so that it can be kept and sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.confidence import CalibratedOn, Evidence, Ratio, Timed, ratio_of
from gpusim.prediction.results import Result
from gpusim.prediction.timing import Simulate
from gpusim.report.formatting import gpu_text
from gpusim.report.limit_text import NAMES, limit_text
from gpusim.specs import Spec
from gpusim.specs.sourced import Sourced
from gpusim.specs.writing import file_text
from gpusim.step.model import ModelResult
from gpusim.step.results import Step
from gpusim.studies.explain.parts import Part, parts_of
from gpusim.studies.workload import GpuVariant, Predicted, Workload, evidence_of, step_of, without_limits

MOST_POINTS = 12
"""Operators of a step in its roofline: those that take the most time."""


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """An operator in a roofline."""

    name: str
    intensity: float
    """Operations per byte when every operand and result moves once [FLOP/B; OP/B for integers]."""
    tflops: float
    """Rate of its kernels [TFLOP/s; TOP/s for integers]."""
    share: float
    """Fraction of the time of the workload."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """The rates of a workload's operators, and what bounds them on a board."""

    points: tuple[RooflinePoint, ...]
    """The operator, or those that take the most time of a step."""
    peak_tflops: float
    """Highest of the peaks of their kernels' instructions, at the clock that it is stated for [TFLOP/s]."""
    peak_at_clock_tflops: float
    """That peak at the clock of the run, which the power limit may hold lower [TFLOP/s]."""
    l2_gb_per_s: float
    """Bandwidth of L2 at the clock of the run [GB/s]."""
    dram_gb_per_s: float
    """Peak bandwidth of DRAM [GB/s]."""


@dataclass(frozen=True, slots=True)
class BoardPrediction:
    """A workload on a board."""

    gpu: str
    """Board with the values of its spec that were replaced."""
    arch: str
    overrides: Mapping[str, Any]
    """Replaced values by key path."""
    step: str
    """Step of a model, with its precision and sizes; empty of an operator."""
    time_us: float
    """Time of an operator with its launch, or of a step [us]."""
    time_us_p10: float | None
    """With ``time_us_p90`` the interval that eight in ten runs fall into [us]."""
    time_us_p90: float | None
    evidence: Evidence | None
    """What surrounds the prediction of an operator: ``validated``, ``interpolated`` or ``extrapolated``."""
    calibrated_on: CalibratedOn
    """Whose measured runs the board's values were fitted to: ``board``, ``architecture`` or ``nothing``."""
    bottleneck: str
    """What would help most if it were twice as good; of a step also ``host`` or ``communication``."""
    next_bottleneck: str
    """What would help most besides."""
    limit: str
    """The bottleneck in a sentence."""
    savings: Mapping[str, float]
    """Fraction of the time that each resource saves if it is twice as good, the largest first."""
    parts: tuple[Part, ...]
    """Parts of the time, the largest first; they add up to it."""
    stalls: Mapping[str, float]
    """Fraction of the warps' cycles by cause, the largest first."""
    roofline: Roofline
    clock_mhz: float
    """SM clock that the power governor leaves, in the mean [MHz]."""
    max_clock_mhz: float
    power_w: float
    """Power of the board, in the mean [W]."""
    power_limit_w: float
    energy_mj: float
    """Energy of a run [mJ]."""
    memory_gib: float
    fits: bool
    """Into the memory of the board."""
    limited: bool
    """Whether it was found what would help; else the bottleneck is the busiest resource of an operator, and unknown of
    a step."""
    result: Mapping[str, Any]
    """The prediction as ``gpusim gemm`` or ``gpusim model`` prints it with ``--format json``."""

    @property
    def timed(self) -> Timed:
        """The time with its interval."""
        return Timed(self.arch, self.time_us, self.time_us_p10, self.time_us_p90)

    def speedup_over(self, other: BoardPrediction) -> Ratio:
        """The speedup over the workload on another board, with its interval."""
        return ratio_of(other.timed, self.timed)


def predict_on(workload: Workload, board: GpuVariant, simulate: Simulate, *, limits: bool = True) -> BoardPrediction:
    """Predict a workload on a board.

    Args:
        limits: whether to find what would help, by further simulations.

    Raises:
        InputError: there is no such board, or it cannot run the workload.
    """
    case = board.case(workload if limits else without_limits(workload))
    result = case.workload.predict(case.system, simulate)
    gpu = case.system.gpu
    bottleneck, following = _bottlenecks(result)
    low_us, high_us = result.timed[2:]
    whole = result.step if isinstance(result, ModelResult) else result.counters
    clock_mhz = result.step.clock_mhz if isinstance(result, ModelResult) else result.timing.clock_mhz
    return BoardPrediction(
        gpu=gpu_text(gpu.name, dict(result.overrides)),
        arch=gpu.name,
        overrides=dict(result.overrides),
        step=step_of(result),
        time_us=result.timed.time_us,
        time_us_p10=low_us,
        time_us_p90=high_us,
        evidence=evidence_of(result),
        calibrated_on=result.calibrated_on,
        bottleneck=bottleneck,
        next_bottleneck=following,
        limit=_limit_text(result),
        savings=result.step.savings() if isinstance(result, ModelResult) else result.utilization.savings,
        parts=parts_of(result),
        stalls=_stalls(result),
        roofline=_roofline(result, board.spec),
        clock_mhz=clock_mhz,
        max_clock_mhz=gpu.clock.max_mhz,
        power_w=whole.power_w,
        power_limit_w=gpu.power.board_limit_w,
        energy_mj=1e3 * whole.energy_j if isinstance(whole, Step) else whole.energy_mj,
        memory_gib=result.memory_gib,
        fits=result.fits,
        limited=limits,
        result=result.as_dict(),
    )


def _bottlenecks(result: Predicted) -> tuple[str, str]:
    """What would help most, and what besides."""
    if isinstance(result, Result):
        return result.bottleneck, result.utilization.next_bottleneck
    first, second, *_ = *result.step.savings(), ""
    return first, second


def _limit_text(result: Predicted) -> str:
    if isinstance(result, Result):
        return limit_text(result) if result.utilization.savings else result.bottleneck
    (first, saved), (second, _), *_ = result.step.savings().items()
    return (
        f"{NAMES.get(first, first)} (twice as good saves {100 * saved:.0f} %); next limit: {NAMES.get(second, second)}"
    )


def _kernels(result: Predicted) -> list[tuple[float, Result]]:
    """Predictions of operators, each with how often it runs."""
    if isinstance(result, Result):
        return [(1.0, result)]
    return [(one.count, one.result) for one in result.step.computed]


def _stalls(result: Predicted) -> dict[str, float]:
    """Shares of the cycles of all warps by cause, those without any left out."""
    found: dict[str, float] = {}
    for count, one in _kernels(result):
        for cause, cycles in one.counters.stall_cycles.items():
            found[cause] = found.get(cause, 0.0) + count * cycles
    whole = sum(found.values())
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return {cause: cycles / whole for cause, cycles in ordered if cycles}


def _roofline(result: Predicted, spec: Spec) -> Roofline:
    of_name: dict[str, list[tuple[float, Result]]] = {}
    if isinstance(result, Result):
        of_name[result.operator.op or "gemm"] = [(result.time_us, result)]
    else:
        for one in result.step.computed:
            name = f"{one.result.operator.op or 'gemm'} {one.result.operator.shape}"
            of_name.setdefault(name, []).append((one.total_us, one.result))
    points = [_point(name, runs, result.timed.time_us) for name, runs in of_name.items()]
    points = [one for one in points if one.intensity and one.tflops]
    points.sort(key=lambda one: (-one.share, one.name))
    timings = [one.timing for _, one in _kernels(result)]
    highest = max(timings, key=lambda one: one.peak_tflops)
    clock_mhz = result.step.clock_mhz if isinstance(result, ModelResult) else result.timing.clock_mhz
    return Roofline(
        tuple(points[:MOST_POINTS]),
        highest.peak_tflops,
        highest.peak_tflops * clock_mhz / highest.peak_clock_mhz,
        spec.gpu.l2.bandwidth_bytes_per_cycle * clock_mhz * 1e-3,
        spec.gpu.dram.peak_bandwidth_gb_per_s,
    )


def _point(name: str, runs: list[tuple[float, Result]], whole_us: float) -> RooflinePoint:
    timing = runs[0][1].timing
    intensity = 1e3 * timing.tflops / timing.bandwidth_gb_per_s if timing.bandwidth_gb_per_s else 0.0
    return RooflinePoint(name, intensity, timing.tflops, sum(us for us, _ in runs) / whole_us)


def variant_yaml(spec: Spec, name: str, comments: tuple[str, ...] = ()) -> str:
    """A spec file of a board with values replaced: it extends the shipped one, and states what differs.

    Args:
        spec: with the values replaced.
        comments: further lines at its head.
    """
    values: dict[str, Any] = {}
    for key_path, value in dict(spec.system.overrides).items():
        *parents, last = key_path.split(".")
        part = values
        for key in parents:
            part = part.setdefault(key, {})
        part[last] = Sourced(value=value, kind="assumed", source="a what-if question")
    return file_text(
        "gpu",
        None,
        (f"{spec.gpu.name} with other values.", *comments),
        {"name": name, "aliases": [], "short_names": [], "extends": spec.files[0].stem},
        {},
        values,
    )
