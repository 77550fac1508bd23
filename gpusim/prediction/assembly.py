"""Assembles a result from a plan and its simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusim.confidence import interval_of
from gpusim.hardware.gpu import Gpu
from gpusim.lowering.gemm.fused_winograd import FusedWinograd
from gpusim.lowering.gemm.gathered import ImplicitGemm
from gpusim.lowering.totals import Totals
from gpusim.prediction.bottleneck import busy_fractions, gpu_busy_fractions, time_shares
from gpusim.prediction.choose import Candidate
from gpusim.prediction.options import Options
from gpusim.prediction.plans import Plan, main_launch, second_kernels_of
from gpusim.prediction.results import Alternative, Result
from gpusim.prediction.timing import Timed
from gpusim.sim.causes import Cause
from gpusim.sim.outcome import LaunchOutcome
from gpusim.system import System
from gpusim.units import GIB, us_of_cycles
from gpusim.workloads.attention import Attention
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

SHOWN_ALTERNATIVES = 8


def result_of(
    system: System,
    options: Options,
    ranked: Sequence[Candidate[Plan]],
    chosen: Plan,
    timed: Timed,
    notes: Sequence[str],
    *,
    consistent: bool,
) -> Result:
    """The result of a plan.

    Args:
        chosen: the plan of the first of the ranked.
        notes: on its choice and its time.
        consistent: no bound and no capacity contradicts the time.
    """
    gpu = system.gpu
    operator, instruction, totals = chosen.operator, chosen.instruction, timed.totals
    assert not isinstance(operator, ImplicitGemm | FusedWinograd)  # parts of a convolution's plan
    number = main_launch(chosen)
    main, launch = totals[number], timed.launches[number]
    kernel_time_us, outcomes, bounds = timed.kernel_time_us, timed.outcomes, timed.bounds_us
    clock = timed.sustained.clock_mhz
    stalls = _stall_cycles(outcomes)
    cycles = sum(outcome.cycles for outcome in outcomes) or round(kernel_time_us * clock)
    l2_read = sum(one.traffic.l2_read_bytes for one in totals)
    dram_read, dram_write = _dram_bytes(totals, outcomes)
    power = timed.sustained.power_w
    tflops = operator.flops / kernel_time_us / 1e6
    if outcomes:
        busy, gpu_busy = busy_fractions(outcomes), gpu_busy_fractions(gpu, totals, outcomes)
        shares = time_shares(busy, gpu_busy, us_of_cycles(cycles, clock) / kernel_time_us)
    else:
        busy = gpu_busy = {name: bound / kernel_time_us for name, bound in bounds.items()}
        shares = {max(bounds, key=bounds.__getitem__): 1.0}
    memory_gib = operator.size_bytes / GIB
    fits = memory_gib <= gpu.dram.capacity_gb  # vendors count device memory in units of 2^30 bytes
    gap = system.host.graph_gap_us
    interval = interval_of(system.confidence, gpu.name, operator, kernel_time_us)
    return Result(
        arch=gpu.name,
        detail=options.detail,
        **identity(operator),
        l2=options.l2,
        load=options.load,
        operands=options.operands,
        time_us=kernel_time_us + gap,
        time_us_p10=None if options.detail == "bound" else interval.low * (kernel_time_us + gap),
        time_us_p90=None if options.detail == "bound" else interval.high * (kernel_time_us + gap),
        evidence=interval.evidence,
        kernel_time_us=kernel_time_us,
        launch_overhead_us=gap,
        cycles=cycles,
        clock_mhz=clock,
        tflops=tflops,
        executed_tflops=tflops * (operator.kept_fraction if isinstance(operator, Gemm) else 1.0),
        bandwidth_gb_per_s=operator.size_bytes / kernel_time_us * 1e-3,
        pct_of_peak=100 * tflops / gpu.peak_tflops(instruction),
        peak_tflops=gpu.peak_tflops(instruction),
        peak_clock_mhz=gpu.stated_clock_mhz(instruction),
        bound_us=max(bounds.values()),
        bottleneck=next(iter(shares)),
        time_shares=shares,
        busy_fractions=busy,
        gpu_busy_fractions=gpu_busy,
        sm_count=gpu.sm.count,
        sms_used=min(main.ctas, gpu.sm.count),
        useful_fraction=chosen.useful_fraction,
        kernel=chosen.name,
        unit=instruction.unit,
        split_k=chosen.split_k,
        grid=launch.grid.extents,
        threads=launch.resources.threads,
        waves=main.waves(gpu),
        occupancy=main.occupancy.ctas,
        occupancy_limiter=main.occupancy.limiter,
        dram_bytes=round(dram_read + dram_write),
        dram_read_bytes=round(dram_read),
        dram_write_bytes=round(dram_write),
        l2_bytes=round(sum(one.l2_bytes for one in totals)),
        shared_bytes=round(sum(one.shared_bytes for one in totals)),
        l2_hit_fraction=1.0 - min(1.0, dram_read / l2_read) if l2_read else 0.0,
        tensor_active_fraction=gpu_busy["arithmetic"] if instruction.unit == "tensor" else 0.0,
        power_w=power,
        energy_mj=power * kernel_time_us * 1e-3,
        stall_cycles=stalls,
        warp_cycles=sum(stalls.values()),
        second_kernels=second_kernels_of(chosen),
        bounds_us=bounds,
        memory_gib=memory_gib,
        fits=fits,
        consistent=consistent,
        notes=(*(() if fits else (_oversize(gpu, operator, memory_gib),)), *notes),
        alternatives=tuple(
            Alternative(one.name, one.split_k, one.extents, one.estimate_us) for one in ranked[:SHOWN_ALTERNATIVES]
        ),
    )


def identity(operator: Operator) -> dict[str, Any]:
    """What a result repeats of its operator, whose columns of the measured schema leave out what it does not have.

    Each head of attention counts as one of the batch.
    """
    columns = operator.columns
    heads = operator.heads if isinstance(operator, Attention) else 1
    return {
        "op": operator.op,
        "batch": int(columns["batch"]) * heads,
        "m": columns["m"],
        "n": columns["n"],
        "k": columns["k"] or 0,
        "dtype": operator.dtype.value,
        "accumulate": columns["acc_dtype"],
        "output_dtype": operator.output if isinstance(operator, Gemm) else operator.dtype.value,
        "sparsity": columns["sparsity"],
        "layout": columns["layout"],
    }


def _dram_bytes(totals: Sequence[Totals], outcomes: Sequence[LaunchOutcome]) -> tuple[float, float]:
    """Read and written [B]; reads as simulated, where anything was."""
    planned = sum(one.traffic.dram_read_bytes for one in totals)
    read = sum(outcome.dram_read_bytes for outcome in outcomes) if outcomes else planned
    return read, sum(one.traffic.dram_write_bytes for one in totals)


def _stall_cycles(outcomes: Sequence[LaunchOutcome]) -> dict[str, int]:
    stalls = {cause.value: 0 for cause in Cause}
    for outcome in outcomes:
        for cause, cycles in outcome.stall_cycles.items():
            stalls[cause.value] += cycles
    return stalls


def _oversize(gpu: Gpu, operator: Operator, memory_gib: float) -> str:
    tensors = "A, B and C" if isinstance(operator, Gemm) else "operands and results"
    return (
        f"{tensors} do not fit into device memory: they take {memory_gib:.4g} GiB, {gpu.name} has "
        f"{gpu.dram.capacity_gb:g}"
    )
