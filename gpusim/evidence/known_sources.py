"""How sources of measured runs ran and timed them, where their tables do not say: their programs were read.

What a table states counts before it, but for the timing method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.numbers.formats import Dtype


@dataclass(frozen=True, slots=True)
class KnownSource:
    """The conditions of a source's runs. Texts are empty, and numbers None or 0, where nothing is known."""

    begins: str
    """How its names in the column ``source`` begin."""
    method: str = ""
    """How it timed, whatever its rows state."""
    load: str = ""
    """``burst``, ``sustained`` or a number of calls back to back, those that warm up included."""
    layout: str = ""
    """Of products."""
    accumulate: str = ""
    """Format of the accumulators of FP16 products."""
    beta: Mapping[Dtype, float] = field(default_factory=dict)
    """Of products, where it is not 0."""
    padded_to: int | None = None
    """Multiple that leading dimensions, or the channels of images, of FP16 runs were padded to."""
    operands: str = ""
    """What operands hold, FP32 ones excepted."""
    board: str = ""
    """How the boards begin that ``operands`` speaks of."""
    fp32_operands: str = ""
    zero_images: bool = False
    """Whether convolutions read images of zeros, with random filters."""
    rotated_linears: int = 0
    """Equal linear layers, each with weights of its own, that are multiplied with one input in turn. Where L2 holds the
    weights of all, with the input and a result, nothing is cold, though the table says so."""


UNKNOWN = KnownSource("")
KNOWN_SOURCES = (
    # code/nvidia: PAD_KERNELS pads for Tensor Cores, and results state the sizes before it. ``rand`` (tensor.h)
    # draws floats from 0 to 1, which gemm_bench.cu and conv_bench.cu copy to integers (``uint16_t``) where they
    # mean halves: each becomes zero. Beta is the integer 1 (``const int beta = 1.f``), which is the smallest
    # number of FP16 and of FP32; kernels of cuBLAS compare it with 0 as it is (``FSETP.NE``, without ``.FTZ``),
    # and read C.
    KnownSource(
        "deepbench",
        beta={Dtype.FP16: 2.0**-24, Dtype.FP32: 2.0**-149, Dtype.INT8: 1.0},
        padded_to=8,
        operands="zeros",
        fp32_operands="positive",
    ),
    # collector/vllm/collect_gemm.py: weights of vLLM layers that nobody has written, which are fresh device
    # memory on an A100; on boards with FP8 the process has drawn random ones there before (``fp8_block``).
    # ``outside_loop_count``.
    KnownSource("aiconfigurator-vllm", operands="zeros", board="a100", rotated_linears=6),
    # tools/profiler/src/options.cu: whole numbers from -3 or -4 to 3 or 4, which switch about as little as
    # zeros: 16384^3 in FP16 takes an A100 29.1 ms, as it does with identity matrices (NVIDIA/cutlass issue
    # 408).
    KnownSource("cutlass-profiler", operands="zeros"),
    KnownSource("https://github.com/NVIDIA/cutlass/", operands="zeros"),
    # neusight/Dataset/collect.py: ``torch.zeros``, and the filters that a layer of PyTorch begins with.
    KnownSource("neusight", zero_images=True),
    # vidur/profiling/mlp/mlp_wrapper.py, mlp_impl.py: one pass of 20 equal decoder layers, each of four
    # products, after a pass that warms up and the start of the profiler; between two sizes it writes and reads
    # the trace, and the board rests.
    KnownSource("vidur", load="80"),
    # test.py: ``torch.mm`` of matrices as ``torch.randn`` makes them, row by row, 6 times to warm up and 30
    # times between two readings of the clock.
    KnownSource("https://github.com/zzc0721/torch-performance-test-data/", load="36", layout="nn"),
    # python/tutorials/03-matrix-multiplication.py: ``torch.matmul`` of such matrices, timed by
    # ``triton.testing.do_bench``, which lists of published figures tell from a profiler in a remark at most.
    KnownSource("https://github.com/triton-lang/triton/issues/", method="do_bench", layout="nn"),
    # include/profile_utils.cuh: ``cublasGemmEx`` with ``CUBLAS_OP_N`` twice and the type of the operands as
    # ``computeType``, 100 calls to warm up and 100 between two events.
    KnownSource(
        "https://github.com/leimao/CUDA-GEMM-Optimization", method="stream", load="200", layout="nn", accumulate="fp16"
    ),
)


def known_source(source: str) -> KnownSource:
    """What is known of a source, by its name.

    >>> known_source("vidur").load
    '80'
    """
    return next((known for known in KNOWN_SOURCES if source.startswith(known.begins)), UNKNOWN)
