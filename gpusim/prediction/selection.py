"""Kernels of the catalogues that can run a GEMM on a GPU, and the error where none can."""

from __future__ import annotations

import difflib
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.errors import InputError
from gpusim.hardware.gpu import Gpu, Unit
from gpusim.library.catalogue import Kernel
from gpusim.lowering.columns import Array
from gpusim.lowering.gemm.problem import extents_of, problem_of
from gpusim.numbers.formats import SPARSITY_SINCE
from gpusim.system import System
from gpusim.units import ceil_div
from gpusim.workloads.gemm import Gemm

CORES: dict[Unit, str] = {"cuda": "CUDA cores", "tensor": "Tensor Cores"}


class UnsupportedError(InputError):
    """The GPU cannot run this workload (data type, sparsity, pinned kernel); the text names what it can."""


def usable_kernels(system: System, gemm: Gemm, name: str | None = None, unit: Unit | None = None) -> tuple[Kernel, ...]:
    """Kernels that a library would consider for a GEMM.

    Args:
        name: pins the kernel of this printed name.
        unit: only kernels on CUDA cores, or on Tensor Cores.

    Raises:
        UnsupportedError: there are none; the text says what the GPU has.
    """
    library = system.library
    steps, limits = _size_limits(CacheKey(library.kernels))
    # Of its sizes, kernels look at what they are multiples of and whether there is a batch, those for vectors and few
    # columns at the columns.
    sizes = (math.gcd(size, steps) for size in (gemm.m, gemm.n, gemm.k))
    types = (gemm.dtype, gemm.b_dtype, gemm.group, gemm.accumulate, gemm.sparsity, gemm.blas_call)
    by_rule = (gemm.scales, gemm.m, gemm.n, gemm.k) if gemm.scales or gemm.b_dtype else ()
    alike = (*types, gemm.batch > 1, bool(gemm.counts), *sizes, bisect_left(limits, problem_of(gemm).n), *by_rule)
    found = _usable_kernels(CacheKey(system, (id(system.gpu), id(library.kernels))), CacheKey(gemm, alike), name, unit)
    if isinstance(found, _Refused):
        raise UnsupportedError(found.reason(gemm))
    return found


def size_classes(system: System, gemm: Gemm, sizes: Mapping[str, Array]) -> list[Array]:
    """Rows of GEMMs that differ from one in m, n, k and batch alone, each with those of the same usable kernels.

    Args:
        gemm: without scales, and with a single type of operands.
        sizes: of each GEMM, by the name of the size.
    """
    if not len(sizes["m"]):
        return []
    steps, limits = _size_limits(CacheKey(system.library.kernels))
    m, n, k, batch = (sizes[name] for name in ("m", "n", "k", "batch"))
    # A single row or column changes the call, and with it which of them is looked up.
    calls = 2 * (m == 1) + (n == 1)
    columns = np.empty_like(m)
    for call in np.unique(calls).tolist():
        rows = calls == call
        one = replace(gemm, m=1 if call & 2 else 2, n=1 if call & 1 else 2)
        columns[rows] = sizes[extents_of(one)[1]][rows]
    keys = (calls, batch > 1, *(np.gcd(size, steps) for size in (m, n, k)), np.searchsorted(limits, columns))
    _, classes = np.unique(np.array(keys), axis=1, return_inverse=True)
    order = np.argsort(classes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(classes))[:-1])


@lru_cache(maxsize=16)
def _size_limits(kernels: CacheKey[tuple[Kernel, ...]]) -> tuple[int, list[int]]:
    """What sizes are looked at for: a number that all that they must be multiples of divide, and limits of columns."""
    families = [kernel.family for kernel in kernels.record]
    multiples = {unit for family in families for unit in (*family.multiple_of, *family.alignments)}
    most = {family.max_n for family in families if family.max_n is not None}
    return math.lcm(*multiples), sorted(most | {family.min_n - 1 for family in families})


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why none of the kernels runs GEMMs of a kind."""

    what: str
    kernels: Sequence[Kernel] = ()
    """Those that refuse each of them for its sizes; none where their kind alone is refused."""

    def reason(self, gemm: Gemm) -> str:
        """Why none runs one of these GEMMs."""
        if not self.kernels:
            return self.what
        asked = _asked(gemm)
        reasons = dict.fromkeys(reason for kernel in self.kernels for reason in _refusals(asked, kernel))
        return f"{self.what}: {'; '.join(reasons)}"


@lru_cache(maxsize=4096)
def _usable_kernels(
    of_system: CacheKey[System], of_gemm: CacheKey[Gemm], name: str | None, unit: Unit | None
) -> tuple[Kernel, ...] | _Refused:
    system, gemm = of_system.record, of_gemm.record
    gpu = system.gpu
    types = (gemm.dtype, gemm.b_dtype, gemm.group, gemm.accumulate, gemm.sparsity, gemm.scales)
    multiplying = _multiplying(of_system, CacheKey(gemm, types), unit)
    if name is None:
        multiplying = [kernel for kernel in multiplying if _serves(kernel, gemm)]
    if not multiplying:
        return _Refused(_unsupported(system, gemm, unit))
    asked = _asked(gemm)
    accepting = [kernel for kernel in multiplying if not _refusals(asked, kernel)]
    if name is not None:
        return _pinned(name, gpu, gemm, multiplying, accepting)
    if not accepting:
        return _all_refuse(gpu, gemm, multiplying)
    found = considered(accepting, multiplying)
    if gemm.scales:
        return found[:1]
    batched = tuple(kernel for kernel in found if gemm.batch > 1 and kernel.family.takes_batches)
    return batched or found


@lru_cache(maxsize=256)
def _multiplying(of_system: CacheKey[System], of_types: CacheKey[Gemm], unit: Unit | None) -> Sequence[Kernel]:
    """Kernels that multiply the types of a GEMM."""
    gpu, known = of_system.record.gpu, of_system.record.library.kernels
    _check_instructions(gpu, known)
    return [kernel for kernel in known if multiplies(gpu, of_types.record, kernel, unit)]


def _serves(kernel: Kernel, gemm: Gemm) -> bool:
    """Whether a library takes a kernel for so many columns, and for a batch."""
    columns = problem_of(gemm).n  # of all groups
    most = kernel.family.max_n or columns
    if kernel.takes and not any(one.hold(gemm) for one in kernel.takes):
        return False
    return kernel.family.min_n <= columns <= most and (kernel.batches or (gemm.batch == 1 and not gemm.counts))


def _pinned(
    name: str, gpu: Gpu, gemm: Gemm, multiplying: Sequence[Kernel], accepting: Sequence[Kernel]
) -> tuple[Kernel] | _Refused:
    """The kernel of a printed name, if it can run the GEMM."""
    layout = gemm.blas_call.layout
    named = [kernel for kernel in multiplying if kernel.printed_name(layout, gemm.dtype) == name]
    if named and not set(named) & set(accepting):
        return _Refused(name, named[:1])
    if not accepting:
        return _all_refuse(gpu, gemm, multiplying)
    printed = {kernel.printed_name(layout, gemm.dtype): kernel for kernel in accepting}
    if name not in printed:
        near = _nearest(name, tuple(printed))
        return _Refused(f"no kernel '{name}' for {gemm.dtype.value} on {gpu.name}; nearest: {near}")
    return (printed[name],)


@lru_cache(maxsize=256)
def _nearest(name: str, printed: tuple[str, ...]) -> str:
    """Names near one that is none of them: forms of convolutions ask for the kernels of others again and again."""
    return ", ".join(difflib.get_close_matches(name, printed, n=3, cutoff=0.0))


def _all_refuse(gpu: Gpu, gemm: Gemm, multiplying: Sequence[Kernel]) -> _Refused:
    """None of the kernels that multiply these types runs the GEMM."""
    for_matrices = [kernel for kernel in multiplying if kernel.family.max_n is None]
    alike: dict[object, Kernel] = {}
    for kernel in for_matrices or multiplying:
        alike.setdefault((kernel.layouts, kernel.family.multiple_of, kernel.alignment), kernel)
    return _Refused(f"{_wanted(gemm)} on {gpu.name}", tuple(alike.values()))


def _check_instructions(gpu: Gpu, kernels: Iterable[Kernel]) -> None:
    """Refuse catalogues that name instructions which the GPU does not have, or which suit no such main loop."""
    for kernel in kernels:
        family, loop = kernel.family, kernel.family.main_loop
        name = family.instruction
        if name not in gpu.instructions:
            near = ", ".join(difflib.get_close_matches(name, gpu.instructions, n=3, cutoff=0.0))
            raise UnsupportedError(f"{gpu.name} has no instruction '{name}' for {family.name}; nearest: {near}")
        unit = gpu.instructions[name].unit
        if unit != loop.unit:
            raise UnsupportedError(
                f"{family.name}: main_loop.kind {loop.kind} multiplies on {CORES[loop.unit]}, but {name} of {gpu.name} "
                f"runs on {CORES[unit]}; correct main_loop or instruction"
            )


def _wanted(gemm: Gemm) -> str:
    scaled = f" with scales by {gemm.scales}" if gemm.scales else ""
    group = f" in groups of {gemm.group}" if gemm.group else ""
    weights = f" by {gemm.b_dtype.value}{group}" if gemm.b_dtype else ""
    return f"{gemm.dtype.value}{weights}{'' if gemm.sparsity == 'dense' else f' {gemm.sparsity}'}{scaled}"


def _unsupported(system: System, gemm: Gemm, unit: Unit | None) -> str:
    """What the GPU cannot do, since when GPUs can, and what this one has."""
    since = gemm.dtype.format.tensor_cores
    if since and gemm.sparsity != "dense":
        since = max(since, SPARSITY_SINCE, key=lambda one: one.capability)
    gpu, known = system.gpu, system.library.kernels
    vectors = max((kernel.family.max_n or 0 for kernel in known if multiplies(gpu, gemm, kernel, unit)), default=0)
    if vectors:
        name = "m" if problem_of(gemm).swapped else "n"
        reason = f"the kernel catalogues of this GPU hold only kernels for {name} up to {vectors}"
    elif since and unit != "cuda" and gpu.capability < since.capability:
        reason = f"Tensor Cores have it since compute capability {since}"
    else:
        reason = "the kernel catalogues of this GPU hold none"
    on = f" on {CORES[unit]}" if unit else ""
    return (
        f"{gpu.name} (compute capability {gpu.compute_capability}) has no {_wanted(gemm)} multiplication with "
        f"{gemm.accumulate} accumulation{on}: {reason}; it has {_paths(system)}"
    )


def _paths(system: System) -> str:
    """What a GPU multiplies, unit by unit; accumulators are named where they are not the usual one."""
    found: dict[Unit, dict[str, dict[str, None]]] = {"tensor": {}, "cuda": {}}
    for kernel in system.library.kernels:
        instruction = system.gpu.instructions[kernel.family.instruction]
        for dtype in kernel.family.inputs if kernel.family.max_n is None else ():
            name = dtype.value + ("" if instruction.sparsity == "dense" else f" {instruction.sparsity}")
            usual = instruction.accumulate == dtype.default_accumulate
            found[instruction.unit].setdefault(name, {})["" if usual else instruction.accumulate] = None
    lists = {
        unit: ", ".join(_with_accumulators(name, those[name]) for name in sorted(those))
        for unit, those in found.items()
    }
    return " and ".join(f"{names} on {CORES[unit]}" for unit, names in lists.items() if names)


def _with_accumulators(name: str, accumulators: Collection[str]) -> str:
    """``fp16``, or ``fp16 (also in fp16)`` where it accumulates in another type than the usual one too.

    >>> _with_accumulators("fp16", ["", "fp16"]), _with_accumulators("fp16", ["fp16"])
    ('fp16 (also in fp16)', 'fp16 (in fp16)')
    """
    others = " and ".join(sorted(one for one in accumulators if one))
    if not others:
        return name
    return f"{name} ({'also ' if '' in accumulators else ''}in {others})"


def multiplies(gpu: Gpu, gemm: Gemm, kernel: Kernel, unit: Unit | None = None) -> bool:
    """A kernel multiplies the workload's data type, accumulator and sparsity (on a unit, where one is named)."""
    instruction = gpu.instructions[kernel.family.instruction]
    wanted = gemm.sparsity, gemm.accumulate, unit or instruction.unit
    family = kernel.family
    if gemm.scales not in (family.scales or ("",)) or gemm.b_dtype not in (family.weights or (None,)):
        return False
    if gemm.group not in (family.groups or (None,)):
        return False
    return gemm.dtype in kernel.family.inputs and wanted == (
        instruction.sparsity,
        instruction.accumulate,
        instruction.unit,
    )


class _Asked(NamedTuple):
    """What kernels refuse a GEMM for."""

    layout: str
    sizes: tuple[tuple[str, int], ...]
    """Names and values of m, n and k of the kernel."""
    leading: dict[str, int]
    """Leading dimensions by their names."""


def _asked(gemm: Gemm) -> _Asked:
    problem = problem_of(gemm)
    rows, columns = ("n", "m") if problem.swapped else ("m", "n")
    leading = {name: getattr(gemm, name) for name in gemm.leading_dimensions}
    return _Asked(gemm.blas_call.layout, ((rows, problem.m), (columns, problem.n), ("k", problem.k)), leading)


def refusals(gemm: Gemm, kernel: Kernel) -> list[str]:
    """Why a library would not run a workload on a kernel that multiplies its type: layout, sizes or alignment."""
    return _refusals(_asked(gemm), kernel)


def _refusals(asked: _Asked, kernel: Kernel) -> list[str]:
    layout, sizes, leading = asked
    found = []
    if layout not in kernel.layouts:
        found.append(f"its kernels read layout {' or '.join(kernel.layouts)}, not {layout}")
    multiples = zip(sizes, kernel.family.multiple_of, strict=True)
    found += [_not_a_multiple(name, size, unit) for (name, size), unit in multiples if size % unit]
    alignment = kernel.alignment or 1
    found += [_not_a_multiple(name, size, alignment) for name, size in leading.items() if size % alignment]
    return found


def _not_a_multiple(name: str, size: int, unit: int) -> str:
    return f"{name} must be a multiple of {unit}, got {size}; pad it to {ceil_div(size, unit) * unit}"


def considered(kernels: Sequence[Kernel], multiplying: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """The kernels that a library considers, of those that can run a workload.

    Of kernels that are compiled for an alignment it takes those with the widest that the operands have. A fallback is
    considered where that is less than others need, or nothing else serves.

    Args:
        multiplying: all that multiply operands of these types, whatever their layout, sizes and alignment.
    """
    widest, full = (max((kernel.alignment or 0 for kernel in those), default=0) for those in (kernels, multiplying))
    found = [kernel for kernel in kernels if kernel.alignment in (None, widest)]
    if widest < full:
        return tuple(found)
    return tuple([kernel for kernel in found if not kernel.family.fallback] or found)
