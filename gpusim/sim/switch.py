"""Which of two ways a launch is played: by processes, or compiled, with the same outcome to the bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

from gpusim.errors import InputError
from gpusim.sim.compiled.kept import is_kept
from gpusim.sim.outcome import Played

VARIABLE = "GPUSIM_COMPILED"
"""Environment variable: 1 forces compiled simulation, 0 the processes."""

Play = Callable[..., Played | None]


LOADING_S = 1.0
"""What numba and machine code take to load."""
COMPILING_S = 25.0
"""What the machine code takes where none is kept."""
SAMPLED_S, WARP_TURN_S = 4e-3, 50e-6
"""What processes take: a sampled prediction in the mean, and in ``full`` a warp's turn of its loop."""


class _Switch:
    """Of this process."""

    compiled = False


def prefer_compiled() -> None:
    """Compile from now on, where numba is installed."""
    _Switch.compiled = True


def compiling_pays(processes_s: float) -> bool:
    """Whether launches that take processes so long are done earlier compiled."""
    if processes_s <= LOADING_S or find_spec("numba") is None:
        return False
    return processes_s > COMPILING_S or is_kept()


def compiled_play(processes_s: float = 0.0) -> Play | None:
    """What plays launches compiled, where that is preferred, or pays for those to come, and can be.

    Raises:
        InputError: it is forced, and numba is not installed; or the environment variable is neither 0 nor 1.
    """
    forced = os.environ.get(VARIABLE, "")
    if forced not in {"", "0", "1"}:
        raise InputError(f"{VARIABLE}: expected 0 or 1, got '{forced}'")
    if forced == "0" or not (forced or _Switch.compiled or compiling_pays(processes_s)):
        return None
    play = _play()
    if play is None and forced:
        raise InputError(f"{VARIABLE}=1 needs numba: pip install 'gpusim[fast]'")
    return play


@cache
def _play() -> Play | None:
    if find_spec("numba") is None:
        return None
    from gpusim.sim.compiled.play import played  # noqa: PLC0415 - numba takes half a second

    return played
