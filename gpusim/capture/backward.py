"""The backward pass of fake CUDA tensors: autograd's graph, node by node.

PyTorch's engine asks for a context of the device, which is not there. It does what this module does: it runs a node
when the gradients of all its results are there, adds up those of one tensor, and brings each to the shape and type of
what it is the gradient of (torch/csrc/autograd/engine.cpp, ``validate_outputs``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gpusim.capture.recorder import Layers


def run_backward(
    results: list[Any], layers: Layers, sweep: Callable[[], None], starts: Sequence[Any] = ()
) -> dict[Any, Any]:
    """Launch the backward pass from results; gradients of the leaves, by leaf.

    Args:
        results: emptied, so that what nothing needs any more is freed as the pass goes on.
        sweep: called after each node.
        starts: the gradient of each result; empty: ones.
    """
    gradients = _started(results, list(starts))
    waits = _waits(gradients)
    ready = [node for node in gradients if not waits[node]]
    leaves: dict[Any, Any] = {}
    node = below = gradient = None
    while ready:
        # The engine takes the node that was made last.
        node = max(ready, key=lambda one: one._sequence_nr())  # noqa: SLF001
        ready.remove(node)
        waits.pop(node, None)
        layers.reach(node._sequence_nr())  # noqa: SLF001
        if hasattr(node, "variable"):
            leaf = node.variable
            if given := gradients.pop(node, None):
                leaves[leaf] = _kept(leaf, given[0])
            continue
        for below, slot, gradient in _passed_on(node, gradients.pop(node, {})):
            if gradient is not None:
                _add(gradients.setdefault(below, {}), slot, _as(gradient, below._input_metadata[slot]))  # noqa: SLF001
            waits[below] -= 1
            if not waits[below]:
                ready.append(below)
        gradient = node = below = None
        sweep()
    return leaves


def _started(results: list[Any], starts: list[Any]) -> dict[Any, dict[int, Any]]:
    """Gradients that a pass begins with, by node and result."""
    gradients: dict[Any, dict[int, Any]] = {}
    while results:
        result = results.pop()
        start = starts.pop() if starts else torch.ones_like(result)
        gradients.setdefault(result.grad_fn, {})[result.output_nr] = start
    return gradients


def _waits(roots: Iterable[Any]) -> dict[Any, int]:
    """How many gradients each node waits for."""
    waits: dict[Any, int] = defaultdict(int)
    stack = list(roots)
    seen = set(stack)
    while stack:
        for below, _ in stack.pop().next_functions:
            if below is not None:
                waits[below] += 1
                if below not in seen:
                    seen.add(below)
                    stack.append(below)
    return waits


def _passed_on(node: Any, given: Mapping[int, Any]) -> list[tuple[Any, int, Any]]:
    """Run a node: for each node below, the place of a result and its gradient."""
    count = max(len(node._input_metadata), max(given, default=0) + 1)  # noqa: SLF001
    run = node if callable(node) else node.apply  # that of a torch.autograd.Function is a Python object
    found = run(*[given.get(at) for at in range(count)]) if given else ()
    found = found if isinstance(found, tuple) else (found,)
    following = node.next_functions
    needs = getattr(node, "needs_input_grad", None)
    if len(found) != len(following) and needs is not None and len(needs) == len(found):
        # One in Python has a gradient for each argument, and a function below for each tensor.
        found = tuple(one for one, need in zip(found, needs, strict=True) if need)
        following = tuple(edge for edge in following if edge[0] is not None)
    return [
        (below, slot, found[at] if at < len(found) else None)
        for at, (below, slot) in enumerate(following)
        if below is not None
    ]


@contextmanager
def nested(layers: Layers, sweep: Callable[[], None]) -> Iterator[None]:
    """Backward passes that a module asks for itself, as a checkpoint does that records anew what it runs again."""

    def backward(tensors: Any, grad_tensors: Any = None, *_: Any, **__: Any) -> None:
        number = layers.number
        asked = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else list(grad_tensors or ())
        for leaf, gradient in run_backward(asked, layers, sweep, given).items():
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
        layers.reach(number)

    original, number_of = torch.autograd.backward, torch._C._current_graph_task_id  # noqa: SLF001 -- no public name
    torch.autograd.backward = backward
    torch._C._current_graph_task_id = lambda: 0  # noqa: SLF001 -- a checkpoint runs again once for each pass
    try:
        yield
    finally:
        torch.autograd.backward = original
        torch._C._current_graph_task_id = number_of  # noqa: SLF001


def _as(gradient: Any, wanted: Any) -> Any:
    if tuple(gradient.shape) != tuple(wanted.shape):
        gradient = gradient.sum_to_size(tuple(wanted.shape))
    return gradient if gradient.dtype == wanted.dtype else gradient.to(wanted.dtype)


def _add(slots: dict[int, Any], slot: int, gradient: Any) -> None:
    slots[slot] = slots[slot] + gradient if slot in slots else gradient


def _kept(leaf: Any, gradient: Any) -> Any:
    """The gradient that a parameter gets: as it is where its elements lie as those of the parameter do, else a copy.

    Source: torch/csrc/autograd/utils/grad_layout_contract.h
    """
    dense = leaf.is_non_overlapping_and_dense() if hasattr(leaf, "is_non_overlapping_and_dense") else True
    agrees = gradient.stride() == leaf.stride() if dense else gradient.is_contiguous()
    same = agrees or all(
        size == 1 or a == b for size, a, b in zip(leaf.shape, gradient.stride(), leaf.stride(), strict=True)
    )
    return gradient if same else torch.empty_like(leaf).copy_(gradient)
