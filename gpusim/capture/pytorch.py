"""Capture of a PyTorch module: its calls on fake tensors, which have shapes and no data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gpusim.capture.sketch import CaptureError, Sketch
from gpusim.capture.torch_calls import CALLS
from gpusim.capture.torch_trace import Trace, tensors_in


@dataclass(frozen=True, slots=True)
class Captured:
    """A traced module."""

    sketch: Sketch
    forward_flops: int
    """As PyTorch counts them."""
    backward_flops: int


def capture_module(model: Any, inputs: Any) -> Captured:
    """Trace a module forward and backward on fake tensors.

    Args:
        model: the module, made within ``fake()``.
        inputs: its arguments: a tensor, a tuple, or a mapping of keyword arguments.

    Raises:
        CaptureError: the module fails, or decides by values, which fake tensors do not have.
    """
    try:
        return _traced(model, inputs)
    except CaptureError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever the module raises
        text = str(error).splitlines()[0] if str(error) else "no reason given"
        raise CaptureError(f"the module cannot be traced: {type(error).__name__}: {text}") from None


def _traced(model: Any, inputs: Any) -> Captured:
    arguments = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, Mapping) else (inputs,)
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    trace = Trace(model, CALLS)
    for name, tensor in {**{f"input{at or ''}": one for at, one in enumerate(arguments)}, **named}.items():
        trace.follow(tensor, trace.sketch.add_input(name, tuple(tensor.shape)))
    with FlopCounterMode(display=False) as forward, trace:
        result = model(*arguments, **named)
    leaves = [one for one in tensors_in(result) if one.requires_grad]
    with FlopCounterMode(display=False) as backward:
        torch.autograd.backward(leaves, [torch.ones_like(one) for one in leaves])
    trace.sketch.prune()
    return Captured(trace.sketch, forward.get_total_flops(), backward.get_total_flops())


def load_script(path: Path) -> Mapping[str, Any]:
    """Run a script that defines ``model()`` and ``inputs(batch)``.

    Raises:
        CaptureError: it cannot be run, or does not define both.
    """
    names: dict[str, Any] = {"__name__": "captured", "__file__": str(path)}
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec"), names)  # noqa: S102 -- the user's own script
    except Exception as error:  # noqa: BLE001 -- whatever the script raises
        raise CaptureError(f"{path}: {type(error).__name__}: {error}") from None
    for name in ("model", "inputs"):
        if not callable(names.get(name)):
            raise CaptureError(f"{path}: define {name}({'batch' if name == 'inputs' else ''}), a function")
    return names


@contextmanager
def fake() -> Iterator[None]:
    """Tensors made in this context have shapes and types, and no memory; nothing initialises them."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 -- no public name yet

    initialising = {name: value for name, value in vars(torch.nn.init).items() if name.endswith("_") and name[0] != "_"}
    try:
        for name in initialising:
            setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
        with FakeTensorMode():
            yield
    finally:
        for name, value in initialising.items():
            setattr(torch.nn.init, name, value)
