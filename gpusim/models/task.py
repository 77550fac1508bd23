"""Tasks: what a step launches, one operator each, in the order in which the host launches them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpusim.workloads.operators import Operator

Phase = Literal["forward", "backward", "update", "communication"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in memory. Views of it bear its name."""

    name: str
    """Unique in a step: ``encoder.0.query``, ``encoder.0.query.weight``, a gradient ``d.encoder.0.query``."""
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Task:
    """An operator that the GPU computes in a step."""

    name: str
    """Path of the layer that it belongs to."""
    phase: Phase
    operator: Operator
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    call: str
    """Kind of the framework call that launches it, such as ``linear``; empty: the same call as the task before it."""
