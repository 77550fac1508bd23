"""Kernel choice: the candidates, their order, and pinned kernels."""

from dataclasses import replace

import pytest
from conftest import suited, unfitted, with_gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.hardware.gpu import Unit
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.library import HeuristicBias
from gpusim.lowering.gemm.plan import plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.choose import GemmCandidate, candidates, charged, estimate_us, score
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_plans
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.specs import list_archs, load_spec, with_overrides
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

BOARDS = [entry.name for entry in list_archs()]
NARROWEST_HOPPER_TILE = 8
DRAM = "dram.peak_bandwidth_gb_per_s"


def square(dtype: Dtype, size: int = 512) -> Gemm:
    return Gemm(size, size, size, dtype)


def dtypes(arch: System) -> list[Dtype]:
    return [dtype for dtype in Dtype if suited(arch, square(dtype))]


BOARDS_AND_TYPES = [(name, dtype) for name in BOARDS for dtype in dtypes(load_spec(name).system)]


def ranked(arch: System, gemm: Gemm) -> list[GemmCandidate]:
    return candidates(arch, gemm, suited(arch, gemm), warm=False, clock_mhz=arch.gpu.clock.boost_mhz)


SIZES = st.integers(min_value=1, max_value=8192)
GEMMS = st.builds(
    Gemm,
    m=SIZES,
    n=SIZES,
    k=SIZES,
    dtype=st.sampled_from([Dtype.FP32, Dtype.FP16]),
    batch=st.sampled_from([1, 1, 1, 3, 64]),
    layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
    order=st.sampled_from(["row", "column"]),
)
NAMES = st.sampled_from(["V100-SXM2-16GB", "T4", "A100-SXM4-80GB", "RTX-3090"])


@settings(derandomize=True, deadline=None)
@given(NAMES, GEMMS)
def test_candidates_are_ranked_best_first_but_for_ties(name: str, gemm: Gemm) -> None:
    arch = load_spec(name).system
    found = ranked(arch, gemm)
    scores = [score(arch.library, gemm, one) for one in found]
    assert scores == sorted(scores)


def test_k_is_split_also_where_there_are_tiles_enough() -> None:
    # 12 x 16 tiles of 128 x 128 on 80 SMs with 2 CTAs each: 1.2 waves, but 6 whole ones when k is split by 5
    arch = load_spec("V100-PCIe-32GB").system
    found = ranked(arch, Gemm(2048, 1536, 4608, Dtype.FP32, layout="tn"))
    of_tile = {one.plan.split_k: one for one in found if one.plan.kernel.label == "ffma_128x128x8"}
    assert of_tile[5].plan.totals[0].waves(arch.gpu) == 6.0
    assert of_tile[5].estimate_us < of_tile[1].estimate_us


def without_bias(arch: System, **values: float | dict[str, float]) -> System:
    """A board whose library goes by estimated time and nothing but what is given."""
    common = charged(square(Dtype.FP32), ranked(arch, square(Dtype.FP32))[0].plan)
    bias = HeuristicBias.model_validate({**dict.fromkeys(common, 0.0), "single": {}, "batched": {}, **values})
    return replace(arch, library=replace(arch.library, heuristic_bias=bias))


@settings(derandomize=True, deadline=None)
@given(NAMES, GEMMS)
def test_without_bias_the_shortest_estimate_comes_first(name: str, gemm: Gemm) -> None:
    found = ranked(without_bias(load_spec(name).system), gemm)
    estimates = [one.estimate_us for one in found]
    assert estimates == pytest.approx(sorted(estimates))  # logarithms of equal times differ in the last digit


def test_credit_moves_a_kernel_up_and_a_bias_for_tile_size_prefers_large_tiles() -> None:
    arch, gemm = load_spec("a100-sxm4-80gb").system, Gemm(2048, 2048, 1536, Dtype.BF16)
    plain = without_bias(arch)
    last = ranked(plain, gemm)[-1].plan.kernel.label
    credited = without_bias(arch, single={last: 10.0})
    assert ranked(credited, gemm)[0].plan.kernel.label == last
    largest = ranked(without_bias(arch, tile_size_exponent=10.0), gemm)[0].plan.kernel
    assert largest.tile_m * largest.tile_n == 256 * 128


def test_an_older_library_goes_by_biases_of_its_own() -> None:
    libraries = {cuda: load_spec("V100-SXM2-16GB", cuda=cuda).system.library for cuda in (None, 9, 10, 11, 12)}
    assert libraries[9] == libraries[10]
    assert libraries[None] == libraries[11] == libraries[12] != libraries[10]
    assert libraries[None].kernels is libraries[10].kernels


@settings(derandomize=True, deadline=None)
@given(NAMES, GEMMS)
def test_an_estimate_is_that_of_the_plan_beside_it(name: str, gemm: Gemm) -> None:
    arch = load_spec(name).system
    for one in ranked(arch, gemm):
        assert one.estimate_us == estimate_us(arch, one.plan, arch.gpu.clock.boost_mhz)
        assert one.estimate_us > arch.gpu.front_end.kernel_latency_us


@settings(derandomize=True, deadline=None)
@given(NAMES, GEMMS)
def test_every_kernel_that_fits_is_a_candidate_once_for_each_split(name: str, gemm: Gemm) -> None:
    arch = load_spec(name).system
    found = ranked(arch, gemm)
    whole = {one.plan.kernel for one in found if one.plan.split_k == 1}
    for kernel in suited(arch, gemm):
        try:
            plan(arch.gpu, gemm, kernel)
        except DoesNotFitError:
            assert kernel not in whole
        else:
            assert kernel in whole
    keys = [(one.plan.kernel, one.plan.split_k, len(one.plan.schedules)) for one in found]
    assert len(set(keys)) == len(keys)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(NAMES, GEMMS)
def test_the_first_candidate_is_the_one_that_is_timed(name: str, gemm: Gemm) -> None:
    result = predict(load_spec(name).system, gemm, Options(load="burst"))
    first = result.alternatives[0]
    assert (result.kernel, result.split_k, result.grid) == (first.kernel, first.split_k, first.grid)


TINY_AND_BATCHED: list[dict[str, int]] = [
    {"m": 1, "n": 1, "k": 1},
    {"m": 1, "n": 4096, "k": 4096},
    {"m": 4096, "n": 1, "k": 4096},
    {"m": 4096, "n": 4096, "k": 1},
    {"m": 7, "n": 13, "k": 3},
    {"m": 1, "n": 1, "k": 100_000},
    {"m": 64, "n": 64, "k": 64, "batch": 1000},
    {"m": 1, "n": 128, "k": 64, "batch": 96},
]


@pytest.mark.parametrize(("name", "dtype"), BOARDS_AND_TYPES, ids=lambda value: getattr(value, "value", value))
def test_every_board_has_a_kernel_for_tiny_and_batched_products_of_its_types(name: str, dtype: Dtype) -> None:
    arch = load_spec(name).system
    for sizes in TINY_AND_BATCHED:
        # integers are read in words, rows of INT4 and FP8 in 16 bytes: n and k come padded
        unit = {Dtype.INT8: 4, Dtype.INT4: 32, Dtype.FP8: 16}.get(dtype, 1)
        n, k = (-(-sizes[axis] // unit) * unit for axis in "nk")
        gemm = Gemm(sizes["m"], n, k, dtype, batch=sizes.get("batch", 1))
        result = predict(arch, gemm, Options(load="burst"))
        assert result.time_us > 0
        assert result.kernel_time_us >= result.bound_us


@pytest.mark.parametrize("name", BOARDS)
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


@pytest.mark.parametrize("name", sorted(set(BOARDS) - {"teaching"}))
def test_a_large_vector_product_goes_to_a_kernel_for_vectors(name: str) -> None:
    # By the assumption of the base; where no vectors were among the runs, a fit may like other kernels more. INT8 has
    # kernels for a few columns, which the estimate finds as fast as tiled ones at such sizes, and Hopper has tiles of
    # eight columns with rings, which keep more of DRAM's pages open.
    arch = unfitted(name)
    having = [one for one in dtypes(arch) if any(kernel.family.max_n for kernel in suited(arch, square(one)))]
    assert {Dtype.FP32, Dtype.FP16} <= set(having)
    for dtype in set(having) - {Dtype.INT8}:
        best = ranked_plans(arch, Gemm(1, 8192, 8192, dtype), Options(detail="bound"))[0].plan.kernel
        assert best.tile_n <= (NARROWEST_HOPPER_TILE if arch.gpu.architecture == "hopper" else 1)


@pytest.mark.parametrize("name", BOARDS)
def test_a_pinned_kernel_is_the_one_that_runs(name: str) -> None:
    arch = load_spec(name).system
    for kernel in arch.library.kernels:
        instruction = arch.gpu.instructions[kernel.family.instruction]
        for dtype in kernel.family.inputs:
            gemm = Gemm(
                128, 128, 128, dtype, sparsity=instruction.sparsity, accumulate=instruction.accumulate, layout="tn"
            )
            try:
                plan(arch.gpu, gemm, kernel)
            except DoesNotFitError:
                continue
            printed = kernel.printed_name("tn", dtype)
            result = predict(arch, gemm, Options(kernel=printed, load="burst"))
            assert result.kernel == printed
            assert {one.kernel for one in result.alternatives} == {printed}


def test_a_pinned_kernel_nobody_knows_is_answered_with_the_nearest() -> None:
    arch = load_spec("V100-SXM2-16GB").system
    with pytest.raises(UnsupportedError, match=r"no kernel 'volta_sgemm_128x46_tn' .* nearest: volta_sgemm_128x64_tn"):
        predict(arch, Gemm(64, 64, 64, Dtype.FP32), Options(kernel="volta_sgemm_128x46_tn"))


def test_a_pinned_kernel_that_does_not_fit_is_refused_with_the_resource() -> None:
    # 3 x (256 + 128) x 64 x 2 B = 147456 B; a CTA on 8.6 may have 101376
    arch = load_spec("A10").system
    name = "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_tn"
    with pytest.raises(UnsupportedError, match="147456 bytes of shared memory a CTA, A10 allows 101376"):
        predict(arch, Gemm(512, 512, 512, Dtype.FP16), Options(kernel=name))


@pytest.mark.parametrize(
    ("name", "gemm", "text"),
    [
        ("V100-SXM2-16GB", Gemm(64, 64, 64, Dtype.BF16), "has no bf16 multiplication"),
        ("T4", Gemm(64, 64, 64, Dtype.FP16, sparsity="2:4"), "has no fp16 2:4 multiplication"),
        ("T4", Gemm(64, 64, 64, Dtype.FP32, accumulate="fp64"), "with fp64 accumulation"),
        ("V100-SXM2-16GB", Gemm(64, 64, 64, Dtype.TF32), r"no tf32 .* since compute capability 8\.0 \(Ampere\)"),
        ("V100-SXM2-16GB", Gemm(64, 64, 64, Dtype.INT4), r"no int4 .* since compute capability 7\.5 \(Turing\)"),
        ("A100-SXM4-80GB", Gemm(64, 64, 64, Dtype.FP8), r"no fp8 .* since compute capability 8\.9"),
    ],
)
def test_what_a_board_has_no_path_for_is_refused_with_what_it_has(name: str, gemm: Gemm, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text) as refusal:
        predict(load_spec(name).system, gemm)
    assert "it has" in str(refusal.value)
    assert "fp16" in str(refusal.value)
    assert "fp32" in str(refusal.value)


@pytest.mark.parametrize(
    ("gemm", "text"),
    [
        (Gemm(64, 64, 66, Dtype.INT8), "k must be a multiple of 4, got 66; pad it to 68"),
        (Gemm(64, 66, 64, Dtype.INT8), "n must be a multiple of 4, got 66; pad it to 68"),  # the library's m
        (Gemm(66, 64, 64, Dtype.INT8, order="column"), "m must be a multiple of 4, got 66; pad it to 68"),
        (Gemm(64, 64, 64, Dtype.INT4, layout="nn"), "its kernels read layout tn, not nn"),
        (Gemm(64, 64, 72, Dtype.FP16, sparsity="2:4"), "k must be a multiple of 16, got 72; pad it to 80"),
        (Gemm(72, 64, 64, Dtype.FP16, sparsity="2:4"), "m must be a multiple of 16, got 72; pad it to 80"),
        (Gemm(64, 4, 64, Dtype.FP16, sparsity="2:4"), "n must be a multiple of 8, got 4; pad it to 8"),
        (Gemm(64, 64, 48, Dtype.INT8, sparsity="2:4"), "k must be a multiple of 32, got 48; pad it to 64"),
    ],
)
def test_sizes_and_layouts_that_no_library_takes_are_refused_with_the_remedy(gemm: Gemm, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        predict(load_spec("A100-SXM4-80GB").system, gemm)


def test_int8_in_a_layout_that_tensor_cores_do_not_read_runs_on_cuda_cores() -> None:
    arch = load_spec("A100-SXM4-80GB").system
    assert "simt_igemm" in predict(arch, Gemm(512, 512, 512, Dtype.INT8, layout="nn")).kernel
    assert "tensorop_i16832gemm" in predict(arch, Gemm(512, 512, 512, Dtype.INT8)).kernel


@pytest.mark.parametrize(("unit", "kernel"), [("cuda", "simt_hgemm"), ("tensor", "h16816gemm"), (None, "h16816gemm")])
def test_fp16_accumulation_runs_on_the_cores_that_are_asked_for(unit: Unit | None, kernel: str) -> None:
    gemm = Gemm(512, 512, 512, Dtype.FP16, accumulate="fp16")
    assert kernel in predict(load_spec("A100-SXM4-80GB").system, gemm, Options(unit=unit)).kernel


def test_a_unit_that_has_no_path_is_named() -> None:
    with pytest.raises(UnsupportedError, match="no tf32 multiplication with fp32 accumulation on CUDA cores"):
        predict(load_spec("A100-SXM4-80GB").system, square(Dtype.TF32), Options(unit="cuda"))


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_few_columns_of_int8_go_to_the_kernel_that_serves_so_many(columns: int) -> None:
    arch = load_spec("A100-SXM4-80GB").system
    few = Gemm(columns, 1024, 2048, Dtype.INT8)
    taken = predict(arch, few)
    assert taken.kernel.startswith("int8_gemv")
    # a CTA of a tile walks all of k, that of a vector two rows
    assert taken.kernel_time_us < predict(arch, few, Options(unit="tensor")).kernel_time_us
    assert predict(arch, Gemm(8, 1024, 2048, Dtype.INT8)).kernel.startswith("cutlass_80_tensorop_i16832")


BOARDS_WITH_ALIGNED_KERNELS = ("V100-SXM2-16GB", "T4")


@pytest.mark.parametrize("name", BOARDS_WITH_ALIGNED_KERNELS)
@pytest.mark.parametrize("accumulate", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("m", "n", "k", "layout", "order", "alignment"),
    [
        (37, 1024, 1024, "tn", "row", 8),  # no leading dimension is m
        (1024, 37, 1024, "tn", "row", 1),  # rows of C
        (1024, 36, 1024, "nn", "row", 2),
        (1024, 1024, 38, "tn", "row", 2),
        (1024, 1024, 37, "nt", "row", 8),  # no leading dimension is k
        (37, 1024, 1024, "tn", "column", 1),  # columns of C
        (1024, 37, 1024, "tn", "column", 8),
        (1024, 37, 1024, "nt", "column", 1),
    ],
)
def test_the_leading_dimensions_decide_which_tensor_core_kernels_serve(
    name: str, accumulate: str, m: int, n: int, k: int, layout: str, order: str, alignment: int
) -> None:
    gemm = Gemm(m, n, k, Dtype.FP16, layout=layout, order=order, accumulate=accumulate)
    tiled = [one.plan.kernel for one in ranked_plans(load_spec(name).system, gemm)]
    found = {one.family.alignment for one in tiled if one.family.name.startswith(("volta", "turing", "cutlass_7"))}
    assert found == {alignment}


@pytest.mark.parametrize("name", BOARDS_WITH_ALIGNED_KERNELS)
def test_a_product_that_is_not_aligned_takes_longer_than_its_padded_one(name: str) -> None:
    arch = load_spec(name).system
    odd, even, padded = (predict(arch, Gemm(8192, n, 4096, Dtype.FP16, layout="nn")) for n in (1025, 1026, 1032))
    assert odd.kernel_time_us > 1.3 * padded.kernel_time_us
    assert odd.kernel_time_us > even.kernel_time_us > padded.kernel_time_us


def test_a_pinned_kernel_that_needs_aligned_operands_is_refused_with_the_remedy() -> None:
    gemm, name = Gemm(64, 63, 64, Dtype.FP16, layout="nn"), "volta_fp16_s884gemm_fp16_64x64_ldg8_f2f_nn"
    with pytest.raises(UnsupportedError, match=f"{name}: n must be a multiple of 8, got 63; pad it to 64"):
        predict(load_spec("V100-SXM2-16GB").system, gemm, Options(kernel=name))


@pytest.mark.parametrize("name", ["V100-SXM2-16GB", "T4", "A100-SXM4-80GB", "H100-SXM5-80GB"])
def test_fp16_runs_on_cuda_cores_where_they_are_asked_for_and_only_there(name: str) -> None:
    arch = load_spec(name).system
    for m in (1, 2, 512):
        gemm = Gemm(m, 512, 512, Dtype.FP16)
        asked = ranked_plans(arch, gemm, Options(unit="cuda"))
        assert {one.plan.main.instruction.unit for one in asked} == {"cuda"}
        matrix = {one.plan.kernel.family.name for one in ranked_plans(arch, gemm)}
        assert not any("fp16_sgemm" in one for one in matrix)


def test_a_type_with_kernels_for_vectors_only_is_refused_with_how_long_they_serve() -> None:
    arch = load_spec("A100-SXM4-80GB").system
    assert ranked_plans(arch, Gemm(1, 64, 64, Dtype.BF16), Options(unit="cuda"))
    for gemm, size in ((Gemm(2, 64, 64, Dtype.BF16), "m"), (Gemm(64, 2, 64, Dtype.BF16, order="column"), "n")):
        with pytest.raises(UnsupportedError, match=f"on CUDA cores: .* hold only kernels for {size} up to 1;"):
            predict(arch, gemm, Options(unit="cuda"))


def test_compute_capabilities_compare_as_numbers() -> None:
    board = load_spec("A100-SXM4-80GB").system
    fp8 = Gemm(64, 64, 64, Dtype.FP8)
    for capability, reason in (("8.0", r"since compute capability 8\.9"), ("10.0", "catalogues of this GPU hold none")):
        with pytest.raises(UnsupportedError, match=reason):
            predict(with_gpu(board, compute_capability=capability), fp8)


def doubled_memory(name: str) -> System:
    spec = load_spec(name)
    return with_overrides(spec, {DRAM: 2 * spec.gpu.dram.peak_bandwidth_gb_per_s}).system


@settings(derandomize=True, max_examples=30, deadline=None)
@given(NAMES, GEMMS)
def test_a_faster_memory_changes_no_choice(name: str, gemm: Gemm) -> None:
    def order(arch: System) -> list[tuple[str, int, int]]:
        return [(one.plan.name, one.plan.split_k, len(one.plan.schedules)) for one in ranked_plans(arch, gemm)]

    assert order(doubled_memory(name)) == order(load_spec(name).system)


def test_a_result_for_overridden_values_names_what_a_library_for_them_would_launch() -> None:
    name, gemm = "A100-SXM4-40GB", Gemm(2048, 2048, 2048, Dtype.FP16)
    shipped, faster = (
        predict(arch, gemm, Options(l2="warm")) for arch in (load_spec(name).system, doubled_memory(name))
    )
    assert (faster.kernel, faster.split_k) == (shipped.kernel, shipped.split_k)
    assert faster.kernel_time_us <= shipped.kernel_time_us
    faster_board = doubled_memory(name)
    tuned = replace(faster_board, library=replace(faster_board.library, tuned_for=None))
    other = ranked_plans(tuned, gemm, Options(l2="warm"))[0].plan
    assert other.name != shipped.kernel
    assert shipped.notes == ()
    assert any(f"would launch {other.name}, split-K {other.split_k}" in note for note in faster.notes)


def test_overridden_values_of_the_library_itself_hold() -> None:
    spec, gemm = load_spec("A100-SXM4-80GB"), Gemm(2048, 2048, 1536, Dtype.BF16)
    large = with_overrides(spec, {DRAM: 4000.0, "library.heuristic_bias.tile_size_exponent": 10.0}).system
    best = ranked_plans(large, gemm)[0].plan.kernel
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


def test_kernels_for_vectors_are_credited_over_the_same_matrix_tile_whatever_large_tiles_are() -> None:
    def margin(tile_size_exponent: float) -> float:
        arch, gemm = (
            without_bias(load_spec("T4").system, tile_size_exponent=tile_size_exponent),
            Gemm(1, 512, 512, Dtype.FP32),
        )
        found = {one.plan.kernel.label: one for one in ranked(arch, gemm) if one.plan.split_k == 1}
        matrix, vector = found["ffma_32x128x16"], found["ffma_8x1x64"]
        return score(arch.library, gemm, matrix) - score(arch.library, gemm, vector)

    assert margin(1.0) == pytest.approx(margin(0.0))
