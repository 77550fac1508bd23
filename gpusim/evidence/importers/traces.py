"""Tables of launches that were read out of traces of frameworks: a line for each kernel, beside its operator.

Columns: ``board`` (or ``gpu``), ``op`` (mm, addmm, bmm), ``batch``, ``m``, ``n``, ``k``, ``dtype`` (of the tensors),
``layout``, ``kernel``, ``grid`` and ``block`` (``16x8x1``), ``time_us`` (the median), ``time_min_us``, ``cuda``,
``source``. The kernel that multiplies makes the row; a split-K reduction on the next line joins it, other kernels of
the operator are counted. Convolutions: :mod:`gpusim.evidence.importers.trace_convolutions`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.kernel_names import NO_PRODUCT, converting, is_reduction, product_kernel
from gpusim.evidence.importers.rows import Import, ImportOptions, Operation, RecordedKernel, Timing, stated_us
from gpusim.evidence.importers.trace_convolutions import Launches, is_convolution
from gpusim.evidence.measured import cuda_of
from gpusim.numbers.formats import DTYPE_IN_KERNEL_NAME
from gpusim.workloads.gemm import LAYOUTS

SHAPE = ("source", "op", "batch", "m", "n", "k")
"""Columns by which lines belong to one operator."""
REQUIRED = ("op", "batch", "m", "n", "k", "dtype", "kernel", "grid", "time_us")
PRODUCTS = {"mm": "bmm", "bmm": "bmm", "baddbmm": "bmm", "addmm": "linear"}
"""Operators that multiply, and what the schema calls them."""
TIMING = Timing("profiler", "cold", "traces")
DISTURBED = 1.5
"""Median of an operator's launches over their shortest, from which on others ran beside them."""
WHOLE_US_ERROR_US = 0.5
"""Mean deviation of a time that a trace cut off to whole microseconds."""
_EXTENT = re.compile(r"(\d{1,10})x(\d{1,10})x(\d{1,10})", re.ASCII)


def read(path: Path, options: ImportOptions) -> Import:
    """The matrix multiplications and convolutions of a table of launches."""
    found = Import(str(path), options, TIMING)
    convolution = Launches()
    product: list[str] | None = None  # the operator of the last row, until it is complete
    for line, fields in csv_fields(
        str(path), read_text(path), lambda where, names: header_with(REQUIRED, where, names)
    ):
        op, of = fields.get("op"), [fields.get(column) for column in SHAPE]
        if is_convolution(op):
            convolution.take(found, timing_of(fields), DISTURBED, line, fields)
        elif op not in PRODUCTS:
            found.skip(
                f"operator {excerpt(op) or 'empty'} is neither a GEMM nor a convolution",
                time_us=stated_us(fields, "time_us"),
            )
        elif of == product and is_reduction(fields.get("kernel")):
            row = found.rows[-1]
            found.rows[-1] = replace(row, time_us=row.time_us + fields.time_us("time_us"))
            product = None
        else:
            product = of if _add(found, line, fields, PRODUCTS[op]) else None
    return found


def _add(found: Import, line: int, fields: Fields, op: str) -> bool:
    """Add the row of one launch, unless it multiplies something else or others disturbed it; whether it did."""
    name = fields.get("kernel")
    fact = product_kernel(name)
    if fact is None:
        found.skip(NO_PRODUCT, time_us=stated_us(fields, "time_us"))
        return False
    if fact.converts_to:
        found.skip(converting(fact), time_us=stated_us(fields, "time_us"))
        return False
    time_us = fields.time_us("time_us")
    shortest_us = fields.time_us("time_min_us") if fields.get("time_min_us") else time_us
    if time_us >= DISTURBED * shortest_us:
        found.skip(f"launch that others disturbed: median {DISTURBED:g} times the shortest, or more", time_us=time_us)
        return False
    stated = fields.one_of("dtype", tuple(DTYPE_IN_KERNEL_NAME), unknown=("",))
    dtype = DTYPE_IN_KERNEL_NAME[stated] if stated else fact.dtype
    if dtype and fact.dtype is dtype.on_tensor_cores:
        dtype = fact.dtype  # tensors of FP32 that are multiplied as TF32
    batch, m, n, k = (fields.number(size) for size in ("batch", "m", "n", "k"))
    grid = _extent(fields, "grid")
    if grid and not fact.covers(grid, batch * m * n):
        found.skip("launch whose tiles do not cover the GEMM: of another operator, or of a part of it", time_us=time_us)
        return False
    layout = fields.one_of("layout", LAYOUTS, unknown=("",)) or fact.layout
    operation = Operation(op, (batch, m, n, k), dtype, layout, fact.accumulate, fact.sparsity)
    kernel = RecordedKernel(name, time_us, grid, _threads(fields), fact.tile)
    device = fields.get("board") or fields.get("gpu")
    found.add(fields.where, line, operation, time_us, device=device, kernel=kernel, timing=timing_of(fields))
    return True


def timing_of(fields: Fields) -> Timing:
    """How a line was timed."""
    shortest_us = fields.time_us("time_min_us" if fields.get("time_min_us") else "time_us")
    timer_us = WHOLE_US_ERROR_US if shortest_us % 1 == 0 else None
    return replace(TIMING, source=fields.get("source") or TIMING.source, cuda=cuda_of(fields), timer_us=timer_us)


def _extent(fields: Fields, column: str) -> tuple[int, int, int] | None:
    """Three numbers such as ``16x8x1``; None where the column is empty."""
    text = fields.get(column)
    found = _EXTENT.fullmatch(text)
    if text and not found:
        raise fields.refuse(column, f"expected XxYxZ, got '{excerpt(text)}'", "correct or empty it")
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def _threads(fields: Fields) -> int | None:
    block = _extent(fields, "block")
    return block[0] * block[1] * block[2] if block else None
