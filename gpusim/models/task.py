"""Tasks: what a step launches, one operator each, in the order in which the host launches them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpusim.workloads.collective import Collective
from gpusim.workloads.operators import Operator

Phase = Literal["forward", "backward", "update", "communication"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in memory. Views of it bear its name."""

    name: str
    """Unique in a step: ``encoder.0.query``, ``encoder.0.query.weight``, a gradient ``d.encoder.0.query``."""
    size_bytes: float
    stays: bool = False
    """Whether it stays in memory after the step that writes it, such as keys and values of a prompt."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the GPU does in a step: an operator that it computes, or an exchange with other GPUs."""

    name: str
    """Path of the layer that it belongs to."""
    phase: Phase
    operator: Operator | Collective
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    call: str
    """Kind of the framework call that launches it, such as ``linear``; empty: the same call as the task before it."""
