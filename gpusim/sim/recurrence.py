"""When a sequence of events repeats: what the extrapolation compares, and how much it tolerates."""

from __future__ import annotations

from gpusim.sim.compilable import compilable

DRIFT_FRACTION = 0.001
"""Largest error of what is jumped, as a share of its time."""
IMPATIENT_DRIFT_FRACTION = 0.004
"""Largest error where nothing better has recurred in so many iterations or generations as follow."""
PATIENCE_ITERATIONS = 256
PATIENCE_GENERATIONS = 16
ROUNDING = 1e-6
"""Rounding of sums of floats [cycles]."""
UNEVEN_ITERATIONS = 8
"""Iterations compared at least where warps make different numbers of them, or where loops load nothing: the order in
which warps are served settles only after some iterations."""
WORTH_ITERATIONS = 32
"""Iterations that a jump spares, at least. CTAs leave a loop in phases that are kept only to within the drift, and so
may end in another order: that costs a fraction of an iteration, which shows in short loops."""
LOOK_FRACTION = 8
"""A sequence of events is searched for a period whenever it has grown by one in so many: searching stays cheap."""


@compilable
def allowed_drift(cycles: int, periods: int, elapsed: int, patient: bool) -> float:
    """How far the events of a period may be from recurring, before so many more are jumped [cycles].

    Links serve in the order of arrival, which a small drift can change after many periods. As long as it is worth
    waiting for better, more than the rounding of events is taken to grow from period to period.
    """
    if not patient:
        return IMPATIENT_DRIFT_FRACTION * cycles
    allowed = DRIFT_FRACTION * (cycles + elapsed / periods)
    return min(allowed, 1.0 + 2 * allowed / periods)


@compilable
def iterations_within(begun: list[float], count: int, cycles: int) -> int:
    """Iterations among the first ``count`` that were begun in the last ``cycles``, to the nearest.

    >>> iterations_within([0, 10, 20, 30], 4, 19), iterations_within([0, 10, 20, 30, 40], 4, 14)
    (2, 1)
    """
    since = begun[count - 1] - cycles
    at = count - 1
    while at > 0 and begun[at - 1] >= since:
        at -= 1
    if at > 0 and since - begun[at - 1] < begun[at] - since:
        at -= 1
    return count - 1 - at


@compilable
def recurs(events: list[float], count: int, distance: int, window: int, cycles: int, allowed: float) -> bool:
    """Whether the last ``window`` of ``count`` events came ``cycles`` after those that are ``distance`` earlier.

    >>> recurs([1, 5, 11, 15, 21, 25], 6, 2, 4, 10, 0.0), recurs([1, 5, 11, 16, 30], 4, 2, 2, 10, 0.5)
    (True, False)
    """
    if count < window + distance:
        return False
    for at in range(count - window, count):
        if abs(events[at] - events[at - distance] - cycles) > allowed:
            return False
    return True
