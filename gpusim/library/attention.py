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
from gpusim.workloads.attention import Attention, AttentionOp, Implementation

Kind = Literal["looped", "flash", "staged", "specialised"]
IMPLEMENTATIONS: dict[Kind, Implementation] = {
    "looped": "flash1",
    "flash": "flash2",
    "staged": "memory_efficient",
    "specialised": "flash3",
}
"""The implementation that kernels of a kind belong to."""
Ratio = Annotated[float, Field(ge=0.1, le=10)]
Warps = Annotated[tuple[Count, Count], Field(strict=False)]


class GradientTile(Entry):
    """What the backward pass of a specialised kernel does with its tile."""

    stages: Count = Field(default=2, description="tiles of gradients of the result that it holds, beside the queries")
    statistics: Instructions = Field(
        description="of a thread and tile, which bring it statistics of its rows: loads from shared memory, shuffles"
    )
    values_in_registers: bool = Field(default=False, description="stay there for the product with gradients")
    queries_turned: bool = Field(
        default=False, description="rows of the product of their gradients are elements of a head; queries otherwise"
    )
    adds_in_bulk: bool = Field(
        default=True,
        description="a warp of its own adds gradients of queries up, from shared memory; otherwise all do, from "
        "registers",
    )
    masks_every_tile: bool = Field(
        default=True, description="work of the causal mask is done on all tiles; on those that it crosses otherwise"
    )


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
    pages: bool | None = Field(default=None, description="only with keys in pages, or without; both if absent")
    weights_in_registers: bool = Field(
        default=True,
        description="weights of the values stay there, backward with their gradients; a specialised kernel may pass "
        "them by shared memory",
    )
    sm_ctas: Count = Field(default=1, description="that an SM has to hold at once; passed over where it does not")
    values_first: bool = Field(
        default=False,
        description="values are multiplied, one instruction after the other, before work on the next scores begins; "
        "meanwhile otherwise",
    )
    max_rows: Count | None = Field(
        default=None, description="queries of all heads that share keys, from which on another kernel is launched"
    )
    max_keys: Count | None = Field(default=None, description="keys of a head above which another kernel is launched")
    gradients: GradientTile | None = Field(default=None, description="of a specialised kernel's backward pass")


class Combination(Entry):
    """The second kernel, which adds up what several CTAs have made of parts of the keys."""

    name: str = Field(description="printed name")
    threads: Count = Field(description="threads of a CTA")
    elements: Count = Field(description="of the result that a CTA adds up, in rows of at most 128")
    registers: Registers = Field(description="32-bit registers of a thread")
    part_instructions: Work = Field(description="of a thread, for each part of its elements")


class DistanceBias(Entry):
    """What computes a bias that grows with the distance of query and key."""

    causal: Work = Field(description="where all rows may have the bias of the last one: it differs by the key alone")
    otherwise: Work = Field(description="where keys on both sides of a query are seen")

    def of(self, *, causal: bool) -> Work:
        """The work of a score."""
        return self.causal if causal else self.otherwise


class AttentionFamily(Entry):
    """Kernels of one template, which differ in their tile only."""

    kind: Kind = Field(
        description="flash: a CTA keeps its own tile in shared memory, the next tile arrives while one is multiplied, "
        "and scores stay in registers; staged: each product loads both operands, and scores pass through shared "
        "memory; specialised: a warp loads, and warpgroups multiply while others work on their scores; looped: a CTA "
        "keeps keys and values in registers and goes over queries, one tile of keys after the other"
    )
    name: str = Field(description="format string: {queries} {keys} {head_dim} {warps}")
    source: Source
    op: AttentionOp = Field(description="forward pass, or gradients of queries, keys and values")
    implementation: Implementation | None = Field(
        default=None, description="by which it is named; by its kind if absent"
    )
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1)] = Field(
        description="data types of queries and of the result; of keys and values, too, unless key_dtypes names others"
    )
    key_dtypes: tuple[Dtype, ...] = Field(default=(), description="data types of keys and values in pages")
    quantises_queries: bool = Field(
        default=False,
        description="multiplies in the type of the keys, to which an engine converts queries in a kernel before; "
        "otherwise keys and values are converted, in registers",
    )
    instruction: Instruction
    multiplies: Count = Field(
        default=1, description="multiply-accumulate instructions for each product of two fragments: 3 of split FP32"
    )
    masks: bool = Field(description="adds a bias to the scores")
    by_default: bool = Field(
        default=True, description="launched without being named; if false, only where it is, or where keys lie in pages"
    )
    packed: bool | None = Field(
        default=None, description="only sequences of any length one after the other, or none of them; both if absent"
    )
    pages: bool = Field(default=False, description="finds keys and values in pages")
    windows: bool = Field(default=False, description="skips keys before the window of its queries")
    packs_heads: Literal["never", "one_query", "always"] = Field(
        default="never", description="when queries of heads that share keys are rows of one tile"
    )
    combination: Combination | None = Field(
        default=None, description="of the parts of a result, where keys of a head are split over CTAs; never if absent"
    )
    stages: Count = Field(default=2, description="tiles of keys, and of values, that a specialised kernel holds")
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
    fragment_cost: Cited[Ratio] = Field(
        default=Cited[Ratio](value=1.0, kind="assumed", source="no kernel measured that needs more"),
        description="time of the shared-memory port for fragments, over that of their bytes at its full width",
    )
    longest_first: bool = Field(
        default=False, description="CTAs that meet most tiles begin first; in order of their queries otherwise"
    )
    score: Work = Field(description="of a score, from its product to the next one")
    rescale: Work = Field(default=Work(), description="of an element of the result, for each tile of keys")
    convert: Work = Field(
        default=Work(), description="of an element of keys or values that is converted, by each warp that multiplies it"
    )
    convert_shuffles: Instructions = Field(
        default=0.0, description="of such an element, which bring it to the thread that multiplies it"
    )
    transpose: Work = Field(
        default=Work(),
        description="of an element of the values, which warps that load turn in shared memory; none where all is 0",
    )
    serial: bool = Field(
        default=False,
        description="of a specialised kernel: each multiply-accumulate instruction of scores waits for the one before; "
        "they are queued at once otherwise",
    )
    values_ahead: bool = Field(
        default=False,
        description="a tile of values is requested when the one before has been multiplied; otherwise while scores are "
        "computed",
    )
    iteration: Work = Field(description="of a thread, per tile that a CTA goes through: addresses, loop")
    edge: Work = Field(
        default=Work(), description="of a score of a tile that the causal mask crosses, beside what it takes elsewhere"
    )
    mask: Work = Field(default=Work(), description="of a score to which a bias is added")
    alibi: DistanceBias | None = Field(
        default=None, description="of a score that is lowered by the distance of query and key; never if absent"
    )
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
        tile, family, paged = self.tile, self.family, operator.page_tokens is not None
        return (
            operator.op == family.op
            and operator.dtype in family.dtypes
            and (operator.kv_dtype in family.key_dtypes if operator.kv_dtype else not family.key_dtypes)
            and (family.masks or not operator.mask)
            and (family.alibi is not None or not operator.alibi)
            and (family.pages or not paged)
            and family.packed in (None, operator.packed)
            and (family.windows or operator.window is None)
            and (operator.implementation in ("", self.implementation))
            and (family.by_default or bool(operator.implementation) or paged)
            and tile.causal in (None, operator.causal)
            and tile.dropout in (None, operator.dropout)
            and tile.pages in (None, paged)
        )

    @property
    def implementation(self) -> Implementation:
        """What a workload names it by."""
        return self.family.implementation or IMPLEMENTATIONS[self.family.kind]

    @property
    def turned_scores(self) -> bool:
        """Whether rows of its scores are keys: specialised kernels whose warps all have all queries of a tile."""
        return self.family.kind == "specialised" and self.tile.warps[0] == 1

    def multiplied(self, operator: Attention) -> Dtype:
        """The type of the products."""
        return operator.kv_dtype if operator.kv_dtype and self.family.quantises_queries else operator.dtype

    def packed_heads(self, operator: Attention) -> int:
        """Heads of queries whose rows share a tile."""
        packs = self.family.packs_heads
        if packs == "never" or (packs == "one_query" and operator.queries > 1) or operator.backward:
            return 1
        return operator.sharing_heads

    def refusal(self, operator: Attention) -> str:
        """Why it cannot run an operator that it computes; empty where it can."""
        tile, rows = self.tile, operator.queries * self.packed_heads(operator)
        if operator.head_dim > tile.max_head_dim:
            return f"head_dim must be at most {tile.max_head_dim}, got {operator.head_dim}"
        if tile.max_rows is not None and rows > tile.max_rows:
            return f"queries of heads that share keys must be at most {tile.max_rows}, got {rows}"
        if tile.max_keys is not None and operator.keys > tile.max_keys:
            return f"keys must be at most {tile.max_keys}, got {operator.keys}"
        return ""


def attention_kernels_of(families: tuple[AttentionFamily, ...]) -> tuple[AttentionKernel, ...]:
    """All kernels of families, flat."""
    return tuple(AttentionKernel(family, tile) for family in families for tile in family.kernels)
