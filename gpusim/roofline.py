"""Closed-form lower bounds on kernel time: the oracle the simulator is checked against.

Each bound counts one resource and assumes everything else is free. The oracle knows the board, the
workload and the tile, and shares no code with the planner or the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.arrays import largest
from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.vector import VectorOperator


@dataclass(frozen=True, slots=True)
class TileFacts:
    """The tile a kernel computes, enough to bound on-chip traffic; m runs along C's contiguous dimension."""

    tile_m: int
    tile_n: int
    staged: bool
    """Operands pass through shared memory."""
    cluster_m: int = 1
    cluster_n: int = 1
    """Tiles along either dimension that one load from L2 serves, by multicast."""
    stores_result: bool = True
    """The kernel writes C."""


def bounds_us(
    gpu: Gpu, gemm: Gemm, instruction: Instruction, clock_mhz: float, *, warm: bool, tile: TileFacts
) -> dict[str, float]:
    """Lower bounds by resource [us].

    ``arithmetic``: all multiply-adds at the instruction's issue rate on all SMs.
    ``dram``: every operand and C once at peak bandwidth, less what a warm L2 may hold of the operands at the start,
    and less what L2 may hold of C at the end, where nothing has evicted it yet.
    ``l2``: operands once for each tile that needs them, C once, at the SMs' port rate; operands once for each cluster
    of tiles at the rate of L2.
    ``shared_memory``: staged operands written once and read once for each tile that needs them.
    ``issue``: one issue slot per multiply instruction.
    """
    # A 2:4 operand is half its elements and what says which; the other one is dense.
    of_b = gemm.weight_bits / 8
    of_a = gemm.dtype.bits / 8 * gemm.kept_fraction + gemm.metadata_bits / 8
    macs = gemm.batch * gemm.m * gemm.n * gemm.k
    sms, parts = gpu.sm.count, gpu.sm.sub_partitions
    arithmetic_cycles = macs * instruction.issue_interval_cycles / (instruction.fma * sms * parts)
    issue_cycles = macs / (instruction.fma * sms * parts * gpu.sm.issue_per_cycle)
    result = gemm.result_bytes * tile.stores_result
    capacity = gpu.l2.capacity_bytes
    dram_bytes = largest(0.0, gemm.operand_bytes - (capacity if warm else 0)) + largest(0.0, result - capacity)
    # Tiles lie over C as the library sees it: its m may be our n where no operand is 2:4.
    swapped = gemm.blas_call.rows == "n" and gemm.sparsity == "dense"
    over_m, over_n = (tile.tile_n, tile.tile_m) if swapped else (tile.tile_m, tile.tile_n)
    clustered = (tile.cluster_n, tile.cluster_m) if swapped else (tile.cluster_m, tile.cluster_n)
    tiles_m, tiles_n = -(-gemm.m // over_m), -(-gemm.n // over_n)
    tile_bytes = gemm.batch * (tiles_n * gemm.m * of_a + tiles_m * gemm.n * of_b) * gemm.k
    clusters_m, clusters_n = (-(-tiles // along) for tiles, along in zip((tiles_m, tiles_n), clustered, strict=True))
    if gemm.counts:
        # No tile spans two groups; at least one of each group reads its B.
        tiles_m, clusters_m = max(tiles_m, gemm.groups), max(clusters_m, gemm.groups)
        tile_bytes = (tiles_n * gemm.m * of_a + tiles_m * gemm.n * of_b) * gemm.k
    cluster_bytes = gemm.batch * (clusters_n * gemm.m * of_a + clusters_m * gemm.n * of_b) * gemm.k
    shared_rate = sms * gpu.shared_memory.bandwidth_bytes_per_cycle
    ports_cycles = (tile_bytes + result) / (sms * gpu.load_store.l2_port_bytes_per_cycle)
    l2_cycles = (cluster_bytes + result) / gpu.l2.bandwidth_bytes_per_cycle
    return {
        "arithmetic": arithmetic_cycles / clock_mhz,
        "dram": dram_bytes / (gpu.dram.peak_bandwidth_gb_per_s * 1e3),
        "l2": largest(ports_cycles, l2_cycles) / clock_mhz,
        "shared_memory": 2 * tile_bytes / shared_rate / clock_mhz * tile.staged,
        "issue": issue_cycles / clock_mhz,
    }


def convolution_bounds_us(
    gpu: Gpu,
    convolution: Convolution,
    instruction: Instruction,
    clock_mhz: float,
    *,
    warm: bool,
    products_fraction: float = 1.0,
) -> dict[str, float]:
    """Lower bounds of a convolution as a matrix multiplication, by resource [us].

    ``arithmetic``: all multiply-adds at the instruction's issue rate on all SMs, those on padding left out.
    ``dram``: operands and result once at peak bandwidth, less what L2 may hold of them.
    ``l2``: operands and result once, at the SMs' port rate and at that of L2.
    ``issue``: one issue slot per multiply instruction.

    Args:
        products_fraction: multiply-adds of the algorithm over those of a direct convolution: Winograd's takes fewer.
    """
    sms, capacity = gpu.sm.count, gpu.l2.capacity_bytes
    instructions = products_fraction * convolution.multiply_adds / (instruction.fma * sms * gpu.sm.sub_partitions)
    operand_bytes, result_bytes = convolution.read_bytes, convolution.result_bytes
    dram_bytes = max(0.0, operand_bytes - (capacity if warm else 0)) + max(0.0, result_bytes - capacity)
    l2_rate = min(sms * gpu.load_store.l2_port_bytes_per_cycle, gpu.l2.bandwidth_bytes_per_cycle)
    return {
        "arithmetic": instructions * instruction.issue_interval_cycles / clock_mhz,
        "dram": dram_bytes / (gpu.dram.peak_bandwidth_gb_per_s * 1e3),
        "l2": (operand_bytes + result_bytes) / l2_rate / clock_mhz,
        "issue": instructions / gpu.sm.issue_per_cycle / clock_mhz,
    }


def attention_bounds_us(
    gpu: Gpu, attention: Attention, instruction: Instruction, clock_mhz: float, *, warm: bool, multiplies: int = 1
) -> dict[str, float]:
    """Lower bounds of fused attention, by resource [us].

    ``arithmetic``: the multiply-adds of all scores that are seen, at the instruction's issue rate on all SMs, or an
    exponential of each of these scores.
    ``dram`` and ``l2``: operands and results once, as of a convolution.

    Args:
        multiplies: instructions for each product of two fragments.
    """
    sms, capacity = gpu.sm.count, gpu.l2.capacity_bytes
    parts = sms * gpu.sm.sub_partitions
    instructions = multiplies * attention.flops / 2 / (instruction.fma * parts)
    exponentials_cycles = attention.scores / (sms * gpu.pipes["sfu"].threads_per_cycle)
    dram_bytes = max(0.0, attention.operand_bytes - (capacity if warm else 0)) + max(
        0.0, attention.result_bytes - capacity
    )
    l2_rate = min(sms * gpu.load_store.l2_port_bytes_per_cycle, gpu.l2.bandwidth_bytes_per_cycle)
    return {
        "arithmetic": max(instructions * instruction.issue_interval_cycles, exponentials_cycles) / clock_mhz,
        "dram": dram_bytes / (gpu.dram.peak_bandwidth_gb_per_s * 1e3),
        "l2": attention.size_bytes / l2_rate / clock_mhz,
        "issue": instructions / gpu.sm.issue_per_cycle / clock_mhz,
    }


def vector_bounds_us(gpu: Gpu, operator: VectorOperator, clock_mhz: float, *, warm: bool) -> dict[str, float]:
    """Lower bounds of an operator on rows, by resource [us].

    ``arithmetic``: all operations, two of them in an FMA.
    ``dram``: operands and results once at peak bandwidth, less what L2 may hold of them.
    ``l2``: operands and results once, at the SMs' port rate and at that of L2.
    ``issue``: one issue slot per FMA.
    """
    sms, capacity = gpu.sm.count, gpu.l2.capacity_bytes
    instructions = operator.flops / 2 / gpu.sm.warp_size
    fma_rate = gpu.sm.sub_partitions / gpu.instructions["ffma"].issue_interval_cycles
    issue_rate = gpu.sm.sub_partitions * gpu.sm.issue_per_cycle
    dram_bytes = max(0.0, operator.operand_bytes - (capacity if warm else 0)) + max(
        0.0, operator.result_bytes - capacity
    )
    l2_rate = min(sms * gpu.load_store.l2_port_bytes_per_cycle, gpu.l2.bandwidth_bytes_per_cycle)
    return {
        "arithmetic": instructions / (sms * fma_rate) / clock_mhz,
        "dram": dram_bytes / (gpu.dram.peak_bandwidth_gb_per_s * 1e3),
        "l2": operator.size_bytes / l2_rate / clock_mhz,
        "issue": instructions / (sms * issue_rate) / clock_mhz,
    }
