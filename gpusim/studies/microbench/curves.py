"""Simulated points as the panels of a plot: one for each benchmark of a board that has a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpusim.figures import ticks
from gpusim.figures.microbench_plots import CurvePanel, CurvePoint
from gpusim.hardware.gpu import Gpu
from gpusim.lowering.microbench.l1 import KIB
from gpusim.studies.microbench.benchmarks import BENCHMARKS
from gpusim.studies.microbench.parameters import Benchmark
from gpusim.studies.microbench.suite import SimulatedPoint
from gpusim.units import gb_per_s

TITLES = {
    "mem_latency_pchase_random": "pointer chase, one chain",
    "mem_latency_pchase_random_1chain_per_sm": "pointer chase, a chain on each SM",
    "cp_async_latency_pchase": "pointer chase through cp.async",
    "tma_bulk_latency_pchase": "pointer chase through bulk copies (TMA)",
    "dram_chase_latency_vs_ctas": "pointer chases in DRAM, a chain for each CTA",
    "dram_chase_latency_vs_warps_one_sm": "pointer chases in DRAM, a chain for each warp of one SM",
    "dram_stream_bw": "streams through DRAM",
    "l2_dram_stream_bw_footprint": "streams over a footprint",
    "dram_bw_vs_ctas": "loops through DRAM",
    "cache_read_bw_private": "every SM reads the same buffer",
    "l2_read_bw": "a grid reads a buffer, CTA by CTA",
    "small_kernel_chain_bw": "chain of small copies",
    "back_to_back_kernel_time": "empty kernels of a stream",
    "instr_throughput": "rate of an instruction",
    "instr_peakwarps": "warps for 90 % of the rate of an instruction",
    "alu_reciprocal_throughput": "interval of instructions of an SM",
    "roofline_fp32_gflops": "multiply-adds of a stream, rate",
    "roofline_bw": "multiply-adds of a stream, bandwidth",
    "roofline_power": "multiply-adds of a stream, power",
    "roofline_sm_clock": "multiply-adds of a stream, clock",
    "mixbench_gflops": "mixbench, rate",
    "mixbench_bw": "mixbench, bandwidth",
    "sgemm_kernel_time": "long SGEMM, time",
    "sgemm_power": "long SGEMM, power",
    "sgemm_sustained_sm_clock": "long SGEMM, clock",
    "babelstream_bw_clock_powercap": "BabelStream below limits of clock and power, bandwidth",
    "babelstream_mean_power_clock_powercap": "BabelStream below limits of clock and power, power",
    "torch_gemm_tflops": "torch.matmul",
    "gemm_throughput": "GEMM of the library, rate",
    "cublas_gemm": "cuBLAS GEMM, timed by its host",
    "gemm_time": "GEMM of the library, time",
}
"""Benchmarks with an axis in words."""


class Axis(NamedTuple):
    """The axis of a parameter."""

    label: str
    text: Callable[[float], str] | None = None
    """Labels of values that are powers of two, with their units; None for round numbers."""
    factor: float = 1.0
    """From the value in the table to that on the axis."""


SIZE = Axis("m = n = k", ticks.number)
AXES: Mapping[str, Axis] = {
    "footprint_kb": Axis("footprint [KiB]", ticks.bytes_of_kib),
    "footprint_b": Axis("footprint [KiB]", ticks.bytes_of_kib, 1 / KIB),
    "cta": Axis("threads of a CTA", ticks.number),
    "ctas": Axis("CTAs", ticks.number),
    "warps": Axis("warps of an SM", ticks.number),
    "warps_per_sm": Axis("warps of an SM", ticks.number),
    "ilp": Axis("independent chains of a warp"),
    "elements_f64": Axis("elements of 8 B"),
    "fma_iters": Axis("multiply-adds of an element"),
    "iters": Axis("multiply-adds of an element"),
    "clock_mhz_set": Axis("highest clock, as set [MHz]"),
    "m": SIZE,
    "n": SIZE,
    "bytes": Axis("size of a matrix [KiB]", ticks.bytes_of_kib, 1 / KIB),
}
"""Parameters along an axis."""
SERIES = {
    "kernel": "{}",
    "op": "{}",
    "mode": "{}",
    "type": "{}",
    "cta": "{} threads",
    "ctas_per_sm": "CTAs per SM: {}",
    "ilp": "chains: {}",
    "hint": "hint {}",
    "l2": "L2 {}",
    "power_limit_w": "{} W",
}
"""Values that tell curves apart in words."""
QUANTITIES = {
    "GB/s": "bandwidth [GB/s]",
    "cycles": "latency [cycles]",
    "ns": "latency [ns]",
    "us": "interval [µs]",
    "ms": "time [ms]",
    "s": "time [s]",
    "W": "power [W]",
    "MHz": "SM clock [MHz]",
    "GFLOP/s": "rate [GFLOP/s]",
    "TFLOP/s": "rate [TFLOP/s]",
    "ops/clk/SM": "rate [operations/cycle/SM]",
    "cycles/op": "interval [cycles]",
    "warps": "warps",
}
"""Labels of readings by their unit."""
L1, L2, DRAM = "L1 bandwidth of the spec", "L2 bandwidth of the spec", "DRAM peak"
LEVELS = {
    "dram_stream_bw": (DRAM,),
    "dram_bw_vs_ctas": (DRAM,),
    "l2_dram_stream_bw_footprint": (L2, DRAM),
    "cache_read_bw_private": (L1, L2),
    "l2_read_bw": (L2, DRAM),
}
"""Bandwidths of the spec that limit a benchmark."""


def panels_of(points: Sequence[SimulatedPoint]) -> list[CurvePanel]:
    """The panels of points that were simulated; benchmarks of single points have none."""
    found = []
    for gpu, name in dict.fromkeys((one.gpu, one.benchmark) for one in points if one.value is not None):
        benchmark = BENCHMARKS[name]
        own = [one for one in points if (one.gpu, one.benchmark) == (gpu, name) and one.value is not None]
        drawn = tuple(point for one in own if (point := _point(one, benchmark)) is not None)
        if len({point.x for point in drawn}) > 1:
            axis = AXES[benchmark.x]
            found.append(
                CurvePanel(
                    gpu,
                    TITLES[name],
                    axis.label,
                    QUANTITIES[own[0].unit],
                    drawn,
                    axis.text,
                    _levels(own[0].spec, LEVELS.get(name, ())),
                )
            )
    return found


def _levels(gpu: Gpu | None, names: Sequence[str]) -> dict[str, float]:
    """Bandwidths that a spec states [GB/s]."""
    if gpu is None:
        return {}
    clock_mhz = gpu.clock.max_mhz
    known = {
        L1: gb_per_s(gpu.sm.count * gpu.load_store.l1_bytes_per_cycle, clock_mhz),
        L2: gb_per_s(gpu.l2.bandwidth_bytes_per_cycle, clock_mhz),
        DRAM: gpu.dram.peak_bandwidth_gb_per_s,
    }
    return {name: known[name] for name in names}


def _point(one: SimulatedPoint, benchmark: Benchmark) -> CurvePoint | None:
    try:
        x = float(one.parameters[benchmark.x]) * AXES[benchmark.x].factor
    except (KeyError, ValueError):
        return None
    named = [SERIES[name].format(one.parameters[name]) for name in benchmark.series if name in one.parameters]
    return CurvePoint(", ".join(named), x, one.value or 0.0, one.published)
