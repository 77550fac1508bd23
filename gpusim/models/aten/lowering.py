"""The kernels that a call launches, and which function knows those of which call.

A function that is registered for names of ATen launches the kernels of a call of them, one after the other. The first
one bears the kind of the framework's call, for its host time; further ones of the same call bear none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpusim.models.arithmetic import Arithmetic
from gpusim.models.aten.access import lies_as, order_of, suggests_channels_last, touched
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.shape import Shape
from gpusim.models.task import Task
from gpusim.workloads.memory_bound import Pointwise
from gpusim.workloads.operators import Operator


@dataclass(slots=True)
class Launches:
    """Kernels that calls have launched so far."""

    arithmetic: Arithmetic
    tasks: list[Task] = field(default_factory=list)
    dims: dict[int, int] = field(default_factory=dict)
    """Dimensions of what was computed into each storage last; without those that were moved there."""
    _call: Call | None = None
    _kind: str = ""
    _temporaries: int = 0

    def begin(self, call: Call, kind: str) -> None:
        """What is launched from now on belongs to a call of a kind."""
        self._call, self._kind = call, kind

    def launch(
        self, operator: Operator, reads: Sequence[TensorView], writes: Sequence[TensorView], kind: str | None = None
    ) -> None:
        """Launch a kernel.

        Args:
            kind: of a further call, which the framework makes within.
        """
        assert self._call is not None
        tensors = tuple(one.tensor for one in reads), tuple(one.tensor for one in writes)
        given, self._kind = (self._kind if kind is None else kind), ""
        self.tasks.append(Task(self._call.layer, self._call.phase, operator, *tensors, given))

    def elementwise(
        self,
        functions: tuple[str, ...],
        reads: Sequence[TensorView],
        writes: Sequence[TensorView],
        kind: str | None = None,
    ) -> None:
        """Launch functions of every element of the first result, to whose shape tensors are broadcast.

        Where it has none, nothing is launched.
        """
        if not writes[0].elements:
            return
        reads = tuple(dict.fromkeys(reads))
        shape = writes[0].shape
        order = order_of(shape, *writes, *reads)
        accesses = (tuple(touched(one, shape, order) for one in ones) for ones in (reads, writes))
        self.launch(Pointwise(functions, math.prod(shape), *accesses), reads, writes, kind)

    def copied(self, value: TensorView, strides: tuple[int, ...] | None = None) -> TensorView:
        """A copy with other strides, such as a kernel needs; without any, in the order of the dimensions."""
        result = self.temporary(value.shape, value.dtype_name, strides)
        self.elementwise(("copy",), [value], [result])
        return result

    def contiguous(self, value: TensorView) -> TensorView:
        """A tensor whose elements lie in the order of its dimensions: itself, or a copy."""
        return value if value.contiguous else self.copied(value)

    def laid_out(self, images: TensorView, *, channels_last: bool) -> TensorView:
        """Images whose channels lie innermost, or outside of pixels: themselves, or a copy."""
        if lies_as(images, channels_last=channels_last):
            return images
        dims = range(len(images.shape))
        return self.copied(images, in_order(images.shape, (0, *dims[2:], 1) if channels_last else dims))

    def dense(self, images: TensorView) -> TensorView:
        """Images without gaps, in the layout that is nearest to theirs (``suggest_memory_format``)."""
        return self.laid_out(images, channels_last=suggests_channels_last(images))

    def temporary(self, shape: Shape, dtype_name: str, strides: tuple[int, ...] | None = None) -> TensorView:
        """A tensor that a call allocates for itself."""
        self._temporaries += 1
        return TensorView(-self._temporaries, dtype_name, shape, strides or in_order(shape, range(len(shape))))


def in_order(shape: Shape, order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor whose dimensions lie in an order, from the outermost to the innermost.

    >>> in_order((8, 64, 7, 7), (0, 2, 3, 1))
    (3136, 1, 448, 64)
    """
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


Lowering = Callable[[Launches, Call], None]
"""Launches the kernels of a call.

Raises:
    NoModelError: it knows none for such a call.
"""
LOWERINGS: dict[str, tuple[str, Lowering]] = {}
"""Functions by the names of calls, with the kind of the framework's call; empty: the name of the call."""


class NoModelError(Exception):
    """A call whose kernels are not known."""


def lowers(*names: str, kind: str = "") -> Callable[[Lowering], Lowering]:
    """Register a function for calls of these names, in place or not."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            assert name not in LOWERINGS, name
            LOWERINGS[name] = (kind, function)
        return function

    return register
