"""Simulates a kernel launch on a machine; these two alone determine the outcome."""

from __future__ import annotations

from gpusim.hardware.machine import Machine
from gpusim.launch import Grid, Launch, Resources
from gpusim.program import Compute, Role
from gpusim.progress import Progress
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.drive import drive
from gpusim.sim.full import simulate_full
from gpusim.sim.initial import Simulation
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.sampled import simulate_sampled
from gpusim.sim.trace import Recorder


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
        detail: ``sampled`` or ``full``.
        recorder: listens to the first SM, and to what an extrapolation does simulate.
        extrapolate: ``sampled`` may jump over what repeats, and simulate one sub-partition for all that do the same.
        progress: called now and then in ``full`` with the iterations of loops done, of all CTAs, and with their total.

    Raises:
        ValueError: the detail is unknown, a program names what the machine does not have, or warps wait for each other
            for ever.
        DoesNotFitError: a CTA needs more than an SM has.
    """
    if detail == "full":
        return simulate_full(machine, launch, recorder, progress)
    if detail == "sampled":
        return simulate_sampled(machine, launch, recorder, extrapolate=extrapolate)
    raise ValueError(f"detail: '{detail}' is neither 'sampled' nor 'full'")
