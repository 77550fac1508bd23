"""ONNX files: the graph, the sizes that it leaves open, and what is captured of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
import torch

from gpusim.capture.errors import CaptureError
from gpusim.capture.onnx_module import OnnxModule, dtype_of, open_inputs
from gpusim.capture.onnx_operators import OPERATORS
from gpusim.capture.open_sizes import OpenSizes, Size, size_name
from gpusim.capture.sizes import Point
from gpusim.capture.tracing import Source


def onnx_source(path: Path, sizes: Mapping[str, Size]) -> Source:
    """What is captured of an ONNX file.

    Args:
        path: the file; weights that it keeps in others need not be there.
        sizes: those of dimensions that the graph leaves open, by name, and the batch.

    Raises:
        CaptureError: no ONNX file, an open dimension without a size, or a size of no open dimension.
    """
    model = _loaded(path)
    given = open_inputs(model.graph)
    try:
        shapes = OpenSizes([_shape(one) for one in given], sizes, "graph")
        dtypes = [dtype_of(one.type.tensor_type.elem_type) for one in given]
    except (CaptureError, ValueError) as error:
        raise CaptureError(f"{path}: {error}") from None

    def inputs(point: Point) -> Any:
        return tuple(
            torch.empty(shape, dtype=dtype, device="meta")
            for shape, dtype in zip(shapes.at(point), dtypes, strict=True)
        )

    assumptions = shapes.assumptions
    if any(node.op_type == "BatchNormalization" for node in model.graph.node):
        assumptions.append("batch normalisation of training takes the statistics of the batch")
    return Source(
        path.stem,
        f"{path.name}, torch {torch.__version__}, onnx {onnx.__version__}",
        lambda _eager: OnnxModule(model, path, OPERATORS),
        inputs,
        shapes.sizes,
        assumptions=assumptions,
        place=str(path),
    )


def _loaded(path: Path) -> Any:
    """The model of a file, its functions taken apart."""
    try:
        model = onnx.load(str(path), load_external_data=False)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise CaptureError(f"{path}: {str(error).splitlines()[0]}") from None
    except Exception as error:  # noqa: BLE001 -- protobuf's error has no stable name
        raise CaptureError(f"{path}: not an ONNX file ({type(error).__name__}); export it again") from None
    if not model.graph.node:
        raise CaptureError(f"{path}: a graph without nodes; export it again")
    return model


def _shape(given: Any) -> list[int | str]:
    """Sizes of an input; an open one by its name, else by input and place, such as ``x_2``.

    Raises:
        CaptureError: the graph states none.
    """
    if not given.type.tensor_type.HasField("shape"):
        raise CaptureError(f"input {given.name} has no shape; export the graph again with one")
    return [
        dim.dim_value
        if dim.HasField("dim_value") and dim.dim_value > 0  # some exporters write -1
        else size_name(dim.dim_param or f"{given.name}.{at}")
        for at, dim in enumerate(given.type.tensor_type.shape.dim)
    ]
