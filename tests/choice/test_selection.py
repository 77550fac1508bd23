"""Which kernels can run a workload: pinned ones, refusals and their remedies, alignment, cores."""

import re
from dataclasses import replace

import pytest
from conftest import with_gpu
from gemm_kernels import BOARDS_OF_LIBRARIES, dtypes, made_for, square

from gpusim.cuda_version import CudaVersion
from gpusim.hardware.gpu import Unit
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.lowering.gemm.plan import plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.choose import candidates
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

BOARDS_AND_TYPES = [(name, dtype) for name in BOARDS_OF_LIBRARIES for dtype in dtypes(load_spec(name).system)]


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
BOARDS_WITH_ALIGNED_KERNELS = ("V100-SXM2-16GB", "T4")


@pytest.mark.parametrize(("name", "dtype"), BOARDS_AND_TYPES, ids=lambda value: getattr(value, "value", value))
def test_every_library_has_a_kernel_for_tiny_and_batched_products_of_its_types(name: str, dtype: Dtype) -> None:
    arch = load_spec(name).system
    for sizes in TINY_AND_BATCHED:
        # integers are read in words, rows of INT4 and FP8 in 16 bytes: n and k come padded
        unit = {Dtype.INT8: 4, Dtype.INT4: 32, Dtype.FP8: 16}.get(dtype, 1)
        n, k = (-(-sizes[axis] // unit) * unit for axis in "nk")
        gemm = Gemm(sizes["m"], n, k, dtype, batch=sizes.get("batch", 1))
        result = predict(arch, gemm, Options(load="burst", limits=False))
        assert result.time_us > 0
        assert result.kernel_time_us >= result.timing.bound_us


@pytest.mark.parametrize("name", BOARDS_OF_LIBRARIES)
def test_a_pinned_kernel_is_the_one_that_runs(name: str) -> None:
    arch = load_spec(name).system
    for kernel in arch.library.kernels:
        for dtype in kernel.family.inputs:
            gemm = made_for(arch.gpu, kernel, dtype, 128)
            try:
                plan(arch.gpu, gemm, kernel)
            except DoesNotFitError:
                continue
            printed = kernel.printed_name(gemm.blas_call.layout, dtype)
            result = predict(arch, gemm, Options(kernel=printed, load="burst", limits=False))
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
    tiled = [one.plan.kernel for one in ranked_gemms(load_spec(name).system, gemm)]
    found = {one.alignment for one in tiled if one.family.name.startswith(("volta", "turing", "cutlass_7"))}
    assert found - {None} == {alignment}  # kernels on CUDA cores have none


@pytest.mark.parametrize(
    ("name", "load", "times"),
    [
        ("V100-SXM2-16GB", "sustained", 1.3),
        ("V100-SXM2-16GB", "burst", 1.3),
        ("T4", "burst", 1.3),
        ("T4", "sustained", 1.1),  # 70 W hold the padded product back more: it multiplies faster
    ],
)
def test_a_product_that_is_not_aligned_takes_longer_than_its_padded_one(name: str, load: str, times: float) -> None:
    arch = load_spec(name).system
    odd, even, padded = (
        predict(arch, Gemm(8192, n, 4096, Dtype.FP16, layout="nn"), Options(load=load)).kernel_time_us
        for n in (1025, 1026, 1032)
    )
    assert odd > even > padded
    assert odd > times * padded


@pytest.mark.parametrize("name", BOARDS_WITH_ALIGNED_KERNELS)
def test_tensor_cores_take_unaligned_operands_from_cuda_11_on(name: str) -> None:
    odd, padded = (Gemm(1024, n, 1024, Dtype.FP16, layout="nn") for n in (1023, 1024))
    units = {
        (cuda, gemm.n): predict(load_spec(name, cuda=cuda).system, gemm).launch.unit
        for cuda in (10, 11)
        for gemm in (odd, padded)
    }
    assert units == {(10, 1023): "cuda", (10, 1024): "tensor", (11, 1023): "tensor", (11, 1024): "tensor"}


@pytest.mark.parametrize(
    ("k", "dtype", "kernel"),
    [
        (1024, Dtype.BF16, "ampere_bf16_s16816gemm"),
        (1026, Dtype.BF16, "cutlass_80_tensorop_bf16_s16816gemm_bf16_.*_align2"),
        (1025, Dtype.BF16, "cutlass_75_tensorop_bf16_s1688gemm_bf16_.*_align1"),
        (1028, Dtype.TF32, "cutlass_80_tensorop_s1688gemm_.*_align4"),
        (1026, Dtype.TF32, "cutlass_80_tensorop_s1688gemm_.*_align1"),
    ],
)
def test_an_a100_has_a_kernel_for_each_alignment_that_profiles_show(k: int, dtype: Dtype, kernel: str) -> None:
    assert re.match(kernel, predict(load_spec("A100-SXM4-40GB").system, Gemm(4096, 4096, k, dtype)).kernel)


def test_cuda_cores_are_considered_for_operands_that_are_not_aligned() -> None:
    arch = load_spec("V100-SXM2-16GB").system
    odd, aligned = (ranked_gemms(arch, Gemm(512, n, 512, Dtype.FP16, layout="nn")) for n in (511, 512))
    units = [{one.plan.instruction.unit for one in those} for those in (odd, aligned)]
    assert units == [{"cuda", "tensor"}, {"tensor"}]


def test_a_pinned_kernel_that_needs_aligned_operands_is_refused_with_the_remedy() -> None:
    gemm, name = Gemm(64, 63, 64, Dtype.FP16, layout="nn"), "volta_fp16_s884gemm_fp16_64x64_ldg8_f2f_nn"
    with pytest.raises(UnsupportedError, match=f"{name}: n must be a multiple of 8, got 63; pad it to 64"):
        predict(load_spec("V100-SXM2-16GB").system, gemm, Options(kernel=name))


@pytest.mark.parametrize("layout", ["nn", "tn"])
def test_a_matrix_that_is_not_transposed_has_its_own_kernels_for_vectors(layout: str) -> None:
    gemm = Gemm(1, 8192, 8192, Dtype.FP16, layout=layout)
    name, results = {"nn": ("gemv2N_kernel_32x1_fp16", 32), "tn": ("gemvx_kernel_8x1_fp16", 8)}[layout]
    assert predict(load_spec("A100-SXM4-40GB").system, gemm, Options(kernel=name)).launch.grid[0] == 8192 // results


@pytest.mark.parametrize(("layout", "prefix"), [("nn", "gemmSN_NN"), ("tn", "gemmSN_TN"), ("nt", "ampere_sgemm")])
def test_batches_of_few_columns_run_the_kernels_made_for_them(layout: str, prefix: str) -> None:
    # 7 columns ran them in traces of A100s, 17 and more ran sgemm (NeuSight)
    system = load_spec("A100-PCIe-40GB").system
    for m, few in ((1, False), (2, True), (16, True), (17, False)):
        found = ranked_gemms(system, Gemm(m, 139, 508, Dtype.FP32, batch=142, layout=layout))
        of_few = {"gemmSN" in one.plan.kernel.family.name for one in found}
        assert of_few == {few and layout != "nt"}
        if few:
            assert found[0].plan.main.name.startswith(prefix)


@pytest.mark.parametrize(
    ("cuda", "family"), [("11.8", "xmma"), ("12.4", "xmma"), ("12.6", "nvjet"), (12, "nvjet"), (13, "nvjet")]
)
def test_hopper_runs_xmma_up_to_cuda_12_5_and_nvjet_after(cuda: int | str, family: str) -> None:
    # libcublasLt of cuBLAS 11.11 to 12.6.0 has no nvjet; traces of CUDA 12.4 have kernels of sm80 for 5 rows
    system = load_spec("H100-SXM5-80GB", cuda=cuda).system
    large, small = (predict(system, Gemm(m, 768, 768, Dtype.BF16)).kernel for m in (25088, 5))
    assert family in large
    assert ("s16816gemm_bf16_64x64_64x6" if family == "xmma" else "nvjet") in small


@pytest.mark.parametrize(("cuda", "has_them"), [(10, False), (11, True)])
def test_kernels_for_few_columns_came_with_cuda_11(cuda: int, has_them: bool) -> None:
    system, gemm = load_spec("V100-SXM2-16GB").system, Gemm(16, 256, 128, Dtype.FP32, layout="nn")
    found = ranked_gemms(replace(system, library=system.library.as_of(CudaVersion(cuda))), gemm)
    assert any("gemmSN" in one.plan.kernel.family.name for one in found) is has_them


@pytest.mark.parametrize("name", ["V100-SXM2-16GB", "T4", "A100-SXM4-80GB", "H100-SXM5-80GB"])
def test_fp16_runs_on_cuda_cores_where_they_are_asked_for_and_only_there(name: str) -> None:
    arch = load_spec(name).system
    for m in (1, 2, 512):
        gemm = Gemm(m, 512, 512, Dtype.FP16)
        asked = ranked_gemms(arch, gemm, Options(unit="cuda"))
        assert {one.plan.instruction.unit for one in asked} == {"cuda"}
        matrix = {one.plan.kernel.family.name for one in ranked_gemms(arch, gemm)}
        assert not any("fp16_sgemm" in one for one in matrix)


def test_a_type_with_kernels_for_vectors_only_is_refused_with_how_long_they_serve() -> None:
    arch = load_spec("A100-SXM4-80GB").system
    assert ranked_gemms(arch, Gemm(1, 64, 64, Dtype.BF16), Options(unit="cuda"))
    for gemm, size in ((Gemm(2, 64, 64, Dtype.BF16), "m"), (Gemm(64, 2, 64, Dtype.BF16, order="column"), "n")):
        with pytest.raises(UnsupportedError, match=f"on CUDA cores: .* hold only kernels for {size} up to 1;"):
            predict(arch, gemm, Options(unit="cuda"))


def test_compute_capabilities_compare_as_numbers() -> None:
    board = load_spec("A100-SXM4-80GB").system
    fp8 = Gemm(64, 64, 64, Dtype.FP8)
    for capability, reason in (("8.0", r"since compute capability 8\.9"), ("10.0", "catalogues of this GPU hold none")):
        with pytest.raises(UnsupportedError, match=reason):
            predict(with_gpu(board, compute_capability=capability), fp8)


@pytest.mark.parametrize("name", ["V100-SXM2-32GB", "T4", "A100-SXM4-40GB"])
def test_sgemm_slices_k_for_single_products_alone(name: str) -> None:
    arch = load_spec(name).system
    single = Gemm(64, 64, 6272, Dtype.FP32, layout="nt", order="column")
    batch = Gemm(64, 64, 6272, Dtype.FP32, batch=36, layout="nt", order="column")
    assert any(kernel.warps_k > 1 for kernel in usable_kernels(arch, single))
    assert all(kernel.warps_k == 1 for kernel in usable_kernels(arch, batch))
    sliced = next(kernel for kernel in usable_kernels(arch, single) if kernel.warps_k > 1)
    assert usable_kernels(arch, batch, sliced.printed_name("nt", Dtype.FP32)) == (sliced,)


def test_batches_on_a_v100_do_not_run_tiles_of_128x32_as_recorded() -> None:
    # NeuSight's rows for calibration: 64x64 for all of these, where 128x32 is estimated to take about half as long.
    arch = load_spec("V100-PCIe-32GB").system
    for batch, m, n, k in ((739, 20, 205, 387), (184, 25, 84, 976), (765, 20, 539, 99), (494, 32, 296, 218)):
        gemm = Gemm(m, n, k, Dtype.FP32, batch=batch, layout="nn")
        assert predict(arch, gemm, Options(l2="warm")).kernel.startswith("volta_sgemm_64x64_nn")


@pytest.mark.parametrize(
    ("m", "n", "k", "measured_us"), [(336, 4096, 1376, 45), (336, 4096, 5504, 162), (968, 1920, 5120, 176)]
)
def test_a_tile_between_powers_of_two_saves_a_wave_as_runs_on_an_a40_show(
    m: int, n: int, k: int, measured_us: float
) -> None:
    """Measured: microsoft/vidur, FP16, profiler, whole microseconds.

    Tiles of powers of two are predicted to take 17 to 23 % longer than that, so half of 17 % tells the two apart.
    """
    arch = load_spec("A40").system
    found = predict(arch, Gemm(m, n, k, Dtype.FP16, layout="tn"), Options(l2="warm"))
    assert "xmma" in found.kernel
    assert found.launch.waves <= 1
    assert found.kernel_time_us == pytest.approx(measured_us, rel=0.085)


@pytest.mark.parametrize(
    ("m", "mode"),
    [
        # partial sums of eight CTAs, FP32: 8 x 4 m n bytes against the 4 MiB that cuBLAS has for them
        (480, "reduce"),
        (512, "in_kernel"),
    ],
)
def test_partial_sums_that_the_workspace_does_not_hold_are_added_within_the_kernel(m: int, mode: str) -> None:
    system = load_spec("A100-SXM4-40GB").system
    gemm = Gemm(m, 256, 8192, Dtype.TF32)
    ranking = candidates(system, gemm, usable_kernels(system, gemm), warm=False, clock_mhz=1410.0)
    assert {one.mode for one in ranking if one.split_k == 8 and one.name.startswith("cutlass_80_tensorop")} == {mode}
