"""ONNX files: the graph, the sizes that it leaves open, and what is captured of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import onnx
import onnx.inliner
import torch

from gpusim.capture.errors import CaptureError
from gpusim.capture.onnx_module import OnnxModule, dtype_of, open_inputs
from gpusim.capture.onnx_operators import OPERATORS
from gpusim.capture.sizes import Point
from gpusim.capture.tracing import Source

Size = int | Literal["batch"]
"""What a dimension that a graph leaves open is: a number, or the batch."""
BATCH_NAMES = ("batch", "batch_size", "n")
"""Names of a dimension, in any case, that is the batch unless a user says otherwise."""


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
        stated = _stated(model.graph, {name: size for name, size in sizes.items() if name != "batch"})
        shapes = {one.name: _shape(one) for one in given}
        dtypes = {one.name: dtype_of(one.type.tensor_type.elem_type) for one in given}
    except (CaptureError, ValueError) as error:
        raise CaptureError(f"{path}: {error}") from None
    follows = "batch" in stated.values()
    first = next((shape[0] for shape in shapes.values() if shape and isinstance(shape[0], int)), 1)
    if not follows and "batch" in sizes and sizes["batch"] != first:
        raise CaptureError(
            f"{path}: the graph states its batch, {first}; export it with an open one, or leave --batch out"
        )
    batch = int(sizes.get("batch", 8)) if follows else first
    chosen = {"batch": batch, **{name: int(size) for name, size in stated.items() if size != "batch"}}

    def inputs(point: Point) -> Any:
        def number(size: int | str) -> int:
            return size if isinstance(size, int) else point["batch" if stated[size] == "batch" else size]

        return tuple(
            torch.empty(tuple(map(number, shapes[one.name])), dtype=dtypes[one.name], device="meta") for one in given
        )

    assumptions = [f"{name} = batch" for name, size in stated.items() if size == "batch" and name != "batch"]
    if not follows:
        assumptions.append(f"the batch is {batch}, the first size of the first input")
    if any(node.op_type == "BatchNormalization" for node in model.graph.node):
        assumptions.append("batch normalisation of training takes the statistics of the batch")
    return Source(
        path.stem,
        f"{path.name}, torch {torch.__version__}, onnx {onnx.__version__}",
        lambda _eager: OnnxModule(model, path, OPERATORS),
        inputs,
        chosen,
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


def _stated(graph: Any, sizes: Mapping[str, Size]) -> dict[str, Size]:
    """The size of each dimension that the inputs of a graph leave open, by name.

    Raises:
        CaptureError: a dimension without a size, or a size of no open dimension.
    """
    names = list(dict.fromkeys(_open_dimensions(graph)))
    for name in sizes:
        if name not in names:
            known = f"it leaves {', '.join(names)} open" if names else "it leaves none open"
            raise CaptureError(f"--size {name}: the graph has no such dimension; {known}")
    batch: dict[str, Size] = {name: "batch" for name in names if name.lower() in BATCH_NAMES}
    stated = {**batch, **sizes}
    if missing := [name for name in names if name not in stated]:
        remedy = " ".join(f"--size {name}=N" for name in missing)
        raise CaptureError(f"the graph leaves {', '.join(missing)} open; add {remedy} (N: a number, or batch)")
    return {name: stated[name] for name in names}


def _open_dimensions(graph: Any) -> Iterator[str]:
    for one in open_inputs(graph):
        yield from (size for size in _shape(one) if isinstance(size, str))


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
        else re.sub(r"\W", "_", dim.dim_param or f"{given.name}.{at}")
        for at, dim in enumerate(given.type.tensor_type.shape.dim)
    ]
