"""What a library's heuristic considers, and what it goes by: the estimated time, with the library's bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import get_args

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.library.catalogue import Kernel
from gpusim.library.library import Feature, HeuristicBias, Library
from gpusim.lowering.columns import Array, elementwise
from gpusim.lowering.gemm.kernel_table import KernelTable
from gpusim.lowering.gemm.plan import Choices, GemmPlans
from gpusim.lowering.gemm.problem import Problems, pieces_of
from gpusim.system import System
from gpusim.units import MIB, ceil_div

WEIGHTED = ("simt", "simt_batched", "simt_half", "mma", "mma_unaligned", "xmma", "wgmma")
"""Families of kernels that have weights of features."""
HALF_BITS = 16
FEATURES: tuple[Feature, ...] = get_args(Feature)


def choices_of(system: System, table: KernelTable, problems: Problems) -> Choices:
    """Every kernel of a table for every problem, whole and with the split factors worth a look.

    Libraries split a single GEMM's k, also where there are tiles enough: the last wave is fuller then. A factor that
    leaves the busiest SM as much to do as a smaller one did is not worth the fix-up. Partial sums that the workspace
    does not hold are added up within the kernel, where it can. Some kernels of convolutions split by themselves.
    """
    fixed = system.library.fixed_split_k
    if problems.split_k is not None or fixed is not None:
        problem, kernel = np.divmod(np.arange(len(problems.m) * len(table.kernels)), len(table.kernels))
        given = np.full(problem.shape, fixed if problems.split_k is None else problems.split_k)
        in_kernel = (table.split_modes[kernel] == 0).any(axis=-1)
        return Choices(problem, kernel, given, (given > 1) & ~in_kernel & (problems.split_k is None))
    sms, search, kernels = system.gpu.sm.count, system.library.split_k_search, table[:]
    factors = np.array(search.factors, dtype=int)
    # Axes: problems, kernels, factors
    m, n, k, k_slices = (size[:, np.newaxis] for size in (problems.m, problems.n, problems.k, problems.k_slices))
    m_slices = problems.operands.slices[0][:, np.newaxis]
    batch = problems.batch[:, np.newaxis]
    tiles = (batch * pieces_of(m, m_slices, kernels.tile[0]) * ceil_div(n, kernels.tile[1]))[..., np.newaxis]
    all_steps = pieces_of(k, k_slices, kernels.tile_k)[..., np.newaxis]
    steps = ceil_div(all_steps, factors)
    whole = all_steps * ceil_div(tiles, sms)
    enough = steps >= search.min_steps
    work = np.where(enough, steps * ceil_div(tiles * factors, sms), whole)
    least_before = np.minimum.accumulate(np.concatenate([whole, work], axis=-1), axis=-1)[..., :-1]
    # A batch of GEMMs is not split; the groups of a convolution are.
    splits = (((batch == 1) & (not problems.counts)) | kernels.convolves)[..., np.newaxis]
    worthwhile = enough & (work < least_before) & splits
    # For each factor the ways of adding partial sums, in the order of the kernel's family
    modes = table.split_modes[:, np.newaxis]
    ways = worthwhile[..., np.newaxis] & (modes >= 0)
    either = ((modes == 0).any(axis=-1) & (modes == 1).any(axis=-1))[..., np.newaxis]
    sums_bytes = (batch * m * n)[..., np.newaxis] * factors * problems.partial_bytes
    fits = (sums_bytes < search.workspace_mib * MIB)[..., np.newaxis]
    ways &= ~either | (fits == (modes == 1))
    ways = ways.reshape(*ways.shape[:2], ways.shape[2] * ways.shape[3])
    considered = np.concatenate([np.ones(all_steps.shape, dtype=bool), ways], axis=-1)
    problem, kernel, option = np.nonzero(considered)
    per_factor = table.split_modes.shape[1]
    split_k = np.concatenate([[1], np.repeat(factors, per_factor)])[option]
    reduces = (option > 0) & (table.split_modes[kernel, (option - 1) % per_factor] > 0)
    return Choices(problem, kernel, split_k, reduces)


def tuned_clock_mhz(gpu: Gpu, table: KernelTable) -> float:
    """The SM clock at which a library's choice among some kernels is taken to be tuned [MHz].

    The base clock for kernels on CUDA cores, the boost clock for others. T4, whose base clock is 585 of 1590 MHz, tells
    them apart: DeepBench's FP32 GEMMs err by 8.1 % with it and by 9.4 with the boost clock, FP16 ones by 8.5 and 6.1.
    """
    on_cuda_cores = all(kernel.family.main_loop.unit == "cuda" for kernel in table.kernels)
    return gpu.clock.base_mhz if on_cuda_cores else gpu.clock.boost_mhz


def features_of(plans: GemmPlans, names: Collection[Feature] = FEATURES) -> dict[Feature, Array]:
    """What a library could know of each choice, by name; all but flags are logarithms.

    Tiles are compared with one of 64 x 64 x 32, so that weights of their size leave GEMV kernels, which have none, as
    they are. Groups of a product count as a batch of their mean size.
    """
    choices, main, problems = plans.choices, plans.main, plans.problems
    # Columns of the kernels of the table, and of the problems: what they decide alone is computed once for each.
    kernels, groups = plans.table[:], max(1, len(problems.counts))
    tile_m, tile_n = kernels.tile
    m, n = problems.m.astype(float), problems.n.astype(float) / groups

    def of_kernels(column: Array) -> Array:
        return column[choices.kernel]

    def of_problems(column: Array) -> Array:
        return column[choices.problem]

    def tall() -> Array:
        return of_kernels(elementwise(math.log, tile_m / tile_n))

    def intensity() -> Array:
        rows, columns = (np.minimum(of_kernels(tile), of_problems(size)) for tile, size in ((tile_m, m), (tile_n, n)))
        return elementwise(math.log, rows * columns / (rows + columns))

    def padding() -> Array:
        tiles = main.grid.x * of_kernels(tile_m) * main.grid.y * of_kernels(tile_n)
        if problems.counts:  # of more groups of fewer tiles
            tiles = tiles * main.grid.batch / groups
        return elementwise(math.log, tiles / of_problems(m * n))

    def waves() -> Array:
        slots = plans.table.gpu.sm.count * of_kernels(kernels.occupancy.ctas)
        return elementwise(math.log, np.maximum(1.0, main.ctas / slots))

    known: dict[Feature, Callable[[], Array]] = {
        "tile_intensity": intensity,
        "tile_area": lambda: of_kernels(elementwise(math.log, tile_m * tile_n / (64 * 64))),
        "tall_tile": tall,
        "tile_along_result": lambda: tall() * of_problems(np.clip(elementwise(math.log, m / n), -1.0, 1.0)),
        "padding": padding,
        "waves": waves,
        "split_k": lambda: elementwise(math.log, choices.split_k),
        "sliced_k": lambda: of_kernels((kernels.warps_k > 1).astype(float)),
        "step_k": lambda: of_kernels(elementwise(math.log, kernels.tile_k / 32)),
    }
    return {name: known[name]() for name in names}


def charges_of(plans: GemmPlans) -> dict[str, Array]:
    """How often each value of a library's bias counts as a penalty, bonuses negative, by its key path."""
    family, features = _families_of(plans), features_of(plans)
    charges = {
        f"{name}.{feature}": np.where(family == number, column, 0.0)
        for number, name in enumerate(WEIGHTED)
        for feature, column in features.items()
    }
    return {**charges, "gemv_kernel_bonus": -(family == len(WEIGHTED)).astype(float)}


def scores_of(library: Library, plans: GemmPlans, estimates_us: Array) -> Array:
    """What a library goes by: the logarithm of the estimated time, with its bias."""
    family, weights = _families_of(plans), _weights_of(CacheKey(library.heuristic_bias))
    constant = _constants_of(library.heuristic_bias)[family]
    return biased(plans, estimates_us, constant, {name: weight[family] for name, weight in weights.items()})


def bias_of_kernels(bias: HeuristicBias, table: KernelTable) -> tuple[Array, Array]:
    """What scores of each kernel begin with, and its weight of each of :data:`FEATURES`: in single, in batched GEMMs.

    Each is a matrix with a column for each kernel.
    """
    weights, constant = _weights_of(CacheKey(bias)), _constants_of(bias)
    of_families = np.array([constant, *(weights.get(name, np.zeros(constant.shape)) for name in FEATURES)])
    single, batched = _families(CacheKey(table))
    return of_families[:, single], of_families[:, batched]


def biased(plans: GemmPlans, estimates_us: Array, constant: Array, weights: Mapping[Feature, Array]) -> Array:
    """The logarithm of an estimated time, with the bias of each row.

    Args:
        constant: what is added, and ``weights`` of features, of each row.
    """
    features, charges = features_of(plans, weights), constant
    for feature, weight in weights.items():
        charges = charges + weight * features[feature]
    return np.asanyarray(elementwise(math.log, estimates_us) + charges)


def _constants_of(bias: HeuristicBias) -> Array:
    """What each family's scores begin with: the bonus of GEMV kernels, and nothing of others."""
    return np.array([0.0] * len(WEIGHTED) + [-bias.gemv_kernel_bonus, 0.0])


def _families_of(plans: GemmPlans) -> Array:
    """The number of each choice's family among :data:`WEIGHTED`, one past them for GEMV kernels, two for the rest."""
    choices = plans.choices
    single, batched = _families(CacheKey(plans.table))
    is_single = (plans.chosen_for.batch == 1) & (not plans.chosen_for.counts)
    return np.where(is_single, single[choices.kernel], batched[choices.kernel])


@lru_cache(maxsize=256)
def _families(table: CacheKey[KernelTable]) -> tuple[Array, Array]:
    """Number of each kernel's family in single and in batched GEMMs."""
    pieces = table.record[:].loop.vector_bytes > 0
    loops = [_loop(kernel) for kernel in table.record.kernels]
    kinds = [f"{kind}_unaligned" if kind == "mma" and part else kind for kind, part in zip(loops, pieces, strict=True)]
    numbers = {kind: number for number, kind in enumerate((*WEIGHTED, "direct"))}
    single = [numbers.get(kind, len(numbers)) for kind in kinds]
    batched = [numbers.get(f"{kind}_batched", number) for kind, number in zip(kinds, single, strict=True)]
    return np.array(single, dtype=int), np.array(batched, dtype=int)


def _loop(kernel: Kernel) -> str:
    """The family of a kernel, whatever it multiplies."""
    kind = kernel.family.main_loop.kind
    if kind == "direct" and kernel.family.min_n > 1:
        kind = "simt"  # for a few columns, which sgemm multiplies as well
    half = kind == "simt" and all(one.bits == HALF_BITS for one in kernel.family.inputs)
    return kernel.family.heuristic_family or ("simt_half" if half else kind)


@lru_cache(maxsize=256)
def _weights_of(bias: CacheKey[HeuristicBias]) -> dict[Feature, Array]:
    """The weight of a feature in each family, of features that have one; the two kinds without any come last."""
    families = [getattr(bias.record, family) for family in WEIGHTED]
    weights = {name: np.array([*(of_family.get(name, 0.0) for of_family in families), 0.0, 0.0]) for name in FEATURES}
    return {name: of_families for name, of_families in weights.items() if of_families.any()}
