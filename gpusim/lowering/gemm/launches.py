"""The chosen plan's launches: each schedule with the programs of its warps."""

from __future__ import annotations

from gpusim.library.catalogue import Kernel
from gpusim.library.main_loops import DirectLoop, MmaLoop, SimtLoop, WgmmaLoop
from gpusim.lowering.gemm.epilogue import epilogue_program
from gpusim.lowering.gemm.mainloop_direct import direct_program
from gpusim.lowering.gemm.mainloop_wgmma import consumer_program, producer_program
from gpusim.lowering.gemm.multistage import multistage_program
from gpusim.lowering.gemm.plan import Plan
from gpusim.lowering.gemm.split_k import reduction_program
from gpusim.lowering.launch import Launch
from gpusim.lowering.schedule import Schedule
from gpusim.program import Compute, Drain, Program, Role


def lower(planned: Plan) -> tuple[Launch, ...]:
    """The launches of a plan, in order: the product, and the reduction of its partial sums where that is a kernel."""
    main, *reductions = planned.schedules
    launches = [_launch(main, _roles(planned.kernel, main))]
    launches += [_launch(one, (Role(one.warps, reduction_program(one)),)) for one in reductions]
    return tuple(launches)


def _roles(kernel: Kernel, schedule: Schedule) -> tuple[Role, ...]:
    """What a CTA's warps do."""
    setup: Program = (Compute(schedule.setup_cycles),) if schedule.setup_cycles else ()
    epilogue = epilogue_program(schedule.epilogue, kernel.warps_k)
    match kernel.family.main_loop:
        case WgmmaLoop() as loop:
            # The rest of the producer's warpgroup has nothing to do and leaves.
            producer = Role(loop.producer_warps, (*setup, *producer_program(schedule)))
            return producer, Role(kernel.warps, (*consumer_program(schedule), *epilogue), loop.instances)
        case DirectLoop():
            main_loop = direct_program(schedule)
        case SimtLoop() | MmaLoop() as loop:
            main_loop = multistage_program(kernel, loop, schedule)
    return (Role(kernel.warps, (*setup, *main_loop, Drain(), *epilogue)),)


def _launch(schedule: Schedule, roles: tuple[Role, ...]) -> Launch:
    step = schedule.step
    return Launch(
        name=schedule.name,
        ctas=schedule.ctas,
        grid=schedule.grid,
        roles=roles,
        persistent=schedule.persistent,
        occupancy=schedule.occupancy,
        instruction=schedule.instruction,
        steps=schedule.steps,
        load_bytes_per_step=step.l2_bytes,
        received_bytes_per_step=step.sm_bytes,
        load_port_bytes_per_step=step.port_bytes,
        store_bytes=schedule.store_bytes,
        store_passes=schedule.store_passes,
        stages_ahead=step.ahead,
        multiply_per_step=step.mma_instructions,
        pipe_per_step=step.pipe_slots,
        slices=step.k_groups,
        operand_bytes_per_step=step.operand_bytes,
        shared_write_bytes_per_step=step.shared_write_bytes,
        issue_per_step=step.issue_slots,
        exchange_times=schedule.epilogue.fixup_times,
        traffic=schedule.traffic,
        cold=schedule.cold,
        tiling=schedule.tiling,
    )
