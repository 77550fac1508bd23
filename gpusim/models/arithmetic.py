"""Types in which the operations of a framework compute under a policy, as its math-mode rules say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import Version

from gpusim.hardware.gpu import Gpu
from gpusim.mathmode.resolve import FrameworkOperation, resolve
from gpusim.models.policy import Policy, PolicyError
from gpusim.numbers.formats import Dtype

_HELD_IN = {
    "fp16": Dtype.FP16,
    "bf16": Dtype.BF16,
    "int8": Dtype.FP16,
    "fp8": Dtype.BF16,
    "w4a16": Dtype.FP16,
    "w8a16": Dtype.FP16,
}
"""Types of weights and activations by precision, where not FP32."""
_AUTOCAST = {"amp-fp16": "fp16", "amp-bf16": "bf16"}
_ALLOW_TF32 = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32")
_FIRST_WITH_TF32 = Version("1.7")
_NARROW = {
    "int8": (Dtype.INT8, frozenset({"linear", "conv2d"})),
    "fp8": (Dtype.FP8, frozenset({"linear"})),
}
"""Types of 8 bits by precision, and the operations that multiply weights, which inference quantises."""
_WEIGHTS = {"w4a16": Dtype.INT4, "w8a16": Dtype.INT8}
"""Types of the weights of linear layers by precision, where they alone are narrow."""
PAGE_TOKENS = 16
"""Tokens of a page of a serving engine's cache (vLLM, ``block_size``)."""
_FLASH_ATTENTION = (8, 0)
"""First compute capability that FlashAttention runs on, which finds keys in pages and skips those before a window."""
_PRODUCTS = ("matmul", "conv", "rnn")
"""Kinds of operations that TF32 is for."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Types of a policy on a GPU."""

    policy: Policy
    gpu: Gpu
    _known: dict[str, tuple[Dtype | None, Dtype]] = field(default_factory=dict, compare=False)

    @property
    def held_in(self) -> Dtype:
        """Type of weights and inputs of the model."""
        return _HELD_IN.get(self.policy.precision, Dtype.FP32)

    @property
    def kept_in(self) -> Dtype | None:
        """Type in which a cache is stated to keep keys and values; None: that in which they are computed."""
        return Dtype(self.policy.cache_type) if self.policy.cache_type else None

    @property
    def cached_in(self) -> Dtype:
        """Type of keys and values in a cache."""
        return self.kept_in or self.held_in

    def check_cache(self, what: str, *, fused: bool) -> None:
        """Check that attention can read a cache in the type that is stated.

        Args:
            what: attends to it, for the error.
            fused: whether it is one kernel, which finds keys in pages.

        Raises:
            PolicyError: it cannot.
        """
        if self.kept_in is None:
            return
        if not fused:
            raise PolicyError(f"kv-dtype: {what} reads a cache of 16 bits; leave --kv-dtype out")
        if not self.has_flash_attention(self.held_in):
            kept = f"{self.held_in.value} with a cache in {self.kept_in.value}"
            raise PolicyError(f"kv-dtype: no kernel attends in {kept} on {self.gpu.name}; leave --kv-dtype out")

    @property
    def weights_in(self) -> Dtype | None:
        """Type of the weights of linear layers, where they alone are narrow."""
        return _WEIGHTS.get(self.policy.precision)

    def page_tokens(self, dtype: Dtype) -> int | None:
        """Tokens of a page in which keys and values of a type lie; None where they lie together."""
        return PAGE_TOKENS if self.policy.fusion == "serving" and self.has_flash_attention(dtype) else None

    def has_flash_attention(self, dtype: Dtype) -> bool:
        """Whether FlashAttention runs on the GPU in a type."""
        return self.gpu.capability >= _FLASH_ATTENTION and dtype in (Dtype.FP16, Dtype.BF16)

    @property
    def result_of_int8(self) -> Dtype:
        """Type that INT8 products write: that of the model, or INT8 where an engine keeps it between layers."""
        return Dtype.INT8 if self.policy.fusion == "engine" else self.held_in

    @property
    def scales_loss(self) -> bool:
        """Gradients are scaled so that small ones survive in FP16."""
        policy = self.policy
        return policy.scaled_loss and policy.mode == "train" and policy.precision in ("amp-fp16", "fp16")

    @property
    def quantises_scores(self) -> bool:
        """Whether the product with the vocabulary is quantised, too: engines leave it in 16 bits beside FP8."""
        return self.policy.precision not in ("fp8", *_WEIGHTS)

    def cast_to(self, operation: str) -> Dtype | None:
        """The type to which the framework casts the inputs of an operation; None: they stay as they are.

        Raises:
            PolicyError: the framework refuses the precision on the GPU.
        """
        return self._of(operation)[0]

    def path(self, operation: str) -> Dtype:
        """The type in which a product multiplies: TF32 where FP32 tensors are rounded to it.

        Raises:
            PolicyError: the framework refuses the precision on the GPU.
        """
        return self._of(operation)[1]

    def path_of(self, operation: str, held: Dtype) -> Dtype:
        """The type in which an operation multiplies tensors of a type, whatever autocast does to others.

        Raises:
            PolicyError: the framework refuses the precision on the GPU.
        """
        if held is not Dtype.FP32:
            return held
        if self.policy.precision in ("fp32", "tf32"):
            return self.path(operation)
        key = f"{operation} of fp32"
        if key not in self._known:
            self._known[key] = self._resolved(operation, held, {})
        return self._known[key][1]

    def _of(self, operation: str) -> tuple[Dtype | None, Dtype]:
        if operation not in self._known:
            self._known[operation] = self._resolved(operation)
        return self._known[operation]

    def _resolved(
        self, operation: str, held: Dtype | None = None, settings: Mapping[str, str] | None = None
    ) -> tuple[Dtype | None, Dtype]:
        policy = self.policy
        if held is None and policy.precision in _NARROW and operation in _NARROW[policy.precision][1]:
            narrow = _NARROW[policy.precision][0]
            return narrow, narrow
        held, settings = held or self.held_in, _settings(policy) if settings is None else settings
        called = FrameworkOperation(policy.framework, policy.version, operation, held.value, settings)
        mode = resolve(called, self.gpu)
        if mode.path is None:
            raise PolicyError(f"{policy.precision} on {self.gpu.name}: {mode.conflicts[0].says}")
        if policy.precision == "tf32" and mode.kind in _PRODUCTS and mode.path != "tf32":
            raise PolicyError(f"tf32 on {self.gpu.name}: {mode.decided['path'].says}; choose fp32")
        return (Dtype(mode.path) if "type" in mode.decided else None), Dtype(mode.path)


def _settings(policy: Policy) -> Mapping[str, str]:
    """Flags of the framework that a precision stands for."""
    if policy.precision in _AUTOCAST:
        return {"torch.autocast": _AUTOCAST[policy.precision]}
    if policy.precision in ("fp32", "tf32") and Version(policy.version) >= _FIRST_WITH_TF32:
        return dict.fromkeys(_ALLOW_TF32, "true" if policy.precision == "tf32" else "false")
    return {}
