"""Softmax, and norms of rows, of channels and of groups of channels, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpusim.models.aten.access import reduction, spread, suggests_channels_last, whole
from gpusim.models.aten.call import Call, Operand, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.functions import Chain
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction

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


# Norms of channels --------------------------------------------------------------------------------


@lowers(
    *("cudnn_batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
    *("_batch_norm_with_update", "_batch_norm_no_update"),
    kind="batch_norm",
)
def _batch_norm(launches: Launches, call: Call) -> None:
    """Channels normalised by their statistics over the batch, or by those that training has left."""
    images, weight, bias, *running = call.operands
    assert isinstance(images, TensorView)
    affine = [one for one in (weight, bias) if isinstance(one, TensorView)]
    result = call.returned[0]
    images = launches.dense(images)
    training = call.arguments.get("training", call.base == "_batch_norm_with_update")
    channels = images.shape[1]
    if not training:
        statistics = _together([one for one in running if isinstance(one, TensorView)][:2])
        values = [images, *affine, *statistics]
        reads = tuple(spread(one, result.elements) for one in values[1:])
        operator = Pointwise(("normalise",), result.elements, (whole(images), *reads), (whole(result),))
        launches.launch(operator, values, [result])
        return
    statistics = [one for one in call.returned[1:3] if one.elements]
    if len(statistics) < len(("mean", "deviation")):
        statistics = [launches.temporary((channels,), "float32") for _ in range(2)]
    reduce_channels(launches, "mean_variance", [images], statistics)
    _each_channel(launches, "normalise", [images], [*affine, *_together(statistics)], result)


@lowers("cudnn_batch_norm_backward", "native_batch_norm_backward", "batch_norm_backward", kind="batch_norm_backward")
def _batch_norm_backward(launches: Launches, call: Call) -> None:
    first, second = (launches.dense(one) for one in call.tensors[:2])
    gradient, images = (second, first) if call.base.startswith("cudnn") else (first, second)
    channels = images.shape[1]
    given, *of_weights = call.results
    held = [one for one in of_weights if one is not None and one.elements]
    sums = held or [launches.temporary((channels,), "float32") for _ in range(2)]
    reduce_channels(launches, "batch_norm_gradients", [gradient, images], sums)
    if given is not None and given.elements:
        statistics = [launches.temporary((channels,), "float32") for _ in range(2)]
        known = [one for one in call.tensors[2:] if one.elements == channels]
        values = [*_together(known[-2:] if len(known) > 1 else statistics), *known[:1], *sums]
        _each_channel(launches, "normalise_backward", [gradient, images], values, given)


@lowers("batch_norm_stats", kind="batch_norm")
def _batch_norm_statistics(launches: Launches, call: Call) -> None:
    reduce_channels(launches, "mean_variance", [launches.dense(call.tensors[0])], call.returned)


# Norms of groups of channels ----------------------------------------------------------------------


@lowers("native_group_norm", kind="group_norm")
def _group_norm(launches: Launches, call: Call) -> None:
    """Statistics of each group by a CTA, factors of each channel, then all elements.

    aten/src/ATen/native/cuda/group_norm_kernel.cu: ``RowwiseMoments``, ``ComputeFusedParams``, and an elementwise
    kernel.
    """
    images = launches.contiguous(call.tensors[0])
    affine = [one for one in call.operands[1:3] if isinstance(one, TensorView)]
    result, statistics = call.returned[0], call.returned[1:3]
    groups = images.shape[0] * call.arguments.get("group", 1)
    length = images.elements // groups
    touched = Access(images.elements, images.dtype, length if groups > 1 else None)
    operator = ColumnReduction("mean_variance", length, groups, (touched,), tuple(map(whole, statistics)))
    launches.launch(operator, [images], statistics)
    factors = list(statistics)
    if affine:
        factors = [launches.temporary(images.shape[:2], "float32") for _ in range(2)]
        _broadcast(launches, ("mul", "add_scaled"), [*statistics, *affine], factors)
    _broadcast(launches, ("add_scaled",), [images, *factors], [result])


@lowers("native_group_norm_backward", kind="group_norm_backward")
def _group_norm_backward(launches: Launches, call: Call) -> None:
    """Two sums over the pixels of each channel, from which all gradients follow (group_norm_kernel.cu)."""
    gradient, images = (launches.contiguous(one) for one in call.tensors[:2])
    statistics = call.tensors[2:4]
    channels = images.shape[:2]
    pixels = math.prod(images.shape[2:])
    sums = [launches.temporary(channels, "float32") for _ in range(2)]
    touched = tuple(Access(one.elements, one.dtype, pixels if pixels > 1 else None) for one in (gradient, images))
    operator = ColumnReduction("batch_norm_gradients", pixels, math.prod(channels), touched, tuple(map(whole, sums)))
    launches.launch(operator, [gradient, images], sums)
    given, *of_weights = call.results
    if given is not None:
        factor, *others = (launches.temporary(shape, "float32") for shape in (channels, *([statistics[0].shape] * 2)))
        _broadcast(launches, ("mul",), [statistics[1], *call.tensors[4:5]], [factor])
        _broadcast(launches, ("mul", "mul", "add_scaled"), [*sums, *statistics], others)
        _broadcast(launches, ("mul", "add_scaled", "add"), [gradient, images, factor, *others], [given])
    for one in (one for one in of_weights if one is not None):
        over = ColumnReduction("sum", channels[0], channels[1], tuple(map(whole, sums)), (whole(one),))
        launches.launch(over, sums, [one])


def _broadcast(launches: Launches, functions: Chain, reads: Sequence[TensorView], writes: Sequence[TensorView]) -> None:
    """Launch functions of elements, of which some tensors have one for many."""
    elements = max(one.elements for one in (*reads, *writes))
    operator = Pointwise(functions, elements, tuple(spread(one, elements) for one in reads), tuple(map(whole, writes)))
    launches.launch(operator, reads, writes)


# --------------------------------------------------------------------------------------------------


def _together(statistics: Sequence[TensorView]) -> list[TensorView]:
    """Mean and deviation as one tensor, which a thread loads for its channel."""
    if not statistics:
        return []
    first = statistics[0]
    return [TensorView(first.storage, first.dtype_name, (len(statistics), *first.shape), (first.elements, 1))]


def reduce_channels(
    launches: Launches, function: str, reads: Sequence[TensorView], writes: Sequence[TensorView]
) -> None:
    """A reduction of every channel over all images."""
    images = reads[0]
    touched = tuple(_image(one) for one in reads)
    operator = ColumnReduction(
        function, images.elements // images.shape[1], images.shape[1], touched, tuple(map(whole, writes))
    )
    launches.launch(operator, reads, writes)


def _each_channel(
    launches: Launches,
    function: str,
    images: Sequence[TensorView],
    values: Sequence[TensorView],
    result: TensorView,
) -> None:
    """A function of every element and of its channel's values, as the second half of what took statistics."""
    reads = (*map(_image, images), *(spread(one, result.elements) for one in values))
    operator = Pointwise((function,), result.elements, reads, (whole(result),))
    launches.launch(operator, [*images, *values], [result])


def _image(images: TensorView) -> Access:
    """Access to images channel by channel: channels lie apart in pieces of an image (NCHW), or side by side (NHWC)."""
    pixels = math.prod(images.shape[2:])
    apart = pixels > 1 and not suggests_channels_last(images)
    return Access(images.elements, images.dtype, pixels if apart else None)


def by_channel(values: TensorView, images: TensorView) -> TensorView:
    """Values of channels, broadcast over the pixels of images."""
    behind = len(images.shape) - 2
    return TensorView(values.storage, values.dtype_name, (*values.shape, *(1,) * behind), (1, *(0,) * behind))
