"""Operators of ONNX as functions of PyTorch: of operator sets 9 to 24, and those of ONNX Runtime that exporters write."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: N812 -- its usual name

from gpusim.capture.attention import ATTENTION
from gpusim.capture.onnx_module import Node, Unknown, dtype_of

Operator = Callable[[Node], Any]
OPERATORS: dict[str, Operator] = {}
"""Operators by name; those of other domains with the domain before it."""
_RUNTIME = "com.microsoft."


def _operator(*names: str) -> Callable[[Operator], Operator]:
    def add(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return add


# Pointwise ----------------------------------------------------------------------------------------


def _of_one(function: Callable[[Any], Any]) -> Operator:
    return lambda node: function(node.tensor(0))


def _of_many(function: Callable[[Any, Any], Any]) -> Operator:
    def fold(node: Node) -> Any:
        first, *others = [node.operand(at) for at in range(len(node.inputs))]
        for other in others:
            first = _apply(function, first, other, node)
        return first

    return fold


def _apply(function: Callable[[Any, Any], Any], a: Any, b: Any, node: Node) -> Any:
    if not isinstance(a, torch.Tensor):
        if function in _COMMUTES or not isinstance(b, torch.Tensor):
            a, b = b, a
        else:
            a = torch.full((), a, dtype=b.dtype)  # a number that a kernel takes
    if not isinstance(b, torch.Tensor) and function in _OF_TENSORS:
        b = torch.full((), b, dtype=a.dtype, device=a.device)
    return function(a, b) if isinstance(a, torch.Tensor) else function(node.tensor(0), b)


def _divided(a: Any, b: Any) -> Any:
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


_COMMUTES = {torch.add, torch.mul, torch.eq, torch.maximum, torch.minimum, torch.logical_and, torch.logical_or, torch.logical_xor}
_OF_TENSORS = {torch.maximum, torch.minimum, torch.logical_and, torch.logical_or, torch.logical_xor}

OPERATORS |= {
    **{
        name: _of_one(getattr(torch, name.lower()))
        for name in "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsInf IsNaN Log Neg Reciprocal Round Relu "
        "Sigmoid Sign Sin Sinh Sqrt Tan Tanh Det".split()
    },
    "Not": _of_one(torch.logical_not),
    "BitwiseNot": _of_one(torch.bitwise_not),
    "Softsign": _of_one(F.softsign),
    "Softplus": _of_one(F.softplus),
    "HardSwish": _of_one(F.hardswish),
    "Mish": _of_one(F.mish),
    "Identity": _of_one(lambda value: value),
    "Sub": _of_many(torch.sub),
    "Mul": _of_many(torch.mul),
    "Div": _of_many(_divided),
    "And": _of_many(torch.logical_and),
    "Or": _of_many(torch.logical_or),
    "Xor": _of_many(torch.logical_xor),
    "BitwiseAnd": _of_many(torch.bitwise_and),
    "BitwiseOr": _of_many(torch.bitwise_or),
    "BitwiseXor": _of_many(torch.bitwise_xor),
    "Equal": _of_many(torch.eq),
    "Less": _of_many(torch.lt),
    "LessOrEqual": _of_many(torch.le),
    "Greater": _of_many(torch.gt),
    "GreaterOrEqual": _of_many(torch.ge),
    "Max": _of_many(torch.maximum),
    "Min": _of_many(torch.minimum),
    "Sum": _of_many(torch.add),
    "Elu": lambda node: F.elu(node.tensor(0), node.attribute("alpha", 1.0)),
    "Celu": lambda node: F.celu(node.tensor(0), node.attribute("alpha", 1.0)),
    "Selu": lambda node: F.selu(node.tensor(0)),
    "LeakyRelu": lambda node: F.leaky_relu(node.tensor(0), node.attribute("alpha", 0.01)),
    "ThresholdedRelu": lambda node: F.threshold(node.tensor(0), node.attribute("alpha", 1.0), 0.0),
    "HardSigmoid": lambda node: F.hardsigmoid(node.tensor(0)),  # whatever its slope: the kernel is one
    "Shrink": lambda node: F.hardshrink(node.tensor(0), node.attribute("lambd", 0.5)),
    "Gelu": lambda node: F.gelu(node.tensor(0), approximate=node.attribute("approximate", "none")),
    _RUNTIME + "Gelu": _of_one(F.gelu),
    "Swish": _of_one(F.silu),
    _RUNTIME + "QuickGelu": lambda node: node.tensor(0) * torch.sigmoid(node.tensor(0) * node.attribute("alpha", 1.702)),
    "CastLike": lambda node: node.tensor(0).to(node.tensor(1).dtype),
    "Cast": lambda node: node.tensor(0).to(node.module.like(dtype_of(node.attribute("to")))),
}


@_operator("Add")
def _add(node: Node) -> Any:
    for at in (0, 1):
        if node.module.biases.get(node.inputs[at]) == node.inputs[1 - at]:
            return node.tensor(at)  # which its product has added
    return _of_many(torch.add)(node)


@_operator("Pow")
def _pow(node: Node) -> Any:
    base, exponent = node.operand(0), node.operand(1)
    found = torch.pow(base, exponent)
    return found.to(base.dtype) if isinstance(base, torch.Tensor) else found


@_operator("Mod")
def _mod(node: Node) -> Any:
    return (torch.fmod if node.attribute("fmod", 0) else torch.remainder)(node.tensor(0), node.operand(1))


@_operator("BitShift")
def _shift(node: Node) -> Any:
    left = node.attribute("direction") == "LEFT"
    return (torch.bitwise_left_shift if left else torch.bitwise_right_shift)(node.tensor(0), node.operand(1))


@_operator("Mean")
def _mean(node: Node) -> Any:
    return _of_many(torch.add)(node) / len(node.inputs)


@_operator("PRelu")
def _prelu(node: Node) -> Any:
    value, slope = node.tensor(0), node.tensor(1)
    channels = value.shape[1] if value.dim() > 1 else 1
    if slope.numel() in (1, channels):
        return torch.prelu(value, slope.reshape(-1))
    return torch.where(value > 0, value, value * slope)


@_operator("Clip")
def _clip(node: Node) -> Any:
    low, high = (node.operand(at) if node.has(at) else node.attribute(name) for at, name in ((1, "min"), (2, "max")))
    value = node.tensor(0)
    return value if low is None and high is None else torch.clamp(value, low, high)


@_operator("Where")
def _where(node: Node) -> Any:
    return torch.where(node.tensor(0), node.operand(1), node.operand(2))


@_operator("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: Node) -> Any:
    value = node.tensor(0)
    axis = node.attribute("axis", -1 if node.opset >= 13 else 1)
    if node.op_type == "Hardmax":
        return torch.zeros_like(value).scatter(axis, value.argmax(axis, keepdim=True), 1.0)
    function = torch.softmax if node.op_type == "Softmax" else torch.log_softmax
    if node.opset < 13 and axis % value.dim() != value.dim() - 1:  # of all dimensions from there on
        return function(value.flatten(axis), -1).reshape(value.shape)
    return function(value, axis)


@_operator("Dropout")
def _dropout(node: Node) -> Any:
    return F.dropout(node.tensor(0), node.attribute("ratio", 0.5), node.module.training), None


@_operator(_RUNTIME + "BiasGelu", _RUNTIME + "FastGelu")
def _bias_gelu(node: Node) -> Any:
    value = node.tensor(0) + node.tensor(1) if node.has(1) else node.tensor(0)
    return F.gelu(value, approximate="tanh" if node.op_type == "FastGelu" else "none")


# Products -----------------------------------------------------------------------------------------


@_operator("MatMul")
def _matmul(node: Node) -> Any:
    a, b = node.tensor(0), node.tensor(1)
    bias = node.module.biases.get(node.outputs[0])
    return torch.matmul(a, b) if bias is None else F.linear(a, b.t(), node.module.tensor(bias, node.values))


@_operator(_RUNTIME + "FusedMatMul")
def _fused_matmul(node: Node) -> Any:
    a, b = node.tensor(0), node.tensor(1)
    a, b = (one.mT if node.attribute(name, 0) else one for one, name in ((a, "transA"), (b, "transB")))
    found = torch.matmul(a, b)
    alpha = node.attribute("alpha", 1.0)
    return found if alpha == 1.0 else found * alpha


@_operator("Gemm")
def _gemm(node: Node) -> Any:
    a, b = node.tensor(0), node.tensor(1)
    a, b = (one.t() if node.attribute(name, 0) else one for one, name in ((a, "transA"), (b, "transB")))
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if node.has(2):
        return torch.addmm(node.tensor(2), a, b, alpha=alpha, beta=beta)
    return torch.mm(a, b)


@_operator("Einsum")
def _einsum(node: Node) -> Any:
    return torch.einsum(node.attribute("equation"), *node.tensors)


@_operator("MatMulInteger")
def _integer_product(node: Node) -> Any:
    a, b = node.tensor(0), node.tensor(1)
    if b.dim() != 2:
        raise ValueError("a product of INT8 tensors without a weight is not supported; export it with QDQ nodes")
    found = torch._int_mm(a.reshape(-1, a.shape[-1]).view(torch.int8), b.view(torch.int8))  # noqa: SLF001 -- no public name
    return found.reshape(*a.shape[:-1], b.shape[-1])


# Convolutions and pools ---------------------------------------------------------------------------


def _window(node: Node, value: Any, kernel: Sequence[int]) -> tuple[Any, list[int], list[int], list[int], list[int]]:
    """A padded input, with the padding that is left, the strides, the dilations, and all that was asked for."""
    dims = len(kernel)
    strides = list(node.attribute("strides", [1] * dims))
    dilations = list(node.attribute("dilations", [1] * dims))
    pads = list(node.attribute("pads", [0] * 2 * dims))
    if (auto := node.attribute("auto_pad", "NOTSET")) in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = [], []
        for size, taps, stride, dilation in zip(value.shape[2:], kernel, strides, dilations, strict=True):
            total = max((math.ceil(size / stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
            less, more = total // 2, total - total // 2
            begin.append(less if auto == "SAME_UPPER" else more)
            end.append(more if auto == "SAME_UPPER" else less)
        pads = [*begin, *end]
    return value, pads[:dims], pads[dims:], strides, dilations


def _padded(
    value: Any, begin: Sequence[int], end: Sequence[int], fill: float = 0.0, most: Sequence[int] | None = None
) -> tuple[Any, list[int]]:
    """An input that is padded on one side more than on the other, or by more than most; what is left to a kernel."""
    if list(begin) == list(end) and all(one <= limit for one, limit in zip(begin, most or begin, strict=True)):
        return value, list(begin)
    sides = [one for pair in zip(reversed(begin), reversed(end), strict=True) for one in pair]
    return F.pad(value, sides, value=fill), [0] * len(begin)


@_operator("Conv", _RUNTIME + "FusedConv")
def _convolution(node: Node) -> Any:
    weight = node.tensor(1)
    value, begin, end, strides, dilations = _window(node, node.tensor(0), weight.shape[2:])
    value, padding = _padded(value, begin, end)
    function = (F.conv1d, F.conv2d, F.conv3d)[len(padding) - 1]
    found = function(value, weight, node.tensor(2), strides, padding, dilations, node.attribute("group", 1))
    if node.has(3):
        found = found + node.tensor(3)
    activation = node.attribute("activation", "")
    return OPERATORS[activation](_Given(node, found)) if activation else found


class _Given(Node):
    """A node with another input than it states."""

    def __init__(self, node: Node, value: Any) -> None:
        self.__dict__.update(vars(node))
        self._value = value

    def tensor(self, at: int) -> Any:
        return self._value if at == 0 else super().tensor(at)


@_operator("ConvTranspose")
def _transposed_convolution(node: Node) -> Any:
    value, weight = node.tensor(0), node.tensor(1)
    dims = weight.dim() - 2
    _, begin, end, strides, dilations = _window(node, value, weight.shape[2:])
    extra = list(node.attribute("output_padding", [0] * dims))
    sizes = node.attribute("output_shape")
    if sizes or node.attribute("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        sizes = list(sizes or [size * stride for size, stride in zip(value.shape[2:], strides, strict=True)])[-dims:]
        for at, (size, taps) in enumerate(zip(value.shape[2:], weight.shape[2:], strict=True)):
            total = strides[at] * (size - 1) + extra[at] + (taps - 1) * dilations[at] + 1 - sizes[at]
            begin[at], end[at] = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
            extra[at] += max(-total, 0)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    padding = [min(pair) for pair in zip(begin, end, strict=True)]
    found = function(value, weight, node.tensor(2), strides, padding, extra, node.attribute("group", 1), dilations)
    if begin != end:  # what is cut off one side more than off the other
        for at, (low, high, both) in enumerate(zip(begin, end, padding, strict=True)):
            found = found.narrow(2 + at, low - both, found.shape[2 + at] - (low - both) - (high - both))
    return found


@_operator("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node) -> Any:
    kernel = list(node.attribute("kernel_shape"))
    value, begin, end, strides, dilations = _window(node, node.tensor(0), kernel)
    up, at = bool(node.attribute("ceil_mode", 0)), len(kernel) - 1
    most = [one // 2 for one in kernel]
    if node.op_type == "MaxPool":
        value, padding = _padded(value, begin, end, -math.inf, most)
        if len(node.outputs) > 1 and node.outputs[1]:
            function = (F.max_pool1d_with_indices, F.max_pool2d_with_indices, F.max_pool3d_with_indices)[at]
        else:
            function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[at]
        return function(value, kernel, strides, padding, dilations, up)
    if any(one > 1 for one in dilations):
        raise ValueError("means of taps apart are not supported")
    value, padding = _padded(value, begin, end, 0.0, most)
    if node.op_type == "LpPool":
        power = node.attribute("p", 2)
        means = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[at](value.pow(power), kernel, strides, padding, up)
        return (means * math.prod(kernel)).pow(1 / power)
    counts = bool(node.attribute("count_include_pad", 0))
    return (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[at](value, kernel, strides, padding, up, counts)


@_operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Node) -> Any:
    value = node.tensor(0)
    dims = list(range(2, value.dim()))
    if node.op_type == "GlobalAveragePool":
        return value.mean(dims, keepdim=True)
    return value.amax(dims, keepdim=True) if node.op_type == "GlobalMaxPool" else torch.linalg.vector_norm(value, 2, dims, keepdim=True)


# Norms --------------------------------------------------------------------------------------------


@_operator("BatchNormalization")
def _batch_norm(node: Node) -> Any:
    value, scale, bias, mean, variance = (node.tensor(at) for at in range(5))
    momentum = 1.0 - node.attribute("momentum", 0.9)
    return F.batch_norm(
        value, mean, variance, scale, bias, node.module.training, momentum, node.attribute("epsilon", 1e-5)
    )


@_operator("InstanceNormalization")
def _instance_norm(node: Node) -> Any:
    return F.instance_norm(node.tensor(0), weight=node.tensor(1), bias=node.tensor(2), eps=node.attribute("epsilon", 1e-5))


@_operator("GroupNormalization")
def _group_norm(node: Node) -> Any:
    value, scale, bias = node.tensor(0), node.tensor(1), node.tensor(2)
    groups = node.attribute("num_groups")
    if node.opset < 21:  # of groups
        scale, bias = (one.repeat_interleave(value.shape[1] // groups) for one in (scale, bias))
    return F.group_norm(value, groups, scale, bias, node.attribute("epsilon", 1e-5))


@_operator("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", _RUNTIME + "SimplifiedLayerNormalization")
def _layer_norm(node: Node) -> Any:
    value, scale = node.tensor(0), node.tensor(1)
    shape = value.shape[node.attribute("axis", -1) :] if node.attribute("axis", -1) < 0 else value.shape[node.attribute("axis") :]
    eps = node.attribute("epsilon", 1e-5)
    if node.op_type == "LayerNormalization":
        return F.layer_norm(value, shape, scale.expand(shape), None if not node.has(2) else node.tensor(2).expand(shape), eps)
    return F.rms_norm(value, shape, scale.expand(shape), eps)


@_operator(_RUNTIME + "SkipLayerNormalization", _RUNTIME + "SkipSimplifiedLayerNormalization")
def _skip_layer_norm(node: Node) -> Any:
    simple = "Simplified" in node.op_type
    total = node.tensor(0) + node.tensor(1)
    if node.has(bias := 3 if simple else 4):
        total = total + node.tensor(bias)
    eps = node.attribute("epsilon", 1e-12)
    if simple:
        return F.rms_norm(total, total.shape[-1:], node.tensor(2), eps), None, None, total
    return F.layer_norm(total, total.shape[-1:], node.tensor(2), node.tensor(3), eps), None, None, total


@_operator(_RUNTIME + "EmbedLayerNormalization")
def _embed_layer_norm(node: Node) -> Any:
    words, kinds = node.tensor(0), node.tensor(1)
    places = node.tensor(3)[: words.shape[1]]
    total = F.embedding(words, node.tensor(2)) + places
    if kinds is not None:
        total = total + F.embedding(kinds, node.tensor(4))
    eps = node.attribute("epsilon", 1e-12)
    return F.layer_norm(total, total.shape[-1:], node.tensor(5), node.tensor(6), eps), None, total


@_operator("LpNormalization")
def _lp_norm(node: Node) -> Any:
    value = node.tensor(0)
    dims = [node.attribute("axis", -1)]
    return value / torch.linalg.vector_norm(value, node.attribute("p", 2), dims, keepdim=True)


@_operator("MeanVarianceNormalization")
def _mean_variance(node: Node) -> Any:
    value, axes = node.tensor(0), node.attribute("axes", [0, 2, 3])
    return (value - value.mean(axes, keepdim=True)) / (value.std(axes, keepdim=True) + 1e-9)


@_operator("LRN")
def _local_response(node: Node) -> Any:
    numbers = [node.attribute(name, default) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))]
    return F.local_response_norm(node.tensor(0), node.attribute("size"), *numbers)


# Reductions ---------------------------------------------------------------------------------------


def _reduction(function: Callable[[Any, list[int], bool], Any]) -> Operator:
    def reduce(node: Node) -> Any:
        value, kept = node.tensor(0), bool(node.attribute("keepdims", 1))
        axes = node.numbers(1, "axes")
        if not axes:
            if node.attribute("noop_with_empty_axes", 0):
                return value
            axes = list(range(value.dim()))
        return function(value, axes, kept)

    return reduce


def _product(value: Any, axes: list[int], kept: bool) -> Any:
    for axis in sorted((one % value.dim() for one in axes), reverse=True):
        value = torch.prod(value, axis, keepdim=kept)
    return value


OPERATORS |= {
    "ReduceSum": _reduction(lambda value, axes, kept: value.sum(axes, keepdim=kept)),
    "ReduceMean": _reduction(lambda value, axes, kept: value.mean(axes, keepdim=kept)),
    "ReduceMax": _reduction(lambda value, axes, kept: value.amax(axes, keepdim=kept)),
    "ReduceMin": _reduction(lambda value, axes, kept: value.amin(axes, keepdim=kept)),
    "ReduceProd": _reduction(_product),
    "ReduceL1": _reduction(lambda value, axes, kept: torch.linalg.vector_norm(value, 1, axes, keepdim=kept)),
    "ReduceL2": _reduction(lambda value, axes, kept: torch.linalg.vector_norm(value, 2, axes, keepdim=kept)),
    "ReduceSumSquare": _reduction(lambda value, axes, kept: value.square().sum(axes, keepdim=kept)),
    "ReduceLogSum": _reduction(lambda value, axes, kept: value.sum(axes, keepdim=kept).log()),
    "ReduceLogSumExp": _reduction(lambda value, axes, kept: torch.logsumexp(value, axes, keepdim=kept)),
}


@_operator("ArgMax", "ArgMin")
def _arg(node: Node) -> Any:
    function = torch.argmax if node.op_type == "ArgMax" else torch.argmin
    return function(node.tensor(0), node.attribute("axis", 0), bool(node.attribute("keepdims", 1)))


@_operator("CumSum")
def _cumsum(node: Node) -> Any:
    axis = int(node.known(1).item())
    value = node.tensor(0).flip(axis) if node.attribute("reverse", 0) else node.tensor(0)
    value = value.cumsum(axis, dtype=value.dtype)
    return value.flip(axis) if node.attribute("reverse", 0) else value


@_operator("TopK")
def _topk(node: Node) -> Any:
    count = node.number(1, "k")
    largest, in_order = bool(node.attribute("largest", 1)), bool(node.attribute("sorted", 1))
    return tuple(torch.topk(node.tensor(0), count, node.attribute("axis", -1), largest, in_order))


# Shapes and moves ---------------------------------------------------------------------------------


@_operator("Reshape")
def _reshape(node: Node) -> Any:
    value = node.tensor(0)
    sizes = node.numbers(1, "shape") or []
    if not node.attribute("allowzero", 0):
        sizes = [value.shape[at] if size == 0 else size for at, size in enumerate(sizes)]
    return value.reshape(sizes)


@_operator("Flatten")
def _flatten(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 1)
    return value.reshape(math.prod(value.shape[:axis]), -1)


@_operator("Squeeze")
def _squeeze(node: Node) -> Any:
    axes = node.numbers(1, "axes")
    return node.tensor(0).squeeze() if axes is None else node.tensor(0).squeeze(axes)


@_operator("Unsqueeze")
def _unsqueeze(node: Node) -> Any:
    value, axes = node.tensor(0), node.numbers(1, "axes") or []
    for axis in sorted(one % (value.dim() + len(axes)) for one in axes):
        value = value.unsqueeze(axis)
    return value


@_operator("Transpose")
def _transpose(node: Node) -> Any:
    value = node.tensor(0)
    return value.permute(node.attribute("perm", list(reversed(range(value.dim())))))


@_operator("Expand")
def _expand(node: Node) -> Any:
    value = node.tensor(0)
    return value.expand(torch.broadcast_shapes(tuple(value.shape), tuple(node.numbers(1) or ())))


@_operator("Tile")
def _tile(node: Node) -> Any:
    return node.tensor(0).repeat(node.numbers(1))


@_operator("Concat")
def _concat(node: Node) -> Any:
    return torch.cat(node.tensors, node.attribute("axis"))


@_operator("Split")
def _split(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 0)
    sizes = node.numbers(1, "split")
    if sizes is None:
        sizes = math.ceil(value.shape[axis] / node.attribute("num_outputs", len(node.outputs)))  # type: ignore[assignment]
    return tuple(torch.split(value, sizes, axis))


@_operator("Slice")
def _slice(node: Node) -> Any:
    value = node.tensor(0)
    starts, ends = node.numbers(1, "starts") or [], node.numbers(2, "ends") or []
    axes = node.numbers(3, "axes") or list(range(len(starts)))
    steps = node.numbers(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        chosen = range(value.shape[axis])[start:end:step]
        if step < 0:
            value = value.flip(axis)
            chosen = range(value.shape[axis])[value.shape[axis] - 1 - chosen.start if len(chosen) else 0 :: -step][: len(chosen)]
        low, high = (chosen.start, chosen.stop) if len(chosen) else (0, 0)
        whole: list[Any] = [slice(None)] * value.dim()
        whole[axis] = slice(low, high, abs(step))
        value = value[tuple(whole)]
    return value


@_operator("Gather")
def _gather(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 0)
    known = node.module.known(node.inputs[1], node.values)
    if known is not None and known.ndim == 0:
        return value.select(axis, int(known))
    indices = node.tensor(1)
    if axis == 0 and value.dim() == 2 and indices.dim():
        return F.embedding(indices, value)
    axis %= value.dim()
    found = torch.index_select(value, axis, indices.reshape(-1))
    return found.reshape(*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])


@_operator("GatherElements")
def _gather_elements(node: Node) -> Any:
    return torch.gather(node.tensor(0), node.attribute("axis", 0), node.tensor(1))


def _places(node: Node, value: Any, indices: Any, batch_dims: int = 0) -> tuple[Any, ...]:
    outer = []
    for at in range(batch_dims):
        shape = [1] * (indices.dim() - 1)
        shape[at] = value.shape[at]
        outer.append(torch.arange(value.shape[at], device=value.device).reshape(shape))
    return (*outer, *indices.long().unbind(-1))


@_operator("GatherND")
def _gather_nd(node: Node) -> Any:
    value = node.tensor(0)
    return value[_places(node, value, node.tensor(1), node.attribute("batch_dims", 0))]


@_operator("ScatterND")
def _scatter_nd(node: Node) -> Any:
    value = node.tensor(0)
    added = node.attribute("reduction", "none") == "add"
    return value.index_put(_places(node, value, node.tensor(1)), node.tensor(2), accumulate=added)


@_operator("ScatterElements", "Scatter")
def _scatter(node: Node) -> Any:
    value, indices, updates = node.tensors
    axis, reduction = node.attribute("axis", 0), node.attribute("reduction", "none")
    if reduction == "none":
        return torch.scatter(value, axis, indices, updates)
    named = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return torch.scatter_reduce(value, axis, indices, updates, named)


@_operator("Pad")
def _pad(node: Node) -> Any:
    value, pads = node.tensor(0), node.numbers(1, "pads") or []
    axes = node.numbers(3) or list(range(value.dim()))
    fill = node.operand(2) if node.has(2) else node.attribute("value", 0.0)
    sides = [0] * 2 * value.dim()
    for at, axis in enumerate(axes):
        last = value.dim() - 1 - axis % value.dim()
        sides[2 * last], sides[2 * last + 1] = pads[at], pads[at + len(axes)]
    while len(sides) > 2 and not any(sides[-2:]):
        sides = sides[:-2]
    if not any(sides):
        return value
    fill = 0.0 if isinstance(fill, torch.Tensor) else fill  # the kernel is one
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[node.attribute("mode", "constant")]
    return F.pad(value, sides, mode, fill) if mode == "constant" else F.pad(value, sides, mode)


@_operator("DepthToSpace")
def _depth_to_space(node: Node) -> Any:
    value, block = node.tensor(0), node.attribute("blocksize")
    if node.attribute("mode", "DCR") == "CRD":
        return F.pixel_shuffle(value, block)
    count, channels, rows, columns = value.shape
    apart = value.reshape(count, block, block, channels // block**2, rows, columns)
    return apart.permute(0, 3, 4, 1, 5, 2).reshape(count, -1, rows * block, columns * block)


@_operator("SpaceToDepth")
def _space_to_depth(node: Node) -> Any:
    return F.pixel_unshuffle(node.tensor(0), node.attribute("blocksize"))


@_operator("Resize", "Upsample")
def _resize(node: Node) -> Any:
    value = node.tensor(0)
    places = (1, None) if node.op_type == "Upsample" or node.opset < 11 else (2, 3)
    axes = [one % value.dim() for one in node.attribute("axes", list(range(value.dim())))]
    sizes = list(value.shape)
    if places[1] is not None and node.has(places[1]):
        asked = node.numbers(places[1]) or []
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [size / value.shape[axis] for axis, size in zip(axes, asked, strict=True)]
            scale = min(ratios) if policy == "not_larger" else max(ratios)
            asked = [int(scale * value.shape[axis] + 0.5) for axis in axes]
        for axis, size in zip(axes, asked, strict=True):
            sizes[axis] = size
    else:
        scales = [float(one) for one in (node.known(places[0]).ravel() if node.has(places[0]) else node.attribute("scales"))]
        for axis, scale in zip(axes, scales, strict=True):
            sizes[axis] = math.floor(value.shape[axis] * scale)
    if sizes[:2] != list(value.shape[:2]):
        raise ValueError("resizes channels, which is not supported; leave the part out")
    mode = node.attribute("mode", "nearest")
    if mode == "nearest":
        return F.interpolate(value, sizes[2:], mode="nearest")
    named = {"linear": ("linear", "bilinear", "trilinear"), "cubic": ("bicubic",) * 3}[mode][value.dim() - 3]
    corners = node.attribute("coordinate_transformation_mode", "half_pixel") == "align_corners"
    antialias = bool(node.attribute("antialias", 0)) and value.dim() == 4
    return F.interpolate(value, sizes[2:], mode=named, align_corners=corners, antialias=antialias)


@_operator("GridSample")
def _grid_sample(node: Node) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(stated := node.attribute("mode", "bilinear"), stated)
    corners = bool(node.attribute("align_corners", 0))
    return F.grid_sample(node.tensor(0), node.tensor(1), mode, node.attribute("padding_mode", "zeros"), corners)


@_operator("AffineGrid")
def _affine_grid(node: Node) -> Any:
    return F.affine_grid(node.tensor(0), node.numbers(1), bool(node.attribute("align_corners", 0)))


@_operator("Col2Im")
def _col2im(node: Node) -> Any:
    image, block = node.numbers(1), node.numbers(2)
    strides, dilations = node.attribute("strides", [1, 1]), node.attribute("dilations", [1, 1])
    return F.fold(node.tensor(0), image, block, dilations, node.attribute("pads", [0] * 4)[:2], strides)


@_operator("OneHot")
def _one_hot(node: Node) -> Any:
    indices, depth, axis = node.tensor(0), int(node.known(1).item()), node.attribute("axis", -1)
    values = node.known(2)
    off, on = values.tolist()
    places = torch.arange(depth, device=indices.device)
    axis %= indices.dim() + 1
    shape = [1] * (indices.dim() + 1)
    shape[axis] = depth
    dtype = dtype_of(onnx.helper.np_dtype_to_tensor_dtype(values.dtype))
    return torch.where(indices.unsqueeze(axis) == places.reshape(shape), on, off).to(dtype)


@_operator("ConstantOfShape")
def _filled(node: Node) -> Any:
    stated = node.attribute("value")
    dtype = torch.float32 if stated is None else dtype_of(stated.data_type)
    return torch.zeros(node.numbers(0), dtype=node.module.like(dtype), device="cuda")


@_operator("Range")
def _range(node: Node) -> Any:
    start, end, step = (node.known(at) for at in range(3))
    dtype = dtype_of(onnx.helper.np_dtype_to_tensor_dtype(start.dtype))
    return torch.arange(start.item(), end.item(), step.item(), dtype=dtype, device="cuda")


@_operator("NonZero", "Compress", "Unique", "NonMaxSuppression")
def _by_values(node: Node) -> Any:
    raise Unknown(node.inputs[0])


@_operator("EyeLike")
def _eye(node: Node) -> Any:
    value = node.tensor(0)
    dtype = dtype_of(node.attribute("dtype")) if node.attribute("dtype") else value.dtype
    return torch.eye(*value.shape, dtype=dtype, device=value.device)


@_operator("Trilu")
def _triangle(node: Node) -> Any:
    diagonal = int(node.known(1).item()) if node.has(1) else 0
    return (torch.triu if node.attribute("upper", 1) else torch.tril)(node.tensor(0), diagonal)


@_operator("ReverseSequence")
def _reversed(node: Node) -> Any:
    return node.tensor(0).flip(node.attribute("time_axis", 0))


@_operator("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def _random_like(node: Node) -> Any:
    function = {"RandomNormalLike": torch.randn_like, "RandomUniformLike": torch.rand_like, "Bernoulli": torch.bernoulli}
    stated = node.attribute("dtype")
    found = function[node.op_type](node.tensor(0))
    return found.to(dtype_of(stated)) if stated else found


@_operator("RandomNormal", "RandomUniform")
def _random(node: Node) -> Any:
    function = torch.randn if node.op_type == "RandomNormal" else torch.rand
    return function(node.attribute("shape"), device="cuda")


@_operator("SequenceConstruct")
def _sequence(node: Node) -> Any:
    return node.tensors


@_operator("SequenceAt")
def _sequence_at(node: Node) -> Any:
    return node.tensor(0)[int(node.known(1).item())]


@_operator("SplitToSequence")
def _split_to_sequence(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 0)
    sizes = node.numbers(1) or [1]
    parts = list(torch.split(value, sizes[0] if len(sizes) == 1 else sizes, axis))
    return [parts] if node.attribute("keepdims", 1) or node.has(1) else [[one.squeeze(axis) for one in parts]]


@_operator("ConcatFromSequence")
def _concat_sequence(node: Node) -> Any:
    return (torch.stack if node.attribute("new_axis", 0) else torch.cat)(node.tensor(0), node.attribute("axis"))


@_operator("RoiAlign")
def _regions(node: Node) -> Any:
    regions = torch.cat([node.tensor(2).to(node.tensor(1).dtype).unsqueeze(1), node.tensor(1)], 1)
    size = node.attribute("output_height", 1), node.attribute("output_width", 1)
    aligned = node.opset >= 16 and node.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    numbers = node.attribute("spatial_scale", 1.0), *size, node.attribute("sampling_ratio", 0) or -1, aligned
    return _torchvision("roi_align")(node.tensor(0), regions, *numbers)


@_operator("DeformConv")
def _deformed_convolution(node: Node) -> Any:
    value, weight, offset = (node.tensor(at) for at in range(3))
    bias = node.tensor(3) if node.has(3) else value.new_zeros(weight.shape[0])
    mask = node.tensor(4) if node.has(4) else value.new_zeros((value.shape[0], 1))
    _, begin, _, strides, dilations = _window(node, value, weight.shape[2:])
    groups = node.attribute("group", 1), node.attribute("offset_group", 1)
    return _torchvision("deform_conv2d")(
        value, weight, offset, mask, bias, *strides, *begin, *dilations, *groups, node.has(4)
    )


def _torchvision(name: str) -> Callable[..., Any]:
    try:
        import torchvision  # noqa: F401, PLC0415 -- it registers its operators
    except ImportError:
        raise ValueError("it is an operator of torchvision; install it with: pip install torchvision") from None
    return getattr(torch.ops.torchvision, name)  # type: ignore[no-any-return]


# Losses -------------------------------------------------------------------------------------------


@_operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(node: Node) -> Any:
    scores = node.tensor(0)
    by_log = node.op_type == "SoftmaxCrossEntropyLoss"
    scores = torch.log_softmax(scores, 1) if by_log else scores
    ignored = node.attribute("ignore_index", -100)
    found = F.nll_loss(scores, node.tensor(1).long(), node.tensor(2), ignore_index=ignored, reduction=node.attribute("reduction", "mean"))
    return (found, scores) if by_log else found


# Quantised tensors --------------------------------------------------------------------------------


@torch.library.custom_op(f"{ATTENTION}::quantize", mutates_args=())
def _quantized(value: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    raise NotImplementedError  # fake tensors have nothing to compute with


@_quantized.register_fake
def _(value: Any, scale: Any, dtype: Any) -> Any:  # noqa: ARG001
    return torch.empty_like(value, dtype=dtype)


@torch.library.custom_op(f"{ATTENTION}::dequantize", mutates_args=())
def _dequantized(value: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    raise NotImplementedError


@_dequantized.register_fake
def _(value: Any, scale: Any, dtype: Any) -> Any:  # noqa: ARG001
    return torch.empty_like(value, dtype=dtype)


def _scale(node: Node) -> Any:
    scale = node.operand(1)
    return scale if isinstance(scale, torch.Tensor) else None


@_operator("QuantizeLinear", _RUNTIME + "QuantizeLinear")
def _quantize(node: Node) -> Any:
    value = node.tensor(0)
    if value.requires_grad and torch.is_grad_enabled():
        raise ValueError("a quantised graph has no gradient; capture it with --mode inference")
    dtype = node.tensor(2).dtype if node.has(2) else dtype_of(node.attribute("output_dtype") or onnx.TensorProto.UINT8)
    return torch.ops.gpusim.quantize(value, _scale(node), dtype)


@_operator("DequantizeLinear", _RUNTIME + "DequantizeLinear")
def _dequantize(node: Node) -> Any:
    scale = _scale(node)
    dtype = node.module.like(torch.float32) if scale is None else scale.dtype
    return torch.ops.gpusim.dequantize(node.tensor(0), scale, dtype)


@_operator("DynamicQuantizeLinear")
def _quantise_by_range(node: Node) -> Any:
    value = node.tensor(0)
    low, high = torch.aminmax(value)
    scale = (high - low) / 255
    zero = (-low / scale).round().clamp(0, 255)
    return (value / scale + zero).round().clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


# Recurrent layers ---------------------------------------------------------------------------------


@_operator("LSTM", "GRU", "RNN")
def _recurrent(node: Node) -> Any:
    """Cells of one layer, in one call or, forward and backward, one for both directions."""
    value, hidden = node.tensor(0), node.attribute("hidden_size")
    first = bool(node.attribute("layout", 0))
    weights, states = node.tensor(1), node.tensor(2)
    biases = node.tensor(3) if node.has(3) else None
    directions = weights.shape[0]
    batch = value.shape[0 if first else 1]
    gates = states.shape[1]
    parameters = []
    for at in range(directions):
        parameters += [weights[at], states[at]]
        if biases is not None:
            parameters += [biases[at, :gates], biases[at, gates:]]

    def state(place: int) -> Any:
        if node.has(place):
            return node.tensor(place).transpose(0, 1) if first else node.tensor(place)
        return torch.zeros(directions, batch, hidden, dtype=value.dtype, device=value.device)

    options = biases is not None, 1, 0.0, node.module.training, directions > 1, first
    if node.op_type == "LSTM":
        found, *last = torch._VF.lstm(value, (state(5), state(6)), parameters, *options)  # noqa: SLF001 -- as torch.nn does
    else:
        function = torch._VF.gru if node.op_type == "GRU" else torch._VF.rnn_tanh  # noqa: SLF001
        found, *last = function(value, state(5), parameters, *options)
    found = found.reshape(*found.shape[:2], directions, hidden)
    found = found if first else found.transpose(1, 2)
    return (found, *((one.transpose(0, 1) for one in last) if first else last))


# Attention ----------------------------------------------------------------------------------------


def _heads(value: Any, heads: int) -> Any:
    """``batch x length x features`` as ``batch x heads x length x features of a head``."""
    return value if value.dim() == 4 else value.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined(value: Any) -> Any:
    return value.transpose(1, 2).flatten(2)


def _attended(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> Any:
    if mask is not None:
        while mask.dim() < 4:
            mask = mask.unsqueeze(1 if mask.dim() == 2 else 0)
    gqa = query.shape[1] != key.shape[1]
    causal = causal and mask is None and query.shape[-2] > 1
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=gqa)


@_operator("Attention")
def _attention(node: Node) -> Any:
    heads, of_keys = node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)
    query, key, value = (_heads(node.tensor(at), of_keys if at else heads) for at in range(3))
    if node.has(4):
        key, value = torch.cat([node.tensor(4), key], 2), torch.cat([node.tensor(5), value], 2)
    found = _attended(query, key, value, node.tensor(3), bool(node.attribute("is_causal", 0)))
    return _joined(found) if node.tensor(0).dim() == 3 else found, key, value


@_operator(_RUNTIME + "Attention")
def _packed_attention(node: Node) -> Any:
    heads = node.attribute("num_heads")
    together = F.linear(node.tensor(0), node.tensor(1).t(), node.tensor(2))
    sizes = node.attribute("qkv_hidden_sizes") or [together.shape[-1] // 3] * 3
    query, key, value = (_heads(one, heads) for one in together.split(list(sizes), -1))
    mask = node.tensor(3)
    mask = mask.bool() if mask is not None and mask.dim() > 1 else None
    mask = _with_bias(mask, node.tensor(5))
    return _joined(_attended(query, key, value, mask, bool(node.attribute("unidirectional", 0)))), None


def _with_bias(mask: Any, bias: Any) -> Any:
    if bias is None or mask is None:
        return mask if bias is None else bias
    return torch.where(mask[:, None, None, :] if mask.dim() == 2 else mask, bias, -math.inf)


@_operator(_RUNTIME + "MultiHeadAttention")
def _multi_head_attention(node: Node) -> Any:
    heads = node.attribute("num_heads")
    parts = [node.tensor(at) for at in range(3)]
    if parts[1] is None:
        raise ValueError("packed queries, keys and values are not supported; export them apart")
    if node.has(3):
        widths = [parts[0].shape[-1], *(one.shape[-1] if one.dim() == 3 else heads * one.shape[-1] for one in parts[1:])]
        biases = node.tensor(3).split(widths)
        parts = [one + bias if one.dim() == 3 else one for one, bias in zip(parts, biases, strict=True)]
    query, key, value = (_heads(one, heads) for one in parts)
    if node.has(6):
        key, value = torch.cat([node.tensor(6), key], 2), torch.cat([node.tensor(7), value], 2)
    mask = node.tensor(4)
    mask = _with_bias(mask.bool() if mask is not None else None, node.tensor(5))
    return _joined(_attended(query, key, value, mask, bool(node.attribute("unidirectional", 0)))), key, value


@_operator(_RUNTIME + "GroupQueryAttention")
def _group_query_attention(node: Node) -> Any:
    heads, of_keys = node.attribute("num_heads"), node.attribute("kv_num_heads")
    parts = [node.tensor(at) for at in range(3)]
    if parts[1] is None:
        size = parts[0].shape[-1] // (heads + 2 * of_keys)
        parts = list(parts[0].split([heads * size, of_keys * size, of_keys * size], -1))
    query, key, value = (_heads(one, count) for one, count in zip(parts, (heads, of_keys, of_keys), strict=True))
    if node.attribute("do_rotary", 0):
        past = node.tensor(3).shape[2] if node.has(3) else 0
        cosines, sines = (node.tensor(at)[past : past + query.shape[2]] for at in (7, 8))
        query, key = (_rotated(one, cosines, sines, bool(node.attribute("rotary_interleaved", 0))) for one in (query, key))
    if node.has(3):
        key, value = torch.cat([node.tensor(3), key], 2), torch.cat([node.tensor(4), value], 2)
    return _joined(_attended(query, key, value, None, causal=True)), key, value


def _rotated(value: Any, cosines: Any, sines: Any, alternate: bool) -> Any:
    """Pairs of features of each head turned by the angle of their place."""
    width = 2 * cosines.shape[-1]
    turned, rest = value[..., :width], value[..., width:]
    first, second = (turned[..., ::2], turned[..., 1::2]) if alternate else turned.chunk(2, -1)
    real, imaginary = first * cosines - second * sines, second * cosines + first * sines
    found = torch.stack([real, imaginary], -1).flatten(-2) if alternate else torch.cat([real, imaginary], -1)
    return torch.cat([found, rest], -1) if rest.shape[-1] else found


@_operator("RotaryEmbedding", _RUNTIME + "RotaryEmbedding")
def _rotary(node: Node) -> Any:
    # X, cos, sin, positions of ONNX; X, positions, cos, sin of ONNX Runtime.
    places, cosines, sines = (1, 2, 3) if node.domain == "com.microsoft" else (3, 1, 2)
    value = node.tensor(0)
    heads = node.attribute("num_heads", 0)
    four = _heads(value, heads or value.shape[-1] // (2 * node.tensor(cosines).shape[-1]))
    tables = [node.tensor(at) for at in (cosines, sines)]
    if node.has(places):
        indices = node.tensor(places)
        if indices.numel() == 1 and four.shape[2] > 1:
            tables = [one[: four.shape[2]] for one in tables]
        else:
            tables = [F.embedding(indices, one).unsqueeze(1) for one in tables]
    else:
        tables = [one.unsqueeze(1) for one in tables]
    found = _rotated(four, *tables, bool(node.attribute("interleaved", 0)))
    return found if value.dim() == 4 else _joined(found)


# Graphs within nodes ------------------------------------------------------------------------------


@_operator("If")
def _branch(node: Node) -> Any:
    graph = node.attribute("then_branch" if bool(node.known(0).item()) else "else_branch")
    return tuple(node.module.run_graph(graph, node.values))


@_operator("Loop")
def _loop(node: Node) -> Any:
    body = node.attribute("body")
    count = int(node.known(0).item()) if node.has(0) else MOST_ITERATIONS + 1
    if count > MOST_ITERATIONS:
        raise ValueError(f"more than {MOST_ITERATIONS} iterations are not followed")
    names = [one.name for one in body.input]
    carried = [node.values.get(name, node.module.tensor(name, node.values)) for name in node.inputs[2:]]
    collected: list[list[Any]] = []
    for at in range(count):
        given = {**node.values, names[0]: np.asarray(at), names[1]: np.asarray(True), **dict(zip(names[2:], carried, strict=True))}  # noqa: FBT003
        goes_on, *made = node.module.run_graph(body, given)
        carried, kept = made[: len(carried)], made[len(carried) :]
        collected.append(kept)
        if isinstance(goes_on, np.ndarray | np.generic) and not goes_on.item():
            break
    scans = [torch.stack(list(one)) for one in zip(*collected, strict=True)]
    return (*carried, *scans)


MOST_ITERATIONS = 4096
"""Iterations of a loop that are followed."""
