"""When a sequence of events repeats: what the extrapolation compares, and how much it tolerates.

Plain functions of numbers and sequences, so that they can be compiled too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Events = Sequence[float] | NDArray[np.float64]

DRIFT_FRACTION = 0.001
"""Largest error of what is jumped, as a share of its time."""
IMPATIENT_DRIFT_FRACTION = 0.004
"""The same where nothing better has recurred in so many turns or generations as follow."""
PATIENCE_TURNS = 256
PATIENCE_GENERATIONS = 16
ROUNDING = 1e-6
"""Of sums of floats [cycles]."""
UNEVEN_TURNS = 8
"""Turns compared at least where warps make different numbers of them, or where loops load nothing: the order in which
warps are served settles only after some turns."""
WORTH_TURNS = 32
"""Turns that a jump spares, at least. CTAs leave a loop in phases that are kept only to within the drift, and so may
end in another order: that costs a fraction of a turn, which shows in short loops."""
LOOK_FRACTION = 8
"""A sequence of events is searched for a period whenever it has grown by one in so many: searching stays cheap."""


def allowed_drift(cycles: int, periods: int, elapsed: int, patient: bool) -> float:
    """How far the events of a period may be from recurring, before so many more are jumped [cycles].

    Links serve in the order of arrival, which a small drift can change after many periods. As long as it is worth
    waiting for better, more than the rounding of events is taken to grow from period to period.
    """
    if not patient:
        return IMPATIENT_DRIFT_FRACTION * cycles
    allowed = DRIFT_FRACTION * (cycles + elapsed / periods)
    return min(allowed, 1.0 + 2 * allowed / periods)


def turns_within(begun: Events, cycles: int) -> int:
    """Turns that were begun in the last ``cycles``, to the nearest.

    >>> turns_within([0, 10, 20, 30], 19), turns_within([0, 10, 20, 30], 14)
    (2, 1)
    """
    since = begun[-1] - cycles
    at = len(begun) - 1
    while at > 0 and begun[at - 1] >= since:
        at -= 1
    if at > 0 and since - begun[at - 1] < begun[at] - since:
        at -= 1
    return len(begun) - 1 - at


def recurs(events: Events, count: int, window: int, cycles: int, allowed: float) -> bool:
    """Whether the last ``window`` events came ``cycles`` after those that are ``count`` earlier.

    >>> recurs([1, 5, 11, 15, 21, 25], 2, 4, 10, 0.0), recurs([1, 5, 11, 16], 2, 2, 10, 0.5)
    (True, False)
    """
    if len(events) < window + count:
        return False
    for at in range(1, window + 1):
        if abs(events[-at] - events[-at - count] - cycles) > allowed:
            return False
    return True
