"""How far to trust predicted times: errors of measured rows that no fit saw, and which operators were measured.

A calibration writes one :class:`Confidence` beside the values that it fits. It holds no measured row: quantiles of
errors by group, and the ranges that measured operators span. No value of it decides a time.

Errors are logarithms of measured over predicted time. They have two parts: one of each operator, and one that all
operators of a source share, since its programs, versions and boards are not quite those of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
from pydantic import Field

from gpusim.cache_key import CacheKey
from gpusim.record import Record, record_key
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

Evidence = Literal["validated", "interpolated", "extrapolated"]
CalibratedOn = Literal["board", "architecture", "nothing"]
"""Whose measured runs a board's values were fitted to: its own, those of other boards of its architecture, none."""
Family = Literal["product", "convolution", "attention", "vector"]
FAMILIES: tuple[Family, ...] = get_args(Family)
Duration = Literal["short", "long"]

SIGMAS_OF_80_PERCENT = 1.2816
"""Standard deviations on either side that hold eight in ten values of a normal distribution."""
SHORT_US = 200.0
"""Kernels that take less are short: latencies, single waves and split-K decide their times. On Tensor Cores errors of
longer ones spread half as far."""
EDGES = (16, 128, 1024)
"""Largest extents of all kinds of GEMMs but the last, by the smaller of m and n: streams of weights to large."""
FEW_QUERIES = 16
"""Attention of up to so many queries reads its keys, and multiplies little; other limits decide its time."""
LEAST_ROWS = 5
"""Measured operators of a kind that span a range: fewer leave holes in it, and would be rows of a table."""
BETWEEN_SOURCES: dict[Family, float] = {"product": 0.13, "convolution": 0.13, "attention": 0.13, "vector": 0.033}
"""Standard deviation of the error that all operators of a source share, where no fit has seen the source. Products:
five sources that were kept apart from all fits; vector operators: the tables of ``calibrate/``; the others [assumed,
as products]. Of a source that a fit has seen it is 0.01 to 0.04, which the errors of its rows contain."""
ESTIMATE_DISTANCE: dict[tuple[Family, Duration], float] = {
    ("product", "short"): 0.0769,
    ("product", "long"): 0.0476,
    ("convolution", "short"): 0.0483,
    ("convolution", "long"): 0.0311,
}
"""Distance of detail ``estimate`` from ``sampled``, where it simulates nothing: the root of the mean square of the
logarithm of their ratio, as ``benchmarks/estimate_table.py`` prints it of the operators in the tables of ``calibrate/``
(2,700, 3,316, 275 and 723 of them)."""
BEYOND = 2.0
"""Factor by which errors widen beyond what was measured [assumed]."""
UNKNOWN = math.log(1.5)
"""Logarithm of the error that is assumed of what nothing has tested: other operators, and specs without a fit."""
VARIANT = 0.1
"""Standard deviation that the errors of a board gain where its values are replaced [assumed]."""
RATIO_SHARE = 0.3
"""Error of a predicted ratio of two variants of a board, as a share of the logarithm of the ratio. Eight in ten ratios
between boards of different architectures (V100, T4, A100; rows of ``calibrate/``) err by less than 0.12 to 0.43 of it;
variants of one board differ less [assumed]."""
RATIO_LEAST = 0.02
"""Least error of such a ratio: what repeats of a measurement differ by."""
SAME_RATE = {"fp16": "bf16", "bf16": "fp16"}
"""Types that the same instructions multiply at the same rate: runs of one show what a GPU does with the other."""


class PredictionInterval(NamedTuple):
    """How far measured runs such as the predicted one lie from the prediction, and what says so."""

    evidence: Evidence
    low: float
    """A tenth of such runs take less than this multiple of the predicted time."""
    high: float
    """A tenth take more than this multiple."""

    def widened(self, deviation: float) -> PredictionInterval:
        """The interval of a prediction with a further error of its own.

        Args:
            deviation: standard deviation of the logarithm of that error.
        """
        further = SIGMAS_OF_80_PERCENT * deviation
        low, high = (math.hypot(math.log(bound), further) for bound in (self.low, self.high))
        return self._replace(low=math.exp(-low), high=math.exp(high))


class Kind(NamedTuple):
    """Operators that a range of measured ones stands for."""

    board: str
    kind: str
    dtype: str
    batched: bool
    smaller_extent: int
    """Largest of the class of the smaller of m and n of a product; 0 for the class above all edges, and for others."""


class ErrorRange(Record):
    """Errors of a group of measured rows that the values were not fitted to; what is empty holds for all."""

    family: Family
    kind: str = ""
    board: str = ""
    dtype: str = ""
    duration: Literal["", "short", "long"] = ""
    rows: int = Field(ge=1)
    low: float
    """A tenth of them are below."""
    high: float
    """A tenth are above."""


Range = Annotated[tuple[float, float], Field(description="smallest and largest")]


class MeasuredRange(Record):
    """What the measured operators of a kind span."""

    board: str
    kind: str
    dtype: str
    batched: bool
    smaller_extent: int
    rows: int = Field(ge=1)
    sources: tuple[str, ...]
    """Keys of the sources that measured them."""
    flops: Range
    bytes: Range

    @property
    def of(self) -> Kind:
        return Kind(self.board, self.kind, self.dtype, self.batched, self.smaller_extent)


class LeftOutBoard(Record):
    """The products measured on a board, predicted by a fit without any row of the board."""

    board: str
    rows: int = Field(ge=1)
    mape: float = Field(ge=0)
    """Mean absolute error of the predicted times [%]."""


class Group(NamedTuple):
    """What an error may depend on."""

    family: Family
    kind: str = ""
    board: str = ""
    dtype: str = ""
    duration: Literal["", "short", "long"] = ""


class Confidence(Record):
    """What a calibration knows of its own errors."""

    fit: str
    """The command, its date and its data."""
    errors: tuple[ErrorRange, ...]
    """Errors of rows, products predicted by fits without a third of the rows each; other operators take part in no
    fit."""
    measured: tuple[MeasuredRange, ...]
    left_out: tuple[LeftOutBoard, ...] = ()
    """Each board that a fit can do without: how well the fit predicts boards that nobody measured."""
    variant: bool = False
    """Values of the board were replaced: no fit has tested these."""

    @property
    def boards(self) -> tuple[str, ...]:
        """Boards with measured rows."""
        return tuple(dict.fromkeys(one.board for one in self.measured))

    def rows_of(self, board: str) -> int:
        """Measured rows of a board, but for kinds of which there are few."""
        return sum(one.rows for one in self.measured if one.board == board)

    def sources_of(self, board: str) -> tuple[str, ...]:
        """Keys of the sources that measured a board."""
        return tuple(sorted({source for one in self.measured if one.board == board for source in one.sources}))

    def evidence(self, board: str, operator: Operator, source: str = "") -> Evidence:
        """Whether measured operators surround one on a board.

        ``validated``: those that the same source measured of its kind on its board have both fewer and more
        operations, and fewer and more bytes. ``interpolated``: those of the architecture in that type, or one of its
        rate, do, whoever measured them.
        """
        by_source, by_any = self._surrounded(board, operator, operator, source)
        return "validated" if by_source else "interpolated" if by_any else "extrapolated"

    def evidence_in_columns(self, board: str, operator: Operator, sized: Any, source: str = "") -> Any:
        """Whether measured operators surround each of some others, all of one kind (:meth:`evidence`).

        Args:
            operator: one of them.
            sized: all of them, in columns.
        """
        by_source, by_any = self._surrounded(board, operator, sized, source)
        return np.where(by_source, "validated", np.where(by_any, "interpolated", "extrapolated"))

    def _surrounded(self, board: str, operator: Operator, sized: Any, source: str) -> tuple[Any, Any]:
        """Whether operators that the source measured of a kind surround others, and whether any of the architecture do.

        Args:
            operator: of the kind; ``sized``: an operator of the kind, or several in columns.
        """
        if self.variant or _is_unmeasured(operator):
            return False, False
        of, key = measured_kind(board, operator), record_key(source)
        index = _index_of(CacheKey(self))
        known = [one for one in index.of_kind.get(of, ()) if one.rows >= LEAST_ROWS and key in one.sources]
        by_source = reduce(or_, (_span([one]).holds(sized) for one in known), False)
        near = index.of_dtype.get((of.kind, of.dtype))
        return by_source, near.holds(sized) if near else False

    def interval(
        self, board: str, operator: Operator, kernel_time_us: float, source: str = ""
    ) -> PredictionInterval | None:
        """The interval of the prediction of an operator; None where nothing like it was measured.

        Args:
            source: that measures the runs; a fit that has not seen it knows less of its errors.
        """
        own = self.own_error(board, operator, kernel_time_us)
        return None if own is None else self.interval_with(self.evidence(board, operator, source), own, operator)

    def interval_with(self, evidence: Evidence, own: tuple[float, float], operator: Operator) -> PredictionInterval:
        """The interval of an operator whose evidence and :meth:`own_error` are known."""
        shared = 0.0 if evidence == "validated" else BETWEEN_SOURCES[family_of(operator)]
        widened = math.hypot(shared, VARIANT if self.variant else 0.0)
        beyond = BEYOND if evidence == "extrapolated" and not self.variant else 1.0
        low, high = (beyond * math.hypot(one, SIGMAS_OF_80_PERCENT * widened) for one in own)
        return PredictionInterval(evidence, math.exp(-low), math.exp(high))

    def own_error(self, board: str, operator: Operator, kernel_time_us: float) -> tuple[float, float] | None:
        """How far below and above the prediction eight in ten rows like an operator lie, whatever their source.

        Both are at least 0: the prediction itself is among them.
        """
        known = _index_of(CacheKey(self)).errors
        for group in groups_of(board, operator, kernel_time_us):
            if found := known.get(group) or known.get(group._replace(dtype=SAME_RATE.get(group.dtype, group.dtype))):
                return max(0.0, -found.low), max(0.0, found.high)
        return None


class Span(NamedTuple):
    """Operations and bytes that measured operators reach from and to."""

    flops: tuple[float, float]
    bytes: tuple[float, float]

    def holds(self, operator: Any) -> Any:
        """Whether they reach from fewer to more operations than an operator has, and in bytes; in columns, of each."""
        flops, size_bytes = operator.flops, operator.size_bytes
        of_flops = (self.flops[0] <= flops) & (flops <= self.flops[1])
        return of_flops & (self.bytes[0] <= size_bytes) & (size_bytes <= self.bytes[1])


def _span(ranges: Sequence[MeasuredRange]) -> Span:
    """What ranges together reach from and to."""
    flops, sizes = ([one.flops for one in ranges], [one.bytes for one in ranges])
    return Span(
        (min(low for low, _ in flops), max(high for _, high in flops)),
        (min(low for low, _ in sizes), max(high for _, high in sizes)),
    )


class _Index(NamedTuple):
    """What a calibration knows, by what is looked up of it for each prediction."""

    errors: dict[Group, ErrorRange]
    of_kind: dict[Kind, list[MeasuredRange]]
    of_dtype: dict[tuple[str, str], Span]
    """By kind and data type; ranges of a type of the same rate are among them."""


@lru_cache(maxsize=64)
def _index_of(key: CacheKey[Confidence]) -> _Index:
    errors = {Group(one.family, one.kind, one.board, one.dtype, one.duration): one for one in key.record.errors}
    of_kind: dict[Kind, list[MeasuredRange]] = {}
    near: dict[tuple[str, str], list[MeasuredRange]] = {}
    for one in key.record.measured:
        of_kind.setdefault(one.of, []).append(one)
        for dtype in {one.dtype, SAME_RATE.get(one.dtype, one.dtype)}:
            near.setdefault((one.kind, dtype), []).append(one)
    return _Index(errors, of_kind, {of: _span(ranges) for of, ranges in near.items()})


def calibrated_on(confidence: Confidence | None, board: str) -> CalibratedOn:
    """Whose measured runs the values of a board were fitted to.

    Args:
        confidence: what the calibration of its architecture knows; None where there is none.
    """
    if confidence is None or not confidence.measured:
        return "nothing"
    return "board" if board in confidence.boards else "architecture"


def interval_of(
    confidence: Confidence | None,
    board: str,
    operator: Operator,
    kernel_time_us: float,
    source: str = "",
    *,
    estimated: bool = False,
) -> PredictionInterval:
    """The interval of a prediction; operators of which nothing was measured, and specs without a fit, have a wide one.

    Args:
        source: that measures the runs, as measured tables name it.
        estimated: whether the time is the closed form's, which is some way from the simulated one.
    """
    found = confidence.interval(board, operator, kernel_time_us, source) if confidence else None
    found = found or PredictionInterval("extrapolated", math.exp(-UNKNOWN), math.exp(UNKNOWN))
    if not estimated:
        return found
    return found.widened(ESTIMATE_DISTANCE.get((family_of(operator), duration_of(kernel_time_us)), 0.0))


def intervals_of(
    confidence: Confidence | None,
    board: str,
    operator: Operator,
    sized: Any,
    kernel_time_us: float,
    source: str = "",
    *,
    estimated: bool = False,
) -> tuple[Any, Any, Any]:
    """Evidence and ends of :func:`interval_of`, of operators of one kind whose kernels are all short, or all long.

    Args:
        operator: one of them, and ``kernel_time_us`` its time.
        sized: all of them, in columns.
    """
    own = confidence.own_error(board, operator, kernel_time_us) if confidence else None
    if confidence is None or own is None:
        return interval_of(None, board, operator, kernel_time_us, estimated=estimated)
    evidence = confidence.evidence_in_columns(board, operator, sized, source)
    distance = ESTIMATE_DISTANCE.get((family_of(operator), duration_of(kernel_time_us)), 0.0) if estimated else 0.0
    low: Any = np.nan
    high: Any = np.nan
    for name in get_args(Evidence):
        found = confidence.interval_with(name, own, operator)
        found = found.widened(distance) if estimated else found
        low, high = (np.where(evidence == name, one, other) for one, other in ((found.low, low), (found.high, high)))
    return evidence, low, high


def groups_of(board: str, operator: Operator, kernel_time_us: float) -> Iterator[Group]:
    """The groups of errors that an operator belongs to, the one that is most like it first."""
    of = measured_kind(board, operator)
    family, duration = family_of(operator), duration_of(kernel_time_us)
    yield Group(family, of.kind, board, of.dtype, duration)
    yield Group(family, of.kind, board, of.dtype)
    yield Group(family, of.kind, dtype=of.dtype, duration=duration)
    yield Group(family, of.kind, dtype=of.dtype)
    yield Group(family, of.kind)
    yield Group(family, duration=duration)
    yield Group(family)


def _is_unmeasured(operator: Operator) -> bool:
    """Whether an operator is of a sort that no table of the records has."""
    match operator:
        case Gemm():
            return operator.sparsity != "dense" or operator.b_dtype is not None
        case Attention():
            return operator.kv_dtype is not None
    return False


def measured_kind(board: str, operator: Operator) -> Kind:
    """The kind of an operator on a board."""
    if isinstance(operator, Gemm):
        smaller = min(operator.m, operator.n)
        edge = next((edge for edge in EDGES if smaller <= edge), 0)
        return Kind(board, "product", operator.dtype.value, operator.batch > 1, edge)
    if isinstance(operator, Attention) and operator.queries <= FEW_QUERIES:
        return Kind(board, "attention_decode", operator.dtype.value, batched=False, smaller_extent=0)
    kind = operator.op if isinstance(operator, Convolution | Attention) else operator.kind
    return Kind(board, kind, operator.dtype.value, batched=False, smaller_extent=0)


def family_of(operator: Operator) -> Family:
    """The family of an operator, whose errors have the same causes."""
    match operator:
        case Gemm():
            return "product"
        case Convolution():
            return "convolution"
        case Attention():
            return "attention"
    return "vector"


def duration_of(kernel_time_us: float) -> Duration:
    """Whether a kernel is short.

    >>> duration_of(199.9), duration_of(200.0)
    ('short', 'long')
    """
    return "short" if kernel_time_us < SHORT_US else "long"


class Timed(NamedTuple):
    """A predicted time with its interval."""

    board: str
    time_us: float
    low_us: float | None
    """A tenth of measured runs are shorter; None where nothing is stated."""
    high_us: float | None
    """A tenth are longer."""

    def contains(self, time_us: float) -> bool:
        """Whether a measured time is in the interval."""
        return self.low_us is not None and self.high_us is not None and self.low_us <= time_us <= self.high_us


class Ratio(NamedTuple):
    """A ratio of two predicted times, with the interval that eight in ten measured ratios fall into."""

    value: float
    low: float | None
    high: float | None

    def contains(self, ratio: float) -> bool:
        """Whether a measured ratio is in the interval."""
        return self.low is not None and self.high is not None and self.low <= ratio <= self.high


def ratio_of(over: Timed, under: Timed) -> Ratio:
    """The ratio of the times of one workload on two boards.

    Errors on two boards are taken as independent: those of products do not cancel between architectures (of pairs of
    V100 and A100, 80 to 96 % are inside). On two variants of one board they are the same errors, and the ratio is firm.

    >>> low, high = ratio_of(Timed("A", 10.0, 8.0, 12.5), Timed("B", 5.0, 4.0, 6.25))[1:]
    >>> f"{low:.3f} to {high:.3f}"
    '1.459 to 2.742'
    """
    ratio = over.time_us / under.time_us
    if over == under:
        return Ratio(ratio, ratio, ratio)
    if over.low_us is None or over.high_us is None or under.low_us is None or under.high_us is None:
        return Ratio(ratio, None, None)
    if over.board == under.board:
        return Ratio(ratio, *variant_interval(ratio))
    low = math.hypot(math.log(over.time_us / over.low_us), math.log(under.high_us / under.time_us))
    high = math.hypot(math.log(over.high_us / over.time_us), math.log(under.time_us / under.low_us))
    return Ratio(ratio, ratio * math.exp(-low), ratio * math.exp(high))


def variant_interval(ratio: float) -> tuple[float, float]:
    """Interval of a ratio of the times of one workload on two variants of a board.

    What is wrong with a prediction is wrong with both: the ratio is far firmer than either time.

    >>> low, high = variant_interval(0.5)
    >>> f"{low:.3f} to {high:.3f}"
    '0.406 to 0.616'
    """
    half = math.hypot(RATIO_LEAST, RATIO_SHARE * math.log(ratio))
    return ratio * math.exp(-half), ratio * math.exp(half)
