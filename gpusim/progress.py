"""How far a long computation is: a callback that takes the number of items done and their total."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def no_progress(_done: int, _total: int) -> None:
    """Report nothing."""
