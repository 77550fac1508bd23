"""How a framework runs a model: what a user chooses beside its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gpusim.errors import InputError

Mode = Literal["train", "inference"]
MODES: tuple[Mode, ...] = get_args(Mode)
Precision = Literal["fp32", "tf32", "amp-fp16", "amp-bf16", "fp16", "bf16", "int8"]
"""``amp-`` casts what autocast lists; ``fp16`` and ``bf16`` hold the model in that type, its master weights in FP32;
``int8`` multiplies in INT8 what autocast would lower, and holds the rest in FP16."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LOWERED: tuple[Precision, ...] = ("amp-fp16", "amp-bf16", "fp16", "bf16", "int8")
"""Precisions whose convolutions take images as NHWC, unless said otherwise: Tensor Cores multiply along channels."""
Layout = Literal["nchw", "nhwc"]
Fusion = Literal["none", "elementwise", "engine"]
Optimizer = Literal["sgd", "sgd_momentum", "adam", "lamb"]


def default_layout(precision: str) -> Layout:
    """Memory layout of images that a precision is used with."""
    return "nhwc" if precision in LOWERED else "nchw"


class PolicyError(InputError):
    """A policy that contradicts itself, or that a GPU cannot follow; one line."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Choices that change what is launched for a model, not what it computes.

    Raises:
        PolicyError: an unknown precision, or training in INT8.
    """

    mode: Mode = "train"
    precision: Precision = "fp32"
    framework: str = "pytorch"
    version: str = "2.1"
    """Of the framework: decides the default arithmetic and which calls are fused."""
    layout: Layout = "nchw"
    """Of images in memory."""
    fusion: Fusion = "none"
    """``elementwise``: chains of elementwise operators run as one kernel. ``engine``: of inference, besides, norms in
    weights and activations in epilogues, and INT8 between layers, as TensorRT builds them."""
    fused_optimizer: bool = True
    """One kernel updates many parameters; else each parameter has kernels of its own."""
    checkpointing: bool = False
    """Repeated blocks keep only their inputs, and run forward once more in the backward pass."""
    accumulates: bool = False
    """Gradients of weights are added to those of earlier micro-batches."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise PolicyError(f"precision: expected one of {', '.join(PRECISIONS)}, got '{self.precision}'")
        if self.precision == "int8" and self.mode == "train":
            raise PolicyError("precision: int8 is for inference; train in another precision")
        if self.fusion == "engine" and self.mode == "train":
            raise PolicyError("fusion: engine is for inference; train with none or elementwise")
        if self.framework != "pytorch":
            raise PolicyError(f"framework: models run as PyTorch launches them, got '{self.framework}'")
