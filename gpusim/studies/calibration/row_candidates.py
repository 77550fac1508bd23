"""The candidate kernels of a measured row: those worth timing, and the one that was recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpusim.evidence.importers.kernel_names import same_kernel
from gpusim.evidence.measured import MeasuredRow
from gpusim.prediction.choose import GemmCandidate, candidates
from gpusim.prediction.heuristic import charges_of
from gpusim.prediction.selection import usable_kernels
from gpusim.studies.calibration.heuristic_bias import RankedKernels, time_likelihoods
from gpusim.studies.calibration.observations import Observation, observations
from gpusim.studies.calibration.parameters import FittedBoard
from gpusim.studies.calibration.search import FloatArray
from gpusim.studies.calibration.timer import KernelRun
from gpusim.system import System

WORTH_TIMING = 1.7
"""Longest estimate worth timing, over the shortest. A longer one is chosen only where the bias outweighs its logarithm,
0.53."""
WHOLE_WORTH_TIMING = 3.0
"""Longest estimate worth timing, over the shortest, of kernels that do not split k: a library may leave k whole where a
split looks far better."""
MOST_TIMED = 20
"""Candidates of a row that are timed for their short estimates; with splits of k there are up to a hundred. With 12,
GEMMs of a V100 that run tiles of 256x128 with short k were taken for others."""
SPLIT_SCALE = 0.3
"""Difference of the logarithms of split-K counts at which a candidate explains a recorded split e times worse: a factor
of two, the next choice that libraries have, explains it a tenth as well."""


@dataclass(frozen=True, slots=True)
class RowCandidates:
    """The candidates of a row, those worth timing first, and the runs that time them."""

    items: tuple[GemmCandidate, ...]
    runs: tuple[KernelRun, ...]
    """Kernel runs of the first candidates, those worth timing."""
    recorded: int | None
    """The candidate that was recorded, if one was."""


def ranked(item: Observation, system: System) -> list[GemmCandidate]:
    """The candidates of a row, in the order of the library."""
    kernels = usable_kernels(system, item.gemm, item.options.kernel, item.options.unit)
    warm = item.options.l2 == "warm"
    return list(candidates(system, item.gemm, kernels, warm=warm, clock_mhz=system.gpu.clock.boost_mhz))


def candidates_of(item: Observation, system: System) -> RowCandidates:
    """The candidates of a row and the runs that time them."""
    found = ranked(item, system)
    recorded = _recorded(item, found)
    shortest = min(one.tuned_us for one in found)
    longest = min(WORTH_TIMING * shortest, sorted(one.tuned_us for one in found)[:MOST_TIMED][-1])
    limits = [WHOLE_WORTH_TIMING * shortest if one.split_k == 1 else longest for one in found]
    near = [one for one, limit in zip(found, limits, strict=True) if one.tuned_us <= limit]
    far = [one for one, limit in zip(found, limits, strict=True) if one.tuned_us > limit]
    items = [*near, *far]
    place = None if recorded is None else next(at for at, one in enumerate(items) if one is recorded)
    # the recorded kernel may have a long estimate and a large bonus
    runs = [run_of(item, one) for one in (near if recorded is None else items)]
    if place is not None and item.row.grid is not None:
        runs[place] = replace(runs[place], split_k=_recorded_split(item))
    return RowCandidates(tuple(items), tuple(runs), place)


def records(rows: Sequence[MeasuredRow], boards: Mapping[str, FittedBoard]) -> tuple[list[Observation], dict[str, int]]:
    """The rows whose recorded kernel is a candidate of the library, and how many are not, by reason."""
    predicted, reasons = observations(rows, boards)
    found = [item for item in predicted if _recorded(item, ranked(item, boards[item.row.gpu].system)) is not None]
    if len(found) < len(predicted):
        reasons["kernel that is not a candidate of the library, or none recorded"] = len(predicted) - len(found)
    return found, reasons


def _recorded_split(item: Observation) -> int:
    """CTAs that shared a tile's k in the recorded grid."""
    return 1 if item.row.grid is None else max(1, item.row.grid[2] // item.gemm.batch)


def _recorded(item: Observation, found: Sequence[GemmCandidate]) -> GemmCandidate | None:
    """The candidate of the recorded kernel whose split lies nearest."""
    same = [one for one in found if same_kernel(one.name, item.row.kernel)] if item.row.kernel else []
    split = _recorded_split(item)
    return min(same, key=lambda one: abs(math.log(one.split_k / split)), default=None)


def _recorded_likelihoods(item: Observation, one: RowCandidates) -> FloatArray:
    split = _recorded_split(item)
    return np.array(
        [
            math.exp(-abs(math.log(candidate.split_k / split)) / SPLIT_SCALE)
            if same_kernel(candidate.name, item.row.kernel)
            else 0.0
            for candidate in one.items
        ]
    )


def run_of(item: Observation, candidate: GemmCandidate) -> KernelRun:
    """A row on one of its candidates."""
    row, one = item.row, candidate
    return KernelRun(row.gpu, item.gemm, item.options, one.kernel, one.split_k, one.mode, row.method, row.source)


def ranked_kernels(
    item: Observation, one: RowCandidates, log_errors: FloatArray | None, weight: float
) -> RankedKernels:
    """The candidates of a row as the fit of the heuristic bias reads them.

    Args:
        log_errors: of the candidates' times; None if the kernel was recorded.
        weight: of the row.
    """
    rows = [candidate.row for candidate in one.items]
    return RankedKernels(
        np.log([candidate.tuned_us for candidate in one.items]),
        {name: column[rows] for name, column in charges_of(one.items[0].plans).items()},
        _recorded_likelihoods(item, one) if log_errors is None else time_likelihoods(log_errors),
        log_errors,
        weight,
        (Path(item.row.file).stem, item.row.gpu, item.row.dtype),
    )
