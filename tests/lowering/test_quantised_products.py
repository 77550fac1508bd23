"""Products of quantised operands: which kernel a program launches, and what its launches move and compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.lowering.quantised import QuantisedPlan, quantising
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import launches_of, ranked_plans
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.specs import load_spec
from gpusim.system import System
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, RowReduction
from gpusim.workloads.operators import parse_operator

QUICK = Options(load="burst", limits=False)


def system(name: str) -> System:
    return load_spec(name).system


def planned(board: str, gemm: Gemm) -> GemmPlan:
    plan = ranked_plans(system(board), gemm)[0].plan
    assert isinstance(plan, GemmPlan)
    return plan


def time_us(board: str, operator: Any, **changed: Any) -> float:
    return predict(system(board), operator, replace(QUICK, **changed)).kernel_time_us


def scaled(m: int, n: int, k: int, dtype: str = "fp8", **more: Any) -> Gemm:
    return Gemm(m, n, k, Dtype(dtype), scales="row", output="bf16", **more)


# What vLLM's sources launch: tile as features, tokens, k; CTAs of a cluster along them.
@pytest.mark.parametrize(
    ("board", "gemm", "tile", "cluster"),
    [
        ("h100-sxm", scaled(1, 1280, 4096), (64, 16, 256), (1, 2)),
        ("h100-sxm", scaled(16, 1296, 4096), (64, 16, 256), (1, 1)),
        ("h100-sxm", scaled(17, 1280, 4096), (64, 16, 256), (1, 4)),
        ("h100-sxm", scaled(64, 4096, 4096), (64, 64, 256), (1, 1)),
        ("h100-sxm", scaled(65, 4096, 4096), (128, 64, 128), (1, 2)),
        ("h100-sxm", scaled(129, 4096, 4096), (128, 128, 128), (1, 2)),
        ("h100-sxm", scaled(8192, 4096, 4096), (128, 128, 128), (1, 2)),
        ("h100-sxm", scaled(8192, 4096, 6144), (128, 256, 128), (1, 2)),
        ("l40s", scaled(16, 8192, 4096), (64, 16, 128), (1, 1)),
        ("l40s", scaled(16, 8208, 4096), (128, 16, 64), (1, 1)),
        ("l40s", scaled(300, 4096, 4096), (128, 128, 64), (1, 1)),
        ("l40s", scaled(300, 8192, 4096), (128, 256, 64), (1, 1)),
        ("l40s", scaled(300, 8192, 4096, "int8"), (128, 256, 64), (1, 1)),
        ("a100-sxm4-80gb", scaled(100, 8192, 4096, "int8"), (128, 128, 64), (1, 1)),
        ("t4", scaled(200, 4096, 4096, "int8"), (128, 128, 128), (1, 1)),
    ],
)
def test_the_kernel_goes_by_tokens_features_and_k(
    board: str, gemm: Gemm, tile: tuple[int, int, int], cluster: tuple[int, int]
) -> None:
    kernel = planned(board, gemm).kernel
    assert (kernel.tile_m, kernel.tile_n, kernel.tile_k) == tile
    assert (kernel.cluster_m, kernel.cluster_n) == cluster


def test_scales_and_none_choose_among_other_kernels() -> None:
    with_scales, without = (planned("h100-sxm", replace(scaled(512, 4096, 4096), scales=one)) for one in ("row", ""))
    assert with_scales.kernel.family.scales
    assert not without.kernel.family.scales


def test_clusters_are_whole_where_the_program_rounds_up() -> None:
    # 257 tokens are 3 tiles of 128, a cluster takes two: 4
    assert planned("h100-sxm", scaled(257, 256, 512)).grid.y == 4
    assert planned("h100-sxm", scaled(256, 256, 512)).grid.y == 2


def test_the_call_that_quantises_has_a_launch_more() -> None:
    gemm = scaled(300, 512, 1024)
    quantised = replace(gemm, quantise="kernel")
    plan = ranked_plans(system("h100-sxm"), quantised)[0].plan
    assert isinstance(plan, QuantisedPlan)
    gpu = system("h100-sxm").gpu
    assert len(launches_of(gpu, plan)) == 2
    assert len(plan.totals) == 2
    alone, together = time_us("h100-sxm", gemm), time_us("h100-sxm", quantised)
    before = time_us("h100-sxm", quantising(quantised), l2="warm")
    # two kernels of a graph with the gap between them
    assert together == pytest.approx(alone + before + system("h100-sxm").host.graph_gap_us, rel=1e-6)


def test_quantisation_reads_halves_and_writes_bytes_and_scales() -> None:
    operator = quantising(scaled(300, 512, 1024, quantise="kernel"))
    assert operator.operand_bytes == 300 * 1024 * 2
    assert operator.result_bytes == 300 * 1024 + 300 * 4


def test_a_compiled_quantisation_takes_blocks_whatever_the_row_has() -> None:
    def of_row(k: int) -> float:
        rows = RowReduction(
            "quantise",
            4096,
            k,
            (Access(4096 * k, Dtype.BF16),),
            (Access(4096 * k, Dtype.FP8), Access(4096, Dtype.FP32)),
        )
        return time_us("h100-sxm", rows, kernel="triton_red_fused_quantise", l2="warm")

    short, block, two = of_row(64), of_row(2048), of_row(4096)
    assert short == pytest.approx(block, rel=0.1)
    assert two > 1.4 * block


def test_results_in_local_memory_pass_between_sm_and_l2() -> None:
    plan = planned("l40s", scaled(512, 4096, 4096))
    family = plan.kernel.family
    bytes_of_result = family.main_loop.local_bytes.value  # type: ignore[union-attr]
    without = replace(plan.main, epilogue=replace(plan.main.epilogue, local_bytes=0.0))
    assert plan.main.l2_bytes - without.l2_bytes == pytest.approx(bytes_of_result * 512 * 4096)


# Weights that are narrower than activations


def weights(m: int, n: int, k: int, b_dtype: str, group: int | None = None) -> Gemm:
    return Gemm(m, n, k, Dtype.FP16, b_dtype=Dtype(b_dtype), group=group)


def test_narrow_weights_are_read_at_their_bits_with_their_scales() -> None:
    assert weights(16, 512, 1024, "int4").operand_bytes == 16 * 1024 * 2 + 512 * 1024 / 2
    # a scale of 16 bits for 128 weights of 4: an eighth of a bit each
    assert weights(16, 512, 1024, "int4", 128).operand_bytes == 16 * 1024 * 2 + 512 * 1024 * 4.125 / 8
    plan = planned("a100-sxm4-80gb", weights(16, 8192, 8192, "int4"))
    a, _ = plan.main.step.blocks
    wide = planned("a100-sxm4-80gb", weights(16, 8192, 8192, "int8"))
    assert plan.kernel.tile_m == wide.kernel.tile_m
    assert a.block_bytes == pytest.approx(plan.kernel.tile_m * plan.kernel.tile_k / 2)


@pytest.mark.parametrize(
    ("board", "group"), [("a100-sxm4-80gb", None), ("l40s", None), ("h100-sxm", None), ("t4", 128)]
)
def test_few_tokens_take_less_the_narrower_the_weights(board: str, group: int | None) -> None:
    four, eight = (time_us(board, weights(4, 16384, 8192, b_dtype, group)) for b_dtype in ("int4", "int8"))
    dense = time_us(board, Gemm(4, 16384, 8192, Dtype.FP16))
    assert four < 0.75 * eight
    assert eight < 0.75 * dense


def test_warps_convert_weights_between_loading_and_multiplying_them() -> None:
    plan = planned("a100-sxm4-80gb", weights(4096, 4096, 4096, "int4"))
    kernel, loop = plan.kernel, plan.kernel.family.main_loop
    each = sum(loop.dequantising.int4.value.by_pipe.values())  # type: ignore[union-attr]
    warp_m, _, warp_k = kernel.warp_tile
    converted = each * warp_m * warp_k / 32
    assert plan.main.kernel.loop.step_instructions == pytest.approx(loop.step_instructions.value + converted)


def test_a_program_that_times_its_kernels_does_so_with_powers_of_two() -> None:
    names = {m: planned("a100-sxm4-80gb", weights(m, 4096, 4096, "int8")).kernel.label for m in (65, 100, 128)}
    assert len(set(names.values())) == 1


def test_groups_of_weights_are_marlins() -> None:
    plan = planned("a100-sxm4-80gb", weights(16, 4096, 4096, "int4", 128))
    assert plan.name.startswith("marlin")
    with pytest.raises(UnsupportedError, match="no fp16 by int4 in groups of 100 multiplication"):
        _ = planned("a100-sxm4-80gb", weights(16, 4096, 4096, "int4", 100))


# Groups of rows with weights of their own


def grouped(counts: tuple[int, ...], n: int = 1024, k: int = 2048) -> Gemm:
    return Gemm(sum(counts), n, k, Dtype.BF16, counts=counts)


def test_even_groups_take_what_a_batch_takes() -> None:
    batch = Gemm(256, 1024, 2048, Dtype.BF16, batch=8)
    assert time_us("a100-sxm4-80gb", grouped((256,) * 8)) == pytest.approx(time_us("a100-sxm4-80gb", batch), rel=0.02)


@pytest.mark.parametrize(("n", "k"), [(1536, 2048), (2048, 768)])
def test_even_groups_are_multiplied_by_the_kernels_of_a_batch(n: int, k: int) -> None:
    groups, batch = grouped((512,) * 32, n, k), Gemm(512, n, k, Dtype.BF16, batch=32)
    names = [ranked_plans(system("h100-sxm"), gemm)[0].name for gemm in (groups, batch)]
    assert names[0] == names[1]
    assert time_us("h100-sxm", groups) == pytest.approx(time_us("h100-sxm", batch), rel=0.01)


def test_each_group_with_rows_reads_weights_and_has_tiles_of_its_own() -> None:
    gemm = grouped((100, 0, 3, 1))
    assert gemm.operand_bytes == (104 * 2048 + 3 * 1024 * 2048) * 2
    plan = planned("a100-sxm4-80gb", gemm)
    tiles = sum(-(-count // plan.kernel.tile_n) for count in (100, 3, 1))
    assert plan.grid.y * plan.grid.batch >= tiles
    assert plan.split_k == 1


def test_skewed_groups_take_longer_than_their_rows_in_one() -> None:
    assert time_us("h100-sxm", grouped((249, 1, 1, 1, 1, 1, 1, 1))) > time_us("h100-sxm", grouped((256,)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scales": "row", "dtype": "fp16"}, "scales: of operands in fp8 or int8, got fp16"),
        ({"scales": "rows", "dtype": "fp8"}, "scales: expected one of tensor, row, block, got 'rows'"),
        ({"quantise": "kernel", "dtype": "fp8"}, "quantise: finds a scale for each row of A; add scales 'row'"),
        ({"group": 128, "dtype": "fp16"}, "group: of weights whose type is not that of A; state b_dtype"),
        ({"counts": "3,4", "dtype": "fp16"}, "counts: expected rows of groups that sum up to m, 8, got 7"),
        ({"counts": "3,x", "dtype": "fp16"}, "counts: expected whole numbers, got ['3', 'x']"),
        ({"counts": "4 4", "dtype": "fp16", "batch": 2}, "counts: of a single dense GEMM by rows"),
    ],
)
def test_what_no_product_has_is_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 -- the text is compared below
        _ = parse_operator({"m": 8, "n": 16, "k": 32, **values})
    assert message in str(refusal.value)


def test_columns_of_quantised_products_are_read_back() -> None:
    for gemm in (
        replace(scaled(8, 16, 32, quantise="compiled"), op="linear"),
        weights(8, 16, 64, "int4", 32),
        grouped((5, 3)),
    ):
        assert parse_operator(gemm.columns) == gemm
    assert parse_operator({"m": 8, "n": 16, "k": 32, "dtype": "fp16", "b_dtype": "int8", "group": "none"}).group is None  # type: ignore[union-attr]
