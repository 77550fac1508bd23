"""An operator that multiplies no matrices on a kernel: its launch, lowered by the module of its kind of kernel."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.launch import Grid, Launch
from gpusim.library.vector import (
    BlockRowsKernel,
    ColumnKernel,
    ElementwiseKernel,
    NormKernel,
    ReductionKernel,
    VectorKernel,
    WarpRowsKernel,
)
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.lowering.vector.column_reduction import lower_columns
from gpusim.lowering.vector.elementwise import lower_elementwise
from gpusim.lowering.vector.norm import lower_norm
from gpusim.lowering.vector.reduction import lower_reduction
from gpusim.lowering.vector.softmax import lower_block_rows, lower_warp_rows
from gpusim.workloads.memory_bound import ColumnReduction, Pointwise, RowReduction
from gpusim.workloads.vector import Elementwise, LayerNorm, Reduction, Softmax, VectorOperator


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """An operator on one kernel."""

    operator: VectorOperator
    kernel: VectorKernel
    name: str
    launch: Launch
    totals: tuple[Totals, ...]
    instruction: Instruction
    """Instruction of the FMA pipe, whose peak the operator's arithmetic is compared with."""
    split_k: int = 1
    useful_fraction: float = 1.0

    @property
    def grid(self) -> Grid:
        return self.launch.grid


def vector_plan(gpu: Gpu, operator: VectorOperator, kernel: VectorKernel, *, warm: bool) -> VectorPlan:
    """Lower an operator onto a kernel.

    Args:
        warm: the operator ran just before, on the same tensors.

    Raises:
        ValueError: the kernel computes something else.
        DoesNotFitError: a CTA needs more than an SM has.
    """
    lowered = _lowered(gpu, operator, kernel, warm=warm)
    totals = totals_of(gpu, lowered)
    return VectorPlan(operator, kernel, lowered.launch.name, lowered.launch, (totals,), gpu.instructions["ffma"])


def _lowered(gpu: Gpu, operator: VectorOperator, kernel: VectorKernel, *, warm: bool) -> Lowered:
    match operator, kernel:
        case ((Elementwise() | Pointwise()), ElementwiseKernel()):
            return lower_elementwise(gpu, operator, kernel, warm=warm)
        case ((Softmax() | RowReduction()), WarpRowsKernel()):
            return lower_warp_rows(gpu, operator, kernel, warm=warm)
        case ((Softmax() | RowReduction()), BlockRowsKernel()):
            return lower_block_rows(gpu, operator, kernel, warm=warm)
        case ((LayerNorm() | RowReduction()), NormKernel()):
            return lower_norm(gpu, operator, kernel, warm=warm)
        case ((Reduction() | RowReduction() | ColumnReduction()), ReductionKernel()):
            return lower_reduction(gpu, operator, kernel, warm=warm)
        case ColumnReduction(), ColumnKernel():
            return lower_columns(gpu, operator, kernel, warm=warm)
    raise ValueError(f"{kernel.name} does not compute {operator.op}")
