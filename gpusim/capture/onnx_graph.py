"""Capture of an ONNX graph: its nodes as layers, with the shapes that ONNX infers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from gpusim.capture.onnx_sizes import Size, constants, inferred, set_sizes, shapes_of, stated_sizes
from gpusim.capture.sketch import CaptureError, Sketch, Unknown
from gpusim.models.shape import Shape
from gpusim.workloads.functions import FUNCTIONS

NodeCall = Callable[["_Reader", Any], "str | list[str]"]
"""Adds the layers of a node to a sketch; the names of its results there."""
_BYTES_PER_ELEMENT = 4
"""Shares of bytes count every tensor as FP32."""
_TYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.DOUBLE: "float64",
}
"""Types of weights that decide the precision of a model."""


def capture_onnx(path: Path, batch: int, sizes: Mapping[str, Size]) -> tuple[Sketch, dict[str, Size]]:
    """Read a graph at a batch.

    Args:
        path: an ONNX file.
        batch: the batch.
        sizes: those of dimensions that the graph leaves open, by the names that it or ``onnx_sizes`` gives them.

    Returns:
        The sketch, and the size that each open dimension has.

    Raises:
        CaptureError: no ONNX file, an open dimension without a size, or shapes that ONNX cannot infer.
    """
    try:
        model = onnx.load(str(path), load_external_data=False)
        stated = stated_sizes(model.graph, sizes)
        set_sizes(model.graph, {name: batch if size == "batch" else size for name, size in stated.items()})
        model = inferred(model)
    except CaptureError as error:
        raise CaptureError(f"{path}: {error}") from None
    except (ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise CaptureError(f"{path}: {str(error).splitlines()[0]}") from None
    except Exception as error:  # noqa: BLE001 -- protobuf's error has no stable name
        raise CaptureError(f"{path}: not an ONNX file ({type(error).__name__}); export it again") from None
    if not model.graph.node:
        raise CaptureError(f"{path}: a graph without nodes; export it again")
    reader = _Reader(model.graph, path)
    for node in model.graph.node:
        reader.add(node)
    reader.sketch.prune()
    return reader.sketch, stated


class _Reader:
    """Follows the tensors of a graph through its nodes."""

    def __init__(self, graph: Any, path: Path) -> None:
        self.sketch = Sketch()
        self._path = path
        for one in graph.initializer:
            if one.data_type in _TYPES:
                self.sketch.types[_TYPES[one.data_type]] += math.prod(one.dims)
        self._shapes = shapes_of(graph)
        self.constants = constants(graph)
        self._users: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)
        self.weights = {one.name for one in graph.initializer}
        # An exporter stores equal weights once: the others are identities of it.
        self.weights |= {
            one.output[0] for one in graph.node if one.op_type == "Identity" and one.input[0] in self.weights
        }
        self.layer_of: dict[str, str] = {}
        self._names = {
            one.name: self.sketch.add_input(one.name, self._shapes[one.name])
            for one in graph.input
            if one.name not in self.weights
        }

    def shape(self, tensor: str) -> Shape:
        """Sizes of a tensor.

        Raises:
            ValueError: ONNX has inferred none.
        """
        if tensor not in self._shapes:
            raise ValueError("no shape")
        return self._shapes[tensor]

    def name(self, tensor: str) -> str:
        """Name of a tensor in the sketch; a weight that belongs to no layer is an input."""
        if tensor not in self._names:
            self._names[tensor] = self.sketch.add_input("constant", self.shape(tensor))
        return self._names[tensor]

    def follow(self, tensor: str, name: str) -> None:
        """A tensor bears a name of the sketch."""
        self._names[tensor] = name

    def bias_of(self, product: Any) -> Any:
        """The node that adds a bias to a product, and nothing else uses the product; None if there is none."""
        users = self._users.get(product.output[0], [])
        if len(users) != 1 or users[0].op_type != "Add":
            return None
        biases = [name for name in users[0].input if name in self.weights and len(self._shapes[name]) == 1]
        return users[0] if biases else None

    def add(self, node: Any) -> None:
        """Add a node."""
        if node.output[0] in self._names or node.output[0] in self.weights:  # a bias that its product has added
            return
        taken = [one for one in (*node.input, *node.output) if one in self._shapes]
        size_bytes = sum(math.prod(self._shapes[one]) for one in taken) * _BYTES_PER_ELEMENT
        self.sketch.size_bytes += size_bytes
        try:
            names = NODES[node.op_type](self, node)
            self._names.update(zip(node.output, [names] if isinstance(names, str) else names, strict=False))
        except (KeyError, ValueError, IndexError):
            self.sketch.unknown.append(Unknown(node.op_type, size_bytes, 0.0, str(self._path)))
            for output in node.output:
                if output in self._shapes:
                    self._names[output] = self.sketch.add_input(node.op_type.lower(), self._shapes[output])

    def layer(self, node: Any, op: str, *inputs: str, weight: str = "", **values: Any) -> str:
        """Add a layer for a node, named after it."""
        names = [self.name(one) for one in inputs]
        return self._layer(node, op, names, self.shape(node.output[0]), weight, **values)

    def images(self, node: Any, op: str, weight: str = "", **values: Any) -> str:
        """Add a layer of images for a node; signals (``N x C x L``) are images of one row."""
        shape, result = self.shape(node.input[0]), self.shape(node.output[0])
        if len(shape) != 3:
            return self.layer(node, op, node.input[0], weight=weight, **values)
        image = (*shape[:2], 1, shape[2])
        name = self.sketch.add("reshape", [self.name(node.input[0])], image, shape=list(image))
        name = self._layer(node, op, [name], (*result[:2], 1, result[2]), weight, **values)
        return self.sketch.add("reshape", [name], result, shape=list(result))

    def _layer(self, node: Any, op: str, inputs: list[str], shape: Shape, weight: str, /, **values: Any) -> str:
        shares = self.layer_of.get(weight, "")
        name = node.name.strip("/").replace("/", ".")
        added = self.sketch.add(op, inputs, shape, name=name, shares=shares, **values)
        if weight:
            self.layer_of.setdefault(weight, added)
        return added


def _attribute(node: Any, name: str, default: Any) -> Any:
    found = next((one for one in node.attribute if one.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def _window(reader: _Reader, node: Any) -> dict[str, list[int]]:
    """Kernel, stride and padding of a node with windows; a signal (``N x C x L``) is an image of one row.

    Raises:
        ValueError: it pads one side more than the other.
    """
    dimensions = len(reader.shape(node.input[0])) - 2
    pads = list(_attribute(node, "pads", [0, 0] * dimensions))
    if pads[:dimensions] != pads[dimensions:]:
        raise ValueError("pads sides differently")
    row = [1] * (2 - dimensions)
    strides = list(_attribute(node, "strides", [1] * dimensions))
    kernel = _attribute(node, "kernel_shape", reader.shape(node.input[1])[2:] if len(node.input) > 1 else ())
    return {"kernel": [*row, *kernel], "stride": [*row, *strides], "padding": [0] * len(row) + pads[:dimensions]}


# Nodes --------------------------------------------------------------------------------------------


def _convolution(reader: _Reader, node: Any) -> str:
    weight = node.input[1]
    values: dict[str, Any] = {**_window(reader, node), "groups": _attribute(node, "group", 1)}
    values["dilation"] = [1, *_attribute(node, "dilations", [1, 1])][-2:]
    filters = reader.shape(weight)[0]
    return reader.images(node, "conv2d", weight=weight, filters=filters, bias=len(node.input) > 2, **values)


def _transposed_convolution(reader: _Reader, node: Any) -> str:
    weight = node.input[1]
    values: dict[str, Any] = {**_window(reader, node), "filters": reader.shape(weight)[1], "bias": len(node.input) > 2}
    return reader.images(node, "conv_transpose2d", weight=weight, **values)


def _gemm(reader: _Reader, node: Any) -> str:
    weight = node.input[1]
    if weight not in reader.weights or _attribute(node, "transA", 0):
        raise ValueError("not a linear layer")
    features = reader.shape(weight)[0 if _attribute(node, "transB", 0) else 1]
    return reader.layer(node, "linear", node.input[0], weight=weight, features=features, bias=len(node.input) > 2)


def _matmul(reader: _Reader, node: Any) -> str:
    a, b = node.input
    if b in reader.weights and len(reader.shape(b)) == 2:
        bias = reader.bias_of(node)
        name = reader.layer(node, "linear", a, weight=b, features=reader.shape(b)[1], bias=bias is not None)
        if bias is not None:
            reader.follow(bias.output[0], name)
        return name
    return reader.layer(node, "matmul", a, b)


def _batch_norm(reader: _Reader, node: Any) -> str:
    return reader.layer(node, "batch_norm", node.input[0], weight=node.input[1])


def _layer_norm(reader: _Reader, node: Any) -> str:
    return reader.layer(node, "layer_norm", node.input[0], weight=node.input[1])


def _group_norm(reader: _Reader, node: Any) -> str:
    groups = _attribute(node, "num_groups", 0)
    return reader.layer(node, "group_norm", node.input[0], weight=node.input[1], groups=groups)


def _lstm(reader: _Reader, node: Any) -> list[str]:
    """One layer of cells, whose last places are the states that it leaves."""
    hidden, directions = _attribute(node, "hidden_size", 0), reader.shape(node.input[1])[0]
    if _attribute(node, "layout", 0) or len(node.input) < 4 or not node.input[3]:
        raise ValueError("batch first, or without biases")
    length, batch, _ = reader.shape(node.input[0])
    sketch, apart, outputs = reader.sketch, [length, batch, directions, hidden], (length, directions, batch, hidden)
    cells = node.name.strip("/").replace("/", ".")
    name = sketch.add(
        "lstm",
        [reader.name(node.input[0])],
        (length, batch, directions * hidden),
        name=cells,
        hidden=hidden,
        bidirectional=directions > 1,
    )
    name = sketch.add("reshape", [name], tuple(apart), shape=apart)
    name = sketch.add("permute", [name], outputs, dims=[0, 2, 1, 3])
    last = sketch.add("slice", [name], (1, *outputs[1:]), dim=0, start=length - 1, length=1)
    last = sketch.add("reshape", [last], outputs[1:], shape=list(outputs[1:]))
    return [name, last, last]


def _elementwise(op: str) -> NodeCall:
    return lambda reader, node: reader.layer(node, op, node.input[0])


def _power(reader: _Reader, node: Any) -> str:
    exponent = float(reader.constants[node.input[1]])
    if not exponent.is_integer():
        raise ValueError("of a fraction")
    return reader.layer(node, "pow", node.input[0], exponent=int(exponent))


def _where(reader: _Reader, node: Any) -> str:
    mask, value, other = node.input
    if math.prod(reader.shape(other)) == 1:
        return reader.layer(node, "where", value, mask)
    if math.prod(reader.shape(value)) == 1:
        return reader.layer(node, "where", other, mask)
    raise ValueError("of two tensors")


def _combination(op: str) -> NodeCall:
    def add(reader: _Reader, node: Any) -> str:
        a, b = node.input
        for number, other in ((a, b), (b, a)):
            if number not in reader.weights and number not in reader._names and other in reader._names:  # noqa: SLF001
                return reader.layer(node, "scale", other)  # a constant
            if number in reader.weights and math.prod(reader.shape(number)) == 1:
                return reader.layer(node, "scale", other)
        return reader.layer(node, op, a, b)

    return add


def _softmax(op: str) -> NodeCall:
    def add(reader: _Reader, node: Any) -> str:
        if _attribute(node, "axis", -1) not in (-1, len(reader.shape(node.input[0])) - 1):
            raise ValueError("not of rows")
        return reader.layer(node, op, node.input[0])

    return add


def _pool(op: str) -> NodeCall:
    def add(reader: _Reader, node: Any) -> str:
        up = bool(_attribute(node, "ceil_mode", 0))
        values: dict[str, Any] = _window(reader, node)
        return reader.images(node, op, round_up=up, **values)

    return add


def _reduction(op: str) -> NodeCall:
    def add(reader: _Reader, node: Any) -> str:
        shape, result = reader.shape(node.input[0]), reader.shape(node.output[0])
        if len(shape) == 4 and result == (*shape[:2], 1, 1):
            return reader.layer(node, "global_avg_pool2d", node.input[0])
        kept = [size for size in result if size != 1]
        dims = [dim for dim, size in enumerate(shape) if not (dim < len(result) and result[dim] == size)]
        if math.prod(kept) * math.prod(shape[dim] for dim in dims) != math.prod(shape):
            raise ValueError("dimensions are not known")
        summed = tuple(size for dim, size in enumerate(shape) if dim not in dims)
        name = reader.sketch.add(op, [reader.name(node.input[0])], summed, dims=dims)
        return name if summed == result else reader.sketch.add("reshape", [name], result, shape=list(result))

    return add


def _view(reader: _Reader, node: Any) -> str:
    value, result = reader.name(node.input[0]), reader.shape(node.output[0])
    if reader.sketch.shape(value) == result:
        return value
    op = "reshape" if math.prod(reader.sketch.shape(value)) == math.prod(result) else "expand"
    return reader.sketch.add(op, [value], result, shape=list(result))


def _permute(reader: _Reader, node: Any) -> str:
    dims = list(_attribute(node, "perm", range(len(reader.shape(node.input[0])))[::-1]))
    return reader.layer(node, "permute", node.input[0], dims=dims, contiguous=True)


def _same(reader: _Reader, node: Any) -> str:
    return reader.name(node.input[0])


def _concat(reader: _Reader, node: Any) -> str:
    return reader.layer(node, "concat", *node.input, dim=_attribute(node, "axis", 0))


def _slice(reader: _Reader, node: Any) -> str:
    """A range of one dimension or more."""
    name, result = reader.name(node.input[0]), reader.shape(node.output[0])
    starts, _, axes = (list(reader.constants[one]) for one in node.input[1:4])
    shape = list(reader.shape(node.input[0]))
    for axis, start in zip(axes, starts, strict=True):
        first = min(max(int(start) + (shape[axis] if start < 0 else 0), 0), shape[axis] - result[axis])
        shape[axis] = result[axis]
        values = {"dim": int(axis), "start": first, "length": result[axis]}
        name = reader.sketch.add("slice", [name], tuple(shape), **values)
    return name


def _split(reader: _Reader, node: Any) -> list[str]:
    """Parts of a tensor beside each other."""
    names, start, dim = [], 0, _attribute(node, "axis", 0)
    for part in node.output:
        shape = reader.shape(part)
        values = {"dim": dim, "start": start, "length": shape[dim]}
        names.append(reader.sketch.add("slice", [reader.name(node.input[0])], shape, **values))
        start += shape[dim]
    return names


def _gather(reader: _Reader, node: Any) -> str:
    weight, indices = node.input
    if indices in reader.constants and not reader.shape(indices):
        return _selected(reader, node, int(reader.constants[indices]))
    if weight not in reader.weights or len(reader.shape(weight)) != 2 or _attribute(node, "axis", 0):
        raise ValueError("not an embedding")
    entries, features = reader.shape(weight)
    return reader.layer(node, "embedding", indices, weight=weight, entries=entries, features=features)


def _selected(reader: _Reader, node: Any, index: int) -> str:
    """Layer that selects an element along a dimension, which disappears."""
    shape, dim = list(reader.shape(node.input[0])), _attribute(node, "axis", 0)
    start, shape[dim] = index % shape[dim], 1
    values = {"dim": dim, "start": start, "length": 1}
    name = reader.sketch.add("slice", [reader.name(node.input[0])], tuple(shape), **values)
    result = reader.shape(node.output[0])
    return reader.sketch.add("reshape", [name], result, shape=list(result))


def _upsample(reader: _Reader, node: Any) -> str:
    factor = reader.shape(node.output[0])[-1] // reader.shape(node.input[0])[-1]
    return reader.layer(node, "upsample", node.input[0], factor=factor)


NODES: Mapping[str, NodeCall] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "LSTM": _lstm,
    "Pow": _power,
    "Where": _where,
    "Cast": _elementwise("cast"),
    **{
        node: _elementwise(function.name) if function.operands == 1 else _combination(function.name)
        for function in FUNCTIONS.values()
        for node in function.onnx
    },
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "MaxPool": _pool("max_pool2d"),
    "AveragePool": _pool("avg_pool2d"),
    "GlobalAveragePool": _reduction("mean"),
    "ReduceMean": _reduction("mean"),
    "ReduceSum": _reduction("sum"),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"), _view),
    "Transpose": _permute,
    **dict.fromkeys(("Identity", "Dropout"), _same),
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    "Resize": _upsample,
}
"""Functions that capture a node, by its type."""
