"""Kernels of fused attention as data.

A CTA holds a tile of queries and goes over the tiles of keys, or backward a tile of keys and goes over queries. What it
does to each score between two products is counted in compiled kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gpusim.library.main_loops import Cited, Cost, Count, Entry, Instruction, Instructions, Source
from gpusim.library.vector import Registers, Work
from gpusim.numbers.formats import Dtype
from gpusim.workloads.attention import Attention, AttentionOp

Warps = Annotated[tuple[Count, Count], Field(strict=False)]


class AttentionTile(Entry):
    """A kernel of a family: its tile, and the heads that it serves."""

    queries: Count = Field(description="of a tile, which a CTA holds; backward those that it goes through at a time")
    keys: Count = Field(description="of a tile, which a CTA goes through at a time; backward those that it holds")
    warps: Warps = Field(description="along the queries, along the keys of the scores")
    max_head_dim: Count = Field(description="elements of a head that it computes with; smaller heads are padded")
    registers: Registers = Field(description="32-bit registers of a thread")
    shared_bytes: Annotated[int, Field(ge=0, strict=True)] = Field(description="shared memory of a CTA [B]")
    causal: bool | None = Field(default=None, description="only with a causal mask, or without; both if absent")
    dropout: bool | None = Field(default=None, description="only with dropout, or without; both if absent")


class AttentionFamily(Entry):
    """Kernels of one template, which differ in their tile only."""

    kind: Literal["flash", "staged"] = Field(
        description="flash: a CTA keeps its own tile in shared memory, the next tile arrives while one is multiplied, "
        "and scores stay in registers; staged: each product loads both operands, and scores pass through shared memory"
    )
    name: str = Field(description="format string: {queries} {keys} {head_dim} {warps}")
    source: Source
    op: AttentionOp = Field(description="forward pass, or gradients of queries, keys and values")
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1)] = Field(
        description="data types of queries, keys and values"
    )
    instruction: Instruction
    multiplies: Count = Field(
        default=1, description="multiply-accumulate instructions for each product of two fragments: 3 of split FP32"
    )
    masks: bool = Field(description="adds a bias to the scores")
    step_k: Count | None = Field(
        default=None, description="elements of a product that it computes with at a time; whole heads if absent"
    )
    through_registers: bool = Field(
        default=False, description="a step is loaded at a time, through registers; otherwise all of a product"
    )
    sums_in_memory: bool = Field(
        default=False, description="adds gradients of keys and values up in memory; in registers otherwise"
    )
    lanes_per_row: Count = Field(description="threads that hold the scores of a row of a warp's tile")
    setup_instructions: Cited[Cost] = Field(description="dependent, of a warp before its first load")
    instruction_counts: Cited[str] = Field(description="what was disassembled to count the instructions below")
    beside_multiply: Instructions = Field(
        description="for each multiply-accumulate instruction: fragment loads, conversions, addresses"
    )
    score: Work = Field(description="of a score, from its product to the next one")
    rescale: Work = Field(default=Work(), description="of an element of the result, for each tile of keys")
    iteration: Work = Field(description="of a thread, per tile that a CTA goes through: addresses, loop")
    mask: Work = Field(default=Work(), description="of a score to which a bias is added")
    dropout: Work = Field(default=Work(), description="of a score that may be dropped")
    spilled_words: Instructions = Field(default=0.0, description="of a thread and tile: local memory read or written")
    kernels: Annotated[tuple[AttentionTile, ...], Field(min_length=1)] = Field(
        description="a kernel for each tile, in the order in which a framework considers them"
    )


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """One kernel of a family."""

    family: AttentionFamily
    tile: AttentionTile

    @property
    def warps(self) -> int:
        return self.tile.warps[0] * self.tile.warps[1]

    @property
    def printed_name(self) -> str:
        """The name a profiler would show, less template arguments."""
        tile = self.tile
        return self.family.name.format(
            queries=tile.queries, keys=tile.keys, head_dim=tile.max_head_dim, warps=self.warps
        )

    def computes(self, operator: Attention) -> bool:
        """Whether it computes such attention, of heads of any size."""
        tile, family = self.tile, self.family
        return (
            operator.op == family.op
            and operator.dtype in family.dtypes
            and (family.masks or not operator.mask)
            and tile.causal in (None, operator.causal)
            and tile.dropout in (None, operator.dropout)
        )

    def refusal(self, operator: Attention) -> str:
        """Why it cannot run an operator that it computes; empty where it can."""
        if operator.head_dim > self.tile.max_head_dim:
            return f"head_dim must be at most {self.tile.max_head_dim}, got {operator.head_dim}"
        return ""


def attention_kernels_of(families: tuple[AttentionFamily, ...]) -> tuple[AttentionKernel, ...]:
    """All kernels of families, flat."""
    return tuple(AttentionKernel(family, tile) for family in families for tile in family.kernels)
