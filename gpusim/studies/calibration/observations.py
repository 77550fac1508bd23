"""The measured rows that take part in a calibration, and the sample that physical values are fitted to."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.measured import MeasuredRow
from gpusim.lowering.pages import usable_l2_bytes
from gpusim.prediction.options import Options
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.record import record_key
from gpusim.studies.calibration.parameters import FittedBoard, SourceTiming
from gpusim.studies.calibration.search import FloatArray
from gpusim.workloads.gemm import Gemm

GroupKind = Literal["source", "board"]
GROUP_KINDS: tuple[GroupKind, ...] = get_args(GroupKind)


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured row that can be predicted."""

    row: MeasuredRow
    gemm: Gemm
    options: Options


def observations(
    rows: Sequence[MeasuredRow], boards: Mapping[str, FittedBoard]
) -> tuple[list[Observation], dict[str, int]]:
    """The rows that can be predicted, and how many cannot, by reason."""
    found, reasons = [], dict[str, int]()
    for row in rows:
        gemm = row.operator
        reason = ""
        if row.gpu not in boards:
            reason = f"of another GPU ({row.gpu})"
        elif not isinstance(gemm, Gemm):
            reason = f"operator '{row.op}' is not a matrix multiplication"
        else:
            l2 = row.l2_of(usable_l2_bytes(boards[row.gpu].system.gpu))
            options = Options(l2=l2, load=row.load, operands=row.operands)
            try:
                usable_kernels(boards[row.gpu].system, gemm, options.kernel, options.unit)
            except UnsupportedError as error:
                reason = str(error)
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
        elif isinstance(gemm, Gemm):
            found.append(Observation(row, gemm, options))
    return found, reasons


def timing_of_sources(rows: Iterable[MeasuredRow]) -> dict[str, SourceTiming]:
    """How each source of runs timed, by its key; one that timed in several ways has no value of its own."""
    found: dict[str, SourceTiming] = {}
    several: set[str] = set()
    for row in rows:
        key = record_key(row.source)
        known = found.get(key)
        shortest_us = min(row.time_us, known.shortest_us) if known else row.time_us
        found[key] = SourceTiming(row.method, shortest_us)
        if not key or (known and known.method != row.method):
            several.add(key)
    return {key: one for key, one in found.items() if key not in several}


def groups(found: Sequence[Observation], kind: GroupKind) -> dict[str, NDArray[np.bool_]]:
    """The observations of each source, or of each board."""
    names = np.array([source_of(item) if kind == "source" else item.row.gpu for item in found])
    return {str(name): names == name for name in dict.fromkeys(names)}


def source_of(item: Observation) -> str:
    """The source of an observation; its table where the row does not state one."""
    return item.row.source or Path(item.row.file).stem


def shape_folds(found: Sequence[Observation], folds: int) -> NDArray[np.intp]:
    """The part of each observation where shapes are divided into so many parts."""
    shapes = [(item.gemm.batch, item.gemm.m, item.gemm.n, item.gemm.k) for item in found]
    numbers = {shape: number for number, shape in enumerate(sorted(set(shapes)))}
    return np.array([numbers[shape] % folds for shape in shapes])


def even_weights(found: Sequence[Observation]) -> FloatArray:
    """Weight of each observation such that a source counts by the root of its rows: a large one drowns no small one."""
    weights = np.ones(len(found))
    for mask in groups(found, "source").values():
        weights[mask] = 1 / np.sqrt(mask.sum())
    return np.asarray(weights / weights.mean())


def sample_rows(found: Sequence[Observation], most: int, seed: int) -> list[int]:
    """Indices of at most ``most`` observations of each file, GPU, data type and operator, sampled at random; in order.

    The share of each doubling of time is proportional to the square root of its rows: only the few long rows determine
    the power limit, and only the many short ones the latencies.
    """
    groups: dict[tuple[str, str, str, str], dict[int, list[int]]] = {}
    for index, item in enumerate(found):
        key = (item.row.file, item.row.gpu, item.row.dtype.value, item.row.op)
        groups.setdefault(key, {}).setdefault(math.floor(math.log2(item.row.time_us)), []).append(index)
    chooser = random.Random(seed)  # noqa: S311 - sampling, no secret
    kept: set[int] = set()
    for by_magnitude in groups.values():
        taken = dict.fromkeys(by_magnitude, 0)
        for _ in range(min(most, sum(map(len, by_magnitude.values())))):
            left = [one for one, rows in by_magnitude.items() if taken[one] < len(rows)]
            due = min(left, key=lambda one: (taken[one] + 1) / math.sqrt(len(by_magnitude[one])))
            taken[due] += 1
        for magnitude, rows in by_magnitude.items():
            kept.update(chooser.sample(rows, taken[magnitude]))
    return sorted(kept)
