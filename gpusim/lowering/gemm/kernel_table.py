"""Kernels as columns: all that a launch takes from its kernel, the GPU and the types of the operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import DoesNotFitError, Occupancy, occupancy
from gpusim.keyed import Keyed
from gpusim.launch import Resources
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop, MainLoop, MmaLoop, SimtLoop, WgmmaLoop
from gpusim.lowering.columns import Array
from gpusim.lowering.gemm.epilogue import (
    PassedResults,
    asks_for_c_ahead,
    chained_cycles,
    passed_results,
    shared_passes,
    stores_elements,
)
from gpusim.lowering.gemm.mainloop_direct import direct_turn
from gpusim.lowering.gemm.mainloop_mma import mma_turn
from gpusim.lowering.gemm.mainloop_simt import simt_turn
from gpusim.lowering.gemm.mainloop_wgmma import wgmma_turn
from gpusim.lowering.gemm.problem import Problem
from gpusim.lowering.gemm.turn import Turn


@dataclass(frozen=True, slots=True)
class KernelRow:
    """What the schedules of a kernel take from it, besides its :class:`Turn`."""

    tile_m: int
    tile_n: int
    cluster_m: int
    cluster_n: int
    tile_k: int
    warps: int
    """That multiply."""
    warps_k: int
    stages: int
    swizzle_width: int
    stripes_across_n: bool
    """Of the swizzle; they run along m."""
    producer_warps: int
    instances: int
    resident_ctas: int
    """That an SM holds at once."""
    shared_bytes: int
    """Of a CTA [B]."""
    persistent: bool
    stores_result: bool
    convolves: bool
    least_split_steps: int
    """That it leaves a CTA where it splits k; 0: as few as the library does."""
    adds_to_result: bool
    """CTAs that share the k of a tile add to it as they come, and wait for no other."""
    counts_splits: bool
    """A memset clears what CTAs that share the k of a tile count in."""
    stores_elements: bool
    """Threads store single results, a warp a run of a row."""
    hidden_share: float
    """Of the math of a turn, between its last global load and its first store to shared memory."""
    bulk_store: bool
    """The TMA stores the results of a tile."""
    passes_shared: bool
    """Results pass through shared memory before they are stored."""
    shared_passes: int
    shared_pass_cycles: float
    chained_cycles: float
    """What a CTA goes through between the partial sums of its predecessor and its own, besides reading and writing
    them."""
    asks_for_c_ahead: bool
    """For what a pass adds of C, in the pass before."""
    setup_cycles: float
    issue_interval_cycles: float
    """Of the multiply-accumulates."""
    sustained_fraction: float
    latency_cycles: float


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Kernels that fit an SM of a GPU with operands of some types."""

    gpu: Gpu
    kernels: tuple[Kernel, ...]
    resources: tuple[Resources, ...]
    """Of a CTA of each."""
    occupancies: tuple[Occupancy, ...]
    ints: Array
    """A row for each field of :class:`KernelRow` and :class:`Turn` of this type, a column for each kernel."""
    floats: Array
    bools: Array
    split_modes: Array
    """For each kernel, in a row, its ways of adding partial sums: 0 within the kernel, 1 by a second one, -1 none."""

    @classmethod
    def of(cls, gpu: Gpu, kernels: Iterable[Kernel], problem: Problem) -> KernelTable:
        """The table of those of the kernels that fit, with the types of a problem."""
        fitting: list[tuple[Kernel, Resources, Occupancy]] = []
        for kernel in kernels:
            resources = resources_of(kernel, problem)
            try:
                fitting.append((kernel, resources, occupancy(SmLimits.of(gpu), *resources)))
            except DoesNotFitError:
                continue
        rows = [_row(gpu, kernel, problem, resident) for kernel, _, resident in fitting]
        matrices: list[Array] = [
            np.array([[row[name] for row in rows] for name in names], dtype=kind).reshape(len(names), len(rows))
            for kind, names in NAMES.items()
        ]
        ints, floats, bools = matrices
        columns = zip(*fitting, strict=True) if fitting else ((), (), ())
        found, taken, resident = (tuple(column) for column in columns)
        return cls(gpu, found, taken, resident, ints, floats, bools, _split_modes(found))

    def __getitem__(self, at: Array | slice) -> SimpleNamespace:
        """Columns of :class:`KernelRow` and :class:`Turn`, a row for each of the kernels ``at``.

        Tiles and clusters are arrays of two rows, along m and along n.
        """
        matrices = self.ints, self.floats, self.bools
        ints, floats, bools = (
            matrix[:, at] if isinstance(at, slice) else matrix.take(at, axis=1) for matrix in matrices
        )
        columns = SimpleNamespace(tile=ints[0:2], cluster=ints[2:4])
        for kind, matrix in ((int, ints), (float, floats), (bool, bools)):
            columns.__dict__.update(zip(NAMES[kind], matrix, strict=True))
        return columns


NAMES: dict[type, Sequence[str]] = {
    kind: [
        field.name
        for record in (KernelRow, Turn, PassedResults)
        for field in fields(record)
        if field.type == kind.__name__
    ]
    for kind in (int, float, bool)
}
"""Columns by the type of their numbers; extents of tiles and clusters are the first."""


def table_of(gpu: Gpu, kernels: tuple[Kernel, ...], problem: Problem) -> KernelTable:
    """The table of kernels that fit a GPU, with the types of a problem; kept for the next problem of these types."""
    return _table_of(Keyed(gpu), Keyed(kernels, tuple(map(id, kernels))), Keyed(problem, problem.types))


@lru_cache(maxsize=256)
def _table_of(gpu: Keyed[Gpu], kernels: Keyed[tuple[Kernel, ...]], problem: Keyed[Problem]) -> KernelTable:
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


def _row(gpu: Gpu, kernel: Kernel, problem: Problem, resident: Occupancy) -> dict[str, int | float | bool]:
    family, loop = kernel.family, kernel.family.main_loop
    instruction, convolution = gpu.instructions[family.instruction], family.convolution
    least_split_steps = convolution.least_split_steps if convolution else None
    bulk, passes = isinstance(loop, WgmmaLoop), shared_passes(kernel)
    row = KernelRow(
        tile_m=kernel.tile_m,
        tile_n=kernel.tile_n,
        cluster_m=kernel.cluster_m,
        cluster_n=kernel.cluster_n,
        tile_k=kernel.tile_k,
        warps=kernel.warps,
        warps_k=kernel.warps_k,
        stages=kernel.stages,
        swizzle_width=family.swizzle_width,
        stripes_across_n=family.swizzle_axis == "n" and family.swizzle_width > 0,
        producer_warps=loop.producer_warps,
        instances=loop.instances,
        resident_ctas=resident.ctas,
        shared_bytes=kernel.shared_bytes(problem.a.bits, problem.b.bits),
        persistent=loop.persistent,
        stores_result=family.stores_result,
        convolves=convolution is not None,
        least_split_steps=least_split_steps.value if least_split_steps else 0,
        adds_to_result=convolution is not None and convolution.adds_to_result,
        counts_splits=family.counts_splits,
        stores_elements=stores_elements(kernel),
        hidden_share=kernel.loads_at[1] - kernel.loads_at[0],
        bulk_store=bulk,
        passes_shared=passes > 0 or (bulk and family.stores_result),
        shared_passes=passes,
        shared_pass_cycles=passes * (gpu.shared_memory.epilogue_pass_cycles if isinstance(loop, MmaLoop) else 0.0),
        chained_cycles=chained_cycles(gpu, kernel),
        asks_for_c_ahead=asks_for_c_ahead(kernel),
        setup_cycles=_setup_cycles(gpu, loop),
        issue_interval_cycles=instruction.issue_interval_cycles,
        sustained_fraction=instruction.sustained_fraction,
        latency_cycles=instruction.latency_cycles,
    )
    turn = _turn(gpu, kernel, problem)
    return {
        name: getattr(record, name) for record in (row, turn, passed_results(gpu, kernel)) for name in record.__slots__
    }


def _setup_cycles(gpu: Gpu, loop: MainLoop) -> float:
    """Of a warp before the first load of its loop: addresses, and the way of columns to shared memory."""
    columns = isinstance(loop, DirectLoop) and loop.column_port_bytes is not None
    on_their_way = gpu.l2.latency_cycles + gpu.shared_memory.latency_cycles if columns else 0.0
    return loop.setup_instructions.value * gpu.instructions["ffma"].latency_cycles + on_their_way


def _turn(gpu: Gpu, kernel: Kernel, problem: Problem) -> Turn:
    """A turn of the kernel's kind of main loop."""
    match kernel.family.main_loop:
        case SimtLoop() as loop:
            return simt_turn(gpu, kernel, loop, problem)
        case MmaLoop() as loop:
            return mma_turn(gpu, kernel, loop, problem)
        case DirectLoop() as loop:
            return direct_turn(gpu, kernel, loop)
        case WgmmaLoop() as loop:
            return wgmma_turn(gpu, kernel, loop, problem)
