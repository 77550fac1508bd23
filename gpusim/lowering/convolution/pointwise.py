"""Filters of one tap: a matrix multiplication for each image, of kernels that know nothing of images.

cuDNN 8 runs them on kernels of cuBLAS and CUTLASS where the pixels of an image are contiguous and aligned: profiles of
ResNet-50 on V100 and A100 have a grid of as many GEMMs as images, and reduce_wgrad_nchw_helper after those of the
gradient of the filters.
"""

from __future__ import annotations

from gpusim.lowering.convolution.layouts import Form
from gpusim.lowering.convolution.transforms import Surroundings
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm

ALIGNED = 4
"""Values that the pixels of an image are a multiple of: 7 x 7 goes to other kernels."""


def is_pointwise(operator: Convolution) -> bool:
    """Whether a convolution is a GEMM of whole images, stored channel by channel."""
    shape = operator.shape
    plain = (shape.filter_h, shape.filter_w, *shape.stride, shape.groups, *shape.pad) == (1, 1, 1, 1, 1, 0, 0)
    return plain and operator.layout == "nchw" and shape.height * shape.width % ALIGNED == 0


def gemms_of_images(around: Surroundings, operator: Convolution) -> tuple[Gemm, Form]:
    """A GEMM for each image, and what adds them up where they are of the gradient of the filters."""
    shape, dtype = operator.shape, operator.dtype
    pixels, channels, filters = shape.height * shape.width, shape.channels, shape.filters
    if operator.op != "conv_bwd_weights":
        forward = operator.op == "conv_fwd"
        read, written = (channels, filters) if forward else (filters, channels)
        layout = "nn" if forward else "nt"
        gemm = Gemm(pixels, written, read, dtype, batch=shape.images, layout=layout, order="column")
        return gemm, Form(gemm, (), ())
    gemm = Gemm(channels, filters, pixels, dtype, batch=shape.images, layout="tn", order="column")
    element_bytes = dtype.bits / 8
    summed = around.sum_of("reduce_wgrad_nchw_helper", shape.images, channels * filters, element_bytes, element_bytes)
    return gemm, Form(gemm, (), (summed,))
