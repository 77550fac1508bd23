"""Winograd's convolution in one kernel: a CTA transforms its pixels and its results on the way.

Outputs of 2 x 2 pixels under a filter of 3 x 3 take 16 products rather than 36 (Lavin and Gray, arXiv:1509.09308). In
cuDNN's kernels, a CTA has 8 x 16 pixels of an image and 32 filters: grids in profiles and in NeuSight's recorded rows
say so. To the Tensor or CUDA cores that is a tile of 128 x 128 results, 4 for each pixel and filter.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.lowering.operand import Operand
from gpusim.numbers.formats import Dtype
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution

BLOCK = (8, 16)
"""Rows and columns of pixels of a CTA."""
PRODUCTS_PER_PIXEL = 4
"""Multiplications for a pixel: 16 for 2 x 2 pixels."""
FUSED_FRACTION = PRODUCTS_PER_PIXEL / 9
"""Multiplications of the algorithm over those of a direct convolution."""
TRANSFORMED_VALUES = 16
"""Values of a transformed filter of 3 x 3."""
HALO_VALUES = (BLOCK[0] + 2) * (BLOCK[1] + 2) / (BLOCK[0] * BLOCK[1])
"""Values that are read for a pixel of a block, with those around it."""


@dataclass(frozen=True, slots=True)
class FusedWinograd:
    """The forward pass of a convolution, or the gradient of its images, by filters of 3 x 3."""

    convolution: Convolution

    @property
    def dtype(self) -> Dtype:
        return self.convolution.dtype

    @property
    def layout(self) -> str:
        return self.convolution.layout

    @property
    def flops(self) -> int:
        """Operations of the algorithm, without those of pixels beyond the image's edge."""
        return round(self.convolution.flops * FUSED_FRACTION)


def winograd_operands(winograd: FusedWinograd) -> tuple[Operand, Operand]:
    """Pixels, and transformed filters; rows and columns of the tiles of a GEMM over channels."""
    convolution = winograd.convolution
    shape, backward = convolution.shape, convolution.op == "conv_bwd_inputs"
    rows, columns = (shape.height, shape.width) if backward else shape.output
    read, written = (shape.filters, shape.channels) if backward else (shape.channels, shape.filters)
    blocks = shape.images * ceil_div(rows, BLOCK[0]) * ceil_div(columns, BLOCK[1])
    bits = convolution.dtype.bits
    pixels = Operand(
        blocks * BLOCK[0] * BLOCK[1], read, False, bits, values_per_element=HALO_VALUES, run=min(columns, BLOCK[1])
    )
    per_column = TRANSFORMED_VALUES / PRODUCTS_PER_PIXEL
    return pixels, Operand(written * PRODUCTS_PER_PIXEL, read, False, bits, values_per_element=per_column)
