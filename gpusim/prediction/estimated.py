"""Outcomes of launches in closed form: what ``estimate`` gives in place of a simulation.

GEMMs, those within convolutions too, have the estimate that ranks kernels (:mod:`gpusim.prediction.estimate`). Other
launches are simulated: frameworks choose their kernels by rule, so that no ranking estimates them.
"""

from __future__ import annotations

from gpusim.hardware.machine import Machine
from gpusim.lowering.columns import columns_of
from gpusim.lowering.convolution.plan import ConvolutionPlan
from gpusim.lowering.gemm.plan import GemmPlan
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.lowering.quantised import QuantisedPlan
from gpusim.prediction.estimate import busy_cycles, launch_cycles
from gpusim.prediction.plans import Plan
from gpusim.sim.outcome import LaunchOutcome
from gpusim.units import whole_cycles


def closed_forms(planned: Plan) -> tuple[Schedule | None, ...]:
    """What the estimate of each launch of a plan reads, in order; None where a launch has no closed form."""
    match planned:
        case GemmPlan(schedules=schedules):
            return schedules
        case ConvolutionPlan(before=before, gemm=gemm, after=after):
            return (*(None for _ in before), *gemm.schedules, *(None for _ in after))
        case QuantisedPlan(gemm=gemm):
            return (None, *gemm.schedules)
    return tuple(None for _ in planned.totals)


def estimated(machine: Machine, schedule: Schedule) -> LaunchOutcome:
    """What a launch takes on a machine by the estimate that ranks kernels, without stalls.

    It takes at least as long as its busiest resource.
    """
    columns, moved = columns_of(schedule), schedule.traffic
    busy = {name: float(cycles[0]) for name, cycles in busy_cycles(machine, columns).items()}
    cycles = max(float(launch_cycles(machine, columns)[0]), *busy.values())
    return LaunchOutcome(whole_cycles(cycles), {}, busy, moved.l2_read_bytes, moved.dram_read_bytes)
