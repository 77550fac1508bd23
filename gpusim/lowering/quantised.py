"""A GEMM whose call quantises the activations first: a kernel on rows, and the GEMM that reads what it wrote."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Instruction
from gpusim.launch import Grid
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.lowering.totals import Totals
from gpusim.lowering.vector.plan import VectorPlan
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, RowReduction


@dataclass(frozen=True, slots=True)
class QuantisedPlan:
    """Two launches; names and figures of the launch are the GEMM's."""

    operator: Gemm
    before: VectorPlan
    gemm: GemmPlan

    @property
    def name(self) -> str:
        """The GEMM's kernel, as a profiler shows it."""
        return self.gemm.name

    @property
    def split_k(self) -> int:
        return self.gemm.split_k

    @property
    def grid(self) -> Grid:
        return self.gemm.grid

    @property
    def instruction(self) -> Instruction:
        """Instruction that multiplies."""
        return self.gemm.instruction

    @property
    def useful_fraction(self) -> float:
        """Multiply-adds of the GEMM over those that are executed; the rest pads tiles."""
        return self.gemm.useful_fraction

    @property
    def totals(self) -> tuple[Totals, ...]:
        """Bytes and instructions of each launch."""
        return (*self.before.totals, *self.gemm.totals)


def quantising(gemm: Gemm) -> RowReduction:
    """What quantises the activations of a GEMM: rows of the result's type, with a scale in FP32 for each."""
    rows = gemm.batch * (gemm.m if gemm.order == "row" else gemm.n)
    elements = rows * gemm.k
    return RowReduction(
        "quantise",
        rows,
        gemm.k,
        (Access(elements, Dtype(gemm.output)),),
        (Access(elements, gemm.dtype), Access(rows, Dtype.FP32)),
    )
