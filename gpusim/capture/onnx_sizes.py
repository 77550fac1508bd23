"""Shapes of an ONNX graph, and the nodes that compute them: computed until only layers are left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import onnx.shape_inference

from gpusim.capture.sketch import CaptureError
from gpusim.models.shape import Shape

Size = int | Literal["batch"]
"""What a dimension that a graph leaves open is: a number, or the batch."""
BATCH_NAMES = ("batch", "batch_size", "n")
"""Names of a dimension, in any case, that is the batch unless a user says otherwise."""


def stated_sizes(graph: Any, sizes: Mapping[str, Size]) -> dict[str, Size]:
    """The size of each dimension that the inputs of a graph leave open, by name.

    Raises:
        CaptureError: a dimension without a size, or a size of no open dimension.
    """
    names = dict.fromkeys(name for name, _ in _open_dimensions(graph))
    for name in sizes:
        if name not in names:
            known = f"it leaves {', '.join(names)} open" if names else "it leaves none open"
            raise CaptureError(f"--size {name}: the graph has no such dimension; {known}")
    batch = {name: "batch" for name in names if name.lower() in BATCH_NAMES}
    stated: dict[str, Any] = {**batch, **sizes}
    if missing := [name for name in names if name not in stated]:
        remedy = " ".join(f"--size {name}=N" for name in missing)
        raise CaptureError(f"the graph leaves {', '.join(missing)} open; add {remedy} (N: a number, or batch)")
    return {name: stated[name] for name in names}


def set_sizes(graph: Any, sizes: Mapping[str, int]) -> None:
    """Set the dimensions that the inputs of a graph leave open; what follows from them is left to inference."""
    for name, dim in list(_open_dimensions(graph)):
        dim.dim_value = sizes[name]
    for one in (*graph.value_info, *graph.output):
        for dim in one.type.tensor_type.shape.dim:
            if _is_open(dim):
                dim.Clear()


def _open_dimensions(graph: Any) -> Iterator[tuple[str, Any]]:
    """Dimensions without a size, named as in the graph, else by input and place (``x.2``)."""
    weights = {one.name for one in graph.initializer}
    for given in graph.input:
        if given.name in weights:
            continue
        if not given.type.tensor_type.HasField("shape"):
            raise CaptureError(f"input {given.name} has no shape; export the graph again with one")
        for at, dim in enumerate(given.type.tensor_type.shape.dim):
            if _is_open(dim):
                yield dim.dim_param or f"{given.name}.{at}", dim


def _is_open(dim: Any) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value < 1  # some exporters write -1


def inferred(model: Any) -> Any:
    """The model with its shapes, and without the nodes that compute them."""
    while True:
        model = onnx.shape_inference.infer_shapes(model)
        if not _fold_sizes(model.graph):
            return model


MOST_FOLDED = 64
"""Elements of the integer tensors that are computed: sizes and axes, never data."""


def _fold_sizes(graph: Any) -> bool:
    """Replace nodes that compute sizes by what they compute; whether there were any."""
    shapes = shapes_of(graph)
    known = constants(graph)
    kept, folded = [], 0
    for node in graph.node:
        if node.op_type == "Shape" and node.input[0] in shapes:
            values = [np.asarray(shapes[node.input[0]], np.int64)]
        elif node.op_type not in ("Shape", *_OPAQUE) and all(name in known for name in node.input if name):
            evaluator = onnx.reference.ReferenceEvaluator(node)
            values = evaluator.run(None, {name: known[name] for name in node.input if name})
        else:
            kept.append(node)
            continue
        folded += 1
        for name, value in zip(node.output, values, strict=True):
            known[name] = np.asarray(value)
            graph.initializer.append(onnx.numpy_helper.from_array(known[name], name))
    del graph.node[:]
    graph.node.extend(kept)
    return folded > 0


def constants(graph: Any) -> dict[str, Any]:
    """Small weights by name: sizes and axes among them."""
    small = (one for one in graph.initializer if math.prod(one.dims) <= MOST_FOLDED)
    return {one.name: onnx.numpy_helper.to_array(one) for one in small}


_OPAQUE = frozenset({"If", "Loop", "Scan", "RandomNormal", "RandomUniform"})
"""Nodes that are not computed whatever they take."""


def shapes_of(graph: Any) -> dict[str, Shape]:
    """Shapes of tensors, those that are known."""
    shapes: dict[str, Shape] = {one.name: tuple(one.dims) for one in graph.initializer}
    for one in (*graph.input, *graph.value_info, *graph.output):
        dims = one.type.tensor_type.shape.dim
        if one.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes.setdefault(one.name, tuple(dim.dim_value for dim in dims))
    return shapes
