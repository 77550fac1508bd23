"""Layers of ONNX: products, convolutions, norms, recurrent and quantised ones, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
import torch.nn.functional as F  # noqa: N812 -- its usual name

from gpusim.capture.attention import ATTENTION
from gpusim.capture.onnx_module import Node, dtype_of
from gpusim.capture.onnx_registry import OPERATORS, RUNTIME, operator

# Products -----------------------------------------------------------------------------------------


@operator("MatMul")
def _matmul(node: Node) -> Any:
    a, b = node.tensor(0), node.tensor(1)
    bias = node.module.biases.get(node.outputs[0])
    return torch.matmul(a, b) if bias is None else F.linear(a, b.t(), node.module.tensor(bias, node.values))


@operator(RUNTIME + "FusedMatMul")
def _fused_matmul(node: Node) -> Any:
    a, b = node.tensor(0), node.tensor(1)
    a, b = (one.mT if node.attribute(name, 0) else one for one, name in ((a, "transA"), (b, "transB")))
    found = torch.matmul(a, b)
    alpha = node.attribute("alpha", 1.0)
    return found if alpha == 1.0 else found * alpha


@operator("Gemm")
def _gemm(node: Node) -> Any:
    a, b = node.tensor(0), node.tensor(1)
    a, b = (one.t() if node.attribute(name, 0) else one for one, name in ((a, "transA"), (b, "transB")))
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if node.has(2):
        return torch.addmm(node.tensor(2), a, b, alpha=alpha, beta=beta)
    return torch.mm(a, b)


@operator("Einsum")
def _einsum(node: Node) -> Any:
    return torch.einsum(node.attribute("equation"), *node.tensors)


@operator("MatMulInteger")
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


@operator("Conv", RUNTIME + "FusedConv")
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


@operator("ConvTranspose")
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


@operator("MaxPool", "AveragePool", "LpPool")
def _pool(node: Node) -> Any:
    kernel = list(node.attribute("kernel_shape"))
    value, begin, end, strides, dilations = _window(node, node.tensor(0), kernel)
    up, at = bool(node.attribute("ceil_mode", 0)), len(kernel) - 1
    most = [one // 2 for one in kernel]
    if node.op_type == "MaxPool":
        value, padding = _padded(value, begin, end, -math.inf, most)
        function: Any
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


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Node) -> Any:
    value = node.tensor(0)
    dims = list(range(2, value.dim()))
    if node.op_type == "GlobalAveragePool":
        return value.mean(dims, keepdim=True)
    return (
        value.amax(dims, keepdim=True)
        if node.op_type == "GlobalMaxPool"
        else torch.linalg.vector_norm(value, 2, dims, keepdim=True)
    )


@operator("RoiAlign")
def _regions(node: Node) -> Any:
    regions = torch.cat([node.tensor(2).to(node.tensor(1).dtype).unsqueeze(1), node.tensor(1)], 1)
    size = node.attribute("output_height", 1), node.attribute("output_width", 1)
    aligned = node.opset >= 16 and node.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    numbers = node.attribute("spatial_scale", 1.0), *size, node.attribute("sampling_ratio", 0) or -1, aligned
    return _torchvision("roi_align")(node.tensor(0), regions, *numbers)


@operator("DeformConv")
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


# Norms --------------------------------------------------------------------------------------------


@operator("BatchNormalization")
def _batch_norm(node: Node) -> Any:
    value, scale, bias, mean, variance = (node.tensor(at) for at in range(5))
    momentum = 1.0 - node.attribute("momentum", 0.9)
    return F.batch_norm(
        value, mean, variance, scale, bias, node.module.training, momentum, node.attribute("epsilon", 1e-5)
    )


@operator("InstanceNormalization")
def _instance_norm(node: Node) -> Any:
    return F.instance_norm(
        node.tensor(0), weight=node.tensor(1), bias=node.tensor(2), eps=node.attribute("epsilon", 1e-5)
    )


@operator("GroupNormalization")
def _group_norm(node: Node) -> Any:
    value, scale, bias = node.tensor(0), node.tensor(1), node.tensor(2)
    groups = node.attribute("num_groups")
    if node.opset < 21:  # of groups
        scale, bias = (one.repeat_interleave(value.shape[1] // groups) for one in (scale, bias))
    return F.group_norm(value, groups, scale, bias, node.attribute("epsilon", 1e-5))


@operator(
    "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", RUNTIME + "SimplifiedLayerNormalization"
)
def _layer_norm(node: Node) -> Any:
    value, scale = node.tensor(0), node.tensor(1)
    shape = (
        value.shape[node.attribute("axis", -1) :]
        if node.attribute("axis", -1) < 0
        else value.shape[node.attribute("axis") :]
    )
    eps = node.attribute("epsilon", 1e-5)
    if node.op_type == "LayerNormalization":
        return F.layer_norm(
            value, shape, scale.expand(shape), None if not node.has(2) else node.tensor(2).expand(shape), eps
        )
    return F.rms_norm(value, shape, scale.expand(shape), eps)


@operator(RUNTIME + "SkipLayerNormalization", RUNTIME + "SkipSimplifiedLayerNormalization")
def _skip_layer_norm(node: Node) -> Any:
    simple = "Simplified" in node.op_type
    total = node.tensor(0) + node.tensor(1)
    if node.has(bias := 3 if simple else 4):
        total = total + node.tensor(bias)
    eps = node.attribute("epsilon", 1e-12)
    if simple:
        return F.rms_norm(total, total.shape[-1:], node.tensor(2), eps), None, None, total
    return F.layer_norm(total, total.shape[-1:], node.tensor(2), node.tensor(3), eps), None, None, total


@operator(RUNTIME + "EmbedLayerNormalization")
def _embed_layer_norm(node: Node) -> Any:
    words, kinds = node.tensor(0), node.tensor(1)
    places = node.tensor(3)[: words.shape[1]]
    total = F.embedding(words, node.tensor(2)) + places
    if kinds is not None:
        total = total + F.embedding(kinds, node.tensor(4))
    eps = node.attribute("epsilon", 1e-12)
    return F.layer_norm(total, total.shape[-1:], node.tensor(5), node.tensor(6), eps), None, total


@operator("LpNormalization")
def _lp_norm(node: Node) -> Any:
    value = node.tensor(0)
    dims = [node.attribute("axis", -1)]
    return value / torch.linalg.vector_norm(value, node.attribute("p", 2), dims, keepdim=True)


@operator("MeanVarianceNormalization")
def _mean_variance(node: Node) -> Any:
    value, axes = node.tensor(0), node.attribute("axes", [0, 2, 3])
    return (value - value.mean(axes, keepdim=True)) / (value.std(axes, keepdim=True) + 1e-9)


@operator("LRN")
def _local_response(node: Node) -> Any:
    numbers = [node.attribute(name, default) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))]
    return F.local_response_norm(node.tensor(0), node.attribute("size"), *numbers)


# Losses -------------------------------------------------------------------------------------------


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(node: Node) -> Any:
    scores = node.tensor(0)
    by_log = node.op_type == "SoftmaxCrossEntropyLoss"
    scores = torch.log_softmax(scores, 1) if by_log else scores
    ignored = node.attribute("ignore_index", -100)
    found = F.nll_loss(
        scores,
        node.tensor(1).long(),
        node.tensor(2),
        ignore_index=ignored,
        reduction=node.attribute("reduction", "mean"),
    )
    return (found, scores) if by_log else found


# Quantised tensors --------------------------------------------------------------------------------


@torch.library.custom_op(f"{ATTENTION}::quantize", mutates_args=())
def _quantized(value: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    raise NotImplementedError  # fake tensors have nothing to compute with


@_quantized.register_fake
def _(value: Any, scale: Any, dtype: Any) -> Any:
    return torch.empty_like(value, dtype=dtype)


@torch.library.custom_op(f"{ATTENTION}::dequantize", mutates_args=())
def _dequantized(value: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    raise NotImplementedError


@_dequantized.register_fake
def _(value: Any, scale: Any, dtype: Any) -> Any:
    return torch.empty_like(value, dtype=dtype)


def _scale(node: Node) -> Any:
    scale = node.operand(1)
    return scale if isinstance(scale, torch.Tensor) else None


@operator("QuantizeLinear", RUNTIME + "QuantizeLinear")
def _quantize(node: Node) -> Any:
    value = node.tensor(0)
    if value.requires_grad and torch.is_grad_enabled():
        raise ValueError("a quantised graph has no gradient; capture it with --mode inference")
    dtype = node.tensor(2).dtype if node.has(2) else dtype_of(node.attribute("output_dtype") or onnx.TensorProto.UINT8)
    return torch.ops.gpusim.quantize(value, _scale(node), dtype)


@operator("DequantizeLinear", RUNTIME + "DequantizeLinear")
def _dequantize(node: Node) -> Any:
    scale = _scale(node)
    dtype = node.module.like(torch.float32) if scale is None else scale.dtype
    return torch.ops.gpusim.dequantize(node.tensor(0), scale, dtype)


@operator("DynamicQuantizeLinear")
def _quantise_by_range(node: Node) -> Any:
    value = node.tensor(0)
    low, high = torch.aminmax(value)
    scale = (high - low) / 255
    zero = (-low / scale).round().clamp(0, 255)
    return (value / scale + zero).round().clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


# Recurrent layers ---------------------------------------------------------------------------------


@operator("LSTM", "GRU", "RNN")
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
