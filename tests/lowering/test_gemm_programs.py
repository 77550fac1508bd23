"""Programs of GEMM kernels: rings, barriers, epilogues, split-K."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from conftest import with_gpu
from gemm_kernels import (
    A100,
    AMPERE_HGEMM,
    DTYPES,
    H100,
    HOPPER_HGEMM,
    LAYOUTS,
    NAMES,
    SIZES,
    V100,
    VOLTA_HGEMM,
    VOLTA_SGEMM,
    drawn_plan,
    kernel,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.launch import Launch, l2_read_bytes
from gpusim.lowering.gemm.lower import lower
from gpusim.lowering.gemm.plan import GemmPlan, plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.program import (
    Alu,
    Barrier,
    Compute,
    Drain,
    Load,
    LoadBulk,
    LoadShared,
    Mma,
    Op,
    Program,
    Repeat,
    SplitKFixup,
    Store,
    StoreShared,
    WaitLoad,
    WarpgroupMma,
    executed,
)
from gpusim.system import System
from gpusim.workloads.gemm import Gemm


def flat(program: Program) -> list[Op]:
    """Operations of a program, those of its loop once."""
    ops: list[Op] = []
    for op in program:
        ops += flat(op.body) if isinstance(op, Repeat) else [op]
    return ops


def program_of(planned: GemmPlan) -> Program:
    """What all warps of a plan's first launch do, which has one role."""
    (role,) = lower(planned)[0].roles
    return role.program


def test_a_single_stage_is_filled_and_used_in_turn() -> None:
    gemm = Gemm(512, 256, 256, Dtype.FP16)
    name = "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x1_tn_align8"
    _, loop, *_ = program_of(plan(A100.gpu, gemm, kernel(A100, name)))
    assert isinstance(loop, Repeat)
    assert [type(op) for op in loop.body] == [Load, WaitLoad, StoreShared, Barrier, Mma, Drain, Barrier]


def loop_of(planned: GemmPlan) -> Program:
    """The body of the main loop."""
    return next(op.body for op in program_of(planned) if isinstance(op, Repeat))


def test_volta_stages_one_step_ahead_and_ampere_all_stages_but_one() -> None:
    volta = plan(V100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(V100, VOLTA_HGEMM))
    ampere = plan(A100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(A100, AMPERE_HGEMM))
    assert (volta.main.step.prefetch_distance, ampere.main.step.prefetch_distance) == (1, 5 - 1)
    # on Volta a warp writes what it has loaded to shared memory, on Ampere the load does
    assert [sum(isinstance(op, StoreShared) for op in loop_of(one)) for one in (volta, ampere)] == [1, 0]
    # the ring is filled before the loop, and each iteration requests the step four iterations later
    assert [op.prefetch_distance for op in program_of(ampere) if isinstance(op, Load)] == [0, 0, 0, 0]
    assert [op.prefetch_distance for op in loop_of(ampere) if isinstance(op, Load)] == [4]


def test_loads_beyond_the_last_step_are_issued_and_bring_nothing() -> None:
    short = program_of(plan(A100.gpu, Gemm(1024, 1024, 64, Dtype.FP16), kernel(A100, AMPERE_HGEMM)))
    loads = [op for op in short if isinstance(op, Load)]
    assert [bool(op.reads) for op in loads] == [True, True, False, False]  # 64 of k are two steps
    assert len({op.instructions for op in loads}) == 1


def test_a_kernel_of_one_stage_loads_a_step_and_then_uses_it() -> None:
    gemv = next(one for one in A100.library.kernels if one.family.name.startswith("gemvx"))
    planned = plan(A100.gpu, Gemm(1, 64, 8192, Dtype.FP16), gemv)
    assert (gemv.stages, planned.main.step.prefetch_distance) == (1, 0)
    first, *rest = program_of(planned)[1:]
    assert isinstance(first, Repeat)
    assert [type(op) for op in first.body] == [Load, WaitLoad, Mma]
    assert not any(isinstance(op, Load) for op in rest)
    # With nothing on its way while it multiplies, each step takes the latency of DRAM, in the machine and by estimate.
    pinned = Options(kernel=gemv.printed_name("tn", Dtype.FP16))
    short, long = (predict(A100, Gemm(1, 64, k, Dtype.FP16), pinned) for k in (8192, 16384))
    steps = (16384 - 8192) / gemv.tile_k
    assert long.kernel_time_us - short.kernel_time_us > steps * A100.gpu.dram.latency_ns / 1e3
    estimates = [result.alternatives[0].estimate_us for result in (short, long)]
    assert estimates[1] - estimates[0] > steps * A100.gpu.dram.latency_ns / 1e3


def test_an_iteration_ends_at_its_barrier() -> None:
    program = program_of(plan(A100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(A100, AMPERE_HGEMM)))
    loop = next(op for op in program if isinstance(op, Repeat))
    assert [isinstance(op, Barrier) for op in loop.body] == [False, False, False, True]
    assert isinstance(program[-1], Store)


@pytest.mark.parametrize(
    ("arch", "name", "dtype", "passes"),
    [
        (V100, VOLTA_HGEMM, Dtype.FP16, 4),  # 64 columns of C a warp, sixteen at a time
        (A100, AMPERE_HGEMM, Dtype.FP16, 8),  # and eight at a time
        (V100, VOLTA_SGEMM, Dtype.FP32, 0),  # threads write what they hold
    ],
)
def test_results_pass_through_shared_memory_a_few_rows_at_a_time(
    arch: System, name: str, dtype: Dtype, passes: int
) -> None:
    cycles = []
    for latency in (0.0, 100.0):
        shared = arch.gpu.shared_memory.model_copy(update={"epilogue_pass_cycles": latency})
        slower = with_gpu(arch, shared_memory=shared)
        main = plan(slower.gpu, Gemm(1024, 1024, 1024, dtype), kernel(slower, name)).main
        cycles.append(main.kernel.results.shared_pass_cycles)
    assert cycles[1] - cycles[0] == 100.0 * passes


@pytest.mark.parametrize(
    ("board", "name", "dtype", "loads_ahead"),
    [
        (V100, VOLTA_SGEMM, Dtype.FP32, True),
        (V100, VOLTA_HGEMM, Dtype.FP16, True),
        (A100, AMPERE_HGEMM, Dtype.FP16, False),
    ],
)
def test_kernels_of_volta_ask_for_c_a_pass_before_they_add_it(
    board: System, name: str, dtype: Dtype, *, loads_ahead: bool
) -> None:
    planned = plan(board.gpu, Gemm(256, 128, 64, dtype, beta=1.0), kernel(board, name))
    epilogue = [type(op) for op in flat(program_of(planned))]
    epilogue = epilogue[epilogue.index(Drain) :]
    passes = planned.main.kernel.results.shared_passes
    assert passes > 1
    assert [epilogue.count(kind) for kind in (Load, WaitLoad, Store)] == [passes] * 3
    requested, first_pass = epilogue.index(Load), epilogue.index(StoreShared)
    assert requested < first_pass
    assert (Load in epilogue[first_pass : epilogue.index(Store)]) == loads_ahead
    assert epilogue.index(LoadShared) < epilogue.index(WaitLoad) < epilogue.index(Store)


@pytest.mark.parametrize("mode", ["in_kernel", "reduce"])
def test_c_is_read_once_by_the_kernel_that_stores_it(mode: str) -> None:
    name, dtype = (VOLTA_SGEMM, Dtype.FP32) if mode == "in_kernel" else (VOLTA_HGEMM, Dtype.FP16)
    for split in (1, 4):
        gemm = Gemm(512, 256, 4096, dtype, beta=1.0)
        used = kernel(V100, name)
        adding, new = (
            plan(V100.gpu, one, used, split, "reduce" if mode == "reduce" else "in_kernel", warm=False)
            for one in (gemm, replace(gemm, beta=0.0))
        )
        read = [
            one.traffic.l2_read_bytes - other.traffic.l2_read_bytes
            for one, other in zip(adding.schedules, new.schedules, strict=True)
        ]
        assert read[-1] == pytest.approx(gemm.result_bytes)
        assert all(of_product == 0.0 for of_product in read[:-1])
        assert adding.main.traffic.miss_fraction == pytest.approx(new.main.traffic.miss_fraction)
        for launch, schedule in zip(lower(adding), adding.schedules, strict=True):
            assert sum(l2_read_bytes(launch).values()) == pytest.approx(schedule.traffic.l2_read_bytes)


def test_rows_of_results_are_stored_before_the_next_ones_pass_through_shared_memory() -> None:
    program = program_of(plan(V100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(V100, VOLTA_HGEMM)))
    passes = 4 * [Alu, StoreShared, Barrier, LoadShared, Barrier, Alu, Compute, Store]
    assert [type(op) for op in program[-len(passes) :]] == passes


@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize(("output", "conversions"), [("fp16", 32.0), ("fp32", 0.0)])
def test_results_are_converted_where_they_are_stored_in_fewer_bits(split: int, output: str, conversions: float) -> None:
    # Volta converts the results of a thread one by one (F2F), 32 in a pass; partial sums are stored as the result is.
    gemm = Gemm(1024, 1024, 1024, Dtype.FP16, output=output)
    planned = plan(V100.gpu, gemm, kernel(V100, VOLTA_HGEMM), split, "reduce")
    results = planned.main.kernel.results
    assert planned.main.storing["sfu"] / results.shared_passes == conversions
    assert results.scaling_fma / results.shared_passes == 32.0


@pytest.mark.parametrize(("n", "torn"), [(1024, 0.0), (1020, 0.5), (1022, 0.75), (1021, 0.875)])
def test_a_warps_runs_of_128_bytes_share_sectors_where_rows_are_not_aligned(n: int, torn: float) -> None:
    launch = plan(V100.gpu, Gemm(64, n, 64, Dtype.FP32), kernel(V100, VOLTA_SGEMM)).main
    assert launch.store_passes == pytest.approx(1 + torn / 4)
    # kernels of the Tensor Cores write C in whole lines
    assert plan(V100.gpu, Gemm(64, n, 64, Dtype.FP16), kernel(V100, VOLTA_HGEMM)).main.store_passes == 1.0


@pytest.mark.parametrize(("board", "filled"), [(V100, 1.0), (A100, 0.0)])
def test_sectors_that_runs_share_are_read_from_dram_where_l2_holds_few_results(board: System, filled: float) -> None:
    dram, l2 = board.gpu.dram, board.gpu.l2
    sgemm = VOLTA_SGEMM if board is V100 else "ampere_sgemm_128x64_tn"
    for n, torn in ((4096, 0.0), (4097, 0.875)):
        launch = plan(board.gpu, Gemm(4096, n, 64, Dtype.FP32), kernel(board, sgemm)).main
        read_bytes = filled * torn * (l2.fetch_bytes + dram.activation_bytes)
        assert launch.traffic.write_cost == pytest.approx(dram.mixed_write_cost + read_bytes / 128)


@pytest.mark.parametrize("alignment", [2, 1])
def test_a_kernel_of_less_alignment_stores_results_in_the_pieces_that_it_loads(alignment: int) -> None:
    # C is aligned: k is not. The threads of a warp lie side by side, so that each sector is sent once.
    gemm = Gemm(1024, 1024, 1024 + alignment, Dtype.FP16)
    name = f"cutlass_70_tensorop_f16_s884gemm_f16_128x128_tn_align{alignment}"
    launch = plan(V100.gpu, gemm, kernel(V100, name)).main
    assert launch.epilogue.store_instructions == pytest.approx(128 * 128 / 4 / 32 / alignment)
    assert launch.store_passes == 1.0


@pytest.mark.parametrize(
    ("n", "tile", "alignment", "torn", "run_bytes"),
    [(1022, 128, 2, 7 / 8, 128), (1021, 128, 1, 15 / 16, 64), (1022, 32, 2, 7 / 8, 64), (1020, 256, 2, 3 / 4, 128)],
)
def test_runs_of_pieces_share_sectors_where_rows_of_c_are_not_aligned(
    n: int, tile: int, alignment: int, torn: float, run_bytes: int
) -> None:
    name = f"cutlass_70_tensorop_f16_s884gemm_f16_{tile}x128_tn_align{alignment}"
    if tile == 32:
        name = "cutlass_70_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_tn_align2"
    launch = plan(V100.gpu, Gemm(64, n, 64, Dtype.FP16), kernel(V100, name)).main
    assert launch.store_passes == pytest.approx(1 + torn * 32 / run_bytes)


def test_warpgroups_meet_before_a_tile_is_stored_and_until_it_has_been_taken() -> None:
    gemm = Gemm(1024, 1024, 1024, Dtype.FP16)
    producer, consumer = lower(plan(H100.gpu, gemm, kernel(H100, HOPPER_HGEMM)))[0].roles
    assert not any(isinstance(op, Barrier | Store) for op in flat(producer.program))
    assert [type(op) for op in consumer.program[-3:]] == [Barrier, Store, Barrier]


def test_the_reduction_reads_every_split_and_writes_the_result_once() -> None:
    gemm = Gemm(256, 512, 4096, Dtype.FP16)
    planned = plan(V100.gpu, gemm, kernel(V100, VOLTA_HGEMM), 4, "reduce")
    main, reduction = planned.schedules
    assert main.ctas * main.store_bytes == 4 * 256 * 512 * 2  # partial sums in FP16, as the result
    assert reduction.steps == 1  # all four at once
    assert reduction.ctas * reduction.steps * reduction.step.l2_bytes == 4 * 256 * 512 * 2
    assert reduction.ctas * reduction.store_bytes == 256 * 512 * 2
    assert not any(isinstance(op, SplitKFixup) for op in flat(lower(planned)[0].roles[0].program))


def test_splitting_inside_the_kernel_passes_partial_sums_down_a_chain() -> None:
    gemm = Gemm(256, 512, 4096, Dtype.FP32)
    planned = plan(V100.gpu, gemm, kernel(V100, VOLTA_SGEMM), 4, "in_kernel")
    assert len(planned.schedules) == 1
    launch = planned.main
    assert [op.times for op in flat(program_of(planned)) if isinstance(op, SplitKFixup)] == [3]
    assert launch.epilogue.fixup_bytes * launch.kernel.math_warps == 128 * 64 * 4
    assert launch.ctas * launch.store_bytes == 256 * 512 * 4  # one of the four writes C


def test_splits_of_a_tile_that_run_one_after_the_other_do_not_wait_for_each_other() -> None:
    # 32 x 64 tiles on 80 SMs with 4 CTAs each: the next split of a tile starts when the one before it is long done
    planned = plan(V100.gpu, Gemm(4096, 4096, 8192, Dtype.FP32), kernel(V100, VOLTA_SGEMM), 8, "in_kernel")
    assert [op.times for op in flat(program_of(planned)) if isinstance(op, SplitKFixup)] == [1]


# A schedule in closed form, and the programs that it is lowered to


def executed_by(launch: Launch) -> Iterator[tuple[int, Op, int]]:
    """Every operation of a CTA's programs, with the warps that execute it and how often each does."""
    for role in launch.roles:
        for op, times in executed(role.program):
            yield role.warps, op, times


@settings(max_examples=150)
@given(st.data(), NAMES | st.just("H100-SXM5-80GB"), DTYPES, LAYOUTS, SIZES, SIZES, SIZES)
def test_programs_load_and_multiply_what_their_schedule_says(
    data: st.DataObject, name: str, dtype: Dtype, layout: str, m: int, n: int, k: int
) -> None:
    planned = drawn_plan(data, name, Gemm(m, n, k, dtype, layout=layout))
    if planned is None:
        return
    for schedule, launch in zip(planned.schedules, lower(planned), strict=True):
        requested = port = shared = mma = stored = 0.0
        for warps, op, times in executed_by(launch):
            match op:
                case Load() | LoadBulk():
                    requested += warps * times * sum(read.l2_bytes for read in op.reads)
                    port += warps * times * op.port_bytes
                case Mma() | WarpgroupMma():
                    mma += warps * times * op.instructions
                    shared += warps * times * op.operand_bytes
                case Store():
                    stored += warps * times * op.size_bytes
        steps, step, used = schedule.steps, schedule.step, schedule.kernel
        assert launch.ctas * requested == pytest.approx(schedule.traffic.l2_read_bytes)
        assert port == pytest.approx(steps * step.port_bytes)
        assert mma == pytest.approx(steps * used.math_warps * used.loop.mma_instructions)
        assert shared == pytest.approx(steps * used.math_warps * used.loop.operand_bytes)
        assert stored == pytest.approx(schedule.store_bytes)
