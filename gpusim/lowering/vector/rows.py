"""Launches of operators that multiply no matrices: the common part, with traffic and residency in L2.

Rows stream through L2. A kernel that reads its rows several times finds them there again, unless what all resident CTAs
read and wrote in the meantime has pushed them out (:func:`gpusim.lowering.locality.survival_fraction`).
"""

from __future__ import annotations

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid, Launch, Resources, Tensor, l2_read_bytes
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.totals import Lowered
from gpusim.lowering.vector.streams import Input
from gpusim.program import Program, Role
from gpusim.units import ceil_div
from gpusim.workloads.vector import VectorOperator


def lower_rows(
    gpu: Gpu,
    operator: VectorOperator,
    *,
    name: str,
    grid: Grid,
    resources: Resources,
    program: Program,
    inputs: tuple[Input, ...],
    warm: bool,
) -> Lowered:
    """The launch of a program that all warps of a CTA run, and that writes a tensor ``result``.

    Args:
        warm: the operator ran just before, on the same tensors.
    """
    resident = survival_fraction(operator.size_bytes, effective_l2_bytes(gpu)) if warm else 0.0
    reads = tuple(Tensor(one.name, one.block_bytes, None, (1.0 - resident) * one.evicted_fraction) for one in inputs)
    result = Tensor("result", operator.result_bytes / grid.ctas)
    role = Role(ceil_div(resources.threads, gpu.sm.warp_size), program)

    # Each change of direction needs reads as well as writes.
    changes = min(1.0, operator.operand_bytes / operator.result_bytes)
    write_cost = 1.0 + (gpu.dram.mixed_write_cost - 1.0) * changes

    def launch(write_back_cost: float) -> Launch:
        tensors = (*reads, result)
        return Launch(
            name,
            grid,
            (role,),
            resources,
            tensors,
            write_back_cost=write_back_cost,
            write_cost=write_cost,
            cold=not warm,
        )

    requested = l2_read_bytes(launch(0.0))
    missed = sum(requested[tensor.name] * tensor.miss_fraction for tensor in reads)
    written = operator.result_bytes * (1.0 - resident)
    # Each byte that enters L2 pushes one out, and what is pushed out was written in the proportion in which it entered.
    entered = missed + operator.result_bytes
    moved = Traffic(sum(requested.values()), missed, written)
    return Lowered(launch(write_cost * written / entered), moved)


def resident_ctas(gpu: Gpu, resources: Resources, ctas: int) -> int:
    """CTAs of a grid that the GPU holds at once."""
    fit = occupancy(SmLimits.of(gpu), resources.threads, resources.registers, resources.shared_bytes)
    return min(ctas, fit.ctas * gpu.sm.count)


def evicted_between_passes(gpu: Gpu, operator: VectorOperator, rows_in_flight: int, passes: int) -> float:
    """Chance that L2 no longer holds a piece of a row when the next of so many passes over the row reads it.

    Between two passes each resident CTA reads all of its row, and writes its results if it is in the last pass. What is
    read again counts as what is read first: it is younger in an order of last use. Only one SM reads a row, through its
    near partition: lines whose home is another one take a place in both. Results lie at their home alone.
    """
    rows, partitions = operator.extents[0], gpu.l2.partitions
    places = 1.0 + (partitions - 1) / partitions
    meanwhile = rows_in_flight * (places * operator.operand_bytes + operator.result_bytes / passes) / rows
    return 1.0 - survival_fraction(meanwhile, gpu.l2.capacity_bytes * gpu.l2.usable_fraction)


def filling_splits(gpu: Gpu, threads: int, tiles: int, most: int) -> int:
    """CTAs of so many threads for each tile that fill the GPU, and at most ``most``."""
    resident = gpu.sm.count * (gpu.sm.max_warps * gpu.sm.warp_size // threads)
    return max(1, min(ceil_div(resident, tiles), most))
