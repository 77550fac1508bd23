"""The key of an outcome: everything that it depends on, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from gpusim.cache_key import CacheKey
from gpusim.canonical_text import canonical
from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.program import Mma, WarpgroupMma, operations
from gpusim.sim.causes import Cause
from gpusim.sim.decoded import used_pipes
from gpusim.sim.outcome import LaunchOutcome
from gpusim.version import MODEL_VERSION

_SIMULATED = tuple(field.name for field in fields(Launch) if field.name != "name")
"""Fields of a launch that decide its outcome; the name is for messages."""
_DRAM = ("dram_bytes_per_cycle", "dram_latency_cycles", "tlb_miss_cycles")
_simulated = attrgetter(*_SIMULATED)
_LAYOUT = canonical((_SIMULATED, [field.name for field in fields(LaunchOutcome)], [cause.value for cause in Cause]))
"""Names of what is simulated, and of what an outcome says."""


def outcome_key(machine: Machine, launch: Launch, detail: str = "sampled") -> str:
    """SHA-256 of the model version, the launch without its name, and the machine without what the launch does not use.

    What DRAM takes, and a TLB miss, is used where something passes DRAM only, and the latter by a cold launch only.

    Raises:
        ValueError: a program names an instruction or a pipe that the machine does not have.
    """
    written, of_launch = _written(CacheKey(machine)), _written_launch(CacheKey(launch))
    used = [written.pipes[name] for name in used_pipes(machine, launch)]
    used += [written.mmas[name] for name in of_launch.instructions]
    used += [repr(getattr(machine, name)) for name in _of_dram(launch, detail)]
    text = "\n".join((str(MODEL_VERSION), _LAYOUT, detail, written.rest, *used, of_launch.text))
    return hashlib.sha256(text.encode()).hexdigest()


def _of_dram(launch: Launch, detail: str) -> tuple[str, ...]:
    """Values of a machine that are used where something passes DRAM: ``full`` asks its cache what does."""
    missing = any(tensor.miss_fraction for work in launch.works for tensor in work.tensors)
    if detail == "sampled" and not missing and not launch.write_back_cost:
        return ()
    return _DRAM if launch.cold else _DRAM[:-1]


@dataclass(frozen=True, slots=True)
class _Written:
    """A machine's content, apart from that of each pipe and instruction."""

    pipes: dict[str, str]
    mmas: dict[str, str]
    rest: str


@dataclass(frozen=True, slots=True)
class _WrittenLaunch:
    """A launch's content, and the instructions that multiply in it."""

    text: str
    instructions: tuple[str, ...]


@lru_cache(maxsize=512)
def _written_launch(this: CacheKey[Launch]) -> _WrittenLaunch:
    """Content of this very launch, which is simulated on several machines."""
    launch = this.record
    instructions = {
        op.instruction for role in launch.roles for op in operations(role.program) if isinstance(op, Mma | WarpgroupMma)
    }
    return _WrittenLaunch(canonical(_simulated(launch)), tuple(sorted(instructions)))


@lru_cache(maxsize=512)
def _written(this: CacheKey[Machine]) -> _Written:
    """Content of this very machine: an equal one may have numbers of other types."""
    machine = this.record
    dram: dict[str, Any] = dict.fromkeys(_DRAM, 0.0)
    rest = replace(machine, pipes=(), mmas=(), limits=machine.limits._replace(gpu=""), **dram)
    return _Written(
        {pipe.name: canonical(pipe) for pipe in machine.pipes},
        {timing.name: canonical(timing) for timing in machine.mmas},
        canonical(rest),
    )
