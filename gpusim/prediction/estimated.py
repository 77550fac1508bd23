"""Outcomes of launches in closed form: what ``estimate`` gives in place of a simulation.

A launch takes the time by which kernels are ranked, at least that of its busiest resource, and has no stalls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np

from gpusim.arrays import largest
from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.lowering.columns import Columns, columns_of
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.prediction.estimate import busy_cycles, launch_cycles
from gpusim.sim.outcome import LaunchOutcome
from gpusim.units import whole_cycles


def estimated(machine: Machine, schedule: Schedule) -> LaunchOutcome:
    """What a launch takes on a machine."""
    return estimates(machine, columns_of(schedule)).row(0)


def estimates(machine: Machine, schedules: Columns[Schedule]) -> Columns[LaunchOutcome]:
    """What each of some launches takes.

    Args:
        machine: with columns in place of values that differ, as :func:`machines_at` has them.
    """
    cycles = launch_cycles(machine, schedules)
    busy = {name: _column(works, cycles.shape) for name, works in busy_cycles(machine, schedules).items()}
    moved = schedules.traffic
    return Columns(
        LaunchOutcome,
        cycles=whole_cycles(largest(cycles, *busy.values())),
        stall_cycles={},
        busy_cycles=busy,
        l2_read_bytes=_column(moved.l2_read_bytes, cycles.shape),
        dram_read_bytes=_column(moved.dram_read_bytes, cycles.shape),
    )


def machines_at(gpu: Gpu, clocks_mhz: Sequence[float]) -> Any:
    """A GPU at several clocks: a :class:`gpusim.hardware.machine.Machine` with columns of what depends on them."""
    distinct = sorted(set(clocks_mhz))
    places = np.searchsorted(np.array(distinct), np.array(clocks_mhz))
    machines = [Machine.of(gpu, clock_mhz) for clock_mhz in distinct]
    columns = {name: getattr(machines[0], name) for name in _MACHINE}
    for name in _of_clock(CacheKey(gpu)):
        columns[name] = np.array([getattr(machine, name) for machine in machines])[places]
    return Columns(Machine, **columns)


_MACHINE = tuple(one.name for one in fields(Machine))


@lru_cache(maxsize=256)
def _of_clock(key: CacheKey[Gpu]) -> tuple[str, ...]:
    """What of a machine depends on its clock: names of fields that differ between the lowest and the highest one."""
    clock = key.record.clock
    slow, fast = (Machine.of(key.record, clock_mhz) for clock_mhz in (clock.min_mhz, clock.max_mhz))
    return tuple(name for name in _MACHINE if getattr(slow, name) != getattr(fast, name))


def _column(values: Any, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.asarray(values, dtype=float), shape)
