"""The loop over events."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.sim.compiled.events import KIND_BITS, NONE, next_event
from gpusim.sim.compiled.layout import (
    CTA_ENDED,
    FINISHED,
    LAUNCHED,
    RUNNING,
    TAKE_CTA,
    WARP,
    WARP_ENDED,
    Floats,
    Integers,
    State,
)
from gpusim.sim.compiled.machine_code import machine_code
from gpusim.sim.compiled.replacement import preload
from gpusim.sim.compiled.shared import shared
from gpusim.sim.compiled.sms import cta_ended, launched, start, take_cta, warp_ended
from gpusim.sim.compiled.warps import resume
from gpusim.sim.residency import Touched


def _go_on(arrays: State, events: int) -> int:
    """Play so many events more; the status."""
    s = shared(arrays)
    run = s.run[0]
    for _ in range(events):
        what = next_event(s)
        if what == NONE:
            run.status = FINISHED
            break
        kind, subject = what & (1 << KIND_BITS) - 1, what >> KIND_BITS
        if kind == WARP:
            resume(s, subject)
        elif kind == WARP_ENDED:
            warp_ended(s, subject)
        elif kind == TAKE_CTA:
            take_cta(s, subject)
        elif kind == LAUNCHED:
            launched(s, subject)
        elif kind == CTA_ENDED:
            cta_ended(s, subject)
        else:
            start(s, subject)
        if run.status != RUNNING:
            break
    return run.status


def _preload(arrays: State, lines: Integers, units: Integers, sizes: Floats, dirty: Floats, runs: int) -> None:
    """Leave in L2 what earlier runs did."""
    preload(shared(arrays), lines, units, sizes, dirty, runs)


_machine_code: list[Any] = []


def play(state: State, events: int) -> int:
    """Play so many events more; the status."""
    return int(_of(state)[0](state, events))


def fill_cache(state: State, touched: Touched, runs: int) -> None:
    """Leave in L2 what earlier runs did."""
    _of(state)[1](state, *touched, runs)


def _of(state: State) -> list[Any]:
    """Machine code for this and every state: they have the same types."""
    if not _machine_code:
        touched = *[np.empty(0, np.int64)] * 2, *[np.empty(0)] * 2
        _machine_code.extend(machine_code((_go_on, _preload), ((state, 1), (state, *touched, 1))))
    return _machine_code
