"""Pointwise functions and reductions of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 -- its usual name

from gpusim.capture.onnx_module import Node, dtype_of
from gpusim.capture.onnx_registry import OPERATORS, RUNTIME, Operator, operator

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


_COMMUTES = {
    torch.add,
    torch.mul,
    torch.eq,
    torch.maximum,
    torch.minimum,
    torch.logical_and,
    torch.logical_or,
    torch.logical_xor,
}
_OF_TENSORS = {torch.maximum, torch.minimum, torch.logical_and, torch.logical_or, torch.logical_xor}

OPERATORS |= {
    **{
        name: _of_one(getattr(torch, name.lower()))
        for name in (
            *(
                "Abs",
                "Acos",
                "Acosh",
                "Asin",
                "Asinh",
                "Atan",
                "Atanh",
                "Ceil",
                "Cos",
                "Cosh",
                "Det",
                "Erf",
                "Exp",
                "Floor",
            ),
            *(
                "IsInf",
                "IsNaN",
                "Log",
                "Neg",
                "Reciprocal",
                "Relu",
                "Round",
                "Sigmoid",
                "Sign",
                "Sin",
                "Sinh",
                "Sqrt",
                "Tan",
            ),
            "Tanh",
        )
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
    RUNTIME + "Gelu": _of_one(F.gelu),
    "Swish": _of_one(F.silu),
    RUNTIME + "QuickGelu": lambda node: node.tensor(0) * torch.sigmoid(node.tensor(0) * node.attribute("alpha", 1.702)),
    "CastLike": lambda node: node.tensor(0).to(node.tensor(1).dtype),
    "Cast": lambda node: node.tensor(0).to(node.module.like(dtype_of(node.attribute("to")))),
}


@operator("Add")
def _add(node: Node) -> Any:
    for at in (0, 1):
        if node.module.biases.get(node.inputs[at]) == node.inputs[1 - at]:
            return node.tensor(at)  # which its product has added
    return _of_many(torch.add)(node)


@operator("Pow")
def _pow(node: Node) -> Any:
    base, exponent = node.operand(0), node.operand(1)
    found = torch.pow(base, exponent)
    return found.to(base.dtype) if isinstance(base, torch.Tensor) else found


@operator("Mod")
def _mod(node: Node) -> Any:
    return (torch.fmod if node.attribute("fmod", 0) else torch.remainder)(node.tensor(0), node.operand(1))


@operator("BitShift")
def _shift(node: Node) -> Any:
    left = node.attribute("direction") == "LEFT"
    return (torch.bitwise_left_shift if left else torch.bitwise_right_shift)(node.tensor(0), node.operand(1))


@operator("Mean")
def _mean(node: Node) -> Any:
    return _of_many(torch.add)(node) / len(node.inputs)


@operator("PRelu")
def _prelu(node: Node) -> Any:
    value, slope = node.tensor(0), node.tensor(1)
    channels = value.shape[1] if value.dim() > 1 else 1
    if slope.numel() in (1, channels):
        return torch.prelu(value, slope.reshape(-1))
    return torch.where(value > 0, value, value * slope)


@operator("Clip")
def _clip(node: Node) -> Any:
    low, high = (node.operand(at) if node.has(at) else node.attribute(name) for at, name in ((1, "min"), (2, "max")))
    value = node.tensor(0)
    return value if low is None and high is None else torch.clamp(value, low, high)


@operator("Where")
def _where(node: Node) -> Any:
    return torch.where(node.tensor(0), node.operand(1), node.operand(2))


@operator("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: Node) -> Any:
    value = node.tensor(0)
    axis = node.attribute("axis", -1 if node.opset >= 13 else 1)
    if node.op_type == "Hardmax":
        return torch.zeros_like(value).scatter(axis, value.argmax(axis, keepdim=True), 1.0)
    function = torch.softmax if node.op_type == "Softmax" else torch.log_softmax
    if node.opset < 13 and axis % value.dim() != value.dim() - 1:  # of all dimensions from there on
        return function(value.flatten(axis), -1).reshape(value.shape)
    return function(value, axis)


@operator("Dropout")
def _dropout(node: Node) -> Any:
    return F.dropout(node.tensor(0), node.attribute("ratio", 0.5), node.module.training), None


@operator(RUNTIME + "BiasGelu", RUNTIME + "FastGelu")
def _bias_gelu(node: Node) -> Any:
    value = node.tensor(0) + node.tensor(1) if node.has(1) else node.tensor(0)
    return F.gelu(value, approximate="tanh" if node.op_type == "FastGelu" else "none")


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


@operator("ArgMax", "ArgMin")
def _arg(node: Node) -> Any:
    function = torch.argmax if node.op_type == "ArgMax" else torch.argmin
    return function(node.tensor(0), node.attribute("axis", 0), bool(node.attribute("keepdims", 1)))


@operator("CumSum")
def _cumsum(node: Node) -> Any:
    axis = int(node.known(1).item())
    value = node.tensor(0).flip(axis) if node.attribute("reverse", 0) else node.tensor(0)
    value = value.cumsum(axis, dtype=value.dtype)
    return value.flip(axis) if node.attribute("reverse", 0) else value


@operator("TopK")
def _topk(node: Node) -> Any:
    count = node.number(1, "k")
    largest, in_order = bool(node.attribute("largest", 1)), bool(node.attribute("sorted", 1))
    return tuple(torch.topk(node.tensor(0), count, node.attribute("axis", -1), largest, in_order))
