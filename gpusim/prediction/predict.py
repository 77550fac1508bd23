"""The one flow: workload, kernel choice, plan, simulation, sustained clock, result."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gpusim.files.inputs import excerpt
from gpusim.hardware.gpu import Gpu, Unit
from gpusim.hardware.machine import Machine
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.launch import Launch
from gpusim.library.catalogue import Kernel
from gpusim.lowering.gemm.launches import lower
from gpusim.lowering.gemm.plan import Plan, plan
from gpusim.prediction.bottleneck import busy_fractions, gpu_busy_fractions, time_shares
from gpusim.prediction.choose import Candidate, candidates
from gpusim.prediction.power import Sustained, energy, sustained_clock
from gpusim.prediction.results import DETAILS, Alternative, Result
from gpusim.prediction.selection import CORES, UnsupportedError, usable_kernels
from gpusim.progress import Progress
from gpusim.roofline import TileFacts, bounds_us
from gpusim.sim.causes import Cause
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.sim.trace import Recorder
from gpusim.units import GIB, us_of_cycles
from gpusim.workloads.conditions import L2_STATES, calls_of, checked_load
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

SHOWN_ALTERNATIVES = 8
FLOAT_ROUNDING = 1e-9
WHOLE_TURNS = 300_000
"""Turns of warps' main loops that are played whole to mend a contradiction, at most: about ten seconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to predict."""

    detail: str = "sampled"
    l2: str = "cold"
    kernel: str | None = None
    """Pin a kernel by its printed name; None lets the ranking choose."""
    load: str = "sustained"
    """``sustained``: repeated until the power limit has had its say. ``burst``: over before it acts, at maximum
    clock. A whole number: so many calls back to back, of which the limit sees a running average."""
    unit: Unit | None = None
    """``cuda`` or ``tensor`` cores; None takes whichever the ranking puts first."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("detail", self.detail, DETAILS),
            ("l2", self.l2, L2_STATES),
            ("unit", self.unit or "cuda", tuple(CORES)),
        ):
            if value not in known:
                near = difflib.get_close_matches(str(value)[:100], known, n=1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise ValueError(f"{name}: '{excerpt(str(value))}' is not one of {', '.join(map(repr, known))}{hint}")
        try:
            object.__setattr__(self, "load", checked_load(self.load))
        except ValueError as error:
            raise ValueError(f"load {excerpt(str(self.load))}: {error}") from None


def predict(
    gpu: Gpu,
    operator: Operator,
    options: Options = Options(),
    recorder: Recorder | None = None,
    progress: Progress | None = None,
) -> Result:
    """Predict one operator on one GPU.

    Args:
        recorder: hears the launches at the sustained clock once more, on all sub-partitions; the result is theirs,
            some permille from what one sub-partition stands for without it.
        progress: called now and then in ``full`` with the k-steps played of a launch, and how many it has.

    Raises:
        UnsupportedError: the operator is not predicted, the GPU has no path for the data type, or the pinned kernel
            does not fit.
    """
    if not isinstance(gpu, Gpu):
        raise TypeError(f"arch: expected a Gpu, such as load_spec('t4').gpu, got {gpu!r}")
    if not isinstance(operator, Gemm):
        raise UnsupportedError(f"operator '{operator.op}' is not predicted")
    gemm = operator
    ranked = ranked_plans(gpu, gemm, options)
    chosen = ranked[0].plan
    timed = time_plan(gpu, gemm, chosen, options, partial(simulate, progress=progress))
    wrong = contradictions(gpu, gemm, chosen, options, timed)
    if wrong and options.detail == "sampled" and _warp_turns(gpu, chosen) <= WHOLE_TURNS:
        timed = time_plan(gpu, gemm, chosen, options, partial(simulate, extrapolate=False))
        wrong = contradictions(gpu, gemm, chosen, options, timed)
    if recorder is not None:
        clock_mhz = timed.sustained.clock_mhz
        machine = Machine.of(gpu, clock_mhz)
        outcomes = [
            simulate(machine, launch, options.detail, recorder=recorder, progress=progress) for launch in timed.launches
        ]
        timed = Timed(timed.launches, timed.sustained, _kernel_time_us(gpu, outcomes, clock_mhz), outcomes)
    return _result(gpu, gemm, options, ranked, timed, wrong)


def contradictions(gpu: Gpu, gemm: Gemm, planned: Plan, options: Options, timed: Timed) -> tuple[str, ...]:
    """What a simulated time cannot be: shorter than the closed-form bound, or with a resource above its capacity."""
    most = 1 + FLOAT_ROUNDING
    bounds = _bounds(gpu, gemm, planned, gpu.clock.max_mhz, options.l2 == "warm")
    below = [
        f"simulated {timed.kernel_time_us:.6g} us are below the lower bound of {bound_us:.6g} us ({name})"
        for name, bound_us in bounds.items()
        if bound_us > most * timed.kernel_time_us
    ]
    above = [
        f"{name} is {100 * busy / outcome.cycles:.1f} % busy in {launch.name}"
        for launch, outcome in zip(timed.launches, timed.outcomes, strict=False)
        for name, busy in outcome.busy_cycles.items()
        if busy > most * outcome.cycles
    ]
    return (*below, *above)


def _warp_turns(gpu: Gpu, planned: Plan) -> int:
    """Turns of main loops that playing a plan's launches whole takes."""
    return sum(one.ctas_on_busiest_sm(gpu) * one.warps * one.steps for one in planned.schedules)


@dataclass(frozen=True, slots=True)
class Timed:
    """A plan's run at the clock that the load leaves it."""

    launches: tuple[Launch, ...]
    sustained: Sustained
    kernel_time_us: float
    outcomes: list[LaunchOutcome]
    """Of each launch; none where only a bound was asked for."""


Simulate = Callable[[Machine, Launch, str], LaunchOutcome]
"""Plays a launch on a machine, to a detail."""


def time_plan(gpu: Gpu, gemm: Gemm, planned: Plan, options: Options, play: Simulate = simulate) -> Timed:
    """Run a plan at its sustained clock, or at the highest one where the load is a burst.

    Args:
        play: what simulates a launch, for callers that keep outcomes.
    """
    warm = options.l2 == "warm"
    launches = lower(planned)
    runs: dict[float, list[LaunchOutcome]] = {}

    def time_at(clock_mhz: float) -> float:
        if options.detail == "bound":
            return max(_bounds(gpu, gemm, planned, clock_mhz, warm).values())
        if clock_mhz not in runs:
            machine = Machine.of(gpu, clock_mhz)
            runs[clock_mhz] = [play(machine, launch, options.detail) for launch in launches]
        return _kernel_time_us(gpu, runs[clock_mhz], clock_mhz)

    used = energy(gpu, gemm, planned.schedules)
    # A lower bound knows no power limit.
    calls = 0.0 if options.detail == "bound" else calls_of(options.load)
    sustained = sustained_clock(gpu, used, time_at, calls)
    return Timed(launches, sustained, time_at(sustained.clock_mhz), runs.get(sustained.clock_mhz, []))


def ranked_plans(gpu: Gpu, gemm: Gemm, options: Options = Options()) -> list[Candidate]:
    """The plans that a workload may run on, the one a library would launch first.

    Raises:
        UnsupportedError: the GPU has no path for the data type, or the pinned kernel does not fit.
    """
    kernels = usable_kernels(gpu, gemm, options.kernel, options.unit)
    ranked = candidates(gpu, gemm, kernels, warm=options.l2 == "warm", clock_mhz=gpu.clock.boost_mhz)
    if not ranked:
        raise UnsupportedError(_misfit(gpu, gemm, kernels[0]))
    return ranked


def _other_choice(gpu: Gpu, gemm: Gemm, options: Options, chosen: Plan) -> str | None:
    """A note where a library made for a board's overridden values would launch something else than its own does."""
    if gpu.library_board is gpu:
        return None
    other = ranked_plans(gpu.with_library_of(None), gemm, options)[0].plan
    if (other.kernel, other.split_k, other.mode) == (chosen.kernel, chosen.split_k, chosen.mode):
        return None
    return (
        f"the kernel is the choice of the library of {gpu.name} as shipped; a library for the overridden values would "
        f"launch {other.name}, split-K {other.split_k}"
    )


def _kernel_time_us(gpu: Gpu, outcomes: list[LaunchOutcome], clock_mhz: float) -> float:
    gaps = gpu.launch.graph_gap_us * (len(outcomes) - 1)
    fixed = gpu.launch.kernel_latency_us * len(outcomes)
    return sum(us_of_cycles(outcome.cycles, clock_mhz) for outcome in outcomes) + gaps + fixed


def _misfit(gpu: Gpu, gemm: Gemm, kernel: Kernel) -> str:
    """Why a kernel cannot run on an SM."""
    name = kernel.printed_name(gemm.layout, gemm.dtype)
    try:
        plan(gpu, gemm, kernel)
    except DoesNotFitError as error:
        return f"{name} does not fit: {error}"
    raise AssertionError(f"{name} fits {gpu.name}")


def _bounds(gpu: Gpu, gemm: Gemm, chosen: Plan, clock_mhz: float, warm: bool) -> dict[str, float]:
    kernel = chosen.kernel
    staged = kernel.family.main_loop.in_shared_memory
    tile = TileFacts(
        kernel.tile_m, kernel.tile_n, staged, kernel.cluster_m, kernel.cluster_n, kernel.family.stores_result
    )
    return bounds_us(gpu, gemm, chosen.main.instruction, clock_mhz, warm=warm, tile=tile)


def _result(
    gpu: Gpu,
    gemm: Gemm,
    options: Options,
    ranked: list[Candidate],
    timed: Timed,
    wrong: tuple[str, ...],
) -> Result:
    chosen = ranked[0].plan
    schedules, main = chosen.schedules, chosen.main
    clock, kernel_time_us, outcomes = timed.sustained.clock_mhz, timed.kernel_time_us, timed.outcomes
    bounds = _bounds(gpu, gemm, chosen, gpu.clock.max_mhz, options.l2 == "warm")
    stalls = {cause.value: 0 for cause in Cause}
    for outcome in outcomes:
        for cause, cycles in outcome.stall_cycles.items():
            stalls[cause.value] += cycles
    cycles = sum(outcome.cycles for outcome in outcomes) or round(kernel_time_us * clock)
    l2_read = sum(schedule.l2_read_bytes for schedule in schedules)
    dram_read = sum(outcome.dram_read_bytes for outcome in outcomes)
    if not outcomes:
        dram_read = sum(schedule.traffic.dram_read_bytes for schedule in schedules)
    dram_write = sum(schedule.traffic.dram_write_bytes for schedule in schedules)
    power = timed.sustained.power_w
    tflops = gemm.flops / kernel_time_us / 1e6
    if outcomes:
        busy, gpu_busy = busy_fractions(outcomes), gpu_busy_fractions(gpu, schedules, outcomes)
        shares = time_shares(busy, gpu_busy, us_of_cycles(cycles, clock) / kernel_time_us)
    else:
        busy = gpu_busy = {name: bound / kernel_time_us for name, bound in bounds.items()}
        shares = {max(bounds, key=lambda name: bounds[name]): 1.0}
    memory_gib = (gemm.operand_bytes + gemm.result_bytes) / GIB
    fits = memory_gib <= gpu.dram.capacity_gb  # vendors count device memory in units of 2^30 bytes
    notes = ("" if fits else _oversize(gpu, memory_gib), _other_choice(gpu, gemm, options, chosen), *wrong)
    gap = gpu.launch.graph_gap_us
    return Result(
        arch=gpu.name,
        detail=options.detail,
        batch=gemm.batch,
        m=gemm.m,
        n=gemm.n,
        k=gemm.k,
        dtype=gemm.dtype.value,
        accumulate=gemm.accumulate,
        output_dtype=gemm.output,
        sparsity=gemm.sparsity,
        layout=gemm.layout,
        l2=options.l2,
        load=options.load,
        time_us=kernel_time_us + gap,
        kernel_time_us=kernel_time_us,
        launch_overhead_us=gap,
        cycles=cycles,
        clock_mhz=clock,
        tflops=tflops,
        executed_tflops=tflops * gemm.kept_fraction,
        pct_of_peak=100 * tflops / gpu.peak_tflops(main.instruction),
        peak_tflops=gpu.peak_tflops(main.instruction),
        peak_clock_mhz=gpu.stated_clock_mhz(main.instruction),
        bound_us=max(bounds.values()),
        bottleneck=next(iter(shares)),
        time_shares=shares,
        busy_fractions=busy,
        gpu_busy_fractions=gpu_busy,
        sm_count=gpu.sm.count,
        sms_used=min(main.ctas, gpu.sm.count),
        useful_fraction=gemm.flops / 2 / main.fma,
        kernel=chosen.name,
        unit=main.instruction.unit,
        split_k=chosen.split_k,
        grid=main.grid.extents,
        threads=chosen.kernel.threads,
        waves=main.waves(gpu),
        occupancy=main.occupancy.ctas,
        occupancy_limiter=main.occupancy.limiter,
        dram_bytes=round(dram_read + dram_write),
        dram_read_bytes=round(dram_read),
        dram_write_bytes=round(dram_write),
        l2_bytes=round(sum(schedule.l2_bytes for schedule in schedules)),
        shared_bytes=round(sum(schedule.shared_bytes for schedule in schedules)),
        l2_hit_fraction=1.0 - min(1.0, dram_read / l2_read),
        tensor_active_fraction=gpu_busy["arithmetic"] if main.instruction.unit == "tensor" else 0.0,
        power_w=power,
        energy_mj=power * kernel_time_us * 1e-3,
        stall_cycles=stalls,
        warp_cycles=sum(stalls.values()),
        bounds_us=bounds,
        memory_gib=memory_gib,
        fits=fits,
        consistent=not wrong,
        notes=tuple(note for note in notes if note),
        alternatives=tuple(
            Alternative(c.plan.name, c.plan.split_k, c.plan.main.grid.extents, c.estimate_us)
            for c in ranked[:SHOWN_ALTERNATIVES]
        ),
    )


def _oversize(gpu: Gpu, memory_gib: float) -> str:
    return (
        f"A, B and C do not fit into device memory: they take {memory_gib:.4g} GiB, {gpu.name} has "
        f"{gpu.dram.capacity_gb:g}"
    )
