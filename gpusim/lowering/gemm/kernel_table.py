"""Kernels as columns: the numbers among their facts, for many kernels at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import DoesNotFitError, Occupancy, occupancy
from gpusim.launch import Resources
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop, DirectMmaLoop, MainLoop, MmaLoop, SimtLoop, WgmmaLoop
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.gemm.epilogue import results_of
from gpusim.lowering.gemm.kernel_facts import KernelFacts, LoopBody, ResultPasses
from gpusim.lowering.gemm.mainloop_direct import direct_body, direct_mma_body
from gpusim.lowering.gemm.mainloop_mma import mma_body
from gpusim.lowering.gemm.mainloop_simt import simt_body
from gpusim.lowering.gemm.mainloop_wgmma import wgmma_body
from gpusim.lowering.gemm.problem import Problem


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Kernels that fit an SM of a GPU with operands of some types."""

    gpu: Gpu
    kernels: tuple[Kernel, ...]
    facts: tuple[KernelFacts, ...]
    """Facts of each kernel, in the order of ``kernels``."""
    extents: Array
    """Sizes of tiles and of clusters along m and along n: four rows, a column for each kernel."""
    numbers: Mapping[type, Array]
    """Values of the facts by their type: a row for each of :data:`NUMBERS`, a column for each kernel."""
    split_modes: Array
    """Ways of adding partial sums, a row for each kernel: 0 within the kernel, 1 by a second kernel, -1 none."""

    @classmethod
    def of(cls, gpu: Gpu, kernels: Iterable[Kernel], problem: Problem) -> KernelTable:
        """The table of those of the kernels that fit, with the types of a problem."""
        fitting: list[Kernel] = []
        facts: list[KernelFacts] = []
        for kernel in kernels:
            resources = resources_of(kernel, problem)
            try:
                resident = occupancy(SmLimits.of(gpu), *resources)
            except DoesNotFitError:
                continue
            fitting.append(kernel)
            facts.append(_facts(gpu, kernel, problem, resources, resident))
        extents = _matrix([[*one.tile, *one.cluster] for one in facts], 4, int)
        numbers = {
            kind: _matrix([_numbers(one, kind) for one in facts], sum(map(len, names.values())), kind)
            for kind, names in NUMBERS.items()
        }
        return cls(gpu, tuple(fitting), tuple(facts), extents, numbers, _split_modes(fitting))

    def __getitem__(self, at: Array | slice) -> Columns[KernelFacts]:
        """The facts of the kernels ``at``, as columns. Tiles and clusters are arrays of two rows, along m and n."""

        def chosen(matrix: Array) -> Array:
            return matrix[:, at] if isinstance(at, slice) else matrix.take(at, axis=1)

        extents = chosen(self.extents)
        columns: dict[str, dict[str, Array]] = {part: {} for part in PARTS}
        for kind, matrix in self.numbers.items():
            rows = iter(chosen(matrix))
            for part, names in NUMBERS[kind].items():
                columns[part].update(zip(names, rows, strict=False))  # the next part goes on with the next row
        nested: dict[str, Columns[object]] = {
            part: Columns(record, **columns[part]) for part, record in PARTS.items() if part
        }
        return Columns(KernelFacts, tile=extents[:2], cluster=extents[2:], **columns[""], **nested)


PARTS: Mapping[str, type] = {
    "": KernelFacts,
    "loop": LoopBody,
    "results": ResultPasses,
    "resources": Resources,
    "occupancy": Occupancy,
    "instruction": Instruction,
}
"""Records of numbers: the facts of a kernel, and those within them."""

_OF_OTHERS: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    int: {"resources": ("shared_bytes",), "occupancy": ("ctas",)},
    float: {"instruction": ("issue_interval_cycles", "sustained_fraction", "latency_cycles")},
    bool: {},
}
"""Numbers that formulas read of records which are not made for them."""

NUMBERS: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    kind: {
        part: others.get(part) or tuple(field.name for field in fields(PARTS[part]) if field.type == kind.__name__)
        for part in ("", "loop", "results", *others)
    }
    for kind, others in _OF_OTHERS.items()
}
"""Names of columns, by the type of their numbers and by part."""


def _numbers(facts: KernelFacts, kind: type) -> list[float]:
    """Facts whose values are of a type, in the order of the columns."""
    return [
        getattr(getattr(facts, part) if part else facts, name)
        for part, names in NUMBERS[kind].items()
        for name in names
    ]


def _matrix(rows: Sequence[Sequence[float]], width: int, kind: type) -> Array:
    """Columns of kernels from their rows, of which there may be none."""
    return np.ascontiguousarray(np.array(rows, dtype=kind).reshape(len(rows), width).T)


def table_of(gpu: Gpu, kernels: tuple[Kernel, ...], problem: Problem) -> KernelTable:
    """The table of kernels that fit a GPU, with the types of a problem; kept for the next problem of these types."""
    return _table_of(CacheKey(gpu), CacheKey(kernels, tuple(map(id, kernels))), CacheKey(problem, problem.types))


@lru_cache(maxsize=256)
def _table_of(gpu: CacheKey[Gpu], kernels: CacheKey[tuple[Kernel, ...]], problem: CacheKey[Problem]) -> KernelTable:
    return KernelTable.of(gpu.record, kernels.record, problem.record)


def _split_modes(kernels: Sequence[Kernel]) -> Array:
    modes = [[int(mode == "reduce") for mode in kernel.family.split_k] for kernel in kernels]
    most = max((len(of_kernel) for of_kernel in modes), default=0)
    padded = [of_kernel + [-1] * (max(1, most) - len(of_kernel)) for of_kernel in modes]
    return np.array(padded, dtype=int).reshape(len(modes), max(1, most))


def resources_of(kernel: Kernel, problem: Problem) -> Resources:
    """What a CTA of a kernel takes of an SM, with the types of a problem."""
    return Resources(
        kernel.threads,
        kernel.registers_with(problem.accumulator_bits),
        kernel.shared_bytes(problem.a.bits, problem.b.bits),
    )


def _facts(gpu: Gpu, kernel: Kernel, problem: Problem, resources: Resources, resident: Occupancy) -> KernelFacts:
    family, loop, convolution = kernel.family, kernel.family.main_loop, kernel.family.convolution
    return KernelFacts(
        resources=resources,
        occupancy=resident,
        math_warps=kernel.warps,
        instruction_name=family.instruction,
        instruction=gpu.instructions[family.instruction],
        setup_cycles=_setup_cycles(gpu, loop),
        loop=_loop_body(gpu, kernel, problem),
        results=results_of(gpu, kernel),
        tile=(kernel.tile_m, kernel.tile_n),
        tile_k=kernel.tile_k,
        cluster=(kernel.cluster_m, kernel.cluster_n),
        warps_k=kernel.warps_k,
        stages=kernel.stages,
        swizzle_width=family.swizzle_width,
        stripes_across_n=family.swizzle_axis == "n" and family.swizzle_width > 0,
        stripes_across_longer=family.swizzle_axis == "longer",
        producer_warps=loop.producer_warps,
        instances=loop.instances,
        persistent=loop.persistent,
        whole_clusters=isinstance(loop, WgmmaLoop) and loop.whole_clusters,
        stores_result=family.stores_result,
        convolves=convolution is not None,
        adds_to_result=convolution is not None and convolution.adds_to_result,
        counts_splits=family.counts_splits,
    )


def _setup_cycles(gpu: Gpu, loop: MainLoop) -> float:
    """Cycles of a warp before the first load of its loop: addresses, and the way of columns to shared memory."""
    columns = isinstance(loop, DirectLoop) and loop.column_port_bytes is not None
    on_their_way = gpu.l2.latency_cycles + gpu.shared_memory.latency_cycles if columns else 0.0
    return loop.setup_instructions.value * gpu.instructions["ffma"].latency_cycles + on_their_way


def _loop_body(gpu: Gpu, kernel: Kernel, problem: Problem) -> LoopBody:
    """An iteration of the kernel's kind of main loop."""
    match kernel.family.main_loop:
        case SimtLoop() as loop:
            return simt_body(gpu, kernel, loop, problem)
        case MmaLoop() as loop:
            return mma_body(gpu, kernel, loop, problem)
        case DirectLoop() as loop:
            return direct_body(gpu, kernel, loop)
        case DirectMmaLoop() as loop:
            return direct_mma_body(gpu, kernel, loop)
        case WgmmaLoop() as loop:
            return wgmma_body(gpu, kernel, loop, problem)
