"""Which driver simulates a launch: the reference driver, or the compiled one, with the same outcome to the bit."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.util import find_spec

from gpusim.errors import InputError
from gpusim.sim.drivers.code_folder import is_kept
from gpusim.sim.drivers.driver import Driver
from gpusim.sim.drivers.reference import ReferenceDriver

_LOGGER = logging.getLogger(__name__)
VARIABLE = "GPUSIM_COMPILED"
"""Environment variable: 1 forces the compiled driver, 0 the reference driver."""

LOADING_S = 1.0
"""What numba and machine code take to load."""
COMPILING_S = 25.0
"""What the machine code takes where none is kept."""
SAMPLED_S, WARP_ITERATION_S = 6e-3, 56e-6
"""What the reference driver takes: a sampled prediction in the mean, and in ``full`` a warp's iteration of its loop."""


class _Preference:
    """What this process prefers."""

    compiled = False


def prefer_compiled() -> None:
    """Compile from now on, where numba is installed."""
    _Preference.compiled = True


def compiling_pays(reference_s: float) -> bool:
    """Whether launches that take the reference driver so long are done earlier compiled."""
    return reference_s > COMPILING_S or (reference_s > LOADING_S and has_numba() and is_kept())


def compiles(reference_s: float = 0.0) -> bool:
    """Whether the compiled driver simulates: where it is preferred, or pays for launches to come, and can be had.

    Args:
        reference_s: what these launches take the reference driver.

    Raises:
        InputError: compiling is forced, and numba is not installed; or the environment variable is neither 0 nor 1.
    """
    forced = os.environ.get(VARIABLE, "")
    if forced not in {"", "0", "1"}:
        raise InputError(f"{VARIABLE}: expected 0 or 1, got '{forced}'")
    if forced == "1" and not has_numba():
        raise InputError(f"{VARIABLE}=1 needs numba: pip install numba")
    wanted = forced != "0" and (bool(forced) or _Preference.compiled or compiling_pays(reference_s))
    if wanted and not has_numba():
        _say_that_numba_is_missing()
    return wanted and has_numba()


def chosen_driver(reference_s: float = 0.0) -> Driver:
    """The driver for launches that take the reference driver so long.

    Raises:
        InputError: as :func:`compiles`.
    """
    if not compiles(reference_s):
        return ReferenceDriver()
    from gpusim.sim.drivers.compiled import CompiledDriver  # noqa: PLC0415 - numba takes half a second

    return CompiledDriver()


@cache
def _say_that_numba_is_missing() -> None:
    """Say once what it costs."""
    _LOGGER.warning("numba is not installed: simulations take several times as long; pip install numba")


@cache
def has_numba() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None
