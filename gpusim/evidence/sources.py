"""What the public sources of timings are documented to have done, beyond what a table of theirs can say.

Facts about stopwatches, each with its citation: none is about a shape, and none is fitted. Where one says that rows
were timed otherwise than their ``method`` column says, a validation tells so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache


@dataclass(frozen=True, slots=True)
class Source:
    """One source of measured runs."""

    documented: str
    """Where it says so."""
    method: str | None = None
    """How it timed, where its own code says another way than the tables do that carry its rows on."""
    calls: int | None = None
    """Executions back to back, with those that warm up: how long the power limit could act."""
    stopwatch_us: float | None = None
    """Mean deviation of a reading from the truth [us]."""
    cuda: int | None = None
    """Major version of CUDA whose libraries it ran."""
    padded_halves: int | None = None
    """Multiple that it padded leading dimensions of FP16 matrices to; rows state the sizes before."""
    repeats_p90: Mapping[str, float] = field(default_factory=dict)
    """Relative deviation of its repeats that nine in ten stay below, by board."""


SOURCES: Mapping[str, Source] = {
    # CUDA 10.1 on both boards. The mean of 400 launches, cast to whole microseconds: half of one is cut off on average.
    # FP16 matrices are padded first, as Tensor Cores needed before cuBLAS 11 (PAD_KERNELS).
    "deepbench": Source(
        "https://github.com/baidu-research/DeepBench/blob/master/code/nvidia/gemm_bench.cu",
        calls=400,
        stopwatch_us=1 / 2,
        cuda=10,
        padded_halves=8,
    ),
    # TensorRT's layer profiler around one layer. It ticks every 1.024 us, all times of these tables are multiples of
    # it: with f = time / tick modulo 1 a time is read one tick too high with probability f, else too low, and the
    # mean of 2 f (1 - f) over all f is a third of a tick.
    "aiconfigurator-*-sq": Source(
        "https://github.com/ai-dynamo/aiconfigurator, collector/trtllm/collect_gemm_trt.py",
        method="layer",
        stopwatch_us=1.024 / 3,
    ),
    # A CUDA graph of 6 linears is replayed 3 times before and 6 times between the events.
    "aiconfigurator-vllm-*": Source(
        "https://github.com/ai-dynamo/aiconfigurator, collector/vllm/collect_gemm.py and collector/helper.py",
        calls=54,
    ),
    # PyTorch 2.1 with CUDA 12.1. One call to warm up and 25 timed ones.
    "neusight": Source(
        "https://github.com/sitar-lab/NeuSight, neusight/Tracing/trace.py",
        calls=26,
        cuda=12,
        repeats_p90={"v100-pcie-32gb": 0.02},
    ),
    # do_bench: events inside a queue that clearing the L2 keeps filled, so no dispatch is waited for.
    "https://github.com/triton-lang/triton/*": Source(
        "https://github.com/triton-lang/triton, python/triton/testing.py", method="profiler"
    ),
    # A wall clock over a loop of asynchronous calls, as the rows' own note says.
    "https://github.com/zzc0721/torch-performance-test-data/*": Source(
        "https://github.com/zzc0721/torch-performance-test-data/issues/108", method="stream"
    ),
}
"""By the pattern of the name in a table's ``source`` column."""

_UNKNOWN = Source("")


@cache
def source_named(name: str) -> Source:
    """What is known of a source; nothing of one that is not listed.

    >>> source_named("aiconfigurator-trtllm-sq").method, source_named("mine").method
    ('layer', None)
    """
    return next((source for pattern, source in SOURCES.items() if fnmatchcase(name, pattern)), _UNKNOWN)
