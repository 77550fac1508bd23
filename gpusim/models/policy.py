"""How a framework runs a model: what a user chooses beside its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from packaging.version import InvalidVersion, Version

from gpusim.errors import InputError, excerpt
from gpusim.models.sdpa import FIRST
from gpusim.workloads.attention import IMPLEMENTATIONS

Mode = Literal["train", "inference"]
MODES: tuple[Mode, ...] = get_args(Mode)
Pass = Literal["prompt", "token", "ending"]
PASSES: tuple[Pass, ...] = get_args(Pass)
"""Passes of a decoder in inference: once a batch, once a token, and at each token that ends a sequence."""
Precision = Literal["fp32", "tf32", "amp-fp16", "amp-bf16", "fp16", "bf16", "int8", "fp8", "w4a16", "w8a16"]
"""``amp-`` casts what autocast lists; ``fp16`` and ``bf16`` hold the model in that type, its master weights in FP32;
``int8`` multiplies in INT8 what autocast would lower, and holds the rest in FP16; ``fp8`` multiplies
linear layers within blocks in FP8, with scales by row, and holds the rest in BF16; ``w4a16`` and ``w8a16`` hold the
weights of such layers in INT4, 128 to a scale, and INT8, and the rest in FP16."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LOWERED: tuple[Precision, ...] = ("amp-fp16", "amp-bf16", "fp16", "bf16", "int8", "fp8", "w4a16", "w8a16")
"""Precisions whose convolutions take images as NHWC, unless said otherwise: Tensor Cores multiply along channels."""
Layout = Literal["nchw", "nhwc"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Fusion = Literal["none", "elementwise", "engine", "inductor", "serving"]
CacheType = Literal["", "fp8", "int8"]
"""Type of the keys and values that a cache keeps; empty: that in which they are computed."""
AttentionKind = Literal["eager", "fused", "flash1", "flash2", "flash3", "flashinfer", "cudnn", "memory_efficient"]
"""Products around a softmax, one kernel, or one of an implementation that is named."""
ATTENTION_KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)
TRACED_ATTENTION: tuple[AttentionKind, ...] = ("eager", "fused")
"""Kinds that a capture tells apart: which implementation runs is not of the trace."""
Optimizer = Literal["sgd", "sgd_momentum", "adam", "bert_adam", "lamb"]
"""``bert_adam``: Adam with weight decay beside it; unless fused, the gradient of each parameter is clipped by its own
norm (NVIDIA/DeepLearningExamples PyTorch/LanguageModeling/BERT/optimization.py: BertAdam)."""
Clipping = Literal["none", "loop", "fused"]
"""Clipping of gradients by their common norm: ``loop`` takes each parameter by itself (torch.nn.utils.clip_grad_norm_),
``fused`` many in one kernel."""

NEWEST = "2.1"
"""Version of PyTorch unless one is named."""


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
    version: str = NEWEST
    """Version of the framework; decides the default arithmetic and which calls are fused."""
    layout: Layout = "nchw"
    """Layout of images in memory."""
    fusion: Fusion = "none"
    """``elementwise``: chains of elementwise operators run as one kernel. ``engine``: of inference, besides, norms in
    weights and activations in epilogues, and INT8 between layers, as TensorRT builds them. ``inductor``: of a captured
    model, the kernels that TorchInductor made of it. ``serving``: of a language model in inference, the kernels of an
    engine that serves it (vLLM), with a cache of keys and values and the choice of the next token."""
    attention: AttentionKind | None = None
    """``fused``: scaled_dot_product_attention, one kernel that keeps scores on the chip; ``eager``: products around a
    softmax. None: calls of that function as the framework's version runs them, and eager where a model spells its
    attention out. Layers whose bias differs by query stay eager."""
    fused_optimizer: bool = True
    """One kernel updates many parameters; else each parameter has kernels of its own."""
    updates: bool = True
    """Training updates parameters; else it clears gradients alone, where they are not freed."""
    checkpointing: bool = False
    """Repeated blocks keep only their inputs, and run forward once more in the backward pass."""
    scaled_loss: bool = True
    """Training in FP16 scales the loss, and unscales gradients before the update."""
    cache_type: CacheType = ""
    """Type of cached keys and values, with ``serving``."""
    loops_groups: bool = False
    """An engine convolves one group of channels after the other, where there are fewer groups than channels."""
    accumulates: bool = False
    """Gradients of weights are added to those of earlier micro-batches."""

    @property
    def calls_fused_attention(self) -> bool:
        """Whether a call of scaled_dot_product_attention runs as one kernel where there is one."""
        return self.fuses_attention or (self.attention is None and Version(self.version) >= FIRST)

    @property
    def fuses_attention(self) -> bool:
        """Whether attention is stated to be one kernel."""
        return self.attention not in (None, "eager")

    @property
    def attention_implementation(self) -> str:
        """Implementation of fused attention that is named; empty: the framework chooses."""
        return self.attention if self.attention in IMPLEMENTATIONS else ""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise PolicyError(f"precision: expected one of {', '.join(PRECISIONS)}, got '{self.precision}'")
        if self.precision in ("int8", "fp8", "w4a16", "w8a16") and self.mode == "train":
            raise PolicyError(f"precision: {self.precision} is for inference; train in another precision")
        if self.fusion in ("engine", "serving") and self.mode == "train":
            raise PolicyError(f"fusion: {self.fusion} is for inference; train with none or elementwise")
        if self.cache_type and self.fusion != "serving":
            raise PolicyError(f"kv-dtype: a cache in {self.cache_type} is of serving engines; give --fusion serving")
        if not _is_version(self.version):
            raise PolicyError(f"version: expected one of PyTorch, such as 2.1, got '{excerpt(self.version)}'")
        if self.fuses_attention and Version(self.version) < FIRST:
            raise PolicyError(f"attention: PyTorch fuses it since {FIRST}, got version {self.version}")
        if self.framework != "pytorch":
            raise PolicyError(f"framework: models run as PyTorch launches them, got '{self.framework}'")


def torch_release(policy: Policy) -> str:
    """Release of PyTorch whose kernels run.

    >>> torch_release(Policy(version="1.13.1"))
    '1.13'
    """
    return ".".join(policy.version.split(".")[:2])


def _is_version(text: str) -> bool:
    try:
        _ = Version(text)
    except InvalidVersion:
        return False
    return True
