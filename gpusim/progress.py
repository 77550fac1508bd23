"""How far a long computation is: a callback that takes the number of items done and their total, 0 if it is not known.

What the first call says is done was done before, and counts into no rate.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]


def no_progress(_done: int, _total: int) -> None:
    """Report nothing."""
