"""The key of an outcome: everything that it depends on, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter

from gpusim.content import canonical
from gpusim.hardware.machine import Machine
from gpusim.keyed import Keyed
from gpusim.launch import Launch
from gpusim.program import Mma, WarpgroupMma, operations
from gpusim.sim.causes import Cause
from gpusim.sim.decoded import used_pipes
from gpusim.sim.outcome import LaunchOutcome
from gpusim.version import MODEL_VERSION

_PLAYED = tuple(field.name for field in fields(Launch) if field.name != "name")
"""Fields of a launch that decide its outcome; the name is for messages."""
_played = attrgetter(*_PLAYED)
_LAYOUT = canonical((_PLAYED, [field.name for field in fields(LaunchOutcome)], [cause.value for cause in Cause]))
"""Names of what is played, and of what an outcome says."""


def outcome_key(machine: Machine, launch: Launch, detail: str = "sampled") -> str:
    """SHA-256 of the model version, the launch without its name, and the machine without what the launch does not use.

    The latency of a TLB miss is used by a cold launch only.

    Raises:
        ValueError: a program names an instruction or a pipe that the machine does not have.
    """
    written = _written(Keyed(machine))
    instructions = {
        op.instruction for role in launch.roles for op in operations(role.program) if isinstance(op, Mma | WarpgroupMma)
    }
    used = [written.pipes[name] for name in used_pipes(machine, launch)]
    used += [written.mmas[name] for name in sorted(instructions)]
    used += [repr(machine.tlb_miss_cycles)] if launch.cold else []
    text = "\n".join((str(MODEL_VERSION), _LAYOUT, detail, written.rest, *used, canonical(_played(launch))))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Written:
    """A machine's content, apart from that of each pipe and instruction."""

    pipes: dict[str, str]
    mmas: dict[str, str]
    rest: str


@lru_cache(maxsize=512)
def _written(this: Keyed[Machine]) -> _Written:
    """Of this very machine: an equal one may have numbers of other types."""
    machine = this.record
    rest = replace(machine, pipes=(), mmas=(), tlb_miss_cycles=0.0, limits=machine.limits._replace(gpu=""))
    return _Written(
        {pipe.name: canonical(pipe) for pipe in machine.pipes},
        {timing.name: canonical(timing) for timing in machine.mmas},
        canonical(rest),
    )
