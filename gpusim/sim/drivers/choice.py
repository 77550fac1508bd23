"""Which driver simulates a launch: the reference driver, or the compiled one, with the same outcome to the bit."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from gpusim.errors import InputError
from gpusim.sim.drivers.code_folder import is_kept
from gpusim.sim.drivers.driver import Driver
from gpusim.sim.drivers.reference import ReferenceDriver

_LOGGER = logging.getLogger(__name__)
VARIABLE = "GPUSIM_COMPILED"
"""Environment variable: 1 forces the compiled driver, 0 the reference driver."""


class MachineCode(NamedTuple):
    """What it takes to have machine code, in seconds of a processor."""

    loading_s: float
    """To load it, numba included."""
    compiling_s: float
    """To compile it, where none is kept."""
    is_kept: Callable[[], bool]


SIMULATOR = MachineCode(0.5, 25.0, is_kept)
"""The machine code of the compiled driver."""
SAMPLED_S, LIMITS_S, WARP_ITERATION_S = 24e-3, 18e-3, 56e-6
"""What the reference driver takes: a sampled prediction, the search for what would help it (both means of random shapes
of ``benchmarks/shapes.py``; ``make bench`` prints their sum), and in ``full`` a warp's iteration of its loop."""


class _Preference:
    """What this process prefers, and what led it there."""

    compiled = False
    reference_s = 0.0
    """CPU time that the reference driver has taken so far."""


def prefer_compiled() -> None:
    """Compile from now on, where numba is installed."""
    _Preference.compiled = True


def compiling_pays(reference_s: float, code: MachineCode = SIMULATOR) -> bool:
    """Whether what takes so long without machine code is done earlier with it: launches the reference driver, say."""
    return reference_s > code.compiling_s or (reference_s > code.loading_s and has_numba() and code.is_kept())


def compiles(reference_s: float = 0.0) -> bool:
    """Whether the compiled driver simulates: where it is preferred, or pays for launches to come, and can be had.

    Args:
        reference_s: what these launches take the reference driver.

    Raises:
        InputError: compiling is forced, and numba is not installed; or the environment variable is neither 0 nor 1.
    """
    if _Preference.reference_s > SIMULATOR.loading_s and not _Preference.compiled:
        _Preference.compiled = compiling_pays(_Preference.reference_s)
    return _compiles(lambda: _Preference.compiled or compiling_pays(reference_s))


@contextmanager
def counted(driver: Driver) -> Iterator[None]:
    """A block in which a driver simulates: what the reference driver takes counts for the launches that follow."""
    start = time.thread_time()
    yield
    if isinstance(driver, ReferenceDriver):
        _Preference.reference_s += time.thread_time() - start


def fuses(columns_s: float, code: MachineCode) -> bool:
    """Whether formulas over columns are evaluated by machine code, which can be had.

    Args:
        columns_s: what they have taken this process so far, and are about to take, without it.

    Raises:
        InputError: as :func:`compiles`.
    """
    return _compiles(lambda: compiling_pays(columns_s, code))


def _compiles(pays: Callable[[], bool]) -> bool:
    """What the environment variable says, else whether it pays; of machine code that can be had."""
    forced = os.environ.get(VARIABLE, "")
    if forced not in {"", "0", "1"}:
        raise InputError(f"{VARIABLE}: expected 0 or 1, got '{forced}'")
    if forced == "1" and not has_numba():
        raise InputError(f"{VARIABLE}=1 needs numba: pip install numba")
    wanted = forced != "0" and (bool(forced) or pays())
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
