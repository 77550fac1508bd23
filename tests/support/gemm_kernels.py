"""Boards, types, kernels and plans that the tests of GEMMs draw from."""

from conftest import shipped_spec, suited
from hypothesis import strategies as st

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.catalogue import Kernel, Sizes, SplitKMode
from gpusim.lowering.gemm.plan import GemmPlan, plan
from gpusim.numbers.formats import Dtype
from gpusim.specs import list_archs
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

BOARDS = [entry.name for entry in list_archs()]
# One of each library, for what depends on kernels and instructions, not on the size of a board.
BOARDS_OF_LIBRARIES = list({shipped_spec(name).system.library.name: name for name in BOARDS}.values())
V100 = shipped_spec("V100-SXM2-16GB").system
A100 = shipped_spec("A100-SXM4-80GB").system
H100 = shipped_spec("H100-SXM5-80GB").system
VOLTA_SGEMM = "volta_sgemm_128x64_tn"
VOLTA_HGEMM = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn"
TURING_HGEMM = "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn"
AMPERE_HGEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
HOPPER_HGEMM = "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT"
SIZES = st.integers(min_value=1, max_value=5000)
# None of whose kernels have clusters: each CTA loads for itself.
NAMES = st.sampled_from(["V100-SXM2-16GB", "T4", "A100-SXM4-80GB", "RTX-3090"])
DTYPES = st.sampled_from([Dtype.FP32, Dtype.FP16])
LAYOUTS = st.sampled_from(["nn", "nt", "tn", "tt"])


def square(dtype: Dtype, size: int = 512) -> Gemm:
    return Gemm(size, size, size, dtype)


def dtypes(arch: System) -> list[Dtype]:
    """The types that a board multiplies."""
    return [dtype for dtype in Dtype if suited(arch, square(dtype))]


def kernel(arch: System, name: str) -> Kernel:
    """A kernel of a board by the name that a profiler shows."""
    dtypes = (Dtype.FP16, Dtype.FP32)
    return next(
        one
        for one in arch.library.kernels
        if name in [one.printed_name("tn", dtype) for dtype in dtypes if dtype in one.family.inputs]
    )


def made_for(gpu: Gpu, kernel: Kernel, dtype: Dtype, size: int = 512) -> Gemm:
    """A product near ``size`` cubed that a kernel is made for: its scales, weights and the sizes it is launched for."""
    family, instruction = kernel.family, gpu.instructions[kernel.family.instruction]
    takes = kernel.takes[0] if kernel.takes else Sizes()

    def within(least: int, most: int | None) -> int:
        return min(max(size, least), most or max(size, least))

    tokens, features, k = (within(*of) for of in (takes.tokens, takes.features, takes.k))
    by_rows = bool(kernel.takes or family.weights)  # as programs launch them; features are the rows of a library
    columns = 1 if family.max_n == 1 else tokens if by_rows else size  # vectors stand in the columns
    return Gemm(
        columns if by_rows else size,
        features if by_rows else columns,
        k,
        dtype,
        layout="tn" if "tn" in kernel.layouts else kernel.layouts[0],
        sparsity=instruction.sparsity,
        accumulate=instruction.accumulate,
        order="row" if by_rows else "column",
        b_dtype=family.weights[0] if family.weights else None,
        scales=family.scales[0] if family.scales else "",
        group=family.groups[0] if family.groups else None,
    )


def drawn_plan(data: st.DataObject, name: str, gemm: Gemm) -> GemmPlan | None:
    """A plan of a workload on some kernel and split; None if that kernel does not fit."""
    arch = shipped_spec(name).system
    chosen = data.draw(st.sampled_from(suited(arch, gemm)))
    modes: list[tuple[int, SplitKMode]] = [(1, "in_kernel")]
    modes += [(split, mode) for split in (2, 3, 5, 8) for mode in chosen.family.split_k]
    split_k, mode = data.draw(st.sampled_from(modes))
    try:
        return plan(arch.gpu, gemm, chosen, split_k, mode)
    except DoesNotFitError:
        return None
