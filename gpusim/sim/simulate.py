"""Simulates a kernel launch on a machine; these two alone determine the outcome.

``sampled`` simulates the SM with most CTAs, with its share of L2 and DRAM, until it repeats. ``full`` simulates every
CTA on every SM, with L2 as an explicit cache.

In ``full`` CTAs are dealt out in the order of the grid, to whichever SM has a free slot, but to none more than its even
share. Here the CTAs of an SM end together, and the first SM to end would take as many again while others take none. On
GPUs they end one after the other: measured GEMMs of one to five waves (FP32, V100 and A100) show no such loss.

L2 and DRAM serve the CTAs in turn. In the order of asking, the SM that starts first would have its whole first ring of
stages before the last SM, a hundred cycles later, had its first block; its port takes ten times as long for the ring.
An SM with two CTAs has twice the turns of one with one: GEMMs of 112 to 172 CTAs on the 108 SMs of an A100 that stream
weights take as long as DRAM for their bytes, not half as long again.
"""

from __future__ import annotations

from gpusim.hardware.machine import Machine
from gpusim.launch import Grid, Launch, Resources, l2_read_bytes
from gpusim.program import Compute, Program, Repeat, Role, longest_loops
from gpusim.progress import Progress
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.drive import drive
from gpusim.sim.drivers.choice import WARP_ITERATION_S, chosen_driver, counted
from gpusim.sim.drivers.reference import ReferenceDriver
from gpusim.sim.initial import Simulation
from gpusim.sim.memory.fetches import dram_cycles
from gpusim.sim.outcome import LaunchOutcome, Simulated, busy_by_resource
from gpusim.sim.trace import Recorder
from gpusim.units import whole_cycles


def compile_ahead(machine: Machine) -> None:
    """Compile the simulator, and keep it for other processes, unless that has been done; it needs numba."""
    from gpusim.sim.drivers.compiled import CompiledDriver  # noqa: PLC0415 - numba takes half a second

    least = Launch("compiled ahead", Grid(1), (Role(1, (Compute(1.0),)),), Resources(32, 1, 0))
    _ = drive(Simulation(DecodedLaunch(machine, least)), CompiledDriver())


def simulate(
    machine: Machine,
    launch: Launch,
    detail: str = "sampled",
    *,
    recorder: Recorder | None = None,
    extrapolate: bool = True,
    progress: Progress | None = None,
) -> LaunchOutcome:
    """Simulate a launch.

    Args:
        machine: As :meth:`gpusim.Machine.of` makes it of a GPU and an SM clock [MHz].
        launch: Grid, programs of the warps, and tensors.
        detail: ``sampled`` or ``full``.
        recorder: listens to the first SM, and to what an extrapolation does simulate.
        extrapolate: ``sampled`` may jump over what repeats.
        progress: called now and then in ``full`` with the iterations of loops done, of all CTAs, and with their total.

    Returns:
        Time [SM cycles], stalls by cause [warp cycles] on the SM with the most CTAs, and bytes read from L2 and DRAM.

    Raises:
        ValueError: the detail is unknown, a program names what the machine does not have, or warps wait for each other
            for ever.
        DoesNotFitError: a CTA needs more than an SM has.
    """
    if detail == "full":
        return _simulate_full(machine, launch, recorder, progress)
    if detail == "sampled":
        return _simulate_sampled(machine, launch, recorder, extrapolate=extrapolate)
    raise ValueError(f"detail: '{detail}' is neither 'sampled' nor 'full'")


def _simulate_sampled(
    machine: Machine, launch: Launch, recorder: Recorder | None, *, extrapolate: bool
) -> LaunchOutcome:
    decoded = DecodedLaunch(machine, launch)
    driver = ReferenceDriver() if recorder is not None else chosen_driver()
    with counted(driver):
        simulated = drive(Simulation(decoded, extrapolate=extrapolate), driver, recorder)
    requested_bytes = l2_read_bytes(launch)
    # What is left to be written back passes DRAM in the next run, as what the one before left did in this one.
    dram = dram_cycles(decoded)
    return LaunchOutcome(
        cycles=max(simulated.cycles, whole_cycles(dram), _l2_cycles(simulated)),
        stall_cycles=simulated.stall_cycles,
        busy_cycles=busy_by_resource(simulated.busy_cycles | {"dram": [dram]}),
        l2_read_bytes=sum(requested_bytes.values()),
        dram_read_bytes=sum(requested_bytes[tensor.name] * tensor.miss_fraction for tensor in launch.tensors),
    )


def _simulate_full(
    machine: Machine, launch: Launch, recorder: Recorder | None, progress: Progress | None
) -> LaunchOutcome:
    decoded = DecodedLaunch(machine, launch)
    total = launch.ctas * _watched_iterations(launch.roles[-1].program)
    reference_s = WARP_ITERATION_S * total * launch.warps
    driver = ReferenceDriver() if recorder is not None else chosen_driver(reference_s)
    with counted(driver):
        simulated = drive(Simulation(decoded, full=True), driver, recorder, progress=progress, iterations=total)
    return LaunchOutcome(
        cycles=max(simulated.cycles, _l2_cycles(simulated)),
        stall_cycles=simulated.stall_cycles,
        busy_cycles=busy_by_resource(simulated.busy_cycles),
        l2_read_bytes=simulated.l2_read_bytes,
        dram_read_bytes=simulated.dram_read_bytes,
    )


def _l2_cycles(simulated: Simulated) -> int:
    """Cycles in which L2 is at work: it ends with the last store, which no warp waits for."""
    return whole_cycles(max(simulated.busy_cycles["l2"]))


def _watched_iterations(program: Program) -> int:
    """Iterations that a warp makes in the longest loops of a program.

    >>> _watched_iterations((Repeat((Repeat((Compute(1.0),), 7),), 3), Repeat((Compute(1.0),), 4)))
    25
    """
    return _iterations_of(program, {id(loop) for loop in longest_loops(program)}, 1)


def _iterations_of(program: Program, watched: set[int], entries: int) -> int:
    total = 0
    for op in program:
        if isinstance(op, Repeat):
            iterations = entries * op.times
            total += iterations * (id(op) in watched) + _iterations_of(op.body, watched, iterations)
    return total
