"""Assembles a result from a plan and its simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusim.arrays import largest, nearest_whole, smallest
from gpusim.confidence import PredictionInterval, interval_of
from gpusim.hardware.gpu import Gpu, Instruction
from gpusim.lowering.gemm.fused_winograd import FusedWinograd
from gpusim.lowering.gemm.gathered import ImplicitGemm
from gpusim.prediction.breakdown import Breakdown
from gpusim.prediction.choose import Candidate
from gpusim.prediction.limits import LEAST_SAVING, ClockLimit, Limits, clock_limit
from gpusim.prediction.options import Options
from gpusim.prediction.plans import Plan, main_launch
from gpusim.prediction.results import (
    Alternative,
    Conditions,
    Counters,
    KernelTiming,
    LaunchConfiguration,
    OperatorColumns,
    Result,
    Utilization,
)
from gpusim.prediction.timing import Timed
from gpusim.sim.causes import Cause
from gpusim.system import System
from gpusim.units import GIB
from gpusim.workloads.attention import Attention
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

SHOWN_ALTERNATIVES = 8
_CAUSES = tuple(cause.value for cause in Cause)


def result_of(
    system: System,
    options: Options,
    ranked: Sequence[Candidate[Plan]],
    chosen: Plan,
    timed: Timed,
    notes: Sequence[str],
    divided: Breakdown,
    limits: Limits | None,
    *,
    consistent: bool,
) -> Result:
    """The result of a plan.

    Args:
        chosen: the plan of the first of the ranked.
        notes: on its choice and its time.
        divided: what the time goes to.
        limits: what would help; None of a lower bound.
        consistent: no bound and no capacity contradicts the time.
    """
    gpu, operator = system.gpu, chosen.operator
    assert not isinstance(operator, ImplicitGemm | FusedWinograd)  # parts of a convolution's plan
    memory_gib = operator.size_bytes / GIB
    fits = memory_gib <= gpu.dram.visible_gib
    interval = interval_of(
        system.confidence,
        gpu.name,
        operator,
        timed.kernel_time_us,
        options.source,
        estimated=options.detail == "estimate",
    )
    used = _utilization(divided, limits, clock_limit(gpu, timed.sustained.clock_mhz))
    return Result(
        arch=gpu.name,
        overrides=dict(system.overrides),
        detail=options.detail,
        operator=operator_columns(operator),
        conditions=Conditions(options.l2, options.load, options.operands),
        timing=timing_of(system, options, operator, chosen.instruction, timed, interval),
        utilization=used,
        launch=launch_configuration(gpu, chosen, timed),
        counters=counters_of(chosen.instruction, timed, used),
        bounds_us=timed.bounds_us,
        memory_gib=memory_gib,
        fits=fits,
        consistent=consistent,
        notes=(*(() if fits else (_oversize(gpu, operator, memory_gib),)), *notes),
        alternatives=tuple(
            Alternative(one.name, one.split_k, one.extents, one.estimate_us) for one in ranked[:SHOWN_ALTERNATIVES]
        ),
    )


def _utilization(divided: Breakdown, limits: Limits | None, clock: ClockLimit) -> Utilization:
    busiest = sorted(divided.gpu_busy_fractions, key=lambda name: -divided.gpu_busy_fractions[name])
    savings = limits.savings if limits else {}
    first = limits.bottleneck if limits else busiest[0]
    named = first.removeprefix("balanced: ").split(", ")
    helping = [name for name, saved in savings.items() if saved >= LEAST_SAVING]
    return Utilization(
        bottleneck=first,
        next_bottleneck=next(name for name in (*helping, *busiest) if name not in named),
        clock_limit=clock,
        savings=savings,
        time_shares=divided.time_shares,
        busy_fractions=divided.busy_fractions,
        gpu_busy_fractions=divided.gpu_busy_fractions,
    )


def operator_columns(operator: Operator) -> OperatorColumns:
    """The columns of an operator; empty text and a k of 0 for what it does not have.

    Each head of attention counts as one of the batch.
    """
    columns = operator.columns
    heads = operator.heads if isinstance(operator, Attention) else 1
    return OperatorColumns(
        op=operator.op,
        batch=int(columns["batch"]) * heads,
        m=int(columns["m"]),
        n=int(columns["n"]),
        k=int(columns["k"] or 0),
        dtype=operator.dtype.value,
        accumulate=str(columns["acc_dtype"]),
        output_dtype=operator.output if isinstance(operator, Gemm) else operator.dtype.value,
        sparsity=str(columns["sparsity"]),
        layout=str(columns["layout"]),
        order=operator.order if isinstance(operator, Gemm) else "",
    )


def timing_of(
    system: System,
    options: Options,
    operator: Operator,
    instruction: Instruction,
    timed: Timed,
    interval: PredictionInterval,
) -> KernelTiming:
    """Time, clock and rates; of an operator, a run and an interval in columns, columns of them."""
    kernel_time_us, clock_mhz = timed.kernel_time_us, timed.sustained.clock_mhz
    gap_us = system.host.graph_gap_us
    time_us = kernel_time_us + gap_us
    cycles = sum(outcome.cycles for outcome in timed.outcomes)
    tflops, peak_tflops = operator.flops / kernel_time_us / 1e6, system.gpu.peak_tflops(instruction)
    return KernelTiming(
        time_us=time_us,
        time_us_p10=None if options.detail == "bound" else interval.low * time_us,
        time_us_p90=None if options.detail == "bound" else interval.high * time_us,
        evidence=interval.evidence,
        calibrated_on=system.calibrated_on,
        kernel_time_us=kernel_time_us,
        launch_overhead_us=gap_us,
        cycles=cycles if timed.outcomes else nearest_whole(kernel_time_us * clock_mhz),
        clock_mhz=clock_mhz,
        max_clock_mhz=system.gpu.clock.max_mhz,
        power_limit_w=system.gpu.power.board_limit_w,
        tflops=tflops,
        executed_tflops=tflops * getattr(operator, "kept_fraction", 1.0),
        bandwidth_gb_per_s=operator.size_bytes / kernel_time_us * 1e-3,
        pct_of_peak=100 * tflops / peak_tflops,
        peak_tflops=peak_tflops,
        peak_clock_mhz=system.gpu.stated_clock_mhz(instruction),
        bound_us=largest(*timed.bounds_us.values()),
    )


def launch_configuration(gpu: Gpu, chosen: Plan, timed: Timed) -> LaunchConfiguration:
    """The kernel and how it lies on the SMs; of a plan in columns, columns of them."""
    number = main_launch(chosen)
    totals, launch = timed.totals[number], timed.launches[number]
    return LaunchConfiguration(
        sm_count=gpu.sm.count,
        sms_used=smallest(totals.ctas, gpu.sm.count),
        useful_fraction=chosen.useful_fraction,
        kernel=chosen.name,
        unit=chosen.instruction.unit,
        split_k=chosen.split_k,
        grid=launch.grid.extents,
        threads=launch.resources.threads,
        waves=totals.waves(gpu),
        occupancy=totals.occupancy.ctas,
        occupancy_limiter=totals.occupancy.limiter,
    )


def counters_of(instruction: Instruction, timed: Timed, used: Utilization) -> Counters:
    """The counters of a run, or columns of them; DRAM reads are those simulated, where anything was."""
    totals, outcomes, power_w = timed.totals, timed.outcomes, timed.sustained.power_w
    l2_read = sum(one.traffic.l2_read_bytes for one in totals)
    dram_write = sum(one.traffic.dram_write_bytes for one in totals)
    planned_read = sum(one.traffic.dram_read_bytes for one in totals)
    dram_read = sum(outcome.dram_read_bytes for outcome in outcomes) if outcomes else planned_read
    stalls = dict.fromkeys(_CAUSES, 0)
    for outcome in outcomes:
        for cause, cycles in outcome.stall_cycles.items():
            stalls[cause.value] += cycles
    return Counters(
        dram_bytes=nearest_whole(dram_read + dram_write),
        dram_read_bytes=nearest_whole(dram_read),
        dram_write_bytes=nearest_whole(dram_write),
        l2_bytes=nearest_whole(sum(one.l2_bytes for one in totals)),
        shared_bytes=nearest_whole(sum(one.shared_bytes for one in totals)),
        l2_hit_fraction=1.0 - smallest(1.0, dram_read / l2_read) if np.all(l2_read) else 0.0,
        tensor_active_fraction=used.gpu_busy_fractions["arithmetic"] if instruction.unit == "tensor" else 0.0,
        power_w=power_w,
        energy_mj=power_w * timed.kernel_time_us * 1e-3,
        stall_cycles=stalls,
        warp_cycles=sum(stalls.values()),
    )


def _oversize(gpu: Gpu, operator: Operator, memory_gib: float) -> str:
    tensors = "A, B and C" if isinstance(operator, Gemm) else "operands and results"
    return (
        f"{tensors} do not fit into device memory: they take {memory_gib:.4g} GiB, {gpu.name} has "
        f"{gpu.dram.visible_gib:.4g}"
    )
