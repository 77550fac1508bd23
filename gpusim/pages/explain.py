"""Page of an explanation: where the time of an operator or of a step goes, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.pages import charts
from gpusim.pages.example import RecordedOperator, colours_of, example_section
from gpusim.pages.page import Block, Chart, Column, Facts, Page, Prose, Section, Table
from gpusim.pages.provenance import cautions, provenance
from gpusim.pages.reasons import roofline, speedup_section, tornado_section, waterfall_sections
from gpusim.pages.step import MOST_SPANS, STEP_ASSUMPTIONS, step_facts, step_sections
from gpusim.prediction.results import Result
from gpusim.report.formatting import bytes_text, energy_text, grid_text, interval_text, time_text
from gpusim.report.limit_text import limit_text
from gpusim.report.stall_reasons import STALL_REASONS
from gpusim.sim.causes import Cause
from gpusim.sim.trace import LaunchTrace
from gpusim.specs import Spec
from gpusim.studies.explain.explanation import Explanation
from gpusim.studies.explain.neighbours import Neighbour
from gpusim.studies.explain.sensitivities import limit_saving

TIMELINE_EVENTS = 3000
"""Spans of one SM that a page shows: more are slow to zoom."""
MOST_RECTANGLES = 3000
"""CTAs of waves that are drawn one by one; of more, full waves are drawn as one."""
MOST_ALTERNATIVES = 8
"""Other kernels of the library in the roofline."""
LANE_PX = 14
_KINDS = ("this kernel", "size halved or doubled", "other kernel, estimated")
_LIMITERS = {
    "warps": "the warps that an SM holds",
    "cta_slots": "the CTAs that an SM holds",
    "registers": "the registers of an SM",
    "shared_memory": "the shared memory of an SM",
}


@dataclass(frozen=True, slots=True)
class OperatorDetails:
    """What the page of an operator shows besides its explanation."""

    neighbours: Sequence[Neighbour] = ()
    recorded: Sequence[RecordedOperator] = ()
    """The operator, and where each of its warps is drawn, the same one on the other cores."""


def explain_page(
    found: Explanation,
    workload: str,
    specs: Sequence[Spec],
    command: Sequence[str],
    details: OperatorDetails = OperatorDetails(),
) -> Page:
    """The page.

    Args:
        workload: as the command line names it.
        specs: of the GPU, and of the one that it is compared with.
        command: the arguments that made it.
    """
    result, gpu = found.of.result, specs[0].gpu
    lead = f"{workload} on {found.of.gpu} is predicted to take {time_text(found.total_us)}"
    interval = interval_text(*found.of.interval)
    lead += f" (8 in 10 runs: {interval}). " if interval else ". "
    lead += "This page says where the time goes and what would change it."
    if isinstance(result, Result):
        shown = list(_operator_sections(found, result, gpu, details))
    else:
        limit = result.step.bottleneck
        shown = [
            Section("Result", [step_facts(result)]),
            *waterfall_sections(found.of, gpu),
            *tornado_section(found, limit),
            *step_sections(result, gpu, MOST_SPANS),
        ]
    if found.to is not None:
        shown.insert(1, speedup_section(found))
    assumptions = _operator_assumptions(result) if isinstance(result, Result) else STEP_ASSUMPTIONS
    return Page(
        f"{workload} on {found.of.gpu}", lead + cautions(specs), [*shown, *provenance(specs, command, assumptions)]
    )


def _operator_assumptions(result: Result) -> tuple[str, ...]:
    conditions = result.conditions
    return (
        f"L2 is {conditions.l2} at the start, the load is {conditions.load}, operands are {conditions.operands}",
        f"the launch is simulated as --detail {result.detail} says",
        *result.notes,
    )


def _operator_sections(found: Explanation, result: Result, gpu: Gpu, details: OperatorDetails) -> Iterator[Section]:
    yield Section("Result", [_facts(found, result), *(Prose(note) for note in result.notes)])
    yield from waterfall_sections(found.of, gpu)
    yield Section("Roofline", [_roofline(result, gpu, details.neighbours)])
    saving = limit_saving(result, found.sensitivities)
    limit = limit_text(result, saving) if result.utilization.savings else ""
    yield from tornado_section(found, limit)
    if any(result.counters.stall_cycles.values()):
        yield Section("Stalls", [_stalls(result)])
    yield Section("Occupancy and waves", [_occupancy(result, gpu), _waves(result)])
    if details.recorded:
        if len(details.recorded) > 1 or details.recorded[0].is_whole:
            yield example_section([one for one in details.recorded if one.is_whole])
        yield Section("Timeline of one SM", list(_timelines(details.recorded[0])))


def _facts(found: Explanation, result: Result) -> Facts:
    timing, launch, counters = result.timing, result.launch, result.counters
    rate = f"{timing.tflops:.4g} {result.operator.rate_unit}, {timing.pct_of_peak:.1f} % of the peak"
    return Facts((
        ("time", time_text(found.total_us)),
        ("8 in 10 runs", interval_text(*found.of.interval) or "not stated"),
        ("kernel time", f"{time_text(timing.kernel_time_us)}, {timing.cycles:,} cycles"),
        ("rate", rate if result.operator.k else f"{timing.bandwidth_gb_per_s:.4g} GB/s"),
        ("limit", result.bottleneck),
        ("next limit", result.utilization.next_bottleneck),
        ("clock", f"{timing.clock_mhz:.0f} MHz of {timing.max_clock_mhz:.0f}, held by its {_clock_limit(result)}"),
        ("kernel", launch.kernel),
        ("grid", f"{grid_text(launch.grid)} CTAs of {launch.threads} threads"),
        ("DRAM traffic", bytes_text(counters.dram_bytes)),
        ("L2 hits", f"{100 * counters.l2_hit_fraction:.1f} %"),
        ("energy", f"{energy_text(counters.energy_mj)} at {counters.power_w:.0f} W"),
    ))  # fmt: skip


def _clock_limit(result: Result) -> str:
    """What holds the clock, in words."""
    return "power limit" if result.utilization.clock_limit == "power" else "maximum"


def _roofline(result: Result, gpu: Gpu, neighbours: Sequence[Neighbour]) -> Chart:
    this, near, other = _KINDS
    points = [(this, result.kernel, result, result.tflops)]
    points += [(near, one.name, one.result, one.result.tflops) for one in neighbours]
    alternatives = [one for one in result.alternatives if one.kernel != result.kernel][:MOST_ALTERNATIVES]
    flops = result.tflops * result.kernel_time_us
    points += [(other, one.kernel, result, flops / one.estimate_us) for one in alternatives]
    kinds = [kind for kind in _KINDS if any(point[0] == kind for point in points)]
    return roofline(points, gpu, kinds)


def _stalls(result: Result) -> Chart:
    counters = result.counters
    causes = {Cause(name): cycles for name, cycles in counters.stall_cycles.items() if cycles}
    rows = [
        {
            "state": STALL_REASONS[cause].name,
            "cause": cause.value,
            "cycles": cycles,
            "share": 100 * cycles / counters.warp_cycles,
            "meaning": STALL_REASONS[cause].meaning,
            "helps": STALL_REASONS[cause].helps,
        }
        for cause, cycles in sorted(causes.items(), key=lambda item: -item[1])
    ]
    columns = (
        Column("state", "state", meaning="Warp state in Nsight Compute"),
        Column("share", "share", "%", 3),
        Column("cycles", "warp-cycles"),
        Column("meaning", "meaning"),
        Column("helps", "what helps"),
        Column("cause", "in gpusim"),
    )
    spec = charts.spec_of(
        rows,
        height=charts.BAR_PX * len(rows),
        mark={"type": "bar"},
        encoding={
            "y": charts.field("state", "", "nominal", sort=None, axis={"ticks": False, "labelPadding": 6}),
            "x": charts.field("share", "share of the warps' time [%]"),
            "color": {**colours_of(list(causes)), "legend": None},
            "tooltip": charts.tips(
                ("state", "state", ""), ("share", "share [%]", ".3~g"), ("cycles", "warp-cycles", ",d"),
                ("meaning", "meaning", ""), ("helps", "what helps", ""),
            ),
        },
    )  # fmt: skip
    return Chart(
        spec,
        "What the warps do, by Nsight Compute's names",
        f"Every cycle of every warp has one cause; together they are {counters.warp_cycles:,} warp-cycles.",
        Table(columns, rows, "States of the warps, and what helps", "stalls"),
        "stalls",
    )


def _occupancy(result: Result, gpu: Gpu) -> Facts:
    launch = result.launch
    warps = math.ceil(launch.threads / gpu.sm.warp_size) * launch.occupancy
    return Facts((
        ("CTAs on an SM", f"{launch.occupancy} at most, with {warps} of {gpu.sm.max_warps} warps"),
        ("limited by", _LIMITERS.get(launch.occupancy_limiter, launch.occupancy_limiter)),
        ("waves", f"{launch.waves:.4g}"),
        ("SMs with work", f"{launch.sms_used} of {launch.sm_count}"),
        ("split-K", str(launch.split_k)),
        ("useful multiply-adds", f"{100 * launch.useful_fraction:.1f} %, the rest pads tiles"),
    ))  # fmt: skip


def _waves(result: Result) -> Chart:
    """SMs over time, as if all waves took the same time."""
    launch = result.launch
    sms, resident = launch.sm_count, launch.occupancy
    full = int(launch.waves + 1e-9)
    tail = round((launch.waves - full) * sms * resident)
    wave_us = result.kernel_time_us / (full + (tail > 0))
    of_tail = [min(resident, tail // sms + (sm < tail % sms)) for sm in range(sms)]
    drawn = [(at, 1, [resident] * sms) for at in range(full)]
    if full * sms > MOST_RECTANGLES:
        drawn = [(0, full, [resident] * sms)]
    drawn += [(full, 1, of_tail)] * (tail > 0)
    rows = [
        {
            "sm": sm,
            "below": sm + 0.85,
            "start": at * wave_us,
            "end": (at + count) * wave_us - 0.02 * wave_us,
            "ctas": ctas[sm],
            "wave": f"{at + 1}" if count == 1 else f"{at + 1} to {at + count}",
        }
        for at, count, ctas in drawn
        for sm in range(sms)
        if ctas[sm]
    ]
    y = charts.field("sm", "SM", scale={"reverse": True, "domain": [0, sms], "nice": False}, axis={"grid": False})
    spec = charts.spec_of(
        rows,
        height=min(420, max(120, 4 * sms)),
        mark={"type": "rect"},
        encoding={
            "x": charts.field("start", "time [µs]", scale={"nice": False}),
            "x2": {"field": "end"},
            "y": y,
            "y2": {"field": "below"},
            "color": charts.field(
                "ctas",
                "CTAs on the SM",
                scale={"scheme": "blues", "domain": [0, resident]},
                legend={"format": "d", "values": [*range(0, resident + 1, math.ceil(resident / 8))]},
            ),
            "tooltip": charts.tips(("sm", "SM", "d"), ("wave", "wave", ""), ("ctas", "CTAs", "d")),
        },
    )
    idle = 100 * result.utilization.time_shares.get("idle_sms", 0.0)
    if tail:
        last = f"The last wave has {tail} CTAs for {sms * resident} places. " if full else ""
        text = f"{launch.waves:.3g} waves. {last}SMs without work cost {idle:.1f} % of the kernel's time."
    else:
        text = f"{full} full waves: no SM is without work."
    return Chart(spec, "SMs over time", f"{text} Waves are drawn as long as each other.", name="waves")


def _timelines(one: RecordedOperator) -> Iterator[Block]:
    for number, trace in enumerate(one.recorder.launches, 1):
        if trace.kept:
            yield _timeline(trace, f"timeline-{number}")


def _timeline(trace: LaunchTrace, name: str) -> Chart:
    """Warps, then pipes, ports and links."""
    busy = "unit at work"
    rows: list[dict[str, str | float]] = []
    for track in sorted((one for one in trace.tracks if one.spans), key=lambda one: bool(one.unit)):
        if not track.unit:
            rows += [
                {
                    "lane": track.name,
                    "state": STALL_REASONS[Cause(span.name)].name,
                    "start": span.start,
                    "end": span.end,
                }
                for span in track.spans
            ]
            continue
        joined: list[list[float]] = []
        for span in track.spans:
            if joined and span.start <= joined[-1][1]:
                joined[-1][1] = span.end
            else:
                joined.append([span.start, span.end])
        rows += [
            {"lane": track.name, "state": busy, "start": round(low, 2), "end": round(high, 2)} for low, high in joined
        ]
    causes = {Cause(span.name) for track in trace.tracks if not track.unit for span in track.spans}
    colour = colours_of(list(causes))
    colour["scale"]["domain"].append(busy)
    colour["scale"]["range"].append("#888888")
    spec = charts.timeline(
        rows, "lane", "cycles", LANE_PX * len({row["lane"] for row in rows}), color=colour,
        tooltip=charts.tips(
            ("lane", "", ""), ("state", "state", ""), ("start", "from cycle", ",.6~g"), ("end", "to cycle", ",.6~g")
        ),
    )  # fmt: skip
    text = f"Warps of one SM and its pipes, ports and links over {trace.shown_cycles:,.0f} simulated cycles"
    text += f" of {trace.simulated_cycles:,}" if trace.dropped else ""
    if trace.jumps:
        text += f"; {trace.skipped_cycles:,} cycles that repeat were extrapolated and are not drawn"
    return Chart(spec, trace.kernel, f"{text}. The wheel or the buttons zoom, dragging pans.", name=name)
