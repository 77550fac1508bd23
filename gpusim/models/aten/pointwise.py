"""Functions of every element: activations, their gradients, arithmetic, comparisons, random numbers and fills.

What each computes is a record of :data:`~gpusim.workloads.functions.FUNCTIONS`, or of the table of those that have no
layer and no gradient of their own here.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.models.aten.call import Call
from gpusim.models.aten.lowering import Launches, NoModelError, lowers
from gpusim.workloads.functions import FUNCTIONS, Chain

_COMPARED: Chain = ("mask",)
_CHAINS: Mapping[str, Chain] = {
    **{name: function.functions for function in FUNCTIONS.values() for name in function.torch},
    **{
        name: function.gradient_functions
        for function in FUNCTIONS.values()
        for name in function.aten_gradients
    },
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _COMPARED),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), _COMPARED),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), _COMPARED),
    **dict.fromkeys(("isnan", "isinf", "isfinite", "sign", "sgn", "signbit"), _COMPARED),
    **dict.fromkeys(("masked_fill", "where", "tril", "triu"), _COMPARED),
    **dict.fromkeys(("abs", "floor", "ceil", "round", "trunc", "minimum", "maximum"), ("relu",)),
    **dict.fromkeys(("clamp_min", "clamp_max", "fmin", "fmax"), ("relu",)),
    **dict.fromkeys(("clamp", "hardtanh"), ("relu", "relu")),
    **dict.fromkeys(("rsqrt", "reciprocal"), ("sqrt",)),
    **dict.fromkeys(("remainder", "fmod", "floor_divide"), ("div", "relu")),
    **dict.fromkeys(("elu", "celu", "selu"), ("exp", "add_scaled", "mask")),
    "elu_backward": ("exp", "mul", "mask"),
    "pow": ("power",),
    "square": ("mul",),
    "addcmul": ("mul", "add_scaled"),
    "addcdiv": ("div", "add_scaled"),
    "lerp": ("sub", "add_scaled"),
    **dict.fromkeys(("log2", "log10", "log1p"), ("log",)),
    **dict.fromkeys(("expm1", "exp2"), ("exp",)),
    **dict.fromkeys(("sin", "cos"), ("sine",)),
    **dict.fromkeys(("erf", "erfc", "erfinv"), ("gelu",)),
    **dict.fromkeys(("atan2", "atan", "asin", "acos", "tan"), ("sine",)),
    "_prelu_kernel": ("leaky_relu",),
    "mish": ("softplus", "tanh", "mul"),
    "mish_backward": ("softplus", "tanh", "sigmoid", *("mul",) * 4),
    "log_sigmoid_forward": ("softplus",),
    "log_sigmoid_backward": ("softplus_backward",),
    "glu": ("sigmoid", "mul"),
    "glu_backward": ("sigmoid", *("mul",) * 4),
    "logit": ("div", "log"),
    "softshrink": ("sub", "mask"),
    "polar": ("sine", "sine", "mul", "mul"),
    "complex": ("copy",),
    "angle": ("sine",),
    "xlogy": ("log", "mul"),
    "bitwise_left_shift": ("scale",),
    "bitwise_right_shift": ("scale",),
    "nan_to_num": ("mask",) * 3,
}  # fmt: skip
"""Pointwise functions by name of ATen, without the underscore of those that write to their operand."""
_FILLS = (
    *("fill", "zero", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like"),
    *(
        "new_zeros",
        "new_ones",
        "new_full",
        "arange",
        "linspace",
        "eye",
        "scalar_tensor",
        "tril_indices",
        "triu_indices",
    ),
)
_RANDOM = (
    "bernoulli",
    "uniform",
    "normal",
    "random",
    "rand",
    "randn",
    "rand_like",
    "randn_like",
    "exponential",
    "randint",
    "randperm",
)


@lowers(*_CHAINS)
def _function(launches: Launches, call: Call) -> None:
    name = call.base.rstrip("_")
    if name == "pow":
        chain = _power(call)
    elif name in ("gelu", "gelu_backward") and call.arguments.get("approximate", "none") == "tanh":
        tanh = FUNCTIONS["gelu_tanh"]
        chain = tanh.functions if name == "gelu" else tanh.gradient_functions
    elif name == "div" and call.arguments.get("rounding_mode"):
        chain = ("div", "relu")
    elif name in ("add", "sub", "rsub") and call.arguments.get("alpha", 1) != 1:
        chain = ("add_scaled",)
    else:
        chain = _CHAINS[name]
    if len(call.tensors) == 1 and name in ("mul", "div") and len(chain) == 1:
        chain = ("scale",)  # the host computes the reciprocal
    launches.elementwise(chain, call.tensors, call.returned[:2])


def is_function(call: Call) -> bool:
    """Whether a call computes a function of each element of one tensor."""
    return call.base.rstrip("_") in _CHAINS and len(call.tensors) == 1


def _power(call: Call) -> Chain:
    """The kernel of a power, by its exponent (aten/src/ATen/native/cuda/PowKernel.cu)."""
    exponent = call.arguments.get("exponent")
    if exponent in (0.5, -0.5):
        return ("sqrt",)
    if exponent in (2, 3, -1, -2):
        return {2: ("mul",), 3: ("mul", "mul"), -1: ("div",), -2: ("mul", "div")}[int(exponent)]
    return ("power",)


@lowers(*_FILLS, kind="fill")
def _fill(launches: Launches, call: Call) -> None:
    launches.elementwise(("copy",), [], call.returned[:1])


@lowers(*_RANDOM)
def _random(launches: Launches, call: Call) -> None:
    if call.base == "bernoulli_" and len(call.tensors) > 1:
        raise NoModelError
    launches.elementwise(("dropout",), [], call.returned[:1])


@lowers("native_dropout", "_fused_dropout", kind="dropout")
def _dropout(launches: Launches, call: Call) -> None:
    launches.elementwise(("dropout",), call.tensors[:1], call.returned)


@lowers("native_dropout_backward", "_masked_scale", kind="dropout_backward")
def _dropout_backward(launches: Launches, call: Call) -> None:
    launches.elementwise(("dropout_backward",), call.tensors, call.returned)


@lowers("_local_scalar_dense", kind="item")
def _item(launches: Launches, call: Call) -> None:
    """A copy to the host, which waits for it."""
    launches.elementwise(("copy",), call.tensors[:1], call.tensors[:1])
