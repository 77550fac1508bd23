"""Simulates a kernel launch on a machine; these two alone determine the outcome."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.program import Mma, WarpgroupMma, operations
from gpusim.progress import Progress
from gpusim.sim.decoded import used_pipes
from gpusim.sim.full import simulate_full
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.sampled import simulate_sampled
from gpusim.sim.trace import Recorder


def simulate(
    machine: Machine,
    launch: Launch,
    detail: str = "sampled",
    *,
    recorder: Recorder | None = None,
    extrapolate: bool = True,
    progress: Progress | None = None,
) -> LaunchOutcome:
    """Play a launch.

    Args:
        detail: ``sampled`` or ``full``.
        recorder: listens to the first SM, and to what an extrapolation does play.
        extrapolate: ``sampled`` may jump over what repeats, and play one sub-partition for all that do the same.
        progress: called now and then in ``full`` with the turns of loops done, of all CTAs, and how many there are.

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


def content_hash(machine: Machine, launch: Launch, detail: str = "sampled") -> str:
    """SHA-256 of all that an outcome depends on: the launch, and the machine without what the launch does not use."""
    instructions = {
        op.instruction for role in launch.roles for op in operations(role.program) if isinstance(op, Mma | WarpgroupMma)
    }
    pipes = used_pipes(machine, launch)
    used = replace(
        machine,
        pipes=tuple(pipe for pipe in machine.pipes if pipe.name in pipes),
        mmas=tuple(timing for timing in machine.mmas if timing.name in instructions),
        limits=machine.limits._replace(gpu=""),
    )
    # Frozen records of numbers and text: each names its class and its fields, and floats in full.
    return hashlib.sha256(repr((detail, used, launch)).encode()).hexdigest()
