"""A workload on one kernel, in closed form: grid, steps, occupancy, and what a step moves and computes.

Tiles, names and grids are the library's (see :mod:`gpusim.lowering.gemm.problem`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import Occupancy, occupancy
from gpusim.launch import Grid, Resources
from gpusim.library.catalogue import Kernel, SplitKMode
from gpusim.library.main_loops import DirectLoop, MmaLoop, SimtLoop, WgmmaLoop
from gpusim.lowering.gemm.epilogue import epilogue_of, store_passes
from gpusim.lowering.gemm.mainloop_direct import direct_step
from gpusim.lowering.gemm.mainloop_mma import mma_step
from gpusim.lowering.gemm.mainloop_simt import simt_step
from gpusim.lowering.gemm.mainloop_wgmma import wgmma_step
from gpusim.lowering.gemm.problem import Problem, Tiles, problem_of, tiles_of
from gpusim.lowering.gemm.split_k import partners, reduction
from gpusim.lowering.gemm.staging import LINE_BYTES, Slices
from gpusim.lowering.locality import Panels, Traffic, traffic, wave_panels
from gpusim.lowering.pages import effective_l2_bytes, missed_pages, outlives_a_step, read_cost
from gpusim.lowering.schedule import Schedule, Step
from gpusim.lowering.totals import Totals
from gpusim.units import ceil_div
from gpusim.workloads.gemm import Gemm


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """A GEMM on one kernel: its launches in order (a split-K reduction follows the product)."""

    operator: Gemm
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
    def instruction(self) -> Instruction:
        """That multiplies."""
        return self.main.instruction

    @property
    def choice(self) -> tuple[str, int, str]:
        """What a library has chosen."""
        return self.name, self.split_k, self.mode

    @property
    def useful_fraction(self) -> float:
        """Multiply-adds of the product over those that are executed; the rest pads tiles."""
        return self.operator.flops / 2 / self.main.fma

    @property
    def totals(self) -> tuple[Totals, ...]:
        """What each launch comes to; zeros that pad a tile switch next to nothing."""
        math_pj = self.operator.flops / 2 * self.instruction.energy_pj_per_fma
        return tuple(
            Totals(
                ctas=one.ctas,
                occupancy=one.occupancy,
                warp_turns=one.warps * one.steps,
                traffic=one.traffic,
                l2_bytes=one.l2_bytes,
                shared_bytes=one.shared_bytes,
                shared_port_bytes=one.shared_port_bytes,
                math_pj=math_pj if one is self.main else 0.0,
                other_instructions=one.other_instructions,
            )
            for one in self.schedules
        )


def plan(
    gpu: Gpu, gemm: Gemm, kernel: Kernel, split_k: int = 1, mode: SplitKMode = "in_kernel", warm: bool = False
) -> GemmPlan:
    """Schedule a workload on one kernel.

    Args:
        split_k: CTAs that share the k range of a tile.
        mode: how partial sums come together.
        warm: operands are in L2 as far as they fit.

    Raises:
        DoesNotFitError: a CTA needs more than an SM has.
    """
    problem, family = problem_of(gemm), kernel.family
    resources = Resources(
        kernel.threads,
        kernel.registers_with(gemm.accumulator_bits),
        kernel.shared_bytes(problem.a.bits, problem.b.bits),
    )
    resident = occupancy(SmLimits.of(gpu), resources.threads, resources.registers, resources.shared_bytes)
    tiles = tiles_of(problem, kernel, split_k)
    slices = _slices(gpu, kernel, problem, tiles)
    step = _step(gpu, kernel, problem, slices)
    partial = split_k > 1 and mode == "reduce"
    result_bytes = problem.accumulator_bytes if partial else problem.output_bits / 8
    tile_bytes = tiles.rows_a * tiles.rows_b * result_bytes if family.stores_result else 0.0
    store_bytes = tile_bytes if partial else tile_bytes / split_k
    fixup_times = 0 if mode == "reduce" else partners(gpu, tiles, resident.ctas)
    swizzle_width = min(family.swizzle_width or tiles.m, tiles.m)
    written_bytes = tiles.ctas * store_bytes
    main = Schedule(
        name=kernel.printed_name(gemm.layout, gemm.dtype),
        grid=Grid(tiles.m, tiles.n, split_k, tiles.batch, swizzle_width),
        resources=resources,
        warps=kernel.warps + family.main_loop.producer_warps,
        math_warps=kernel.warps,
        instances=family.main_loop.instances,
        persistent=family.main_loop.persistent,
        occupancy=resident,
        instruction_name=family.instruction,
        instruction=gpu.instructions[family.instruction],
        setup_cycles=family.main_loop.setup_instructions.value * gpu.instructions["ffma"].latency_cycles,
        steps=tiles.steps,
        step=step,
        epilogue=epilogue_of(gpu, kernel, problem, tiles, result_bytes, fixup_times),
        store_bytes=store_bytes,
        store_passes=store_passes(gpu, kernel, problem, result_bytes),
        traffic=_traffic(gpu, kernel, problem, tiles, step, resident, written_bytes, swizzle_width, warm=warm),
        cold=not warm,
    )
    if not partial:
        return GemmPlan(gemm, kernel, mode, (main,))
    if kernel.reduction is None:
        raise ValueError(f"{main.name}: no kernel adds up partial sums; split_k with mode 'reduce' needs one")
    return GemmPlan(gemm, kernel, mode, (main, reduction(gpu, kernel.reduction, problem, split_k)))


def _step(gpu: Gpu, kernel: Kernel, problem: Problem, slices: Slices) -> Step:
    """A turn of the kernel's kind of main loop."""
    match kernel.family.main_loop:
        case SimtLoop() as loop:
            return simt_step(gpu, kernel, loop, problem, slices)
        case MmaLoop() as loop:
            return mma_step(gpu, kernel, loop, problem, slices)
        case DirectLoop() as loop:
            return direct_step(gpu, kernel, loop, problem, slices)
        case WgmmaLoop() as loop:
            return wgmma_step(gpu, kernel, loop, problem, slices)


def _slices(gpu: Gpu, kernel: Kernel, problem: Problem, tiles: Tiles) -> Slices:
    """What a step reads. Panels lie in L2 without the rest of the sectors that their edges share."""
    missed = missed_pages(gpu, ((problem.a, tiles.rows_a), (problem.b, tiles.rows_b)))
    return Slices(
        panel_bytes=(
            tiles.rows_a * tiles.k_per_step * problem.a.bits / 8,
            tiles.rows_b * tiles.k_per_step * problem.b.bits / 8,
        ),
        # A row of tiles that a cluster ends in the middle of is loaded by the CTAs that are there.
        sharers=(tiles.n / ceil_div(tiles.n, kernel.cluster_n), tiles.m / ceil_div(tiles.m, kernel.cluster_m)),
        tlb_port_bytes=missed * gpu.load_store.tlb_miss_cycles * gpu.shared_memory.bandwidth_bytes_per_cycle,
    )


def _traffic(
    gpu: Gpu,
    kernel: Kernel,
    problem: Problem,
    tiles: Tiles,
    step: Step,
    resident: Occupancy,
    written_bytes: float,
    swizzle_width: int,
    *,
    warm: bool,
) -> Traffic:
    """Bytes that the launch moves between L2, DRAM and its CTAs."""
    concurrent_ctas = gpu.sm.count * resident.ctas
    of_product = tiles.m * tiles.n
    wave = wave_panels(tiles.m, tiles.n, max(1, min(of_product, concurrent_ctas // tiles.split_k)), swizzle_width)
    slices_bytes = (
        problem.a.touched_bytes(tiles.rows_a, kernel.tile_k, LINE_BYTES),
        problem.b.touched_bytes(tiles.rows_b, kernel.tile_k, LINE_BYTES),
    )
    outlives = outlives_a_step(gpu, slices_bytes, (wave[1], wave[0]), min(tiles.ctas, concurrent_ctas))
    # A ring asks for several steps at once, so that DRAM reads their slices of a row from one open page.
    asked_k = kernel.tile_k * max(1, step.ahead)
    moved = traffic(
        Panels(tiles.m, tiles.rows_a * problem.k * problem.a.bits / 8, read_cost(gpu, problem.a, asked_k, outlives)),
        Panels(tiles.n, tiles.rows_b * problem.k * problem.b.bits / 8, read_cost(gpu, problem.b, asked_k, outlives)),
        batch=tiles.batch,
        splits=tiles.split_k,
        result_bytes=written_bytes,
        concurrent_ctas=concurrent_ctas,
        swizzle_width=swizzle_width,
        l2_capacity_bytes=effective_l2_bytes(gpu),
        warm=warm,
        outlives_a_step=outlives,
        drift_steps=gpu.l2.drift_steps,
    )
    return replace(moved, l2_read_bytes=tiles.ctas * tiles.steps * step.l2_bytes)
