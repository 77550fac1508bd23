"""A suite on some GPUs: every point simulated, beside its published reading, and the errors of each benchmark.

No point is dropped: one that is not simulated is kept, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpusim.errors import InputError
from gpusim.evidence.boards import board_of
from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.published_benchmarks import PublishedPoint, read_published
from gpusim.evidence.sources import MeasuredSystem, measured_system
from gpusim.hardware.gpu import Gpu
from gpusim.progress import Progress, no_progress
from gpusim.specs import UnknownGpuError, load_spec
from gpusim.studies.microbench.benchmarks import BENCHMARKS, SUITES, reading_of
from gpusim.studies.microbench.parameters import Benchmark, Reading, UnsupportedBenchmarkError
from gpusim.studies.validation.accuracy import percent

ALL = "all"
NO_SPEC = "no spec of the GPU"


@dataclass(frozen=True, slots=True)
class SimulatedPoint:
    """A point of a benchmark on a board."""

    gpu: str
    """Name of its spec; as the table has it where there is none."""
    benchmark: str
    parameters: Mapping[str, str]
    value: float | None
    """Simulated value; None where the point is not simulated."""
    unit: str
    published: float | None = None
    source: str | None = None
    reason: str = ""
    """Reason why the point is not simulated."""
    spec: Gpu | None = None
    """The simulated GPU; None where there is no spec of it."""

    @property
    def error(self) -> float | None:
        """Relative; None without a prediction or anything to compare it with."""
        return None if self.value is None or not self.published else self.value / self.published - 1.0

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object."""
        return {
            "gpu": self.gpu,
            "benchmark": self.benchmark,
            "parameters": dict(self.parameters),
            "value": self.value,
            "unit": self.unit,
            "published": self.published,
            "source": self.source,
            **({"reason": self.reason} if self.reason else {}),
        }


_Key = tuple[str, str, tuple[tuple[str, str], ...]]
"""Key of a reading: board, benchmark and parameters."""


class NamedSystem(NamedTuple):
    """A GPU that has a spec, with its name and what timing adds on it."""

    name: str
    measured: MeasuredSystem


def simulate_defaults(suite: str, arch: str, arch_path: Iterable[Path] = ()) -> tuple[SimulatedPoint, ...]:
    """The points of a suite that need no table.

    Raises:
        InputError: there is no such suite or board.
    """
    folders = tuple(arch_path)
    spec = load_spec(arch, folders)
    measured = measured_system(spec, folders)
    found = []
    for name, benchmark in benchmarks_of(suite).items():
        for parameters in benchmark.points:
            read = _simulated(measured, name, parameters)
            value, unit, reason = (read.value, read.unit, "") if isinstance(read, Reading) else (None, "", read)
            found.append(SimulatedPoint(spec.gpu.name, name, parameters, value, unit, reason=reason, spec=spec.gpu))
    return tuple(found)


def simulate_published(
    suite: str,
    table: Path,
    archs: Sequence[str] = (),
    arch_path: Iterable[Path] = (),
    progress: Progress = no_progress,
) -> tuple[SimulatedPoint, ...]:
    """The published points of a suite.

    Args:
        archs: boards to simulate; all of the table if empty.
        progress: called with the points done, and how many there are.

    Raises:
        InputError: there is no such suite or board, or the table is wrong.
    """
    known = None if suite == ALL else benchmarks_of(suite)
    folders = tuple(arch_path)
    wanted = {load_spec(arch, folders).gpu.name for arch in archs}
    points = [one for one in read_published(table) if known is None or one.benchmark in known]
    boards = {name: _board(name, folders) for name in dict.fromkeys(one.gpu for one in points)}
    if wanted:
        points = [one for one in points if (board := boards[one.gpu]) is not None and board.name in wanted]
    if not points:
        boards_asked = f" of {', '.join(archs)}" if archs else ""
        raise MeasuredError(f"{table}: no point of suite '{suite}'{boards_asked}; see 'gpusim microbench --help'")
    found: list[SimulatedPoint] = []
    readings: dict[_Key, Reading | str] = {}
    for point in points:
        progress(len(found), len(points))
        found.append(_compared(point, boards[point.gpu], readings))
    return tuple(found)


def benchmarks_of(suite: str) -> Mapping[str, Benchmark]:
    """The benchmarks of a suite, or of all.

    Raises:
        InputError: there is no such suite.
    """
    if suite == ALL:
        return BENCHMARKS
    if suite not in SUITES:
        raise InputError(f"suite: '{suite}' is none of {', '.join(SUITES)}, {ALL}")
    return SUITES[suite]


def _board(name: str, folders: tuple[Path, ...]) -> NamedSystem | None:
    try:
        spec = board_of(name, folders)
    except UnknownGpuError:
        return None
    return NamedSystem(spec.gpu.name, measured_system(spec, folders))


def _compared(point: PublishedPoint, board: NamedSystem | None, known: dict[_Key, Reading | str]) -> SimulatedPoint:
    """A published point, simulated where its board has a spec; the same one only once."""
    if board is None:
        read: Reading | str = NO_SPEC
    else:
        key = (board.name, point.benchmark, tuple(point.parameters.items()))
        read = known[key] if key in known else _simulated(board.measured, point.benchmark, point.parameters)
        known[key] = read
    if isinstance(read, Reading) and read.unit != point.unit:
        read = f"the table states it in {point.unit}, the program reads {read.unit}"
    return SimulatedPoint(
        gpu=point.gpu if board is None else board.name,
        benchmark=point.benchmark,
        parameters=point.parameters,
        value=read.value if isinstance(read, Reading) else None,
        unit=point.unit,
        published=point.value,
        source=point.source,
        reason="" if isinstance(read, Reading) else read,
        spec=None if board is None else board.measured.system.gpu,
    )


def _simulated(board: MeasuredSystem, benchmark: str, parameters: Mapping[str, str]) -> Reading | str:
    """A reading, or why there is none."""
    try:
        return reading_of(board.system, benchmark, parameters, board.overheads)
    except UnsupportedBenchmarkError as error:
        return str(error)


def summary(points: Sequence[SimulatedPoint]) -> list[dict[str, Any]]:
    """Errors [%] by GPU and benchmark and over all benchmarks of a GPU, with points that are not simulated counted."""
    found = []
    for gpu in sorted({one.gpu for one in points}):
        own = [one for one in points if one.gpu == gpu]
        names = sorted({one.benchmark for one in own})
        found += [_errors(gpu, name, [one for one in own if name in (one.benchmark, ALL)]) for name in (*names, ALL)]
    return found


def _errors(gpu: str, benchmark: str, points: Sequence[SimulatedPoint]) -> dict[str, Any]:
    errors = np.array([error for one in points if (error := one.error) is not None])
    known = len(errors) > 0
    return {
        "gpu": gpu,
        "benchmark": benchmark,
        "points": len(points),
        "simulated": sum(one.value is not None for one in points),
        "median_ape": percent(float(np.median(np.abs(errors)))) if known else None,
        "p90_ape": percent(float(np.percentile(np.abs(errors), 90))) if known else None,
        "median_bias": percent(float(np.median(errors))) if known else None,
        "reasons": dict(Counter(one.reason for one in points if one.reason)),
    }
