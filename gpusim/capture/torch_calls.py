"""Layers for the calls of PyTorch, by the name of the function or method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from gpusim.capture.torch_trace import Call, Called, Trace
from gpusim.models.layers.attention import HEADS_APART
from gpusim.workloads.functions import FUNCTIONS


def _linear(trace: Trace, called: Called) -> str:
    x, weight, bias = (called.argument(at, name) for at, name in enumerate(("input", "weight", "bias")))
    return trace.layer(called, "linear", x, weight=weight, features=weight.shape[0], bias=bias is not None)


def _linear_of_columns(trace: Trace, called: Called) -> str:
    """A linear layer whose weight is stored ``inputs x features``."""
    bias, x, weight = called.args
    return trace.layer(called, "linear", x, weight=weight, features=weight.shape[1], bias=bias is not None)


def _convolution(trace: Trace, called: Called) -> str:
    x, weight, bias = (called.argument(at, name) for at, name in enumerate(("input", "weight", "bias")))
    kernel, dilation = _sides(called, weight.shape[2:]), _sides(called, called.argument(5, "dilation", 1))
    values: dict[str, Any] = {
        "filters": weight.shape[0],
        "kernel": kernel,
        "stride": _sides(called, called.argument(3, "stride", 1)),
        "padding": _padding(called, called.argument(4, "padding", 0), kernel, dilation),
        "dilation": dilation,
        "groups": called.argument(6, "groups", 1),
        "bias": bias is not None,
    }
    return _of_images(trace, called, "conv2d", x, weight=weight, **values)


def _padding(called: Called, padding: Any, kernel: list[int], dilation: list[int]) -> list[int]:
    if not isinstance(padding, str):
        return _sides(called, padding, 0)
    both = [(size - 1) * apart * (padding == "same") for size, apart in zip(kernel, dilation, strict=True)]
    if any(one % 2 for one in both):
        raise ValueError("pads sides differently")
    return [one // 2 for one in both]


def _transposed_convolution(trace: Trace, called: Called) -> str:
    x, weight, bias = (called.argument(at, name) for at, name in enumerate(("input", "weight", "bias")))
    values: dict[str, Any] = {
        "filters": weight.shape[1],
        "kernel": _sides(called, weight.shape[2:]),
        "stride": _sides(called, called.argument(3, "stride", 1)),
        "padding": _sides(called, called.argument(4, "padding", 0), 0),
        "bias": bias is not None,
    }
    return _of_images(trace, called, "conv_transpose2d", x, weight=weight, **values)


def _of_signals(called: Called) -> bool:
    """Whether a function takes signals (``N x C x L``), each of which is an image of one row."""
    return called.name.endswith("1d")


def _sides(called: Called, value: Any, of_one_row: int = 1) -> list[int]:
    """A setting of rows and columns of images."""
    given = [value] if isinstance(value, int) else list(value)
    return [of_one_row, *given] if _of_signals(called) else given * (3 - len(given))


def _of_images(trace: Trace, called: Called, op: str, x: Any, **values: Any) -> str:
    """A layer of images, or of signals."""
    if not _of_signals(called):
        return trace.layer(called, op, x, **values)
    count, channels, length = x.shape
    name = trace.name(x) if x.is_contiguous() else trace.copy(x)
    image = trace.sketch.add("reshape", [name], (count, channels, 1, length), shape=[count, channels, 1, length])
    row = replace(called, result=called.result.unsqueeze(2))
    name = trace.layer(row, op, image, **values)
    return trace.sketch.add("reshape", [name], called.shape, shape=list(called.shape))


def _batch_norm(trace: Trace, called: Called) -> str:
    weight = called.argument(3, "weight")
    if weight is None:
        return trace.layer(called, "batch_norm", called.args[0], frozen=True)
    return trace.layer(called, "batch_norm", called.args[0], weight=weight)


def _layer_norm(trace: Trace, called: Called) -> str:
    return trace.layer(called, "layer_norm", called.args[0], weight=called.argument(2, "weight"))


def _group_norm(trace: Trace, called: Called) -> str:
    weight, groups = called.argument(2, "weight"), called.argument(1, "num_groups")
    return trace.layer(called, "group_norm", called.args[0], weight=weight, groups=groups)


def _embedding(trace: Trace, called: Called) -> str:
    weight = called.argument(1, "weight")
    entries, features = weight.shape
    return trace.layer(called, "embedding", called.args[0], weight=weight, entries=entries, features=features)


def _matmul(trace: Trace, called: Called) -> str:
    a, b = called.args[:2]
    names = [one if _batched(one) is None else trace.copy(one) for one in (a, b)]
    return trace.layer(called, "matmul", *names)


def _batched(value: Any) -> Any:
    """None where a product takes the operand as it is; else it copies it, as ``torch.matmul`` reshapes it."""
    flat = value.reshape(-1, *value.shape[-2:])
    return None if flat.untyped_storage()._cdata == value.untyped_storage()._cdata else flat  # noqa: SLF001


def _elementwise(op: str) -> Call:
    return lambda trace, called: trace.layer(called, op, called.args[0])


def _gelu(trace: Trace, called: Called) -> str:
    exact = called.argument(1, "approximate", "none") == "none"
    return trace.layer(called, "gelu" if exact else "gelu_tanh", called.args[0])


def _dropout(trace: Trace, called: Called) -> str:
    if not called.argument(2, "training", True) or not called.argument(1, "p", 0.5):
        return trace.name(called.args[0])
    return trace.layer(called, "dropout", called.args[0], probability=called.argument(1, "p", 0.5))


def _combination(op: str) -> Call:
    def add(trace: Trace, called: Called) -> str:
        tensors = [one for one in called.args[:2] if isinstance(one, torch.Tensor)]
        if not any(one.is_floating_point() for one in tensors):
            raise ValueError("of integers")
        if len(tensors) == 1:
            return trace.layer(called, "scale", tensors[0])
        return trace.layer(called, op, *tensors)

    return add


def _power(trace: Trace, called: Called) -> str:
    return trace.layer(called, "pow", called.args[0], exponent=int(called.argument(1, "exponent")))


def _where(trace: Trace, called: Called) -> str:
    mask, value, other = called.args
    if isinstance(other, torch.Tensor) and other.dim():
        raise ValueError("of two tensors")
    return trace.layer(called, "where", value, mask)


def _softmax(op: str) -> Call:
    def add(trace: Trace, called: Called) -> str:
        if called.argument(1, "dim", -1) not in (-1, called.args[0].dim() - 1):
            raise ValueError("not of rows")
        return trace.layer(called, op, called.args[0])

    return add


def _reduction(op: str) -> Call:
    def add(trace: Trace, called: Called) -> str:
        dims = called.argument(1, "dim")
        value = called.args[0]
        listed = list(range(value.dim())) if dims is None else [dims] if isinstance(dims, int) else list(dims)
        if tuple(value.shape[2:]) and called.shape == (*value.shape[:2], 1, 1):
            return trace.layer(called, "global_avg_pool2d", value)
        kept = tuple(size for dim, size in enumerate(value.shape) if dim not in {one % value.dim() for one in listed})
        name = trace.sketch.add(op, [trace.name(value)], kept, dims=listed)
        return name if kept == called.shape else trace.layer(called, "reshape", name, shape=list(called.shape))

    return add


def _pool(op: str) -> Call:
    def add(trace: Trace, called: Called) -> str:
        kernel = called.argument(1, "kernel_size")
        stride = called.argument(2, "stride") or kernel
        padding = called.argument(3, "padding", 0)
        values = {
            "kernel": _sides(called, kernel),
            "stride": _sides(called, stride),
            "padding": _sides(called, padding, 0),
            "round_up": called.argument(5 if op == "max_pool2d" else 4, "ceil_mode", False),
        }
        return _of_images(trace, called, op, called.args[0], **values)

    return add


def _adaptive_pool(trace: Trace, called: Called) -> str:
    """Pooling to a stated size: of everything, of equal parts, or of nothing."""
    value, size = called.args[0], called.shape[2:]
    if size == (1, 1):
        return trace.layer(called, "global_avg_pool2d", value)
    parts = [divmod(whole, part) for whole, part in zip(value.shape[2:], size, strict=True)]
    if any(left for _, left in parts):
        raise ValueError("of unequal parts")
    kernel = [length for length, _ in parts]
    return (
        trace.name(value)
        if kernel == [1, 1]
        else trace.layer(called, "avg_pool2d", value, kernel=kernel, stride=kernel)
    )


def _upsample(trace: Trace, called: Called) -> str:
    value = called.args[0]
    return trace.layer(called, "upsample", value, factor=called.shape[-1] // value.shape[-1])


def _concat(trace: Trace, called: Called) -> str:
    tensors = [one for one in called.args[0] if one.numel()]
    if len(tensors) == 1:  # beside nothing, as to an empty cache
        return trace.copy(tensors[0])
    return trace.layer(called, "concat", *tensors, dim=called.argument(1, "dim", 0))


def _cross_entropy(trace: Trace, called: Called) -> str:
    return trace.layer(called, "cross_entropy", called.args[0])


def _lstm(trace: Trace, called: Called) -> list[str]:
    """``torch.lstm``: a layer for each of its layers, whose last places are the states that it leaves."""
    x, _, weights, biases, count, probability, training, bidirectional, batch_first = called.args
    outputs = called.result[0]
    directions = 2 if bidirectional else 1
    (*_, features), hidden, each = outputs.shape, weights[1].shape[1], 4 * directions
    if not biases or features != directions * hidden:
        raise ValueError("without biases, or projected")
    sketch, name = trace.sketch, trace.name(x)
    first, second, _ = x.shape
    length, batch = (second, first) if batch_first else (first, second)
    if batch_first:
        name = sketch.add("permute", [name], (length, batch, x.shape[2]), dims=[1, 0, 2])
    for at in range(count):
        if at and training and probability:
            name = sketch.add("dropout", [name], (length, batch, features), probability=probability)
        own = Called(called.name, (), {}, outputs.new_empty(length, batch, features))
        name = trace.layer(own, "lstm", name, weight=weights[at * each], hidden=hidden, bidirectional=bidirectional)
    last = sketch.add("slice", [name], (1, batch, features), dim=0, start=length - 1, length=1)
    last = sketch.add("reshape", [last], (1, batch, directions, hidden), shape=[1, batch, directions, hidden])
    last = sketch.add("permute", [last], (1, directions, batch, hidden), dims=[0, 2, 1, 3])
    last = sketch.add("expand", [last], (count, directions, batch, hidden), shape=[count, directions, batch, hidden])
    states = (count * directions, batch, hidden)
    last = sketch.add("reshape", [last], states, shape=list(states))
    if batch_first:
        name = sketch.add("permute", [name], called.result[0].shape, dims=[1, 0, 2])
    return [name, last, last]


def _attention(trace: Trace, called: Called) -> str:
    """Scaled dot-product attention: a layer of heads, or without any, separate products."""
    queries, keys, values = called.args[:3]
    mask, probability = called.argument(3, "attn_mask"), called.argument(4, "dropout_p", 0.0)
    if queries.dim() != HEADS_APART:
        return _attention_without_heads(trace, called, mask, probability)
    heads, key_heads = queries.shape[1], keys.shape[1]
    return trace.layer(
        called,
        "attention",
        queries,
        keys,
        values,
        *([] if mask is None else [mask]),
        heads=heads,
        key_heads=None if key_heads == heads else key_heads,
        causal=bool(called.argument(5, "is_causal", False)),
        dropout=probability,
    )


def _attention_without_heads(trace: Trace, called: Called, mask: Any, probability: float) -> str:
    queries, keys, values = called.args[:3]
    shape = (*queries.shape[:-1], keys.shape[-2])
    sketch = trace.sketch
    scores = sketch.add("matmul", [trace.name(queries), trace.name(keys)], shape, transposed=True)
    scores = sketch.add("scale", [scores], shape)
    if mask is not None:
        scores = sketch.add("add", [scores, trace.name(mask)], shape)
    weights = sketch.add("softmax", [scores], shape)
    if probability:
        weights = sketch.add("dropout", [weights], shape, probability=probability)
    return trace.layer(called, "matmul", weights, values)


# Views --------------------------------------------------------------------------------------------


def _view(trace: Trace, called: Called) -> str:
    """A view of the elements in another shape, or a copy where strides cannot express it."""
    value, result = called.args[0], called.result
    if result is value or not result.dim():
        return trace.name(value)
    copied = result.untyped_storage()._cdata != value.untyped_storage()._cdata  # noqa: SLF001
    name = trace.copy(value) if copied else trace.name(value)
    if called.shape == trace.sketch.shape(name):
        return name
    if result.numel() != value.numel():
        return trace.sketch.add("expand", [name], called.shape, shape=list(called.shape))
    return trace.sketch.add("reshape", [name], called.shape, shape=list(called.shape))


def _transpose(trace: Trace, called: Called) -> str:
    value = called.args[0]
    dims = list(range(value.dim()))
    first, second = called.args[1:] if len(called.args) > 2 else (-2, -1)
    dims[first], dims[second] = dims[second], dims[first]
    return trace.permute(called, value, dims)


def _permute(trace: Trace, called: Called) -> str:
    dims = called.args[1] if isinstance(called.args[1], list | tuple) else called.args[1:]
    return trace.permute(called, called.args[0], [dim % called.result.dim() for dim in dims])


def _to(trace: Trace, called: Called) -> str:
    value, result = called.args[0], called.result
    if result.dtype == value.dtype:
        return trace.name(value)
    if not (result.is_floating_point() and value.is_floating_point()):
        raise ValueError("of integers")
    return trace.layer(called, "cast", value)


def _slices(trace: Trace, called: Called) -> list[str]:
    """Parts of a tensor beside each other."""
    value = called.args[0]
    dim = called.argument(2, "dim", 0)
    names, start = [], 0
    for part in called.result:
        length = part.shape[dim]
        name = trace.sketch.add("slice", [trace.name(value)], tuple(part.shape), dim=dim, start=start, length=length)
        names.append(name)
        start += length
    return names


def _index(trace: Trace, called: Called) -> str:
    """Indexing by numbers and ranges: slices, then another shape."""
    value, index = called.args
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(one, torch.Tensor | list) for one in parts):
        raise ValueError("by a tensor")
    parts = tuple(one for one in parts if one is not None)
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts = (*parts[:at], *(slice(None),) * (value.dim() - len(parts) + 1), *parts[at + 1 :])
    name, shape = trace.name(value), list(value.shape)
    for dim, one in enumerate(parts):
        chosen = range(shape[dim])[one] if isinstance(one, slice) else range(one % shape[dim], one % shape[dim] + 1)
        if len(chosen) == shape[dim]:
            continue
        shape[dim] = len(chosen)
        name = trace.sketch.add("slice", [name], tuple(shape), dim=dim, start=chosen[0], length=len(chosen))
    if tuple(shape) == called.shape:
        return name
    if math.prod(shape) != called.result.numel():
        raise ValueError("not a view of ranges")
    return trace.sketch.add("reshape", [name], called.shape, shape=list(called.shape))


CALLS: Mapping[str, Call] = {
    "linear": _linear,
    "addmm": _linear_of_columns,
    **dict.fromkeys(("conv1d", "conv2d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d"), _transposed_convolution),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "embedding": _embedding,
    **dict.fromkeys(("matmul", "bmm"), _matmul),
    **{
        name: _elementwise(function.name) if function.operands == 1 else _combination(function.name)
        for function in FUNCTIONS.values()
        for name in function.torch
    },
    "gelu": _gelu,  # one of two functions, by an argument
    "dropout": _dropout,
    "pow": _power,
    "where": _where,
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "mean": _reduction("mean"),
    "sum": _reduction("sum"),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _pool("max_pool2d")),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), _pool("avg_pool2d")),
    **dict.fromkeys(("adaptive_avg_pool2d", "adaptive_avg_pool"), _adaptive_pool),
    "interpolate": _upsample,
    "lstm": _lstm,
    "cat": _concat,
    "cross_entropy": _cross_entropy,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"), _view),
    **dict.fromkeys(("contiguous", "expand", "clone"), _view),
    **dict.fromkeys(("transpose", "mT", "swapaxes"), _transpose),
    "permute": _permute,
    **dict.fromkeys(("to", "float", "type", "type_as", "half", "bfloat16"), _to),
    **dict.fromkeys(("split", "chunk"), _slices),
    "getitem": _index,
}  # fmt: skip
"""By the name of the function or method, without underscores."""
