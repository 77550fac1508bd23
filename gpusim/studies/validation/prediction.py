"""Predictions of measured rows, once with the chosen and once with the recorded kernel.

What is compared is what the row's way of timing would have read (:func:`gpusim.host.timing_methods.observed_time_us`).
A row that cannot be predicted has a reason instead.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpusim.cuda_version import CudaVersion
from gpusim.evidence.boards import board_of
from gpusim.evidence.importers.kernel_names import same_kernel
from gpusim.evidence.measured import MeasuredRow
from gpusim.evidence.sources import MeasuredSystem, measured_system
from gpusim.execution.cases import Case, CaseResult, OperatorCase, OperatorWorkload
from gpusim.execution.journal import Journal
from gpusim.execution.resumable import WHOLE, ResumableSweep
from gpusim.execution.service import Service
from gpusim.execution.sweep import sweep
from gpusim.host.timing_methods import dispatched_as, observed_time_us
from gpusim.lowering.pages import usable_l2_bytes
from gpusim.prediction.options import Options
from gpusim.prediction.results import Result
from gpusim.prediction.selection import usable_kernels
from gpusim.progress import Progress
from gpusim.sim.causes import Cause
from gpusim.specs import Spec, UnknownGpuError, load_spec
from gpusim.studies.validation.noise import noise_fractions
from gpusim.workloads.gemm import Gemm

WORKING = (Cause.MATH, Cause.ISSUE)
"""Causes that are work, not a stall."""
MEMORY_BOUNDS = ("dram", "l2")
"""Closed-form bounds of traffic beyond the SM; the others are of the SM itself."""


Systems = Mapping[tuple[str, CudaVersion | None], MeasuredSystem]
"""By the name that a table gives a GPU, and the major version of CUDA that its library is of."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One measured row and its prediction, both as the row's method reads them [us]."""

    row: MeasuredRow
    result: Result
    predicted_us: float
    bound_us: float
    seconds: float
    max_clock_mhz: float
    """Highest clock of the GPU [MHz]; a lower clock in a result is due to the power limit."""
    noise_fraction: float | None = None
    """Mean relative deviation of the reading itself; None if it is not known."""
    pinned_us: float | None = None
    """Predicted with the recorded kernel; None if the catalogue does not have it or none was recorded."""

    @property
    def method_overhead_us(self) -> float:
        """Time that the row's timing method adds to that of the kernels [us]."""
        return self.predicted_us - self.result.kernel_time_us

    @property
    def error_fraction(self) -> float:
        """Signed: positive where the prediction is too slow."""
        return self.predicted_us / self.row.time_us - 1

    @property
    def inside(self) -> bool | None:
        """Whether the reading is in the interval of its prediction; None where that states none."""
        timed = self.result.timed
        as_launched_us = self.row.time_us * timed.time_us / self.predicted_us  # whatever timed it
        return None if timed.low_us is None else timed.contains(as_launched_us)

    @property
    def bound_by(self) -> str:
        """``memory`` if traffic beyond the SM sets the closed-form bound, else ``compute``."""
        bounds = self.result.bounds_us
        return "memory" if max(bounds, key=lambda name: bounds[name]) in MEMORY_BOUNDS else "compute"

    @property
    def power_limited(self) -> bool:
        """The board cannot sustain its highest clock on this run."""
        return self.result.timing.clock_mhz < self.max_clock_mhz

    @property
    def dominant_stall(self) -> str:
        """The stall with most cycles; empty if nothing was simulated."""
        working = {cause.value for cause in WORKING}
        stalls = {cause: cycles for cause, cycles in self.result.counters.stall_cycles.items() if cause not in working}
        return max(stalls, key=lambda cause: stalls[cause], default="") if any(stalls.values()) else ""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Results and skipped rows, by index."""

    scored: Mapping[int, Scored]
    reasons: Mapping[int, str]
    """Why a row has no prediction."""
    cases: Mapping[int, OperatorCase]
    """What is predicted of each row: its time, and not what would help it."""

    def with_limits(self, rows: Collection[Scored], service: Service) -> Predictions:
        """The predictions, of some rows with what would help them."""
        wanted = {id(one) for one in rows}
        asked = [index for index, one in self.scored.items() if id(one) in wanted]
        cases = [_with_options(self.cases[index], limits=True) for index in asked]
        known = {}
        for number, outcome in sweep(cases, service):
            index = asked[number]
            known[index] = replace(self.scored[index], result=outcome.or_raise())
        return replace(self, scored={**self.scored, **known})


def specs_of(gpus: Iterable[str], arch_path: Sequence[Path]) -> tuple[dict[str, Spec], dict[str, str]]:
    """The specs of GPUs by the name that a table gives them, and why others have none.

    Raises:
        SpecError: a spec is wrong, or a folder of specs is not there.
    """
    known: dict[str, Spec] = {}
    unknown: dict[str, str] = {}
    for gpu in sorted(set(gpus)):
        try:
            known[gpu] = board_of(gpu, arch_path)
        except UnknownGpuError as error:
            unknown[gpu] = str(error)
    return known, unknown


def systems_of(
    rows: Sequence[MeasuredRow], specs: Mapping[str, Spec], overheads: Mapping[str, float], arch_path: Sequence[Path]
) -> Systems:
    """The systems that the rows were timed on, with these host times by timing method [us] in place of the spec's."""
    found = {}
    for gpu, cuda in sorted({(row.gpu, row.cuda) for row in rows if row.gpu in specs}, key=str):
        spec = specs[gpu] if cuda is None else load_spec(specs[gpu].files[0], arch_path, cuda=cuda)
        found[gpu, cuda] = measured_system(spec, arch_path).with_overheads(overheads)
    return found


def predict_rows(
    rows: Sequence[MeasuredRow],
    detail: str,
    systems: Systems,
    unknown: Mapping[str, str],
    service: Service,
    progress: Progress,
    journal: Journal | None,
) -> Predictions:
    """A prediction or a reason for every row.

    Args:
        systems: by the name that the rows give a GPU, and the version of CUDA.
        unknown: why the other names have none.
    """
    cases, reasons = cases_of_rows(rows, detail, systems, unknown)
    noise = noise_fractions(rows)
    scored = {}
    for index, outcome in _outcomes(cases, service, progress, journal):
        row, result = rows[index], outcome.result
        if result is None:
            reasons[index] = outcome.reason
            continue
        if not result.consistent:
            reasons[index] = f"a prediction that contradicts itself: {'; '.join(result.notes)}"
            continue
        if not result.fits:
            reasons[index] = result.notes[0]
            continue
        measured = systems[row.gpu, row.cuda]
        scored[index] = Scored(
            row,
            result,
            reading_us(result.kernel_time_us, row, measured),
            reading_us(result.timing.bound_us, row, measured),
            outcome.seconds,
            measured.system.gpu.clock.max_mhz,
            noise[index],
        )
    scored = _with_recorded_kernels(dict(sorted(scored.items())), cases, systems, service, progress, journal)
    return Predictions(scored, dict(sorted(reasons.items())), cases)


def cases_of_rows(
    rows: Sequence[MeasuredRow], detail: str, systems: Systems, unknown: Mapping[str, str]
) -> tuple[dict[int, OperatorCase], dict[int, str]]:
    """Cases and reasons for rows without one, by row index."""
    cases: dict[int, OperatorCase] = {}
    reasons: dict[int, str] = {}
    for index, row in enumerate(rows):
        if row.gpu in unknown:
            reasons[index] = unknown[row.gpu]
        elif row.ran_elsewhere:
            reasons[index] = f"a kernel of {row.kernel}, which is not described"
        elif row.operator is None:
            reasons[index] = f"operator '{row.op}' is not predicted"
        else:
            system = systems[row.gpu, row.cuda].system
            l2 = row.l2_of(usable_l2_bytes(system.gpu))
            options = Options(
                detail=detail,
                l2=l2,
                load=row.load,
                operands=row.operands,
                torch=row.torch,
                source=row.source,
                limits=False,
            )
            cases[index] = Case(system, OperatorWorkload(row.operator, options))
    return cases, reasons


def _with_recorded_kernels(
    scored: Mapping[int, Scored],
    cases: Mapping[int, OperatorCase],
    systems: Systems,
    service: Service,
    progress: Progress,
    journal: Journal | None,
) -> dict[int, Scored]:
    """Predictions with their times under the recorded kernels, where the catalogue has these."""
    names = {
        index: _name_in_catalogue(cases[index], item.row.kernel)
        for index, item in scored.items()
        if item.row.tile_m and item.row.kernel
    }
    updated = {
        index: replace(item, pinned_us=item.predicted_us) if item.result.kernel == names.get(index) else item
        for index, item in scored.items()
    }
    pinned = {
        index: _with_options(cases[index], kernel=name)
        for index, name in names.items()
        if updated[index].pinned_us is None
    }
    for index, outcome in _outcomes(pinned, service, progress, journal):
        if outcome.result is not None:
            timed, row = outcome.result, scored[index].row
            time_us = reading_us(timed.kernel_time_us, row, systems[row.gpu, row.cuda])
            updated[index] = replace(scored[index], pinned_us=time_us)
    return updated


def _with_options(case: OperatorCase, **changed: Any) -> OperatorCase:
    return replace(case, workload=replace(case.workload, options=replace(case.workload.options, **changed)))


def _name_in_catalogue(case: OperatorCase, recorded: str) -> str:
    """What the catalogue calls a recorded kernel: versions of a library, and profilers, print one in several ways."""
    gemm = case.workload.operator
    if not isinstance(gemm, Gemm):
        return recorded
    layout = gemm.blas_call.layout
    names = [kernel.printed_name(layout, gemm.dtype) for kernel in usable_kernels(case.system, gemm)]
    alike = (name for name in names if same_kernel(name, recorded))
    return recorded if recorded in names else next(alike, recorded)


def reading_us(kernel_time_us: float, row: MeasuredRow, measured: MeasuredSystem) -> float:
    """What a row's source would have read for kernels that take so long [us]."""
    assert row.operator is not None  # a row without an operator has no prediction
    return observed_time_us(
        kernel_time_us,
        row.method,
        measured.system.host,
        dispatched_as(row.operator),
        measured.overheads.harness(row.source),
        row.op,
    )


def _outcomes(
    cases: Mapping[int, OperatorCase], service: Service, progress: Progress, journal: Journal | None
) -> Iterator[tuple[int, CaseResult[Result]]]:
    """Results by index; those in the journal are not predicted again."""
    indices = list(cases)
    with closing(_predicted(list(cases.values()), service, progress, journal)) as outcomes:
        for number, outcome in outcomes:
            yield indices[number], outcome


def _predicted(
    cases: Sequence[OperatorCase], service: Service, progress: Progress, journal: Journal | None
) -> Generator[tuple[int, CaseResult[Result]]]:
    found = 0
    if journal is None:
        fresh = sweep(cases, service)
    else:
        resumable = ResumableSweep(lambda: cases, WHOLE, journal)
        found = resumable.found
        progress(found, len(cases))
        yield from resumable.resumed()
        fresh = resumable.predict(service)
    with closing(fresh):
        for done, outcome in enumerate(fresh, found + 1):
            progress(done, len(cases))
            yield outcome
