"""Recurrent layers as one call each, as cuDNN has them; a build of PyTorch without a GPU would take them apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from gpusim.capture.attention import ATTENTION

_GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_KEPT: Mapping[str, int] = {"lstm": 6, "gru": 5, "rnn_tanh": 1, "rnn_relu": 1}
"""Values of a cell that the backward pass reads: gates, and states before and after them."""


def _forward(
    input: torch.Tensor,  # noqa: A002 -- PyTorch's name
    states: list[torch.Tensor],
    parameters: list[torch.Tensor],
    kind: str,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    raise NotImplementedError  # fake tensors have nothing to compute with


def _backward(
    gradients: list[torch.Tensor],
    input: torch.Tensor,  # noqa: A002
    states: list[torch.Tensor],
    parameters: list[torch.Tensor],
    output: torch.Tensor,
    reserve: torch.Tensor,
    kind: str,
    layers: int,
    dropout: float,
    bidirectional: bool,
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    raise NotImplementedError


_rnn = torch.library.custom_op(f"{ATTENTION}::rnn", _forward, mutates_args=())
_rnn_backward = torch.library.custom_op(f"{ATTENTION}::rnn_backward", _backward, mutates_args=())


@_rnn.register_fake
def _(input: Any, states: Any, parameters: Any, kind: str, layers: int, dropout: float, train: bool, bidirectional: bool) -> Any:  # noqa: A002, ARG001
    directions = 2 if bidirectional else 1
    *outer, _ = input.shape
    hidden = states[0].shape[-1]
    output = input.new_empty((*outer, directions * hidden))
    cells = math.prod(outer) * hidden * layers * directions
    reserve = input.new_empty((_KEPT[kind] * cells if train else 0,))
    return output, [torch.empty_like(one) for one in states], reserve


@_rnn_backward.register_fake
def _(
    gradients: Any, input: Any, states: Any, parameters: Any, output: Any, reserve: Any, kind: str, layers: int, dropout: float, bidirectional: bool  # noqa: A002, ARG001
) -> Any:
    like = torch.empty_like
    return like(input), [like(one) for one in states], [like(one) for one in parameters]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    given, states, parameters, ctx.kind, ctx.layers, ctx.dropout, _, ctx.bidirectional = inputs
    ctx.count = len(states), len(parameters)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(given, *states, *parameters, output[0], output[2])


def _gradients(ctx: Any, of_output: Any, of_states: Any, _: Any) -> Any:
    states, parameters = ctx.count
    given, *others = ctx.saved_tensors
    found = torch.ops.gpusim.rnn_backward(
        [one for one in (of_output, *of_states) if one is not None],
        given,
        others[:states],
        others[states : states + parameters],
        *others[-2:],
        ctx.kind,
        ctx.layers,
        ctx.dropout,
        ctx.bidirectional,
    )
    return (*found, None, None, None, None, None)


_rnn.register_autograd(_gradients, setup_context=_keep)


def _called(kind: str, given: Any, *arguments: Any) -> Any:
    packed = isinstance(arguments[0], torch.Tensor) and kind == "lstm" or isinstance(arguments[1], torch.Tensor)
    if packed:
        raise NotImplementedError("packed sequences have lengths that are values; give padded ones")
    states, parameters, _, layers, dropout, train, bidirectional, batch_first = arguments
    states = list(states) if isinstance(states, list | tuple) else [states]
    parameters = list(parameters)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        given, *rest = (one.to(dtype) for one in (given, *states, *parameters))
        states, parameters = rest[: len(states)], rest[len(states) :]
    given = (given.transpose(0, 1) if batch_first else given).contiguous()
    output, last, _ = torch.ops.gpusim.rnn(given, states, parameters, kind, layers, dropout, train, bidirectional)
    return (output.transpose(0, 1) if batch_first else output, *last)


def _grid_sampled(given: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    """The kernel of PyTorch; where cuDNN has one, that is left out."""
    function = torch.ops.aten.grid_sampler_2d if given.dim() == 4 else torch.ops.aten.grid_sampler_3d
    return function(given, grid, mode, padding, align_corners)


OF_CUDNN: Mapping[tuple[Any, str], Callable[..., Any]] = {
    **{(torch._VF, name): partial(_called, name) for name in _GATES},  # noqa: SLF001 -- torch.nn calls it
    (torch, "grid_sampler"): _grid_sampled,
}
"""Functions for which PyTorch asks whether cuDNN is there."""
