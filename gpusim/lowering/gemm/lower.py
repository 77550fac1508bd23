"""The launches of a plan: each schedule with the programs of its warps."""

from __future__ import annotations

from dataclasses import replace

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Launch, Tensor, Work
from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop, DirectMmaLoop, MmaLoop, SimtLoop, WgmmaLoop
from gpusim.lowering.gemm.epilogue import LOCAL, epilogue_program
from gpusim.lowering.gemm.mainloop_direct import around_program, direct_program
from gpusim.lowering.gemm.mainloop_wgmma import consumer_program, producer_program
from gpusim.lowering.gemm.multistage import multistage_program
from gpusim.lowering.gemm.plan import GemmPlan, tile_schedules
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.lowering.gemm.split_k import PARTIAL_SUMS, reduction_program
from gpusim.program import Compute, Drain, Program, Role

RESULT = "C"


def lower(planned: GemmPlan) -> tuple[Launch, ...]:
    """The launches of a plan, in order: the GEMM, and the reduction of its partial sums where that is a kernel."""
    main, *reductions = planned.schedules
    stored = PARTIAL_SUMS if reductions else RESULT
    launches = [_launch(main, _roles(planned.kernel, main, stored), stored)]
    launches += [_launch(one, (Role(one.warps, reduction_program(one, RESULT)),), RESULT) for one in reductions]
    return tuple(launches)


def lower_tiles(gpu: Gpu, planned: GemmPlan) -> tuple[Launch, ...]:
    """Launches of a GEMM in which a CTA at an edge does its own work; :func:`lower` gives each the mean of all."""
    launch, *others = lower(planned)
    schedules = tile_schedules(gpu, planned)
    if len(schedules) == 1:
        return launch, *others
    stored = PARTIAL_SUMS if others else RESULT
    within, *edges = (_launch(one, _roles(planned.kernel, one, stored), stored) for one in schedules)
    of_x, of_y, of_both = (Work(one.roles, one.tensors) for one in edges)
    # What L2 holds of the results of all CTAs does not depend on one tile.
    return replace(within, edges=(of_x, of_y, of_both), write_cost=launch.write_cost), *others


def _roles(kernel: Kernel, schedule: Schedule, stored: str) -> tuple[Role, ...]:
    """What a CTA's warps do."""
    setup_cycles = schedule.kernel.setup_cycles
    setup: Program = (Compute(setup_cycles),) if setup_cycles else ()
    epilogue = epilogue_program(schedule, kernel.warps_k, stored)
    match kernel.family.main_loop:
        case WgmmaLoop() as loop:
            # The rest of the producer's warpgroup has nothing to do and leaves.
            producer = Role(loop.producer_warps, (*setup, *producer_program(schedule)))
            return producer, Role(kernel.warps, (*consumer_program(schedule), *epilogue), loop.instances)
        case DirectLoop() | DirectMmaLoop() as loop:
            main_loop = (*around_program(loop), *direct_program(schedule))
        case SimtLoop() | MmaLoop() as loop:
            main_loop = multistage_program(kernel, loop, schedule)
    return (Role(kernel.warps, (*setup, *main_loop, Drain(), *epilogue)),)


def _result(schedule: Schedule, stored: str) -> Tensor:
    """What CTAs store, and read before where they add to it."""
    moved = schedule.traffic
    missing = 1.0 - moved.resident_fraction
    if not moved.c_read_bytes:
        return Tensor(stored, schedule.store_bytes, missing_blocks_fraction=missing)
    block_bytes = schedule.store_bytes / max(1, schedule.kernel.results.shared_passes)
    return Tensor(stored, block_bytes, ("batch", "split", "x", "y"), moved.c_miss_fraction, missing)


def _launch(schedule: Schedule, roles: tuple[Role, ...], stored: str) -> Launch:
    moved = schedule.traffic
    # The traffic of a GEMM is known in all: each operand has its part in it.
    loaded = tuple(
        Tensor(
            block.tensor,
            block.block_bytes,
            block.axes,
            miss_fraction=moved.miss_fraction,
            missing_blocks_fraction=1.0 - moved.resident_fraction,
            read_cost=moved.read_cost,
            runs=block.runs,
        )
        for block in schedule.step.blocks
    )
    results = schedule.kernel.results
    local_bytes = schedule.epilogue.local_bytes * schedule.kernel.math_warps / max(1, results.shared_passes)
    local = (Tensor(LOCAL, local_bytes, None, miss_fraction=0.0),) if local_bytes else ()
    return Launch(
        name=schedule.name,
        grid=schedule.grid,
        roles=roles,
        resources=schedule.kernel.resources,
        tensors=(*loaded, *local, _result(schedule, stored)),
        write_back_cost=moved.write_back_cost,
        write_cost=moved.write_cost,
        persistent=schedule.kernel.persistent,
        cold=schedule.cold,
    )
