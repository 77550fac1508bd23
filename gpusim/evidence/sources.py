"""Sources of measured runs: how their programs ran and timed, and what they added to their readings.

What a program does is known from its code, and is one record a program (``PROGRAMS``). What its way of timing takes on
the machine where it ran is a value with a source, a kind and a spread, which a calibration may fit: files of the folder
``sources`` beside the specs state them, each for the boards of the spec of its name. This module alone looks a source
up by its name; a table that states something itself counts before it, but for the timing method and the layout of
images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from gpusim.host.timing_methods import Harness
from gpusim.numbers.formats import Dtype
from gpusim.record import Microseconds, Record, record_key
from gpusim.specs import Spec
from gpusim.specs.folders import first_file, search_folders
from gpusim.specs.records import Stated, stated
from gpusim.system import System

SOURCES = "sources"
"""Folder of the overheads of sources beside the specs, and the first key of their key paths."""


@dataclass(frozen=True, slots=True)
class Source:
    """The program of a source of runs. Texts are empty, and numbers None or 0, where nothing is known."""

    begins: str
    """How its names in the column ``source`` begin."""
    method: str = ""
    """How it timed, whatever its rows state."""
    load: str = ""
    """``burst``, ``sustained`` or a number of calls back to back, those that warm up included."""
    layout: str = ""
    """Layout of GEMMs."""
    accumulate: str = ""
    """Format of the accumulators of FP16 GEMMs."""
    beta: Mapping[Dtype, float] = field(default_factory=dict)
    """``beta`` of GEMMs by number format, where it is not 0."""
    images: Mapping[Dtype, str] = field(default_factory=dict)
    """Memory layout of images by number format, whatever rows state."""
    padded_to: int | None = None
    """Multiple that leading dimensions, or the channels of images, of FP16 runs were padded to."""
    operands: str = ""
    """Values that operands hold, FP32 operands excepted."""
    board: str = ""
    """How the boards begin that ``operands`` speaks of."""
    fp32_operands: str = ""
    zero_images: bool = False
    """Whether convolutions read images of zeros, with random filters."""
    torch: str = ""
    """Version of PyTorch whose kernels ran."""
    other_kernels: tuple[str, ...] = ()
    """What its column ``kernel`` names where others' kernels ran than those of the framework."""
    rotated_linears: int = 0
    """Equal linear layers, each with weights of its own, that are multiplied with one input in turn. Where L2 holds the
    weights of all, with the input and a result, nothing is cold, though the table says so."""
    attention: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Columns of attention by what its column ``kernel`` names, where its rows do not state them."""
    scales: Mapping[Dtype, tuple[str, str]] = field(default_factory=dict)
    """By number format of its GEMMs: what has a scale of its own, and what quantises the activations in the call."""
    input_in_l2: bool = False
    """Whether the call before each has read or written its input, so that the weights alone are cold."""


UNKNOWN = Source("")
_IN_PAGES = {"packed": "yes", "page_tokens": "64", "appends": "yes"}
_BY_LENGTH = {"packed": "yes"}
PROGRAMS = (
    # code/nvidia: PAD_KERNELS pads for Tensor Cores, and results state the sizes before it. ``rand`` (tensor.h)
    # draws floats from 0 to 1, which gemm_bench.cu and conv_bench.cu copy to integers (``uint16_t``) where they
    # mean halves: each becomes zero. Beta is the integer 1 (``const int beta = 1.f``), which is the smallest
    # number of FP16 and of FP32; kernels of cuBLAS compare it with 0 as it is (``FSETP.NE``, without ``.FTZ``),
    # and read C. The results of T4 came with a conv_bench.cu (baidu-research/DeepBench@60bea70) that keeps images of
    # halves in NHWC for Tensor Cores, and those of V100 were taken with the same CUDA and driver.
    Source(
        "deepbench",
        images={Dtype.FP16: "nhwc"},
        beta={Dtype.FP16: 2.0**-24, Dtype.FP32: 2.0**-149, Dtype.INT8: 1.0},
        padded_to=8,
        operands="zeros",
        fp32_operands="positive",
    ),
    # collector/vllm/collect_gemm.py: weights of vLLM layers that nobody has written, which are fresh device
    # memory on an A100; on boards with FP8 the process has drawn random ones there before (``fp8_block``).
    # ``outside_loop_count``. collector/vllm/collect_attn.py: pages of ``block_size`` tokens, and ``impl.forward``
    # writes the new keys and values before it attends; collect_attn_encoder.py has no pages.
    # FP8 layers find a scale for each row of their input in the call. The collector calls a
    # layer outside a compiled model, where vLLM compiles the quantisation by itself (QuantFP8.forward_native). That it
    # is not vLLM's own kernel is what its rows say: of 2,560 rows of 32 values on an H100 that one takes 4 us by
    # itself, the call 24; a row costs as much with 32 values as with 2,048, the block of a compiled reduction.
    Source(
        "aiconfigurator-vllm",
        operands="zeros",
        board="a100",
        rotated_linears=6,
        input_in_l2=True,
        attention={
            "vllm_flash_attn": _IN_PAGES,
            "vllm_flash_attn_fa2": _IN_PAGES | {"implementation": "flash2"},
            "vllm_flash_attn_fa3": _IN_PAGES | {"implementation": "flash3"},
            "vllm_vit_flash_attn_fa2": _BY_LENGTH | {"implementation": "flash2"},
            "vllm_vit_flash_attn_fa3": _BY_LENGTH | {"implementation": "flash3"},
        },
        scales={Dtype.FP8: ("row", "compiled")},
    ),
    # Pull requests of vLLM: products in FP8 and INT8 are its own of CUTLASS (cutlass_scaled_mm), of operands that are
    # quantised before; weights in groups are Marlin's, and exllama's beside them.
    Source(
        "https://github.com/vllm-project/vllm/",
        other_kernels=("exllama v2",),
        scales={Dtype.FP8: ("row", ""), Dtype.INT8: ("row", "")},
    ),
    Source("https://github.com/microsoft/onnxruntime/", other_kernels=("MatMulNBits",)),
    # TensorRT-LLM's smooth-quantised layer: a kernel writes the activations as INT8 before the product reads them.
    Source("aiconfigurator-trtllm", input_in_l2=True),
    # tools/profiler/src/options.cu: whole numbers from -3 or -4 to 3 or 4, which switch about as little as
    # zeros: 16384^3 in FP16 takes an A100 29.1 ms, as it does with identity matrices (NVIDIA/cutlass issue
    # 408).
    Source("cutlass-profiler", operands="zeros"),
    Source("https://github.com/NVIDIA/cutlass/", operands="zeros"),
    # neusight/Dataset/collect.py: ``torch.zeros``, and the filters that a layer of PyTorch begins with.
    Source("neusight", torch="2.1", zero_images=True),
    # benchmark/scripts: each operator as PyTorch has it, by a kernel of Liger in Triton, and compiled. Softmax of 2048
    # columns on an RTX 3090 takes as long in BF16 as in FP32: a CTA a row, as until 2.6.
    Source("liger-kernel", torch="2.6", other_kernels=("liger", "torch_compile")),
    # vidur/profiling/mlp/mlp_wrapper.py, mlp_impl.py: one pass of 20 equal decoder layers, each of four
    # products, after a pass that warms up and the start of the profiler; between two sizes it writes and reads
    # the trace, and the board rests.
    Source("vidur", load="80"),
    # test.py: ``torch.mm`` of matrices as ``torch.randn`` makes them, row by row, 6 times to warm up and 30
    # times between two readings of the clock.
    Source("https://github.com/zzc0721/torch-performance-test-data/", load="36", layout="nn"),
    # python/tutorials/03-matrix-multiplication.py: ``torch.matmul`` of such matrices, timed by
    # ``triton.testing.do_bench``, which lists of published times tell from a profiler in a remark at most.
    Source("https://github.com/triton-lang/triton/issues/", method="do_bench", layout="nn"),
    # include/profile_utils.cuh: ``cublasGemmEx`` with ``CUBLAS_OP_N`` twice and the type of the operands as
    # ``computeType``, 100 calls to warm up and 100 between two events.
    Source(
        "https://github.com/leimao/CUDA-GEMM-Optimization", method="stream", load="200", layout="nn", accumulate="fp16"
    ),
)


def source_of(name: str) -> Source:
    """What is known of a source's program, by its name in a table.

    >>> source_of("vidur").load
    '80'
    """
    return next((known for known in PROGRAMS if name.startswith(known.begins)), UNKNOWN)


class Overheads(Record):
    """What sources of measured runs add to their readings on some boards, by source [us]."""

    timing_us: dict[str, Microseconds] = Field(
        default={}, description="What the timing method of a source adds, or its launch interval [us]."
    )
    stall_us: dict[str, Microseconds] = Field(
        default={}, description="What a source adds to each call of a stream, by what it does beside them [us]."
    )

    replay_us: dict[str, Microseconds] = Field(
        default={}, description="What a source that replays a graph of one call of attention adds to each [us]."
    )

    def harness(self, source: str) -> Harness:
        """How a source timed its runs, by its name in a table; its keys here are those of :func:`record_key`."""
        key = record_key(source)
        return Harness(self.timing_us.get(key), self.stall_us.get(key, 0.0), self.replay_us.get(key, 0.0))


NO_OVERHEADS = Overheads()


@dataclass(frozen=True, slots=True)
class MeasuredSystem:
    """A system that runs were measured on, and what their sources added there."""

    system: System
    overheads: Overheads = NO_OVERHEADS

    def values(self) -> dict[str, Any]:
        """All values as nested mappings, those of sources below ``sources``."""
        return {**self.system.values(), SOURCES: self.overheads.model_dump()}

    def with_values(self, values: Iterable[tuple[str, object]]) -> MeasuredSystem:
        """The measured system with other values, by key path; those of sources may be new.

        Raises:
            ValueError: a value is out of its range.
        """
        of_system, of_sources = [], self.overheads.model_dump()
        for key_path, value in values:
            if key_path.startswith(f"{SOURCES}."):
                _, kind, source = key_path.split(".")
                of_sources[kind][source] = value
            else:
                of_system.append((key_path, value))
        return MeasuredSystem(self.system.with_values(of_system), Overheads.model_validate(of_sources))

    def with_overheads(self, overheads: Mapping[str, float]) -> MeasuredSystem:
        """The system on the user's machine, with what timing methods add there [us], whatever the source of a run."""
        if not overheads:
            return self
        return MeasuredSystem(replace(self.system, host=self.system.host.with_overheads(overheads)))


def stated_overheads(files: Iterable[Path], arch_path: Iterable[Path] = ()) -> Stated[Overheads] | None:
    """What sources add on the boards of a spec, with where each value stands; None where no file states any.

    The file that counts has the name of the nearest of the spec's files that has one in the folder beside it.

    Args:
        files: of the spec, nearest first.
        arch_path: folders of specs that are searched first for what a file of sources extends.

    Raises:
        SpecError: the file is wrong; each problem is one line.
    """
    path = first_file(path.parent / SOURCES / path.name for path in files)
    return stated(Overheads, path, [folder / SOURCES for folder in search_folders(arch_path)]) if path else None


def measured_system(spec: Spec, arch_path: Iterable[Path] = ()) -> MeasuredSystem:
    """A board as runs were measured on it.

    Raises:
        SpecError: a file of sources is wrong; each problem is one line.
    """
    found = stated_overheads(spec.files, arch_path)
    return MeasuredSystem(spec.system, found.record if found else NO_OVERHEADS)
