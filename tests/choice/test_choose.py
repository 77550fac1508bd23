"""Kernel choice: the candidates, their order, and pinned kernels."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from conftest import suited, unfitted
from gemm_kernels import BOARDS_OF_LIBRARIES, LAYOUTS, NAMES, dtypes, square
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.cuda_version import CudaVersion
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.library import HeuristicBias
from gpusim.lowering.gemm.plan import plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.choose import GemmCandidate, candidates
from gpusim.prediction.heuristic import WEIGHTED, scores_of
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.prediction.predict import predict
from gpusim.specs import load_spec, with_overrides
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

NARROWEST_HOPPER_TILE = 8
DRAM = "dram.peak_bandwidth_gb_per_s"


def ranked(arch: System, gemm: Gemm) -> list[GemmCandidate]:
    return list(candidates(arch, gemm, suited(arch, gemm), warm=False, clock_mhz=arch.gpu.clock.boost_mhz))


def scores(arch: System, found: list[GemmCandidate]) -> list[float]:
    """What the library goes by, of candidates that were ranked together."""
    in_plans = sorted(found, key=lambda one: one.row)
    of_rows = scores_of(arch.library, found[0].plans, np.array([one.tuned_us for one in in_plans]))
    return [of_rows.item(one.row) for one in found]


SIZES = st.integers(min_value=1, max_value=8192)
GEMMS = st.builds(
    Gemm,
    m=SIZES,
    n=SIZES,
    k=SIZES,
    dtype=st.sampled_from([Dtype.FP32, Dtype.FP16]),
    batch=st.sampled_from([1, 1, 1, 3, 64]),
    layout=LAYOUTS,
    order=st.sampled_from(["row", "column"]),
)


@given(NAMES, GEMMS)
def test_candidates_are_ranked_best_first_but_for_ties(name: str, gemm: Gemm) -> None:
    arch = load_spec(name).system
    found = ranked(arch, gemm)
    assert scores(arch, found) == sorted(scores(arch, found))


@given(NAMES, GEMMS)
def test_a_library_chooses_without_knowing_beta(name: str, gemm: Gemm) -> None:
    arch = load_spec(name).system
    assert [one.choice for one in ranked(arch, replace(gemm, beta=1.0))] == [one.choice for one in ranked(arch, gemm)]


def test_k_is_split_also_where_there_are_tiles_enough() -> None:
    # 12 x 16 tiles of 128 x 128 on 80 SMs with 2 CTAs each: 1.2 waves, but 6 whole ones when k is split by 5
    arch = load_spec("V100-PCIe-32GB").system
    found = ranked(arch, Gemm(2048, 1536, 4608, Dtype.FP32, layout="tn"))
    of_tile = {one.split_k: one for one in found if one.kernel.label == "ffma_128x128x8"}
    assert of_tile[5].plan.totals[0].waves(arch.gpu) == 6.0
    assert of_tile[5].estimate_us < of_tile[1].estimate_us


@pytest.mark.parametrize(("dtype", "clock_mhz"), [(Dtype.FP32, 585.0), (Dtype.FP16, 1590.0)])
def test_kernels_on_cuda_cores_are_ranked_at_the_base_clock(dtype: Dtype, clock_mhz: float) -> None:
    arch, gemm = load_spec("t4").system, Gemm(2048, 16, 2048, dtype)
    found = {one.choice: one.tuned_us for one in ranked(arch, gemm)}
    there = candidates(arch, gemm, suited(arch, gemm), warm=False, clock_mhz=clock_mhz)
    assert len(found) > 1
    assert found == {one.choice: one.estimate_us for one in there}


def without_bias(arch: System, **values: float | dict[str, float]) -> System:
    """A board whose library goes by estimated time and nothing but what is given."""
    none: dict[str, dict[str, float]] = {family: {} for family in WEIGHTED}
    bias = HeuristicBias.model_validate({**none, "gemv_kernel_bonus": 0.0, **values})
    return replace(arch, library=replace(arch.library, heuristic_bias=bias))


@given(NAMES, GEMMS)
def test_without_bias_the_shortest_estimate_comes_first(name: str, gemm: Gemm) -> None:
    found = ranked(without_bias(load_spec(name).system), gemm)
    estimates = [one.tuned_us for one in found]
    assert estimates == pytest.approx(sorted(estimates))  # logarithms of equal times differ in the last digit


@pytest.mark.parametrize(
    ("feature", "extreme"),
    [
        ("tile_area", lambda one: -one.kernel.tile_m * one.kernel.tile_n),
        ("split_k", lambda one: -one.split_k),
        ("step_k", lambda one: -one.kernel.tile_k),
    ],
)
def test_a_bonus_for_a_feature_prefers_kernels_that_have_most_of_it(
    feature: str, extreme: Callable[[GemmCandidate], float]
) -> None:
    arch, gemm = load_spec("a100-sxm4-80gb").system, Gemm(2048, 2048, 1536, Dtype.BF16)
    found = ranked(without_bias(arch, mma={feature: -8.0}), gemm)
    assert extreme(found[0]) == min(map(extreme, found))


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "stages"),
    [
        (3584, 256, 128, {128, 64}, 3),
        (448, 256, 128, {32, 128}, 1),  # wmma
        (7168, 2048, 256, {128, 32}, 5),
    ],
)
def test_gemms_of_a_k_of_256_take_the_kernels_of_a_profile(m: int, n: int, k: int, tile: set[int], stages: int) -> None:
    # pytorch-labs/segment-anything-fast amg_example, A100, linear layers
    first = ranked(load_spec("a100-sxm4-40gb").system, Gemm(m, n, k, Dtype.BF16, op="linear", layout="tn"))[0].kernel
    assert ({first.tile_m, first.tile_n, first.tile_k}, first.stages) == (tile, stages)


def test_an_older_library_has_the_kernels_of_its_version() -> None:
    libraries = {cuda: load_spec("V100-SXM2-16GB", cuda=cuda).system.library for cuda in (None, 9, 10, 11, 12)}
    assert libraries[9].kernels == libraries[10].kernels
    assert libraries[None].kernels == libraries[11].kernels == libraries[12].kernels != libraries[10].kernels
    newest = libraries[None]
    both = {one for one in newest.kernels if one.family.is_of(CudaVersion(10))}
    assert set(libraries[10].kernels) == both | set(newest.older_kernels) == set(newest.as_of(CudaVersion(10)).kernels)
    assert {one.family.until_cuda for one in newest.older_kernels} == {CudaVersion(10)}


def test_single_and_batched_products_on_cuda_cores_have_weights_of_their_own() -> None:
    v100 = load_spec("V100-SXM2-16GB").system
    plain, weighed = without_bias(v100), without_bias(v100, simt_batched={"tile_area": 10.0})
    for batch in (1, 16):
        gemm = Gemm(1024, 1024, 1024, Dtype.FP32, batch=batch)
        same = ranked(plain, gemm)[0].kernel is ranked(weighed, gemm)[0].kernel
        assert same == (batch == 1)
    assert ranked(weighed, gemm)[0].kernel.label == "ffma_8x2x64"  # the smallest tile


def test_products_of_16_bits_on_cuda_cores_have_weights_of_their_own() -> None:
    v100 = load_spec("V100-SXM2-16GB").system
    plain, weighed = without_bias(v100), without_bias(v100, simt_half={"tile_area": -10.0})
    for dtype in (Dtype.FP32, Dtype.FP16):
        gemm = Gemm(1024, 1023, 1023, dtype)
        rankings = [ranked(board, gemm) for board in (plain, weighed)]
        best = [next(one.kernel for one in found if not one.kernel.alignment) for found in rankings]
        assert (best[0] is best[1]) == (dtype is Dtype.FP32)
    assert best[1].tile_m * best[1].tile_n == 128 * 128  # the largest tile


def test_products_of_operands_that_are_not_aligned_have_weights_of_their_own() -> None:
    v100 = load_spec("V100-SXM2-16GB").system
    plain, weighed = without_bias(v100), without_bias(v100, mma_unaligned={"tile_area": 10.0})
    for columns in (1024, 1023):
        gemm = Gemm(1024, columns, 1024, Dtype.FP16)
        same = ranked(plain, gemm)[0].kernel is ranked(weighed, gemm)[0].kernel
        assert same == (columns == 1024)
    smallest = min(one.kernel.tile_m * one.kernel.tile_n for one in ranked(weighed, gemm) if one.kernel.alignment)
    best = next(one.kernel for one in ranked(weighed, gemm) if one.kernel.alignment)
    assert best.tile_m * best.tile_n == smallest


@settings(max_examples=15)
@given(NAMES, GEMMS)
def test_a_candidate_is_the_same_whatever_others_are_ranked_with_it(name: str, gemm: Gemm) -> None:
    arch = load_spec(name).system
    found = ranked(arch, gemm)
    alone = {
        (one.kernel.label, one.kernel.stages, one.split_k, one.mode): one
        for kernel in {id(one.kernel): one.kernel for one in found}.values()
        for one in candidates(arch, gemm, (kernel,), warm=False, clock_mhz=arch.gpu.clock.boost_mhz)
    }
    for one in found:
        other = alone[one.kernel.label, one.kernel.stages, one.split_k, one.mode]
        assert one.estimate_us == other.estimate_us > arch.gpu.front_end.kernel_latency_us
        assert one.plan == other.plan == plan(arch.gpu, gemm, one.kernel, one.split_k, one.mode)


@given(NAMES, GEMMS)
def test_every_kernel_that_fits_is_a_candidate_once_for_each_split(name: str, gemm: Gemm) -> None:
    arch = load_spec(name).system
    found = ranked(arch, gemm)
    whole = {one.kernel for one in found if one.split_k == 1}
    for kernel in suited(arch, gemm):
        try:
            plan(arch.gpu, gemm, kernel)
        except DoesNotFitError:
            assert kernel not in whole
        else:
            assert kernel in whole
    keys = [(one.kernel, one.split_k, len(one.plan.schedules)) for one in found]
    assert len(set(keys)) == len(keys)


@settings(max_examples=30)
@given(NAMES, GEMMS)
def test_the_first_candidate_is_the_one_that_is_timed(name: str, gemm: Gemm) -> None:
    result = predict(load_spec(name).system, gemm, Options(load="burst"))
    first = result.alternatives[0]
    assert (result.kernel, result.launch.split_k, result.launch.grid) == (first.kernel, first.split_k, first.grid)


@pytest.mark.parametrize("name", BOARDS_OF_LIBRARIES)
def test_kernels_for_vectors_are_offered_for_vectors_only(name: str) -> None:
    arch = load_spec(name).system
    for dtype in dtypes(arch):
        own = suited(arch, square(dtype))
        for columns in (2, 5):  # as many as four for INT8, one for the others
            for_more = {one.printed_name("tn", dtype) for one in own if (one.family.max_n or columns) < columns}
            # a row-major product's m is the library's n
            several = predict(arch, Gemm(columns, 512, 512, dtype), Options(detail="bound"))
            assert for_more.isdisjoint(one.kernel for one in several.alternatives)
            by_columns = predict(arch, Gemm(512, columns, 512, dtype, order="column"), Options(detail="bound"))
            assert for_more.isdisjoint(one.kernel for one in by_columns.alternatives)


@pytest.mark.parametrize("name", sorted(set(BOARDS_OF_LIBRARIES) - {"teaching"}))
def test_a_large_vector_product_goes_to_a_kernel_for_vectors(name: str) -> None:
    # By the assumption of the base; where no vectors were among the runs, a fit may like other kernels more. INT8 has
    # kernels for a few columns, which the estimate finds as fast as tiled ones at such sizes, and Hopper has tiles of
    # eight and sixteen columns with rings, which keep more of DRAM's pages open.
    arch = unfitted(name)
    having = [one for one in dtypes(arch) if any(kernel.family.max_n for kernel in suited(arch, square(one)))]
    assert {Dtype.FP32, Dtype.FP16} <= set(having)
    for dtype in set(having) - {Dtype.INT8}:
        best = ranked_gemms(arch, Gemm(1, 8192, 8192, dtype), Options(detail="bound"))[0].plan.kernel
        assert best.tile_n <= (2 * NARROWEST_HOPPER_TILE if arch.gpu.architecture == "hopper" else 1)


def doubled_memory(name: str) -> System:
    spec = load_spec(name)
    return with_overrides(spec, {DRAM: 2 * spec.gpu.dram.peak_bandwidth_gb_per_s}).system


@settings(max_examples=30)
@given(NAMES, GEMMS)
def test_a_faster_memory_changes_no_choice(name: str, gemm: Gemm) -> None:
    def order(arch: System) -> list[tuple[str, int, int]]:
        return [(one.name, one.split_k, len(one.plan.schedules)) for one in ranked_gemms(arch, gemm)]

    assert order(doubled_memory(name)) == order(load_spec(name).system)


def test_a_result_for_overridden_values_names_what_a_library_for_them_would_launch() -> None:
    name, warm = "A100-SXM4-40GB", Options(l2="warm")
    board, faster_board = load_spec(name).system, doubled_memory(name)
    tuned = replace(faster_board, library=replace(faster_board.library, tuned_for=None))
    sizes = [Gemm(m, n, 4096, Dtype.FP16) for m in (16, 64, 256) for n in (2048, 4096, 8192)]
    kernels = [tuple(ranked_gemms(arch, gemm, warm)[0].name for arch in (board, tuned)) for gemm in sizes]
    gemm = sizes[next(place for place, (here, there) in enumerate(kernels) if here != there)]
    shipped, faster = (predict(arch, gemm, warm) for arch in (board, faster_board))
    assert (faster.kernel, faster.launch.split_k) == (shipped.kernel, shipped.launch.split_k)
    assert faster.kernel_time_us <= shipped.kernel_time_us
    other = ranked_gemms(tuned, gemm, warm)[0].plan
    assert other.name != shipped.kernel
    assert shipped.notes == ()
    assert any(f"would launch {other.name}, split-K {other.split_k}" in note for note in faster.notes)


def test_overridden_values_of_the_library_itself_hold() -> None:
    spec, gemm = load_spec("A100-SXM4-80GB"), Gemm(2048, 2048, 1536, Dtype.BF16)
    large = with_overrides(spec, {DRAM: 4000.0, "library.heuristic_bias.mma.tile_intensity": -10.0}).system
    best = ranked_gemms(large, gemm)[0].plan.kernel
    assert best.tile_m * best.tile_n == 256 * 128


def test_a_kernel_that_only_fits_the_overridden_board_runs_there() -> None:
    # 147456 B of shared memory a CTA, 101376 as shipped
    name = "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_tn"
    wanted: dict[str, object] = {"shared_memory.max_kib_per_cta": 163.0, "shared_memory.unified_l1_kib": 192.0}
    wanted["shared_memory.carveouts_kib"] = [0.0, 164.0]
    larger = with_overrides(load_spec("A10"), wanted).system
    assert predict(larger, Gemm(512, 512, 512, Dtype.FP16), Options(kernel=name)).kernel == name


@pytest.mark.parametrize(("name", "n", "k"), [("V100-SXM2-16GB", 17, 6912), ("RTX-2070", 18, 4826)])
def test_a_long_product_with_a_vector_takes_no_longer_than_one_with_two(name: str, n: int, k: int) -> None:
    # One warp of a kernel for vectors walks all of k; a matrix kernel that splits k takes half the time.
    arch = load_spec(name).system
    one, two = (predict(arch, Gemm(m, n, k, Dtype.FP32, layout="nn"), Options(load="burst")) for m in (1, 2))
    assert one.kernel_time_us <= two.kernel_time_us


def test_kernels_for_vectors_are_credited_over_matrix_tiles_whatever_large_tiles_are() -> None:
    # All tiles of a product with a vector have next to the same intensity: one element of C for each that they load.
    arch, gemm = load_spec("T4").system, Gemm(1, 512, 512, Dtype.FP32)
    for weight in (-1.0, 1.0):
        biased = without_bias(arch, simt={"tile_intensity": weight}, gemv_kernel_bonus=1.0)
        assert ranked(biased, gemm)[0].kernel.family.main_loop.kind == "direct"
