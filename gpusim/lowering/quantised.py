"""A GEMM whose call quantises the activations first: a kernel on rows, and the GEMM that reads what it wrote."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.lowering.gemm.plan import AroundGemm, GemmPlan
from gpusim.lowering.totals import Totals
from gpusim.lowering.vector.plan import VectorPlan
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, RowReduction


@dataclass(frozen=True, slots=True)
class QuantisedPlan(AroundGemm):
    """A launch that quantises A, then the GEMM."""

    operator: Gemm
    before: VectorPlan
    gemm: GemmPlan

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
