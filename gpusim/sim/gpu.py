"""Runs one kernel launch on the machine: one representative SM (``sampled``) or all of them (``full``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import simpy

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.launch import Launch
from gpusim.program import Barrier, Multiply, StoreShared
from gpusim.progress import Progress
from gpusim.sim.causes import Cause
from gpusim.sim.extrapolate import Extrapolator, Skipped
from gpusim.sim.ledger import CAUSES
from gpusim.sim.link import Link
from gpusim.sim.memory import FullMemory, Memory, SampledMemory, TileCache
from gpusim.sim.sm import Cta, Sm
from gpusim.sim.trace import Recorder
from gpusim.units import whole_cycles

LONG_LOOP_STEPS = 96
"""Turns of a main loop that hide in how large pieces the warps of one sub-partition store results."""
HIDDEN_PORT = 1.75
"""Pipe time over shared-memory time of a step from which on the order of service to the sub-partitions is hidden.

Of 125 random launches above it none differed from all sub-partitions by more than 0.43 %; of 255 below, some by 4 %.
"""
REPORTED_STEPS = 500
"""Steps of ``full`` between two reports of progress: some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one launch took, in SM cycles."""

    cycles: int
    stall_cycles: dict[Cause, int]
    """Warp-cycles by cause, on the SM with the most CTAs."""
    busy_cycles: dict[str, float]
    """Cycles each resource of that SM, or its share of one, was at work; sub-partitions averaged."""
    l2_read_bytes: float
    dram_read_bytes: float


def simulate(
    gpu: Gpu,
    launch: Launch,
    clock_mhz: float,
    detail: str,
    *,
    warm: bool = False,
    recorder: Recorder | None = None,
    extrapolate: bool = True,
    progress: Progress | None = None,
) -> Outcome:
    """Play a launch at an SM clock.

    Args:
        detail: ``sampled`` or ``full``.
        warm: operands are in L2 at the start as far as they fit (``full``; a sampled launch carries its
            hit fraction in ``launch.traffic``).
        recorder: listens to the first SM, and to what an extrapolation does play.
        extrapolate: ``sampled`` may jump over what repeats, and play one sub-partition for all that do the same.
        progress: called now and then in ``full`` with the steps done, of all CTAs, and how many there are.
    """
    if detail == "full":
        return _simulate_full(gpu, launch, clock_mhz, warm, recorder, progress)
    return _simulate_sampled(gpu, launch, clock_mhz, recorder, extrapolate)


def _simulate_sampled(
    gpu: Gpu, launch: Launch, clock_mhz: float, recorder: Recorder | None, extrapolate: bool
) -> Outcome:
    parts = gpu.sm.sub_partitions
    if extrapolate and recorder is None and _one_part_stands_for_all(gpu, launch):
        outcome = _simulate_one_sm(*_share_of_sub_partition(gpu, launch), clock_mhz, None, extrapolate)
        stalls = {cause: parts * cycles for cause, cycles in outcome.stall_cycles.items()}
        whole = parts * outcome.l2_read_bytes, parts * outcome.dram_read_bytes
        return replace(outcome, stall_cycles=stalls, l2_read_bytes=whole[0], dram_read_bytes=whole[1])
    return _simulate_one_sm(gpu, launch, clock_mhz, recorder, extrapolate)


def _one_part_stands_for_all(gpu: Gpu, launch: Launch) -> bool:
    """Whether the sub-partitions do the same at the same time, and what they share does not tell them apart."""
    parts = gpu.sm.sub_partitions
    if parts == 1 or launch.steps < LONG_LOOP_STEPS or any(role.warps % parts for role in launch.roles):
        return False
    port_bytes = launch.load_port_bytes_per_step
    pipe_cycles = 0.0
    for role in launch.roles:
        if not any(isinstance(op, Barrier) for op in role.main_loop):
            return False
        for op in role.main_loop:
            match op:
                case Multiply(pipelined=True):
                    port_bytes += role.warps * op.operand_bytes
                    pipe_cycles += role.warps / parts * op.instructions * launch.instruction.issue_interval_cycles
                case StoreShared():
                    port_bytes += role.warps * op.size_bytes
    port_cycles = port_bytes / gpu.shared_memory.sustained_bytes_per_cycle
    return pipe_cycles / launch.instruction.sustained_fraction >= HIDDEN_PORT * port_cycles


def _share_of_sub_partition(gpu: Gpu, launch: Launch) -> tuple[Gpu, Launch]:
    """One sub-partition, its warps, and its share of what an SM's sub-partitions have in common.

    Where all of them get as many warps of every role they do the same at the same time, and one stands for all.
    """
    parts = gpu.sm.sub_partitions
    shared, path = gpu.shared_memory, gpu.load_store
    share = gpu.model_copy(
        update={
            "sm": gpu.sm.model_copy(update={"sub_partitions": 1}),
            "shared_memory": shared.model_copy(
                update={"bandwidth_bytes_per_cycle": shared.bandwidth_bytes_per_cycle / parts}
            ),
            "load_store": path.model_copy(update={"l2_port_bytes_per_cycle": path.l2_port_bytes_per_cycle / parts}),
            "l2": gpu.l2.model_copy(update={"bandwidth_bytes_per_cycle": gpu.l2.bandwidth_bytes_per_cycle / parts}),
            "dram": gpu.dram.model_copy(update={"peak_bandwidth_gb_per_s": gpu.dram.peak_bandwidth_gb_per_s / parts}),
        }
    )
    return share, replace(
        launch,
        roles=tuple(replace(role, warps=role.warps // parts) for role in launch.roles),
        load_bytes_per_step=launch.load_bytes_per_step / parts,
        received_bytes_per_step=launch.received_bytes_per_step / parts,
        load_port_bytes_per_step=launch.load_port_bytes_per_step / parts,
    )


def _simulate_one_sm(
    gpu: Gpu, launch: Launch, clock_mhz: float, recorder: Recorder | None, extrapolate: bool
) -> Outcome:
    env = simpy.Environment()
    memory = SampledMemory(gpu, launch, clock_mhz)
    busiest = launch.ctas_on_busiest_sm(gpu)
    last_round = launch.ctas - (busiest - 1) * gpu.sm.count
    left = [busiest]

    def next_cta() -> int | None:
        if left[0] == 0:
            return None
        left[0] -= 1
        return busiest - 1 - left[0]

    def crowd(sm: Sm) -> None:
        # Every SM runs a CTA like each of ours, except that only some have one more at the end.
        active = sum(last_round if cta.index == busiest - 1 else gpu.sm.count for cta in sm.resident)
        memory.crowd(len(sm.resident), active)

    sm = Sm(env, gpu, launch, memory, next_cta)
    sm.on_crowd = crowd
    links = _links(sm, memory)
    skipped = Extrapolator(sm, memory, links, left).skipped if extrapolate else Skipped()
    take = recorder.attach(sm, memory, common=False, skipped=skipped) if recorder is not None else None
    sm.start()
    _ = env.run()
    ended = max(int(env.now), whole_cycles(memory.drained_at))
    if take is not None:
        take.finish(ended)
    busy = [link.busy_until(ended) for link in links]
    ended += skipped.cycles
    booked = [a + b for a, b in zip(sm.finished_ledger, skipped.ledger, strict=True)]
    if skipped.links:
        busy = [cycles + more for cycles, (more, _) in zip(busy, skipped.links, strict=True)]
    read = launch.ctas * launch.steps * launch.load_bytes_per_step
    return Outcome(
        cycles=ended,
        stall_cycles=dict(zip(CAUSES, booked, strict=True)),
        busy_cycles=_busy_by_resource(busy, len(sm.parts)),
        l2_read_bytes=read,
        dram_read_bytes=read * launch.traffic.miss_fraction,
    )


def _simulate_full(
    gpu: Gpu,
    launch: Launch,
    clock_mhz: float,
    warm: bool,
    recorder: Recorder | None,
    progress: Progress | None,
) -> Outcome:
    env = simpy.Environment()
    cache = TileCache(gpu, launch, clock_mhz, warm)
    waiting = iter(range(launch.ctas))

    def next_cta() -> int | None:
        return next(waiting, None)

    memories: list[Memory] = []
    sms: list[Sm] = []
    for _ in range(min(gpu.sm.count, launch.ctas)):
        memory = FullMemory(gpu, launch, cache)
        memories.append(memory)
        sms.append(Sm(env, gpu, launch, memory, next_cta))
    take = recorder.attach(sms[0], memories[0], common=True) if recorder is not None else None
    if progress is not None:
        report = _step_counter(progress, launch.ctas * launch.steps)
        for sm in sms:
            sm.on_step = report
    # Slots open round by round, as CTAs are dealt to SMs in turn.
    for slot in range(launch.occupancy.ctas):
        for sm in sms:
            sm.open_slot(slot)
    _ = env.run()
    ended = max(int(env.now), *(whole_cycles(memory.drained_at) for memory in memories))
    if take is not None:
        take.finish(ended)
    busiest = max(sms, key=lambda sm: sum(sm.finished_ledger))
    return Outcome(
        cycles=ended,
        stall_cycles=dict(zip(CAUSES, busiest.finished_ledger, strict=True)),
        busy_cycles=_busy_by_resource(
            [link.busy_until(ended) for link in _links(busiest, busiest.memory)], len(busiest.parts)
        ),
        l2_read_bytes=cache.read_bytes,
        dram_read_bytes=cache.missed_bytes,
    )


def _step_counter(progress: Progress, total: int) -> Callable[[Sm, Cta], None]:
    """A listener to the steps of all SMs that passes on some of them, the last among them."""
    done = 0

    def on_step(_sm: Sm, _cta: Cta) -> None:
        nonlocal done
        done += 1
        if done % REPORTED_STEPS == 0 or done == total:
            progress(done, total)

    return on_step


def _links(sm: Sm, memory: Memory) -> tuple[Link, ...]:
    """Every link of an SM, in the order :func:`_busy_by_resource` reads them."""
    return (
        *(part.pipe for part in sm.parts),
        *(part.issue for part in sm.parts),
        sm.shared,
        *memory.links,
    )


def _busy_by_resource(busy_cycles: list[float], parts: int) -> dict[str, float]:
    pipes, issues = busy_cycles[:parts], busy_cycles[parts : 2 * parts]
    shared, port, l2, dram = busy_cycles[2 * parts :]
    return {
        "arithmetic": sum(pipes) / parts,
        "issue": sum(issues) / parts,
        "shared_memory": shared,
        "l2_port": port,
        "l2": l2,
        "dram": dram,
    }
