"""Following the tensors of a PyTorch module through its calls.

Calls are taken at the level of ``torch.nn.functional`` and of tensor methods, which is that of layers. Views are
followed by their memory, so that a copy that a product makes of an operand is a layer of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from gpusim.capture.sketch import Sketch, Unknown
from gpusim.workloads.functions import FUNCTIONS

Call = Callable[["Trace", "Called"], "str | list[str]"]
"""Adds the layers of a call to a sketch; names of its results there.

Raises:
    ValueError: there is no layer for such arguments.
"""


IN_PLACE = {
    f"__i{name}__": function.aten[0]
    for function in FUNCTIONS.values()
    for name in function.torch
    if function.operands > 1
}
"""Operators that write to their first operand (``+=`` is ``__iadd__``), by what they compute."""


def tensors_in(value: Any) -> list[Any]:
    """Tensors within nested containers."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Called:
    """A call with its result."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any

    def argument(self, at: int, name: str, default: Any = None) -> Any:
        """An argument by its place or its name."""
        return self.args[at] if len(self.args) > at else self.kwargs.get(name, default)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the result."""
        return tuple(self.result.shape)


class Trace(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is not checked
    """Follows the tensors of a module through its calls."""

    def __init__(self, model: Any, calls: Mapping[str, Call], script: Path) -> None:
        super().__init__()
        self._calls, self._script = calls, str(script)
        self.sketch = Sketch()
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []
        self._permuted: dict[str, tuple[str, list[int]]] = {}
        self._parameters = {id(one): name for name, one in model.named_parameters(remove_duplicate=True)}
        self._counts = {id(one) for one in model.buffers() if not one.is_floating_point()}
        self._weights_of: dict[int, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call, and note what was called."""
        kwargs = kwargs or {}
        if func is torch.nn.functional.multi_head_attention_forward:
            return self._within(func, args, kwargs)
        with FlopCounterMode(display=False) as counter:
            result = func(*args, **kwargs)
        tensors = tensors_in(result)
        if not tensors or (args and id(args[0]) in self._counts):
            return result
        name = getattr(func, "__name__", "")
        if name == "__get__":  # an attribute such as mT
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        name = IN_PLACE.get(name, name).strip("_")
        called = Called(name, args, kwargs, result)
        taken = tensors_in((args, kwargs))
        size_bytes = sum(one.numel() * one.element_size() for one in (*taken, *tensors))
        if name not in ("data", "detach") and not all(id(one) in self._names for one in tensors):
            self.sketch.size_bytes += size_bytes
            self.sketch.flops += counter.get_total_flops()
        self._note(called, tensors, size_bytes, counter.get_total_flops())
        return result

    def _within(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function of PyTorch's own, whose calls are followed in its place."""
        functional = torch.nn.functional
        check = functional.has_torch_function  # which would pass the whole call here again
        functional.has_torch_function = lambda *_: False
        try:
            with self:
                return func(*args, **kwargs)
        finally:
            functional.has_torch_function = check

    def _note(self, called: Called, tensors: list[Any], size_bytes: float, flops: float) -> None:
        before = len(self.sketch.layers)
        try:
            names = self._calls[called.name](self, called) if called.name in self._calls else None
        except (KeyError, ValueError, TypeError, IndexError):
            names = None
        if names is None:
            del self.sketch.layers[before:]
            self.sketch.unknown.append(Unknown(called.name, size_bytes, flops, self._place()))
            names = [self.sketch.add_input(called.name, tuple(one.shape)) for one in tensors]
        for tensor, name in zip(tensors, [names] if isinstance(names, str) else names, strict=True):
            self.follow(tensor, name)

    def _place(self) -> str:
        """The script, and the line of it that is running, unless a module of PyTorch's own is the whole model."""
        frame = sys._getframe()  # noqa: SLF001 -- the traceback of a call that has not failed
        while frame.f_back and frame.f_code.co_filename != self._script:
            frame = frame.f_back
        return f"{self._script}:{frame.f_lineno}" if frame.f_back else self._script

    def follow(self, tensor: Any, name: str) -> None:
        """The tensor bears this name from now on."""
        self._names[id(tensor)] = name
        self._alive.append(tensor)  # so that no other gets its id

    def name(self, tensor: Any) -> str:
        """The name of a tensor; one that no call has made (a buffer) is an input."""
        if id(tensor) not in self._names:
            self.follow(tensor, self.sketch.add_input("constant", tuple(tensor.shape)))
        return self._names[id(tensor)]

    def layer(self, called: Called, op: str, *inputs: Any, weight: Any = None, name: str = "", **values: Any) -> str:
        """Add a layer for a call, named after the module whose weight it takes."""
        shares = ""
        if weight is not None:
            path = self._parameters[id(weight)].rpartition(".")[0]
            shares = self._weights_of.get(id(weight), "")
            name = path or name
        names = [one if isinstance(one, str) else self.name(one) for one in inputs]
        added = self.sketch.add(op, names, called.shape, name=name, shares=shares, **values)
        if weight is not None:
            self._weights_of.setdefault(id(weight), added)
        return added

    def permute(self, called: Called, value: Any, dims: list[int]) -> str:
        """A view with dimensions in another order."""
        source, order = self._permuted.get(self.name(value), (self.name(value), list(range(len(dims)))))
        dims = [order[dim] for dim in dims]
        added = self.sketch.add("permute", [source], called.shape, dims=dims)
        self._permuted[added] = (source, dims)
        return added

    def copy(self, value: Any) -> str:
        """A contiguous copy of a view."""
        name = self.name(value)
        source, dims = self._permuted.get(name, (name, list(range(value.dim()))))
        return self.sketch.add("permute", [source], tuple(value.shape), name="copy", dims=dims, contiguous=True)
