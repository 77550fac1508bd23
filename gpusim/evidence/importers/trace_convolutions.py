"""Convolutions of tables of launches: the kernels of a call, transposes and sums included, are one row.

Columns besides those of GEMMs: ``cn``, ``cc``, ``ch``, ``cw`` (images, channels, height, width), ``ck``, ``cr``,
``cs`` (filters and their size), ``stride``, ``pad``, ``dilation`` (``2x2``), ``groups``, ``op_kernel_idx`` and
``op_n_kernels``. A call that computes both gradients (``convolution_backward``) makes a row of each, where names of
kernels tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields
from gpusim.evidence.importers.rows import Import, Operation, RecordedKernel, Timing, stated_us
from gpusim.numbers.formats import DTYPE_IN_KERNEL_NAME, Dtype
from gpusim.workloads.convolution import ConvolutionShape

CONVOLUTIONS = {
    "cudnn_convolution/fprop": "conv_fwd",
    "cudnn_convolution_backward_input/dgrad": "conv_bwd_inputs",
    "cudnn_convolution_backward_weight/wgrad": "conv_bwd_weights",
}
"""Operators, and what the schema calls them."""
BOTH_GRADIENTS = "convolution_backward/"
"""Begins the names of operators that compute the images' gradient, then the filters'."""
SIZES = ("cn", "cc", "ch", "cw", "ck", "cr", "cs")
MOST_KERNELS = 1_000
"""Kernels of a call."""
PAIRS = ("stride", "pad", "dilation")
_PAIR = re.compile(r"(\d{1,10})x(\d{1,10})", re.ASCII)
_TRANSPOSE = re.compile(r"nchwtonhwc|nhwctonchw", re.IGNORECASE)
_TF32 = re.compile(r"tf(?:loat)?32|s1688|i1688", re.IGNORECASE)
"""In names of kernels that multiply tensors of FP32 on Tensor Cores."""
_WGRAD = re.compile("wgrad", re.IGNORECASE)
_SUM_OF_PRODUCTS = "reduce_wgrad"
"""Adds up GEMMs of single images, whose names are those of any GEMM."""


def is_convolution(op: str) -> bool:
    """Whether an operator of a table is a convolution, or both gradients of one."""
    return op in CONVOLUTIONS or op.startswith(BOTH_GRADIENTS)


class Launches:
    """The lines of one call, as they follow each other in a table."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, Fields]] = []

    def take(self, found: Import, timing: Timing, disturbed: float, line: int, fields: Fields) -> None:
        """Take a line; the last one of a call adds its row, unless others disturbed it.

        Args:
            disturbed: median of a call's launches over their shortest, from which on others ran beside them.
        """
        number, of = (fields.quantity(name, MOST_KERNELS) for name in ("op_kernel_idx", "op_n_kernels"))
        if number == 0:
            self._lines = []
        if of is None or number != len(self._lines):
            found.skip(
                "kernel of a convolution whose other kernels are not listed", time_us=stated_us(fields, "time_us")
            )
            return
        self._lines.append((line, fields))
        if len(self._lines) == of:
            calls, self._lines = self._lines, []
            parts = _parts(fields.get("op"), calls)
            if not parts:
                total_us = sum(stated_us(one, "time_us") for _, one in calls)
                found.skip("gradients of a convolution whose kernels do not tell them apart", time_us=total_us)
            for op, part in parts:
                _add(found, timing, disturbed, op, part)


def _parts(op: str, calls: Sequence[tuple[int, Fields]]) -> list[tuple[str, Sequence[tuple[int, Fields]]]]:
    """What a call computed, each with its launches; nothing where these do not tell two gradients apart."""
    if op in CONVOLUTIONS:
        return [(CONVOLUTIONS[op], calls)]
    names = [fields.get("kernel") for _, fields in calls]
    first = next((place for place, name in enumerate(names) if _WGRAD.search(name)), 0)
    if _SUM_OF_PRODUCTS in names[first]:
        first -= 1
    while first > 0 and "nchwtonhwc" in names[first - 1].lower():
        first -= 1
    return [("conv_bwd_inputs", calls[:first]), ("conv_bwd_weights", calls[first:])] if first > 0 else []


def _add(found: Import, timing: Timing, disturbed: float, op: str, calls: Sequence[tuple[int, Fields]]) -> None:
    line, first = calls[0]
    total_us = sum(stated_us(fields, "time_us") for _, fields in calls)
    if not all(first.get(name) for name in (*SIZES, *PAIRS)):
        found.skip("convolution whose sizes are not all stated", time_us=total_us)
        return
    times_us = [fields.time_us("time_us") for _, fields in calls]
    shortest_us = sum(fields.time_us("time_min_us" if fields.get("time_min_us") else "time_us") for _, fields in calls)
    if sum(times_us) >= disturbed * shortest_us:
        found.skip(f"launch that others disturbed: median {disturbed:g} times the shortest, or more", time_us=total_us)
        return
    stride, pad, dilation = (_pair(first, name) for name in PAIRS)
    if dilation != (1, 1):
        found.skip("dilated convolution", time_us=total_us)
        return
    images, channels, height, width, filters, filter_h, filter_w = (first.number(name) for name in SIZES)
    groups = first.number("groups") if first.get("groups") else 1
    shape = ConvolutionShape(images, channels, height, width, filters, filter_h, filter_w, pad, stride, groups)
    names = [fields.get("kernel") for _, fields in calls]
    multiplying = [place for place, name in enumerate(names) if not _TRANSPOSE.search(name)]
    longest = max(multiplying, key=lambda place: times_us[place], default=0)
    in_place = "nhwc" in names[longest].lower() and not any(map(_TRANSPOSE.search, names))
    layout, dtype = "nhwc" if in_place else "nchw", _dtype(first, names[longest])
    operation = Operation(op, shape.gemm, dtype, layout, extra=shape.columns)
    kernel = RecordedKernel(names[longest], times_us[longest])
    device = first.get("board") or first.get("gpu")
    found.add(first.where, line, operation, sum(times_us), device=device, kernel=kernel, timing=timing)


def _pair(fields: Fields, column: str) -> tuple[int, int]:
    text = fields.get(column)
    found = _PAIR.fullmatch(text)
    if not found:
        raise fields.refuse(column, f"expected ROWSxCOLUMNS, got '{excerpt(text)}'", "correct or empty it")
    return int(found[1]), int(found[2])


def _dtype(fields: Fields, kernel: str) -> Dtype | None:
    stated = fields.one_of("dtype", tuple(DTYPE_IN_KERNEL_NAME), unknown=("",))
    dtype = DTYPE_IN_KERNEL_NAME[stated] if stated else None
    return Dtype.TF32 if dtype is Dtype.FP32 and _TF32.search(kernel) else dtype
