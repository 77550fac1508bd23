"""Softmax, norms of rows and of weights, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpusim.models.aten.access import reduction, spread, whole
from gpusim.models.aten.call import Call, Operand, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.memory_bound import ColumnReduction, RowReduction

# Softmax ------------------------------------------------------------------------------------------


@lowers("_softmax", kind="softmax")
def _softmax(launches: Launches, call: Call) -> None:
    softmax(launches, "softmax", call.tensors[:1], call.returned[0], call.arguments.get("dim", -1))


@lowers("_log_softmax", kind="log_softmax")
def _log_softmax(launches: Launches, call: Call) -> None:
    softmax(launches, "log_softmax", call.tensors[:1], call.returned[0], call.arguments.get("dim", -1))


@lowers("_safe_softmax", kind="softmax")
def _safe_softmax(launches: Launches, call: Call) -> None:
    """Rows of which all is masked become zeros, by calls of their own (aten/src/ATen/native/SoftMax.cpp)."""
    value, result = call.tensors[0], call.returned[0]
    softmax(launches, "softmax", [value], result, call.arguments.get("dim", -1))
    masked = launches.temporary(value.shape, "bool")
    launches.elementwise(("mask",), [value], [masked], "eq")
    whole_row = launches.temporary((*value.shape[:-1], 1), "bool")
    launches.launch(reduction("max", masked, [whole_row], (-1,)), [masked], [whole_row], "all")
    launches.elementwise(("mask",), [whole_row, result], [result], "where")


@lowers("_softmax_backward_data", kind="softmax_backward")
def _softmax_backward(launches: Launches, call: Call) -> None:
    gradient, result = call.tensors[:2]
    softmax_gradient(launches, gradient, result, call.returned[0], call.arguments.get("dim", -1))


@lowers("_log_softmax_backward_data", kind="log_softmax_backward")
def _log_softmax_backward(launches: Launches, call: Call) -> None:
    softmax(launches, "log_softmax_backward", call.tensors[:2], call.returned[0], call.arguments.get("dim", -1))


def softmax(
    launches: Launches,
    function: str,
    reads: Sequence[TensorView],
    result: TensorView,
    dim: int,
    kind: str | None = None,
) -> None:
    """Softmax along a dimension of contiguous tensors. Where rows lie apart, neighbouring threads take neighbours."""
    reads = [launches.contiguous(one) for one in reads]
    n = result.shape[dim] if result.shape else 1
    accesses = tuple(map(whole, reads))
    launches.launch(RowReduction(function, result.elements // n, n, accesses, (whole(result),)), reads, [result], kind)


def softmax_gradient(
    launches: Launches,
    gradient: TensorView,
    result: TensorView,
    given: TensorView,
    dim: int,
    kind: str | None = None,
) -> None:
    """The gradient of softmax: that of the result is multiplied with it by a kernel of its own (SoftMax.cu)."""
    product = launches.temporary(result.shape, gradient.dtype_name)
    launches.elementwise(("mul",), [gradient, result], [product], kind)
    softmax(launches, "softmax_backward", [product, result], given, dim, "")


# Norms of rows ------------------------------------------------------------------------------------


@lowers("native_layer_norm", kind="layer_norm")
def _layer_norm(launches: Launches, call: Call) -> None:
    """Mean and reciprocal deviation are kept for the gradient."""
    value, *weights = call.tensors
    rows_of(launches, "layer_norm", launches.contiguous(value), weights, call.returned, _length(call))


@lowers("native_layer_norm_backward", kind="layer_norm_backward")
def _layer_norm_backward(launches: Launches, call: Call) -> None:
    _norm_backward(launches, call, "layer_norm_backward", call.operands[-2])


@lowers("_fused_rms_norm", "rms_norm", kind="layer_norm")
def _rms_norm(launches: Launches, call: Call) -> None:
    value, *weights = call.tensors
    rows_of(launches, "rms_norm", launches.contiguous(value), weights, call.returned, _length(call))


@lowers("_fused_rms_norm_backward", kind="layer_norm_backward")
def _rms_norm_backward(launches: Launches, call: Call) -> None:
    _norm_backward(launches, call, "rms_norm_backward", call.operands[-1])


def _norm_backward(launches: Launches, call: Call, function: str, weight: Operand) -> None:
    """The gradient of the rows, then those of weight and bias together."""
    gradient, value = (launches.contiguous(one) for one in call.tensors[:2])
    length = _length(call)
    weights = [weight] if isinstance(weight, TensorView) else []
    given, *of_weights = call.results
    if given is not None and given.elements:
        rows_of(launches, function, gradient, [value, *weights], [given], length)
    held = [one for one in of_weights if one is not None and one.elements]
    if held:
        operator = ColumnReduction(
            "norm_weight_gradients",
            value.elements // length,
            length,
            (whole(gradient), whole(value)),
            tuple(map(whole, held)),
        )
        launches.launch(operator, [gradient, value], held)


def rows_of(
    launches: Launches,
    function: str,
    value: TensorView,
    others: Sequence[TensorView],
    writes: Sequence[TensorView],
    length: int,
) -> None:
    """A norm of rows; what is as short as a row is broadcast."""
    reads = (whole(value), *(spread(one, value.elements) for one in others))
    operator = RowReduction(function, value.elements // length, length, reads, tuple(map(whole, writes)))
    launches.launch(operator, [value, *others], writes)


def _length(call: Call) -> int:
    return math.prod(call.arguments.get("normalized_shape", [1]))


# Norms of weights ---------------------------------------------------------------------------------


@lowers("_weight_norm_interface", kind="weight_norm")
def _weight_norm(launches: Launches, call: Call) -> None:
    """The norm of each filter, then filters in proportion to it (aten/src/ATen/native/cuda/WeightNorm.cu)."""
    weight, size = call.tensors[:2]
    result, norms = call.returned[:2]
    _of_filters(launches, call, [weight], norms)
    launches.elementwise(("div", "mul"), [weight, size, norms], [result], "")


@lowers("_weight_norm_interface_backward", kind="weight_norm_backward")
def _weight_norm_backward(launches: Launches, call: Call) -> None:
    gradient, weight, size, norms = call.tensors[:4]
    given, of_size = call.returned[:2]
    _of_filters(launches, call, [gradient, weight], of_size)
    launches.elementwise(("mul", "sub", "mul"), [gradient, weight, size, norms, of_size], [given], "")


def _of_filters(launches: Launches, call: Call, reads: Sequence[TensorView], result: TensorView) -> None:
    """A sum over all dimensions but that of the filters."""
    kept = call.arguments.get("dim", 0)
    dims = [dim for dim in range(len(reads[0].shape)) if dim != kept % len(reads[0].shape)]
    launches.launch(reduction("norm", reads[0], [result], dims, reads[1:]), reads, [result])
