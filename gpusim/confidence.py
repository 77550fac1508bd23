"""How far to trust a predicted time: errors of rows that fits had left out, and which shapes were measured.

A calibration writes one :class:`Confidence` beside the values that it fits. It holds no measured row: quantiles of
errors by group, and the ranges that measured GEMMs span. No value of it decides a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field

from gpusim.numbers.formats import Dtype
from gpusim.record import Record
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

Evidence = Literal["validated", "interpolated", "extrapolated"]
Cores = Literal["cuda", "tensor"]
Duration = Literal["short", "long"]
DURATIONS: tuple[Duration, ...] = get_args(Duration)

SHORT_US = 200.0
"""Kernels that take less are short: latencies, single waves and split-K decide their times. On Tensor Cores errors of
longer ones spread half as far."""
EDGES = (16, 128, 1024)
"""Largest extents of all kinds of GEMMs but the last, by the smaller of m and n: streams of weights to large."""
LEAST_ROWS = 5
"""Measured GEMMs of a kind that span a range: fewer leave holes in it, and would be rows of a table."""
UNTESTED = 1.5
"""Factor by which the errors of rows widen where no source and no board could be left out [assumed; those of the other
architectures are 1.0 to 1.6 times as wide, of long kernels on V100's Tensor Cores 2.3]."""
BEYOND = 2.0
"""Factor by which the errors of a source or a board that was left out widen beyond what was measured [assumed]."""
UNKNOWN = math.log(1.5)
"""Logarithm of the error that is assumed of what no fit has tested: other operators, and specs without a fit."""
SAME_RATE = {Dtype.FP16: Dtype.BF16, Dtype.BF16: Dtype.FP16}
"""Types that the same instructions multiply at the same rate: runs of one show what a GPU does with the other."""


class PredictionInterval(NamedTuple):
    """How far measured runs such as the predicted one lie from the prediction, and what says so."""

    evidence: Evidence
    low: float
    """A tenth of such runs take less than this multiple of the predicted time."""
    high: float
    """A tenth take more than this multiple."""


class Kind(NamedTuple):
    """Products that a range of measured ones stands for."""

    board: str
    dtype: str
    batched: bool
    smaller_extent: int
    """Largest of the class of the smaller of m and n; 0 for the class above all edges."""


class ErrorRange(Record):
    """Logarithms of measured over predicted time of rows that a fit had left out."""

    cores: Cores
    duration: Duration
    rows: int = Field(ge=1)
    low: float
    """A tenth of them are below."""
    high: float
    """A tenth are above."""


Range = Annotated[tuple[float, float], Field(description="smallest and largest")]


class MeasuredRange(Record):
    """What the measured GEMMs of a kind span."""

    board: str
    dtype: str
    batched: bool
    smaller_extent: int
    rows: int = Field(ge=1)
    flops: Range
    bytes: Range

    @property
    def kind(self) -> Kind:
        return Kind(self.board, self.dtype, self.batched, self.smaller_extent)


class Confidence(Record):
    """What a calibration knows of its own errors."""

    fit: str
    """The command, its date and its data."""
    rows_left_out: tuple[ErrorRange, ...]
    """Errors of rows, predicted by fits without a third of the rows each."""
    groups_left_out: tuple[ErrorRange, ...]
    """Errors of sources and boards, predicted by fits without them; none where nothing else was measured."""
    measured: tuple[MeasuredRange, ...]

    def evidence(self, board: str, gemm: Gemm) -> Evidence:
        """Whether measured GEMMs surround a GEMM on a board.

        ``validated``: those of its kind on its board have both fewer and more operations, and fewer and more bytes.
        ``interpolated``: those of the architecture in that type, or one of its rate, do.
        """
        if gemm.sparsity != "dense" or gemm.b_dtype is not None:
            return "extrapolated"
        kind = kind_of(board, gemm)
        if any(one.kind == kind and one.rows >= LEAST_ROWS and _within([one], gemm) for one in self.measured):
            return "validated"
        alike = {gemm.dtype.value, SAME_RATE.get(gemm.dtype, gemm.dtype).value}
        near = [one for one in self.measured if one.dtype in alike]
        return "interpolated" if near and _within(near, gemm) else "extrapolated"

    def interval(self, board: str, gemm: Gemm, kernel_time_us: float) -> PredictionInterval:
        """The interval of the prediction of a GEMM."""
        evidence = self.evidence(board, gemm)
        group = cores_of(gemm.dtype), duration_of(kernel_time_us)
        known = _range_of(self.rows_left_out, *group)
        if known is None:
            return unknown()
        low, high = known
        if evidence != "validated":
            farther = _range_of(self.groups_left_out, *group) or (UNTESTED * low, UNTESTED * high)
            widened = 1.0 if evidence == "interpolated" else BEYOND
            low, high = widened * min(low, farther[0]), widened * max(high, farther[1])
        return PredictionInterval(evidence, math.exp(low), math.exp(high))


def interval_of(
    confidence: Confidence | None, board: str, operator: Operator, kernel_time_us: float
) -> PredictionInterval:
    """The interval of a prediction; operators other than GEMMs, and specs without a fit, are not tested."""
    if confidence is None or not isinstance(operator, Gemm):
        return unknown()
    return confidence.interval(board, operator, kernel_time_us)


def unknown() -> PredictionInterval:
    """The interval of a prediction that nothing has tested."""
    return PredictionInterval("extrapolated", math.exp(-UNKNOWN), math.exp(UNKNOWN))


def kind_of(board: str, gemm: Gemm) -> Kind:
    """The kind of a GEMM on a board."""
    smaller = min(gemm.m, gemm.n)
    edge = next((edge for edge in EDGES if smaller <= edge), 0)
    return Kind(board, gemm.dtype.value, gemm.batch > 1, edge)


def cores_of(dtype: Dtype) -> Cores:
    """The cores that multiply a type in all but a few kernels."""
    return "cuda" if dtype is Dtype.FP32 else "tensor"


def duration_of(kernel_time_us: float) -> Duration:
    """Whether a kernel is short.

    >>> duration_of(199.9), duration_of(200.0)
    ('short', 'long')
    """
    return "short" if kernel_time_us < SHORT_US else "long"


def _within(ranges: Sequence[MeasuredRange], gemm: Gemm) -> bool:
    """Whether ranges together reach from fewer to more operations than a GEMM has, and in bytes."""
    flops = min(one.flops[0] for one in ranges), max(one.flops[1] for one in ranges)
    size = min(one.bytes[0] for one in ranges), max(one.bytes[1] for one in ranges)
    return flops[0] <= gemm.flops <= flops[1] and size[0] <= gemm.size_bytes <= size[1]


def _range_of(ranges: Sequence[ErrorRange], cores: Cores, duration: Duration) -> tuple[float, float] | None:
    """The errors of a group, or of the one that is most like it; the prediction itself is among them."""
    alike = sorted(ranges, key=lambda one: (one.cores != cores, one.duration != duration))
    return (min(alike[0].low, 0.0), max(alike[0].high, 0.0)) if alike else None
