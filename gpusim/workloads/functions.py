"""Arithmetic of functions that multiply no matrices: operations on one element by kind, as the function is defined.

Kinds are ``add`` (subtractions too), ``mul``, ``max`` (compare and select), ``div``, ``exp``, ``log``, ``sqrt``,
``erf``, ``tanh``, ``random`` (a number of a counter-based generator). Instructions of a kernel are data of
the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

KINDS_OF_ARITHMETIC = ("add", "mul", "max", "div", "exp", "log", "sqrt", "erf", "tanh", "random")


@dataclass(frozen=True, slots=True)
class Function:
    """A function of one element of each input."""

    inputs: int
    arithmetic: Mapping[str, int]


FUNCTIONS: Mapping[str, Function] = MappingProxyType({
    "add": Function(2, {"add": 1}),
    "mul": Function(2, {"mul": 1}),
    "relu": Function(1, {"max": 1}),
    "gelu": Function(1, {"mul": 3, "add": 1, "erf": 1}),  # x * 1/2 * (1 + erf(x * 1/sqrt 2))
    "tanh": Function(1, {"tanh": 1}),
})  # fmt: skip
"""Elementwise functions of the measured tables by name, as PyTorch defines them."""

POINTWISE: Mapping[str, Mapping[str, int]] = MappingProxyType({
    **{name: function.arithmetic for name, function in FUNCTIONS.items()},
    # Moves: casts, transposes, fills, gathers, concatenations, slices.
    "copy": {},
    # Arithmetic and activations.
    "sub": {"add": 1},
    "div": {"div": 1},
    "scale": {"mul": 1},
    "add_scaled": {"add": 1, "mul": 1},
    "sqrt": {"sqrt": 1},
    "exp": {"exp": 1},
    "sigmoid": {"exp": 1, "add": 1, "div": 1},
    "silu": {"exp": 1, "add": 1, "div": 1, "mul": 1},
    "leaky_relu": {"mul": 1, "max": 1},
    "mask": {"max": 1},
    "dropout": {"random": 1, "max": 1, "mul": 2},
    # Gradients by the input; the gradient of the output is one of the reads.
    "relu_backward": {"max": 1},
    "gelu_backward": {"mul": 7, "add": 2, "erf": 1, "exp": 1},
    "tanh_backward": {"mul": 2, "add": 1},
    "sigmoid_backward": {"mul": 2, "add": 1},
    "silu_backward": {"exp": 1, "add": 3, "div": 1, "mul": 3},
    "dropout_backward": {"mul": 2},
    # An element of a normalised tensor from statistics that are there: batch norm, frozen norms.
    "normalise": {"add": 2, "mul": 2},
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
    "norm": {"mul": 1, "add": 1},  # sum of squares
    "softmax": SOFTMAX_ARITHMETIC,
    "softmax_backward": {"mul": 2, "add": 2},
    "log_softmax": {"max": 1, "add": 3, "exp": 1},
    "log_softmax_backward": {"mul": 1, "add": 2, "exp": 1},
    "cross_entropy": {"max": 1, "add": 3, "exp": 1},
    "layer_norm": LAYER_NORM_ARITHMETIC,
    "layer_norm_backward": {"mul": 7, "add": 6},
    "rms_norm": {"mul": 3, "add": 1},
    "rms_norm_backward": {"mul": 6, "add": 3},
    "group_norm": LAYER_NORM_ARITHMETIC,
    "group_norm_backward": {"mul": 7, "add": 6},
})  # fmt: skip
"""Arithmetic for each element of a row, by the function of the row."""

COLUMN_REDUCTIONS: Mapping[str, Mapping[str, int]] = MappingProxyType({
    "sum": {"add": 1},
    "max": {"max": 1},
    "mean_variance": {"add": 2, "mul": 1},
    "norm_weight_gradients": {"add": 3, "mul": 2},
    "batch_norm_gradients": {"add": 3, "mul": 2},
})  # fmt: skip
"""Arithmetic for each element of a column, by what is reduced: gradients of biases, statistics of batch norm, gradients
of weight and bias of a norm of rows, and of batch norm."""
