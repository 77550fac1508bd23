"""Calls of ATen written by hand, and what they launch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from gpusim.models.arithmetic import Arithmetic
from gpusim.models.aten.call import Call, CallPhase, Operand, TensorView
from gpusim.models.aten.launches import Launched, launched
from gpusim.models.policy import Policy
from gpusim.models.task import Task
from gpusim.specs import load_spec

_STORAGES = itertools.count(1)
A100, V100 = "a100-sxm4-80gb", "v100-sxm2-16gb"


def tensor(shape: Sequence[int], dtype_name: str = "float32", strides: Sequence[int] | None = None) -> TensorView:
    """A tensor of its own; contiguous unless it has strides."""
    contiguous = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    return TensorView(next(_STORAGES), dtype_name, tuple(shape), tuple(strides or contiguous))


def channels_last(shape: Sequence[int], dtype_name: str = "float16") -> TensorView:
    """An image with channels innermost."""
    _, channels, height, width = shape
    return tensor(shape, dtype_name, (channels * height * width, 1, channels * width, channels))


def call(
    name: str,
    operands: Sequence[Operand],
    results: Sequence[TensorView | None],
    phase: CallPhase = "forward",
    **arguments: Any,
) -> Call:
    """A call of a function by its base name."""
    return Call(f"{name}.default", "layer", phase, tuple(operands), tuple(results), arguments)


def launch(*calls: Call, gpu: str = A100, **policy: Any) -> Launched:
    """What calls launch under a policy."""
    return launched(calls, Arithmetic(Policy(**{"version": "2.2", **policy}), load_spec(gpu).gpu))


def tasks(*calls: Call, gpu: str = A100, **policy: Any) -> tuple[Task, ...]:
    """Kernels of calls that all have a model."""
    result = launch(*calls, gpu=gpu, **policy)
    assert not result.unknown
    return result.tasks
