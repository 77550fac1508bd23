"""What is shown while the simulator is compiled; nothing, unless a program with a terminal says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Notice = Callable[[], AbstractContextManager[object]]

_notice: list[Notice] = [nullcontext]


def show_while_compiling(notice: Notice) -> None:
    """Have this be shown for as long as it takes."""
    _notice[0] = notice


def while_compiling() -> AbstractContextManager[object]:
    """The context in which the simulator is compiled."""
    return _notice[0]()
