"""Recurrent layers as the calls of cuDNN's, for which PyTorch asks whether a GPU is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from gpusim.capture.attention import ATTENTION

_MODES: Mapping[str, int] = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers of cells."""
_KEPT = (1, 1, 6, 5)
"""Values of a cell that the backward pass reads, by mode: gates, and states before and after them."""


def _forward(
    input: torch.Tensor,  # noqa: A002 -- PyTorch's name
    weight: list[torch.Tensor],
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    mode: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError  # fake tensors have nothing to compute with


def _backward(
    input: torch.Tensor,  # noqa: A002
    weight: list[torch.Tensor],
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    output: torch.Tensor,
    grad_output: torch.Tensor | None,
    grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None,
    reserve: torch.Tensor,
    mode: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    raise NotImplementedError


_rnn = torch.library.custom_op(f"{ATTENTION}::_cudnn_rnn", _forward, mutates_args=())
_rnn_backward = torch.library.custom_op(f"{ATTENTION}::_cudnn_rnn_backward", _backward, mutates_args=())


@_rnn.register_fake
def _(input: Any, weight: Any, hx: Any, cx: Any, *options: Any) -> Any:  # noqa: A002
    mode, hidden, layers, _, train, bidirectional = options
    directions = 2 if bidirectional else 1
    *outer, _ = input.shape
    kept = _KEPT[mode] * math.prod(outer) * hidden * layers * directions if train else 0
    output = input.new_empty((*outer, directions * hx.shape[-1]))
    return (
        output,
        torch.empty_like(hx),
        input.new_empty((0,)) if cx is None else torch.empty_like(cx),
        input.new_empty((kept,)),
    )


@_rnn_backward.register_fake
def _(input: Any, weight: Any, hx: Any, cx: Any, *rest: Any) -> Any:  # noqa: A002
    like = torch.empty_like
    return like(input), like(hx), input.new_empty((0,)) if cx is None else like(cx), [like(one) for one in weight]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    given, weight, hx, cx, *ctx.options = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(given, hx, cx, output[0], output[3], *weight)


def _gradients(ctx: Any, of_output: Any, of_state: Any, of_cell: Any, _: Any) -> Any:
    given, hx, cx, output, reserve, *weight = ctx.saved_tensors
    of_given, of_hx, of_cx, of_weight = torch.ops.gpusim._cudnn_rnn_backward(  # noqa: SLF001
        given, weight, hx, cx, output, of_output, of_state, None if cx is None else of_cell, reserve, *ctx.options
    )
    return of_given, of_weight, of_hx, None if cx is None else of_cx, *[None] * len(ctx.options)


_rnn.register_autograd(_gradients, setup_context=_keep)


def _called(name: str, given: Any, *arguments: Any) -> Any:
    if len(arguments) == 8 and isinstance(arguments[-1], bool) and not isinstance(arguments[1], list | tuple):
        raise NotImplementedError("packed sequences have lengths that are values; give padded ones")
    states, weights, _, layers, dropout, train, bidirectional, batch_first = arguments
    hx, cx = states if name == "lstm" else (states, None)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        given, hx, cx = (None if one is None else one.to(dtype) for one in (given, hx, cx))
        weights = [one.to(dtype) for one in weights]
    given = (given.transpose(0, 1) if batch_first else given).contiguous()
    options = _MODES[name], weights[1].shape[1], layers, dropout, train, bidirectional
    output, hy, cy, _ = torch.ops.gpusim._cudnn_rnn(given, list(weights), hx, cx, *options)  # noqa: SLF001
    last = (hy, cy) if name == "lstm" else (hy,)
    return (output.transpose(0, 1) if batch_first else output, *last)


def _grid_sampled(given: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    """The kernel of PyTorch; where cuDNN has one, that is left out."""
    function = torch.ops.aten.grid_sampler_2d if given.dim() == 4 else torch.ops.aten.grid_sampler_3d
    return function(given, grid, mode, padding, align_corners)


@torch.library.custom_op(f"{ATTENTION}::_grouped_mm", mutates_args=())
def _grouped(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError


@_grouped.register_fake
def _(a: Any, b: Any, ends: Any) -> Any:
    """Rows of ``a`` in groups, each with its matrix of ``b``; of gradients, a product for each group of columns."""
    return a.new_empty((*([] if b.dim() == 3 else [ends.shape[0]]), a.shape[0], b.shape[-1]))


def _keep_groups(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _gradients_of_groups(ctx: Any, gradient: Any) -> Any:
    a, b, ends = ctx.saved_tensors
    of_groups = torch.ops.gpusim._grouped_mm  # noqa: SLF001
    return of_groups(gradient, b.transpose(1, 2), ends), of_groups(a.t(), gradient, ends), None


_grouped.register_autograd(_gradients_of_groups, setup_context=_keep_groups)


def _grouped_mm(mat_a: Any, mat_b: Any, *, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Mixtures of experts; PyTorch asks which GPU it is, and takes other paths for other types."""
    found = torch.ops.gpusim._grouped_mm(mat_a, mat_b, offs)  # noqa: SLF001
    found = found if bias is None else found + bias
    return found if out_dtype is None else found.to(out_dtype)


OF_CUDA: Mapping[tuple[Any, str], Callable[..., Any]] = {
    **{(torch._VF, name): partial(_called, name) for name in _MODES},  # noqa: SLF001 -- torch.nn calls it
    (torch, "grid_sampler"): _grid_sampled,
    **({(torch.nn.functional, "grouped_mm"): _grouped_mm} if hasattr(torch.nn.functional, "grouped_mm") else {}),
    (torch.cuda, "get_device_capability"): lambda *_: (8, 0),
    (torch.cuda, "is_bf16_supported"): lambda *_, **__: True,
    (torch.cuda.amp.common, "amp_definitely_not_available"): lambda: False,
}
"""Functions for which PyTorch asks a GPU."""
