"""Capture of a PyTorch module: its calls on fake tensors, which have shapes and no data."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode  # no public names yet
from torch.utils.flop_counter import FlopCounterMode

from gpusim.capture.sketch import CaptureError, Sketch
from gpusim.capture.torch_calls import CALLS
from gpusim.capture.torch_trace import Trace, tensors_in
from gpusim.errors import InputError
from gpusim.files.yamlfile import read_text


@dataclass(frozen=True, slots=True)
class Captured:
    """A traced module."""

    sketch: Sketch
    forward_flops: int
    """FLOP of the forward pass, as PyTorch counts them."""
    backward_flops: int


def capture_module(model: Any, inputs: Any) -> Captured:
    """Trace a module forward and backward on fake tensors.

    Args:
        model: the module, made of fake tensors.
        inputs: its arguments: a tensor, a tuple, or a mapping of keyword arguments.

    Raises:
        CaptureError: the module fails, or decides by values, which fake tensors do not have.
    """
    try:
        return _traced(model, inputs)
    except CaptureError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever the module raises
        raise CaptureError(f"the module cannot be traced: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """An exception of the user's code in one line."""
    if isinstance(error, DataDependentOutputException):
        return "it reads the value of a tensor, which fake tensors do not have"
    text = str(error).splitlines()[0] if str(error) else "no reason given"
    return f"{type(error).__name__}: {text}"


def _place(path: Path, error: BaseException) -> str:
    """The script, and the line of it in which an exception was raised, where there is one."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


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


def capture_script(path: Path, batches: Sequence[int]) -> list[Captured]:
    """Trace the module of a script that defines ``model()`` and ``inputs(batch)``, at each batch.

    Raises:
        CaptureError: the script cannot be run, does not define both, or its module cannot be traced.
    """
    with _fake():
        functions = _functions(path)

        def made(name: str, *args: int) -> Any:
            try:
                return functions[name](*args)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the script raises
                called = f"{name}({', '.join(map(str, args))})"
                raise CaptureError(f"{_place(path, error)}: {called}: {_reason(error)}") from None

        return [capture_module(made("model"), made("inputs", batch)) for batch in batches]


def _functions(path: Path) -> Mapping[str, Any]:
    """Names that a script defines."""
    names: dict[str, Any] = {"__name__": "captured", "__file__": str(path)}
    try:
        exec(compile(read_text(path), str(path), "exec"), names)  # noqa: S102 -- the user's own script
    except InputError:  # the script cannot be read
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the script raises
        raise CaptureError(f"{_place(path, error)}: {_reason(error)}") from None
    for name in ("model", "inputs"):
        if not callable(names.get(name)):
            raise CaptureError(f"{path}: define {name}({'batch' if name == 'inputs' else ''}), a function")
    return names


@contextmanager
def _fake() -> Iterator[None]:
    """Tensors made in this context have shapes and types, and no memory; nothing initialises them."""

    class Mode(FakeTensorMode):  # type: ignore[misc]  # PyTorch is not checked
        """A tensor that is copied deeply, as a layer that a module repeats, stays in its mode."""

        def __deepcopy__(self, memo: object) -> Mode:
            return self

    log = logging.getLogger("torch._subclasses.fake_tensor")  # prints every error of a call with its traceback
    level = log.level
    initialising = {name: value for name, value in vars(torch.nn.init).items() if name.endswith("_") and name[0] != "_"}
    try:
        log.setLevel(logging.CRITICAL)
        for name in initialising:
            setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
        with Mode(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
            yield
    finally:
        log.setLevel(level)
        for name, value in initialising.items():
            setattr(torch.nn.init, name, value)
