"""The union of operators, and the parser of an operator from named values: table columns, YAML keys, arguments.

Every operator is a frozen record with ``op`` (its name in the measured CSV schema, which discriminates the union),
``dtype``, ``flops``, ``operand_bytes``, ``result_bytes``, ``size_bytes`` and ``columns``. Suites, importers, measured
rows, experiments and predictions share these records. A new operator is a record in a module of its own, a case of the
union and of :func:`parse_operator`, and a lowering; an elementwise function is a record of
:mod:`gpusim.workloads.functions` alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpusim.errors import excerpt
from gpusim.workloads.attention import ATTENTION_COLUMNS, ATTENTION_OPS, PROPERTIES, Attention
from gpusim.workloads.convolution import CONVOLUTION_OPS, GROUPS_COLUMN, SIZE_COLUMNS, Convolution, ConvolutionShape
from gpusim.workloads.functions import REDUCTIONS, SCHEMA_FUNCTIONS
from gpusim.workloads.gemm import GEMM_OPS, Gemm
from gpusim.workloads.memory_bound import (
    ACCESS_COLUMNS,
    MEMORY_BOUND_OPS,
    ColumnReduction,
    Pointwise,
    RowReduction,
    parse_accesses,
)
from gpusim.workloads.sizes import checked_size
from gpusim.workloads.vector import (
    VECTOR_OPS,
    Elementwise,
    LayerNorm,
    Reduction,
    Softmax,
    VectorOperator,
)

Operator = Gemm | Convolution | Attention | VectorOperator

OTHER_KEYS = {"accumulate": "acc_dtype", "output": "out_dtype", "output_dtype": "out_dtype"}
"""Columns of the measured CSV schema by their names in Python and on the command line."""
_SHAPE, _PAD, _STRIDE = SIZE_COLUMNS[:-4], SIZE_COLUMNS[-4:-2], SIZE_COLUMNS[-2:]
_EVERYWHERE: tuple[str, ...] = ("batch", "m", "n", "k", "dtype", "acc_dtype", "layout", "sparsity")
_OF_GEMMS: tuple[str, ...] = (
    *_EVERYWHERE,
    "out_dtype",
    "order",
    "bias",
    "b_dtype",
    "beta",
    "scales",
    "quantise",
    "group",
    "counts",
)
_OF_CONVOLUTIONS: tuple[str, ...] = (*_EVERYWHERE, *SIZE_COLUMNS, GROUPS_COLUMN)
_OF_ATTENTION: tuple[str, ...] = (*_EVERYWHERE, *ATTENTION_COLUMNS)
_OF_ACCESSES: tuple[str, ...] = (*_EVERYWHERE, *ACCESS_COLUMNS)
NO_GROUP = "none"
"""Group of weights in tables where a column has a scale."""
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}

OPS: tuple[str, ...] = (*GEMM_OPS, *CONVOLUTION_OPS, *ATTENTION_OPS, *VECTOR_OPS, *MEMORY_BOUND_OPS)
"""Names of operators in the measured CSV schema."""


def parse_operator(values: Mapping[str, Any]) -> Operator:
    """The operator with these values; None and empty text count as absent.

    ``op`` selects the operator; without it a matrix multiplication. Sizes may be integers or decimal
    text, types any of their names. Values that follow from others are accepted and ignored: ``m``, ``n`` and ``k`` of a
    convolution, ``k``, ``layout`` and ``acc_dtype`` of an operator on rows, ``dtype`` of one by its accesses.

    Raises:
        ValueError: a missing, unknown or invalid value; the text is one line.

    >>> parse_operator({"op": "softmax", "m": "128", "n": "1024", "dtype": "float32"})
    Softmax(m=128, n=1024, dtype=<Dtype.FP32: 'fp32'>)
    >>> parse_operator({"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp16"}).order
    'row'
    """
    given = {OTHER_KEYS.get(name, name): value for name, value in values.items() if value is not None and value != ""}
    op = str(given.pop("op", ""))
    if op and op not in OPS:
        raise ValueError(f"op: unknown '{excerpt(op)}'; {_nearest(op, OPS)}")
    read, known = _READERS.get(op, (_on_rows, _EVERYWHERE))
    if read is not _gemm and given.get("sparsity", "dense") != "dense":
        raise ValueError(f"sparsity: {op} is dense, got '{excerpt(str(given['sparsity']))}'")
    for name in given:
        if name not in known:
            raise ValueError(f"{excerpt(name)}: not an argument of {op or 'gemm'}; {_nearest(name, known)}")
    return read(op, given)


def operator_key(operator: Operator) -> str:
    """Identifier of an operator; stable across versions."""
    return "/".join(f"{name}={value}" for name, value in operator.columns.items() if value != "")


def _gemm(op: str, given: Mapping[str, Any]) -> Operator:
    m, n, k, dtype = (_needed(op, given, name) for name in ("m", "n", "k", "dtype"))
    return Gemm(
        m,
        n,
        k,
        dtype,
        batch=given.get("batch", 1),
        layout=given.get("layout", "tn"),
        sparsity=given.get("sparsity", "dense"),
        accumulate=given.get("acc_dtype", ""),
        order=given.get("order", ""),
        output=given.get("out_dtype", ""),
        op=op,
        bias=_truth(given, "bias"),
        b_dtype=given.get("b_dtype"),
        beta=_number(given, "beta"),
        scales=str(given.get("scales", "")),
        quantise=str(given.get("quantise", "")),
        counts=_counts(given.get("counts", ())),
        group=None if given.get("group") in (None, NO_GROUP) else given["group"],
    )


def _counts(given: Any) -> Any:
    """Rows of groups, as a sequence or as text with blanks or commas between them."""
    return given.replace(",", " ").split() if isinstance(given, str) else tuple(given)


def _convolution(op: str, given: Mapping[str, Any]) -> Operator:
    images, channels, height, width, filters, filter_h, filter_w = (
        checked_size(name, _needed(op, given, name)) for name in _SHAPE
    )
    pad_h, pad_w = (0 if str(given.get(name, 0)) == "0" else checked_size(name, given[name]) for name in _PAD)
    stride_h, stride_w = (checked_size(name, given.get(name, 1)) for name in _STRIDE)
    pad, stride = (pad_h, pad_w), (stride_h, stride_w)
    groups = checked_size(GROUPS_COLUMN, given.get(GROUPS_COLUMN, 1))
    shape = ConvolutionShape(images, channels, height, width, filters, filter_h, filter_w, pad, stride, groups)
    return Convolution(shape, _needed(op, given, "dtype"), op, given.get("layout", "nhwc"))


def _attention(op: str, given: Mapping[str, Any]) -> Operator:
    batch, heads = given.get("batch", 1), given.get("heads", 1)
    m, k, dtype = (_needed(op, given, name) for name in ("m", "k", "dtype"))
    n = given.get("n", m)
    chosen: dict[str, Any] = {name: _truth(given, name) for name in (*PROPERTIES, "alibi")}
    chosen |= {name: given.get(name) for name in ("page_tokens", "window", "key_heads", "kv_dtype")}
    chosen |= {name: given.get(name) or "" for name in ("mask_by", "implementation")}
    return Attention(batch, heads, m, n, k, dtype, op, **chosen)


def _on_rows(op: str, given: Mapping[str, Any]) -> Operator:
    m, n, dtype = (_needed(op, given, name) for name in ("m", "n", "dtype"))
    m = checked_size("m", m) * checked_size("batch", given.get("batch", 1))
    if op in SCHEMA_FUNCTIONS:
        return Elementwise(m, n, dtype, op)
    if op in REDUCTIONS:
        return Reduction(m, n, dtype, op)
    return Softmax(m, n, dtype) if op == "softmax" else LayerNorm(m, n, dtype)


def _touching(op: str, given: Mapping[str, Any]) -> Operator:
    function, m, n = (_needed(op, given, name) for name in ("function", "m", "n"))
    reads, writes = parse_accesses(str(given.get("reads", ""))), parse_accesses(str(_needed(op, given, "writes")))
    if op == "pointwise":
        elements = checked_size("m", m) * checked_size("n", n)
        return Pointwise(tuple(function.split("+")), elements, reads, writes)
    if op == "column_reduction":
        return ColumnReduction(function, m, n, reads, writes)
    reduction, *fused = function.split("+")
    return RowReduction(reduction, m, n, reads, writes, tuple(fused))


_READERS: dict[str, tuple[Callable[[str, Mapping[str, Any]], Operator], tuple[str, ...]]] = {
    **dict.fromkeys(("", *GEMM_OPS), (_gemm, _OF_GEMMS)),
    **dict.fromkeys(CONVOLUTION_OPS, (_convolution, _OF_CONVOLUTIONS)),
    **dict.fromkeys(ATTENTION_OPS, (_attention, _OF_ATTENTION)),
    **dict.fromkeys(MEMORY_BOUND_OPS, (_touching, _OF_ACCESSES)),
}
"""How operators are read by op, and from which arguments; others are functions on rows."""


def _number(given: Mapping[str, Any], name: str) -> float:
    text = given.get(name, 0.0)
    try:
        return float(text)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected a number, got '{excerpt(str(text))}'") from None


def _truth(given: Mapping[str, Any], name: str) -> bool:
    text = str(given.get(name, "no")).lower()
    if text not in _TRUTH:
        raise ValueError(f"{name}: expected yes or no, got '{excerpt(text)}'")
    return _TRUTH[text]


def _needed(op: str, given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        raise ValueError(f"{name}: missing; {op or 'gemm'} requires it")
    return given[name]


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}"
