"""Shapes of an ONNX graph, and the nodes that compute them: computed until only layers are left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import onnx.shape_inference

from gpusim.models.shape import Shape


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
