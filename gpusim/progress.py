"""How far a long computation is: a callback that takes the number of items done and their total, 0 if it is not known.

What the first call says is done was done before, and counts into no rate.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[int, int], None]


def no_progress(_done: int, _total: int) -> None:
    """Report nothing."""


Notice = Callable[[], AbstractContextManager[object]]
_while_compiling: list[Notice] = [nullcontext]


def show_while_compiling(notice: Notice) -> None:
    """Have a program show this for as long as the simulator is compiled."""
    _while_compiling[0] = notice


def while_compiling() -> AbstractContextManager[object]:
    """The context in which the simulator is compiled: nothing is shown, unless a program says so."""
    return _while_compiling[0]()
