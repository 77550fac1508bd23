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

from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.program import Program, Repeat, longest_loops
from gpusim.progress import Progress
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.drive import drive
from gpusim.sim.drivers.choice import WARP_ITERATION_S, chosen_driver
from gpusim.sim.drivers.reference import ReferenceDriver
from gpusim.sim.initial import Simulation
from gpusim.sim.outcome import LaunchOutcome, busy_by_resource
from gpusim.sim.trace import Recorder


def simulate_full(
    machine: Machine, launch: Launch, recorder: Recorder | None = None, progress: Progress | None = None
) -> LaunchOutcome:
    """Simulate all CTAs."""
    decoded = DecodedLaunch(machine, launch)
    total = launch.ctas * watched_iterations(launch.roles[-1].program)
    reference_s = WARP_ITERATION_S * total * launch.warps
    driver = ReferenceDriver() if recorder is not None else chosen_driver(reference_s)
    simulated = drive(Simulation(decoded, full=True), driver, recorder, progress=progress, iterations=total)
    return LaunchOutcome(
        cycles=simulated.cycles,
        stall_cycles=simulated.stall_cycles,
        busy_cycles=busy_by_resource(simulated.busy_cycles),
        l2_read_bytes=simulated.l2_read_bytes,
        dram_read_bytes=simulated.dram_read_bytes,
    )


def watched_iterations(program: Program, entries: int = 1) -> int:
    """Iterations that a warp makes in the longest loops of a program.

    >>> from gpusim.program import Compute
    >>> watched_iterations((Repeat((Repeat((Compute(1.0),), 7),), 3), Repeat((Compute(1.0),), 4)))
    25
    """
    watched = {id(loop) for loop in longest_loops(program)}
    return _iterations(program, watched, entries)


def _iterations(program: Program, watched: set[int], entries: int) -> int:
    total = 0
    for op in program:
        if isinstance(op, Repeat):
            iterations = entries * op.times
            total += iterations * (id(op) in watched) + _iterations(op.body, watched, iterations)
    return total
