"""An ONNX graph as a module of PyTorch, whose calls a recorder sees.

What a graph computes from shapes and numbers alone is computed on the host, with values; every other node becomes
functions of PyTorch on tensors, which have none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.reference
import torch
from onnx import TensorProto
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from gpusim.capture.errors import CaptureError, reason_of

MOST_VALUES = 1 << 20
"""Elements of the largest tensor that is computed on the host."""
DTYPES: Mapping[int, Any] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.INT64: torch.int64,
    TensorProto.INT32: torch.int32,
    TensorProto.INT16: torch.int16,
    TensorProto.INT8: torch.int8,
    TensorProto.INT4: torch.int8,
    TensorProto.UINT64: torch.int64,
    TensorProto.UINT32: torch.int32,
    TensorProto.UINT16: torch.int16,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT4: torch.uint8,
    TensorProto.BOOL: torch.bool,
}
"""Types of PyTorch; where it has no unsigned one, the signed one of the same size."""
_NOT_TRAINED = {
    ("BatchNormalization", 3),
    ("BatchNormalization", 4),
    *((name, at) for name in ("QuantizeLinear", "DequantizeLinear") for at in (1, 2)),
    *((name, at) for name in ("QLinearConv", "QLinearMatMul") for at in range(8)),
}
"""Inputs of nodes, by place, that training does not change: statistics, scales of quantised tensors."""
_NEVER_ON_HOST = frozenset({"RandomNormal", "RandomUniform", "If", "Loop", "Scan"})
_BY_SHAPE = frozenset({"Shape", "Size"})
Value = Any
"""A tensor of PyTorch for one of the graph, an array of numpy where values are known, a list of these, or None."""


def dtype_of(elem_type: int) -> Any:
    """PyTorch's type of an ONNX one.

    Raises:
        ValueError: there is none.
    """
    if elem_type not in DTYPES:
        raise ValueError(f"tensors of type {TensorProto.DataType.Name(elem_type)} are not supported")
    return DTYPES[elem_type]


class OnnxModule(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not checked
    """Runs a graph: its float initializers are parameters, its nodes modules that bear their names."""

    def __init__(self, model: Any, path: Path, operators: Mapping[str, Any]) -> None:
        super().__init__()
        self.path = path
        self.opsets = {one.domain or "ai.onnx": one.version for one in model.opset_import}
        self.graph = model.graph
        self.inputs = open_inputs(model.graph)
        self._places: dict[str, tuple[Any, str]] = {}
        self._shared: dict[str, torch.Tensor] = {}
        self._known: dict[str, Value] = {}
        self._converted: tuple[Any, str] | None = None
        self._constants: dict[str, torch.Tensor] = {}
        self._operators = operators
        self.uses = _uses(model.graph)
        weights = {one.name: one for one in model.graph.initializer}
        for one in weights.values():
            self._hold(one.name, one)
        # An exporter stores equal weights once: the others are identities of it.
        for node in model.graph.node:
            if node.op_type == "Identity" and node.input[0] in weights:
                self._hold(node.output[0], weights[node.input[0]])
        self.biases = self._biases()
        self._steps = self._listed(model.graph)

    # Weights --------------------------------------------------------------------------------------

    def _hold(self, name: str, one: Any) -> None:
        """Hold an initializer under a name: its values where they may be needed, a weight without values else."""
        count = math.prod(one.dims)
        floating = one.data_type in DTYPES and DTYPES[one.data_type].is_floating_point
        if count <= MOST_VALUES and (not floating or count <= 64) and (array := self._array(one)) is not None:
            self._known[name] = array
        if count == 1 and name in self._known:
            return
        tensor = torch.empty(tuple(one.dims), dtype=dtype_of(one.data_type), device="meta")
        uses = self.uses.get(name, [])
        trained = floating and not all((use.op_type, use.place) in _NOT_TRAINED for use in uses)
        if name in self._known and not trained:
            return
        container, last = self._place(name, ".")
        if trained:
            container.register_parameter(last, torch.nn.Parameter(tensor))
            self._converted = self._converted or (tensor.dtype, name)
        else:
            container.register_buffer(last, tensor)
        self._places[name] = container, last

    def _array(self, one: Any) -> Any:
        """Values of an initializer; None where they lie in a file that is not there."""
        if one.data_location == TensorProto.EXTERNAL:
            try:
                onnx.external_data_helper.load_external_data_for_tensor(one, str(self.path.parent))
            except (OSError, ValueError, onnx.checker.ValidationError):
                return None
        return onnx.numpy_helper.to_array(one)

    def _place(self, name: str, separator: str) -> tuple[Any, str]:
        """Where a part of a dotted name is: modules in modules."""
        *outer, last = [part for part in name.split(separator) if part] or ["part"]
        found: Any = self
        for part in map(_plain, outer):
            inside = found._modules.get(part)  # noqa: SLF001
            if not isinstance(inside, _Folder):
                inside = _Folder()
                found.add_module(_free(found, part), inside)
            found = inside
        return found, _free(found, _plain(last))

    def _biases(self) -> dict[str, str]:
        """Products with a weight whose result nothing but the sum with a bias takes: the node that adds, by its name.

        An exporter makes these two of a linear layer.
        """
        found = {}
        for node in self.graph.node:
            if node.op_type != "MatMul" or not self.is_weight(node.input[1], 2):
                continue
            users = self.uses.get(node.output[0], [])
            if len(users) != 1 or users[0].op_type != "Add":
                continue
            if bias := [one for one in self.graph.node[users[0].at].input if self.is_weight(one, 1)]:
                found[node.output[0]] = bias[0]
        return found

    def is_weight(self, name: str, dims: int) -> bool:
        """Whether a tensor is a parameter of so many dimensions."""
        if name not in self._places:
            return False
        container, last = self._places[name]
        return bool(getattr(container, last).dim() == dims)

    # Values ---------------------------------------------------------------------------------------

    def like(self, dtype: Any) -> Any:
        """The type that the module has been converted to, for that which its weights had."""
        if self._converted is not None and dtype == self._converted[0]:
            container, last = self._places[self._converted[1]]
            return getattr(container, last).dtype
        return dtype

    def tensor(self, name: str, values: Mapping[str, Value]) -> Any:
        """A tensor of the graph, on the device."""
        value = values.get(name, self._known.get(name))
        if name in self._places and name not in values:
            container, last = self._places[name]
            return getattr(container, last)
        if isinstance(value, np.ndarray | np.generic):
            return self.constant(name, value)
        return value

    def constant(self, name: str, array: Any) -> Any:
        """A constant on the device; there from the beginning, as weights are."""
        if name not in self._constants:
            dtype = dtype_of(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
            self._constants[name] = torch.empty(tuple(array.shape), dtype=self.like(dtype), device="cuda")
        return self._constants[name]

    def known(self, name: str, values: Mapping[str, Value]) -> Any:
        """Values of a tensor; None where they are not known."""
        value = values.get(name, self._known.get(name))
        return value if isinstance(value, np.ndarray | np.generic) else None

    # Nodes ----------------------------------------------------------------------------------------

    def _listed(self, graph: Any) -> list[Any]:
        found = []
        for at, node in enumerate(graph.node):
            if node.output[0] in self._places:
                continue  # an identity of a weight
            step = _Step(node, at)
            container, last = self._place(node.name.strip("/") or f"{node.op_type}_{at}", "/")
            container.add_module(last, step)
            found.append(step)
        return found

    def forward(self, *arguments: Any) -> Any:
        names = [one.name for one in self.inputs]
        values: dict[str, Value] = dict(zip(names, arguments, strict=True))
        self._run(self._steps, values)
        results = [self.tensor(one.name, values) for one in self.graph.output]
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, steps: Iterable[Any], values: dict[str, Value]) -> None:
        for step in steps:
            node = step.node
            made = step(self, values)
            made = made if isinstance(made, tuple | _Many) else (made,)
            values.update(zip(node.output, made, strict=False))
            # The last user of a tensor frees it.
            for name in {one for one in node.input if one and values.get(one) is not None}:
                if self.uses[name][-1].at == step.at and isinstance(values[name], torch.Tensor):
                    del values[name]

    def run_graph(self, graph: Any, values: Mapping[str, Value]) -> list[Value]:
        """Run a graph within a node; it sees what is around it."""
        inside = dict(values)
        for one in graph.initializer:
            inside[one.name] = self._array(one)
        for node in graph.node:
            made = self.call(node, inside)
            inside.update(zip(node.output, made if isinstance(made, tuple | _Many) else (made,), strict=False))
        return [inside.get(one.name, self._known.get(one.name)) for one in graph.output]

    def call(self, node: Any, values: dict[str, Value]) -> Value:
        """Run a node.

        Raises:
            CaptureError: it has no translation, or asks for values that nothing states.
        """
        if node.op_type in _BY_SHAPE and node.domain in ("", "ai.onnx"):
            return self._of_shape(node, values)
        if node.op_type not in _NEVER_ON_HOST and (made := self._on_host(node, values)) is not None:
            return made
        domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
        operator = self._operators.get(domain + node.op_type)
        what = f"{self.path}: node {node.name or node.output[0]}"
        if operator is None:
            version = self.opsets.get(node.domain or "ai.onnx", 1)
            remedy = "export it with other operators, or capture the PyTorch module from a script"
            raise CaptureError(f"{what}: operator {domain}{node.op_type} (opset {version}) is not supported; {remedy}")
        try:
            return operator(Node(self, node, values))
        except CaptureError:
            raise
        except (Unknown, DataDependentOutputException, DynamicOutputShapeException) as error:
            of = str(error) if isinstance(error, Unknown) else node.input[0]
            raise CaptureError(
                f"{what}: {node.op_type} depends on values of {of}, which has none here; "
                "make it a constant of the graph, or leave the part out"
            ) from None
        except (
            RuntimeError,
            ValueError,
            IndexError,
            KeyError,
            TypeError,
            AttributeError,
            NotImplementedError,
        ) as error:
            raise CaptureError(f"{what} ({node.op_type}): {reason_of(error)}") from None

    def _of_shape(self, node: Any, values: dict[str, Value]) -> Any:
        shape = tuple(self.tensor(node.input[0], values).shape)
        if node.op_type == "Size":
            return np.asarray(math.prod(shape), np.int64)
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        return np.asarray(shape[attributes.get("start", 0) : attributes.get("end", len(shape))], np.int64)

    def _on_host(self, node: Any, values: dict[str, Value]) -> Any:
        """What a node makes of known values; None where some are not known, or there are too many of them."""
        given = {name: self.known(name, values) for name in node.input if name}
        if any(one is None for one in given.values()) or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in _MAKES_LARGE and math.prod(map(int, np.ravel(given[node.input[-1]]))) > MOST_VALUES:
            return None
        infos = [onnx.helper.make_tensor_value_info(name, _elem_type(one), one.shape) for name, one in given.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        opset = onnx.helper.make_opsetid("", self.opsets["ai.onnx"])
        graph = onnx.helper.make_graph([node], "one", infos, outputs)
        try:
            model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
            made = onnx.reference.ReferenceEvaluator(model).run(None, given)
        except Exception:  # noqa: BLE001 -- the reference knows fewer operators; PyTorch may know them
            return None
        if any(not isinstance(one, np.ndarray | np.generic) for one in made):
            return None
        found = iter([np.asarray(one) for one in made])
        return tuple(next(found) if name else None for name in node.output)


_MAKES_LARGE = frozenset({"ConstantOfShape", "Expand"})


def _elem_type(array: Any) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype))


class _Folder(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not checked
    """Modules below one part of a name."""


class _Step(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not checked
    """A node, as a module for the recorder to name."""

    def __init__(self, node: Any, at: int) -> None:
        super().__init__()
        self.node, self.at = node, at

    def forward(self, module: OnnxModule, values: dict[str, Value]) -> Value:
        return module.call(self.node, values)


class _Many(list[Value]):
    """Results of a node, in a list."""


class Unknown(Exception):  # noqa: N818 -- it is no error until its place is known
    """A tensor whose values are asked for, and not known; the text is its name."""


class Node:
    """A node with what it takes."""

    def __init__(self, module: OnnxModule, node: Any, values: Mapping[str, Value]) -> None:
        self.module, self.values = module, values
        self.inputs: Sequence[str] = node.input
        self.outputs: Sequence[str] = node.output
        self.op_type: str = node.op_type
        self.domain: str = node.domain
        self.opset = module.opsets.get(node.domain or "ai.onnx", 1)
        self._attributes = {one.name: one for one in node.attribute}

    def attribute(self, name: str, default: Any = None) -> Any:
        """A value that the node states."""
        if name not in self._attributes:
            return default
        value = onnx.helper.get_attribute_value(self._attributes[name])
        return value.decode() if isinstance(value, bytes) else value

    def has(self, at: int) -> bool:
        """Whether an input is given."""
        return at < len(self.inputs) and bool(self.inputs[at])

    def tensor(self, at: int) -> Any:
        """An input on the device; None where it is left out."""
        return self.module.tensor(self.inputs[at], self.values) if self.has(at) else None

    @property
    def tensors(self) -> list[Any]:
        """Inputs on the device, all of them."""
        return [self.tensor(at) for at in range(len(self.inputs))]

    def operand(self, at: int) -> Any:
        """An input of a pointwise function: a number where it is one that is known."""
        if not self.has(at):
            return None
        array = self.module.known(self.inputs[at], self.values)
        return array.item() if array is not None and array.size == 1 else self.tensor(at)

    def known(self, at: int) -> Any:
        """Values of an input.

        Raises:
            Unknown: they are not known.
        """
        array = self.module.known(self.inputs[at], self.values)
        if array is None:
            raise Unknown(self.inputs[at])
        return array

    def numbers(self, at: int, name: str = "", default: Sequence[int] | None = None) -> list[int] | None:
        """Integers that an input states, or an attribute of earlier operator sets."""
        if self.has(at):
            return [int(one) for one in np.ravel(self.known(at))]
        stated = self.attribute(name, default)
        return (
            None if stated is None else [int(one) for one in (stated if isinstance(stated, list | tuple) else [stated])]
        )

    def number(self, at: int, name: str, default: Any = None) -> Any:
        """A number that an input states, or an attribute of earlier operator sets."""
        return self.known(at).item() if self.has(at) else self.attribute(name, default)


def open_inputs(graph: Any) -> list[Any]:
    """Inputs of a graph that are no weights."""
    weights = {one.name for one in graph.initializer}
    return [one for one in graph.input if one.name not in weights]


class _Use(NamedTuple):
    """A node that takes a tensor."""

    at: int
    op_type: str
    place: int


def _uses(graph: Any) -> dict[str, list[_Use]]:
    """Nodes that take a tensor, in their order; a result of the graph is taken last."""
    found: dict[str, list[_Use]] = {}
    for at, node in enumerate(graph.node):
        for place, name in enumerate(node.input):
            found.setdefault(name, []).append(_Use(at, node.op_type, place))
        for name in _names_within(node):
            found.setdefault(name, []).append(_Use(at, node.op_type, -1))
    for one in graph.output:
        found.setdefault(one.name, []).append(_Use(len(graph.node), "", -1))
    return found


def _names_within(node: Any) -> Iterable[str]:
    """Tensors that the graphs within a node take."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from inner.input
                yield from _names_within(inner)
            yield from (one.name for one in attribute.g.output)


def _plain(name: str) -> str:
    return re.sub(r"\.", "_", name)


def _free(module: Any, name: str) -> str:
    """A name that a module does not have yet."""
    while hasattr(module, name):
        name += "_"
    return name
