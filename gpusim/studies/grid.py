"""Predictions of every size on every GPU, and on every design point of it, in comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from gpusim.api import case
from gpusim.errors import InputError
from gpusim.execution.cases import OperatorCase, case_with
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.prediction.own_kernel import AS_SHIPPED, KernelShape
from gpusim.prediction.results import Result
from gpusim.progress import Progress, no_progress
from gpusim.specs import load_spec
from gpusim.specs.design_points import design_points

MOST_CASES = 10_000
"""Minutes of one core; an experiment survives an interrupt."""


class GridCase(NamedTuple):
    """Prediction of a grid that is still to make."""

    case: OperatorCase
    values: Mapping[str, Any]
    """Values of the spec that vary between the GPUs, by key path."""
    shipped: OperatorCase | None
    """Prediction on the GPU as shipped, where values of it are replaced."""


class GridResult(NamedTuple):
    """Predictions of a grid."""

    results: list[Result]
    shipped: Result | None
    """Prediction on the GPU as shipped, of a grid of one prediction with values that are replaced."""


def grid(
    archs: Sequence[str],
    sizes: Mapping[str, Sequence[int]],
    of_gpu: Mapping[str, Any],
    arguments: Mapping[str, Any],
    own_kernel: KernelShape = AS_SHIPPED,
) -> list[GridCase]:
    """A case for every combination of sizes on every GPU; sizes vary slower than GPUs, the last one fastest.

    Args:
        sizes: Sizes by argument of :func:`gpusim.predict`.
        of_gpu: Arguments of :func:`gpusim.load_system`, the same for every GPU; overrides may be lists.
        arguments: Further arguments of :func:`gpusim.predict`, the same for every case.
        own_kernel: How the kernel of each differs from the one that the library would launch.

    Raises:
        SpecError: No such GPU, or its values cannot be so.
        InputError: There are more than MOST_CASES, or an argument does not take its value.
    """
    overrides = of_gpu["overrides"]
    specs = [load_spec(arch, of_gpu["arch_path"], cuda=of_gpu["cuda"]) for arch in archs]
    points = [point for spec in specs for point in design_points(spec, overrides)]
    count = len(points) * math.prod(map(len, sizes.values()))
    if count > MOST_CASES:
        flags = ", ".join(f"-{name}" for name in sizes)
        raise InputError(f"{flags}: {count} predictions, more than {MOST_CASES}; write an experiment for 'gpusim run'")
    combinations = [{**arguments, **dict(zip(sizes, chosen, strict=True))} for chosen in product(*sizes.values())]
    shipped = specs[0].system if overrides else None
    return [
        GridCase(
            case_with(own_kernel, case(point.spec.system, **combination)),
            point.values,
            case(shipped, **combination) if shipped else None,
        )
        for combination in combinations
        for point in points
    ]


def predict_grid(
    cases: Sequence[GridCase], service: Service = Service(), progress: Progress = no_progress
) -> GridResult:
    """The result of every case.

    Raises:
        InputError: A GPU cannot run one of them: the first.
    """
    asked = [one.case for one in cases]
    if len(asked) == 1 and asked[0].workload.is_quick:
        service = replace(service, cache=False)  # to open the store would take longer
    shipped = cases[0].shipped if len(cases) == 1 else None
    results = [one.or_raise() for one in predict_all([*asked, *([shipped] if shipped else [])], service, progress)]
    return GridResult(results[: len(asked)], results[len(asked)] if shipped else None)
