"""Convolutions of groups of channels as a kernel for each group, as TensorRT ran them before version 8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpusim.models.task import Task, Tensor
from gpusim.workloads.convolution import Convolution


def group_after_group(tasks: Iterable[Task]) -> Iterator[Task]:
    """Tasks in which each convolution of several groups is one of each group, but where a group is one channel.

    Source: apache/tvm pull 2075, whose table has 0.36 to 0.41 ms of TensorRT on GTX 1080 for 32 groups of images of
    28 x 28 down to 7 x 7, whose work differs by far more.
    """
    for task in tasks:
        operator = task.operator
        if isinstance(operator, Convolution) and 1 < operator.shape.groups < operator.shape.channels:
            yield from _each(task, operator)
        else:
            yield task


def _each(task: Task, operator: Convolution) -> Iterator[Task]:
    shape, groups = operator.shape, operator.shape.groups
    alone = replace(shape, channels=shape.channels // groups, filters=shape.filters // groups, groups=1)
    reads, writes = (
        tuple(Tensor(one.name, one.size_bytes / groups) for one in ones) for ones in (task.reads, task.writes)
    )
    for _ in range(groups):
        yield replace(task, operator=replace(operator, shape=alone), reads=reads, writes=writes)
