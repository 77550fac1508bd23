"""Pooling of images, and images of another size."""

from __future__ import annotations

import math
from dataclasses import replace

from gpusim.models.aten.access import spread, suggests_channels_last, whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.memory_bound import Access, Pointwise

_CORNERS = {"nearest": 1, "linear": 2, "bilinear": 4, "bicubic": 16, "trilinear": 8}
"""Pixels of which one of an image of another size is made."""


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d", kind="max_pool2d")
def _max_pool(launches: Launches, call: Call) -> None:
    """A largest element is kept with its place."""
    _pooled(launches, call, "max_pool", math.prod(_pair(call)))


@lowers("avg_pool2d", "avg_pool3d", "avg_pool1d", kind="avg_pool2d")
def _average_pool(launches: Launches, call: Call) -> None:
    _pooled(launches, call, "average_pool", math.prod(_pair(call)))


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", kind="avg_pool2d")
def _adaptive_pool(launches: Launches, call: Call) -> None:
    """Windows that share the image among them."""
    images, result = call.tensors[0], call.returned[0]
    function = "max_pool" if "max" in call.base else "average_pool"
    _pooled(launches, call, function, max(1, images.elements // result.elements))


def _pooled(launches: Launches, call: Call, function: str, window: int) -> None:
    images, results = launches.dense(call.tensors[0]), call.returned
    touched = spread(images, max(images.elements, results[0].elements * window))
    operator = Pointwise((function,), results[0].elements, (touched,), tuple(map(whole, results)))
    launches.launch(operator, [images], results)


def _pair(call: Call) -> list[int]:
    kernel: list[int] = call.arguments.get("kernel_size", [1, 1])
    dims = len(call.tensors[0].shape) - 2
    return kernel * dims if len(kernel) == 1 and dims > 1 else kernel


@lowers(
    "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    kind="fill",
)
def _max_pool_backward(launches: Launches, call: Call) -> None:
    """Gradients are looked for in the windows of a pixel, onto zeros."""
    gradient, images, places = call.tensors[:3]
    launches.elementwise(("copy",), [], call.returned)
    _unpooled(
        launches,
        call,
        "max_pool_backward",
        [launches.laid_out(gradient, channels_last=suggests_channels_last(images)), places],
        "max_pool2d_backward",
    )


@lowers(
    *("avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
    kind="avg_pool2d_backward",
)
def _average_pool_backward(launches: Launches, call: Call) -> None:
    gradient, images = call.tensors[:2]
    _unpooled(
        launches,
        call,
        "average_pool_backward",
        [launches.laid_out(gradient, channels_last=suggests_channels_last(images))],
        None,
    )


def _unpooled(launches: Launches, call: Call, function: str, reads: list[TensorView], kind: str | None) -> None:
    given = call.returned[0]
    last = suggests_channels_last(given)
    run = None if last else math.prod(reads[0].shape[2:])
    spread_reads = tuple(_spread_over(one, given.elements, run) for one in reads)
    operator = Pointwise((function,), given.elements, spread_reads, (whole(given),))
    launches.launch(operator, reads, [given], kind)


def _spread_over(view: TensorView, elements: int, run: int | None) -> Access:
    return Access(max(elements, view.elements), view.dtype, run, min(view.elements, max(elements, view.elements)))


# Images of another size ---------------------------------------------------------------------------


@lowers(
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact2d"),
    *("upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d"),
    *("upsample_bicubic2d", "_upsample_bicubic2d_aa", "grid_sampler_2d", "grid_sampler_3d"),
    kind="upsample",
)
def _resized(launches: Launches, call: Call) -> None:
    images, *grids = call.tensors
    images, result = launches.dense(images), call.returned[0]
    corners = _corners(call)
    functions = ("interpolate",) * max(1, corners // 4) if corners > 1 else ("copy",)
    touched = max(result.elements * corners, result.elements)
    read = Access(touched, images.dtype, None, min(images.elements, touched))
    reads = (read, *(spread(one, result.elements) for one in grids if one.elements <= result.elements))
    apart = not grids and corners > 1 and not suggests_channels_last(result)
    write = replace(whole(result), run=math.prod(result.shape[2:])) if apart else whole(result)
    operator = Pointwise(functions, result.elements, reads, (write,))
    launches.launch(operator, [images, *grids], [result])


@lowers(
    *("upsample_nearest1d_backward", "upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward"),
    *("upsample_nearest3d_backward", "upsample_linear1d_backward"),
    *("upsample_bilinear2d_backward", "_upsample_bilinear2d_aa_backward", "upsample_trilinear3d_backward"),
    *("upsample_bicubic2d_backward", "_upsample_bicubic2d_aa_backward"),
    kind="upsample_backward",
)
def _resized_backward(launches: Launches, call: Call) -> None:
    """Nearest pixels are summed; else each gradient is added to its corners by atomic operations, onto zeros."""
    gradient, given = launches.dense(call.tensors[0]), call.returned[0]
    corners = _corners(call)
    if corners == 1:
        taps = max(1, gradient.elements // given.elements)
        operator = Pointwise(("add",) * taps, given.elements, (whole(gradient),), (whole(given),))
        launches.launch(operator, [gradient], [given])
        return
    launches.elementwise(("copy",), [], [given], "fill")
    touched = gradient.elements * corners
    added = Access(touched, given.dtype, None, min(given.elements, touched))
    operator = Pointwise(("interpolate",), gradient.elements, (whole(gradient), added), (added,))
    launches.launch(operator, [gradient, given], [given], "upsample_backward")


@lowers("grid_sampler_2d_backward", "grid_sampler_3d_backward", kind="fill")
def _sampled_backward(launches: Launches, call: Call) -> None:
    gradient, images, grid = call.tensors[:3]
    launches.elementwise(("copy",), [], call.returned[:1])
    touched = gradient.elements * _CORNERS["bilinear"]
    read = Access(touched, images.dtype, None, min(images.elements, touched))
    reads = (whole(gradient), spread(grid, gradient.elements), read, read)
    operator = Pointwise(("interpolate", "interpolate"), gradient.elements, reads, (read,))
    launches.launch(operator, [gradient, grid, images, images], call.returned[:1], "grid_sampler_backward")


@lowers(
    "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d", "replication_pad3d", kind="pad"
)
def _mirrored(launches: Launches, call: Call) -> None:
    images, result = launches.dense(call.tensors[0]), call.returned[0]
    operator = Pointwise(("copy",), result.elements, (spread(images, result.elements),), (whole(result),))
    launches.launch(operator, [images], [result])


@lowers("reflection_pad1d_backward", "reflection_pad2d_backward", "replication_pad2d_backward", kind="fill")
def _mirrored_backward(launches: Launches, call: Call) -> None:
    gradient, given = call.tensors[0], call.returned[0]
    launches.elementwise(("copy",), [], [given])
    added = spread(given, max(gradient.elements, given.elements))
    operator = Pointwise(("add",), gradient.elements, (whole(gradient), added), (added,))
    launches.launch(operator, [gradient, given], [given], "pad_backward")


def _corners(call: Call) -> int:
    if call.base.startswith("grid_sampler"):
        return _CORNERS["bilinear"]
    return next(count for name, count in sorted(_CORNERS.items(), key=lambda one: -len(one[0])) if name in call.base)
