"""Random matrix multiplications, as users of three GPUs would ask for."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm

DTYPES = {
    "v100-sxm2-32gb": (Dtype.FP16, Dtype.FP32),
    "t4": (Dtype.FP16, Dtype.FP32, Dtype.INT8),
    "a100-sxm4-80gb": (Dtype.FP16, Dtype.BF16, Dtype.TF32, Dtype.FP32, Dtype.INT8),
}
"""GPU -> the types that it multiplies at a rate worth using."""
SMALLEST, LARGEST = 16, 16384
ALIGNED_SHARE = 0.7
"""Fraction of the shapes with aligned dimensions; those of the others are multiples of :data:`UNALIGNED` only."""
ALIGNED_BYTES = 16
"""What the widest load takes."""
UNALIGNED = {Dtype.INT8: 4}
"""Type -> what its dimensions have to be multiples of, if not of 1."""


def random_shapes(count: int, seed: int = 1) -> Iterator[tuple[str, Gemm]]:
    """(GPU, multiplication), no two of them alike; dimensions are log-uniform.

    >>> [(gpu, shape.m, shape.n, shape.k, shape.dtype.value) for gpu, shape in random_shapes(1)]
    [('v100-sxm2-32gb', 496, 360, 1464, 'fp16')]
    """
    chooser = random.Random(seed)  # noqa: S311 -- seeded sampling is not cryptography
    drawn: set[tuple[str, Gemm]] = set()
    while len(drawn) < count:
        gpu = chooser.choice(list(DTYPES))
        dtype = chooser.choice(DTYPES[gpu])
        aligned = chooser.random() < ALIGNED_SHARE
        multiple = 8 * ALIGNED_BYTES // dtype.bits if aligned else UNALIGNED.get(dtype, 1)
        m, n, k = (_dimension(chooser, multiple) for _ in "mnk")
        shape = gpu, Gemm(m, n, k, dtype)
        if shape not in drawn:
            drawn.add(shape)
            yield shape


def _dimension(chooser: random.Random, multiple: int) -> int:
    """A size, log-uniform, rounded down to a multiple."""
    size = math.exp(chooser.uniform(math.log(SMALLEST), math.log(LARGEST)))
    return int(size // multiple) * multiple
