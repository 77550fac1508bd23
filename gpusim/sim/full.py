"""``full``: every CTA on every SM, with L2 as an explicit cache.

CTAs are dealt out in the order of the grid, to whichever SM has a free slot, but to none more than its even share. Here
the CTAs of an SM end together, and the first SM to end would take as many again while others take none. On GPUs they
end one after the other: measured products of one to five waves (FP32, V100 and A100) show no such loss.

L2 and DRAM serve the CTAs in turn. In the order of asking, the SM that starts first would have its whole first ring of
stages before the last SM, a hundred cycles later, had its first block; its port takes ten times as long for the ring.
An SM with two CTAs has twice the turns of one with one: products of 112 to 172 CTAs on the 108 SMs of an A100 that
stream weights take as long as DRAM for their bytes, not half as long again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.program import Program, Repeat, longest_loops
from gpusim.progress import Progress
from gpusim.sim.block_cache import BlockCache, FullMemory
from gpusim.sim.clock import Clock
from gpusim.sim.cta import Cta
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.dispatcher import Dispatcher
from gpusim.sim.ledger import CAUSES
from gpusim.sim.link import Sharers
from gpusim.sim.outcome import LaunchOutcome, Played, busy_by_resource
from gpusim.sim.sm import StreamingMultiprocessor
from gpusim.sim.switch import WARP_TURN_S, compiled_play
from gpusim.sim.trace import Recorder
from gpusim.units import ceil_div, whole_cycles

REPORTED_TURNS = 500
"""Turns between two reports of progress: some hundredths of a second."""


def simulate_full(
    machine: Machine, launch: Launch, recorder: Recorder | None = None, progress: Progress | None = None
) -> LaunchOutcome:
    """Play all CTAs."""
    decoded = DecodedLaunch(machine, launch)
    total = launch.ctas * watched_turns(launch.roles[-1].program)
    play = compiled_play(WARP_TURN_S * total * launch.warps) if recorder is None else None
    played = play(decoded, full=True, progress=progress, turns=total) if play is not None else None
    if played is None:
        played = _processes(decoded, recorder, progress, total)
    return LaunchOutcome(
        cycles=played.cycles,
        stall_cycles=played.stall_cycles,
        busy_cycles=busy_by_resource(played.busy_cycles),
        l2_read_bytes=played.l2_read_bytes,
        dram_read_bytes=played.dram_read_bytes,
    )


def _processes(decoded: DecodedLaunch, recorder: Recorder | None, progress: Progress | None, total: int) -> Played:
    env = Clock()
    machine, launch = decoded.machine, decoded.launch
    cache = BlockCache(decoded)
    waiting = iter(range(launch.ctas))

    sm_count = min(machine.sm_count, launch.ctas)
    share = ceil_div(launch.ctas, sm_count)
    dispatcher = Dispatcher(machine.cta_interval_cycles)
    sharers = Sharers(sm_count if launch.persistent else 0)
    memories = [FullMemory(decoded, cache, sharers, own=int(launch.persistent)) for _ in range(sm_count)]
    sms = [
        StreamingMultiprocessor(env, decoded, memory, partial(next, islice(waiting, share), None), dispatcher)
        for memory in memories
    ]
    trace = recorder.attach(sms[0], common=True) if recorder is not None else None
    if progress is not None:
        report = _turn_counter(progress, total)
        for sm in sms:
            sm.units.on_turn = report
    if not launch.persistent:
        for sm, memory in zip(sms, memories, strict=True):
            sm.on_residency = partial(_share_among, sm, memory)
    # Slots open round by round, as CTAs are dealt to SMs in turn.
    for slot in range(decoded.ctas_per_sm):
        for sm in sms:
            sm.open_slot(slot)
    env.run()
    for sm in sms:
        sm.finish()
    # What is left to be written back passes DRAM in the next run, as what the one before left did in this one.
    drained = (whole_cycles(sm.memory.drained_at) for sm in sms)
    ended = max(env.now, whole_cycles(cache.dram.busy), *drained)
    if trace is not None:
        trace.finish(ended)
    busiest = max(sms, key=lambda sm: sum(sm.ledger))
    stalls = dict(zip(CAUSES, busiest.ledger, strict=True))
    busy = {name: [link.busy_until(ended) for link in links] for name, links in busiest.links.items()}
    return Played(ended, stalls, busy, cache.read_bytes, cache.missed_bytes)


def _share_among(sm: StreamingMultiprocessor, memory: FullMemory) -> None:
    memory.share_among(len(sm.resident))


def watched_turns(program: Program, entries: int = 1) -> int:
    """Turns that a warp makes in the longest loops of a program.

    >>> from gpusim.program import Compute
    >>> watched_turns((Repeat((Repeat((Compute(1.0),), 7),), 3), Repeat((Compute(1.0),), 4)))
    25
    """
    watched = {id(loop) for loop in longest_loops(program)}
    return _turns(program, watched, entries)


def _turns(program: Program, watched: set[int], entries: int) -> int:
    total = 0
    for op in program:
        if isinstance(op, Repeat):
            turns = entries * op.times
            total += turns * (id(op) in watched) + _turns(op.body, watched, turns)
    return total


def _turn_counter(progress: Progress, total: int) -> Callable[[Cta], None]:
    """A listener to the turns of all SMs that passes on some of them, the last among them."""
    done = 0

    def on_turn(_cta: Cta) -> None:
        nonlocal done
        done += 1
        if done % REPORTED_TURNS == 0 or done == total:
            progress(done, total)

    return on_turn
