"""Modules on fake CUDA tensors: made without memory, and run under the real autocast where there is no GPU.

A module is made on the meta device; small tensors that its constructor computes from numbers have values, so that it
may read them. Its weights and buffers are then replaced by fake CUDA tensors.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode  # no public name yet
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_any, tree_map_only

MOST_VALUES = 1 << 20
"""Elements of a tensor that keeps its values while a module is made: schedules, indices of windows, ranges."""
_OF_NUMBERS = {
    getattr(torch, name)
    for name in (
        "arange",
        "linspace",
        "logspace",
        "ones",
        "zeros",
        "full",
        "eye",
        "tensor",
        "as_tensor",
        "scalar_tensor",
        "tril_indices",
        "triu_indices",
    )
}
"""Functions that make a tensor of known values out of numbers."""
_RANDOM = {
    getattr(torch, name) for name in ("empty", "rand", "randn", "randint", "randperm", "normal", "empty_strided")
}
_MOVES = {torch.Tensor.cuda, torch.nn.Module.cuda}


class OnMeta(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is not checked
    """Tensors that are made in this context are on the meta device, but for small ones of known values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__:  # its memo is no argument of a computation
            return func(*args, **(kwargs or {}))
        kwargs = dict(kwargs or {})
        if func in _MOVES:
            return args[0]
        if func is torch.Tensor.to:
            args, kwargs = _without_devices(args, kwargs)
            if len(args) == 1 and not kwargs:
                return args[0]
        elif func in _RANDOM:
            kwargs["device"] = "meta"
        elif func in _OF_NUMBERS or (
            "device" in kwargs and kwargs["device"] is not None and torch.device(kwargs["device"]).type != "meta"
        ):
            kwargs["device"] = "cpu"
        if tree_any(_is_meta, (args, kwargs)):
            args, kwargs = tree_map_only(torch.Tensor, _to_meta, (args, kwargs))
            if kwargs.get("device") == "cpu":
                kwargs["device"] = "meta"
        result = func(*args, **kwargs)
        if (
            isinstance(result, torch.Tensor)
            and not _is_meta(result)
            and result.numel() > MOST_VALUES
            and func in _OF_NUMBERS
        ):
            return _to_meta(result)
        return result


def _without_devices(args: Any, kwargs: dict[str, Any]) -> Any:
    """What a conversion keeps: the type and the layout; ``non_blocking`` and ``copy`` say nothing here."""
    kept = {name: value for name, value in kwargs.items() if name in ("dtype", "memory_format", "other")}
    return (args[0], *(one for one in args[1:] if isinstance(one, torch.dtype | torch.Tensor))), kept


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def _to_meta(tensor: Any) -> Any:
    if _is_meta(tensor) or isinstance(tensor, torch.nn.Parameter):
        return tensor
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")


@contextmanager
def silent() -> Iterator[None]:
    """Nothing is logged or warned of in this context: the message of the command says what fails."""
    loggers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "torch.export", "transformers")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


@contextmanager
def uninitialised() -> Iterator[None]:
    """Nothing initialises weights in this context: they have no values. Nor are those of cells laid side by side."""
    found = {name: value for name, value in vars(torch.nn.init).items() if name.endswith("_") and name[0] != "_"}
    flatten = torch.nn.RNNBase.flatten_parameters
    try:
        for name in found:
            setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
        torch.nn.RNNBase.flatten_parameters = lambda _: None
        yield
    finally:
        torch.nn.RNNBase.flatten_parameters = flatten
        for name, value in found.items():
            setattr(torch.nn.init, name, value)


_STORES = frozenset({"_parameters", "_buffers", "_modules"})


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


class FakeCuda:
    """Fake CUDA tensors in place of others; tensors that are one stay one."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._made: dict[int, tuple[Any, Any]] = {}

    @property
    def made(self) -> list[Any]:
        """The fake CUDA tensors, in the order in which they were made."""
        return [fake for _, fake in self._made.values()]

    def tensor(self, tensor: Any) -> Any:
        """The fake CUDA tensor that stands for another one."""
        if id(tensor) not in self._made:
            with self.mode:
                fake = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="cuda")
                if isinstance(tensor, torch.nn.Parameter):
                    fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
                elif tensor.requires_grad:
                    fake.requires_grad_()
            self._made[id(tensor)] = tensor, fake
        return self._made[id(tensor)][1]

    def values(self, values: Any) -> Any:
        """Nested containers with fake CUDA tensors in place of others."""
        return tree_map_only(torch.Tensor, self.tensor, values)

    def move(self, module: Any) -> None:
        """Replace the weights, buffers and other tensors that a module holds."""
        for part in module.modules():
            for store in (part._parameters, part._buffers):  # noqa: SLF001
                store.update({name: self.tensor(one) for name, one in store.items() if one is not None})
            held = {name: one for name, one in vars(part).items() if name not in _STORES and tree_any(_is_tensor, one)}
            vars(part).update({name: self.values(one) for name, one in held.items()})


@contextmanager
def autocast(dtype: Any) -> Iterator[None]:
    """Autocast to a type, or none. ``torch.autocast`` disables itself where there is no CUDA; its state is below it."""
    if dtype is None:
        yield
        return
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])
