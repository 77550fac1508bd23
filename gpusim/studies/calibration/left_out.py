"""What a calibration tells predictions of their errors: quantiles by group of rows that it left out, and what ran.

Readings that are mostly host time are passed over: they say little of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gpusim.confidence import (
    DURATIONS,
    LEAST_ROWS,
    Confidence,
    Cores,
    ErrorRange,
    Kind,
    MeasuredRange,
    cores_of,
    duration_of,
    kind_of,
)
from gpusim.studies.calibration.fit import Calibration
from gpusim.studies.calibration.linear_model import Mask
from gpusim.studies.calibration.observations import Observation, groups
from gpusim.studies.calibration.search import FloatArray

TAILS = (0.1, 0.9)
"""Quantiles: eight in ten rows are between them."""
PRIOR_ROWS = 20
"""Rows that the quantiles of the whole architecture count as in those of a group."""
LEAST_KERNEL_SHARE = 0.5
"""Fraction of a reading that the kernel has to take for the error to count as the kernel's."""


def confidence_of(
    board_names: Mapping[str, str], observed: Sequence[Observation], found: Calibration, fit: str
) -> Confidence:
    """What predictions with the fitted values need.

    Args:
        board_names: names of the boards' specs by those in tables.
        fit: the command, its date and its data.
    """
    kernel_us = np.exp(found.kernel_log_times)
    reading_us = np.exp(found.after) * np.array([item.row.time_us for item in observed])
    kept = kernel_us >= LEAST_KERNEL_SHARE * reading_us
    group_of = np.array([_label(item, one) for item, one in zip(observed, kernel_us.tolist(), strict=True)])
    places, errors = _without_groups(observed, found)
    return Confidence(
        fit=fit,
        rows_left_out=tuple(_ranges(-found.held_out[kept], group_of[kept])),
        groups_left_out=tuple(_ranges(-errors[kept[places]], group_of[places][kept[places]])),
        measured=tuple(_measured(board_names, observed)),
    )


def _label(item: Observation, kernel_us: float) -> str:
    return f"{cores_of(item.gemm.dtype)} {duration_of(kernel_us)}"


def _without_groups(observed: Sequence[Observation], found: Calibration) -> tuple[Mask, FloatArray]:
    """The places of rows by fits without their source or their board, and their errors; a row may be there twice."""
    places, errors = [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
    for one in found.left_out:
        if one.errors is not None:
            places.append(np.flatnonzero(groups(observed, one.kind)[one.name]))
            errors.append(one.errors)
    return np.concatenate(places), np.concatenate(errors)


def _ranges(log_ratios: FloatArray, labels: np.ndarray[tuple[int], np.dtype[np.str_]]) -> Iterator[ErrorRange]:
    """Quantiles of each group, drawn towards those of all rows."""
    if not len(log_ratios):
        return
    whole = np.quantile(log_ratios, TAILS)
    names: tuple[Cores, ...] = ("cuda", "tensor")
    for cores in names:
        for duration in DURATIONS:
            own = log_ratios[labels == f"{cores} {duration}"]
            if len(own):
                drawn = (len(own) * np.quantile(own, TAILS) + PRIOR_ROWS * whole) / (len(own) + PRIOR_ROWS)
                low, high = (round(float(one), 4) for one in drawn)
                yield ErrorRange(cores=cores, duration=duration, rows=len(own), low=low, high=high)


def _measured(board_names: Mapping[str, str], observed: Sequence[Observation]) -> Iterator[MeasuredRange]:
    """Ranges of each kind of GEMM, by boards and kinds in order."""
    of_kind: dict[Kind, list[Observation]] = {}
    for item in observed:
        of_kind.setdefault(kind_of(board_names[item.row.gpu], item.gemm), []).append(item)
    for kind, items in sorted(of_kind.items()):
        if len(items) < LEAST_ROWS:
            continue
        flops, size = [float(item.gemm.flops) for item in items], [item.gemm.size_bytes for item in items]
        yield MeasuredRange(
            **kind._asdict(), rows=len(items), flops=(min(flops), max(flops)), bytes=(min(size), max(size))
        )
