"""Predictions of every size on every GPU, in comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from gpusim.api import case, load_system
from gpusim.errors import InputError
from gpusim.execution.service import Service
from gpusim.execution.sweep import Case, predict_all
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.progress import Progress, no_progress

MOST_CASES = 10_000
"""Minutes of one core; an experiment survives an interrupt."""


def grid(
    archs: Sequence[str],
    sizes: Mapping[str, Sequence[int]],
    of_gpu: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> list[Case]:
    """A case for every combination of sizes on every GPU; sizes vary slower than GPUs, the last one fastest.

    Args:
        sizes: Sizes by argument of :func:`gpusim.predict`.
        of_gpu: Arguments of :func:`gpusim.load_system`, the same for every GPU.
        arguments: Further arguments of :func:`gpusim.predict`, the same for every case.

    Raises:
        InputError: There are more than MOST_CASES, or an argument does not take its value.
    """
    count = len(archs) * math.prod(map(len, sizes.values()))
    if count > MOST_CASES:
        flags = ", ".join(f"-{name}" for name in sizes)
        raise InputError(f"{flags}: {count} predictions, more than {MOST_CASES}; write an experiment for 'gpusim run'")
    systems = [load_system(arch, **of_gpu) for arch in archs]
    combinations = [{**arguments, **dict(zip(sizes, chosen, strict=True))} for chosen in product(*sizes.values())]
    return [case(system, **combination) for combination in combinations for system in systems]


def predict_grid(cases: Sequence[Case], service: Service = Service(), progress: Progress = no_progress) -> list[Result]:
    """The result of every case; the progress of a single one is that of its simulation.

    Raises:
        UnsupportedError: A GPU cannot run one of them: the first.
    """
    if len(cases) == 1:
        (only,) = cases
        return [predict(only.system, only.operator, only.options, progress=progress)]
    results = []
    for one in predict_all(cases, service, progress):
        if one.result is None:
            raise UnsupportedError(one.reason)
        results.append(one.result)
    return results
