"""Values that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """A value that is computed once, when it is first asked for; equal to another one of an equal value.

    >>> later = Later(lambda: 1 + 1)
    >>> later.value, later == Later(lambda: 2)
    (2, True)
    """

    __slots__ = ("_compute", "_known")

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute: Callable[[], T] | None = compute
        self._known: list[T] = []

    @property
    def value(self) -> T:
        compute = self._compute
        if compute is not None:  # two threads at once compute it twice
            self._known = [compute()]
            self._compute = None
        return self._known[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Later) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __reduce__(self) -> tuple[Callable[[T], Later[T]], tuple[T]]:
        """A pickle holds the value, not what computes it."""
        return known, (self.value,)


def known(value: T) -> Later[T]:
    """A value that is computed already."""
    return Later(lambda: value)
