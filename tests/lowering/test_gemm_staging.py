"""How operands travel to the warps: sectors, widths of loads, and what they cost the load/store path."""

import pytest
from gemm_kernels import A100, AMPERE_HGEMM, TURING_HGEMM, V100, VOLTA_HGEMM, kernel

from gpusim.lowering.gemm.plan import plan
from gpusim.numbers.formats import Dtype
from gpusim.specs import load_spec, with_overrides
from gpusim.workloads.gemm import Gemm


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
    requested = (128 + 128) * k * 2
    assert launch.steps * launch.step.l2_bytes == pytest.approx(requested * (1 + over))


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
    assert aligned.step.port_bytes == 2 * aligned.step.l2_bytes  # as it arrives, two sectors a cycle of a port of four
    # 2 B in banks of 4, and through registers: the lines of L1 are filled before that
    assert odd.step.port_bytes == pytest.approx((1 + 2) * odd.step.l2_bytes)
    assert odd.step.prefetch_distance == 1  # cp.async moves 4, 8 or 16 B (PTX ISA); narrower ones pass registers


@pytest.mark.parametrize(("alignment", "pieces"), [(2, 4), (1, 8)])
def test_each_piece_of_a_threads_access_passes_l1_as_long_as_the_whole(alignment: int, pieces: int) -> None:
    # A step of 128 x 32 halves: of A 32 columns of 256 B that lie anywhere, of which an access takes 128 B from a line
    # or two; of B 128 rows of 64 B, each on a line of its own or two. A line passes in a cycle, 128 B of the port.
    k = 1024 + alignment
    gemm = Gemm(1024 + alignment, 1024, k, Dtype.FP16, layout="nn", order="column")
    name = f"cutlass_70_tensorop_f16_s884gemm_f16_128x128_tn_align{alignment}"
    launch = plan(V100.gpu, gemm, kernel(V100, name)).main
    # All tiles run at once, and the whole ones end last.
    lines_a = 32 * 2 * (128 + 128 - 2 * alignment) / 128
    lines_b = 128 * (64 + 128 - 2 * alignment) / 128
    passed = (lines_a + lines_b) * k / (33 * 32) * pieces * 128
    assert launch.step.port_bytes == pytest.approx(launch.step.sm_bytes + passed)
    # gathered in registers first: shared memory is filled 16 B at a time
    assert launch.step.shared_write_bytes == pytest.approx(2 * 128 * 2 * k / 33)


@pytest.mark.parametrize(("port", "passes"), [(128.0, 2), (64.0, 1), (96.0, 1.5)])
def test_lines_of_l1_are_filled_while_a_port_narrower_than_the_banks_leaves_them_idle(
    port: float, passes: float
) -> None:
    arch = with_overrides(load_spec("T4"), {"shared_memory.bandwidth_bytes_per_cycle": port}).system
    step = plan(arch.gpu, Gemm(1024, 1024, 1024, Dtype.FP16), kernel(arch, TURING_HGEMM)).main.step
    assert step.port_bytes == pytest.approx(passes * step.sm_bytes)


@pytest.mark.parametrize(
    ("tile", "tensor_busy", "memory_busy"), [("256x128", 80.8, 64.0), ("128x128", 77.8, 72.2), ("64x64", 48.2, 87.0)]
)
def test_shared_memory_and_l1_are_as_busy_as_profiles_of_a_v100_show(
    tile: str, tensor_busy: float, memory_busy: float
) -> None:
    # Nsight Compute on a V100 (CUDA 12, FP16): busiest unit of the SM, and of its memory [%], of cuBLAS
    name = f"volta_fp16_s884gemm_fp16_{tile}_ldg8_f2f_tn"
    launch = plan(V100.gpu, Gemm(8192, 8192, 8192, Dtype.FP16), kernel(V100, name)).main
    step, used = launch.step, launch.kernel
    port_bytes = step.port_bytes + step.shared_write_bytes + used.math_warps * used.loop.operand_bytes
    port_cycles = port_bytes / V100.gpu.shared_memory.bandwidth_bytes_per_cycle
    tensor_cycles = used.math_warps / 4 * used.loop.mma_instructions * used.instruction.issue_interval_cycles
    assert port_cycles / tensor_cycles == pytest.approx(memory_busy / tensor_busy, rel=0.06)


def test_pieces_of_four_bytes_are_copied_asynchronously_by_way_of_l1() -> None:
    # A step of 128 x 32 TF32 values of either operand along k: 128 rows of 128 B, each in two lines where they are odd.
    name = "cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align"
    kernels = {
        one.printed_name("tn", Dtype.TF32): one for one in A100.library.kernels if Dtype.TF32 in one.family.inputs
    }
    odd, aligned = (
        plan(A100.gpu, Gemm(1024, 1024, k, Dtype.TF32), kernels[f"{name}{alignment}"]).main
        for k, alignment in ((32 * 33, 4), (32 * 33 - 1, 1))[::-1]
    )
    assert odd.step.to_shared
    assert odd.step.prefetch_distance == aligned.step.prefetch_distance == 2
    assert aligned.step.port_bytes == 2 * (2 * 128 * 128)  # two sectors a cycle of a port of four
    lines = 2 * 128 * (128 + 128 - 4) / 128 * (32 * 33 - 1) / (32 * 33)
    # What arrives, two sectors a cycle, fills lines of L1, which each of the four pieces of a vector reads.
    assert odd.step.port_bytes == pytest.approx(2 * odd.step.sm_bytes + lines * 4 * 128)
    assert odd.step.load_instructions == 4 * aligned.step.load_instructions


def test_pieces_that_are_copied_asynchronously_are_zeros_where_a_tile_reaches_beyond_a_matrix() -> None:
    # 10 of 128 rows of a tile exist. Pieces that lie a vector apart meet four deep in a bank, whether zeros or not.
    name = "cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align1"
    single = next(one for one in A100.library.kernels if one.printed_name("tn", Dtype.TF32) == name)
    step = plan(A100.gpu, Gemm(1024, 10, 1023, Dtype.TF32), single).main.step
    lines = 128 * (128 + 128 - 4) / 128 * 1023 / 1024
    zeros = 4 * 128 * 32 * 4 * 1023 / 1024
    assert step.port_bytes == pytest.approx(2 * step.sm_bytes + lines * 4 * 128 + zeros)


@pytest.mark.parametrize(
    ("tile", "layout", "counted"),
    [
        # SASS of cutlass_80_tensorop_s1688gemm_*_align4, cuBLAS 11.11: instructions of an iteration without HMMA
        ("256x128_32x3", "tn", 489 - 128),
        ("256x128_32x3", "nn", 524 - 128),
        ("256x128_32x3", "nt", 569 - 128),
        ("128x128_32x3", "tn", 495 - 128),
        ("128x128_32x3", "nt", 566 - 128),
        ("64x64_32x6", "nn", 257 - 32),
    ],
)
def test_warps_round_fp32_to_tf32_and_read_what_does_not_lie_along_k_one_by_one(
    tile: str, layout: str, counted: int
) -> None:
    gemm = Gemm(2048, 2048, 2048, Dtype.TF32, layout=layout)
    name = f"cutlass_80_tensorop_s1688gemm_{tile}_{layout}_align4"
    chosen = next(one for one in A100.library.kernels if one.printed_name(layout, Dtype.TF32) == name)
    main = plan(A100.gpu, gemm, chosen).main
    assert main.step.issue_slots - main.kernel.loop.mma_instructions == pytest.approx(counted, rel=0.05)


def test_rows_in_more_pages_than_an_sm_has_translations_for_hold_its_port() -> None:
    pascal = load_spec("P100-PCIe-16GB").system
    tile = kernel(pascal, "maxwell_sgemm_64x64_tn")
    short, long = (plan(pascal.gpu, Gemm(4096, 4096, k, Dtype.FP32), tile).main for k in (1024, 65536))
    # 128 rows of 256 KiB lie in 16 pages of 2 MiB; CTAs hold 64 rows each of two operands, and the TLB has 16 pages
    path = pascal.gpu.load_store
    refill_bytes = 16 * path.tlb_refill_cycles * path.l2_port_bytes_per_cycle
    assert short.step.sm_bytes == pytest.approx(short.step.l2_bytes)
    assert long.step.sm_bytes == pytest.approx(long.step.l2_bytes + refill_bytes, rel=0.01)
