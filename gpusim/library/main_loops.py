"""The kinds of main loop that kernels are built around, a record each with the fields that its lowering reads.

A family of kernels names its kind in the catalogue (``main_loop: {kind: mma, ...}``); ``gpusim.lowering.gemm`` has a
module for each kind.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from gpusim.numbers.formats import Dtype

Count = Annotated[int, Field(ge=1, le=16_384, strict=True)]
"""Extents, warps, stages, registers and bytes of a kernel: up to 2,048 in the shipped catalogues."""
Cost = Annotated[int, Field(ge=0, le=100_000, strict=True)]
"""Instructions or tiles: up to 200 in the shipped catalogues."""

WARPGROUP_WARPS = 4
"""Warps that issue a wgmma together, one on each sub-partition (PTX ISA)."""


Source = Annotated[str, Field(min_length=1, description="publication, file or reasoning behind it")]
Instruction = Annotated[
    str,
    Field(description="that multiplies: a key of the GPU spec's instructions, which state rate and latency"),
]

T = TypeVar("T")


class Entry(BaseModel):
    """A part of a catalogue; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Cited(Generic[T]):
    """A value of a catalogue with how it is known."""

    value: Annotated[T, Field(description="in the unit that its key, or the text of that key, states")]
    kind: Annotated[Literal["datasheet", "measured", "fitted", "assumed"], Field(description="how the value is known")]
    source: Source


Instructions = Annotated[float, Field(ge=0, le=10_000)]
"""Instructions of a thread: a fraction where a compiler shares one among the elements of an access."""


class Pipes(Entry):
    """Instructions by pipe."""

    fma: Instructions = Field(default=0.0, description="FADD, FMUL, FFMA, IMAD")
    alu: Instructions = Field(default=0.0, description="integer, compare, select, move and branch instructions")
    sfu: Instructions = Field(default=0.0, description="MUFU")

    @property
    def by_pipe(self) -> dict[str, float]:
        return {"fma": self.fma, "alu": self.alu, "sfu": self.sfu}


_KIND = Field(description="how operands reach the cores that multiply, which decides the other keys")


class _MainLoop(Entry):
    setup_instructions: Cited[Cost] = Field(description="dependent, of a warp before its first load")
    step_instructions: Cited[Cost] = Field(description="of a math warp and step: loop, addresses, predicates")

    unit: ClassVar[Literal["cuda", "tensor"]]
    """Cores that multiply."""
    in_shared_memory: ClassVar[bool] = True
    """Operands pass through a ring of stages in shared memory."""
    producer_warps: ClassVar[int] = 0
    """Warps that only load."""
    idle_warps: ClassVar[int] = 0
    """Warps that are launched with the producers and leave at once."""

    @property
    def persistent(self) -> bool:
        """Whether CTAs stay on their SM and go from tile to tile."""
        return False

    @property
    def instances(self) -> int:
        """Sets of math warps in a CTA, which take tiles in turn."""
        return 1


class Dequantising(Entry):
    """Instructions for each element of B that a thread converts to A's type, by the type of B."""

    int4: Cited[Pipes] | None = Field(default=None, description="of an element of INT4")
    int8: Cited[Pipes] | None = Field(default=None, description="of an element of INT8")

    def of(self, weights: Dtype) -> Pipes | None:
        """Instructions for weights of a type; None where they are not converted."""
        cited = {Dtype.INT4: self.int4, Dtype.INT8: self.int8}.get(weights)
        return cited.value if cited else None


class _SelfLoading(_MainLoop):
    """All warps load what they multiply."""

    load_bytes: Count = Field(
        description="widest global load of a thread [B]; kernels whose alignment is less load it in pieces"
    )
    load_overhead_instructions: Cited[Cost] = Field(description="of each global load: its address and predicate")


class _MultiStage(_SelfLoading):
    staging: Literal["registers", "async"] = Field(
        description="how operands reach shared memory: through registers, or by cp.async"
    )
    pipelined: bool = Field(description="fetches the next k-group's operands while one is multiplied")
    epilogue_setup_instructions: Cited[Cost] | None = Field(
        default=None,
        description="dependent, of a warp before its results pass through shared memory: where its rows of C lie",
    )
    result_instructions: Cited[Pipes] | None = Field(
        default=None,
        description="for each result of a thread that passes through shared memory: it is scaled, and there are "
        "addresses and predicates of stores",
    )
    conversion_instructions: Cited[Pipes] | None = Field(
        default=None, description="for each result that is stored in fewer bits than it was added up in"
    )
    c_instructions: Cited[Pipes] | None = Field(
        default=None,
        description="for each result where C is read: converted, scaled, added, and the next ones requested, a pass "
        "before they are needed; none: in the pass that adds them, as in CUTLASS",
    )


class SimtLoop(_MultiStage):
    """CUDA cores; each thread holds a rectangle of results."""

    unit: ClassVar[Literal["cuda", "tensor"]] = "cuda"
    kind: Annotated[Literal["simt"], _KIND]
    epilogue_pass_rows: Cited[Count] = Field(
        default=Cited(4, "assumed", "as the sgemm kernels of cuBLAS"),
        description="rows of a warp's results that pass through shared memory at once; threads store single results",
    )


class MmaLoop(_MultiStage):
    """Tensor Cores with operands in registers (mma.sync)."""

    unit: ClassVar[Literal["cuda", "tensor"]] = "tensor"
    kind: Annotated[Literal["mma"], _KIND]
    fragment_copies: Cited[Count] | None = Field(
        default=None, description="threads of a warp that hold each element of A and B, and read it; none: one"
    )
    rounding_instructions: Cited[Instructions] | None = Field(
        default=None,
        description="for each element of A and B that a thread reads, stored in more bits than are multiplied",
    )
    epilogue_pass_rows: Cited[Count] = Field(
        description="rows of a warp's results that pass through shared memory at once, so that rows are stored in full "
        "lines"
    )
    dequantising: Dequantising | None = Field(default=None, description="none: B has A's type")
    local_bytes: Cited[Annotated[float, Field(ge=0, le=1024)]] | None = Field(
        default=None,
        description="for each result that a thread keeps in local memory during the epilogue: what passes between the "
        "SM and L2 [B]; none: results stay in registers",
    )


class DirectLoop(_SelfLoading):
    """CUDA cores, operands straight from global memory to registers: kernels for vectors and for a few columns."""

    unit: ClassVar[Literal["cuda", "tensor"]] = "cuda"
    kind: Annotated[Literal["direct"], _KIND]
    column_port_bytes: Cited[Count] | None = Field(
        default=None,
        description="shared-memory port time of each element of B that a warp reads, where the columns of B wait in "
        "shared memory [B]; none: they go to registers as well",
    )
    around_instructions: Cited[Pipes] | None = Field(
        default=None, description="of a warp outside its loop, stores included; none: not counted"
    )

    in_shared_memory: ClassVar[bool] = False


class DirectMmaLoop(_SelfLoading):
    """Tensor Cores, fragments straight from global memory to registers: convolutions whose channels are not aligned."""

    unit: ClassVar[Literal["cuda", "tensor"]] = "tensor"
    kind: Annotated[Literal["direct_mma"], _KIND]

    in_shared_memory: ClassVar[bool] = False


class WgmmaLoop(_MainLoop):
    """Tensor Cores that read shared memory, which a producer warp fills by bulk copies (wgmma, TMA; CUTLASS 3)."""

    unit: ClassVar[Literal["cuda", "tensor"]] = "tensor"
    kind: Annotated[Literal["wgmma"], _KIND]
    schedule: Literal["cooperative", "pingpong", "one_tile"] = Field(
        description="what the warpgroups of a CTA do: share a tile, or take whole tiles in turn, from tile to tile; or "
        "share one tile, after which the CTA ends"
    )
    bulk_load_instructions: Cited[Cost] = Field(description="of the producer and step")
    dequantising: Dequantising | None = Field(default=None, description="none: B has A's type")
    whole_clusters: bool = Field(
        default=False, description="CTAs of a cluster whose tiles lie beyond the result go through all steps, too"
    )

    producer_warps: ClassVar[int] = 1
    idle_warps: ClassVar[int] = WARPGROUP_WARPS - 1

    @property
    def persistent(self) -> bool:
        return self.schedule != "one_tile"

    @property
    def instances(self) -> int:
        return 2 if self.schedule == "pingpong" else 1


MainLoop = Annotated[SimtLoop | MmaLoop | DirectLoop | DirectMmaLoop | WgmmaLoop, Field(discriminator="kind")]
