"""A workload on several boards: time, speedup, what limits it, energy, memory, and performance for the money."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

from gpusim.api import Arguments, case
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.prediction.results import Result, json_ready
from gpusim.progress import Progress, no_progress
from gpusim.report.formatting import energy_text, interval_text, time_text
from gpusim.report.text_table import TextTable
from gpusim.step.model import ModelResult
from gpusim.studies.prices import Prices, read_prices
from gpusim.studies.workload import GpuVariant, Predicted, Workload, interval_of, step_of, total_us

US_OF_HOUR = 3600e6


@dataclass(frozen=True, slots=True)
class Compared:
    """A workload on one board."""

    arch: str
    step: str = ""
    """Step of a model, with its precision and sizes."""
    time_us: float | None = None
    """Time of an operator with its launch, or of a step [us]. None, as are the other values, where the GPU
    cannot run it."""
    speedup: float | None = None
    """Speedup over the first GPU that can run the workload."""
    bottleneck: str = ""
    """What would help most if it were twice as good; of a step also ``host`` or ``communication``."""
    as_graph_us: float | None = None
    """Time of a step as a CUDA graph, where it is host-bound [us]."""
    time_us_p10: float | None = None
    """With ``time_us_p90`` the interval that eight in ten runs of an operator fall into [us]; a step has none."""
    time_us_p90: float | None = None
    evidence: str | None = None
    """What surrounds the prediction of an operator: ``validated``, ``interpolated`` or ``extrapolated``."""
    energy_mj: float | None = None
    """Energy of a run [mJ]."""
    memory_gib: float | None = None
    fits: bool | None = None
    """Into the memory of the board."""
    price: float | None = None
    """Price as the file of prices states it; None where it does not."""
    runs_per_dollar: float | None = None
    """Runs for a dollar at a price by the hour."""
    relative_value: float | None = None
    """Performance for the money over that of the first board that has a price and can run it."""
    reason: str = ""
    """Why the board cannot run it; one line."""

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; floats to 12 significant digits."""
        return {name: json_ready(value) for name, value in asdict(self).items()}


def compare_workload(
    workload: Workload,
    boards: Sequence[GpuVariant],
    prices: Prices | None = None,
    service: Service = Service(),
    progress: Progress = no_progress,
) -> list[Compared]:
    """A workload on each of some boards, in their order.

    Raises:
        SpecError: there is no such board.
    """
    cases = [board.case(workload) for board in boards]
    found: list[Compared] = []
    base_us = base_value = None
    for one, outcome in zip(cases, predict_all(cases, service, progress), strict=True):
        name, result = one.system.gpu.name, outcome.result
        price = prices.of(name) if prices else None
        if result is None:
            found.append(Compared(name, price=price, reason=outcome.reason))
            continue
        time_us = total_us(result)
        base_us = base_us or time_us
        value = 1.0 / (time_us * price) if price else None
        base_value = base_value or value
        hourly = price is not None and prices is not None and prices.kind == "per_hour"
        found.append(
            Compared(
                name,
                step_of(result),
                time_us,
                base_us / time_us,
                _bottleneck(result),
                result.as_graph_us if isinstance(result, ModelResult) else None,
                *interval_of(result),
                _energy_mj(result),
                result.memory_gib,
                result.fits,
                price,
                US_OF_HOUR * value if value and hourly else None,
                value / base_value if value and base_value else None,
            )
        )
    return found


def comparison_tables(found: Sequence[Compared], workload: str, prices: Prices | None = None) -> list[TextTable]:
    """The boards that can run it, and those that cannot."""
    ran = [one for one in found if one.time_us is not None]
    first = ran[0].arch if ran else ""
    rows = tuple(
        (
            one.arch,
            time_text(one.time_us or 0.0),
            interval_text(one.time_us_p10, one.time_us_p90, one.evidence),
            f"{one.speedup:.2f}",
            one.bottleneck,
            "" if one.as_graph_us is None else time_text(one.as_graph_us),
            energy_text(one.energy_mj or 0.0),
            f"{one.memory_gib:.4g}" + ("" if one.fits else " (does not fit)"),
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
        price,
        ">runs a dollar",
    )
    what = (ran[0].step or workload) if ran else ""
    tables = [TextTable(f"{what}, speedup over {first}", (*headings, ">relative value"), rows)] if ran else []
    if refused := tuple((one.arch, one.reason) for one in found if one.time_us is None):
        tables.append(TextTable("Cannot run it", ("GPU", "reason"), refused))
    return tables


def compare(
    archs: Sequence[str | os.PathLike[str]],
    *,
    jobs: int = 1,
    prices: str | os.PathLike[str] | None = None,
    **arguments: Unpack[Arguments],
) -> list[Compared]:
    """One operator on several GPUs, as ``gpusim compare`` does.

    >>> [one.arch for one in compare(["t4", "v100-sxm2-16gb"], m=16, n=512, k=512, detail="bound")]
    ['T4', 'V100-SXM2-16GB']

    Args:
        archs: GPUs as :func:`gpusim.predict` takes them; speedups are over the first.
        jobs: Worker processes.
        prices: File of prices (:mod:`gpusim.studies.prices`).
        arguments: Those of :func:`gpusim.predict`.

    Raises:
        SpecError: No such GPU, or a file of prices that is wrong.
        ArgumentError: An argument is unknown, missing or invalid.
    """
    if not archs:
        return []
    workload = case(archs[0], **arguments).workload
    arch_path = tuple(map(Path, arguments.get("arch_path", ())))
    boards = [
        GpuVariant(os.fspath(arch), arguments.get("overrides") or {}, arguments.get("cuda"), arch_path)
        for arch in archs
    ]
    read = read_prices(Path(prices), arch_path) if prices is not None else None
    return compare_workload(workload, boards, read, Service(jobs))


def _bottleneck(result: Predicted) -> str:
    return result.bottleneck if isinstance(result, Result) else result.step.bottleneck


def _energy_mj(result: Predicted) -> float:
    return result.counters.energy_mj if isinstance(result, Result) else 1e3 * result.step.energy_j
