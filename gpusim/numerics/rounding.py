"""Conversion to number formats, with counts of overflow and underflow.

Values are kept as float64, which represents every number of the other formats exactly; a conversion rounds them to
the values of the format. FP16, FP32 and FP64 are numpy's, BF16, FP8 and INT4 those of ``ml_dtypes``, rounded to
nearest, ties to even. TF32 is FP32 with 10 of its 23 mantissa bits, see :func:`round_to_tf32`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from gpusim.numbers.formats import FORMATS, NumberFormat

Floats = NDArray[np.float64]
Tf32Rounding = Literal["nearest", "truncate"]

TF32_DROPPED_BITS = FORMATS["fp32"].mantissa_bits - FORMATS["tf32"].mantissa_bits


def storage(of: NumberFormat) -> np.dtype[Any]:
    """The array type that holds a format: NumPy's, or one of ``ml_dtypes``."""
    name = of.names.array
    scalar: type = getattr(np, name, None) or getattr(ml_dtypes, name)
    return np.dtype(scalar)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Rounded values, and the number that overflowed or underflowed."""

    values: Floats
    overflow: int
    """Finite values beyond the largest number: infinite afterwards, or the largest where the format saturates."""
    underflow: int
    """Non-zero values that became zero."""


def convert(values: NDArray[Any], to: NumberFormat, tf32_rounding: Tf32Rounding = "nearest") -> Conversion:
    """Round values to a format and count overflow and underflow.

    >>> convert(np.array([65519.0, 65520.0, 1e-8]), FORMATS["fp16"])
    Conversion(values=array([65504.,    inf,     0.]), overflow=1, underflow=1)
    """
    given = np.asarray(values, np.float64)
    rounded = _rounded(given, to, tf32_rounding)
    beyond = np.abs(np.rint(given) if to.is_integer else given) > to.largest
    overflow = beyond & np.isfinite(given) if to.saturates else np.isinf(rounded) & np.isfinite(given)
    return Conversion(rounded, int(np.count_nonzero(overflow)), int(np.count_nonzero((rounded == 0) & (given != 0))))


def _rounded(given: Floats, to: NumberFormat, tf32_rounding: Tf32Rounding) -> Floats:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if to.stored_as:
            return round_to_tf32(given.astype(np.float32), tf32_rounding).astype(np.float64)
        if to.is_integer:
            given = np.rint(given)
        if to.saturates:
            given = np.clip(given, -to.largest - to.is_integer, to.largest)
        return given.astype(storage(to)).astype(np.float64)


def round_to_tf32(values: NDArray[np.float32], rounding: Tf32Rounding = "nearest") -> NDArray[np.float32]:
    """FP32 values that keep 10 mantissa bits and all 8 exponent bits.

    ``nearest`` (ties away from zero) is what ``cvt.rna.tf32.f32`` does (PTX ISA) and CUTLASS before it feeds a
    Tensor Core (``round_half_ulp_truncate``): half a unit of the last kept bit is added to the bit pattern, whose
    lower bits are then dropped. ``truncate`` applies to FP32 registers passed to ``mma.sync`` without that
    conversion: the lower bits are ignored.

    >>> round_to_tf32(np.float32([1 + 2**-11, 1 - 2**-13])).tolist()
    [1.0009765625, 1.0]
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = np.uint32(1 << (TF32_DROPPED_BITS - 1)) if rounding == "nearest" else np.uint32(0)
    kept = np.uint32(0xFFFFFFFF << TF32_DROPPED_BITS & 0xFFFFFFFF)
    rounded = ((bits + half) & kept).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


FP16_LARGEST_BITS = np.uint32(0x477FE000)
"""65504 as FP32; rounding that carries beyond it is overflow."""
FP16_SMALLEST_NORMAL = np.float32(2.0**-14)
FP16_SUBNORMAL_SHIFT = np.float32(0.75)
"""FP32 numbers between 0.5 and 1 are 2^-24 apart, as FP16's subnormals are."""


def round_to_fp16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """FP32 values rounded to FP16, equal to ``astype`` there and back, ten times as fast.

    numpy is slow for FP16 subnormals, which are common among gradients.

    >>> round_to_fp16(np.float32([65519.0, 65520.0, 2**-24, 2**-25])).tolist()
    [65504.0, inf, 5.960464477539063e-08, 0.0]
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    odd = bits >> np.uint32(TF32_DROPPED_BITS) & np.uint32(1)
    half = np.uint32((1 << (TF32_DROPPED_BITS - 1)) - 1)
    kept = (bits + half + odd) & np.uint32(0xFFFFFFFF << TF32_DROPPED_BITS & 0xFFFFFFFF)
    sign = bits & np.uint32(0x80000000)
    infinite = np.uint32(0x7F800000) | sign
    normal = np.where(kept - sign > FP16_LARGEST_BITS, infinite, kept).view(np.float32)
    small = (values + FP16_SUBNORMAL_SHIFT) - FP16_SUBNORMAL_SHIFT
    rounded = np.where(np.abs(values) < FP16_SMALLEST_NORMAL, np.copysign(small, values), normal)
    return np.where(np.isnan(values), values, rounded)
