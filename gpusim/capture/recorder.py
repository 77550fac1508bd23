"""A recorder of ATen calls: what PyTorch dispatches to a device, with shapes, types and strides of every tensor."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpusim.capture.attention import ATTENTION
from gpusim.models.aten.call import Call, CallPhase, Operand, TensorView, Trace

_HOST = "cpu"
_NOT_OF_A_DEVICE = frozenset({"prim", "profiler"})
"""Namespaces of what launches no kernel."""
_NOT_ARGUMENTS = frozenset({"device", "layout", "pin_memory", "dtype", "memory_format", "generator", "names"})
"""Arguments that say nothing beside the results."""


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # PyTorch is not checked
    """Records calls that a device computes: views, host tensors and allocations are left out."""

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self.trace = Trace()
        self.phase: CallPhase = "forward"
        self.input_dims: int | None = None
        """Dimensions of the input of the linear layer that is called, of which ``addmm`` is given a matrix."""
        self._layers = layers
        self._numbers: dict[StorageWeakRef, int] = {}
        self._live: dict[int, StorageWeakRef] = {}
        self._count = 0
        self._schemas: dict[Any, tuple[tuple[str, Any, bool], ...]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.namespace not in _NOT_OF_A_DEVICE and not _is_view(func):
            self._note(func, args, kwargs, result)
        return result

    def of_linear(self, input_dims: int | None) -> None:
        """A linear layer is called on an input of so many dimensions; None: none is."""
        self.input_dims = input_dims

    def keep(self, tensors: Sequence[Any]) -> int:
        """Number tensors that are there all along; the bytes of their storages."""
        for tensor in tensors:
            _ = self.view(tensor)
        self._live.clear()
        return sum(self.trace.storage_bytes.values())

    def view(self, tensor: Any) -> TensorView:
        """A tensor as calls name it."""
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        number = self._numbers.get(reference)
        if number is None:
            self._count += 1
            number = self._numbers[reference] = self._count
            self._live[number] = reference
            self.trace.storage_bytes[number] = storage.nbytes()
        return TensorView(number, str(tensor.dtype)[6:], tuple(tensor.shape), tuple(tensor.stride()))

    def sweep(self) -> None:
        """Note the storages that are gone, as freed by the last call."""
        expired = torch.UntypedStorage._expired  # noqa: SLF001 -- as StorageWeakRef.expired, at a third of its time
        gone = tuple([number for number, reference in self._live.items() if expired(reference.cdata)])
        for number in gone:
            del self._numbers[self._live.pop(number)]
        if self.trace.freed:
            self.trace.freed[-1] += gone

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        returned = [one if isinstance(one, torch.Tensor) else None for one in _flat(result)]
        on_device = [one for one in returned if one is not None and one.device.type != _HOST]
        if returned and not on_device:
            return
        operands, arguments = self._operands(func, args, kwargs)
        taken = [one for one in tree_leaves(operands) if isinstance(one, torch.Tensor)]
        if not returned:
            on_device = [one for one in taken if one.device.type != _HOST]
        if not on_device or (not func._schema.is_mutable and _shares(on_device, taken)):  # noqa: SLF001
            return
        self.sweep()
        if self.input_dims is not None and func.overloadpacket is torch.ops.aten.addmm:
            arguments["input_dims"] = self.input_dims
        outside = "" if func.namespace in ("aten", ATTENTION) else f"{func.namespace}::"
        call = Call(
            f"{outside}{func.overloadpacket.__name__}.{func._overloadname}",  # noqa: SLF001
            self._layers.path(self.phase),
            self.phase,
            tuple(self._operand(one) for one in operands),
            tuple(self.view(one) if one is not None else None for one in (returned or on_device[:1])),
            arguments,
        )
        self.trace.calls.append(call)
        self.trace.freed.append(())

    def _operand(self, value: Any) -> Operand:
        if isinstance(value, list | tuple):
            return tuple(self.view(one) if _on_device(one) else None for one in value)
        return self.view(value) if _on_device(value) else None

    def _operands(self, func: Any, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        """Tensors, in the order of the schema, and other arguments that are not those of the schema's defaults."""
        schema = self._schemas.get(func)
        if schema is None:
            schema = tuple((one.name, one.default_value, "Tensor" in str(one.type)) for one in func._schema.arguments)  # noqa: SLF001
            self._schemas[func] = schema
        tensors, others = [], {}
        for at, (name, default, is_tensor) in enumerate(schema):
            value = args[at] if at < len(args) else kwargs.get(name, default)
            if is_tensor:
                tensors.append(value)
            elif value != default and name not in _NOT_ARGUMENTS:
                others[name] = _plain(value)
        return tensors, others


def _on_device(value: Any) -> bool:
    """Whether it is a tensor that a kernel reads: one of the host is a number to it."""
    return isinstance(value, torch.Tensor) and value.device.type != _HOST


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _flat(result: Any) -> Sequence[Any]:
    if isinstance(result, torch.Tensor):
        return [result]
    found: list[Any] = []
    for one in result if isinstance(result, list | tuple) else ():
        found += _flat(one) if isinstance(one, list | tuple) else [one]
    return found


_UNCOUNTED = frozenset(
    {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach", "lift_fresh", "resize_"}
)


def _is_view(func: Any) -> bool:
    return func.is_view or func.overloadpacket.__name__ in _UNCOUNTED


def _shares(results: Sequence[Any], taken: Sequence[Any]) -> bool:
    """Whether all results are views of what a call takes."""
    known = {one.untyped_storage()._cdata for one in taken}  # noqa: SLF001
    return all(one.untyped_storage()._cdata in known for one in results)  # noqa: SLF001


class Layers:
    """The module whose forward function runs, by its path; of a gradient, the one whose call it is the gradient of."""

    def __init__(self, module: Any) -> None:
        self._paths = {id(one): path for path, one in module.named_modules()}
        self._stack: list[str] = []
        self._numbers: list[int] = []
        """Numbers that autograd had given its nodes when a module was entered or left, and the module from then on."""
        self._modules: list[str] = []
        self.number: int | None = None
        """Number of the node of autograd that runs."""
        self._told: Callable[[str], None] | None = None

    def path(self, phase: CallPhase) -> str:
        """Path of the module that a call belongs to."""
        if phase == "forward":
            return self._stack[-1] if self._stack else ""
        if self.number is None:
            return ""
        at = bisect.bisect_right(self._numbers, self.number) - 1
        return self._modules[at] if at >= 0 else ""

    def reach(self, number: int | None) -> None:
        """A node of autograd runs from now on, by its number."""
        self.number = number
        if self._told is not None and number is not None:
            self._told(self.path("backward"))

    @contextmanager
    def followed(self, note: Callable[[str], None] | None = None) -> Iterator[None]:
        """Follow the modules that are called in this context.

        Args:
            note: called with the path of the module that runs from now on.
        """
        self._told = note
        modules = torch.nn.modules.module
        handles = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: Any, _inputs: Any) -> None:
        self._stack.append(self._paths.get(id(module), self._stack[-1] if self._stack else ""))
        self._note()

    def _leave(self, _module: Any, _inputs: Any, _result: Any) -> None:
        if self._stack:
            self._stack.pop()
        self._note()

    def _note(self) -> None:
        self._numbers.append(torch._C._autograd._get_sequence_nr())  # noqa: SLF001
        self._modules.append(self._stack[-1] if self._stack else "")
        if self._told is not None:
            self._told(self._modules[-1])
