"""Captured programs: what a model calls in a step, for each way of running it that was traced, at given sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpusim.models.aten.call import Call, Operand, TensorView, Trace
from gpusim.models.policy import Clipping, Mode, Optimizer, Policy, PolicyError
from gpusim.models.shape import Shape, elements

_SWAPPED = {"amp-bf16": ("amp-fp16", "bfloat16"), "amp-fp16": ("amp-bf16", "float16")}
_HALVES = frozenset({"float16", "bfloat16"})
_TRACED_AS = {"tf32": "fp32"}
"""Precisions that differ in the kernels of products alone."""


TracedMode = Mode | Literal["token"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way of running a model that changes what it calls."""

    mode: TracedMode
    """``token``: inference of one more token of each sequence, with ``past_len`` of each in a cache."""
    precision: str
    """That of the calls: ``tf32`` is ``fp32``."""
    layout: str
    """Layout of images in memory; ``nchw`` of a model that takes none."""
    attention: str
    """``fused``: scaled_dot_product_attention is a call; ``eager``: products around a softmax."""
    compiled: bool = False
    """Kernels of TorchInductor, not calls of eager PyTorch."""

    def __str__(self) -> str:
        """Text of messages.

        >>> str(Variant("train", "amp-fp16", "nhwc", "fused"))
        'train, amp-fp16, nhwc, fused attention'
        """
        how = ", compiled" if self.compiled else ""
        return f"{self.mode}, {self.precision}, {self.layout}, {self.attention} attention{how}"

    @property
    def options(self) -> str:
        """Options of ``gpusim capture`` that trace it."""
        ways = f"--mode {self.mode} --precision {self.precision} --layout {self.layout} --attention {self.attention}"
        return f"{ways} --compile" if self.compiled else ways


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trainable tensor."""

    shape: Shape
    dtype_name: str
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """A captured model at given sizes."""

    name: str
    item: str
    items: int
    sizes: Mapping[str, int]
    parameters_by_name: Mapping[str, Parameter]
    traces: Mapping[Variant, Callable[[], Trace]]
    """What gives the calls of each variant."""
    optimizer: Optimizer = "adam"
    resident_bytes: int = 0
    """Bytes of weights, buffers and inputs."""
    images: bool = False
    """Whether it takes images, whose layout matters."""
    attends: bool = False
    """Whether it calls scaled_dot_product_attention, or has another way to attend."""
    clipping: Clipping = "none"
    counted_loss: bool = False
    uneven: float = 0.0
    one_token: bool = False
    """Whether a step is that of one more token of each sequence."""
    source: str = field(default="", compare=False)

    @property
    def parameters(self) -> int:
        """Trainable elements; shared ones count once."""
        return sum(elements(one.shape) for one in self.parameters_by_name.values())

    @property
    def flops(self) -> int:
        """FLOP of the forward pass, as usually published: two for each multiply-add of convolutions and GEMMs."""
        trace = next(iter(self.traces.values()))()
        return 2 * sum(multiply_adds(call) for call in trace.calls if call.phase == "forward")

    def trace(self, policy: Policy) -> Trace:
        """The calls of a step under a policy.

        Raises:
            PolicyError: it was not traced in this way.
        """
        precision = _TRACED_AS.get(policy.precision, policy.precision)
        attention = ("fused" if policy.calls_fused_attention else "eager") if self.attends else "fused"
        mode = "token" if self.one_token else policy.mode
        layout = policy.layout if self.images else "nchw"
        wanted = Variant(mode, precision, layout, attention, policy.fusion == "inductor")
        if wanted in self.traces:
            return self.traces[wanted]()
        if precision in _SWAPPED:
            other, half = _SWAPPED[precision]
            if (found := self.traces.get(replace(wanted, precision=other))) is not None:
                return in_half(found(), half)
        known = "; ".join(map(str, self.traces))
        again = f"capture it with {wanted.options}"
        raise PolicyError(f"{self.name}: has no trace of {wanted}; it has {known}; {again}")


def in_half(trace: Trace, dtype_name: str) -> Trace:
    """A trace with all tensors of 16 bits in another type of 16 bits."""
    known: dict[TensorView, TensorView] = {}

    def of_tensor(one: TensorView) -> TensorView:
        if one not in known:
            known[one] = replace(one, dtype_name=dtype_name) if one.dtype_name in _HALVES else one
        return known[one]

    def of_operand(one: Operand) -> Operand:
        if isinstance(one, tuple):
            return tuple(None if inner is None else of_tensor(inner) for inner in one)
        return None if one is None else of_tensor(one)

    def of_call(call: Call) -> Call:
        results = tuple(None if one is None else of_tensor(one) for one in call.results)
        return replace(call, operands=tuple(map(of_operand, call.operands)), results=results)

    gradients = {name: of_tensor(one) for name, one in trace.gradients.items()}
    return replace(trace, calls=list(map(of_call, trace.calls)), gradients=gradients)


_PRODUCTS: Mapping[str, int] = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "mv": 0, "dot": 0, "addmv": 1}
"""Place of the first factor among the operands."""


def multiply_adds(call: Call) -> int:
    """Multiply-adds of a product, a convolution or an attention; 0 of other calls."""
    match call.base:
        case name if name in _PRODUCTS:
            return call.returned[0].elements * call.operand(_PRODUCTS[name]).shape[-1]
        case "convolution" | "_convolution" | "convolution_overrideable":
            weight, result = call.operand(1), call.returned[0]
            moved = call.operand(0) if call.arguments.get("transposed") else result
            return moved.elements * math.prod(weight.shape[1:])
        case "attention":
            query, key = call.operand(0), call.operand(1)
            return (query.elements + call.returned[0].elements) * key.shape[-2]
        case "_grouped_mm":
            return call.operand(0).elements * call.returned[0].shape[-1]
        case "_cudnn_rnn":  # each matrix of weights, at every position of every sequence
            given, weights = call.operand(0), call.operands[1]
            assert isinstance(weights, tuple)
            matrices = sum(one.elements for one in weights if one is not None and len(one.shape) > 1)
            return matrices * math.prod(given.shape[:-1])
    return 0
