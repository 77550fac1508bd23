"""CUTLASS profiler: ``cutlass_profiler --operation=gemm ... --output=runs.csv`` gives ``runs.gemm.csv``.

Runtime is in milliseconds: CUDA events around many launches, whose operands rotate past L2. Columns:
tools/profiler/src/performance_report.cpp and gemm_operation_profiler.cu of https://github.com/NVIDIA/cutlass.
In rows, BLAS would swap the operands, and with them layout and tile; m, n and k stay as they are.
"""

from __future__ import annotations

from pathlib import Path

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.rows import Import, ImportOptions, Operation, RecordedKernel, Timing
from gpusim.numbers.formats import DTYPE_IN_KERNEL_NAME, FORMAT_IN_KERNEL_NAME, Dtype

REQUIRED = ("OperationKind", "Operation", "Disposition", "Status", "Runtime")
PRODUCTS = ("gemm", "spgemm")
TIMED = ("passed", "not_verified", "not_run")
"""Dispositions of runs that were timed: ``not_run`` speaks of the verification alone."""
LETTERS = {"column": "n", "row": "t"}


def read(path: Path, options: ImportOptions) -> Import:
    """The matrix multiplications that ran."""
    found = Import(str(path), options, Timing("stream", "cold", "cutlass-profiler"))
    for line, fields in csv_fields(str(path), read_text(path), _header):
        reason = _reason_to_skip(fields)
        if reason:
            found.skip(reason)
        else:
            _add(found, line, fields)
    return found


def _header(where: str, names: list[str]) -> list[str]:
    return header_with(REQUIRED, where, names)


def _reason_to_skip(fields: Fields) -> str:
    """Why a line is not a timed matrix multiplication; empty where it is one."""
    kind, status, disposition = (fields.get(column) for column in ("OperationKind", "Status", "Disposition"))
    (a_type, a_order), (b_type, b_order) = _operand(fields, "A"), _operand(fields, "B")
    of_fp32 = DTYPE_IN_KERNEL_NAME.get(a_type) is Dtype.FP32 and fields.get("op_class").endswith("tensorop")
    strange = [order for order in (a_order, b_order, _operand(fields, "C")[1]) if order not in LETTERS]
    reasons = {
        f"operation kind {kind or 'empty'} is not a matrix multiplication": kind not in PRODUCTS,
        f"status {status or 'empty'}": status != "success",
        f"disposition {disposition or 'empty'}": disposition not in TIMED,
        "not timed": fields.get("Runtime") in ("", "0"),
        "operands of two types": DTYPE_IN_KERNEL_NAME.get(a_type) is not DTYPE_IN_KERNEL_NAME.get(b_type),
        f"operands of type {a_type or 'empty'}": a_type not in DTYPE_IN_KERNEL_NAME,
        "complex numbers": fields.get("gemm_kind").startswith("planar_complex"),
        # There is no FP32 Tensor Core. Kernels that round to TF32 say so; the others round to FP16 or BF16, or add
        # up several products for the precision of FP32.
        "FP32 operands multiplied in another type than TF32": of_fp32 and "tf32gemm" not in fields.get("Operation"),
        f"operand order {' '.join(strange) or 'empty'}": bool(strange),
    }
    return next((excerpt(reason) for reason, holds in reasons.items() if holds), "")


def _add(found: Import, line: int, fields: Fields) -> None:
    """Add one timed line."""
    element, a_order = _operand(fields, "A")
    _, b_order = _operand(fields, "B")
    _, c_order = _operand(fields, "C")
    rows = c_order == "row"
    # In rows the column-major GEMM is C' = B' A': the second operand comes first, each seen transposed.
    layout = "".join("t" if order == "column" else "n" for order in (b_order, a_order))
    if not rows:
        layout = LETTERS[a_order] + LETTERS[b_order]
    warps = [fields.whole(f"warps_{axis}") for axis in "mnk"]
    dtype = DTYPE_IN_KERNEL_NAME[element]
    if fields.get("op_class").endswith("tensorop"):
        dtype = dtype.on_tensor_cores
    sparse = fields.get("OperationKind") == "spgemm" or fields.get("op_class") == "sptensorop"
    threads = 32 * (warps[0] or 1) * (warps[1] or 1) * (warps[2] or 1) if warps[0] else None
    m, n, k = (fields.number(column) for column in "mnk")
    operation = Operation(
        "gemm",
        (fields.whole("batch_count") or 1, m, n, k),
        dtype,
        layout=layout,
        accumulate=FORMAT_IN_KERNEL_NAME.get(fields.get("accum"), ""),
        sparsity="2:4" if sparse else "dense",
        order="row" if rows else "column",
        extra={column: fields.get(column) for column in ("Provider", "split_k_slices", "stages") if fields.get(column)},
    )
    kernel = RecordedKernel(fields.get("Operation"), 0.0, threads=threads, tile=_tile(fields, rows=rows))
    found.add(fields.where, line, operation, fields.time_us("Runtime", "ms"), kernel=kernel)


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
