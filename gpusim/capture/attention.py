"""Scaled dot-product attention as one call, which a build of PyTorch without CUDA would take apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from gpusim.capture.errors import line_of

ATTENTION = "gpusim"
"""Namespace of the call."""


@torch.library.custom_op(f"{ATTENTION}::attention", mutates_args=())
def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError  # fake tensors have nothing to compute with


@_attention.register_fake
def _(query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool) -> Any:
    """Heads lie side by side in the result, as those of the inputs mostly do (flash and memory-efficient attention)."""
    *outer, heads, length, _ = query.shape
    result = query.new_empty((*outer, length, heads, value.shape[-1])).transpose(-3, -2)
    return result, query.new_empty((*outer, heads, length), dtype=torch.float32)


@torch.library.custom_op(f"{ATTENTION}::attention_backward", mutates_args=())
def _attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    result: torch.Tensor,
    sums: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    of_mask: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError


@_attention_backward.register_fake
def _(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    result: Any,
    sums: Any,
    mask: Any,
    dropout: float,
    causal: bool,
    of_mask: bool,
) -> Any:
    def like(one: Any) -> Any:
        *outer, heads, length, features = one.shape
        return one.new_empty((*outer, length, heads, features)).transpose(-3, -2)

    of_scores = (*query.shape[:-1], key.shape[-2])
    return like(query), like(key), like(value), query.new_empty(of_scores if of_mask else (0,))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, mask, ctx.dropout, ctx.causal = inputs
    ctx.of_mask = mask is not None and mask.requires_grad
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(query, key, value, mask, *output)


def _backward(ctx: Any, gradient: Any, _: Any) -> Any:
    query, key, value, mask, result, sums = ctx.saved_tensors
    of_query, of_key, of_value, of_mask = torch.ops.gpusim.attention_backward(
        gradient, query, key, value, result, sums, mask, ctx.dropout, ctx.causal, ctx.of_mask
    )
    return of_query, of_key, of_value, of_mask.sum_to_size(mask.shape) if ctx.of_mask else None, None, None


_attention.register_autograd(_backward, setup_context=_keep)


_ANSWERS: Mapping[Any, tuple[str, bool]] = {
    torch.any: ("any", False),
    torch.Tensor.any: ("any", False),
    torch.all: ("all", True),
    torch.Tensor.all: ("all", True),
}
_READS = frozenset({torch.Tensor.__bool__, torch.Tensor.item})


class Replaced(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is not checked
    """Calls other functions in place of some of PyTorch's, from a module's own code and within PyTorch's.

    A module may ask whether any of some values holds, or all of them, as checks for infinities and padding do: no, and
    yes, and this is noted.
    """

    def __init__(
        self,
        functions: Mapping[tuple[Any, str], Callable[..., Any]],
        script: Path | None = None,
        linear: Callable[[int | None], None] = lambda _: None,
    ) -> None:
        """Functions by the places of those that they replace.

        Args:
            linear: called with the dimensions of the input of a linear layer before it runs, and with None after it.
        """
        super().__init__()
        self._linear = linear
        self.assumptions: list[str] = []
        self._script = script
        self._answers: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._functions = functions
        self._originals = {place: getattr(*place) for place in functions}
        self._by_original = {self._originals[place]: function for place, function in functions.items()}
        if OF_ATTENTION.items() <= functions.items():  # as exported programs call it
            self._by_original[torch.ops.aten.scaled_dot_product_attention.default] = _called

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS and args[0] in self._answers:
            name, answer = self._answers[args[0]]
            self.assumptions.append(f"{line_of(self._script)}: {name}() is {str(answer).lower()}")
            return answer
        called, kwargs = self._by_original.get(func, func), kwargs or {}
        if func is torch.nn.functional.linear:
            self._linear((args[0] if args else kwargs["input"]).dim())
            result = called(*args, **kwargs)
            self._linear(None)
        else:
            result = called(*args, **kwargs)
        if func in _ANSWERS and isinstance(result, torch.Tensor) and result.dim() == 0:
            self._answers[result] = _ANSWERS[func]
        return result

    def __enter__(self) -> Any:
        for (owner, name), function in self._functions.items():
            setattr(owner, name, function)  # PyTorch's functions in Python call each other without the mode
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for (owner, name), function in self._originals.items():
            setattr(owner, name, function)


def _called(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if torch.is_autocast_enabled("cuda") and query.is_floating_point():  # it is in autocast's list of lower precision
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = (one.to(dtype) for one in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    while query.dim() < 4:
        query, key, value = (one.unsqueeze(0) for one in (query, key, value))
        return _called(query, key, value, attn_mask, dropout_p, is_causal).squeeze(0)
    return torch.ops.gpusim.attention(query, key, value, attn_mask, dropout_p, is_causal)[0]


OF_ATTENTION: Mapping[tuple[Any, str], Callable[..., Any]] = {
    (torch.nn.functional, "scaled_dot_product_attention"): _called
}
