"""CUTLASS profiler: ``cutlass_profiler --operation=gemm,conv2d ... --output=runs.csv``, or what it prints.

The profiler writes ``runs.gemm.csv`` and ``runs.conv2d.csv``. Runtime is in milliseconds: CUDA events around many
launches, whose operands rotate past L2. Columns: performance_report.cpp, gemm_operation_profiler.cu and
conv2d_operation_profiler.cu of https://github.com/NVIDIA/cutlass, tools/profiler/src.
In rows, BLAS would swap the operands, and with them layout and tile; m, n and k stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.kernel_names import converting, product_kernel
from gpusim.evidence.importers.rows import Import, ImportOptions, Operation, RecordedKernel, Timing, stated_us
from gpusim.numbers.formats import DTYPE_IN_KERNEL_NAME, FORMAT_IN_KERNEL_NAME, Dtype
from gpusim.workloads.convolution import ConvolutionShape

REQUIRED = ("OperationKind", "Operation", "Disposition", "Status", "Runtime")
PRODUCTS = ("gemm", "spgemm")
CONVOLUTION = "conv2d"
CONVOLUTIONS = {"fprop": "conv_fwd", "dgrad": "conv_bwd_inputs", "wgrad": "conv_bwd_weights"}
IMAGES = ("n", "c", "h", "w", "k", "r", "s")
"""Columns of images, channels, height, width, filters, and height and width of a filter."""
TIMED = ("passed", "not_verified", "not_run")
"""Dispositions of runs that were timed: ``not_run`` speaks of the verification alone."""
LETTERS = {"column": "n", "row": "t"}
_HEADER = re.compile(r"^.*\bProblem,Provider,OperationKind,", re.MULTILINE)


def read(path: Path, options: ImportOptions) -> Import:
    """The matrix multiplications and convolutions that ran."""
    found = Import(str(path), options, Timing("stream", "cold", "cutlass-profiler"))
    for table in _tables(read_text(path)):
        for line, fields in csv_fields(str(path), table, _header):
            reason = _reason_to_skip(fields)
            if reason:
                found.skip(reason, time_us=stated_us(fields, "Runtime", "ms"))
            elif fields.get("OperationKind") == CONVOLUTION:
                _add_convolution(found, line, fields)
            else:
                _add(found, line, fields)
    return found


def _tables(text: str) -> Iterator[str]:
    """The tables of a file; one of each kind of operation follows the rest in what the profiler prints.

    What else is printed becomes empty lines, so that lines keep their numbers.
    """
    headers = [header.start() for header in _HEADER.finditer(text)]
    if headers in ([], [0]):
        yield text
        return
    for start, end in zip(headers, [*headers[1:], len(text)], strict=True):
        lines = text[start:end].splitlines(keepends=True)
        yield "\n" * text.count("\n", 0, start) + "".join(line if "," in line else "\n" for line in lines)


def _header(where: str, names: list[str]) -> list[str]:
    return header_with(REQUIRED, where, names)


def _reason_to_skip(fields: Fields) -> str:
    """Why a line is not a timed operator of the schema; empty where it is one."""
    kind, status, disposition = (fields.get(column) for column in ("OperationKind", "Status", "Disposition"))
    reasons = {
        f"operation kind {kind or 'empty'} is neither a matrix multiplication nor a convolution of images": kind
        not in (*PRODUCTS, CONVOLUTION),
        f"status {status or 'empty'}": status != "success",
        f"disposition {disposition or 'empty'}": disposition not in TIMED,
        "not timed": fields.get("Runtime") in ("", "0"),
        "complex numbers": fields.get("gemm_kind").startswith("planar_complex"),
        **(_of_convolution(fields) if kind == CONVOLUTION else _of_product(fields)),
    }
    return next((excerpt(reason) for reason, holds in reasons.items() if holds), "")


def _of_product(fields: Fields) -> dict[str, bool]:
    orders = [_operand(fields, column)[1] for column in "ABC"]
    strange = [order for order in orders if order not in LETTERS]
    return {
        **_of_types(fields, _operand(fields, "A")[0], _operand(fields, "B")[0]),
        f"operand order {' '.join(strange) or 'empty'}": bool(strange),
    }


def _of_convolution(fields: Fields) -> dict[str, bool]:
    kind, order = fields.get("conv_kind"), _operand(fields, "Activation")[1]
    return {
        f"convolution of kind {kind or 'empty'}": kind not in CONVOLUTIONS,
        f"images in order {order or 'empty'}": order not in ("nhwc", "nchw"),
        "dilated convolution": any(fields.get(f"dilation_{axis}") not in ("", "1") for axis in "hw"),
        **_of_types(fields, _operand(fields, "Activation")[0], _operand(fields, "Filter")[0]),
    }


def _of_types(fields: Fields, one: str, other: str) -> dict[str, bool]:
    """Types that a kernel cannot multiply, or not without converting them.

    There is no Tensor Core for FP32: kernels that multiply it convert on the way, or add up several products for
    its precision. On Hopper the instruction itself reads FP32 as TF32.
    """
    name = fields.get("Operation")
    of_fp32 = DTYPE_IN_KERNEL_NAME.get(one) is Dtype.FP32 and fields.get("op_class").endswith("tensorop")
    fact = product_kernel(name.replace("fprop", "gemm").replace("dgrad", "gemm").replace("wgrad", "gemm"))
    converts = fact is not None and fact.converts_to is not None
    return {
        "operands of two types": DTYPE_IN_KERNEL_NAME.get(one) is not DTYPE_IN_KERNEL_NAME.get(other),
        f"operands of type {one or 'empty'}": one not in DTYPE_IN_KERNEL_NAME,
        converting(fact) if fact else "": of_fp32 and converts,
        "FP32 operands multiplied in several products": of_fp32 and "tf32gemm" not in name,
    }


def _add(found: Import, line: int, fields: Fields) -> None:
    """Add one timed matrix multiplication."""
    element, a_order = _operand(fields, "A")
    _, b_order = _operand(fields, "B")
    _, c_order = _operand(fields, "C")
    rows = c_order == "row"
    # In rows the column-major GEMM is C' = B' A': the second operand comes first, each seen transposed.
    layout = "".join("t" if order == "column" else "n" for order in (b_order, a_order))
    if not rows:
        layout = LETTERS[a_order] + LETTERS[b_order]
    sparse = fields.get("OperationKind") == "spgemm" or fields.get("op_class") == "sptensorop"
    m, n, k = (fields.number(column) for column in "mnk")
    operation = Operation(
        "gemm",
        (fields.whole("batch_count") or 1, m, n, k),
        _dtype(fields, element),
        layout=layout,
        accumulate=FORMAT_IN_KERNEL_NAME.get(fields.get("accum"), ""),
        sparsity="2:4" if sparse else "dense",
        order="row" if rows else "column",
        extra={column: fields.get(column) for column in ("Provider", "split_k_slices", "stages") if fields.get(column)},
    )
    kernel = RecordedKernel(fields.get("Operation"), 0.0, threads=_threads(fields), tile=_tile(fields, rows=rows))
    found.add(fields.where, line, operation, fields.time_us("Runtime", "ms"), kernel=kernel)


def _add_convolution(found: Import, line: int, fields: Fields) -> None:
    """Add one timed convolution."""
    element, order = _operand(fields, "Activation")
    images, channels, height, width, filters, filter_h, filter_w = (fields.number(column) for column in IMAGES)
    pads = [int(fields.quantity(f"pad_{axis}", height + width) or 0) for axis in "hw"]
    strides = [fields.whole(f"stride_{axis}") or 1 for axis in "hw"]
    groups = fields.whole("g") or 1
    shape = ConvolutionShape(
        *(images, channels, height, width, filters, filter_h, filter_w),
        *((pads[0], pads[1]), (strides[0], strides[1]), groups),
    )
    operation = Operation(
        CONVOLUTIONS[fields.get("conv_kind")],
        shape.gemm,
        _dtype(fields, element),
        order,
        FORMAT_IN_KERNEL_NAME.get(fields.get("accum"), ""),
        extra=shape.columns,
    )
    kernel = RecordedKernel(fields.get("Operation"), 0.0, threads=_threads(fields))
    found.add(fields.where, line, operation, fields.time_us("Runtime", "ms"), kernel=kernel)


def _dtype(fields: Fields, element: str) -> Dtype:
    dtype = DTYPE_IN_KERNEL_NAME[element]
    return dtype.on_tensor_cores if fields.get("op_class").endswith("tensorop") else dtype


def _threads(fields: Fields) -> int | None:
    warps = [fields.whole(f"warps_{axis}") for axis in "mnk"]
    return 32 * (warps[0] or 1) * (warps[1] or 1) * (warps[2] or 1) if warps[0] else None


def _tile(fields: Fields, *, rows: bool) -> tuple[int, int] | None:
    """Tile of the column-major GEMM; None where the line does not state it."""
    m, n = fields.whole("cta_m"), fields.whole("cta_n")
    if m is None or n is None:
        return None
    return (n, m) if rows else (m, n)


def _operand(fields: Fields, column: str) -> tuple[str, str]:
    """Element type and order of an operand such as ``f16:column``."""
    element, _, order = fields.get(column).partition(":")
    return element, order
