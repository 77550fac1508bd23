"""Calls that compute nothing: copies, casts, joins, paddings, rolls, and gradients of parts."""

from __future__ import annotations

import math

from gpusim.models.aten.access import memory_order, order_of, strides_over, touched
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.memory_bound import Access, Pointwise

_IMAGE = 3
"""Dimensions of one image."""


@lowers("_to_copy", "to", "_autocast_to_reduced_precision", "_autocast_to_full_precision", kind="cast")
def _cast(launches: Launches, call: Call) -> None:
    launches.elementwise(("copy",), call.tensors[:1], call.returned)


@lowers(
    *("clone", "contiguous", "repeat", "flip", "expand_copy", "permute_copy", "view_copy", "_reshape_copy"),
    *("slice_copy", "select_copy", "unfold_copy", "as_strided_copy", "lift_fresh_copy", "alias_copy", "_conj_physical"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "_reshape_alias_copy", "rot90", "native_channel_shuffle"),
    *("transpose_copy", "unsqueeze_copy", "squeeze_copy", "t_copy"),
    kind="copy",
)
def _clone(launches: Launches, call: Call) -> None:
    """Elements in another order; of ``pixel_shuffle`` a row of an image stands together."""
    value, result = call.tensors[0], call.returned[0]
    if value.elements == result.elements and value.shape != result.shape:
        run = value.shape[-1] if value.shape else 1
        read = Access(value.elements, value.dtype, run if call.base.startswith("pixel") else None)
        launches.launch(Pointwise(("copy",), value.elements, (read,), (whole_of(result),)), [value], [result])
    elif value.elements < result.elements:
        launches.launch(
            Pointwise(("copy",), result.elements, (_repeated(value, result),), (whole_of(result),)), [value], [result]
        )
    else:
        launches.elementwise(("copy",), [value], [result])


@lowers("copy", kind="copy")
def _copy(launches: Launches, call: Call) -> None:
    launches.elementwise(("copy",), call.tensors[1:2], call.returned[:1])


@lowers("cat", "stack", "hstack", "vstack", kind="concat")
def _joined(launches: Launches, call: Call) -> None:
    """One kernel; each tensor is written in pieces (aten/src/ATen/native/cuda/Shape.cu)."""
    result = call.returned[0]
    parts = [one for one in call.tensors if one.elements]
    dim = call.arguments.get("dim", 0) % len(result.shape)
    order = order_of(result.shape, result)
    reads = tuple(_part(one, result, order) for one in parts)
    smallest = min((one.shape[dim] if call.base == "cat" else 1 for one in parts), default=1)
    run = _pieces(result, dim, smallest)
    launches.launch(Pointwise(("copy",), result.elements, reads, (whole_of(result, run),)), parts, [result])


def _part(part: TensorView, result: TensorView, order: tuple[int, ...]) -> Access:
    """What is read of a part, in the order of the result."""
    if len(part.shape) < len(result.shape):
        return touched(part, part.shape, order_of(part.shape, part)) if part.contiguous else _in_order(part)
    return touched(part, part.shape, tuple(dim for dim in order if part.shape[dim] != 1))


def _in_order(part: TensorView) -> Access:
    """Access in the order of the dimensions."""
    return touched(part, part.shape, tuple(dim for dim in reversed(range(len(part.shape))) if part.shape[dim] != 1))


@lowers("constant_pad_nd", "pad", "_pad_enum", kind="pad")
def _padded(launches: Launches, call: Call) -> None:
    """A fill, and a copy into its middle; a copy alone where nothing is added (aten/src/ATen/native/PadNd.cpp)."""
    value, result = call.tensors[0], call.returned[0]
    pads = call.arguments.get("pad", [])
    if not any(one > 0 for one in pads):
        launches.elementwise(("copy",), [_part_of(value, result.shape)], [result])
        return
    launches.elementwise(("copy",), [], [result], "fill")
    _into_part(launches, value, result)


@lowers("slice_backward", "select_backward", "diagonal_backward", kind="fill")
def _of_part(launches: Launches, call: Call) -> None:
    """Zeros, and a copy into the part that was taken."""
    gradient, result = call.tensors[0], call.returned[0]
    launches.elementwise(("copy",), [], [result])
    _into_part(launches, gradient, result, _dim_of_part(call, result))


@lowers("slice_scatter", "select_scatter", "diagonal_scatter", kind="copy")
def _scattered_part(launches: Launches, call: Call) -> None:
    whole, part = call.tensors[:2]
    result = call.returned[0]
    launches.elementwise(("copy",), [whole], [result])
    _into_part(launches, part, result, _dim_of_part(call, result))


def _dim_of_part(call: Call, result: TensorView) -> int | None:
    """The dimension that a part lacks, of one element of it."""
    if not call.base.startswith("select"):
        return None
    return int(call.arguments.get("dim", 0)) % len(result.shape)


def _into_part(launches: Launches, value: TensorView, result: TensorView, missing: int | None = None) -> None:
    """Copy into a part of a result that has other places, too."""
    shape = list(result.shape)
    if missing is not None:
        shape[missing] = 1
    elif len(value.shape) == len(shape):
        shape = [min(sizes) for sizes in zip(value.shape, shape, strict=True)]
    value = _part_of(value, tuple(shape), missing)
    written = TensorView(result.storage, result.dtype_name, tuple(shape), result.strides)
    launches.elementwise(("copy",), [value], [written], "copy")


def _part_of(value: TensorView, shape: tuple[int, ...], missing: int | None = None) -> TensorView:
    strides = value.strides if missing is None else (*value.strides[:missing], 0, *value.strides[missing:])
    return TensorView(value.storage, value.dtype_name, shape, strides)


@lowers("roll", kind="roll")
def _rolled(launches: Launches, call: Call) -> None:
    """A kernel for each dimension (aten/src/ATen/native/TensorTransformations.h)."""
    value, result = launches.contiguous(call.tensors[0]), call.returned[0]
    for at in range(max(1, len(call.arguments.get("shifts", [0])))):
        launches.elementwise(("copy",), [value], [result], "roll" if at else None)
        value = result


@lowers("unfold_backward", kind="fill")
def _windows_backward(launches: Launches, call: Call) -> None:
    """Zeros, to which what each place has in all its windows is added (UnfoldBackwardKernel.cu)."""
    gradient, result = call.tensors[0], call.returned[0]
    launches.elementwise(("copy",), [], [result])
    elements = max(gradient.elements, result.elements)
    reads = (Access(gradient.elements, gradient.dtype, gradient.shape[-1]), _spread_of(result, elements))
    operator = Pointwise(("add",), elements, reads, (_spread_of(result, elements),))
    launches.launch(operator, [gradient, result], [result])


def _spread_of(view: TensorView, elements: int) -> Access:
    return Access(elements, view.dtype, None, view.elements if view.elements < elements else None)


@lowers("im2col", kind="unfold")
def _columns(launches: Launches, call: Call) -> None:
    """A kernel for each image, whose pixels are read by the taps of all windows that they lie in (Im2Col.cu)."""
    images, result = launches.contiguous(call.tensors[0]), call.returned[0]
    count = images.shape[0] if len(images.shape) > _IMAGE else 1
    pixels, columns = images.elements // count, result.elements // count
    read = Access(columns, images.dtype, None, min(pixels, columns))
    operator = Pointwise(("copy",), columns, (read,), (Access(columns, result.dtype),))
    each = [
        TensorView(one.storage, one.dtype_name, (elements,), (1,))
        for one, elements in ((images, pixels), (result, columns))
    ]
    for _ in range(count):
        launches.launch(operator, each[:1], each[1:])


@lowers("col2im", kind="fold")
def _images(launches: Launches, call: Call) -> None:
    columns, result = launches.contiguous(call.tensors[0]), call.returned[0]
    taps = max(1, math.prod(call.arguments.get("kernel_size", [1])))
    operator = Pointwise(("add",) * taps, result.elements, (whole_of(columns),), (whole_of(result),))
    launches.launch(operator, [columns], [result])


def whole_of(view: TensorView, run: int | None = None) -> Access:
    """Access to all elements of a tensor, in pieces of so many of them."""
    return Access(view.elements, view.dtype, run)


def _pieces(result: TensorView, dim: int, size: int) -> int | None:
    """Elements that stand together of a part which has a size along a dimension."""
    order = memory_order(result.shape, (strides_over(result, result.shape),))
    if dim not in order:
        return None
    return math.prod(result.shape[one] for one in order[: order.index(dim)]) * size


def _repeated(value: TensorView, result: TensorView) -> Access:
    return Access(result.elements, value.dtype, None, value.elements)
