"""A workload on several boards: time, speedup, what limits it, energy, memory, and performance for the money."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from gpusim.api import Arguments, GpuArguments, workload_of
from gpusim.confidence import CalibratedOn, ratio_of
from gpusim.errors import InputError
from gpusim.execution.cases import Case, CaseResult, Predictable
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.prediction.results import Result, json_ready
from gpusim.progress import Progress, no_progress
from gpusim.report.calibration_notes import uncalibrated_tables
from gpusim.report.formatting import energy_text, gpu_text, interval_text, ratio_text, time_text
from gpusim.report.text_table import TextTable
from gpusim.step.model import ModelResult
from gpusim.studies.prices import Prices, read_prices
from gpusim.studies.workload import GpuVariant, Predicted, Workload, evidence_of, step_of

US_OF_HOUR = 3600e6
LEFT_OUT = ("8 in 10 runs", ">as a CUDA graph", ">energy", ">runs a dollar")
"""Columns that a narrow terminal leaves out, in this order."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A workload on one board, as :func:`gpusim.compare` returns it: times in us, energy in mJ, memory in GiB."""

    arch: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Values of the spec that were replaced, by key path."""
    step: str = ""
    """Step of a model, with its precision and sizes."""
    time_us: float | None = None
    """Time of an operator with its launch, or of a step [us]. None, as are the other values, where the GPU
    cannot run it."""
    baseline: str = ""
    """Board that the speedup is over."""
    speedup: float | None = None
    speedup_p10: float | None = None
    """With ``speedup_p90`` the interval that eight in ten measured speedups fall into."""
    speedup_p90: float | None = None
    bottleneck: str = ""
    """What would help most if it were twice as good; of a step also ``host`` or ``communication``."""
    as_graph_us: float | None = None
    """Time of a step as a CUDA graph, where it is host-bound [us]."""
    time_us_p10: float | None = None
    """With ``time_us_p90`` the interval that eight in ten runs fall into [us]."""
    time_us_p90: float | None = None
    evidence: str | None = None
    """What surrounds the prediction of an operator: ``validated``, ``interpolated`` or ``extrapolated``."""
    calibrated_on: CalibratedOn | None = None
    """Whose measured runs the board's values were fitted to: ``board``, ``architecture`` or ``nothing``."""
    energy_mj: float | None = None
    """Energy of a run [mJ]."""
    power_w: float | None = None
    """Average power of the board [W]."""
    items: int | None = None
    """Images, sequences or tokens of a step; of an operator None."""
    item: str = ""
    """What ``items`` counts: ``img``, ``seq`` or ``tok``."""
    memory_gib: float | None = None
    fits: bool | None = None
    """Into the memory of the board."""
    price: float | None = None
    """Price as the file of prices states it; None where it does not."""
    runs_per_dollar: float | None = None
    """Runs for a dollar at a price by the hour."""
    relative_value: float | None = None
    """Performance for the money over that of the baseline, or of the fastest board with a price if that has none. None,
    as is ``runs_per_dollar``, where the workload does not fit into the memory."""
    reason: str = ""
    """Why the board cannot run it, or that it is not known; one line."""

    @property
    def gpu(self) -> str:
        """Board with the values of its spec that were replaced."""
        return gpu_text(self.arch, self.overrides)

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; floats to 12 significant digits."""
        return {name: json_ready(value) for name, value in asdict(self).items()}


def compare_workload(
    workload: Workload,
    boards: Sequence[GpuVariant],
    prices: Prices | None = None,
    service: Service = Service(),
    progress: Progress = no_progress,
    baseline: GpuVariant | None = None,
) -> list[Compared]:
    """A workload on each of some boards: the fastest first, then those that cannot run it, in their order.

    Args:
        baseline: Board that speedups are over, which is predicted too; the first of the boards that can run it if None.

    Raises:
        InputError: none of the boards is known, or the baseline is not or cannot run it.
    """
    unknown: list[Compared] = []
    refusals: list[InputError] = []
    cases: list[Case[Predictable[Predicted]]] = []
    for board in boards:
        try:
            cases.append(board.case(workload))
        except InputError as error:
            refusals.append(error)
            unknown.append(Compared(board.arch, reason=str(error)))
    if refusals and not cases:
        raise refusals[0]
    if baseline is not None:
        first = baseline.case(workload)
        same = [at for at, one in enumerate(cases) if one.system.content_hash == first.system.content_hash]
        cases.insert(0, cases.pop(same[0]) if same else first)
    outcomes = list(zip(cases, predict_all(cases, service, progress), strict=True))
    if baseline is not None and outcomes[0][1].result is None:
        raise InputError(f"baseline {outcomes[0][0].system.gpu.name}: {outcomes[0][1].reason}; name another GPU")
    base = next((outcome.result for _, outcome in outcomes if outcome.result is not None), None)
    found = [_compared(one, outcome, base, prices) for one, outcome in outcomes]
    return [*_related([one for one in found if one.time_us is not None]), *_refused(found), *unknown]


def _compared(
    one: Case[Predictable[Predicted]],
    outcome: CaseResult[Predicted],
    base: Predicted | None,
    prices: Prices | None,
) -> Compared:
    """A board by itself, and its speedup over the board of the prediction ``base``."""
    name, overrides, result = one.system.gpu.name, dict(one.system.overrides), outcome.result
    price = prices.of(name) if prices else None
    if result is None or base is None:
        return Compared(name, overrides, price=price, reason=outcome.reason)
    speedup, (_, time_us, low_us, high_us) = ratio_of(base.timed, result.timed), result.timed
    hourly = price is not None and prices is not None and prices.kind == "per_hour"
    return Compared(
        name,
        overrides,
        step=step_of(result),
        time_us=time_us,
        speedup=speedup.value,
        speedup_p10=speedup.low,
        speedup_p90=speedup.high,
        bottleneck=_bottleneck(result),
        as_graph_us=result.as_graph_us if isinstance(result, ModelResult) else None,
        time_us_p10=low_us,
        time_us_p90=high_us,
        evidence=evidence_of(result),
        calibrated_on=result.calibrated_on,
        energy_mj=_energy_mj(result),
        power_w=result.counters.power_w if isinstance(result, Result) else result.step.power_w,
        items=result.items if isinstance(result, ModelResult) else None,
        item=result.graph.item if isinstance(result, ModelResult) else "",
        memory_gib=result.memory_gib,
        fits=result.fits,
        price=price,
        runs_per_dollar=US_OF_HOUR / (time_us * price) if price and hourly and result.fits else None,
    )


def _related(ran: Sequence[Compared]) -> list[Compared]:
    """Boards with their values for the money over the first, the fastest first."""
    ordered = sorted(ran, key=lambda one: one.time_us or 0.0)
    over = next((one for one in (*ran[:1], *ordered) if one.price and one.fits), None)
    return [
        replace(
            one,
            baseline=ran[0].gpu,
            relative_value=_cost(over) / _cost(one) if over and one.price and one.fits else None,
        )
        for one in ordered
    ]


def _refused(found: Iterable[Compared]) -> Iterable[Compared]:
    return (one for one in found if one.time_us is None)


def _cost(one: Compared) -> float:
    """Price of the time that a run takes, in a unit of its own."""
    return (one.time_us or 0.0) * (one.price or 0.0)


def comparison_tables(found: Sequence[Compared], workload: str, prices: Prices | None = None) -> list[TextTable]:
    """The boards that can run it, and those that cannot."""
    ran = [one for one in found if one.time_us is not None]
    rows = tuple(
        (
            one.gpu,
            time_text(one.time_us or 0.0),
            interval_text(one.time_us_p10, one.time_us_p90, one.evidence),
            ratio_text(one.speedup or 0.0, one.speedup_p10, one.speedup_p90),
            one.bottleneck,
            "" if one.as_graph_us is None else time_text(one.as_graph_us),
            energy_text(one.energy_mj or 0.0),
            f"{one.memory_gib:.4g}",
            "" if one.fits else "no",
            "" if one.price is None else f"{one.price:g}",
            "" if one.runs_per_dollar is None else f"{one.runs_per_dollar:.4g}",
            "" if one.relative_value is None else f"{one.relative_value:.2f}",
        )
        for one in ran
    )
    price = ">price an hour" if prices and prices.kind == "per_hour" else ">price"
    headings = (
        "GPU",
        ">time",
        "8 in 10 runs",
        ">speedup",
        "bottleneck",
        ">as a CUDA graph",
        ">energy",
        ">memory GiB",
        "fits",
        price,
        ">runs a dollar",
    )
    what = (ran[0].step or workload) if ran else ""
    title = f"{what}, speedup over {ran[0].baseline}" if ran else ""
    tables = [TextTable(title, (*headings, ">relative value"), rows, LEFT_OUT, whole=("GPU",))] if ran else []
    if refused := tuple((one.gpu, one.reason) for one in _refused(found)):
        tables.append(TextTable("Cannot run it", ("GPU", "reason"), refused))
    return [*tables, *uncalibrated_tables([one.arch for one in ran if one.calibrated_on == "nothing"])]


def compare(
    archs: Sequence[str | os.PathLike[str]],
    *,
    jobs: int = 1,
    prices: str | os.PathLike[str] | None = None,
    baseline: str | os.PathLike[str] | None = None,
    **arguments: Unpack[Arguments],
) -> list[Compared]:
    """One operator on several GPUs, as ``gpusim compare`` does.

    >>> [one.arch for one in compare(["t4", "v100-sxm2-16gb"], m=16, n=512, k=512, detail="bound")]
    ['V100-SXM2-16GB', 'T4']

    Args:
        archs: GPUs as :func:`gpusim.predict` takes them.
        jobs: Worker processes.
        prices: File of prices (:mod:`gpusim.studies.prices`).
        baseline: GPU that speedups are over; the first of ``archs`` that can run the operator if None.
        arguments: Those of :func:`gpusim.predict`.

    Returns:
        One record for each of ``archs``: the fastest first, then those that cannot run the operator, with the reason.

    Raises:
        InputError: None of the GPUs is known, the baseline is not or cannot run it, or no price can be read.
        ArgumentError: An argument is unknown, missing or invalid.
    """
    if not archs:
        return []
    given: dict[str, Any] = dict(arguments)
    of_gpu = {name: given.pop(name) for name in GpuArguments.__annotations__ if name in given}
    workload = workload_of(**given)
    arch_path = tuple(map(Path, of_gpu.get("arch_path", ())))

    def variant(arch: str | os.PathLike[str]) -> GpuVariant:
        return GpuVariant(os.fspath(arch), of_gpu.get("overrides") or {}, of_gpu.get("cuda"), arch_path)

    boards = [variant(arch) for arch in archs]
    read = read_prices(Path(prices), arch_path) if prices is not None else None
    over = variant(baseline) if baseline is not None else None
    return compare_workload(workload, boards, read, Service(jobs), baseline=over)


def _bottleneck(result: Predicted) -> str:
    return result.bottleneck if isinstance(result, Result) else result.step.bottleneck


def _energy_mj(result: Predicted) -> float:
    return result.counters.energy_mj if isinstance(result, Result) else 1e3 * result.step.energy_j
