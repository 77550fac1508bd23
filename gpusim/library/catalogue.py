"""The catalogue of library kernels: tiles, warps, stages and registers, as data per compute capability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gpusim.workloads.gemm import LAYOUTS, Dtype, Layout

Staging = Literal["registers", "async", "bulk", "direct"]
"""How operands travel: through registers into shared memory, by cp.async, by bulk copies of a producer warp (TMA)
from where warpgroups multiply them (wgmma), or straight to registers."""
Schedule = Literal["cooperative", "pingpong"]
"""What the warpgroups of a persistent kernel do: share a tile, or take whole tiles in turn (CUTLASS 3)."""

Count = Annotated[int, Field(ge=1, le=16_384, strict=True)]
"""Extents, warps, stages, registers and bytes of a kernel: up to 2,048 in the shipped catalogues."""
Cost = Annotated[int, Field(ge=0, le=100_000, strict=True)]
"""Instructions or tiles: up to 200 in the shipped catalogues."""

WARPGROUP_WARPS = 4
"""Warps that issue a wgmma together, one on each sub-partition (PTX ISA)."""
MIN_RING_STAGES = 2
"""In shared memory one stage is filled while another is read; warpgroups release one when they are at the next."""
PRODUCER_WARPS = WARPGROUP_WARPS
"""The warpgroup that fills the ring; one of its warps has work."""


NAME_FIELDS = frozenset(
    {"tile_m", "tile_n", "tile_k", "stages", "cluster_m", "cluster_n", "suffix", "alignment"}
    | {"layout", "layout_upper", "dtype", "cutlass_dtype", "nvjet_dtype"}
)
"""What a family's name may be formatted with."""

CUTLASS_NAMES = {
    Dtype.FP64: "f64",
    Dtype.FP32: "f32",
    Dtype.FP16: "f16",
    Dtype.INT8: "s8",
    Dtype.INT4: "s4",
    Dtype.FP8: "e4m3",
}
"""Data types that CUTLASS calls something else."""
NVJET_NAMES = {Dtype.FP16: "hsh", Dtype.BF16: "tst"}
"""What cuBLAS's nvjet kernels call operands, accumulators and results of a type."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _as_list(value: object) -> object:
    """One value where several may stand."""
    return value if isinstance(value, list) else [value]


class KernelEntry(_Entry):
    """One tile of a family. ``tile`` is [m, n, k] of a CTA, ``warps`` its warps along [m, n, k].

    Kernels of several data types share a tile when k is given in bytes of a row (``64B``: 32 halves or 64 INT8).
    """

    tile: tuple[Count, Count, Count | Annotated[str, Field(pattern=r"^[1-9]\d{0,3}B$")]]
    warps: tuple[Count, Count, Count]
    stages: Annotated[tuple[Count, ...], BeforeValidator(_as_list)] = Field(
        min_length=1,
        description="depths of the ring, a kernel for each; 1 where operands go straight to registers: load, then use",
    )
    registers: Count = Field(description="per thread, as profilers report, with accumulators of 32 bits")
    cluster: tuple[Count, Count] = Field(
        default=(1, 1), description="CTAs along [m, n] that load what they share once for all of them (multicast)"
    )
    suffix: str = ""
    layouts: tuple[Layout, ...] | None = Field(default=None, description="operand layouts, if not all of its family's")
    fill_pipe_share: float = Field(
        ge=0.01,
        le=100,
        strict=True,
        default=1.0,
        description="of the FMA-pipe instructions that kernels of this GPU spend on filling shared memory",
    )

    def tile_k(self, element_bits: int) -> int:
        """Elements of k in a slice."""
        k = self.tile[2]
        return k if isinstance(k, int) else int(k.removesuffix("B")) * 8 // element_bits

    @field_validator("warps")
    @classmethod
    def _warps_share_the_tile(cls, warps: tuple[int, int, int], info: ValidationInfo) -> tuple[int, int, int]:
        tile = [int(str(extent).removesuffix("B")) for extent in info.data.get("tile", warps)]
        if any(extent % count for extent, count in zip(tile, warps, strict=True)):
            raise ValueError(f"{list(warps)} do not divide the tile {tile} evenly")
        return warps


def _flat(value: object) -> object:
    """A list whose items may be lists (tiles that families share, by YAML alias)."""
    if not isinstance(value, list):
        return value
    return [entry for item in value for entry in (item if isinstance(item, list) else [item])]


class Family(_Entry):
    """Kernels that differ in their tile only."""

    name: str = Field(description="format string: {tile_m} {tile_n} {tile_k} {stages} {layout} {dtype} {suffix}")
    source: str
    instruction: str
    inputs: tuple[Dtype, ...]
    staging: Staging
    schedule: Schedule | None = Field(default=None, description="of persistent kernels; needs staging: bulk")
    load_bytes: Count = Field(description="widest global load of a thread [B]")
    vector_bytes: Count | None = Field(
        default=None,
        description="neighbours that a thread copies to shared memory together, where it loads them in pieces of "
        "load_bytes [B]; each piece touches the lines of the whole access and takes the load/store path as long",
    )
    setup_instructions: Cost = Field(description="dependent, before the first load")
    step_instructions: Cost = Field(description="per warp and step: loop, addresses, predicates")
    pipelined: bool = Field(description="fetches the next slice's operands while one multiplies")
    stores_result: bool
    rearranges_result: bool = Field(
        default=True, description="passes results through shared memory, so that its rows leave in full lines"
    )
    rearranged_rows: Count = Field(
        default=8,
        description="rows of a warp's results that do so at once; 8 from Turing on and 16 on Volta (NVIDIA/cutlass "
        "include/cutlass/epilogue/warp/tensor_op_policy.h, volta_tensor_op_policy.h), of CUDA-core kernels assumed",
    )
    split_k: tuple[Literal["in_kernel", "reduce"], ...]
    raster_width: Cost = Field(description="x tiles of a raster stripe, 0: plain order")
    max_n: Count | None = Field(default=None, description="largest n (vectors) it serves")
    layouts: tuple[Layout, ...] = Field(default=LAYOUTS, description="operand layouts it reads")
    multiple_of: tuple[Count, Count, Count] = Field(
        default=(1, 1, 1), description="what the library wants its m, n and k to be multiples of"
    )
    alignment: Count | None = Field(
        default=None, description="elements that leading dimensions of A, B and C must be multiples of, if it needs any"
    )
    fallback: bool = Field(default=False, description="launched only where no other kernel serves")
    kernels: Annotated[tuple[KernelEntry, ...], BeforeValidator(_flat)]

    @field_validator("inputs")
    @classmethod
    def _inputs_are_equally_wide(cls, inputs: tuple[Dtype, ...]) -> tuple[Dtype, ...]:
        if len({dtype.bits for dtype in inputs}) != 1:
            raise ValueError("expected data types of one width; make another family for the rest")
        return inputs

    @model_validator(mode="after")
    def _one_stage_is_filled_while_one_is_read(self) -> Family:
        shortest = min(depth for entry in self.kernels for depth in entry.stages)
        if self.staging != "direct" and shortest < MIN_RING_STAGES:
            raise ValueError(
                f"a ring of {shortest} stage in shared memory, where one is filled while one is read; "
                f"give {MIN_RING_STAGES} or more"
            )
        return self

    @model_validator(mode="after")
    def _warpgroups_are_whole(self) -> Family:
        if (self.staging == "bulk") != (self.schedule is not None):
            raise ValueError("staging: bulk and a schedule go together; give both or neither")
        for entry in self.kernels if self.staging == "bulk" else ():
            m, n, k = entry.warps
            whole = k == 1 and (m % WARPGROUP_WARPS == 0 or n % WARPGROUP_WARPS == 0)
            if not whole or (self.schedule == "pingpong" and m * n != WARPGROUP_WARPS):
                raise ValueError(f"warps {list(entry.warps)} of tile {list(entry.tile)} are no whole warpgroups")
        return self

    @field_validator("name")
    @classmethod
    def _name_uses_known_fields(cls, name: str) -> str:
        unknown = {field for _, field, _, _ in Formatter().parse(name) if field} - NAME_FIELDS
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(NAME_FIELDS))}")
        return name


class Catalogue(_Entry):
    """One file of ``arch_specs/kernels``."""

    families: tuple[Family, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one family, ready to be planned."""

    family: Family
    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int
    warps_n: int
    warps_k: int
    stages: int
    registers: int
    cluster_m: int
    cluster_n: int
    suffix: str
    layouts: tuple[Layout, ...]
    fill_pipe_share: float

    @property
    def label(self) -> str:
        """What a spec calls this kernel, whatever its layout, data type and alignment."""
        return f"{self.family.instruction}_{self.tile_m}x{self.tile_n}x{self.tile_k}{self.suffix}"

    @property
    def warps(self) -> int:
        """Warps that multiply a tile."""
        return self.warps_m * self.warps_n * self.warps_k

    @property
    def warp_tile(self) -> tuple[float, float, float]:
        """m, n and k of what one warp multiplies in a step."""
        return self.tile_m / self.warps_m, self.tile_n / self.warps_n, self.tile_k / self.warps_k

    @property
    def producers(self) -> int:
        """Warps that load for others."""
        return 1 if self.family.staging == "bulk" else 0

    @property
    def teams(self) -> int:
        """Sets of such warps in a CTA, which take tiles in turn."""
        return 2 if self.family.schedule == "pingpong" else 1

    @property
    def threads(self) -> int:
        producer_warpgroup = PRODUCER_WARPS if self.family.staging == "bulk" else 0
        return 32 * (self.warps * self.teams + producer_warpgroup)

    def shared_bytes(self, a_bits: float, b_bits: float) -> int:
        """Shared memory of a CTA: all stages of both operand tiles, at their bits per element [B]."""
        if self.family.staging == "direct":
            return 0
        return math.ceil(self.stages * (self.tile_m * a_bits + self.tile_n * b_bits) * self.tile_k / 8)

    def registers_with(self, accumulator_bits: int) -> int:
        """Registers of a thread with accumulators of a width; what is listed holds 32 bits each."""
        results = self.tile_m * self.tile_n // (self.warps_m * self.warps_n * 32)
        return self.registers + results * (accumulator_bits - 32) // 32

    def printed_name(self, layout: str, dtype: Dtype) -> str:
        """The name a profiler would show."""
        return self.family.name.format(
            tile_m=self.tile_m,
            tile_n=self.tile_n,
            tile_k=self.tile_k,
            stages=self.stages,
            cluster_m=self.cluster_m,
            cluster_n=self.cluster_n,
            layout=layout,
            layout_upper=layout.upper(),
            dtype=dtype.value,
            cutlass_dtype=CUTLASS_NAMES.get(dtype, dtype.value),
            nvjet_dtype=NVJET_NAMES.get(dtype, dtype.value),
            suffix=self.suffix,
            alignment=self.family.alignment,
        )


def kernels_of(catalogue: Catalogue) -> tuple[Kernel, ...]:
    """All kernels of a catalogue, flat."""
    return tuple(
        Kernel(
            family,
            *entry.tile[:2],
            entry.tile_k(family.inputs[0].bits),
            *entry.warps,
            stages,
            entry.registers,
            *entry.cluster,
            entry.suffix,
            entry.layouts or family.layouts,
            entry.fill_pipe_share,
        )
        for family in catalogue.families
        for entry in family.kernels
        for stages in entry.stages
    )
