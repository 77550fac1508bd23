"""A kernel of one's own: the one that a library would launch, with another tile, other warps, stages or split-K.

It is made as the catalogues make theirs, so that it is checked as they are; the library then has nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pydantic import ValidationError

from gpusim.errors import InputError
from gpusim.library.catalogue import Family, Kernel, KernelEntry, kernels_of
from gpusim.library.library import SplitKSearch
from gpusim.prediction.choose import GemmCandidate
from gpusim.prediction.options import Options
from gpusim.prediction.ranked import rank
from gpusim.system import System
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

MOST_REGISTERS = 255
"""Registers of a thread at most, on every GPU since Kepler (CUDA C programming guide, technical specifications)."""
Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class KernelShape:
    """What differs from the kernel that the library would launch; None: as it is."""

    tile: Extents | None = None
    """m, n and k of a CTA, in the order of the library: m runs along the contiguous dimension of C."""
    warps: Extents | None = None
    stages: int | None = None
    registers: int | None = None
    """Registers of a thread; by default those of the library's kernel and of the accumulators that it has more."""
    swizzle: int | None = None
    """Tiles across a stripe of the threadblock swizzle; 0: plain order."""
    split_k: int | None = None
    """CTAs that share the k of a tile."""

    @property
    def is_as_shipped(self) -> bool:
        """Whether nothing differs."""
        return self == AS_SHIPPED


AS_SHIPPED = KernelShape()


def with_own_kernel(system: System, operator: Operator, options: Options, shape: KernelShape) -> System:
    """A system whose library has one kernel: that for an operator, with some of its properties replaced.

    Args:
        options: with the name of the kernel to begin with, or None for the one that the library would launch.

    Raises:
        InputError: the operator is no GEMM, or no kernel can be so.
        UnsupportedError: the library has no kernel for the operator.
    """
    if shape.is_as_shipped:
        return system
    if not isinstance(operator, Gemm):
        raise InputError(
            "--tile, --warps, --stages, --registers, --swizzle and --split-k are of matrix multiplications"
        )
    first = rank(system, operator, options).candidates[0]
    assert isinstance(first, GemmCandidate)  # which all candidates of a GEMM are
    split_k = shape.split_k or first.split_k
    kernel = _own(first.kernel, shape, split_k)
    search = SplitKSearch(factors=(), min_steps=1, workspace_mib=0.0)
    library = replace(
        system.library,
        name=f"{system.library.name}, own kernel",
        kernels=(kernel,),
        split_k_search=search,
        fixed_split_k=split_k,
        tuned_for=None,
        older_kernels=(),
    )
    return replace(system, library=library, confidence=None)


def _own(base: Kernel, shape: KernelShape, split_k: int) -> Kernel:
    """A kernel after another one."""
    tile = shape.tile or (base.tile_m, base.tile_n, base.tile_k)
    warps = shape.warps or (base.warps_m, base.warps_n, base.warps_k)
    stages = shape.stages or base.stages
    registers = shape.registers or _registers(base, tile, warps)
    if registers > MOST_REGISTERS:
        raise InputError(
            f"a tile of {'x'.join(map(str, tile))} on {'x'.join(map(str, warps))} warps takes some {registers}"
            f" registers a thread, more than {MOST_REGISTERS}; use more warps or a smaller tile, or state --registers"
        )
    family = base.family
    changed = {
        "name": f"own_{family.instruction}_{{tile_m}}x{{tile_n}}x{{tile_k}}_{{warps_m}}x{{warps_n}}_stages{{stages}}"
        "_{layout}",
        "source": f"options, after {base.label}",
        "swizzle_width": family.swizzle_width if shape.swizzle is None else shape.swizzle,
        "split_k": family.split_k or (("reduce",) if split_k > 1 else ()),
        "alignments": () if base.alignment is None else (base.alignment,),
        "min_n": 1,
        "max_n": None,
    }
    try:
        entry = KernelEntry(
            tile=tile,
            warps=warps,
            stages=(stages,),
            registers=registers,
            cluster=(base.cluster_m, base.cluster_n),
            layouts=base.layouts,
        )
        # made anew, as a catalogue is: a copy would not be checked
        own = Family.model_validate({**dict(family), **changed, "kernels": (entry,)})
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"no such kernel: {message}") from None
    (kernel,) = kernels_of([own], base.reduction)
    return replace(kernel, fill_pipe_share=base.fill_pipe_share, loads_at=base.loads_at)


def _registers(base: Kernel, tile: Extents, warps: Extents) -> int:
    """Registers of a thread: those of another kernel, less its accumulators, and those of this tile [assumed]."""

    def accumulators(m: int, n: int, warps_m: int, warps_n: int) -> int:
        return math.ceil(m * n / (32 * warps_m * warps_n))

    before = accumulators(base.tile_m, base.tile_n, base.warps_m, base.warps_n)
    return base.registers - before + accumulators(tile[0], tile[1], warps[0], warps[1])
