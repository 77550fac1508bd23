"""Error of a kernel's result against the float64 product of the same operands, with overflow and underflow.

The operands are drawn at random, or given. Of a large C only sampled rows and columns are computed,
each over all of k: an element's error does not depend on its neighbours. The largest error depends on the number of
elements, so that of the whole C is extrapolated from the tail of the sampled errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import InputError
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.numbers.formats import FORMATS, Dtype, NumberFormat
from gpusim.numerics.execute import execute, order_of
from gpusim.numerics.rounding import Conversion, Floats, Tf32Rounding, convert
from gpusim.numerics.sparsity import compress, pattern_of, prune
from gpusim.progress import Progress, no_progress
from gpusim.workloads.gemm import Gemm

Scaling = Literal["none", "amax"]
MOST_NUMBERS = 2**27
"""Limit for a sampled matrix: one GiB of float64."""
TAIL_ELEMENTS = 100_000
"""Fewest sampled elements for an extrapolation."""
TAIL_SHARES = (1e-2, 1e-4)
"""Shares of the sampled errors that lie above the two quantiles of the extrapolation."""


class OperandError(InputError):
    """Operands that cannot be multiplied; one line with the file or option and the remedy."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of random operands.

    ``normal``: mean and standard deviation; ``uniform``: ends; ``lognormal``: mean and standard deviation of the
    magnitude's natural logarithm, with random signs (many binades).
    """

    name: str
    first: float
    second: float

    def draw(self, generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """A matrix of independent numbers."""
        match self.name:
            case "uniform":
                return generator.uniform(self.first, self.second, shape)
            case "lognormal":
                signs: Floats = generator.choice((-1.0, 1.0), shape)
                return signs * generator.lognormal(self.first, self.second, shape)
            case _:
                return generator.normal(self.first, self.second, shape)

    def __str__(self) -> str:
        return f"{self.name}:{self.first:g},{self.second:g}"


_DEFAULTS = {"normal": (0.0, 1.0), "uniform": (-1.0, 1.0), "lognormal": (0.0, 1.0)}


def parse_distribution(text: str) -> Distribution:
    """A distribution from ``NAME`` or ``NAME:FIRST,SECOND``.

    >>> str(parse_distribution("uniform:0,1"))
    'uniform:0,1'
    """
    name, colon, numbers = text.partition(":")
    if name not in _DEFAULTS:
        raise ValueError(f"unknown distribution '{name}'; known: {', '.join(_DEFAULTS)}")
    try:
        first, second = map(float, numbers.split(",")) if colon else _DEFAULTS[name]
    except ValueError:
        raise ValueError(f"'{text}': expected {name}:NUMBER,NUMBER") from None
    if not (math.isfinite(first) and math.isfinite(second)):
        raise ValueError(f"'{text}': expected finite numbers")
    if name == "uniform" and second < first:
        raise ValueError(f"'{text}': the upper end lies below the lower")
    if name == "uniform" and not math.isfinite(second - first):
        raise ValueError(f"'{text}': the ends lie further apart than float64 holds")
    if name != "uniform" and second < 0:
        raise ValueError(f"'{text}': a standard deviation is not negative")
    return Distribution(name, first, second)


@dataclass(frozen=True, slots=True)
class Operands:
    """Some rows of A and columns of B, all of k, of a product of m x n elements."""

    a: Floats
    b: Floats
    m: int
    n: int

    @property
    def whole(self) -> bool:
        """Whether all of C is computed."""
        return (len(self.a), self.b.shape[1]) == (self.m, self.n)


def operands(
    gemm: Gemm,
    given: Sequence[NDArray[Any] | None],
    distributions: Sequence[Distribution],
    seed: int,
    rows: int,
    columns: int,
) -> Operands:
    """Sample rows of A and columns of B from the given matrices in order; draw those that are None.

    The elements of a drawn matrix are independent, so only what is used is drawn.
    """
    of_a, of_b = (np.random.default_rng([seed, which]) for which in (0, 1))
    rows, columns = min(rows, gemm.m), min(columns, gemm.n)
    numbers = max(rows * gemm.k, gemm.k * columns, rows * columns)
    if numbers > MOST_NUMBERS:
        raise OperandError(
            f"{rows} rows and {columns} columns of C and k = {gemm.k}: a matrix of {numbers} numbers, more than the"
            f" {MOST_NUMBERS} allowed; lower --sample-rows and --sample-columns"
        )
    if given[0] is None:
        a = distributions[0].draw(of_a, (rows, gemm.k))
    else:
        a = given[0][_some(of_a, gemm.m, rows)].astype(np.float64)
    if given[1] is None:
        b = distributions[1].draw(of_b, (gemm.k, columns))
    else:
        b = given[1][:, _some(of_b, gemm.n, columns)].astype(np.float64)
    _check_range(a, b)
    return Operands(a, b, gemm.m, gemm.n)


def _check_range(a: Floats, b: Floats) -> None:
    """Refuse operands whose sums of k products overflow float64."""
    largest_a, largest_b = (float(np.abs(x).max()) for x in (a, b))
    elements = len(a) * b.shape[1]
    if not math.isfinite(largest_a * largest_b * a.shape[1] * elements):
        raise OperandError(
            f"operands up to {largest_a:.3g} and {largest_b:.3g}: float64, which results are compared with, does not"
            " hold their products; scale them down, or lower the numbers of --distribution"
        )


def _some(generator: np.random.Generator, extent: int, count: int) -> NDArray[np.int64]:
    return np.sort(generator.choice(extent, count, replace=False))


@dataclass(frozen=True, slots=True)
class Study:
    """Errors of a product, over the sampled elements whose result is finite; None where there are none."""

    max_abs_error: float | None
    mean_abs_error: float | None
    rms_error: float | None
    relative_error: float | None
    """Largest error over the mean magnitude of the exact results, as in PyTorch's notes on TF32
    (https://docs.pytorch.org/docs/stable/notes/cuda.html)."""
    whole_max_abs_error: float | None
    """Estimate of the largest error among all elements of C; None where the sample does not allow one."""
    whole_relative_error: float | None
    mean_abs_reference: float
    overflow: int
    underflow: int
    overflow_inputs: int
    underflow_inputs: int
    overflow_output: int
    """Results that are not finite (32-bit integers: that wrapped), through their inputs or by themselves."""
    underflow_output: int
    """Non-zero sums stored as zero."""
    pruning_mean_abs_error: float | None
    """Mean error from pruning alone; the other errors are relative to the product of the pruned A."""
    scale_a: float
    """A was divided by this before it was rounded, and C multiplied by it after."""
    scale_b: float
    sampled_rows: int
    sampled_columns: int


def study(
    plan: GemmPlan,
    gemm: Gemm,
    operands: Operands,
    *,
    scaling: Scaling = "none",
    tf32_rounding: Tf32Rounding = "nearest",
    progress: Progress = no_progress,
) -> Study:
    """Execute a planned kernel and compare its result with float64.

    Args:
        scaling: ``amax`` maps the largest magnitude of each operand to the format's largest number, as symmetric
            quantisation to INT8 does.

    Raises:
        SparsityError: the data type or k has no 2:4 pattern.
        OperandError: beta is not 0.
    """
    if gemm.reads_c:
        raise OperandError("beta: C = A B is compared, and nothing is added to it; leave beta 0")
    a, b = operands.a, operands.b
    exact_dense = None
    if gemm.sparsity != "dense":
        exact_dense, a = a @ b, prune(a, pattern_of(gemm.dtype))
    exact = a @ b
    to = _read_as(plan, gemm.dtype)
    scale_a, scale_b = (_scale(x, to.largest) if scaling == "amax" else 1.0 for x in (a, b))
    in_a, in_b = (convert(x / scale, to, tf32_rounding) for x, scale in ((a, scale_a), (b, scale_b)))
    order = order_of(plan, gemm.k, gemm.dtype.bits)
    left = in_a.values if exact_dense is None else compress(in_a.values, pattern_of(gemm.dtype))
    written = convert(execute(left, in_b.values, order, progress), FORMATS[gemm.output])
    return _compared(operands, exact, exact_dense, written, (in_a, in_b), (scale_a, scale_b), order.accumulate)


def _read_as(plan: GemmPlan, dtype: Dtype) -> NumberFormat:
    """Format to which A and B are rounded: only Tensor Cores drop the bits of FP32 that TF32 lacks."""
    stored_as = dtype.format.stored_as
    if stored_as and plan.instruction.unit == "cuda":
        return FORMATS[stored_as]
    return dtype.format


def _scale(values: Floats, largest: float) -> float:
    return float(np.abs(values).max()) / largest or 1.0


def _compared(
    operands: Operands,
    exact: Floats,
    exact_dense: Floats | None,
    written: Conversion,
    inputs: tuple[Conversion, Conversion],
    scales: tuple[float, float],
    accumulate: str,
) -> Study:
    """The errors of C as stored."""
    scale = scales[0] * scales[1]
    result = scale * written.values
    finite = np.isfinite(result)
    errors = np.abs(result[finite] - exact[finite])
    lost = int(np.count_nonzero(~finite))
    if accumulate == "int32":
        sums = inputs[0].values @ inputs[1].values
        lost = int(np.count_nonzero((sums < -(2.0**31)) | (sums >= 2.0**31)))
    reference = float(np.mean(np.abs(exact)))
    largest = float(errors.max()) if errors.size else None
    whole = None if operands.whole else _largest_of(errors, operands.m * operands.n)
    in_overflow, in_underflow = (sum(getattr(one, name) for one in inputs) for name in ("overflow", "underflow"))
    return Study(
        max_abs_error=largest,
        mean_abs_error=float(errors.mean()) if errors.size else None,
        rms_error=_rms(errors) if errors.size else None,
        relative_error=_over(largest, reference),
        whole_max_abs_error=whole,
        whole_relative_error=_over(whole, reference),
        mean_abs_reference=reference,
        overflow=in_overflow + lost,
        underflow=in_underflow + written.underflow,
        overflow_inputs=in_overflow,
        underflow_inputs=in_underflow,
        overflow_output=lost,
        underflow_output=written.underflow,
        pruning_mean_abs_error=None if exact_dense is None else float(np.mean(np.abs(exact - exact_dense))),
        scale_a=scales[0],
        scale_b=scales[1],
        sampled_rows=len(operands.a),
        sampled_columns=operands.b.shape[1],
    )


def _rms(errors: Floats) -> float:
    """Root of the mean square; the squares of errors near the ends of float64 are never formed."""
    largest = float(errors.max())
    return largest * float(np.sqrt(np.mean((errors / largest) ** 2))) if largest else 0.0


def _over(error: float | None, reference: float) -> float | None:
    """A quotient; None where it is undefined or overflows."""
    quotient = math.inf if error is None or reference == 0 else error / reference
    return quotient if math.isfinite(quotient) else None


def _largest_of(errors: Floats, count: int) -> float | None:
    """The largest of ``count`` errors, estimated from fewer.

    The share of errors above x is taken as exp(-(x / a)^t) in the tail (t is 1 for exponential tails and near 2
    for normal ones); two quantiles fix a and t (Gardes and Girard, "Estimating extreme quantiles of Weibull tail
    distributions", Communications in Statistics 34, 2005, have the estimator in its general form).
    """
    if errors.size < TAIL_ELEMENTS:
        return None
    near, far = (float(np.quantile(errors, 1 - share)) for share in TAIL_SHARES)
    if not 0 < near < far:
        return None
    near_log, far_log = (-math.log(share) for share in TAIL_SHARES)
    shape = math.log(far_log / near_log) / math.log(far / near)
    try:
        estimate: float = far * (math.log(count) / far_log) ** (1 / shape)
    except ArithmeticError:  # the tail is so heavy that float64 does not hold the estimate
        return None
    return max(float(errors.max()), estimate) if math.isfinite(estimate) else None
