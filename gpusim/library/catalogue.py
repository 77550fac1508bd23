"""The catalogue of library kernels: tiles, warps, stages and registers, as data per compute capability."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from gpusim.cuda_version import CudaVersion, FirstCuda, LastCuda
from gpusim.library.attention import AttentionFamily
from gpusim.library.convolution_traits import ConvolutionTraits
from gpusim.library.main_loops import (
    WARPGROUP_WARPS,
    Cited,
    Cost,
    Count,
    Entry,
    Instruction,
    MainLoop,
    MmaLoop,
    Pipes,
    SimtLoop,
    Source,
    WgmmaLoop,
)
from gpusim.library.transforms import ConvolutionTransforms
from gpusim.library.vector import VectorKernel
from gpusim.numbers.formats import Dtype
from gpusim.record import ALSO_LISTED, ALSO_SINGLE, as_list
from gpusim.workloads.gemm import LAYOUTS, Gemm, Layout, Scales

MIN_RING_STAGES = 2
"""In shared memory one stage is filled while another is read; warpgroups release one when they are at the next. Only
kernels that load through registers may have a single one, and multiply and fill it in turn."""

SplitKMode = Literal["in_kernel", "reduce"]
"""How the partial sums of CTAs that share a tile's k come together: by a fix-up through L2 within the kernel, or by a
second kernel."""

NAME_FIELDS = frozenset(
    {"tile_m", "tile_n", "tile_k", "stages", "cluster_m", "cluster_n", "suffix", "alignment", "warps_m", "warps_n"}
    | {"layout", "layout_upper", "dtype", "cutlass_dtype", "nvjet_dtype", "xmma_dtype"}
)
"""What a family's name may be formatted with."""


_Size = Annotated[int, Field(ge=1, le=2**31, strict=True)]
Range = tuple[_Size, _Size | None]
"""Least and most of a size; None: no most."""


class Sizes(Entry):
    """Sizes of a product of tokens by features, which a program launches a kernel for."""

    tokens: Range = Field(default=(1, None), description="least and most rows of activations; null: no most")
    features: Range = Field(default=(1, None), description="least and most columns of the result; null: no most")
    k: Range = Field(default=(1, None), description="least and most values of k; null: no most")

    def hold(self, gemm: Gemm) -> bool:
        """Whether they are those of a GEMM; activations are A where C lies by rows."""
        tokens, features = (gemm.m, gemm.n) if gemm.order == "row" else (gemm.n, gemm.m)
        given = ((tokens, self.tokens), (features, self.features), (gemm.k, self.k))
        return all(least <= size and (most is None or size <= most) for size, (least, most) in given)


class KernelEntry(Entry):
    """One tile of a family. ``tile`` is [m, n, k] of a CTA, ``warps`` its warps along [m, n, k].

    Kernels of several data types share a tile when k is given in bytes of a row (``64B``: 32 halves or 64 INT8).
    """

    tile: tuple[Count, Count, Count | Annotated[str, Field(pattern=r"^[1-9]\d{0,3}B$")]] = Field(
        description="[m, n, k] of a CTA in a step; k in elements, or in bytes of a row, such as 64B"
    )
    warps: tuple[Count, Count, Count] = Field(
        description="math warps along [m, n, k], which divide the tile evenly; those along k add up their results"
    )
    stages: Annotated[tuple[Count, ...], BeforeValidator(as_list), ALSO_SINGLE] = Field(
        min_length=1,
        description="depths of the ring, a kernel for each; 1 where operands go straight to registers: load, then use",
    )
    shared_stages: Count | None = Field(
        default=None,
        description="of the ring, those in shared memory, if not all: what is loaded meanwhile waits in registers",
    )
    registers: Count = Field(description="per thread, as profilers report, with accumulators of 32 bits")
    cluster: tuple[Count, Count] = Field(
        default=(1, 1),
        description="CTAs along [m, n] of a cluster, whose common data is loaded by multicast; only with "
        "main_loop.kind wgmma",
    )
    suffix: str = Field(default="", description="{suffix} of the family's name, which tells apart kernels of one tile")
    layouts: tuple[Layout, ...] | None = Field(default=None, description="operand layouts, if not all of its family's")
    batches: bool = Field(default=True, description="the library takes it for batches, not for single GEMMs alone")
    fill_pipe_share: Cited[Annotated[float, Field(ge=0.01, le=100, strict=True)]] | None = Field(
        default=None,
        description="of the FMA-pipe instructions that kernels of this GPU spend on filling shared memory; only with "
        "main_loop.kind simt",
    )
    loads_at: Cited[tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]]] | None = Field(
        default=None,
        description="shares of an iteration's arithmetic before its last global load, and before its first store to "
        "shared memory; only with staging registers. None: 0 and 1",
    )
    takes: Sizes | tuple[Sizes, ...] = Field(
        default=(), description="sizes that a program launches it for, or several, where it goes by a rule; else any"
    )
    shared_kib: Cited[Annotated[float, Field(gt=0, le=1024, strict=True)]] | None = Field(
        default=None, description="shared memory of a CTA as profilers report it, where it is more than its stages take"
    )

    def tile_k(self, element_bits: int) -> int:
        """Elements of k in a step."""
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


class Family(Entry):
    """Kernels that differ in their tile only."""

    name: str = Field(description="format string: {tile_m} {tile_n} {tile_k} {stages} {layout} {dtype} {suffix}")
    source: Source
    instruction: Instruction
    inputs: tuple[Dtype, ...] = Field(description="data types of A and B, all of one width")
    main_loop: MainLoop = Field(
        description="how operands reach the cores that multiply, and instruction counts of a step"
    )
    stores_result: bool = Field(description="the epilogue writes C; false leaves out its stores and their bytes")
    split_k: tuple[SplitKMode, ...] = Field(
        description="how partial sums come together where several CTAs share a tile's k: in_kernel, by a fix-up "
        "through L2; reduce, by a second kernel; empty: one CTA goes through all of k"
    )
    swizzle_width: Cost = Field(description="tiles across a stripe of a threadblock swizzle, 0: plain order")
    swizzle_axis: Literal["m", "n", "longer"] = Field(
        default="m", description="along which a stripe's tiles are counted; longer: that with more tiles, n of equals"
    )
    min_n: Count = Field(default=1, description="smallest n it serves")
    max_n: Count | None = Field(default=None, description="largest n it serves: 1 of kernels for vectors")
    takes_batches: bool = Field(default=False, description="the library takes it for every batch that it serves")
    layouts: tuple[Layout, ...] = Field(default=LAYOUTS, description="operand layouts it reads")
    multiple_of: tuple[Count, Count, Count] = Field(
        default=(1, 1, 1), description="what m, n and k of the library's problem must be multiples of"
    )
    alignments: Annotated[tuple[Count, ...], BeforeValidator(as_list), ALSO_SINGLE] = Field(
        default=(),
        description="elements that the leading dimensions of A, B and C must be multiples of, a kernel for each; a "
        "thread loads as many at once",
    )
    fallback: bool = Field(
        default=False, description="considered only for operands that are less aligned than other kernels need"
    )
    heuristic_family: Literal["xmma", "profiled"] | None = Field(
        default=None,
        description="whose weights the heuristic gives them, if not those of their main loop; profiled: none, "
        "as a program times its kernels and takes the fastest",
    )
    since_cuda: FirstCuda = Field(
        default=CudaVersion(0, 0), description="first version of CUDA whose library has these kernels, if not all"
    )
    until_cuda: LastCuda | None = Field(
        default=None, description="last version of CUDA whose library has these kernels, if not the newest"
    )
    counts_splits: bool = Field(
        default=False,
        description="CTAs that share a tile's k within the kernel count in memory, which a memset clears before",
    )
    scales: tuple[Scales, ...] = Field(
        default=(),
        description="what has a scale of its own of the quantised operands; a program launches the first kernel that "
        "takes the sizes",
    )
    weights: tuple[Dtype, ...] = Field(
        default=(), description="types of B that it converts to that of A as it multiplies; empty: B has A's type"
    )
    groups: tuple[Count, ...] = Field(
        default=(), description="weights along k that share a scale; empty: a column has one"
    )
    convolution: ConvolutionTraits | None = Field(
        default=None, description="of kernels made for convolutions; left out of those for matrix multiplications"
    )
    kernels: Annotated[tuple[Annotated[KernelEntry, ALSO_LISTED], ...], Field(min_length=1), BeforeValidator(_flat)] = (
        Field(description="tiles, a kernel for each number of its stages; an item may be a list that families share")
    )

    def is_of(self, cuda: CudaVersion | None) -> bool:
        """Whether the library of a version of CUDA has these kernels; None: the newest."""
        if cuda is None:
            return self.until_cuda is None
        return self.since_cuda <= cuda <= (cuda if self.until_cuda is None else self.until_cuda)

    @field_validator("inputs")
    @classmethod
    def _inputs_are_equally_wide(cls, inputs: tuple[Dtype, ...]) -> tuple[Dtype, ...]:
        if len({dtype.bits for dtype in inputs}) != 1:
            raise ValueError("expected data types of one width; make another family for the rest")
        return inputs

    @model_validator(mode="after")
    def _one_stage_is_filled_while_one_is_read(self) -> Family:
        shortest = min(depth for entry in self.kernels for depth in entry.stages)
        alternates = isinstance(self.main_loop, SimtLoop | MmaLoop) and self.main_loop.staging == "registers"
        if self.main_loop.in_shared_memory and shortest < MIN_RING_STAGES and not alternates:
            raise ValueError(
                f"a ring of {shortest} stage in shared memory, where one is filled while one is read; "
                f"give {MIN_RING_STAGES} or more"
            )
        return self

    @model_validator(mode="after")
    def _serves_some_columns(self) -> Family:
        if self.max_n is not None and self.min_n > self.max_n:
            raise ValueError(f"min_n {self.min_n} is more than max_n {self.max_n}; correct either")
        return self

    @model_validator(mode="after")
    def _entries_suit_the_main_loop(self) -> Family:
        for entry in self.kernels:
            if entry.cluster != (1, 1) and not isinstance(self.main_loop, WgmmaLoop):
                raise ValueError("cluster: only kernels of main_loop.kind wgmma have one; remove it")
            if entry.fill_pipe_share is not None and not isinstance(self.main_loop, SimtLoop):
                raise ValueError("fill_pipe_share: only kernels of main_loop.kind simt have one; remove it")
            staged = isinstance(self.main_loop, SimtLoop | MmaLoop) and self.main_loop.staging == "registers"
            if entry.shared_stages is not None and not (staged and entry.shared_stages <= min(entry.stages)):
                raise ValueError("shared_stages: at most the stages, of kernels whose staging is registers; remove it")
            if entry.loads_at is not None:
                if not staged:
                    raise ValueError("loads_at: only kernels whose staging is registers have it; remove it")
                loaded, stored = entry.loads_at.value
                if stored < loaded:
                    raise ValueError(f"loads_at: the first store, {stored}, comes before the last load, {loaded}")
        return self

    @model_validator(mode="after")
    def _converts_its_weights(self) -> Family:
        converted = getattr(self.main_loop, "dequantising", None)
        for weights in self.weights:
            if converted is not None and converted.of(weights) is None:
                raise ValueError(f"weights: main_loop.dequantising has no {weights.value}; add it or remove it here")
        return self

    @model_validator(mode="after")
    def _warpgroups_are_whole(self) -> Family:
        if not isinstance(self.main_loop, WgmmaLoop):
            return self
        for entry in self.kernels:
            m, n, k = entry.warps
            whole = k == 1 and (m % WARPGROUP_WARPS == 0 or n % WARPGROUP_WARPS == 0)
            if not whole or (self.main_loop.schedule == "pingpong" and m * n != WARPGROUP_WARPS):
                raise ValueError(f"warps {list(entry.warps)} of tile {list(entry.tile)} are not whole warpgroups")
        return self

    @field_validator("name")
    @classmethod
    def _name_uses_known_fields(cls, name: str) -> str:
        unknown = {field for _, field, _, _ in Formatter().parse(name) if field} - NAME_FIELDS
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(NAME_FIELDS))}")
        return name


class SplitKReduction(Entry):
    """The kernel that adds up the partial sums of a split-K GEMM: each thread adds those of one element.

    Its loop is unrolled: a thread requests as many parts at once as the widest body holds, adds them, and goes on with
    the next. Of what narrower bodies leave over, one part comes first, and the others after it.
    """

    name: str = Field(description="as profilers print it")
    source: Source
    instruction: str = Field(
        description="that adds: a key of the GPU spec's instructions, which state rate and latency"
    )
    rows: Cited[Count] = Field(description="elements of a CTA along the contiguous dimension of the result")
    columns: Cited[Count] = Field(description="elements of a CTA along the other dimension")
    registers: Cited[Count] = Field(description="per thread")
    parts_at_once: Cited[tuple[Count, ...]] = Field(description="parts that the bodies of its loop hold, widest first")
    setup_instructions: Cited[Pipes] = Field(description="of a warp before its first load")
    setup_cycles: Cited[Cost] = Field(description="that they take one after the other [cycles]")
    part_instructions: Cited[Pipes] = Field(description="per warp and part, besides the load and the addition")
    part_cycles: Cited[Cost] = Field(description="that they take one after the other [cycles]")
    end_instructions: Cited[Pipes] = Field(description="of a warp after the last addition, besides the store")
    end_cycles: Cited[Cost] = Field(description="that they take one after the other [cycles]")
    bias_instructions: Cited[Pipes] = Field(description="of a warp, to add a bias to what it has stored")
    bias_cycles: Cited[Cost] = Field(description="that they take one after the other [cycles]")

    @field_validator("parts_at_once")
    @classmethod
    def _bodies_are_ordered(cls, bodies: Cited[tuple[Count, ...]]) -> Cited[tuple[Count, ...]]:
        if not bodies.value or list(bodies.value) != sorted(set(bodies.value), reverse=True):
            raise ValueError("name the parts of each body once, widest first")
        return bodies

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.rows.value * self.columns.value


class ConvolutionAlgorithm(Entry):
    """A way to compute convolutions by other kernels than those made for them."""

    kind: Literal["gemm", "unfused_winograd"] = Field(
        description="gemm: filters of one tap, a GEMM for each image; unfused_winograd: a batch of GEMMs between "
        "transforms"
    )
    source: Source
    inputs: tuple[Dtype, ...] = Field(description="data types of images and filters")
    tiles: tuple[tuple[Count, Count, Count, Count], ...] = Field(
        default=(), description="[m, n, k, stages] of the kernels that it launches; all of the library's if left out"
    )
    since_cuda: FirstCuda = Field(default=CudaVersion(0, 0), description="first version of CUDA whose library has it")

    def launches(self, kernel: Kernel) -> bool:
        """Whether it runs its GEMMs on a kernel."""
        return not self.tiles or (kernel.tile_m, kernel.tile_n, kernel.tile_k, kernel.stages) in self.tiles


class Catalogue(Entry):
    """One file of ``arch_specs/kernels``."""

    extends: str | None = Field(
        default=None, description="catalogue beside this one, without .yaml, whose kernels this one has before its own"
    )
    renamed: dict[str, str] = Field(
        default={}, description="texts in the names of the extended families, by what takes their place"
    )
    families: tuple[Family, ...] = Field(
        default=(), description="kernels of matrix multiplications, and of convolutions as implicit ones"
    )
    convolution_algorithms: tuple[ConvolutionAlgorithm, ...] = Field(
        default=(), description="ways to compute convolutions on the families for matrix multiplications"
    )
    convolution_transforms: ConvolutionTransforms | None = Field(
        default=None, description="kernels around the GEMMs of convolutions, of this catalogue and others"
    )
    split_k_reduction: SplitKReduction | None = Field(
        default=None, description="second kernel of the families with split_k: [reduce], of this catalogue and others"
    )
    vector_kernels: tuple[VectorKernel, ...] = Field(
        default=(), description="kernels of operators on rows; a framework launches the first that can run an operator"
    )
    attention_families: tuple[AttentionFamily, ...] = Field(
        default=(), description="kernels of fused attention; a framework launches the first that can run an operator"
    )

    def after(self, base: Catalogue) -> Catalogue:
        """This catalogue with the kernels of the one that it extends, which come first and have its names."""
        families = tuple(family.model_copy(update={"name": self._renamed(family.name)}) for family in base.families)
        return self.model_copy(
            update={
                "families": families + self.families,
                "convolution_algorithms": base.convolution_algorithms + self.convolution_algorithms,
                "convolution_transforms": self.convolution_transforms or base.convolution_transforms,
                "split_k_reduction": self.split_k_reduction or base.split_k_reduction,
                "vector_kernels": base.vector_kernels + self.vector_kernels,
                "attention_families": base.attention_families + self.attention_families,
            }
        )

    def _renamed(self, name: str) -> str:
        for old, new in self.renamed.items():
            name = name.replace(old, new)
        return name


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
    shared_stages: int
    registers: int
    cluster_m: int
    cluster_n: int
    suffix: str
    layouts: tuple[Layout, ...]
    fill_pipe_share: float
    loads_at: tuple[float, float]
    """Shares of an iteration's arithmetic before its last global load, and before its first store to shared memory."""
    alignment: int | None = None
    """Elements that the leading dimensions must be multiples of, and that a thread loads at once."""
    reduction: SplitKReduction | None = None
    """Adds up its partial sums where several CTAs share a tile's k."""
    reported_shared_bytes: int = 0
    """Shared memory of a CTA, where it is more than its stages take [B]."""
    batches: bool = True
    """The library takes it for batches, not for single GEMMs alone."""
    takes: tuple[Sizes, ...] = ()
    """Sizes that a program launches it for, where it goes by a rule."""

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
    def threads(self) -> int:
        loop = self.family.main_loop
        return 32 * (self.warps * loop.instances + loop.producer_warps + loop.idle_warps)

    def shared_bytes(self, a_bits: float, b_bits: float) -> int:
        """Shared memory of a CTA: the stages that it holds of both operand tiles, at their bits per element [B].

        Or what profilers report, if that is more.
        """
        if not self.family.main_loop.in_shared_memory:
            return 0
        stages = math.ceil(self.shared_stages * (self.tile_m * a_bits + self.tile_n * b_bits) * self.tile_k / 8)
        return max(stages, self.reported_shared_bytes)

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
            warps_m=self.warps_m,
            warps_n=self.warps_n,
            stages=self.stages,
            cluster_m=self.cluster_m,
            cluster_n=self.cluster_n,
            layout=layout,
            layout_upper=layout.upper(),
            dtype=dtype.value,
            cutlass_dtype=dtype.format.names.cutlass or dtype.value,
            nvjet_dtype="".join(dtype.format.names.nvjet) or dtype.value,
            xmma_dtype=_xmma_types(dtype),
            suffix=self.suffix,
            alignment=self.alignment,
        )


def _xmma_types(dtype: Dtype) -> str:
    """Types in the names of xmma kernels: of A and C, of an instruction's operands and sums, of the epilogue.

    >>> _xmma_types(Dtype.BF16)
    'bf16bf16_bf16f32_f32'
    """
    short = dtype.format.names.cutlass or dtype.value
    return f"{short}{short}_{short}f32_f32"


def kernels_of(families: Iterable[Family], reduction: SplitKReduction | None = None) -> tuple[Kernel, ...]:
    """All kernels of families, flat, and what adds up the partial sums of those that split k."""
    return tuple(
        Kernel(
            family,
            *entry.tile[:2],
            entry.tile_k(family.inputs[0].bits),
            *entry.warps,
            stages,
            min(stages, entry.shared_stages or stages),
            entry.registers,
            *entry.cluster,
            entry.suffix,
            entry.layouts or family.layouts,
            entry.fill_pipe_share.value if entry.fill_pipe_share else 1.0,
            entry.loads_at.value if entry.loads_at else (0.0, 1.0),
            alignment,
            reduction,
            math.ceil(entry.shared_kib.value * 1024) if entry.shared_kib else 0,
            entry.batches,
            entry.takes if isinstance(entry.takes, tuple) else (entry.takes,),
        )
        for family in families
        for alignment in family.alignments or (None,)
        for entry in family.kernels
        for stages in entry.stages
    )
