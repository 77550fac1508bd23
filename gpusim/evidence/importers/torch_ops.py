"""PyTorch operators as rows of the measured schema, from the shapes that a profiler recorded.

Frameworks write rows where BLAS writes columns: in BLAS terms their second operand is the first, so the first
letter of a layout is the second operand's (``linear``, whose weight lies as [n, k], is ``tn``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpusim.errors import excerpt
from gpusim.evidence.importers.kernel_names import converting, product_kernel
from gpusim.evidence.importers.rows import Import, Operation, RecordedKernel, Timing
from gpusim.evidence.importers.torch_strides import Operand, accesses, broadcast_sizes
from gpusim.numbers.formats import DTYPE_IN_TRACE, Dtype, promoted
from gpusim.units import LARGEST_SIZE
from gpusim.workloads.convolution import ConvolutionShape
from gpusim.workloads.functions import SCHEMA_FUNCTIONS
from gpusim.workloads.memory_bound import Access

Shape = tuple[int, ...]

PRODUCTS = {
    "aten::mm": 0,
    "aten::_int_mm": 0,
    "aten::_scaled_mm": 0,
    "aten::bmm": 0,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
}
"""Operators that multiply two of their inputs, and the index of the first."""
CONVOLUTIONS = ("aten::cudnn_convolution", "aten::_convolution", "aten::convolution", "aten::conv2d")
VECTORS = {
    "aten::_softmax": "softmax",
    "aten::native_layer_norm": "layernorm",
    **{f"aten::{op}": name for name, function in SCHEMA_FUNCTIONS.items() for op in function.aten},
}
"""Operators on rows; names with a trailing underscore work in place."""
UNKNOWN_GEOMETRY = "backward convolution without Concrete Inputs: padding and stride unknown"
OTHER_CONVOLUTIONS = {
    "aten::cudnn_convolution_transpose": "transposed convolution",
    "aten::convolution_backward": "backward convolution: one call, two operators",
    "aten::cudnn_convolution_backward_input": UNKNOWN_GEOMETRY,  # both before PyTorch 1.11
    "aten::cudnn_convolution_backward_weight": UNKNOWN_GEOMETRY,
}
"""Convolutions that make no row, with the reason."""
COPIES = ("aten::copy_", "aten::fill_")
"""Called within other operators to change the layout of an operand; their kernels do not count as the operator's."""
KNOWN = frozenset((*PRODUCTS, *CONVOLUTIONS, *VECTORS, *OTHER_CONVOLUTIONS))

MOST_DIMENSIONS = 64
"""Dimensions that a tensor has in PyTorch at most (``dim_bitset_size``, ATen/WrapDimUtilsMulti.h)."""
_PAIR = re.compile(r"\[\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator with what was recorded of its inputs, in their order."""

    name: str
    within: tuple[str, ...]
    """Operators that called it."""
    dims: tuple[Shape, ...]
    types: tuple[str, ...] = ()
    strides: tuple[Shape, ...] = ()
    concrete: tuple[str, ...] = ()
    """Values of inputs that are not tensors, as text."""


def add_call(
    found: Import,
    where: str,
    line: int,
    call: Call,
    kernels: Sequence[RecordedKernel],
    device: str,
    timing: Timing | None = None,
) -> None:
    """Add the row of one call and the kernels that it launched, or skip it with the reason.

    An extra column ``kernels`` has their number: split-K adds a reduction, a convolution transforms of its operands.
    """
    operation = _operation(call)
    time_us = math.fsum(kernel.time_us for kernel in kernels)
    if isinstance(operation, str):
        found.skip(operation, len(kernels), time_us)
        return
    stated = next(iter(call.types[PRODUCTS.get(call.name, 0) :]), "")
    if operation.dtype is None and stated:
        found.skip(f"{operation.op} of type {excerpt(stated)}, outside the schema", len(kernels), time_us)
        return
    if not time_us:
        found.skip("operator of no length: the trace has whole microseconds", len(kernels))
        return
    names = [product_kernel(kernel.name) for kernel in kernels]
    index = max(range(len(kernels)), key=lambda one: (names[one] is not None, kernels[one].time_us))
    fact = names[index]
    if fact and fact.converts_to:
        found.skip(converting(fact), len(kernels), time_us)
        return
    dtype = operation.dtype or (fact.dtype if fact else None)
    if fact and dtype and fact.dtype is dtype.on_tensor_cores:
        dtype = fact.dtype
    is_product = operation.op in ("linear", "bmm")
    operation = replace(
        operation,
        dtype=dtype,
        layout=operation.layout or (fact.layout if fact and is_product else ""),
        accumulate=fact.accumulate if fact else "",
        sparsity=fact.sparsity if fact else "dense",
        extra={**operation.extra, "kernels": str(len(kernels))},
    )
    kernel = replace(kernels[index], tile=fact.tile if fact and is_product else None)
    found.add(where, line, operation, time_us, device=device, kernel=kernel, timing=timing)


def _operation(call: Call) -> Operation | str:
    """The operator of a call, or the reason why it makes no row."""
    if not call.dims:
        return "operator without recorded shapes; profile with record_shapes=True"
    if not any(call.dims):
        return "operator on scalars alone"
    if call.name in OTHER_CONVOLUTIONS:
        return OTHER_CONVOLUTIONS[call.name]
    read = _product if call.name in PRODUCTS else _convolution if call.name in CONVOLUTIONS else _vector
    return read(call)


def _product(call: Call) -> Operation | str:
    """A (batched) matrix multiplication: [b,] m x k by [b,] k x n."""
    first = PRODUCTS[call.name]
    if len(call.dims) < first + 2:
        return f"{call.name} with fewer inputs than it takes"
    left, right = call.dims[first : first + 2]
    if len(left) not in (2, 3) or len(left) != len(right) or left[-1] != right[-2] or left[:-2] != right[:-2]:
        return f"{call.name} of shapes that do not multiply"
    if min(left + right) < 1:
        return "empty tensor"
    strides = call.strides[first : first + 2]
    letters = [_letter(one) for one in reversed(strides)]
    linear = call.name == "aten::addmm" or "aten::linear" in call.within
    batch = left[0] if len(left) == 3 else 1
    dtype = _dtype(call, first)
    layout = "".join(letters) if len(letters) == 2 and all(letters) else ""
    return Operation("linear" if linear else "bmm", (batch, left[-2], right[-1], left[-1]), dtype, layout)


def _letter(strides: Shape) -> str:
    """Layout of an operand: ``n`` by rows, ``t`` by columns, empty if neither is dense.

    >>> _letter((4096, 1)), _letter((1, 4096)), _letter((8192, 2))
    ('n', 't', '')
    """
    if len(strides) < 2:
        return ""
    return "n" if strides[-1] == 1 else "t" if strides[-2] == 1 else ""


def _dtype(call: Call, index: int) -> Dtype | None:
    return DTYPE_IN_TRACE.get(call.types[index]) if index < len(call.types) else None


def _convolution(call: Call) -> Operation | str:
    """A forward convolution in two dimensions."""
    if len(call.dims) < 2 or len(call.dims[0]) != 4 or len(call.dims[1]) != 4:
        return "convolution in other than two dimensions"
    if call.name in ("aten::_convolution", "aten::convolution") and call.concrete[6:7] == ("True",):
        return "transposed convolution"
    first = 2 if call.name == "aten::cudnn_convolution" else 3
    lists = [_pair(text) for text in call.concrete[first : first + 3]]
    match lists:
        case [(int(), int()) as before, (int(), int()) as between, (int(), int()) as dilation]:
            pad, stride = (before, between) if first == 2 else (between, before)
        case _:
            return "convolution without Concrete Inputs: padding and stride unknown"
    images, channels, height, width = call.dims[0]
    filters, filter_channels, filter_h, filter_w = call.dims[1]
    if min(*call.dims[0], *call.dims[1], *stride) < 1:
        return "empty tensor"
    groups = channels // filter_channels
    if dilation != (1, 1) or groups * filter_channels != channels or filters % groups:
        return "dilated convolution, or channels that filters do not match"
    shape = ConvolutionShape(images, channels, height, width, filters, filter_h, filter_w, pad, stride, groups)
    return Operation("conv_fwd", shape.gemm, _dtype(call, 0), _order(call.strides[:1]), extra=shape.columns)


def _order(strides: Sequence[Shape]) -> str:
    """Layout of images; PyTorch's default if no strides were recorded."""
    match strides:
        case [(_, 1, _, width)] if width > 1:
            return "nhwc"
    return "nchw"


def _pair(text: str) -> tuple[int, int] | None:
    """``[1, 2]`` as two numbers, ``[1]`` as the same number twice; None for other text."""
    found = _PAIR.fullmatch(text)
    return (int(found[1]), int(found[2] or found[1])) if found else None


def _vector(call: Call) -> Operation | str:
    """An operator on rows: of the last dimension, or of those that a layer norm has weights for."""
    op, shape = VECTORS[call.name], call.dims[0]
    if not shape or min(shape) < 1:
        return "empty tensor or scalar"
    if op in SCHEMA_FUNCTIONS:
        return _elementwise(call, op, SCHEMA_FUNCTIONS[op].operands)
    if op == "softmax" and call.concrete[1:2] not in ((), ("-1",), (str(len(shape) - 1),)):
        return "softmax along another dimension than the last"
    weights = call.dims[2] if op == "layernorm" and len(call.dims) > 2 else ()
    rank = len(weights) if weights and shape[-len(weights) :] == weights else 1
    return Operation(op, (1, math.prod(shape[:-rank]), math.prod(shape[-rank:]), None), _dtype(call, 0))


def _elementwise(call: Call, op: str, operands: int) -> Operation | str:
    """A function of every element: of dense tensors of one shape and type, or with what it touches of each."""
    dims, strides, types = call.dims[:operands], call.strides[:operands], call.types[:operands]
    if len(dims) < operands or not all(dims):
        return f"{op} of a tensor and a number"
    sizes = broadcast_sizes(*dims)
    if sizes is None:
        return f"{op} of tensors of different shapes"
    if min(sizes) < 1:
        return "empty tensor or scalar"
    dtypes = [DTYPE_IN_TRACE.get(name) for name in types]
    named = [dtype for dtype in dtypes if dtype]
    laid = [*strides, *((),) * (operands - len(strides))]
    # Where no type is recorded, all are of the type that an option names.
    given = named if len(named) == operands else [Dtype.FP32] * operands
    reads = accesses([Operand(*one) for one in zip(dims, laid, given, strict=True)], sizes)
    if len(set(types)) <= 1 and not any(access.run or access.distinct for access in reads):
        return Operation(op, (1, math.prod(sizes[:-1]), sizes[-1], None), _dtype(call, 0))
    if len(named) < operands:
        unknown = next((name for name, dtype in zip(types, dtypes, strict=True) if name and not dtype), "")
        return f"{op} of type {excerpt(unknown)}, outside the schema" if unknown else f"{op} of tensors without types"
    dtype = promoted(named)
    in_place = call.name.endswith("_")
    written = replace(reads[0], distinct=None) if in_place else Access(math.prod(sizes), dtype)
    columns = {"function": op, "reads": ", ".join(map(str, reads)), "writes": str(written)}
    return Operation("pointwise", (1, math.prod(sizes), 1, None), written.dtype, extra=columns)


def shapes_of(value: Any) -> tuple[Shape, ...]:
    """A JSON list of shapes; what is not a list of sizes (a list of tensors, say) counts as no shape."""
    if not isinstance(value, list):
        return ()
    return tuple(tuple(shape) if _is_shape(shape) else () for shape in value)


def _is_shape(value: Any) -> bool:
    """Whether a JSON value is what a tensor may have as sizes or strides."""
    return (
        isinstance(value, list)
        and len(value) <= MOST_DIMENSIONS
        and all(isinstance(size, int) and abs(size) <= LARGEST_SIZE for size in value)
    )
