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


def capture_module(model: Any, inputs: Any, script: Path) -> Captured:
    """Trace a module forward and backward on fake tensors.

    Args:
        model: the module, made of fake tensors.
        inputs: its arguments: a tensor, a tuple, or a mapping of keyword arguments.
        script: the program that defines it, for messages.

    Raises:
        CaptureError: the module fails, or decides by values, which fake tensors do not have.
    """
    try:
        return _traced(model, inputs, script)
    except CaptureError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever the module raises
        raise CaptureError(f"{_place(script, error)}: the module cannot be traced: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """An exception of the user's code in one line."""
    if isinstance(error, DataDependentOutputException):
        return (
            "it reads the value of a weight, an input or a random tensor, which have none here; state the value instead"
        )
    text = str(error).splitlines()[0] if str(error) else "no reason given"
    return f"{type(error).__name__}: {text}"


def _place(path: Path, error: BaseException) -> str:
    """The script, and the line of it in which an exception was raised, where there is one."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _traced(model: Any, inputs: Any, script: Path) -> Captured:
    arguments = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, Mapping) else (inputs,)
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    trace = Trace(model, CALLS, script)
    for tensor in (*model.parameters(),) or tensors_in(inputs):
        if tensor.is_floating_point():
            trace.sketch.types[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
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
    with _fake() as mode:
        functions = _functions(path)

        def made(name: str, *args: int) -> Any:
            try:
                return functions[name](*args)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever the script raises
                called = f"{name}({', '.join(map(str, args))})"
                raise CaptureError(f"{_place(path, error)}: {called}: {_reason(error)}") from None

        captured = []
        for batch in batches:
            mode.constructs = True
            module = made("model")
            mode.constructs = False
            captured.append(capture_module(module, made("inputs", batch), path))
        return captured


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


MOST_COMPUTED = 1024
"""Elements of a tensor that is computed, so that a constructor may read it: schedules by layer, sizes, ranges."""
_aten = torch.ops.aten
_COMPUTED = frozenset(
    getattr(_aten, name) for name in ("arange", "linspace", "logspace", "ones", "zeros", "full", "eye", "scalar_tensor")
)
"""Functions that make a tensor of known values out of numbers."""


class _Mode(FakeTensorMode):  # type: ignore[misc]  # PyTorch is not checked
    """Fake tensors, all on the CPU. Small ones whose values follow from numbers have them; weights have none.

    Rule: no call allocates a result of more than ``MOST_COMPUTED`` elements.
    """

    constructs = True
    """Whether the module is being made: what its calls make later is not computed."""

    def __deepcopy__(self, memo: object) -> _Mode:
        """A tensor that is copied deeply, as a layer that a module repeats, stays in its mode."""
        return self

    def may_turn_const(self, t: Any) -> bool:
        """Whether PyTorch keeps the values of a tensor that it has computed from those of others."""
        return type(t) is torch.Tensor and _is_small(t)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:  # a script for a GPU runs where there is none
            kwargs["device"] = torch.device("cpu")
        valued = [one for one in tensors_in((args, kwargs)) if getattr(one, "constant", None) is not None]
        if valued and _may_enlarge(func):
            with _hidden(valued):
                result = super().__torch_dispatch__(func, types, args, kwargs)
            if any(one.numel() > MOST_COMPUTED for one in tensors_in(result)):
                return result
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.constructs and getattr(func, "overloadpacket", None) in _COMPUTED and _is_small(result):
            return self.fake_tensor_converter.from_real_tensor(self, func(*args, **kwargs), make_constant=True)
        return result


def _is_small(tensor: Any) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.numel() <= MOST_COMPUTED


def _may_enlarge(func: Any) -> bool:
    """Whether a function allocates a result whose shape follows from those of its arguments, as ``repeat`` does."""
    if not isinstance(func, torch._ops.OpOverload) or func.is_view or func._schema.is_mutable:  # noqa: SLF001
        return False
    return not {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)


@contextmanager
def _hidden(tensors: Sequence[Any]) -> Iterator[None]:
    """Hide the values of tensors."""
    values = [one.constant for one in tensors]
    try:
        for one in tensors:
            one.constant = None
        yield
    finally:
        for one, value in zip(tensors, values, strict=True):
            one.constant = value


def _converted(module: Any, convert: Any, recurse: bool = True) -> Any:
    """``torch.nn.Module._apply``, which cannot convert fake weights: they keep their identity, as real ones do."""
    for child in module.children() if recurse else ():
        child._apply(convert)  # noqa: SLF001
    with torch.no_grad():
        for one in module.parameters(recurse=False):
            one.data = convert(one.data)
    for name, one in module.named_buffers(recurse=False):
        module._buffers[name] = convert(one)  # noqa: SLF001
    return module


@contextmanager
def _fake() -> Iterator[_Mode]:
    """Tensors made in this context have shapes and types, and no memory; nothing initialises them."""
    log = logging.getLogger("torch._subclasses.fake_tensor")  # prints every error of a call with its traceback
    level = log.level
    initialising = {name: value for name, value in vars(torch.nn.init).items() if name.endswith("_") and name[0] != "_"}
    apply = torch.nn.Module._apply  # noqa: SLF001
    try:
        torch.nn.Module._apply = _converted  # noqa: SLF001
        log.setLevel(logging.CRITICAL)
        for name in initialising:
            setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
        with _Mode() as mode, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
            yield mode
    finally:
        torch.nn.Module._apply = apply  # noqa: SLF001
        log.setLevel(level)
        for name, value in initialising.items():
            setattr(torch.nn.init, name, value)
