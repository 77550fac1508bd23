"""Plans: grids and steps by hand, and no byte, product or row of k lost on the way."""

import math

import pytest
from conftest import suited, with_gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.catalogue import Kernel, SplitKMode
from gpusim.lowering.gemm.launches import lower
from gpusim.lowering.gemm.plan import GemmPlan, plan
from gpusim.lowering.gemm.problem import problem_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.program import Barrier, Load, Mma, Op, Program, Repeat, SplitKFixup, Store, StoreShared, WaitLoad
from gpusim.specs import load_spec
from gpusim.system import System
from gpusim.workloads.gemm import Gemm, Layout

V100 = load_spec("V100-SXM2-16GB").system
A100 = load_spec("A100-SXM4-80GB").system
H100 = load_spec("H100-SXM5-80GB").system
VOLTA_SGEMM = "volta_sgemm_128x64_tn"
VOLTA_HGEMM = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn"
AMPERE_HGEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
HOPPER_HGEMM = "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT"
ROUNDING = 1e-9  # relative; sums of averages


def kernel(arch: System, name: str) -> Kernel:
    dtypes = (Dtype.FP16, Dtype.FP32)
    return next(
        one
        for one in arch.library.kernels
        if name in [one.printed_name("tn", dtype) for dtype in dtypes if dtype in one.family.inputs]
    )


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


def loop_of(planned: GemmPlan) -> Program:
    """The body of the main loop."""
    return next(op.body for op in program_of(planned) if isinstance(op, Repeat))


# By hand


def test_a_row_major_product_runs_as_its_transpose() -> None:
    shape = problem_of(Gemm(300, 500, 100, Dtype.FP32, order="row"))
    assert (shape.m, shape.n, shape.k) == (500, 300, 100)
    shape = problem_of(Gemm(300, 500, 100, Dtype.FP32, order="column"))
    assert (shape.m, shape.n, shape.k) == (300, 500, 100)


def test_grid_and_steps_cover_the_product_with_whole_tiles() -> None:
    # column-major m = 500, n = 300 on 128 x 64 tiles: 4 x 5; 100 of k in steps of 8: 13
    planned = plan(V100.gpu, Gemm(300, 500, 100, Dtype.FP32), kernel(V100, VOLTA_SGEMM))
    assert planned.main.grid.extents == (4, 5, 1)
    assert planned.main.ctas == 20
    assert planned.main.steps == 13


@pytest.mark.parametrize(
    ("split_k", "steps"),
    # 4096 / 32 = 128 steps in all
    [(1, 128), (2, 64), (3, 43), (5, 26), (64, 2)],
)
def test_splits_share_the_steps_and_multiply_the_grid(split_k: int, steps: int) -> None:
    planned = plan(V100.gpu, Gemm(256, 256, 4096, Dtype.FP16), kernel(V100, VOLTA_HGEMM), split_k, "reduce")
    assert planned.main.grid.extents == (2, 2, split_k)
    assert planned.main.steps == steps


def test_a_batch_is_a_third_dimension_of_the_grid() -> None:
    planned = plan(V100.gpu, Gemm(256, 256, 64, Dtype.FP16, batch=7), kernel(V100, VOLTA_HGEMM))
    assert planned.main.grid.extents == (2, 2, 7)
    assert planned.main.ctas == 28


def test_a_step_of_one_cta_by_hand() -> None:
    planned = plan(V100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(V100, VOLTA_HGEMM))
    launch = planned.main
    assert launch.step.l2_bytes == (128 + 128) * 32 * 2
    # 4 warps of 64 x 64 x 32, instructions of 16 x 16 x 4: 4 x 4 x 8 in 8 slices of k
    assert (launch.warps, launch.step.mma_instructions, launch.step.k_groups) == (4, 128, 8)
    assert launch.step.operand_bytes == (64 + 64) * 32 * 2  # a warp reads its rows and columns
    assert launch.step.shared_write_bytes == (128 + 128) * 32 * 2
    assert launch.store_bytes == 128 * 128 * 2
    # 64 x 64 tiles of 128 x 128 on 80 SMs with 2 CTAs each (232 registers: 2 warps a sub-partition)
    assert launch.occupancy.ctas == 2
    assert planned.totals[0].waves(V100.gpu) == 64 / 160
    assert launch.ctas_on_busiest_sm(V100.gpu) == 1


def test_a_thread_of_a_cuda_core_tile_reads_the_rows_and_columns_of_its_square() -> None:
    # 128 x 64 by 2 x 2 warps: 64 x 32 a warp, 64 results a thread: 8 + 8 operands of 4 B for 32 lanes and 8 of k;
    # what lanes share passes the port together
    launch = plan(V100.gpu, Gemm(1024, 1024, 1024, Dtype.FP32), kernel(V100, VOLTA_SGEMM)).main
    alone = (8 + 8) * 4 * 32 * 8
    assert launch.step.operand_bytes == pytest.approx(alone * V100.gpu.shared_memory.broadcast_fraction)
    assert launch.step.mma_instructions == 64 * 8


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
        shared = arch.gpu.shared_memory.model_copy(update={"rearrange_pass_cycles": latency})
        slower = with_gpu(arch, shared_memory=shared)
        cycles.append(plan(slower.gpu, Gemm(1024, 1024, 1024, dtype), kernel(slower, name)).main.serial_cycles)
    assert cycles[1] - cycles[0] == 100.0 * passes


@pytest.mark.parametrize(
    ("layout", "k", "taken_bytes"),
    [
        ("nt", 1024, (2048, 2048)),  # both lie along m or n: neighbours read the rest of a page
        ("tn", 1024, (32, 32)),  # rows of 4 KB: 8 values of k from a page
        ("nn", 1024, (2048, 32)),
        ("tn", 128, (128, 128)),  # four rows in a page, 8 values of k from each
        ("tn", 8, (2048, 2048)),  # rows that a step reads whole
    ],
)
def test_a_page_of_dram_is_opened_for_what_a_step_takes_of_it(
    layout: Layout, k: int, taken_bytes: tuple[int, int]
) -> None:
    dram = V100.gpu.dram.model_copy(update={"page_bytes": 2048.0, "activation_bytes": 64.0})
    arch = with_gpu(V100, dram=dram)
    planned = plan(arch.gpu, Gemm(4096, 4096, k, Dtype.FP32, layout=layout, order="column"), kernel(V100, VOLTA_SGEMM))
    costs = [(1 + 64 / taken) / (1 + 64 / 2048) for taken in taken_bytes]
    assert min(costs) - ROUNDING <= planned.main.traffic.read_cost <= max(costs) + ROUNDING


@pytest.mark.parametrize(
    ("name", "taken_bytes"),
    [
        (AMPERE_HGEMM, 4 * 32 * 2),  # five stages: four steps of 32 values of k are on their way
        (AMPERE_HGEMM.replace("32x5", "64x3"), 2 * 64 * 2),
    ],
)
def test_a_ring_asks_for_the_slices_of_several_steps_while_a_page_of_dram_is_open(name: str, taken_bytes: int) -> None:
    dram = A100.gpu.dram.model_copy(update={"page_bytes": 2048.0, "activation_bytes": 64.0})
    # All of L2: lines outlive the step, so that nothing is read again
    roomy = A100.gpu.l2.model_copy(update={"usable_fraction": 1.0})
    arch = with_gpu(A100, dram=dram, l2=roomy)
    planned = plan(arch.gpu, Gemm(128, 128, 4096, Dtype.FP16, layout="tn", order="column"), kernel(arch, name))
    assert planned.main.traffic.read_cost == pytest.approx((1 + 64 / taken_bytes) / (1 + 64 / 2048))


@pytest.mark.parametrize(("batch", "larger"), [(1, False), (640, True)])
def test_pieces_of_rows_cost_dram_the_rest_where_more_are_read_at_once_than_l2_holds(batch: int, larger: bool) -> None:
    costs = []
    for k in (1024, 1025):  # 8 values a step: a sector each, or parts of two
        gemm = Gemm(64, 128, k, Dtype.FP32, batch=batch, layout="tn")
        costs.append(plan(V100.gpu, gemm, kernel(V100, VOLTA_SGEMM)).main.traffic.read_cost)
    assert (costs[1] > 1.1 * costs[0]) == larger


@pytest.mark.parametrize(
    ("k", "rows", "unit", "touched"),
    [
        (1024, 4, 1, 4 * 32.0),
        (1024, 4, 128, 4 * 128.0),  # 32 aligned bytes of a line
        (1025, 4, 64, 4 * (32 + 64 - 4)),  # at any multiple of 4: one unit, and another 7 times of 16
        (10, 4, 64, 4 * 40.0),  # rows of 40 B follow each other
    ],
)
def test_a_slice_touches_whole_units_of_memory(k: int, rows: int, unit: int, touched: float) -> None:
    operand = problem_of(Gemm(64, 128, k, Dtype.FP32, layout="tn")).a
    assert operand.touched_bytes(rows, 8, unit) == pytest.approx(touched)


def held_up_cycles(gemm: Gemm) -> float:
    """Cycles of a step that pages which the TLB has forgotten hold up an SM's loads."""
    path = V100.gpu.load_store
    without = with_gpu(V100, load_store=path.model_copy(update={"tlb_miss_cycles": 0.0}))
    mine = kernel(V100, VOLTA_SGEMM)
    found = [plan(arch.gpu, gemm, mine).main.step.port_bytes for arch in (V100, without)]
    return (found[0] - found[1]) / V100.gpu.shared_memory.bandwidth_bytes_per_cycle


@pytest.mark.parametrize(
    ("k", "pages"),
    [
        (32_768, 0.0),  # rows of 128 KiB: (128 + 64) x 128 KiB lie on 12 pages of 2 MiB
        (65_536, 24.0),  # more than the 16 that are remembered
        (1_000_000, 192.0),  # rows of 4 MB: each has pages of its own
    ],
)
def test_rows_that_lie_on_more_pages_than_the_tlb_remembers_hold_up_every_step(k: int, pages: float) -> None:
    cycles = pages * V100.gpu.load_store.tlb_miss_cycles
    assert held_up_cycles(Gemm(64, 128, k, Dtype.FP32, layout="tn")) == pytest.approx(cycles)
    assert held_up_cycles(Gemm(64, 128, k, Dtype.FP32, layout="nt")) == 0.0  # goes on to other pages


@pytest.mark.parametrize(("n", "passes"), [(1024, 1.0), (1022, 1 + 3 * 0.75), (1021, 1 + 3 * 0.75)])
def test_results_that_are_not_aligned_are_written_element_by_element(n: int, passes: float) -> None:
    l2 = V100.gpu.l2.model_copy(update={"merged_fraction": 0.25})
    arch = with_gpu(V100, l2=l2)
    launch = plan(arch.gpu, Gemm(64, n, 64, Dtype.FP32), kernel(arch, VOLTA_SGEMM)).main
    assert launch.store_passes == pytest.approx(passes)
    # kernels of the Tensor Cores write C in whole lines
    assert plan(arch.gpu, Gemm(64, n, 64, Dtype.FP16), kernel(arch, VOLTA_HGEMM)).main.store_passes == 1.0


def test_streaming_an_operand_that_lies_along_k_takes_longer() -> None:
    times = []
    for layout in ("nn", "tn"):
        gemm = Gemm(8448, 16, 2816, Dtype.FP32, layout=layout, order="column")
        name = VOLTA_SGEMM.replace("tn", layout)
        times.append(predict(V100, gemm, Options(kernel=name)).kernel_time_us)
    assert times[0] < times[1]


def test_volta_stages_one_step_ahead_and_ampere_all_stages_but_one() -> None:
    volta = plan(V100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(V100, VOLTA_HGEMM))
    ampere = plan(A100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(A100, AMPERE_HGEMM))
    assert (volta.main.step.ahead, ampere.main.step.ahead) == (1, 5 - 1)
    # on Volta a warp writes what it has loaded to shared memory, on Ampere the load does
    assert [sum(isinstance(op, StoreShared) for op in loop_of(one)) for one in (volta, ampere)] == [1, 0]
    # the ring is filled before the loop, and each turn asks for the step four turns later
    assert [op.ahead for op in program_of(ampere) if isinstance(op, Load)] == [0, 0, 0, 0]
    assert [op.ahead for op in loop_of(ampere) if isinstance(op, Load)] == [4]


def test_loads_beyond_the_last_step_are_issued_and_bring_nothing() -> None:
    short = program_of(plan(A100.gpu, Gemm(1024, 1024, 64, Dtype.FP16), kernel(A100, AMPERE_HGEMM)))
    loads = [op for op in short if isinstance(op, Load)]
    assert [bool(op.reads) for op in loads] == [True, True, False, False]  # 64 of k are two steps
    assert len({op.instructions for op in loads}) == 1


def test_a_kernel_of_one_stage_loads_a_step_and_then_uses_it() -> None:
    gemv = next(one for one in A100.library.kernels if one.family.name.startswith("gemvx"))
    planned = plan(A100.gpu, Gemm(1, 64, 8192, Dtype.FP16), gemv)
    assert (gemv.stages, planned.main.step.ahead) == (1, 0)
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


def test_the_main_loop_turns_at_its_barrier() -> None:
    program = program_of(plan(A100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(A100, AMPERE_HGEMM)))
    loop = next(op for op in program if isinstance(op, Repeat))
    assert [isinstance(op, Barrier) for op in loop.body] == [False, False, False, True]
    assert isinstance(program[-1], Store)


def test_warpgroups_meet_before_a_tile_is_stored_and_until_it_has_been_taken() -> None:
    gemm = Gemm(1024, 1024, 1024, Dtype.FP16)
    producer, consumer = lower(plan(H100.gpu, gemm, kernel(H100, HOPPER_HGEMM)))[0].roles
    assert not any(isinstance(op, Barrier | Store) for op in flat(producer.program))
    assert [type(op) for op in consumer.program[-3:]] == [Barrier, Store, Barrier]


def test_the_reduction_reads_every_split_and_writes_the_result_once() -> None:
    gemm = Gemm(256, 512, 4096, Dtype.FP16)
    planned = plan(V100.gpu, gemm, kernel(V100, VOLTA_HGEMM), 4, "reduce")
    main, reduction = planned.schedules
    assert main.ctas * main.store_bytes == 4 * 256 * 512 * 4  # partial sums in FP32
    assert reduction.steps == 4
    assert reduction.ctas * reduction.steps * reduction.step.l2_bytes == 4 * 256 * 512 * 4
    assert reduction.ctas * reduction.store_bytes == 256 * 512 * 2
    assert not any(isinstance(op, SplitKFixup) for op in flat(lower(planned)[0].roles[0].program))


def test_splitting_inside_the_kernel_passes_partial_sums_down_a_chain() -> None:
    gemm = Gemm(256, 512, 4096, Dtype.FP32)
    planned = plan(V100.gpu, gemm, kernel(V100, VOLTA_SGEMM), 4, "in_kernel")
    assert len(planned.schedules) == 1
    launch = planned.main
    assert [op.times for op in flat(program_of(planned)) if isinstance(op, SplitKFixup)] == [3]
    assert launch.epilogue.fixup_bytes * launch.math_warps == 128 * 64 * 4
    assert launch.ctas * launch.store_bytes == 256 * 512 * 4  # one of the four writes C


def test_splits_of_a_tile_that_run_one_after_the_other_do_not_wait_for_each_other() -> None:
    # 32 x 64 tiles on 80 SMs with 4 CTAs each: the next split of a tile starts when the one before it is long done
    planned = plan(V100.gpu, Gemm(4096, 4096, 8192, Dtype.FP32), kernel(V100, VOLTA_SGEMM), 8, "in_kernel")
    assert [op.times for op in flat(program_of(planned)) if isinstance(op, SplitKFixup)] == [1]


@pytest.mark.parametrize(
    ("k", "over"),
    [
        # FP16 rows of k: 2 B x k; the widest power of two that divides it is the rows' alignment. A tile's run of
        # 32 of k (64 B) touches (32 - alignment) bytes more on average.
        (1024, 0),  # 2048 B rows: whole sectors
        (1008, 0),  # 2016 B = 63 x 32
        (1000, 16 / 64),  # 2000 B = 125 x 16
        (1004, 24 / 64),  # 2008 B = 251 x 8
        (1002, 28 / 64),
        (1001, 30 / 64),
    ],
)
def test_rows_that_start_inside_a_sector_fetch_it_whole(k: int, over: float) -> None:
    launch = plan(V100.gpu, Gemm(1024, 1024, k, Dtype.FP16), kernel(V100, VOLTA_HGEMM)).main
    asked = (128 + 128) * k * 2
    assert launch.steps * launch.step.l2_bytes == pytest.approx(asked * (1 + over))


@pytest.mark.parametrize(
    ("layout", "m", "n", "k", "over_a", "over_b"),
    [
        # BLAS terms, column-major C: A runs along k when transposed, else along m; B along k when not, else along n.
        ("tn", 1024, 1024, 1000, 16 / 64, 16 / 64),  # both along k: runs of 32 x 2 B
        ("nn", 1024, 1024, 1000, 0, 16 / 64),
        ("nt", 1024, 1000, 1024, 0, 16 / 256),  # B along n: runs of 128 x 2 B
        ("nt", 1000, 1024, 1024, 16 / 256, 0),
        ("tt", 1024, 1000, 1024, 0, 16 / 256),
    ],
)
def test_the_layout_says_which_dimension_has_to_be_aligned(
    layout: str, m: int, n: int, k: int, over_a: float, over_b: float
) -> None:
    gemm = Gemm(m, n, k, Dtype.FP16, layout=layout, order="column")
    launch = plan(V100.gpu, gemm, kernel(V100, VOLTA_HGEMM)).main
    asked_a, asked_b = 8 * m * k * 2, 8 * n * k * 2  # 8 tiles along the other dimension need each operand
    fetched = launch.ctas * launch.steps * launch.step.l2_bytes
    assert fetched == pytest.approx(asked_a * (1 + over_a) + asked_b * (1 + over_b))


def test_odd_rows_are_loaded_in_narrow_pieces_that_waste_the_port() -> None:
    aligned = plan(A100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(A100, AMPERE_HGEMM)).main
    odd = plan(A100.gpu, Gemm(1024, 1024, 1023, Dtype.FP16), kernel(A100, AMPERE_HGEMM)).main
    assert aligned.step.port_bytes == aligned.step.l2_bytes
    assert odd.step.port_bytes == pytest.approx(2 * odd.step.l2_bytes)  # 2 B in banks of 4
    assert odd.step.ahead == 1  # cp.async moves 4, 8 or 16 B (PTX ISA); narrower ones pass registers


@pytest.mark.parametrize(("alignment", "pieces"), [(2, 4), (1, 8)])
def test_each_piece_of_a_threads_access_passes_l1_as_long_as_the_whole(alignment: int, pieces: int) -> None:
    # A step of 128 x 32 halves: of A 32 columns of 256 B that lie anywhere, so on 2 to 3 lines; of B 128 rows of 64 B,
    # each on a line of its own or two. A line passes in a cycle, 128 B of the port.
    k = 1024 + alignment
    gemm = Gemm(1024 + alignment, 1024, k, Dtype.FP16, layout="nn", order="column")
    name = f"cutlass_70_tensorop_f16_s884gemm_f16_128x128_tn_align{alignment}"
    launch = plan(V100.gpu, gemm, kernel(V100, name)).main
    lines_a = 32 * (256 + 128 - 2 * alignment) / 128
    lines_b = 128 * (64 + 128 - 2 * alignment) / 128
    rows = 1024 + alignment
    share_a, share_b = rows / 9 / 128 * k / (33 * 32), k / (33 * 32)
    assert launch.step.port_bytes == pytest.approx((lines_a * share_a + lines_b * share_b) * pieces * 128)
    assert launch.step.shared_write_bytes == pytest.approx(
        (rows / 9 * 2 + 128 * 2) * k / 33
    )  # gathered in registers first: shared memory is filled 16 B at a time


# Laws

SIZES = st.integers(min_value=1, max_value=5000)
NAMES = st.sampled_from(["V100-SXM2-16GB", "T4", "A100-SXM4-80GB", "RTX-3090"])
DTYPES = st.sampled_from([Dtype.FP32, Dtype.FP16])
LAYOUTS = st.sampled_from(["nn", "nt", "tn", "tt"])


def drawn_plan(data: st.DataObject, name: str, gemm: Gemm) -> GemmPlan | None:
    """A plan of a workload on some kernel and split; None if that kernel does not fit."""
    arch = load_spec(name).system
    chosen = data.draw(st.sampled_from(suited(arch, gemm)))
    modes: list[tuple[int, SplitKMode]] = [(1, "in_kernel")]
    modes += [(split, mode) for split in (2, 3, 5, 8) for mode in chosen.family.split_k]
    split_k, mode = data.draw(st.sampled_from(modes))
    try:
        return plan(arch.gpu, gemm, chosen, split_k, mode)
    except DoesNotFitError:
        return None


@settings(derandomize=True, max_examples=200)
@given(st.data(), NAMES, DTYPES, SIZES, SIZES, SIZES, st.integers(min_value=1, max_value=8))
def test_ctas_cover_every_result_and_every_row_of_k(
    data: st.DataObject, name: str, dtype: Dtype, m: int, n: int, k: int, batch: int
) -> None:
    gemm = Gemm(m, n, k, dtype, batch=batch)
    planned = drawn_plan(data, name, gemm)
    if planned is None:
        return
    launch, used, shape = planned.main, planned.kernel, problem_of(gemm)
    tiles_m, tiles_n, depth = launch.grid.extents
    assert tiles_m * used.tile_m >= shape.m > (tiles_m - 1) * used.tile_m
    assert tiles_n * used.tile_n >= shape.n > (tiles_n - 1) * used.tile_n
    assert depth == batch * planned.split_k
    assert launch.ctas == math.prod(launch.grid.extents)
    assert planned.split_k * launch.steps * used.tile_k >= shape.k
    # no split has a step more than its share of them
    assert (launch.steps - 1) * planned.split_k < -(-shape.k // used.tile_k)
    assert launch.fma >= gemm.flops / 2


@settings(derandomize=True, max_examples=200)
@given(st.data(), NAMES, DTYPES, LAYOUTS, SIZES, SIZES, SIZES, st.integers(min_value=1, max_value=8))
def test_loads_of_all_ctas_are_the_bytes_asked_from_l2_when_rows_fill_sectors(
    data: st.DataObject, name: str, dtype: Dtype, layout: str, m: int, n: int, k: int, batch: int
) -> None:
    m, n, k = 16 * -(-m // 16), 16 * -(-n // 16), 16 * -(-k // 16)  # 16 elements of 2 B are a sector
    planned = drawn_plan(data, name, Gemm(m, n, k, dtype, batch=batch, layout=layout))
    if planned is None:
        return
    launch = planned.main
    loaded = launch.ctas * launch.steps * launch.step.l2_bytes
    assert loaded == pytest.approx(launch.traffic.l2_read_bytes, rel=ROUNDING)
    # each of the tiles along the other dimension loads an operand once
    tiles_m, tiles_n, _ = launch.grid.extents
    library_m, library_n = n, m
    by_hand = batch * (tiles_n * library_m + tiles_m * library_n) * k * dtype.bits / 8
    assert loaded == pytest.approx(by_hand, rel=ROUNDING)


@settings(derandomize=True, max_examples=200)
@given(st.data(), NAMES, DTYPES, LAYOUTS, SIZES, SIZES, SIZES)
def test_rows_that_do_not_fill_sectors_never_fetch_less_and_never_twice(
    data: st.DataObject, name: str, dtype: Dtype, layout: str, m: int, n: int, k: int
) -> None:
    planned = drawn_plan(data, name, Gemm(m, n, k, dtype, layout=layout))
    if planned is None:
        return
    launch = planned.main
    loaded = launch.ctas * launch.steps * launch.step.l2_bytes
    tiles_m, tiles_n, _ = launch.grid.extents
    wanted = (tiles_n * n + tiles_m * m) * k * dtype.bits / 8  # a row-major n is the library's m
    # a run of at least a sector touches at most one sector more
    assert wanted * (1 - ROUNDING) <= loaded < 2 * wanted


@settings(derandomize=True, max_examples=200)
@given(st.data(), NAMES, DTYPES, SIZES, SIZES, SIZES, st.integers(min_value=1, max_value=8))
def test_the_result_is_written_once(
    data: st.DataObject, name: str, dtype: Dtype, m: int, n: int, k: int, batch: int
) -> None:
    planned = drawn_plan(data, name, Gemm(m, n, k, dtype, batch=batch))
    if planned is None or not planned.kernel.family.stores_result:
        return
    last = planned.schedules[-1]
    assert last.ctas * last.store_bytes == pytest.approx(batch * m * n * dtype.output_bits / 8, rel=ROUNDING)
    assert last.traffic.dram_write_bytes == pytest.approx(batch * m * n * dtype.output_bits / 8, rel=ROUNDING)


@settings(derandomize=True, max_examples=100)
@given(st.data(), NAMES, DTYPES, SIZES, SIZES, SIZES)
def test_the_grid_sends_every_cta_to_a_tile_of_its_own(
    data: st.DataObject, name: str, dtype: Dtype, m: int, n: int, k: int
) -> None:
    planned = drawn_plan(data, name, Gemm(m, n, k, dtype, batch=2))
    if planned is None or planned.main.ctas > 20_000:
        return
    launch = planned.main
    tiles_m, tiles_n, _ = launch.grid.extents
    places = {launch.grid.coordinates(cta) for cta in range(launch.ctas)}
    assert len(places) == launch.ctas
    products, splits, across, down = (set(axis) for axis in zip(*places, strict=True))
    assert (products, splits) == (set(range(2)), set(range(planned.split_k)))
    assert (across, down) == (set(range(tiles_m)), set(range(tiles_n)))
    x_bytes, y_bytes = (block.block_bytes for block in launch.step.blocks)
    panels = (tiles_m * x_bytes + tiles_n * y_bytes) * launch.steps * planned.split_k
    assert panels == pytest.approx((m + n) * k * dtype.bits / 8, rel=ROUNDING)  # both operands, once
    assert x_bytes + y_bytes <= launch.step.l2_bytes * (1 + ROUNDING)  # loads take whole sectors


@settings(derandomize=True, max_examples=40, deadline=None)
@given(NAMES, DTYPES, LAYOUTS, SIZES, SIZES, SIZES, st.booleans())
def test_a_row_major_product_takes_as_long_as_its_column_major_transpose(
    name: str, dtype: Dtype, layout: str, m: int, n: int, k: int, warm: bool
) -> None:
    arch = load_spec(name).system
    options = Options(l2="warm" if warm else "cold", load="burst")
    by_rows = predict(arch, Gemm(m, n, k, dtype, layout=layout, order="row"), options)
    by_columns = predict(arch, Gemm(n, m, k, dtype, layout=layout, order="column"), options)
    assert by_rows.time_us == by_columns.time_us
    assert (by_rows.kernel, by_rows.grid) == (by_columns.kernel, by_columns.grid)
    assert by_rows.dram_bytes == by_columns.dram_bytes
