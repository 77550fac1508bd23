"""Neighbours of an operator: the same one with a size halved or doubled, predicted on the same board."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from gpusim.execution.cases import OperatorWorkload
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.prediction.results import Result
from gpusim.progress import Progress, no_progress
from gpusim.studies.workload import GpuVariant, without_limits
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.operators import Operator

SIZES = ("m", "n", "k", "batch", "queries", "keys")
"""Sizes of operators that are changed; of a convolution the number of images."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An operator with another size."""

    name: str
    """What is changed, such as ``m 8192``."""
    result: Result


def neighbours(
    workload: OperatorWorkload, board: GpuVariant, service: Service = Service(), progress: Progress = no_progress
) -> tuple[Neighbour, ...]:
    """Predictions of the neighbours that the board can run."""
    changed = list(_changed(workload.operator))
    options = replace(workload.options, kernel=None)
    cases = [board.case(without_limits(OperatorWorkload(operator, options))) for _, operator in changed]
    outcomes = predict_all(cases, service, progress)
    return tuple(
        Neighbour(name, one.result)
        for (name, _), one in zip(changed, outcomes, strict=True)
        if isinstance(one.result, Result)
    )


def _changed(operator: Operator) -> Iterator[tuple[str, Operator]]:
    if isinstance(operator, Convolution):
        for images in _halved_and_doubled(operator.shape.images):
            yield f"images {images}", replace(operator, shape=replace(operator.shape, images=images))
        return
    for name in (one.name for one in fields(operator) if one.init and one.name in SIZES):
        for size in _halved_and_doubled(getattr(operator, name)):
            with suppress(ValueError):  # no such operator
                values: dict[str, Any] = {name: size}
                yield f"{name} {size}", replace(operator, **values)


def _halved_and_doubled(size: int) -> Iterator[int]:
    if size > 1:
        yield size // 2
    yield 2 * size
