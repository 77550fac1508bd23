"""Workloads on kernels, in closed form: grids, steps, occupancy, and what a step moves and computes.

Tiles, names and grids are the library's (see :mod:`gpusim.lowering.gemm.problem`). All choices of a kernel are planned
at once, as columns; one of them becomes a :class:`GemmPlan` when it is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpusim.arrays import largest
from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid
from gpusim.library.catalogue import Kernel, SplitKMode, SplitKReduction
from gpusim.lowering.columns import Array, Columns, share
from gpusim.lowering.gemm.epilogue import c_passes, epilogue_of, store_passes, write_costs
from gpusim.lowering.gemm.gathered import ImplicitGemm
from gpusim.lowering.gemm.k_step import k_steps_of
from gpusim.lowering.gemm.kernel_table import KernelTable, resources_of, table_of
from gpusim.lowering.gemm.problem import GemmOperator, Problems, Tiles, pieces_of, problem_of
from gpusim.lowering.gemm.schedule import KStep, Schedule
from gpusim.lowering.gemm.split_k import partners, partners_at_once, reductions
from gpusim.lowering.locality import Panels, Traffic, survival_fraction, traffic, wave_panels
from gpusim.lowering.pages import effective_l2_bytes, outlives_a_step, read_costs
from gpusim.lowering.totals import Totals
from gpusim.units import ceil_div
from gpusim.workloads.convolution import Convolution


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """A GEMM on one kernel: its launches in order (a split-K reduction follows the GEMM)."""

    operator: GemmOperator
    kernel: Kernel
    mode: SplitKMode
    schedules: tuple[Schedule, ...]

    @property
    def main(self) -> Schedule:
        return self.schedules[0]

    @property
    def name(self) -> str:
        """The kernel's, as a profiler shows it."""
        return self.main.name

    @property
    def split_k(self) -> int:
        """CTAs that share the k of a tile."""
        return self.main.grid.splits

    @property
    def grid(self) -> Grid:
        return self.main.grid

    @property
    def memsets(self) -> int:
        """Before its launches."""
        return self.main.kernel.counts_splits & (self.mode == "in_kernel") & (self.split_k > 1)

    @property
    def instruction(self) -> Instruction:
        """Instruction that multiplies."""
        return self.main.kernel.instruction

    @property
    def useful_fraction(self) -> float:
        """Multiply-adds of the GEMM over those that are executed; the rest pads tiles."""
        return self.operator.flops / 2 / self.main.fma

    @property
    def _fma_on_data(self) -> float:
        """Multiply-adds of the GEMM, those of pixels beyond an image left out: these are zeros.

        CTAs that add to the pixels that a tap reaches have a GEMM for each of the others too.
        """
        match self.operator:
            case Convolution() as convolution:
                return convolution.multiply_adds
            case ImplicitGemm(convolution=convolution, atomic_scatter=False):
                return convolution.multiply_adds
        return self.operator.flops / 2

    @property
    def totals(self) -> tuple[Totals, ...]:
        """Bytes and instructions of each launch."""
        fma = self._fma_on_data
        padding = largest(0.0, self.main.fma - fma)
        return tuple(
            Totals(
                ctas=one.ctas,
                occupancy=one.kernel.occupancy,
                warp_iterations=one.warps * one.steps,
                traffic=one.traffic,
                l2_bytes=one.l2_bytes,
                shared_bytes=one.shared_bytes,
                shared_port_bytes=one.shared_port_bytes,
                multiply_adds=((self.instruction, fma),) if one is self.main else (),
                other_instructions=one.other_instructions,
                padding=((self.instruction, padding),) if one is self.main else (),
            )
            for one in self.schedules
        )


@dataclass(frozen=True, slots=True)
class Choices:
    """Which kernel runs which problem, and how, as columns."""

    problem: Array
    """Number of the problem."""
    kernel: Array
    """Number of the kernel in its table."""
    split_k: Array
    """CTAs that share the k range of a tile."""
    reduce: Array
    """Their partial sums are added by a second kernel, rather than within the kernel."""

    def __getitem__(self, rows: Array) -> Choices:
        return Choices(self.problem[rows], self.kernel[rows], self.split_k[rows], self.reduce[rows])


class AroundGemm:
    """A plan with launches around a GEMM, whose name and figures are the plan's."""

    __slots__ = ()
    gemm: GemmPlan

    @property
    def name(self) -> str:
        """The GEMM's kernel, as a profiler shows it."""
        return self.gemm.name

    @property
    def split_k(self) -> int:
        return self.gemm.split_k

    @property
    def grid(self) -> Grid:
        return self.gemm.grid

    @property
    def instruction(self) -> Instruction:
        """Instruction that multiplies."""
        return self.gemm.instruction


@dataclass(frozen=True, slots=True)
class Reductions:
    """The second kernels of some rows, which add up their partial sums: rows alike in problem and split share one."""

    rows: Array
    places: Array
    """Place of each row's kernel in ``columns``."""
    columns: Columns[Schedule]

    @classmethod
    def of(cls, gpu: Gpu, kernel: SplitKReduction, problems: Problems, choices: Choices, rows: Array) -> Reductions:
        """The launches of a kernel.

        Args:
            choices: those of ``rows``.
        """
        most = choices.split_k.max() + 1
        pairs, places = np.unique(choices.problem * most + choices.split_k, return_inverse=True)
        problem, split_k = np.divmod(pairs, most)
        return cls(rows, places, reductions(gpu, kernel, problems[problem], split_k))


def _place(those: list[SplitKReduction | None], kernel: SplitKReduction | None) -> int:
    """The place of a kernel among others, the last where it is new."""
    place = next((place for place, one in enumerate(those) if one is kernel), len(those))
    if place == len(those):
        those.append(kernel)
    return place


@dataclass(eq=False)
class GemmPlans:
    """Plans of workloads that differ in nothing but their sizes, a row for each choice; they are made on request."""

    table: KernelTable
    problems: Problems
    choices: Choices
    warm: bool
    """Operands are in L2 as far as they fit."""
    edges: Array | None = None
    """Whether the tile is the last along x, and along y; None for the average tile."""
    likely: Array | None = None
    """Rows that are likely to be asked for, in ascending order, which are made without the others."""
    make: Callable[[GemmPlans], Columns[Schedule]] | None = None
    """What makes the GEMMs of all rows in place of the formulas."""

    @cached_property
    def chosen_for(self) -> Problems:
        """The problem of each choice."""
        return self.problems[self.choices.problem]

    @cached_property
    def main(self) -> Columns[Schedule]:
        """The GEMM of each row."""
        if self.make:
            return self.make(self)
        return schedules_of(self.table, self.chosen_for, self.choices, warm=self.warm, edges=self.edges)

    @cached_property
    def extents(self) -> tuple[Array, Array, Array]:
        """Sizes of the grids: x, y, z."""
        grid = self.main.grid
        return grid.x, grid.y, grid.splits * grid.batch

    @cached_property
    def _likely(self) -> Columns[Schedule]:
        assert self.likely is not None
        return GemmPlans(self.table, self.problems, self.choices[self.likely], self.warm, make=self.make).main

    def schedules(self, rows: Array) -> tuple[Columns[Schedule], Array]:
        """Columns with the GEMMs of some rows, and the places of these rows there."""
        if self.likely is not None and "main" not in self.__dict__:
            places = self.likely.searchsorted(rows)
            if (self.likely.take(places, mode="clip") == rows).all():
                return self._likely, places
        return self.main, rows

    @cached_property
    def reductions(self) -> tuple[Reductions, ...]:
        """Second kernels.

        Raises:
            ValueError: a choice needs one, and there is none.
        """
        rows = np.flatnonzero(self.choices.reduce & (self.choices.split_k > 1))
        if not len(rows):
            return ()
        kernels: list[SplitKReduction | None] = []
        of_kernels = [_place(kernels, one.reduction) for one in self.table.kernels]
        of_rows = np.array(of_kernels)[self.choices.kernel[rows]]
        found = []
        for place, kernel in enumerate(kernels):
            mine = rows[of_rows == place]
            if len(mine) and kernel is None:
                raise ValueError("no kernel adds up partial sums; split_k with mode 'reduce' needs one")
            if len(mine) and kernel is not None:
                found.append(Reductions.of(self.table.gpu, kernel, self.problems, self.choices[mine], mine))
        return tuple(found)

    def plan(self, operator: GemmOperator, row: int) -> GemmPlan:
        """The plan of a row, which is a choice for ``operator``."""
        return self.plans_of_rows([operator], [row])[0]

    def plans_of_rows(self, operators: Sequence[GemmOperator], rows: Sequence[int]) -> list[GemmPlan]:
        """The plans of some rows, each a choice for one of the operators."""
        chosen = np.array(rows)
        numbers: list[int] = self.choices.kernel[chosen].tolist()
        reduces: list[bool] = self.choices.reduce[chosen].tolist()
        kernels = [self.table.kernels[number] for number in numbers]
        names = [
            kernel.printed_name(problem_of(operator).layout, operator.dtype)
            for operator, kernel in zip(operators, kernels, strict=True)
        ]
        columns, places = self.schedules(chosen)
        main = columns.records(places, name=names, kernel=[self.table.facts[number] for number in numbers])
        launches: list[tuple[Schedule, ...]] = [(one,) for one in main]
        for columns, places_of, places in self.second_kernels(chosen):
            for number, second in zip(places_of.tolist(), columns.records(places), strict=True):
                launches[number] = (main[number], second)
        return [
            GemmPlan(operator, kernel, "reduce" if reduced else "in_kernel", schedules)
            for operator, kernel, reduced, schedules in zip(operators, kernels, reduces, launches, strict=True)
        ]

    def second_kernels(self, chosen: Array) -> Iterator[tuple[Columns[Schedule], Array, Array]]:
        """Second kernels of some rows: columns, numbers among those rows, and their places in the columns."""
        for one in self.reductions:
            places = np.searchsorted(one.rows, chosen)
            numbers = np.flatnonzero(one.rows[np.minimum(places, len(one.rows) - 1)] == chosen)
            if len(numbers):
                yield one.columns, numbers, one.places[places[numbers]]


def plan(
    gpu: Gpu,
    operator: GemmOperator,
    kernel: Kernel,
    split_k: int = 1,
    mode: SplitKMode = "in_kernel",
    warm: bool = False,
) -> GemmPlan:
    """Schedule a workload on one kernel.

    Args:
        split_k: CTAs that share the k range of a tile.
        mode: how partial sums come together.
        warm: operands are in L2 as far as they fit.

    Raises:
        DoesNotFitError: a CTA needs more than an SM has.
    """
    return plans(gpu, [(operator, kernel, split_k, mode)], warm=warm)[0]


def plans(
    gpu: Gpu, chosen: Sequence[tuple[GemmOperator, Kernel, int, SplitKMode]], *, warm: bool = False
) -> list[GemmPlan]:
    """As :func:`plan`, of workloads that differ in nothing but their sizes, each with its kernel, split and mode.

    Raises:
        DoesNotFitError: a CTA of one of the kernels needs more than an SM has.
    """
    operators, kernels, splits, modes = zip(*chosen, strict=True)
    problems = [problem_of(operator) for operator in operators]
    distinct: dict[int, Kernel] = {id(kernel): kernel for kernel in kernels}
    for kernel in distinct.values():
        _ = occupancy(SmLimits.of(gpu), *resources_of(kernel, problems[0]))  # refuses what does not fit
    table = table_of(gpu, tuple(distinct.values()), problems[0])
    numbers = {one: number for number, one in enumerate(distinct)}
    choices = Choices(
        problem=np.arange(len(problems)),
        kernel=np.array([numbers[id(kernel)] for kernel in kernels]),
        split_k=np.array(splits),
        reduce=np.array([mode == "reduce" for mode in modes]),
    )
    made = GemmPlans(table, Problems.of(problems), choices, warm)
    return [made.plan(operator, row) for row, operator in enumerate(operators)]


def tile_schedules(gpu: Gpu, planned: GemmPlan) -> tuple[Schedule, ...]:
    """What the CTAs of a plan's GEMM do within the grid and at its edges; one schedule where all do the same.

    The last along x, along y, and along both follow the others in this order. Tiles of sliced rows have edges
    throughout, and where a cluster ends beyond the result some hold nothing: their average stands for all.
    """
    problem, grid = problem_of(planned.operator), planned.grid
    tile = np.array([planned.kernel.tile_m, planned.kernel.tile_n])
    if (
        planned.main.kernel.whole_clusters
        or problem.counts
        or problem.a.slices > 1
        or not (np.array([problem.m, problem.n]) % tile).any()
    ):
        return (planned.main,)
    edges = np.array([[False, True, False, True], [False, False, True, True]]) | (np.array([[grid.x], [grid.y]]) == 1)
    table = table_of(gpu, (planned.kernel,), problem)
    choices = Choices(
        problem=np.zeros(4, np.int64),
        kernel=np.zeros(4, np.int64),
        split_k=np.full(4, planned.split_k),
        reduce=np.full(4, planned.mode == "reduce"),
    )
    made = GemmPlans(table, Problems.of([problem]), choices, not planned.main.cold, edges)
    return tuple(made.plan(planned.operator, row).main for row in range(4))


def schedules_of(
    table: KernelTable, problems: Problems, choices: Choices, *, warm: bool, edges: Array | None = None
) -> Columns[Schedule]:
    """The GEMMs, without the names of kernels.

    Args:
        problems: one for each choice.
        edges: whether the tile is the last along x, and along y; None for the average tile.
    """
    gpu, split_k = table.gpu, choices.split_k
    kernels = table[choices.kernel]
    resident_ctas = kernels.occupancy.ctas
    tiles = _tiles(gpu, kernels, problems, split_k, edges)
    step = k_steps_of(gpu, kernels, problems, tiles)
    partial = choices.reduce & (split_k > 1)
    result_bytes = np.where(partial, problems.partial_bytes, problems.output_bits / 8)
    tile_bytes = np.where(kernels.stores_result, tiles.rows[0] * tiles.rows[1] * result_bytes, 0.0)
    store_bytes = np.where(partial, tile_bytes, tile_bytes / split_k)
    if problems.additions:
        store_bytes = problems.additions.reached_bytes / tiles.ctas
    fixed_up = ~(choices.reduce | kernels.adds_to_result)
    fixup_times = np.where(fixed_up, partners(gpu, tiles, resident_ctas), 0)
    chain = np.minimum(fixup_times, partners_at_once(gpu, tiles, resident_ctas))
    across_y = _stripes_across_y(kernels, tiles)
    across = np.where(across_y, tiles.counts[1], tiles.counts[0])
    swizzle_width = np.minimum(np.where(kernels.swizzle_width > 0, kernels.swizzle_width, across), across)
    moved = _traffic(gpu, kernels, problems, tiles, step, tiles.ctas * store_bytes, swizzle_width, warm=warm)
    c_bytes = np.zeros(store_bytes.shape)
    if problems.reads_c:
        # Where a second kernel stores C, it reads it.
        added_bytes = np.where(partial, 0.0, store_bytes)
        c_bytes = added_bytes * c_passes(gpu, kernels, problems)
        missed_bytes = tiles.ctas * added_bytes * (1.0 - moved.resident_fraction)
        moved = moved.replaced(
            l2_read_bytes=moved.l2_read_bytes + tiles.ctas * c_bytes,
            dram_read_bytes=moved.dram_read_bytes + missed_bytes,
            c_read_bytes=tiles.ctas * c_bytes,
            c_missed_bytes=missed_bytes,
        )
    stored_at_once = np.minimum(tiles.ctas, gpu.sm.count * resident_ctas) * store_bytes
    return Columns(
        Schedule,
        kernel=kernels,
        grid=Columns(
            Grid,
            x=tiles.counts[0],
            y=tiles.counts[1],
            splits=split_k,
            batch=tiles.batch,
            swizzle_width=swizzle_width,
            stripes_across_y=across_y,
        ),
        steps=tiles.steps,
        step=step,
        epilogue=epilogue_of(gpu, kernels, problems, tiles, result_bytes, store_bytes, fixup_times, chain, c_bytes),
        store_bytes=store_bytes,
        store_passes=store_passes(gpu, kernels, problems, result_bytes, share(tile_bytes, store_bytes)),
        traffic=moved.replaced(write_cost=write_costs(gpu, kernels, problems, result_bytes, stored_at_once)),
        cold=warm ^ True,
    )


def _tiles(gpu: Gpu, kernels: Any, problems: Problems, split_k: Array, edges: Array | None) -> Tiles:
    """The tiles of problems on kernels.

    Args:
        edges: whether the tile is the last along x, and along y; None for the average tile.
    """
    all_rows, slices = problems.operands.rows, problems.operands.slices
    counts = pieces_of(all_rows, slices, kernels.tile)
    counts = np.where(kernels.whole_clusters, ceil_div(counts, kernels.cluster) * kernels.cluster, counts)
    batch = problems.batch
    if problems.counts:
        counts[1], batch = _tiles_of_groups(problems.counts, kernels.tile[1])
    steps = ceil_div(pieces_of(problems.k, problems.k_slices, kernels.tile_k), split_k)
    rows = all_rows / (counts * np.array([np.ones_like(batch), batch])) if problems.counts else all_rows / counts
    largest = np.minimum(ceil_div(all_rows, slices), kernels.tile)
    if edges is not None:
        rows = np.where(edges, all_rows - (counts - 1) * kernels.tile, largest).astype(float)
    at_once = counts[0] * counts[1] * batch * split_k <= gpu.sm.count * kernels.occupancy.ctas
    if problems.longest_k is not None:
        # The CTA with most of k ends last.
        steps = np.where(at_once, ceil_div(problems.longest_k, kernels.tile_k), steps)
    k_per_step = problems.k / (steps * split_k)
    tiles = Tiles(counts, batch, split_k, steps, rows, rows, rows, k_per_step)
    if edges is not None:
        return replace(tiles, filled_rows=largest)
    sm_rows = np.where(at_once, largest, rows)
    return replace(tiles, sm_rows=sm_rows, filled_rows=sm_rows)


def _tiles_of_groups(counts: tuple[int, ...], tile: Array) -> tuple[Array, Array]:
    """Tiles along n of a group, and groups of so many, which together are those of all groups, rounded up.

    Groups of different sizes are taken as more of the mean size, rounded down: each reads its A.
    """
    rows = np.array(counts)
    together = ceil_div(rows[:, np.newaxis], tile).sum(axis=0)
    of_group = np.maximum(1, together // len(counts))
    return of_group, ceil_div(together, of_group)


def _stripes_across_y(kernels: Any, tiles: Tiles) -> Array:
    """Whether the stripes of a threadblock swizzle lie side by side along y, and each runs along x."""
    longer = tiles.counts[1] >= tiles.counts[0]
    return np.asanyarray(np.where(kernels.stripes_across_longer, longer, kernels.stripes_across_n))


def _traffic(
    gpu: Gpu,
    kernels: Any,
    problems: Problems,
    tiles: Tiles,
    step: Columns[KStep],
    written_bytes: Array,
    swizzle_width: Array,
    *,
    warm: bool,
) -> Columns[Traffic]:
    """Bytes that launches move between L2, DRAM and their CTAs."""
    operands = problems.operands
    concurrent_ctas = gpu.sm.count * kernels.occupancy.ctas
    of_product = tiles.counts[0] * tiles.counts[1]
    # Splits of k are launched a whole plane of tiles apart, as the GEMMs of a batch are, and read k ranges of their
    # own.
    planes = tiles.batch * tiles.split_k
    wave_tiles = np.minimum(of_product, concurrent_ctas)

    across_y = _stripes_across_y(kernels, tiles)

    def across_first(natural: Array) -> Array:
        return np.where(across_y, natural[::-1], natural)

    counts = across_first(tiles.counts)
    wave = wave_panels(counts, wave_tiles, swizzle_width)
    resident_ctas = np.minimum(tiles.ctas, concurrent_ctas)
    readers = across_first(wave)[::-1]
    further = np.maximum(1.0, gpu.l2.drift_fraction * tiles.steps / np.maximum(1.0, gpu.l2.drift_steps))
    drift_steps, lag_steps = gpu.l2.drift_steps * further, gpu.l2.lag_steps * further
    outlives = outlives_a_step(gpu, operands, tiles.rows, kernels.tile_k, readers, resident_ctas, drift_steps)
    # DRAM has opened other pages by the time that the next step requests its slice of a row, but L2 is filled by units.
    ring_k, unit_k = (
        kernels.tile_k * np.maximum(1, step.prefetch_distance),
        gpu.l2.fetch_bytes * 8 / operands.element_bits,
    )
    requested_k = np.maximum(kernels.tile_k, np.minimum(ring_k, unit_k))
    costs, energies = read_costs(gpu, operands, requested_k, outlives)
    panels_bytes = tiles.rows * (problems.k / tiles.split_k) * operands.bits / 8 / operands.reads_per_element
    moved = traffic(
        Panels(counts, across_first(panels_bytes), across_first(costs), across_first(energies)),
        wave,
        wave_tiles,
        planes=planes,
        result_bytes=written_bytes,
        swizzle_width=swizzle_width,
        l2_capacity_bytes=effective_l2_bytes(gpu),
        usable_fraction=gpu.l2.usable_fraction,
        warm=warm,
        outlives_a_step=outlives,
        lag_steps=lag_steps,
    )
    if problems.additions:
        # What has left L2 since it was cleared is read before it is added to.
        cleared_bytes = problems.additions.reached_bytes
        left_bytes = cleared_bytes * (1.0 - survival_fraction(cleared_bytes, effective_l2_bytes(gpu)))
        moved = moved.replaced(dram_read_bytes=moved.dram_read_bytes + left_bytes)
    read_bytes = tiles.ctas * tiles.steps * step.l2_bytes
    return moved.replaced(l2_read_bytes=read_bytes)
