"""A microbenchmark as a program on the simulated machine."""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.errors import excerpt
from gpusim.evidence.sources import NO_OVERHEADS, Overheads
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.studies.microbench import bandwidth, gemm, instructions, latency, launches, power
from gpusim.studies.microbench.parameters import Benchmark, Parameters, Reading, UnsupportedBenchmarkError
from gpusim.system import System

SUITES: Mapping[str, Mapping[str, Benchmark]] = {
    "latency": latency.BENCHMARKS,
    "bandwidth": bandwidth.BENCHMARKS,
    "launch": launches.BENCHMARKS,
    "instructions": instructions.BENCHMARKS,
    "power": power.BENCHMARKS,
    "gemm": gemm.BENCHMARKS,
}
"""Benchmarks by suite."""
BENCHMARKS = {name: benchmark for suite in SUITES.values() for name, benchmark in suite.items()}


NOT_SIMULATED: Mapping[str, str] = {
    "roofline_temp": "temperature is not simulated",
    "sgemm_temperature": "temperature is not simulated",
    "l1_stride": "bank conflicts of strided loads are not simulated",
    "l1_block": "bank conflicts of strided loads are not simulated",
    "mem_latency_pchase_seq": "the time that the timer adds to each load differs between GPUs and is not stated",
    "latency_pchase": "the time that the timer adds to each load differs between GPUs and is not stated",
    "dram_latency_distribution": "the time that the timer adds to each load differs between GPUs and is not stated",
    "l2_latency_distribution": "the time that the timer adds to each load differs between GPUs and is not stated",
    "ubench_power": "what the arguments of its kernels mean is not stated",
    "power_log": "the load of the logged run is not stated",
    "power_at_power_cap": "the GEMMs of the language model that ran are not stated",
    "sm_clock_at_power_cap": "the GEMMs of the language model that ran are not stated",
    "sm_clock_": "the load of the run is not stated",
    "kernel_fixed_overhead": "what its host adds is not stated",
    "kernel_launch_latency": "what its host adds is not stated",
    "cta_dispatch_total_time": "what its host adds is not stated",
    "seq_read_bw": "it contains launches, and what its host adds is not stated",
    "inter_kernel_l2_read_bw": "it contains launches, and what its host adds is not stated",
    "readBandwidth": "its source calls the result not optimal, and does not state the kernel",
    "writeBandwidth": "its source calls the result not optimal, and does not state the kernel",
    "alu_cycles_per_warp_instr_1warp": "its loop takes 29 cycles around each instruction",
    "graph_step": "the kernels of its steps are not stated",
    "stream_step": "the kernels of its steps are not stated",
    "ncu_": "its clock is locked by the profiler, at a value that differs from row to row",
}
"""Why benchmarks are not simulated, by the beginning of their names."""


def reading_of(
    system: System, benchmark: str, parameters: Mapping[str, str], overheads: Overheads = NO_OVERHEADS
) -> Reading:
    """What a benchmark would read on a system, with the parameters that its table states.

    With ``ecc=off`` DRAM streams as it does where ECC is switched off, on boards that have a value for it.

    Args:
        overheads: of the programs that timed the published points.

    Raises:
        UnsupportedBenchmarkError: no program simulates it, or not with these parameters.
    """
    if benchmark not in BENCHMARKS:
        reasons = (reason for start, reason in NOT_SIMULATED.items() if benchmark.startswith(start))
        raise UnsupportedBenchmarkError(f"benchmark '{excerpt(benchmark)}': {next(reasons, 'no program simulates it')}")
    given = dict(parameters)
    without_ecc, ecc = system.gpu.dram.without_ecc_fraction, given.pop("ecc", "on")
    if ecc not in ("on", "off"):
        raise UnsupportedBenchmarkError(f"parameter ecc: expected on or off, got '{excerpt(ecc)}'")
    if ecc == "off" and without_ecc is not None:
        system = system.with_values([("dram.efficiency_fraction", without_ecc)])
    try:
        return BENCHMARKS[benchmark].simulate(system, Parameters(given, overheads))
    except DoesNotFitError as error:
        raise UnsupportedBenchmarkError(str(error)) from None
