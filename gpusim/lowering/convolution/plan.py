"""A convolution on kernels: its product, and the launches before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.launch import Grid
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.workloads.convolution import Convolution


@dataclass(frozen=True, slots=True)
class Transform:
    """A launch that moves tensors to where the product wants them, or from where it leaves them."""

    lowered: Lowered
    totals: Totals

    @classmethod
    def of(cls, gpu: Gpu, lowered: Lowered) -> Transform:
        return cls(lowered, totals_of(gpu, lowered))


@dataclass(frozen=True, slots=True)
class ConvolutionPlan:
    """A convolution as a product that kernels for matrix multiplication compute."""

    operator: Convolution
    product: GemmPlan
    before: tuple[Transform, ...] = ()
    after: tuple[Transform, ...] = ()

    @property
    def name(self) -> str:
        """The product's kernel, as a profiler shows it."""
        return self.product.name

    @property
    def split_k(self) -> int:
        return self.product.split_k

    @property
    def grid(self) -> Grid:
        return self.product.grid

    @property
    def instruction(self) -> Instruction:
        """That multiplies."""
        return self.product.instruction

    @property
    def useful_fraction(self) -> float:
        """Multiply-adds of the product over those that are executed; the rest pads tiles."""
        return self.product.useful_fraction

    @property
    def totals(self) -> tuple[Totals, ...]:
        """What each launch comes to."""
        before, after = (tuple(one.totals for one in those) for those in (self.before, self.after))
        return (*before, *self.product.totals, *after)
