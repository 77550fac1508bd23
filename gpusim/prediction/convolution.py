"""Plans of a convolution, as a library ranks them, and the error where it has no kernel."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpusim.hardware.gpu import Unit
from gpusim.library.catalogue import Kernel
from gpusim.lowering.convolution.layouts import Form, form_of
from gpusim.lowering.convolution.plan import ConvolutionPlan
from gpusim.lowering.convolution.pointwise import is_pointwise, products_of_images
from gpusim.lowering.convolution.winograd import fused, serves, unfused
from gpusim.prediction.choose import GemmCandidate, candidates
from gpusim.prediction.selection import CORES, UnsupportedError, usable_kernels
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
    system: System, operator: Convolution, name: str | None, unit: Unit | None, *, warm: bool
) -> Sequence[ConvolutionCandidate]:
    """The plans that a convolution may run on, the one that a library would launch first.

    Args:
        name: pins the kernel of this printed name.
        unit: only kernels on CUDA cores, or on Tensor Cores.

    Raises:
        UnsupportedError: there are none; the text says what the GPU has.
    """
    boost_mhz = system.gpu.clock.boost_mhz
    found: list[ConvolutionCandidate] = []
    for form, kernels in _forms(system, operator, name, unit, warm=warm):
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
        raise UnsupportedError(_unsupported(system, operator, name, unit))
    return sorted(found, key=lambda one: one.estimate_us)


def _forms(
    system: System, operator: Convolution, name: str | None, unit: Unit | None, *, warm: bool
) -> Iterator[tuple[Form, tuple[Kernel, ...]]]:
    """Ways to compute a convolution, each with the kernels that do."""
    gpu = system.gpu
    for kernels in _alike(_usable_kernels(system, operator, name, unit)):
        if kernels[0].family.fused_winograd:
            yield fused(gpu, operator, warm=warm), kernels
        else:
            yield form_of(gpu, operator, kernels[0], warm=warm), kernels
    for gemm, form in _as_gemms(system, operator, warm=warm):
        with suppress(UnsupportedError):
            yield form, usable_kernels(system, gemm, name, unit)


def _as_gemms(system: System, operator: Convolution, *, warm: bool) -> Iterator[tuple[Gemm, Form]]:
    """Ways to compute it by kernels for matrix multiplication."""
    for kind in (one.kind for one in system.library.convolution_algorithms if operator.dtype in one.inputs):
        if kind == "unfused_winograd" and serves(operator):
            yield unfused(system.gpu, operator, warm=warm)
        if kind == "gemm" and is_pointwise(operator):
            yield products_of_images(system.gpu, operator)


def _alike(kernels: Iterable[Kernel]) -> Iterable[tuple[Kernel, ...]]:
    """Kernels that take a convolution in the same form."""
    groups: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in kernels:
        family = kernel.family
        around = (family.transposes_result, family.clears_result, family.offsets_kernel)
        computed = (family.images, kernel.alignment, family.fused_winograd, family.few_channels, family.merged_channels)
        groups.setdefault((*computed, *around), []).append(kernel)
    return map(tuple, groups.values())


def _usable_kernels(system: System, operator: Convolution, name: str | None, unit: Unit | None) -> Iterator[Kernel]:
    """Kernels made for convolutions that compute this one; images that lie channel by channel may be transposed."""
    layouts, shape = {"nhwc", operator.layout}, operator.shape
    taps, channels = shape.filter_h * shape.filter_w, shape.channels // shape.groups
    for kernel in _of_type(system, operator, unit):
        family = kernel.family
        fits = taps <= (family.max_taps or taps) and channels <= (family.few_channels or channels)
        serving = serves(operator) or not family.fused_winograd
        named = name in (None, kernel.printed_name(operator.layout, operator.dtype))
        if operator.op in family.convolves and family.images in layouts and fits and serving and named:
            yield kernel


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
        printed = [one.printed_name(operator.layout, operator.dtype) for one in computing]
        near = ", ".join(difflib.get_close_matches(name, printed, n=3, cutoff=0.0))
        return f"no kernel '{name}' for {wanted}{on} on {gpu}; nearest: {near}"
    return f"{wanted} in {operator.layout} on {gpu}{on}: no kernel of its type computes it"
