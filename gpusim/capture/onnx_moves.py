"""Operators of ONNX that make, move and select elements, and graphs within nodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: N812 -- its usual name

from gpusim.capture.onnx_module import Node, Unknown, dtype_of
from gpusim.capture.onnx_registry import operator

# Shapes and moves ---------------------------------------------------------------------------------


@operator("Reshape")
def _reshape(node: Node) -> Any:
    value = node.tensor(0)
    sizes = node.numbers(1, "shape") or []
    if not node.attribute("allowzero", 0):
        sizes = [value.shape[at] if size == 0 else size for at, size in enumerate(sizes)]
    return value.reshape(sizes)


@operator("Flatten")
def _flatten(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 1)
    return value.reshape(math.prod(value.shape[:axis]), -1)


@operator("Squeeze")
def _squeeze(node: Node) -> Any:
    axes = node.numbers(1, "axes")
    return node.tensor(0).squeeze() if axes is None else node.tensor(0).squeeze(axes)


@operator("Unsqueeze")
def _unsqueeze(node: Node) -> Any:
    value, axes = node.tensor(0), node.numbers(1, "axes") or []
    for axis in sorted(one % (value.dim() + len(axes)) for one in axes):
        value = value.unsqueeze(axis)
    return value


@operator("Transpose")
def _transpose(node: Node) -> Any:
    value = node.tensor(0)
    return value.permute(node.attribute("perm", list(reversed(range(value.dim())))))


@operator("Expand")
def _expand(node: Node) -> Any:
    value = node.tensor(0)
    return value.expand(torch.broadcast_shapes(tuple(value.shape), tuple(node.numbers(1) or ())))


@operator("Tile")
def _tile(node: Node) -> Any:
    return node.tensor(0).repeat(node.numbers(1))


@operator("Concat")
def _concat(node: Node) -> Any:
    return torch.cat(node.tensors, node.attribute("axis"))


@operator("Split")
def _split(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 0)
    sizes = node.numbers(1, "split")
    if sizes is None:
        sizes = math.ceil(value.shape[axis] / node.attribute("num_outputs", len(node.outputs)))
    return tuple(torch.split(value, sizes, axis))


@operator("Slice")
def _slice(node: Node) -> Any:
    value = node.tensor(0)
    starts, ends = node.numbers(1, "starts") or [], node.numbers(2, "ends") or []
    axes = node.numbers(3, "axes") or list(range(len(starts)))
    steps = node.numbers(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        chosen = range(value.shape[axis])[start:end:step]
        if step < 0:
            value = value.flip(axis)
            chosen = range(value.shape[axis])[value.shape[axis] - 1 - chosen.start if len(chosen) else 0 :: -step][
                : len(chosen)
            ]
        low, high = (chosen.start, chosen.stop) if len(chosen) else (0, 0)
        whole: list[Any] = [slice(None)] * value.dim()
        whole[axis] = slice(low, high, abs(step))
        value = value[tuple(whole)]
    return value


@operator("Gather")
def _gather(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 0)
    known = node.module.known(node.inputs[1], node.values)
    if known is not None and known.ndim == 0:
        return value.select(axis, int(known))
    indices = node.tensor(1)
    if axis == 0 and value.dim() == 2 and indices.dim():
        return F.embedding(indices, value)
    axis %= value.dim()
    found = torch.index_select(value, axis, indices.reshape(-1))
    return found.reshape(*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])


@operator("GatherElements")
def _gather_elements(node: Node) -> Any:
    return torch.gather(node.tensor(0), node.attribute("axis", 0), node.tensor(1))


def _places(value: Any, indices: Any, batch_dims: int = 0) -> tuple[Any, ...]:
    outer = []
    for at in range(batch_dims):
        shape = [1] * (indices.dim() - 1)
        shape[at] = value.shape[at]
        outer.append(torch.arange(value.shape[at], device=value.device).reshape(shape))
    return (*outer, *indices.long().unbind(-1))


@operator("GatherND")
def _gather_nd(node: Node) -> Any:
    value = node.tensor(0)
    return value[_places(value, node.tensor(1), node.attribute("batch_dims", 0))]


@operator("ScatterND")
def _scatter_nd(node: Node) -> Any:
    value = node.tensor(0)
    added = node.attribute("reduction", "none") == "add"
    return value.index_put(_places(value, node.tensor(1)), node.tensor(2), accumulate=added)


@operator("ScatterElements", "Scatter")
def _scatter(node: Node) -> Any:
    value, indices, updates = node.tensors
    axis, reduction = node.attribute("axis", 0), node.attribute("reduction", "none")
    if reduction == "none":
        return torch.scatter(value, axis, indices, updates)
    named = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return torch.scatter_reduce(value, axis, indices, updates, named)


@operator("Pad")
def _pad(node: Node) -> Any:
    value, pads = node.tensor(0), node.numbers(1, "pads") or []
    axes = node.numbers(3) or list(range(value.dim()))
    fill = node.operand(2) if node.has(2) else node.attribute("value", 0.0)
    sides = [0] * 2 * value.dim()
    for at, axis in enumerate(axes):
        last = value.dim() - 1 - axis % value.dim()
        sides[2 * last], sides[2 * last + 1] = pads[at], pads[at + len(axes)]
    while len(sides) > 2 and not any(sides[-2:]):
        sides = sides[:-2]
    if not any(sides):
        return value
    fill = 0.0 if isinstance(fill, torch.Tensor) else fill  # the kernel is one
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[
        node.attribute("mode", "constant")
    ]
    return F.pad(value, sides, mode, fill) if mode == "constant" else F.pad(value, sides, mode)


@operator("DepthToSpace")
def _depth_to_space(node: Node) -> Any:
    value, block = node.tensor(0), node.attribute("blocksize")
    if node.attribute("mode", "DCR") == "CRD":
        return F.pixel_shuffle(value, block)
    count, channels, rows, columns = value.shape
    apart = value.reshape(count, block, block, channels // block**2, rows, columns)
    return apart.permute(0, 3, 4, 1, 5, 2).reshape(count, -1, rows * block, columns * block)


@operator("SpaceToDepth")
def _space_to_depth(node: Node) -> Any:
    return F.pixel_unshuffle(node.tensor(0), node.attribute("blocksize"))


@operator("Resize", "Upsample")
def _resize(node: Node) -> Any:
    value = node.tensor(0)
    places = (1, None) if node.op_type == "Upsample" or node.opset < 11 else (2, 3)
    axes = [one % value.dim() for one in node.attribute("axes", list(range(value.dim())))]
    sizes = list(value.shape)
    if places[1] is not None and node.has(places[1]):
        asked = node.numbers(places[1]) or []
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [size / value.shape[axis] for axis, size in zip(axes, asked, strict=True)]
            scale = min(ratios) if policy == "not_larger" else max(ratios)
            asked = [int(scale * value.shape[axis] + 0.5) for axis in axes]
        for axis, size in zip(axes, asked, strict=True):
            sizes[axis] = size
    else:
        scales = [
            float(one) for one in (node.known(places[0]).ravel() if node.has(places[0]) else node.attribute("scales"))
        ]
        for axis, scale in zip(axes, scales, strict=True):
            sizes[axis] = math.floor(value.shape[axis] * scale)
    if sizes[:2] != list(value.shape[:2]):
        raise ValueError("resizes channels, which is not supported; leave the part out")
    mode = node.attribute("mode", "nearest")
    if mode == "nearest":
        return F.interpolate(value, sizes[2:], mode="nearest")
    named = {"linear": ("linear", "bilinear", "trilinear"), "cubic": ("bicubic",) * 3}[mode][value.dim() - 3]
    corners = node.attribute("coordinate_transformation_mode", "half_pixel") == "align_corners"
    antialias = bool(node.attribute("antialias", 0)) and value.dim() == 4
    return F.interpolate(value, sizes[2:], mode=named, align_corners=corners, antialias=antialias)


@operator("GridSample")
def _grid_sample(node: Node) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(stated := node.attribute("mode", "bilinear"), stated)
    corners = bool(node.attribute("align_corners", 0))
    return F.grid_sample(node.tensor(0), node.tensor(1), mode, node.attribute("padding_mode", "zeros"), corners)


@operator("AffineGrid")
def _affine_grid(node: Node) -> Any:
    sizes = node.numbers(1)
    if sizes is None:
        raise ValueError("its sizes are not known")
    return F.affine_grid(node.tensor(0), sizes, bool(node.attribute("align_corners", 0)))


@operator("Col2Im")
def _col2im(node: Node) -> Any:
    image, block = node.numbers(1), node.numbers(2)
    strides, dilations = node.attribute("strides", [1, 1]), node.attribute("dilations", [1, 1])
    return F.fold(node.tensor(0), image, block, dilations, node.attribute("pads", [0] * 4)[:2], strides)


@operator("OneHot")
def _one_hot(node: Node) -> Any:
    indices, depth, axis = node.tensor(0), int(node.known(1).item()), node.attribute("axis", -1)
    values = node.known(2)
    off, on = values.tolist()
    places = torch.arange(depth, device=indices.device)
    axis %= indices.dim() + 1
    shape = [1] * (indices.dim() + 1)
    shape[axis] = depth
    dtype = dtype_of(onnx.helper.np_dtype_to_tensor_dtype(values.dtype))
    return torch.where(indices.unsqueeze(axis) == places.reshape(shape), on, off).to(dtype)


@operator("ConstantOfShape")
def _filled(node: Node) -> Any:
    stated = node.attribute("value")
    dtype = torch.float32 if stated is None else dtype_of(stated.data_type)
    return torch.zeros(node.numbers(0), dtype=node.module.like(dtype), device="cuda")


@operator("Range")
def _range(node: Node) -> Any:
    start, end, step = (node.known(at) for at in range(3))
    dtype = dtype_of(onnx.helper.np_dtype_to_tensor_dtype(start.dtype))
    return torch.arange(start.item(), end.item(), step.item(), dtype=dtype, device="cuda")


@operator("NonZero", "Compress", "Unique", "NonMaxSuppression")
def _by_values(node: Node) -> Any:
    raise Unknown(node.inputs[0])


@operator("EyeLike")
def _eye(node: Node) -> Any:
    value = node.tensor(0)
    dtype = dtype_of(node.attribute("dtype")) if node.attribute("dtype") else value.dtype
    return torch.eye(*value.shape, dtype=dtype, device=value.device)


@operator("Trilu")
def _triangle(node: Node) -> Any:
    diagonal = int(node.known(1).item()) if node.has(1) else 0
    return (torch.triu if node.attribute("upper", 1) else torch.tril)(node.tensor(0), diagonal)


@operator("ReverseSequence")
def _reversed(node: Node) -> Any:
    return node.tensor(0).flip(node.attribute("time_axis", 0))


@operator("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def _random_like(node: Node) -> Any:
    function = {
        "RandomNormalLike": torch.randn_like,
        "RandomUniformLike": torch.rand_like,
        "Bernoulli": torch.bernoulli,
    }
    stated = node.attribute("dtype")
    found = function[node.op_type](node.tensor(0))
    return found.to(dtype_of(stated)) if stated else found


@operator("RandomNormal", "RandomUniform")
def _random(node: Node) -> Any:
    function = torch.randn if node.op_type == "RandomNormal" else torch.rand
    return function(node.attribute("shape"), device="cuda")


@operator("SequenceConstruct")
def _sequence(node: Node) -> Any:
    return node.tensors


@operator("SequenceAt")
def _sequence_at(node: Node) -> Any:
    return node.tensor(0)[int(node.known(1).item())]


@operator("SplitToSequence")
def _split_to_sequence(node: Node) -> Any:
    value, axis = node.tensor(0), node.attribute("axis", 0)
    sizes = node.numbers(1) or [1]
    parts = list(torch.split(value, sizes[0] if len(sizes) == 1 else sizes, axis))
    return [parts] if node.attribute("keepdims", 1) or node.has(1) else [[one.squeeze(axis) for one in parts]]


@operator("ConcatFromSequence")
def _concat_sequence(node: Node) -> Any:
    return (torch.stack if node.attribute("new_axis", 0) else torch.cat)(node.tensor(0), node.attribute("axis"))


# Graphs within nodes ------------------------------------------------------------------------------


@operator("If")
def _branch(node: Node) -> Any:
    graph = node.attribute("then_branch" if bool(node.known(0).item()) else "else_branch")
    return tuple(node.module.run_graph(graph, node.values))


@operator("Loop")
def _loop(node: Node) -> Any:
    body = node.attribute("body")
    count = int(node.known(0).item()) if node.has(0) else MOST_ITERATIONS + 1
    if count > MOST_ITERATIONS:
        raise ValueError(f"more than {MOST_ITERATIONS} iterations are not followed")
    names = [one.name for one in body.input]
    carried = [node.values.get(name, node.module.tensor(name, node.values)) for name in node.inputs[2:]]
    collected: list[list[Any]] = []
    for at in range(count):
        given = {
            **node.values,
            names[0]: np.asarray(at),
            names[1]: np.asarray(True),
            **dict(zip(names[2:], carried, strict=True)),
        }
        goes_on, *made = node.module.run_graph(body, given)
        carried, kept = made[: len(carried)], made[len(carried) :]
        collected.append(kept)
        if isinstance(goes_on, np.ndarray | np.generic) and not goes_on.item():
            break
    scans = [torch.stack(list(one)) for one in zip(*collected, strict=True)]
    return (*carried, *scans)


MOST_ITERATIONS = 4096
"""Iterations of a loop that are followed."""
