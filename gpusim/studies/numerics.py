"""Numerical study of a GEMM: the selected kernel executed on a sample of C, with operands drawn or from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.api import case, load_system
from gpusim.files.inputs import regular_size_bytes
from gpusim.numerics.rounding import Tf32Rounding
from gpusim.numerics.study import Distribution, OperandError, Scaling, operands, parse_distribution, study
from gpusim.prediction.plans import ranked_gemms
from gpusim.progress import Progress, no_progress
from gpusim.report.numerics_tables import numerics_object
from gpusim.workloads.gemm import Gemm

SAMPLE = 1024
"""Rows and columns of C that are computed: a million elements, seconds of one core at k = 10240."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The operands of a numerical study, and how much of C is computed."""

    a: Path | None = None
    """``.npy`` file of A, m x k; drawn from ``distribution`` if None."""
    b: Path | None = None
    """``.npy`` file of B, k x n; drawn from ``distribution_b`` if None."""
    distribution: str = "normal"
    """``NAME`` or ``NAME:X,Y``, as :func:`gpusim.numerics.study.parse_distribution` reads it."""
    distribution_b: str = ""
    """Distribution of B; that of A if empty."""
    scaling: Scaling | Literal["auto"] = "auto"
    """``auto`` is ``amax`` for integers, ``none`` for others."""
    tf32_rounding: Tf32Rounding = "nearest"
    sample_rows: int = SAMPLE
    """0: all."""
    sample_columns: int = SAMPLE
    seed: int = 0


def execute_product(
    arch: str,
    sizes: Mapping[str, int | None],
    of_gpu: Mapping[str, Any],
    arguments: Mapping[str, Any],
    sample: Sample,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Errors of a GEMM against float64, with the kernel and the operands that it was executed on.

    Args:
        sizes: ``m``, ``n`` and ``k``; those of the given matrices where None.
        of_gpu: Arguments of :func:`gpusim.load_system`.
        arguments: Further arguments of :func:`gpusim.predict`.

    Raises:
        InputError: The operands do not fit each other, the data type or the memory, or an argument is refused.
    """
    drawn = _distributions(sample)
    given = [_matrix_of(path) if path else None for path in (sample.a, sample.b)]
    a, b = zip((sample.a, sample.b), given, strict=True)
    k = _extent("k", sizes["k"], ((*a, 1), (*b, 0)))
    m, n = _extent("m", sizes["m"], ((*a, 0),)), _extent("n", sizes["n"], ((*b, 1),))
    one = case(load_system(arch, **of_gpu), m=m, n=n, k=k, **arguments)
    gemm = one.workload.operator
    assert isinstance(gemm, Gemm)  # sizes with a k
    planned = ranked_gemms(one.system, gemm, one.workload.options)[0].plan
    scaling = sample.scaling
    if scaling == "auto":
        scaling = "amax" if gemm.dtype.format.is_integer else "none"
    try:
        matrices = operands(gemm, given, drawn, sample.seed, sample.sample_rows or m, sample.sample_columns or n)
        found = study(planned, gemm, matrices, scaling=scaling, tf32_rounding=sample.tf32_rounding, progress=progress)
    except MemoryError:
        raise OperandError(
            f"{m} x {n} x {k} does not fit into memory; lower --sample-rows and --sample-columns"
        ) from None
    sources = [str(path) if path else str(law) for path, law in zip((sample.a, sample.b), drawn, strict=True)]
    return numerics_object(one.system, planned, gemm, found, sources, sample.seed)


def _distributions(sample: Sample) -> list[Distribution]:
    """Distributions of A and B."""
    try:
        return [
            parse_distribution(text) for text in (sample.distribution, sample.distribution_b or sample.distribution)
        ]
    except ValueError as error:
        raise OperandError(f"--distribution: {error}") from None


def _extent(name: str, asked: int | None, matrices: Sequence[tuple[Path | None, NDArray[Any] | None, int]]) -> int:
    """A size as given, or from the matrices that have it along an axis; all must agree."""
    found = [(str(path), int(matrix.shape[axis])) for path, matrix, axis in matrices if matrix is not None]
    if asked is not None:
        found.insert(0, (f"-{name}", asked))
    if not found:
        raise OperandError(f"-{name}: missing; give it, or the matrix with --a and --b")
    for source, extent in found[1:]:
        if extent != found[0][1]:
            raise OperandError(f"-{name}: {found[0][0]} says {found[0][1]}, {source} has {extent}; make them agree")
    return found[0][1]


def _matrix_of(path: Path) -> NDArray[Any]:
    """A matrix of finite real numbers from an ``.npy`` file.

    Raises:
        OperandError: the file is missing or has other content.
    """
    try:
        regular_size_bytes(path)
        matrix = np.lib.format.open_memmap(path, mode="r")  # holds what the file does, whatever its header says
    except OSError as error:
        raise OperandError(f"{path}: {error.strerror or error}; write one with numpy.save") from None
    except Exception:  # noqa: BLE001 - numpy evaluates the header; damage ends in any exception
        raise OperandError(f"{path}: no .npy file of numbers; write one with numpy.save") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise OperandError(f"{path}: expected a matrix; got {matrix.ndim} dimensions of {matrix.size} numbers")
    if matrix.dtype.kind not in "fiu":
        raise OperandError(f"{path}: expected real numbers, got {matrix.dtype}; convert them")
    if not np.isfinite(matrix).all():
        raise OperandError(f"{path}: holds numbers that are not finite; remove them")
    return matrix
