"""A convolution on kernels: its GEMM, and the launches before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.lowering.convolution.transforms import Transform
from gpusim.lowering.convolution.winograd import UNFUSED_FRACTION
from gpusim.lowering.gemm.fused_winograd import FUSED_FRACTION, FusedWinograd
from gpusim.lowering.gemm.gathered import ImplicitGemm
from gpusim.lowering.gemm.plan import AroundGemm, GemmPlan
from gpusim.lowering.totals import Totals
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm


@dataclass(frozen=True, slots=True)
class ConvolutionPlan(AroundGemm):
    """A convolution as a GEMM, with launches before and after it."""

    operator: Convolution
    gemm: GemmPlan
    before: tuple[Transform, ...] = ()
    after: tuple[Transform, ...] = ()

    @property
    def useful_fraction(self) -> float:
        """Multiply-adds of the convolution over those that are executed; the rest pads tiles and channels."""
        return self.operator.flops / 2 / self.gemm.main.fma

    @property
    def products_fraction(self) -> float:
        """Multiply-adds of the algorithm over those of a direct convolution, as far as outputs fill its tiles."""
        match self.gemm.operator:
            case Convolution() | ImplicitGemm():
                return 1.0
            case FusedWinograd():
                return FUSED_FRACTION
            case Gemm():
                return UNFUSED_FRACTION if self.operator.shape.filter_h > 1 else 1.0

    @property
    def totals(self) -> tuple[Totals, ...]:
        """Bytes and instructions of each launch."""
        before, after = (tuple(one.totals for one in those) for those in (self.before, self.after))
        return (*before, *self.gemm.totals, *after)
