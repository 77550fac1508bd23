"""Plans of a convolution, as a library ranks them, and the error where it has no kernel."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpusim.library.catalogue import Kernel
from gpusim.lowering.convolution.layouts import Form, form_of
from gpusim.lowering.convolution.plan import ConvolutionPlan
from gpusim.lowering.convolution.pointwise import is_pointwise, products_of_images
from gpusim.lowering.convolution.winograd import fused, serves, unfused
from gpusim.prediction.choose import GemmCandidate, candidates
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.system import System
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm


@dataclass(frozen=True, slots=True)
class ConvolutionCandidate:
    """A way to run a convolution: a product, with launches around it."""

    operator: Convolution
    product: GemmCandidate
    form: Form
    estimate_us: float

    @property
    def name(self) -> str:
        return self.product.name

    @property
    def split_k(self) -> int:
        return self.product.split_k

    @property
    def choice(self) -> tuple[object, ...]:
        return self.product.choice

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.product.extents

    @property
    def plan(self) -> ConvolutionPlan:
        return ConvolutionPlan(self.operator, self.product.plan, self.form.before, self.form.after)


def ranked_convolutions(
    system: System, operator: Convolution, name: str | None, *, warm: bool
) -> Sequence[ConvolutionCandidate]:
    """The plans that a convolution may run on, the one that a library would launch first.

    Args:
        name: pins the kernel of this printed name.

    Raises:
        UnsupportedError: there are none; the text says what the GPU has.
    """
    gpu, boost_mhz = system.gpu, system.gpu.clock.boost_mhz
    found: list[ConvolutionCandidate] = []
    for form, kernels in _forms(system, operator, name, warm=warm):
        around = [*form.before, *form.after]
        around_us = sum(one.estimate_us for one in around) + system.host.graph_gap_us * len(around)
        # What a transform has just written is in L2 as far as it fits.
        products: Sequence[GemmCandidate] = candidates(
            system, form.product, kernels, warm=warm and not form.before, clock_mhz=boost_mhz
        )
        if isinstance(form.product, Gemm):
            products = products[:1]  # the choice of the library for matrix multiplications
        found += [ConvolutionCandidate(operator, one, form, one.estimate_us + around_us) for one in products]
    if not found:
        raise UnsupportedError(f"{operator.op} of {operator.dtype.value} on {gpu.name}: no kernel fits an SM")
    return sorted(found, key=lambda one: one.estimate_us)


def _forms(
    system: System, operator: Convolution, name: str | None, *, warm: bool
) -> Iterable[tuple[Form, tuple[Kernel, ...]]]:
    """Ways to compute a convolution, each with the kernels that do."""
    gpu = system.gpu
    for kernels in _alike(_usable_kernels(system, operator, name)):
        if kernels[0].family.fused_winograd:
            yield fused(gpu, operator, warm=warm), kernels
        else:
            yield form_of(gpu, operator, kernels[0], warm=warm), kernels
    if name is None:
        for kind in (one.kind for one in system.library.convolution_algorithms if operator.dtype in one.inputs):
            if kind == "unfused_winograd" and serves(operator):
                gemm, form = unfused(gpu, operator, warm=warm)
                yield form, usable_kernels(system, gemm)
            if kind == "gemm" and is_pointwise(operator):
                gemm, form = products_of_images(gpu, operator)
                yield form, usable_kernels(system, gemm)


def _alike(kernels: Iterable[Kernel]) -> Iterable[tuple[Kernel, ...]]:
    """Kernels that take a convolution in the same form."""
    groups: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in kernels:
        family = kernel.family
        around = (family.transposes_result, family.clears_result, family.offsets_kernel)
        groups.setdefault(
            (family.images, kernel.alignment, family.fused_winograd, family.few_channels, *around), []
        ).append(kernel)
    return map(tuple, groups.values())


def _usable_kernels(system: System, operator: Convolution, name: str | None) -> tuple[Kernel, ...]:
    known = [one for one in system.library.convolution_kernels if operator.dtype in one.family.inputs]
    if not known:
        types = sorted({dtype.value for one in system.library.convolution_kernels for dtype in one.family.inputs})
        raise UnsupportedError(
            f"{system.gpu.name} has no kernel for {operator.op} of {operator.dtype.value} in its kernel catalogues; "
            f"they take {', '.join(types) or 'none'}"
        )
    # Images that are stored channel by channel may be transposed.
    layouts, shape = {"nhwc", operator.layout}, operator.shape
    taps, channels = shape.filter_h * shape.filter_w, shape.channels // shape.groups
    computing = [
        one
        for one in known
        if operator.op in one.family.convolves
        and one.family.images in layouts
        and taps <= (one.family.max_taps or taps)
        and channels <= (one.family.few_channels or channels)
        and (serves(operator) or not one.family.fused_winograd)
    ]
    if name is None:
        return tuple(computing)
    printed = {one.printed_name(operator.layout, operator.dtype): one for one in computing}
    if name not in printed:
        near = ", ".join(difflib.get_close_matches(name, printed, n=3, cutoff=0.0))
        raise UnsupportedError(f"no kernel '{name}' for {operator.op} on {system.gpu.name}; nearest: {near}")
    return (printed[name],)
