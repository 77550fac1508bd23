"""Instructions: latency of a chain, rate of many, over warps and independent chains on one SM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.errors import excerpt
from gpusim.hardware.machine import Machine
from gpusim.lowering.microbench.compute_loops import InstructionLoop, instruction_launch
from gpusim.sim.simulate import simulate
from gpusim.studies.microbench.parameters import Benchmark, Parameters, Reading, UnsupportedBenchmarkError, points
from gpusim.system import System

MANY_WARPS = 32
"""Warps on an SM: enough for every pipe."""
INSTRUCTION_OF: Mapping[str, str] = {
    **dict.fromkeys(("FADD", "FSUB", "FMUL", "FMA", "FFMA"), "ffma"),
    "DFMA": "dfma",
    **dict.fromkeys(("IADD", "IADD3"), "alu"),
    **dict.fromkeys(("MUFU",), "sfu"),
}
"""What executes an operation of a source; others compile to sequences that are not stated."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of instructions that was simulated on an SM."""

    cycles: float
    of_a_warp: int
    """Instructions of each warp."""
    lanes: float
    """Operations of each instruction."""


def latency(system: System, given: Parameters) -> Reading:
    """Cycles of an instruction that waits for the one before."""
    loop = _simulated(system, given, 1, 1)
    return Reading(loop.cycles / loop.of_a_warp, "cycles")


def throughput(system: System, given: Parameters) -> Reading:
    """Operations of an SM in a cycle, with as many warps as it takes."""
    loop = _simulated(system, given, MANY_WARPS, given.count("ilp", 1))
    return Reading(MANY_WARPS * loop.of_a_warp * loop.lanes / loop.cycles, "ops/clk/SM")


def reciprocal_throughput(system: System, given: Parameters) -> Reading:
    """Cycles between instructions of an SM, with so many warps of so many chains."""
    warps = given.count("warps_per_sm", MANY_WARPS)
    loop = _simulated(system, given, warps, given.count("ilp", 1))
    return Reading(loop.cycles / (warps * loop.of_a_warp), "cycles/op")


def warps_for_peak(system: System, given: Parameters) -> Reading:
    """Fewest warps, of multiples of four, that reach nine tenths of the rate of many."""
    chains = given.count("ilp", 1)
    peak = _rate(system, given, MANY_WARPS, chains)
    enough = (warps for warps in range(4, MANY_WARPS, 4) if _rate(system, given, warps, chains) >= 0.9 * peak)
    return Reading(next(enough, MANY_WARPS), "warps")


def _rate(system: System, given: Parameters, warps: int, chains: int) -> float:
    loop = _simulated(system, given, warps, chains)
    return warps * loop.of_a_warp / loop.cycles


def _simulated(system: System, given: Parameters, warps: int, chains: int) -> Loop:
    gpu = system.gpu
    operation = given.word("op", "FMA")
    if operation not in INSTRUCTION_OF:
        raise UnsupportedBenchmarkError(
            f"parameter op: '{excerpt(operation)}' compiles to instructions that are not stated"
        )
    if warps * gpu.sm.warp_size > gpu.sm.max_threads_per_cta:
        raise UnsupportedBenchmarkError(f"parameter warps_per_sm: a CTA of {gpu.name} has no {warps} warps")
    loop = InstructionLoop(INSTRUCTION_OF[operation], warps, chains)
    cycles = simulate(Machine.of(gpu, gpu.clock.max_mhz), instruction_launch(gpu, loop)).cycles
    return Loop(cycles - gpu.sm.cta_launch_cycles, loop.of_a_warp, gpu.sm.warp_size)


WARPS = (1, 2, 4, 8, 16, 32)
BENCHMARKS: Mapping[str, Benchmark] = {
    "instr_latency": Benchmark(latency, "", ("op",), points("op", ("FMA", "IADD", "MUFU"))),
    "instr_throughput": Benchmark(throughput, "ilp", ("op",), points("op", ("FMA", "IADD", "MUFU"))),
    "instr_peakwarps": Benchmark(warps_for_peak, "ilp", ("op",), points("ilp", (1, 2, 3), op="FMA")),
    "alu_reciprocal_throughput": Benchmark(
        reciprocal_throughput, "warps_per_sm", ("op", "ilp"), points("warps_per_sm", WARPS, op="DFMA", ilp="1")
    ),
}
