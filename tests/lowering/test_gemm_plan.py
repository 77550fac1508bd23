"""Plans of a GEMM: grids and steps by hand, and no byte, product or row of k lost on the way."""

import math
from dataclasses import replace

import pytest
from gemm_kernels import DTYPES, LAYOUTS, NAMES, SIZES, V100, VOLTA_HGEMM, VOLTA_SGEMM, drawn_plan, kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.lowering.gemm.plan import plan
from gpusim.lowering.gemm.problem import problem_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.timing import time_plan
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

ROUNDING = 1e-9  # relative; sums of averages


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


def test_a_memset_clears_what_splits_within_a_kernel_count_in() -> None:
    fp32, fp16 = (Gemm(256, 256, 4096, dtype) for dtype in (Dtype.FP32, Dtype.FP16))
    sgemm, hgemm = kernel(V100, VOLTA_SGEMM), kernel(V100, VOLTA_HGEMM)
    assert plan(V100.gpu, fp32, sgemm, 3, "in_kernel").memsets == 1
    assert plan(V100.gpu, fp32, sgemm, 1).memsets == 0
    assert plan(V100.gpu, fp16, hgemm, 3, "reduce").memsets == 0


def test_a_product_that_is_split_within_a_kernel_takes_the_memset_longer() -> None:
    gemm, alone = Gemm(512, 32, 2048, Dtype.FP32), Options(load="burst")
    none, short, long = (
        predict(V100.with_values([("front_end.memset_us", us)]), gemm, alone) for us in (1.0, 2.0, 50.0)
    )
    assert short.launch.split_k > 1
    assert short.kernel_time_us == pytest.approx(none.kernel_time_us + 1.0)
    assert long.launch.split_k == 1  # the library reckons with it


def test_a_batch_is_a_third_dimension_of_the_grid() -> None:
    planned = plan(V100.gpu, Gemm(256, 256, 64, Dtype.FP16, batch=7), kernel(V100, VOLTA_HGEMM))
    assert planned.main.grid.extents == (2, 2, 7)
    assert planned.main.ctas == 28


def test_a_step_of_one_cta_by_hand() -> None:
    planned = plan(V100.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(V100, VOLTA_HGEMM))
    launch = planned.main
    assert launch.step.l2_bytes == (128 + 128) * 32 * 2
    # 4 warps of 64 x 64 x 32, instructions of 16 x 16 x 4: 4 x 4 x 8 in 8 slices of k
    assert (launch.warps, launch.kernel.loop.mma_instructions, launch.kernel.loop.k_groups) == (4, 128, 8)
    assert (
        launch.kernel.loop.operand_bytes == 2 * (64 + 64) * 32 * 2
    )  # a warp reads its rows and columns into two threads each
    assert launch.step.shared_write_bytes == (128 + 128) * 32 * 2
    assert launch.store_bytes == 128 * 128 * 2
    # 64 x 64 tiles of 128 x 128 on 80 SMs with 2 CTAs each (232 registers: 2 warps a sub-partition)
    assert launch.kernel.occupancy.ctas == 2
    assert planned.totals[0].waves(V100.gpu) == 64 / 160
    assert launch.ctas_on_busiest_sm(V100.gpu) == 1


def test_a_thread_of_a_cuda_core_tile_reads_the_rows_and_columns_of_its_square() -> None:
    # 128 x 64 by 2 x 2 warps: 64 x 32 a warp, 64 results a thread: 8 + 8 operands of 4 B for 32 lanes and 8 of k;
    # what lanes share passes the port together
    launch = plan(V100.gpu, Gemm(1024, 1024, 1024, Dtype.FP32), kernel(V100, VOLTA_SGEMM)).main
    alone = (8 + 8) * 4 * 32 * 8
    assert launch.kernel.loop.operand_bytes == pytest.approx(alone * V100.gpu.shared_memory.broadcast_fraction)
    assert launch.kernel.loop.mma_instructions == 64 * 8


# Laws


@settings(max_examples=200)
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


@settings(max_examples=200)
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


@settings(max_examples=200)
@given(st.data(), NAMES, DTYPES, LAYOUTS, SIZES, SIZES, SIZES)
def test_rows_that_do_not_fill_sectors_never_fetch_less_and_never_twice(
    data: st.DataObject, name: str, dtype: Dtype, layout: str, m: int, n: int, k: int
) -> None:
    gemm = Gemm(m, n, k, dtype, layout=layout)
    planned = drawn_plan(data, name, gemm)
    if planned is None:
        return
    launch, shape = planned.main, problem_of(gemm)
    loaded = launch.ctas * launch.steps * launch.step.l2_bytes
    tiles_m, tiles_n, _ = launch.grid.extents
    wanted = (tiles_n * shape.m + tiles_m * shape.n) * k * dtype.bits / 8
    # a run of at least a sector touches at most one sector more
    assert wanted * (1 - ROUNDING) <= loaded < 2 * wanted


@settings(max_examples=200)
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


@settings(max_examples=100)
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


@settings(max_examples=40)
@given(NAMES, DTYPES, LAYOUTS, SIZES, SIZES, SIZES, st.booleans())
def test_a_row_major_product_takes_as_long_as_its_column_major_transpose(
    name: str, dtype: Dtype, layout: str, m: int, n: int, k: int, warm: bool
) -> None:
    arch = load_spec(name).system
    options = Options(l2="warm" if warm else "cold", load="burst")
    by_rows = predict(arch, Gemm(m, n, k, dtype, layout=layout, order="row"), options)
    by_columns = predict(arch, Gemm(n, m, k, dtype, layout=layout, order="column"), options)
    assert by_rows.time_us == by_columns.time_us
    assert (by_rows.kernel, by_rows.launch.grid) == (by_columns.kernel, by_columns.launch.grid)
    assert by_rows.counters.dram_bytes == by_columns.counters.dram_bytes


def test_shared_bytes_are_data_whatever_the_width_of_the_port() -> None:
    # operands along k are stored element by element, halves at half of the port's width: port time, not data
    hgemm = "cutlass_simt_hgemm_128x64_8x2_tn_align1"
    launch = plan(V100.gpu, Gemm(512, 512, 512, Dtype.FP16, layout="tn"), kernel(V100, hgemm)).main
    used = launch.kernel
    staged = (launch.shared_bytes / launch.ctas / launch.steps) - used.math_warps * used.loop.operand_bytes
    assert staged == pytest.approx((128 + 64) * 8 * 2)
    assert launch.shared_port_bytes - launch.shared_bytes == pytest.approx(launch.ctas * launch.steps * staged)


@pytest.mark.parametrize(
    ("m", "n", "k", "layout", "tile", "split_k", "recorded_us"),
    [
        # Kernels of a training with one GPU in a public trace, whose sums do not fit the workspace of 4 MiB
        (1024, 128, 4864, "nn", "128x128_32x3", 12, 89.0),
        (256, 1440, 1024, "nt", "64x128_32x3", 4, 31.0),
    ],
)
def test_ctas_of_a_split_k_chain_go_through_their_epilogues_one_after_the_other(
    m: int, n: int, k: int, layout: str, tile: str, split_k: int, recorded_us: float
) -> None:
    system, gemm = load_spec("A100-SXM4-40GB").system, Gemm(m, n, k, Dtype.TF32, layout=layout)
    name = f"cutlass_80_tensorop_s1688gemm_{tile}_{layout}_align4"
    chosen = next(one for one in system.library.kernels if one.printed_name(layout, Dtype.TF32) == name)
    timed = time_plan(system, plan(system.gpu, gemm, chosen, split_k), Options(load="burst"))
    assert timed.kernel_time_us == pytest.approx(recorded_us, rel=0.1)
    # Where each SM has a CTA of a tile of its own, none waits for another's.
    whole = plan(system.gpu, Gemm(4096, 4096, k, Dtype.TF32, layout=layout), chosen, 2).main.epilogue
    assert whole.setup_cycles == plan(system.gpu, gemm, chosen).main.epilogue.setup_cycles


def test_partial_sums_are_stored_as_the_result_where_that_has_16_bits() -> None:
    a100 = load_spec("A100-SXM4-80GB").system
    for dtype, size in ((Dtype.BF16, 2), (Dtype.FP16, 2), (Dtype.TF32, 4)):
        gemm = Gemm(448, 256, 2048, dtype)
        used = next(
            one for one in a100.library.kernels if dtype in one.family.inputs and "reduce" in one.family.split_k
        )
        main, second = plan(a100.gpu, gemm, used, 4, "reduce").schedules
        assert main.ctas * main.store_bytes == pytest.approx(4 * 448 * 256 * size)
        assert second.l2_bytes == pytest.approx((4 * size + gemm.output_bits / 8) * 448 * 256)


def test_the_second_kernel_of_a_split_takes_tiles_of_32_by_16_results() -> None:
    a100 = load_spec("A100-SXM4-40GB").system
    used = next(one for one in a100.library.kernels if "sgemm_32x32_sliced1x4" in one.printed_name("tn", Dtype.FP32))
    second = plan(a100.gpu, Gemm(32, 1000, 2048, Dtype.FP32), used, 5, "reduce").schedules[-1]
    assert second.grid.ctas == 32 * 2  # a trace of ResNet-50 has 32 x 2 x 1
    assert second.steps == 2  # four parts at once, then one


SECOND_KERNELS = [
    # Kernels of public traces, all of which add a bias
    ("A100-SXM4-80GB", Dtype.BF16, "128x64_ldg8_f2f_stages_64x4", (448, 256, 2048), 4, 3.0),
    ("H100-SXM5-80GB", Dtype.BF16, "", (5, 768, 3072), 5, 2.34),
    pytest.param(
        *("A100-SXM4-40GB", Dtype.FP32, "sgemm_32x32_sliced1x4", (32, 1000, 2048), 5, 3.55),
        marks=pytest.mark.xfail(strict=True, reason="code of another kernel ran before: calibration/deviations.md"),
    ),
    pytest.param(
        *("V100-SXM2-32GB", Dtype.FP32, "sgemm_64x32_sliced1x4", (32, 1000, 2048), 5, 4.70),
        marks=pytest.mark.xfail(strict=True, reason="code of another kernel ran before: calibration/deviations.md"),
    ),
]


@pytest.mark.parametrize(("board", "dtype", "tile", "shape", "split_k", "recorded_us"), SECOND_KERNELS)
def test_second_kernels_take_as_long_as_traces_recorded(
    board: str, dtype: Dtype, tile: str, shape: tuple[int, int, int], split_k: int, recorded_us: float
) -> None:
    system, gemm = load_spec(board).system, Gemm(*shape, dtype, layout="tn", op="linear", bias=True)
    kernels = (one for one in system.library.kernels if tile in one.printed_name("tn", dtype))
    used = next(one for one in kernels if dtype in one.family.inputs and "reduce" in one.family.split_k)
    timed = time_plan(system, plan(system.gpu, gemm, used, split_k, "reduce"), Options(load="burst"))
    second_us = timed.outcomes[-1].cycles / system.gpu.clock.boost_mhz + system.gpu.front_end.kernel_latency_us
    assert second_us == pytest.approx(recorded_us, rel=0.2)


@pytest.mark.parametrize(
    ("n", "k", "recorded_us", "within"),
    # Kernels of a public trace (pytorch-labs/segment-anything-fast): gemmSN_NN_kernel<float, 128, 2, 4, 8, 4, 4>
    [(7, 32, 6.0, 0.25), (32, 7, 6.0, 0.25), (4096, 16, 256.0, 0.37), (16, 4096, 357.0, 0.3)],
)
def test_batches_of_few_columns_take_about_as_long_as_traces_recorded(
    n: int, k: int, recorded_us: float, within: float
) -> None:
    gemm = Gemm(7, n, k, Dtype.FP32, batch=512, layout="nn")
    timed = predict(load_spec("A100-SXM4-40GB").system, gemm, Options(kernel="gemmSN_NN_kernel_64x4_128", load="burst"))
    assert timed.kernel_time_us == pytest.approx(recorded_us, rel=within)


@pytest.mark.parametrize(
    ("tile", "m", "n", "k", "recorded_us"),
    [
        # Kernels of a public trace with one CTA on an SM at most: nothing hides what an iteration waits for
        ("32x32_sliced1x4", 64, 4, 256, 10.0),
        ("64x32_sliced1x4", 448, 256, 2048, 75.0),
        pytest.param(
            *("32x32_sliced1x4", 448, 128, 256, 13.0),
            marks=pytest.mark.xfail(strict=True, reason="a third longer: experiments/calibration/deviations.md"),
        ),
    ],
)
def test_iterations_of_sliced_kernels_wait_for_loads_that_they_issue_late(
    tile: str, m: int, n: int, k: int, recorded_us: float
) -> None:
    system, gemm = load_spec("A100-SXM4-40GB").system, Gemm(m, n, k, Dtype.FP32, layout="tn")
    name = f"ampere_sgemm_{tile}_tn"
    used = next(one for one in system.library.kernels if one.printed_name("tn", Dtype.FP32) == name)
    timed = time_plan(system, plan(system.gpu, gemm, used), Options(load="burst"))
    assert timed.kernel_time_us == pytest.approx(recorded_us, rel=0.16)
    early = replace(used, loads_at=(0.0, 1.0))
    assert time_plan(system, plan(system.gpu, gemm, early), Options(load="burst")).kernel_time_us < timed.kernel_time_us


def test_each_cta_of_a_split_sgemm_goes_through_its_epilogue_before_the_next_one() -> None:
    v100 = load_spec("V100-SXM2-16GB").system
    used = next(one for one in v100.library.kernels if "sgemm_128x32_sliced1x4" in one.printed_name("nn", Dtype.FP32))
    whole, parts = (plan(v100.gpu, Gemm(32, 1760, 1760, Dtype.FP32), used, split_k, "in_kernel") for split_k in (1, 5))
    links_cycles = parts.main.epilogue.setup_cycles - whole.main.epilogue.setup_cycles
    # As compiled, 64 sums of a thread are added to C in eight passes, each of which waits for what the last asked for.
    assert links_cycles == pytest.approx(4 * 8 * v100.gpu.l2.latency_cycles)


def test_iterations_of_the_smallest_sgemm_tile_on_volta_are_bound_by_latency() -> None:
    v100 = load_spec("V100-SXM2-16GB", cuda=10).system
    used = next(one for one in v100.library.kernels if "sgemm_32x32_sliced1x4" in one.printed_name("nn", Dtype.FP32))
    short, long = (
        time_plan(v100, plan(v100.gpu, Gemm(32, 1760, k, Dtype.FP32, layout="nn"), used), Options(load="burst"))
        for k in (1024, 2048)
    )
    iteration_cycles = (long.kernel_time_us - short.kernel_time_us) * v100.gpu.clock.boost_mhz / 32
    # DeepBench's rows for calibration with 16 and 32 columns and k of 512 to 2560; the multiply-adds take 512.
    assert iteration_cycles == pytest.approx(900, rel=0.15)


def test_reported_shared_memory_limits_ctas_where_it_is_more_than_the_stages_take() -> None:
    v100 = load_spec("V100-SXM2-16GB", cuda=10).system
    used = next(one for one in v100.library.kernels if "sgemm_32x32_sliced1x4" in one.printed_name("tn", Dtype.FP32))
    main = plan(v100.gpu, Gemm(32, 1000, 2048, Dtype.FP32), used).main
    resident = main.kernel.occupancy
    assert (resident.ctas, resident.limiter) == (3, "shared_memory")  # of 32 KiB; two stages take 16
