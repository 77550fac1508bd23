"""A prediction with its simulated events recorded in a timeline file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpusim.errors import InputError
from gpusim.execution.cases import OperatorCase, naming
from gpusim.prediction.predict import predict
from gpusim.prediction.results import SIMULATED, Result
from gpusim.progress import Progress, no_progress
from gpusim.report.trace_events import write_timeline
from gpusim.sim.trace import Recorder

MOST_EVENTS = 100_000
"""Events in a file; at some 170 bytes each it stays below 20 MB."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A prediction and how much of it a timeline shows."""

    result: Result
    events: int
    dropped_events: int
    """Events beyond the limit."""
    skipped_cycles: int
    """Cycles of periods that were extrapolated."""


def record_timeline(
    case: OperatorCase, out: Path, limit: int = MOST_EVENTS, progress: Progress = no_progress
) -> RecordedRun:
    """Predict a case and write the timeline of one SM: its warps, pipes, ports and links.

    Raises:
        InputError: ``bound`` simulates nothing, or the file cannot be written.
        UnsupportedError: The GPU cannot run the case.
    """
    if out.exists() and not out.is_file():
        raise InputError(f"{out}: is a folder or a device; name a file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: no folder {out.parent}")
    result, recorder = recorded(case, limit, progress)
    try:
        write_timeline(out, result, recorder)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}; choose another path") from None
    return RecordedRun(result, recorder.kept, recorder.dropped, recorder.skipped_cycles)


def recorded(case: OperatorCase, limit: int, progress: Progress = no_progress) -> tuple[Result, Recorder]:
    """Predict a case and record one SM.

    Args:
        limit: most events that are kept.

    Raises:
        InputError: the events of ``bound`` and ``estimate`` are not simulated.
        UnsupportedError: The GPU cannot run the case.
    """
    detail = case.workload.options.detail
    if detail not in SIMULATED:
        raise InputError(f"detail: '{detail}' has no events; a timeline needs 'sampled' or 'full'")
    recorder = Recorder(limit)
    with naming(case):
        return predict(case.system, case.workload.operator, case.workload.options, recorder, progress), recorder
