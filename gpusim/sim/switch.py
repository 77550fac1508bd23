"""Which of two ways a launch is played: by processes, or compiled, with the same outcome to the bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

from gpusim.sim.outcome import Played

VARIABLE = "GPUSIM_COMPILED"
"""Environment variable: 1 forces compiled simulation, 0 the processes."""

Play = Callable[..., Played | None]


class _Switch:
    """Of this process."""

    compiled = False


def prefer_compiled() -> None:
    """Compile from now on where numba is installed: its import pays for a hundred launches, or a long one."""
    _Switch.compiled = True


def compiled_play(*, long: bool = False) -> Play | None:
    """What plays launches compiled, where that is preferred or ``long`` and can be.

    Raises:
        ValueError: it is forced, and numba is not installed; or the environment variable is neither 0 nor 1.
    """
    forced = os.environ.get(VARIABLE, "")
    if forced not in {"", "0", "1"}:
        raise ValueError(f"{VARIABLE}: expected 0 or 1, got '{forced}'")
    if forced == "0" or not (forced or long or _Switch.compiled):
        return None
    play = _play()
    if play is None and forced:
        raise ValueError(f"{VARIABLE}=1 needs numba: pip install 'gpusim[fast]'")
    return play


@cache
def _play() -> Play | None:
    if find_spec("numba") is None:
        return None
    from gpusim.sim.compiled.play import played  # noqa: PLC0415 - numba takes half a second

    return played
