"""``sampled``: one representative SM, simulated until it repeats, stands for all."""

from __future__ import annotations

from dataclasses import replace

from gpusim.hardware.machine import Machine
from gpusim.launch import Grid, Launch, l2_read_bytes
from gpusim.program import (
    Alu,
    Barrier,
    Load,
    LoadBulk,
    LoadShared,
    Mma,
    Op,
    Repeat,
    Role,
    Store,
    StoreShared,
    WarpgroupMma,
    executed,
    operations,
)
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.drive import drive
from gpusim.sim.drivers.choice import chosen_driver
from gpusim.sim.drivers.driver import Driver
from gpusim.sim.drivers.reference import ReferenceDriver
from gpusim.sim.initial import NO_EARLIER_STORES, EarlierStores, Simulation
from gpusim.sim.memory.fetches import dram_cycles, l2_cycles_of_stores
from gpusim.sim.outcome import LaunchOutcome, busy_by_resource
from gpusim.sim.trace import Recorder
from gpusim.units import ceil_div, whole_cycles

LONG_LOOP_ITERATIONS = 96
"""Iterations of a loop that hide in how large pieces the warps of one sub-partition store results."""
HIDDEN_PORT = 1.75
"""Pipe time over shared-memory time of an iteration from which on the order of service to the sub-partitions is hidden.

Of 125 random launches above it none differed from all sub-partitions by more than 0.43 %; of 255 below, some by 4 %.
"""
DRAM_LASTS = 1.005
"""Time of a launch's DRAM traffic over what one sub-partition was simulated for, from which on DRAM decides.

Of what BERT-large launches on A100 without matrix instructions, nothing that DRAM bounds takes longer on all of them.
"""


def simulate_sampled(
    machine: Machine, launch: Launch, recorder: Recorder | None = None, *, extrapolate: bool = True
) -> LaunchOutcome:
    """Simulate the SM with most CTAs, on one of its sub-partitions where that stands for all."""
    if extrapolate and recorder is None and _parts_are_alike(machine, launch):
        if _one_part_stands_for_all(machine, launch):
            return _of_one_part(machine, launch)[0]
        if not _multiplies_matrices(launch) and _dram_may_decide(machine, launch):
            outcome, dram_over_play = _of_one_part(machine, launch)
            if dram_over_play >= DRAM_LASTS:
                return outcome
    return _simulate_sm(machine, launch, recorder, extrapolate=extrapolate)[0]


def _of_one_part(machine: Machine, launch: Launch) -> tuple[LaunchOutcome, float]:
    """The outcome by one sub-partition, and DRAM's time over what was simulated."""
    parts = machine.sub_partitions
    roles = tuple(replace(role, warps=role.warps // parts) for role in launch.roles)
    part = machine.share_of_sub_partition()
    outcome, dram_over_play = _simulate_sm(part, replace(launch, roles=roles), None, extrapolate=True)
    stalls = {cause: parts * cycles for cause, cycles in outcome.stall_cycles.items()}
    whole = parts * outcome.l2_read_bytes, parts * outcome.dram_read_bytes
    return replace(outcome, stall_cycles=stalls, l2_read_bytes=whole[0], dram_read_bytes=whole[1]), dram_over_play


def _parts_are_alike(machine: Machine, launch: Launch) -> bool:
    """Whether each sub-partition has as many warps of every role."""
    parts = machine.sub_partitions
    return parts > 1 and not any(role.warps % parts for role in launch.roles)


def _multiplies_matrices(launch: Launch) -> bool:
    return any(isinstance(op, Mma | WarpgroupMma) for role in launch.roles for op in operations(role.program))


def _one_part_stands_for_all(machine: Machine, launch: Launch) -> bool:
    """Whether the sub-partitions do the same at the same time, and what they share does not tell them apart."""
    parts = machine.sub_partitions
    port_bytes = pipe_cycles = 0.0
    for role in launch.roles:
        loop = _only_loop(role)
        if loop is None or loop.times < LONG_LOOP_ITERATIONS or not any(isinstance(op, Barrier) for op in loop.body):
            return False
        port_bytes += role.warps * sum(_port_bytes(op) for op in loop.body)
        pipe_cycles += role.warps / parts * _mma_cycles(machine, loop)
    return pipe_cycles > 0.0 and pipe_cycles >= HIDDEN_PORT * port_bytes / machine.shared_bytes_per_cycle


def _dram_may_decide(machine: Machine, launch: Launch) -> bool:
    """Whether DRAM may take longer than the rest: its time over that of the busiest SM's issue slots."""
    instructions = sum(
        role.warps * times * _issued(op) for role in launch.roles for op, times in executed(role.program)
    )
    slots = ceil_div(launch.ctas, machine.sm_count) * instructions / machine.sub_partitions / machine.issue_per_cycle
    dram = dram_cycles(DecodedLaunch(machine, launch))
    # An extrapolated time may be a little shorter than what it has to issue.
    return dram > 0.0 and dram >= 0.95 * slots


def _issued(op: Op) -> float:
    """Issue slots of an operation, as far as vector kernels have them."""
    match op:
        case Alu():
            return sum(count for _, count in op.work)
        case Load() | Store() | StoreShared() | LoadShared():
            return op.instructions
    return 0.0


def _only_loop(role: Role) -> Repeat | None:
    """The loop of a program that has one, where it neither stores nor holds another loop."""
    loops = [op for op in role.program if isinstance(op, Repeat)]
    if len(loops) != 1 or any(isinstance(op, Repeat | Store) for op in loops[0].body):
        return None
    return loops[0]


def _port_bytes(op: object) -> float:
    """What an operation of a warp passes through the SM's load/store port [B]."""
    match op:
        case Load() | LoadBulk():
            return op.port_bytes
        case Mma(pipelined=True):
            return op.operand_bytes
        case StoreShared() | LoadShared():
            return op.size_bytes
    return 0.0


def _mma_cycles(machine: Machine, loop: Repeat) -> float:
    """Pipe time of a warp's pipelined multiply-accumulates in an iteration [cycles]."""
    rates = {timing.name: timing.instructions_per_cycle for timing in machine.mmas}
    mmas = [op for op in loop.body if isinstance(op, Mma) and op.pipelined]
    return sum(op.pipe_instructions / rates[op.instruction] for op in mmas)


def _simulate_sm(
    machine: Machine, launch: Launch, recorder: Recorder | None, *, extrapolate: bool
) -> tuple[LaunchOutcome, float]:
    """The outcome of a simulation, and the time of the launch's DRAM traffic over what was simulated."""
    decoded = DecodedLaunch(machine, launch)
    driver = ReferenceDriver() if recorder is not None else chosen_driver()
    earlier = _earlier_stores(decoded, driver, extrapolate=extrapolate)
    simulated = drive(Simulation(decoded, extrapolate=extrapolate, earlier=earlier), driver, recorder)
    asked = l2_read_bytes(launch)
    # What is left to be written back passes DRAM in the next run, as what the one before left did in this one.
    dram = dram_cycles(decoded)
    outcome = LaunchOutcome(
        cycles=max(simulated.cycles, whole_cycles(dram)),
        stall_cycles=simulated.stall_cycles,
        busy_cycles=busy_by_resource(simulated.busy_cycles | {"dram": [dram]}),
        l2_read_bytes=sum(asked.values()),
        dram_read_bytes=sum(asked[tensor.name] * tensor.miss_fraction for tensor in launch.tensors),
    )
    return outcome, dram / simulated.cycles if simulated.cycles else 0.0


def _earlier_stores(decoded: DecodedLaunch, driver: Driver, *, extrapolate: bool) -> EarlierStores:
    """What SMs with a CTA less store, where a launch has one round and does not fill it evenly."""
    machine, launch = decoded.machine, decoded.launch
    less, more = divmod(launch.ctas, machine.sm_count)
    if not (0 < less < decoded.ctas_per_sm and more):
        return NO_EARLIER_STORES
    even = DecodedLaunch(machine, replace(launch, grid=Grid(less * machine.sm_count), edges=None))
    since = drive(Simulation(even, extrapolate=extrapolate), driver).stored_from
    return EarlierStores(since, less * (machine.sm_count - more) * l2_cycles_of_stores(decoded))
