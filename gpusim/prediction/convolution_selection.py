"""Plans of a convolution, as a library ranks them, and the error where it has no kernel."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu, Unit
from gpusim.library.catalogue import ConvolutionAlgorithm, Kernel
from gpusim.library.convolution_traits import ConvolutionTraits
from gpusim.library.transforms import ConvolutionTransforms
from gpusim.library.vector import version_key
from gpusim.lowering.convolution.depthwise import DepthwisePlan, depthwise, is_depthwise
from gpusim.lowering.convolution.layouts import Form, form_of
from gpusim.lowering.convolution.plan import ConvolutionPlan
from gpusim.lowering.convolution.pointwise import gemms_of_images, is_pointwise
from gpusim.lowering.convolution.transforms import Surroundings
from gpusim.lowering.convolution.winograd import fused, serves, unfused
from gpusim.lowering.gemm.problem import problem_of
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.prediction.choose import AroundGemmCandidate, GemmCandidate, OnlyCandidate, rankings
from gpusim.prediction.selection import CORES, UnsupportedError, usable_kernels
from gpusim.system import System
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm

FIRST_WITH_CUDNN_9 = "2.4"
"""First PyTorch whose wheels depend on cuDNN 9 (nvidia-cudnn-cu12 9.1.0.70; 2.3 on 8.9.2.26). That cuDNN 9
takes groups on Tensor Cores which cuDNN 8 does not is assumed: none of its binaries was read."""
HALF_BITS = 16


@dataclass(frozen=True, slots=True)
class ConvolutionCandidate(AroundGemmCandidate):
    """A way to run a convolution: a GEMM, with launches around it."""

    operator: Convolution
    gemm: GemmCandidate
    form: Form
    estimate_us: float

    @property
    def plan(self) -> ConvolutionPlan:
        return ConvolutionPlan(self.operator, self.gemm.plan, self.form.before, self.form.after)


ConvolutionRequest = tuple[System, Convolution, str | None, Unit | None, str, bool]
"""What :func:`ranked_convolutions` takes."""


def ranked_convolutions(
    system: System, operator: Convolution, name: str | None, unit: Unit | None, torch: str = "", *, warm: bool
) -> Sequence[ConvolutionCandidate | OnlyCandidate]:
    """The plans that a convolution may run on, the one that a library would launch first.

    Args:
        name: pins the kernel of this printed name.
        unit: only kernels on CUDA cores, or on Tensor Cores.
        torch: version of PyTorch, which decides between its own kernels and cuDNN's; empty for the newest known.

    Raises:
        UnsupportedError: there are none; the text says what the GPU has.
    """
    (found,) = convolutions_ranked_together([(system, operator, name, unit, torch, warm)])
    if not found:
        raise UnsupportedError(_unsupported(system, operator, name, unit))
    return found


def convolutions_ranked_together(
    requests: Sequence[ConvolutionRequest],
) -> list[Sequence[ConvolutionCandidate | OnlyCandidate]]:
    """:func:`ranked_convolutions` of many, each empty where there are none.

    GEMMs of their forms that differ in nothing but their sizes are ranked at once.
    """
    found: list[list[ConvolutionCandidate | OnlyCandidate]] = []
    alike: dict[tuple[object, ...], list[_Way]] = {}
    ways: list[list[_Way]] = []
    for system, operator, name, unit, torch, warm in requests:
        direct = _depthwise(system, operator, name, unit, torch, warm=warm)
        found.append([] if direct is None else [OnlyCandidate(direct, direct.estimate_us)])
        ways.append([])
        if direct is not None:
            continue
        for form, kernels in _forms(system, operator, name, unit, torch, warm=warm):
            # What a transform has just written is in L2 as far as it fits.
            way = _Way(system, form, kernels, warm=warm and not form.before)
            ways[-1].append(way)
            problem = problem_of(form.gemm)
            key = (id(system), tuple(map(id, kernels)), way.warm, problem.types, problem.is_large)
            alike.setdefault(key, []).append(way)
    for those in alike.values():
        system, gemms = those[0].system, [way.form.gemm for way in those]
        ranked = rankings(system, gemms, those[0].kernels, warm=those[0].warm, clock_mhz=system.gpu.clock.boost_mhz)
        for way, ranking in zip(those, ranked, strict=True):
            way.ranking = ranking
    for (_, operator, *_), of_one, plans in zip(requests, ways, found, strict=True):
        formed = (one for way in of_one for one in way.candidates(operator))
        plans.extend(sorted(formed, key=lambda one: one.estimate_us))
    return list(found)


@dataclass(slots=True)
class _Way:
    """A form of a convolution, with the kernels that compute it."""

    system: System
    form: Form
    kernels: tuple[Kernel, ...]
    warm: bool
    ranking: Sequence[GemmCandidate] = ()

    def candidates(self, operator: Convolution) -> list[ConvolutionCandidate]:
        """The ranked plans of its GEMM, with the launches around it."""
        around = [*self.form.before, *self.form.after]
        around_us = sum(one.estimate_us for one in around) + self.system.host.graph_gap_us * len(around)
        # The choice of the library for matrix multiplications
        gemms = self.ranking[:1] if isinstance(self.form.gemm, Gemm) else self.ranking
        return [ConvolutionCandidate(operator, one, self.form, one.estimate_us + around_us) for one in gemms]


def _depthwise(
    system: System, operator: Convolution, name: str | None, unit: Unit | None, torch: str, *, warm: bool
) -> DepthwisePlan | None:
    """The plan of a convolution of channels by themselves, which a framework runs by rule on CUDA cores."""
    transforms = system.library.convolution_transforms
    if transforms is None or not is_depthwise(operator) or unit == "tensor":
        return None
    planned = depthwise(_surroundings(system.gpu, transforms, operator, warm=warm), operator, torch)
    return planned if name in (None, planned.name) else None


def _surroundings(gpu: Gpu, transforms: ConvolutionTransforms, operator: Convolution, *, warm: bool) -> Surroundings:
    """Where a convolution starts: after itself, or after launches that leave L2 half full of what they wrote."""
    footprint_bytes = 2 * operator.size_bytes if warm else math.inf
    found_bytes = 0.0 if warm else effective_l2_bytes(gpu) / 2
    return Surroundings(gpu, transforms, footprint_bytes, found_bytes)


def _forms(
    system: System, operator: Convolution, name: str | None, unit: Unit | None, torch: str, *, warm: bool
) -> Iterator[tuple[Form, tuple[Kernel, ...]]]:
    """Ways to compute a convolution, each with the kernels that do."""
    transforms = system.library.convolution_transforms
    if transforms is None:
        return
    around = _surroundings(system.gpu, transforms, operator, warm=warm)
    for (traits, alignment), kernels in _alike(_usable_kernels(system, operator, name, unit, torch)):
        if traits.algorithm == "winograd":
            yield fused(around, operator), kernels
        else:
            yield form_of(around, operator, traits, alignment), kernels
    for algorithm, gemm, form in _as_gemms(system, around, operator):
        with suppress(UnsupportedError):
            kernels = tuple(filter(algorithm.launches, usable_kernels(system, gemm, name, unit)))
            if kernels:
                yield form, kernels


def _as_gemms(
    system: System, around: Surroundings, operator: Convolution
) -> Iterator[tuple[ConvolutionAlgorithm, Gemm, Form]]:
    """Ways to compute it by kernels for matrix multiplication."""
    for one in system.library.convolution_algorithms:
        if operator.dtype not in one.inputs:
            continue
        if one.kind == "unfused_winograd" and serves(operator):
            yield one, *unfused(around, operator)
        if one.kind == "gemm" and is_pointwise(operator):
            yield one, *gemms_of_images(around, operator)


def _alike(
    kernels: Iterable[tuple[Kernel, ConvolutionTraits]],
) -> Iterator[tuple[tuple[ConvolutionTraits, int | None], tuple[Kernel, ...]]]:
    """Kernels by their traits and alignment: those that take a convolution in the same form."""
    groups: dict[tuple[ConvolutionTraits, int | None], list[Kernel]] = {}
    for kernel, traits in kernels:
        groups.setdefault((traits, kernel.alignment), []).append(kernel)
    return ((key, tuple(those)) for key, those in groups.items())


def _usable_kernels(
    system: System, operator: Convolution, name: str | None, unit: Unit | None, torch: str = ""
) -> Iterator[tuple[Kernel, ConvolutionTraits]]:
    """Kernels made for convolutions that compute this one."""
    for kernel in _of_type(system, operator, unit):
        traits = kernel.family.convolution
        if (
            traits
            and name in (None, kernel.printed_name(operator.layout, operator.dtype))
            and _takes(traits, operator)
            and (not traits.widest_filled or _is_widest(kernel, operator))
            and (not traits.whole_group_tiles or _fills_tiles(kernel, traits, operator, torch))
        ):
            yield kernel, traits


def _is_widest(kernel: Kernel, operator: Convolution) -> bool:
    """Whether no wider tile of its family is filled by half; the narrowest where none is.

    Its width is of an image's results, or of filters, for their gradient.
    """
    rows, columns = operator.shape.output
    of_filters = operator.op == "conv_bwd_weights"
    extent = operator.shape.filters // operator.shape.groups if of_filters else rows * columns
    widths = sorted(entry.tile[1] if of_filters else entry.tile[0] for entry in kernel.family.kernels)
    filled = [width for width in widths if ceil_div(extent, width) * width < 2 * extent]
    return (kernel.tile_n if of_filters else kernel.tile_m) == max(filled, default=widths[0])


def _fills_tiles(kernel: Kernel, traits: ConvolutionTraits, operator: Convolution, torch: str) -> bool:
    """Whether the groups of a convolution fill tiles, where a library needs that."""
    shape, with_cudnn_8 = operator.shape, torch and version_key(torch) < version_key(FIRST_WITH_CUDNN_9)
    if not with_cudnn_8 or shape.groups == 1 or operator.layout != "nhwc" or operator.dtype.bits != HALF_BITS:
        return True
    channels, filters = shape.channels // shape.groups, shape.filters // shape.groups
    if channels == filters and (traits.merged_channels or channels) % channels == 0:
        return True
    match operator.op:
        case "conv_fwd":
            return filters % kernel.tile_m == 0
        case "conv_bwd_inputs":
            return channels % kernel.tile_m == 0
    return channels % kernel.tile_m == filters % kernel.tile_n == 0


def _takes(traits: ConvolutionTraits, operator: Convolution) -> bool:
    """Whether kernels compute an operator's pass, with its images, filter, stride and padding."""
    shape = operator.shape
    taps, channels = shape.filter_h * shape.filter_w, shape.channels // shape.groups
    filters = shape.filters // shape.groups
    strided, padded = max(shape.stride) > 1, shape.pad[0] >= shape.filter_h or shape.pad[1] >= shape.filter_w
    # Images that lie channel by channel may be transposed for kernels that read them pixel by pixel.
    transposed = traits.images == "nhwc" and taps >= (traits.transposes_from_taps or math.inf)
    return (
        operator.op in traits.ops
        and (traits.images == operator.layout or transposed)
        and taps <= (traits.max_taps or taps)
        and (not traits.unaligned_to or (shape.groups == 1 and channels % traits.unaligned_to > 0))
        and (traits.min_channels or channels) <= channels <= (traits.max_channels or channels)
        and shape.height * shape.width % (traits.pixels_multiple or 1) == 0
        and traits.strided in (None, strided)
        and (taps >= traits.strided_from_taps or not strided)
        and not (traits.pads_within_filter and padded)
        and (serves(operator) or traits.algorithm != "winograd")
        and filters <= (traits.max_filters or filters)
    )


def _of_type(system: System, operator: Convolution, unit: Unit | None) -> list[Kernel]:
    """Kernels for convolutions of an operator's type."""
    instructions = system.gpu.instructions
    return [
        kernel
        for kernel in system.library.convolution_kernels
        if operator.dtype in kernel.family.inputs and unit in (None, instructions[kernel.family.instruction].unit)
    ]


def _unsupported(system: System, operator: Convolution, name: str | None, unit: Unit | None) -> str:
    """Why no kernel computes a convolution."""
    gpu, wanted = system.gpu.name, f"{operator.op} of {operator.dtype.value}"
    on = f" on {CORES[unit]}" if unit else ""
    known = _of_type(system, operator, unit)
    if not known:
        types = sorted({dtype.value for one in system.library.convolution_kernels for dtype in one.family.inputs})
        has = f"they take {', '.join(types) or 'none'}"
        return f"{gpu} has no kernel for {wanted}{on} in its kernel catalogues; {has}"
    if name is not None:
        computing = _usable_kernels(system, operator, None, unit)
        printed = [one.printed_name(operator.layout, operator.dtype) for one, _ in computing]
        near = ", ".join(difflib.get_close_matches(name, printed, n=3, cutoff=0.0))
        return f"no kernel '{name}' for {wanted}{on} on {gpu}; nearest: {near}"
    return f"{wanted} in {operator.layout} on {gpu}{on}: no kernel of its type computes it"
