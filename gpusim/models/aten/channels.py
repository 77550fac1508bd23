"""Norms of channels of images, and of groups of them, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpusim.models.aten.access import spread, suggests_channels_last, whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.functions import Chain
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise

INT32_MAX = 2**31 - 1

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
        values = [*affine, *statistics]
        if _infers_in_cudnn(call.base, images):
            _each_channel(launches, "normalise_inference", [images], values, result)
            return
        reads = tuple(spread(one, result.elements) for one in values)
        operator = Pointwise(("normalise",), result.elements, (whole(images), *reads), (whole(result),))
        launches.launch(operator, [images, *values], [result])
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


def _infers_in_cudnn(base: str, images: TensorView) -> bool:
    """Whether a kernel of cuDNN normalises images whose channels lie apart, in inference.

    PyTorch leaves it tensors whose indices take 32 bits (aten/src/ATen/native/Normalization.cpp, ``use_cudnn``).
    """
    return base.startswith("cudnn") and not suggests_channels_last(images) and images.elements < INT32_MAX


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


# Parts -------------------------------------------------------------------------------------------


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
