"""Exported programs, as ``torch.export.save`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_unflatten

from gpusim.capture.errors import CaptureError, reason_of
from gpusim.capture.fake_cuda import silent
from gpusim.capture.open_sizes import OpenSizes, Size, size_name
from gpusim.capture.sizes import Point
from gpusim.capture.tracing import Source


def exported_source(path: Path, sizes: Mapping[str, Size]) -> Source:
    """What is captured of an exported program.

    Args:
        path: the file.
        sizes: those of dimensions that the program leaves open, by input and place such as ``x_0``, and the batch.

    Raises:
        CaptureError: no such file, an open dimension without a size, or a size of no open dimension.
    """
    if not path.is_file():
        raise CaptureError(f"{path}: cannot be read: no such file")
    try:
        with silent():
            program = torch.export.load(str(path))
    except Exception as error:  # noqa: BLE001 -- of what the archive holds, of many kinds
        raise CaptureError(f"{path}: no exported program of PyTorch {torch.__version__}: {reason_of(error)}") from None
    try:
        given = _inputs(program)
        shapes = OpenSizes(_open_shapes(given), sizes, "program")
    except CaptureError as error:
        raise CaptureError(f"{path}: {error}") from None
    dtypes = [tensor.dtype for tensor in given.values()]

    def inputs(point: Point) -> Any:
        made = [
            torch.empty(shape, dtype=dtype, device="meta")
            for shape, dtype in zip(shapes.at(point), dtypes, strict=True)
        ]
        return tree_unflatten(made, program.call_spec.in_spec)

    return Source(
        path.stem,
        f"{path.name}, torch {torch.__version__}",
        lambda _eager: _module_of(program),
        inputs,
        shapes.sizes,
        assumptions=[*shapes.assumptions, "a program is trained or not as it was exported"],
        place=str(path),
    )


def _inputs(program: Any) -> dict[str, Any]:
    """Tensors that a program takes, by name.

    Raises:
        CaptureError: it takes others than tensors.
    """
    names = set(program.graph_signature.user_inputs)
    found = {
        node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in names
    }
    others = [name for name, value in found.items() if not isinstance(value, torch.Tensor)]
    if others or len(found) != len(program.graph_signature.user_inputs):
        raise CaptureError(f"input {(others or ['?'])[0]} is no tensor; export the program with tensors alone")
    return found


def _open_shapes(given: Mapping[str, Any]) -> list[list[int | str]]:
    """Sizes of inputs; an open one by the input and place that it is first at, such as ``x_0``."""
    names: dict[str, str] = {}
    found = []
    for name, tensor in given.items():
        shape: list[int | str] = []
        for at, size in enumerate(tensor.shape):
            known = size if isinstance(size, int) else names.setdefault(str(size), size_name(f"{name}.{at}"))
            shape.append(known)
        found.append(shape)
    return found


def _module_of(program: Any) -> Any:
    """A program as the modules that it was exported from, which name the layers; flat, if they cannot be restored.

    It takes arguments as ``in_spec`` has them. Whether it is trained was decided when it was exported.
    """
    with silent():
        try:
            module = torch.export.unflatten(program)
        except Exception:  # noqa: BLE001 -- of programs whose modules share calls or change their inputs, of many kinds
            module = program.module()
    forward = module.forward
    module.forward = lambda by_place, by_name: forward(*by_place, **by_name)
    module.train = lambda mode=True: module  # noqa: ARG005
    return module
