"""Arithmetic of functions that multiply no matrices: operations on one element by kind, as the function is defined.

Kinds are ``add`` (subtractions too), ``mul``, ``max`` (compare and select), ``div``, ``exp``, ``log``, ``sqrt``,
``erf``, ``tanh``, ``random`` (a number of a counter-based generator). Instructions of each kind are data of the kernel
catalogues, with their source.

An elementwise function that models and programs call is one record of :data:`FUNCTIONS`: its operator, its layer and
gradient, its captures, its importers and its measurement follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

KINDS_OF_ARITHMETIC = ("add", "mul", "max", "div", "exp", "log", "sqrt", "erf", "tanh", "random")

Operations = Mapping[str, int]
"""Operations on one element, by kind."""
Chain = tuple[str, ...]
"""Pointwise functions that one kernel computes one after the other, by name."""


@dataclass(frozen=True, slots=True)
class Function:
    """An elementwise function: what it computes, what its gradient takes, and what programs call it."""

    name: str
    """Name of its layer in model files, of its pointwise function, and of its operator in the measured CSV schema."""
    kernel: Operations | Chain
    gradient: Operations | Chain
    """Kernel of the gradient of an operand, from that of the result. Of a function of two operands it takes the other
    one, too; an empty chain: the gradient of the result is that of the operand."""
    keeps: Literal["input", "result", "neither"] = "input"
    """What the gradient of a function of one operand is computed from, beside that of the result."""
    operands: int = 1
    torch: tuple[str, ...] = ()
    """Functions and methods of PyTorch, without underscores; the first is the operator of ATen."""
    autocast: str = ""
    """Name in the framework's lists of operations whose operands autocast casts; empty: it is in none."""
    in_schema: bool = False
    """Whether it is an operator of the measured CSV schema."""
    backward: str = ""
    """Operator of ATen that computes the gradient; empty: its name with ``_backward``."""

    @property
    def aten_gradients(self) -> tuple[str, ...]:
        """Operators of ATen that compute the gradient."""
        return (self.backward or f"{self.torch[0]}_backward",) if self.torch and self.operands == 1 else ()

    @property
    def aten(self) -> tuple[str, ...]:
        """Operators of ATen: the function, and the same in place."""
        return (self.torch[0], f"{self.torch[0]}_") if self.torch else ()

    @property
    def functions(self) -> Chain:
        """Pointwise functions of its kernel."""
        return self.kernel if isinstance(self.kernel, tuple) else (self.name,)

    @property
    def gradient_functions(self) -> Chain:
        """Pointwise functions of the kernel of its gradient."""
        return self.gradient if isinstance(self.gradient, tuple) else (f"{self.name}_backward",)


_CLIPPED: Chain = ("relu", "relu")  # at both ends
FUNCTIONS: Mapping[str, Function] = MappingProxyType({
    function.name: function
    for function in (
        # Of two operands, broadcast.
        Function("add", {"add": 1}, (), operands=2, torch=("add", "radd"), in_schema=True),
        Function("sub", {"add": 1}, (), operands=2, torch=("sub", "rsub")),
        Function("mul", {"mul": 1}, ("mul",), operands=2, torch=("mul", "rmul"), in_schema=True),
        Function(
            "div",
            {"div": 1},
            ("div",),
            operands=2,
            torch=("div", "truediv", "true_divide", "rtruediv"),
        ),
        Function("maximum", ("relu",), ("mask",), operands=2, torch=("maximum",)),
        Function("where", ("mask",), ("mask",), operands=2),  # of a tensor and a mask: captures look at all operands
        Function("smooth_l1", ("sub",), ("mul",), operands=2, autocast="smooth_l1_loss"),
        # Of one operand.
        Function(
            "relu",
            {"max": 1},
            {"max": 1},
            "result",
            torch=("relu",),
            in_schema=True,
            backward="threshold_backward",
        ),
        Function(  # whatever the two bounds
            "relu6", _CLIPPED, ("mask", "mask"), torch=("relu6",), backward="hardtanh_backward"
        ),
        Function("leaky_relu", {"mul": 1, "max": 1}, ("leaky_relu",), torch=("leaky_relu",)),
        Function(
            "hardswish",
            ("add", *_CLIPPED, "mul", "scale"),
            ("mask", "mask", "add_scaled", "mul"),
            torch=("hardswish",),
        ),
        Function(
            "hardsigmoid",
            ("add", *_CLIPPED, "scale"),
            ("mask", "mask", "scale"),
            torch=("hardsigmoid",),
        ),
        Function(  # x * 1/2 * (1 + erf(x * 1/sqrt 2))
            "gelu",
            {"mul": 3, "add": 1, "erf": 1},
            {"mul": 7, "add": 2, "erf": 1, "exp": 1},
            torch=("gelu",),  # a kernel that computes the error function
            in_schema=True,
        ),
        Function(  # x/2 (1 + tanh(c (x + d x^3))): PyTorch's gelu with another argument
            "gelu_tanh",
            ("mul", "mul", "add_scaled", "scale", "tanh", "add", "mul", "scale"),
            ("tanh", *("mul",) * 9, *("add",) * 4),
        ),
        Function("tanh", {"tanh": 1}, {"mul": 2, "add": 1}, "result", torch=("tanh",), in_schema=True),
        Function(
            "sigmoid",
            {"exp": 1, "add": 1, "div": 1},
            {"mul": 2, "add": 1},
            "result",
            torch=("sigmoid",),
        ),
        Function(
            "silu", {"exp": 1, "add": 1, "div": 1, "mul": 1}, {"exp": 1, "add": 3, "div": 1, "mul": 3}, torch=("silu",)
        ),
        Function(  # x b > threshold ? x : log1p(exp(x b)) / b: aten ActivationSoftplusKernel.cu; log1p assumed as log
            "softplus",
            {"mul": 1, "max": 1, "exp": 1, "log": 1, "div": 1},
            {"mul": 2, "max": 1, "exp": 1, "add": 1, "div": 1},
            torch=("softplus",),
            autocast="softplus",
            in_schema=True,
        ),
        Function("exp", {"exp": 1}, ("mul",), "result", torch=("exp",), autocast="exp"),
        Function("sqrt", {"sqrt": 1}, ("div",), "result", torch=("sqrt", "rsqrt")),
        Function("neg", ("scale",), ("scale",), "neither", torch=("neg",)),
        Function("scale", {"mul": 1}, ("scale",), "neither"),  # by a number that the program holds
    )
})  # fmt: skip
"""Elementwise functions by name, as PyTorch defines them."""
SCHEMA_FUNCTIONS: Mapping[str, Function] = MappingProxyType({
    name: function for name, function in FUNCTIONS.items() if function.in_schema
})  # fmt: skip
"""Functions that are operators of the measured CSV schema, by name."""

_OTHERS: Mapping[str, Operations] = {
    # Moves: casts, transposes, fills, gathers, concatenations, slices.
    "copy": {},
    # Functions without a layer.
    "log": {"log": 1},
    "erf": {"erf": 1},
    "random": {"random": 1},
    "power": {"log": 1, "mul": 1, "exp": 1},
    "sine": {"mul": 7, "add": 7},  # reduction of the angle, and a polynomial [assumed]
    # Parts of kernels.
    "add_scaled": {"add": 1, "mul": 1},
    "mask": {"max": 1},
    "dropout": {"random": 1, "max": 1, "mul": 2},
    "dropout_backward": {"mul": 2},
    # An element of a normalised tensor from statistics that are there: batch norm, frozen norms.
    "normalise": {"add": 2, "mul": 2},
    "normalise_inference": {"add": 2, "mul": 2},  # by statistics that training left, in cuDNN
    "normalise_backward": {"add": 3, "mul": 4},
    # Windows and gathers: what is computed for each element of the result beside its reads, which state the window.
    "max_pool": {"max": 1},
    "average_pool": {"add": 1},
    "max_pool_backward": {"max": 1},
    "average_pool_backward": {"mul": 1},
    "interpolate": {"mul": 4, "add": 3},
    "roi_align": {"mul": 4, "add": 4},
    # Optimizers, for each parameter; the reads and writes are weight, gradient and state.
    "unscale": {"mul": 1, "max": 1},
    "sgd": {"mul": 2, "add": 2},
    "sgd_momentum": {"mul": 3, "add": 3},
    "adam": {"mul": 7, "add": 4, "sqrt": 1, "div": 2},
    "lamb_direction": {"mul": 8, "add": 5, "sqrt": 1, "div": 2},
    "lamb_update": {"mul": 1, "add": 1},
}
POINTWISE: Mapping[str, Operations] = MappingProxyType({
    **{
        name: operations
        for function in FUNCTIONS.values()
        for name, operations in ((function.name, function.kernel), (f"{function.name}_backward", function.gradient))
        if not isinstance(operations, tuple)
    },
    **_OTHERS,
})  # fmt: skip
"""Arithmetic for each element of a pointwise operator, by name; a chain of functions adds theirs up."""

WINDOWS = frozenset(
    ("max_pool", "average_pool", "max_pool_backward", "average_pool_backward", "interpolate", "roi_align")
)
"""Pointwise functions of windows: what they read again they read soon. Others go over what is broadcast to its end."""

SOFTMAX_ARITHMETIC: Mapping[str, int] = MappingProxyType({"max": 1, "add": 2, "exp": 1, "mul": 1})
"""Largest, difference, exponential, sum, scale."""
LAYER_NORM_ARITHMETIC: Mapping[str, int] = MappingProxyType({"add": 4, "mul": 3})
"""Sum, difference, square, sum of squares, scale, weight, bias."""
REDUCTIONS: Mapping[str, Mapping[str, int]] = MappingProxyType({"sum": {"add": 1}})
"""Arithmetic of a reduction per element of its input, by name."""

ROW_REDUCTIONS: Mapping[str, Mapping[str, int]] = MappingProxyType({
    **REDUCTIONS,
    "max": {"max": 1},
    "arg_max": {"max": 1},  # with its place
    "norm": {"mul": 1, "add": 1},  # sum of squares
    "softmax": SOFTMAX_ARITHMETIC,
    "softmax_backward": {"mul": 1, "add": 2},  # of the gradient times the result
    "log_softmax": {"max": 1, "add": 3, "exp": 1},
    "log_softmax_backward": {"mul": 1, "add": 2, "exp": 1},
    "cross_entropy": {"max": 1, "add": 3, "exp": 1},
    "layer_norm": LAYER_NORM_ARITHMETIC,
    "layer_norm_backward": {"mul": 7, "add": 6},
    "rms_norm": {"mul": 3, "add": 1},
    "rms_norm_backward": {"mul": 6, "add": 3},
    "group_norm": LAYER_NORM_ARITHMETIC,
    "group_norm_backward": {"mul": 7, "add": 6},
    "quantise": {"mul": 1, "max": 3},  # largest magnitude, scale, clip at both ends
})  # fmt: skip
"""Arithmetic for each element of a row, by the function of the row."""

COLUMN_REDUCTIONS: Mapping[str, Mapping[str, int]] = MappingProxyType({
    "sum": {"add": 1},
    "max": {"max": 1},
    "norm": {"mul": 1, "add": 1},  # sum of squares
    "arg_max": {"max": 1},
    "mean_variance": {"add": 2, "mul": 1},
    "norm_weight_gradients": {"add": 3, "mul": 2},
    "batch_norm_gradients": {"add": 3, "mul": 2},
})  # fmt: skip
"""Arithmetic for each element of a column, by what is reduced: gradients of biases, statistics of batch norm, gradients
of weight and bias of a norm of rows, and of batch norm."""
