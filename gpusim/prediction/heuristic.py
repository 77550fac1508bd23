"""What a library's heuristic considers, and what it goes by: the estimated time, with the library's bias."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from gpusim.keyed import Keyed
from gpusim.library.library import HeuristicBias, Library
from gpusim.lowering.columns import Array, elementwise
from gpusim.lowering.gemm.kernel_table import KernelTable
from gpusim.lowering.gemm.plan import Choices, GemmPlans
from gpusim.lowering.gemm.problem import Problems
from gpusim.system import System
from gpusim.units import ceil_div

VECTOR_ROWS = 32
"""Rows of the matrix tile that a kernel for vectors is compared with: the smallest of most catalogues."""


def choices_of(system: System, table: KernelTable, problems: Problems) -> Choices:
    """Every kernel of a table for every problem, whole and with the split factors worth a look.

    Libraries split a single product's k, also where there are tiles enough: the last wave is fuller then. A factor that
    leaves the busiest SM as much to do as a smaller one did is not worth the fix-up.
    """
    sms, search, kernels = system.gpu.sm.count, system.library.split_k_search, table[:]
    factors = np.array(search.factors, dtype=int)
    # Axes: problems, kernels, factors
    m, n, k = (size[:, np.newaxis] for size in (problems.m, problems.n, problems.k))
    tiles = (ceil_div(m, kernels.tile[0]) * ceil_div(n, kernels.tile[1]))[..., np.newaxis]
    all_steps = ceil_div(k, kernels.tile_k)[..., np.newaxis]
    steps = ceil_div(all_steps, factors)
    whole = all_steps * ceil_div(tiles, sms)
    enough = steps >= search.min_steps
    work = np.where(enough, steps * ceil_div(tiles * factors, sms), whole)
    least_before = np.minimum.accumulate(np.concatenate([whole, work], axis=-1), axis=-1)[..., :-1]
    worthwhile = enough & (work < least_before) & (problems.batch == 1)[:, np.newaxis, np.newaxis]
    # For each factor the ways of adding partial sums, in the order of the kernel's family
    ways = worthwhile[..., np.newaxis] & (table.split_modes >= 0)[:, np.newaxis]
    ways = ways.reshape(*ways.shape[:2], ways.shape[2] * ways.shape[3])
    considered = np.concatenate([np.ones(all_steps.shape, dtype=bool), ways], axis=-1)
    problem, kernel, option = np.nonzero(considered)
    modes = table.split_modes.shape[1]
    split_k = np.concatenate([[1], np.repeat(factors, modes)])[option]
    reduces = (option > 0) & (table.split_modes[kernel, (option - 1) % modes] > 0)
    return Choices(problem, kernel, split_k, reduces)


def charges_of(plans: GemmPlans) -> dict[str, Array]:
    """How often each value of :class:`gpusim.library.library.HeuristicBias` counts as a penalty, bonuses negative."""
    choices = plans.choices
    kernels, m, n = plans.table[choices.kernel], plans.problems.m[choices.problem], plans.problems.n[choices.problem]
    for_vectors = kernels.for_vectors
    # Kernels for vectors are credited beyond a matrix kernel that serves them, whatever large tiles are credited.
    rows = np.minimum(np.where(for_vectors, VECTOR_ROWS, kernels.tile[0]), m)
    results = rows * np.where(for_vectors, 1, np.minimum(kernels.tile[1], n))
    return {
        "tile_size_exponent": -elementwise(math.log, results),
        "split_k_exponent": elementwise(math.log, choices.split_k),
        "reduction_kernel_penalty": (choices.reduce & (choices.split_k > 1)).astype(float),
        "gemv_kernel_bonus": -for_vectors.astype(float),
    }


def scores_of(library: Library, plans: GemmPlans, estimates_us: Array) -> Array:
    """What a library goes by: the logarithm of the estimated time, with its bias for the kernel."""
    bias, choices = library.heuristic_bias, plans.choices
    single, batched = _bonuses(Keyed(plans.table), Keyed(bias))
    of_one = plans.problems.batch[choices.problem] == 1
    bonus = np.where(of_one, single[choices.kernel], batched[choices.kernel])
    charges = 0.0
    for name, times in charges_of(plans).items():
        charges = charges + times * getattr(bias, name)
    return np.asarray(elementwise(math.log, estimates_us) + charges - bonus)


@lru_cache(maxsize=256)
def _bonuses(table: Keyed[KernelTable], bias: Keyed[HeuristicBias]) -> tuple[Array, Array]:
    """Bonus of each kernel in single and in batched products."""
    labels = [kernel.label for kernel in table.record.kernels]
    single, batched = (
        np.array([bonus.get(label, 0.0) for label in labels], dtype=float)
        for bonus in (bias.record.single, bias.record.batched)
    )
    return single, batched
