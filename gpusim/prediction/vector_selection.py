"""The kernel that a framework launches for an operator that multiplies no matrices, and the error where none can."""

from __future__ import annotations

import difflib
from functools import lru_cache

from gpusim.cache_key import CacheKey
from gpusim.library.vector import VectorKernel
from gpusim.prediction.selection import UnsupportedError
from gpusim.system import System
from gpusim.workloads.vector import VectorOperator


def vector_kernel(
    system: System,
    operator: VectorOperator,
    name: str | None = None,
    version: str = "",
    *,
    compiled: bool | None = None,
) -> VectorKernel:
    """The kernel that a framework launches for an operator: the first of the catalogues that can run it.

    Args:
        name: pins the kernel of this printed name: that of the version, or else of another.
        version: of the framework; empty for the newest that is known.
        compiled: whether a compiler made it, where a framework has kernels of both kinds; None: either.

    Raises:
        UnsupportedError: there is none; the text says why.
    """
    kernels = CacheKey(system.library.vector_kernels)
    return _selected(kernels, system.gpu.name, operator, name, version, compiled)


@lru_cache(maxsize=4096)
def _selected(
    kernels: CacheKey[tuple[VectorKernel, ...]],
    gpu: str,
    operator: VectorOperator,
    name: str | None,
    version: str,
    compiled: bool | None,
) -> VectorKernel:
    """The kernel, which is that of each variant of a GPU."""
    computing = [one for one in kernels.record if one.computes(operator)]
    if compiled is not None:
        computing = [one for one in computing if one.is_compiled == compiled]
    known = [one for one in computing if operator.dtype in one.dtypes]
    if not known:
        types = dict.fromkeys(dtype.value for one in computing for dtype in one.dtypes)
        has = f"they take {', '.join(types)}" if types else "they have none"
        raise UnsupportedError(
            f"{gpu}: no kernel for {operator.op} of {operator.dtype.value} in its kernel catalogues; {has}"
        )
    printed = list(dict.fromkeys(one.printed_name(operator) for one in known))
    if name is not None and name not in printed:
        near = ", ".join(difflib.get_close_matches(name, printed, n=3, cutoff=0.0))
        raise UnsupportedError(f"no kernel '{name}' for {operator.op} on {gpu}; nearest: {near}")
    named = [one for one in known if name is None or one.printed_name(operator) == name]
    named = [one for one in named if one.is_of(version)] or named
    refusals = [one.refusal(operator) for one in named]
    able = [one for one, refusal in zip(named, refusals, strict=True) if not refusal]
    if not able:
        reasons = "; ".join(
            f"{one.printed_name(operator)}: {refusal}" for one, refusal in zip(named, refusals, strict=True)
        )
        raise UnsupportedError(f"{operator.op} on {gpu}: {reasons}")
    return able[0]
