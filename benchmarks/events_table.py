"""What the simulation of events adds to the errors of closed forms: with the kernel and the clock of each prediction.

Three times are compared with each measured run: the simulated one, the closed-form estimate that ranks kernels, and the
roofline. An operator whose kernel a framework picks by rule has no estimate in the ranking; its closed form is the
longest of what its launch takes of DRAM, L2, the issue slots and the FMA pipe, with the latency of one access.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accuracy_table import ATTENTION, ORDER, kind_of, percent
from sections import row

from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.lowering.totals import Totals
from gpusim.prediction.choose import Candidate, GemmCandidate
from gpusim.prediction.convolution_selection import ConvolutionCandidate
from gpusim.prediction.estimate import estimates_us
from gpusim.prediction.plans import Plan, launches_of
from gpusim.prediction.ranked import rank
from gpusim.studies.validation.accuracy import errors
from gpusim.studies.validation.prediction import Scored, cases_of_rows, reading_us, specs_of, systems_of
from gpusim.studies.validation.report import ValidationReport
from gpusim.system import System
from gpusim.units import ceil_div, us_of_cycles


def events_table(report: ValidationReport) -> str:
    """Mean errors by kind of operator as Markdown: of the simulation, of the closed form, of the roofline."""
    lines = [row(("operators", "runs", "simulation", "closed form", "roofline")), "|---|---:|---:|---:|---:|"]
    for kind in ORDER:
        if kind == ATTENTION:  # which has no closed form
            continue
        scored = [item for table in report.tables if kind_of(table) == kind for item in table.scored]
        if scored:
            measured = [item.row.time_us for item in scored]
            of_times = (
                [item.predicted_us for item in scored],
                list(closed_form_readings_us(scored)),
                [item.bound_us for item in scored],
            )
            means = (percent(errors(times, measured)["mape"]) for times in of_times)
            lines.append(row((kind, f"{len(scored):,}", *means)))
    return "\n".join([*lines, ""])


def closed_form_us(system: System, chosen: Candidate[Plan], clock_mhz: float) -> float:
    """Time of the launches of a plan at a clock, without events [us]."""
    match chosen:
        case GemmCandidate():
            return float(estimates_us(system, chosen.plans, clock_mhz)[chosen.row])
        case ConvolutionCandidate(gemm=gemm):
            around_us = chosen.estimate_us - gemm.estimate_us
            return closed_form_us(system, gemm, clock_mhz) + around_us
    machine = Machine.of(system.gpu, clock_mhz)
    cycles = sum(
        _streamed_cycles(machine, launch, totals)
        for launch, totals in zip(launches_of(system.gpu, chosen.plan), chosen.plan.totals, strict=True)
        if isinstance(launch, Launch)
    )
    return us_of_cycles(cycles, clock_mhz) + len(chosen.plan.totals) * system.gpu.front_end.kernel_latency_us


def closed_form_readings_us(scored: Sequence[Scored]) -> Iterator[float]:
    """What the source of each row would have read for kernels that take as long as their closed form [us]."""
    rows = [item.row for item in scored]
    specs, unknown = specs_of((one.gpu for one in rows), ())
    systems = systems_of(rows, specs, {}, ())
    cases, _ = cases_of_rows(rows, "sampled", systems, unknown)
    for index, item in enumerate(scored):
        measured, case = systems[item.row.gpu, item.row.cuda], cases[index]
        chosen = rank(case.system, case.workload.operator, case.workload.options).candidates[0]
        time_us = closed_form_us(case.system, chosen, item.result.timing.clock_mhz)
        yield reading_us(time_us, item.row, measured)


def _streamed_cycles(machine: Machine, launch: Launch, totals: Totals) -> float:
    """Cycles of a launch that streams its operands through L2: the busiest resource, and the latency of one access."""
    moved = totals.traffic
    written_bytes = totals.l2_bytes - moved.l2_read_bytes
    parts = machine.sm_count * machine.sub_partitions
    multiplied = [(one, amount / one.fma / parts) for one, amount in totals.multiply_adds]
    latency_cycles = machine.cta_launch_cycles + machine.dram_latency_cycles
    busiest = max(
        (moved.dram_read_bytes * moved.read_cost + moved.dram_write_bytes * launch.write_cost)
        / machine.dram_bytes_per_cycle,
        (moved.l2_read_bytes + written_bytes * machine.l2_write_cost) / machine.l2_bytes_per_cycle,
        (totals.other_instructions / parts + sum(count for _, count in multiplied)) / machine.issue_per_cycle,
        ceil_div(totals.ctas, totals.occupancy.ctas * machine.sm_count) * latency_cycles,
        *(count * one.issue_interval_cycles / one.sustained_fraction for one, count in multiplied),
    )
    return busiest + latency_cycles
