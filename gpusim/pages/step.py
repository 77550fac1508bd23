"""Page of steps of a model: layers, operators and kernels with their times, host against GPU, memory over the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.figures.style import COLOURS
from gpusim.hardware.gpu import Gpu
from gpusim.models.aten.program import Program
from gpusim.models.passes.step import used_bytes
from gpusim.pages import charts
from gpusim.pages.page import Chart, Column, Facts, Page, Section, Table
from gpusim.pages.provenance import cautions, provenance
from gpusim.pages.reasons import roofline, waterfall_sections
from gpusim.pages.treemap import Rectangle, squarified
from gpusim.report.formatting import gpu_text, time_text
from gpusim.report.model_tables import NO_LAYER, step_of_each_title, step_title
from gpusim.specs import Spec
from gpusim.step.model import ModelResult
from gpusim.step.results import OperatorShare, TimedTask
from gpusim.studies.explain.explanation import Explained
from gpusim.studies.explain.parts import parts_of
from gpusim.units import GIB

MOST_SPANS = 4000
"""Kernels of a page's timelines, all cases together: more are slow to zoom."""
MOST_LAYERS = 60
"""Bars of layers; where there are more, layers are taken together one level higher."""
MOST_TILES = 150
"""Operators of a treemap; the others are one tile."""
MOST_POINTS = 60
"""Operators of a roofline, those that take most time."""
MOST_SAMPLES = 1500
"""Points of memory over the step."""
STEP_ASSUMPTIONS = (
    "the step is repeated until clock and temperature have settled",
    "calls of the host take the time that its record states",
)
_PHASES = ("forward", "backward", "update", "communication")


def model_page(results: Sequence[tuple[str, ModelResult]], specs: Mapping[str, Spec], command: Sequence[str]) -> Page:
    """The page of one step, or of several in comparison.

    Args:
        results: each with what is said of it beside its GPU and precision, such as ``prompt``; empty: nothing.
        specs: those of the boards by name.
        command: the arguments that made it.
    """
    first = results[0][1]
    several = len(results) > 1
    sections = [_comparison(results)] if several else []
    for said, result in results:
        gpu = specs[result.step.arch].gpu
        heading = _name(said, result) if several else "Result"
        sections.append(Section(heading, [step_facts(result)]))
        of = f": {heading}" if several else ""
        explained = Explained(result, parts_of(result))
        sections += waterfall_sections(explained, gpu, of)
        sections += step_sections(result, gpu, MOST_SPANS // len(results), of)
    title = step_of_each_title(first) if several else step_title(first)
    lead = "How long the step takes, what it consists of, and what it waits for. Every time is predicted."
    return Page(
        title, lead + cautions(specs.values()), [*sections, *provenance([*specs.values()], command, STEP_ASSUMPTIONS)]
    )


def _name(said: str, result: ModelResult) -> str:
    name = f"{gpu_text(result.step.arch, result.overrides)}, {result.policy.precision}"
    return f"{name}, {said}" if said else name


def _comparison(results: Sequence[tuple[str, ModelResult]]) -> Section:
    first = results[0][1]
    rows: list[dict[str, Any]] = [
        {
            "case": _name(said, one),
            "step_ms": one.step_ms,
            "low": one.step_us_p10 * 1e-3,
            "high": one.step_us_p90 * 1e-3,
            "throughput": one.throughput,
            "speedup": one.throughput / first.throughput,
            "tensor": one.tensor_active_pct,
            "idle": 100 * one.step.idle_fraction,
            "memory": one.memory_gib,
            "fits": one.fits,
            "bottleneck": one.step.bottleneck,
        }
        for said, one in results
    ]
    columns = (
        Column("case", "case"),
        Column("step_ms", "step", "ms"),
        Column("low", "8 in 10 from", "ms"),
        Column("high", "to", "ms"),
        Column("throughput", "throughput", first.unit),
        Column("speedup", "speedup", "×", 3),
        Column("tensor", "Tensor Cores active", "%", 3),
        Column("idle", "idle", "%", 3),
        Column("memory", "memory", "GiB", 3),
        Column("fits", "fits"),
        Column("bottleneck", "bottleneck"),
    )
    spec = charts.interval_bars(
        rows, "case", ("step_ms", "time of a step [ms]"), ("low", "high"),
        color={"value": COLOURS[0]},
        tooltip=charts.tips(("case", "case", ""), ("step_ms", "step [ms]", ".4~g"), ("throughput", "items/s", ".4~g")),
    )  # fmt: skip
    chart = Chart(spec, "Time of a step", "Predicted step of each case, with the interval of eight in ten runs.")
    return Section("Cases", [chart, Table(columns, rows, "Cases side by side", "cases")])


def step_facts(result: ModelResult) -> Facts:
    """The main values of a step."""
    step = result.step
    pairs = [
        ("step", time_text(step.step_us)),
        ("8 in 10 runs", f"{time_text(result.step_us_p10)} to {time_text(result.step_us_p90)}"),
        ("throughput", f"{result.throughput:.4g} {result.unit}"),
        ("kernels", f"{step.kernels:.0f}"),
        ("rate", f"{step.tflops:.4g} TFLOP/s"),
        ("Tensor Cores active", f"{result.tensor_active_pct:.1f} %"),
        ("bottleneck", step.bottleneck),
        ("waits for the host", f"{100 * step.host_fraction:.1f} % of the step"),
        ("memory", f"{result.memory_gib:.2f} GiB" + ("" if result.fits else ", more than the GPU has")),
        ("clock", f"{step.clock_mhz:.0f} MHz"),
        ("power", f"{step.power_w:.0f} W, {step.energy_j:.3g} J a step"),
    ]
    if result.as_graph_us is not None:
        pairs.append(("as a CUDA graph", time_text(result.as_graph_us)))
    return Facts(pairs)


def step_sections(result: ModelResult, gpu: Gpu, most_spans: int, of: str = "") -> list[Section]:
    """Layers, operators, kernels, the timeline and memory of a step.

    Args:
        most_spans: kernels of the timeline.
        of: ends the headings.
    """
    operators = result.step.operators()
    found = [
        Section(f"Layers{of}", [_layers(result)]),
        Section(f"Operators{of}", [_treemap(operators), _roofline(result, gpu)]),
        Section(f"Kernels{of}", [_kernels(operators, of)], folded=bool(of)),
    ]
    if result.step.run.spans:  # none of a translation, which is many steps
        found.append(Section(f"Host and GPU over time{of}", [_timeline(result, most_spans)]))
        found.append(Section(f"Memory over the step{of}", [_memory(result, gpu)]))
    return found


def _layers(result: ModelResult) -> Chart:
    """Kernel time by layer and phase."""
    deepest = max(one.task.name.count(".") for one in result.step.tasks) + 1
    depth = next((one for one in range(deepest, 1, -1) if len(_by_layer(result, one)) <= MOST_LAYERS), 1)
    order = _by_layer(result, depth)
    times = result.step.times_by(lambda one: (_layer(one.task.name, depth), one.task.phase))
    rows: list[dict[str, Any]] = [
        {"layer": layer, "phase": phase, "ms": us * 1e-3, "share": 100 * us / result.step.step_us}
        for (layer, phase), us in sorted(times.items(), key=lambda item: order.index(item[0][0]))
    ]
    phases = [one for one in _PHASES if any(row["phase"] == one for row in rows)]
    spec = charts.spec_of(
        rows,
        height=min(charts.BAR_PX, 16) * len(order),
        mark={"type": "bar"},
        encoding={
            "y": charts.field("layer", "", "nominal", sort=order, axis={"ticks": False, "labelPadding": 6}),
            "x": charts.field("ms", "time of the kernels [ms]"),
            "color": charts.categories("phase", "", phases, legend={"title": None}),
            "tooltip": charts.tips(
                ("layer", "layer", ""), ("phase", "phase", ""), ("ms", "time [ms]", ".4~g"),
                ("share", "share of the step [%]", ".3~g"),
            ),
        },
    )  # fmt: skip
    columns = (
        Column("layer", "layer"),
        Column("phase", "phase"),
        Column("ms", "time", "ms"),
        Column("share", "of the step", "%", 3),
    )
    table = Table(columns, rows, "Time of the kernels by layer and phase")
    return Chart(spec, "Time by layer", "Kernel time of each layer in the order of the model, by phase.", table)


def _layer(path: str, depth: int) -> str:
    return ".".join(path.split(".")[:depth]) or NO_LAYER


def _by_layer(result: ModelResult, depth: int) -> list[str]:
    return list(dict.fromkeys(_layer(one.task.name, depth) for one in result.step.tasks))


def _treemap(operators: Sequence[OperatorShare]) -> Chart:
    shown = [one for one in operators if one.time_us > 0]
    rows: list[dict[str, Any]] = [
        {
            "op": one.op,
            "name": f"{one.op} {one.shape}",
            "layer": one.name,
            "us": one.time_us,
            "share": 100 * one.share,
            "count": round(one.count),
            "bottleneck": one.bottleneck,
        }
        for one in shown[:MOST_TILES]
    ]
    rest = shown[MOST_TILES:]
    if rest:
        us, share = sum(one.time_us for one in rest), sum(one.share for one in rest)
        rows.append({
            "op": "others", "name": f"{len(rest)} others", "layer": "", "us": us, "share": 100 * share,
            "count": round(sum(one.count for one in rest)), "bottleneck": "",
        })  # fmt: skip
    ops = list(dict.fromkeys(row["op"] for row in rows))
    rows.sort(key=lambda row: -row["us"])
    for row, place in zip(rows, squarified([row["us"] for row in rows], Rectangle(0, 0, 100, 40)), strict=True):
        row |= {"x": place.x, "y": place.y, "right": place.x + place.width, "below": place.y + place.height}
        row["text"] = row["name"] if place.height >= 2.5 and place.width >= 5 else ""
    hidden: dict[str, Any] = {"axis": None}
    places = {
        "x": {"field": "x", "type": "quantitative", "scale": {"domain": [0, 100], "nice": False}, **hidden},
        "y": {
            "field": "y",
            "type": "quantitative",
            "scale": {"domain": [0, 40], "reverse": True, "nice": False},
            **hidden,
        },
    }
    tiles = {
        "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1, "opacity": 0.9},
        "encoding": {
            **places,
            "x2": {"field": "right"},
            "y2": {"field": "below"},
            "color": charts.categories("op", "", ops, legend={"title": None}),
            "tooltip": charts.tips(
                ("name", "operator", ""), ("layer", "first layer", ""), ("count", "calls", "d"),
                ("us", "time [µs]", ".4~g"), ("share", "share of the step [%]", ".3~g"),
                ("bottleneck", "bottleneck", ""),
            ),
        },
    }  # fmt: skip
    names = {
        "transform": [{"filter": "datum.text"}],
        "mark": {
            "type": "text", "align": "left", "baseline": "top", "dx": 4, "dy": 4, "fontSize": 11, "color": "#000",
            "limit": {"expr": "(datum.right - datum.x) / 100 * width - 8"},
        },
        "encoding": {**places, "text": {"field": "text"}},
    }  # fmt: skip
    spec = charts.spec_of(rows, height=380, layer=[tiles, names])
    largest = rows[0]
    text = f"Each tile is an operator with all its calls, as large as its time. The largest is {largest['name']}"
    return Chart(spec, "Time by operator", f"{text} with {largest['share']:.1f} % of the step.", name="treemap")


def _kernels(operators: Sequence[OperatorShare], of: str) -> Table:
    columns = (
        Column("name", "first layer"),
        Column("op", "operator"),
        Column("shape", "shape"),
        Column("count", "calls"),
        Column("time_us", "time", "µs"),
        Column("share", "of the step", "%", 3),
        Column("bottleneck", "bottleneck"),
        Column("kernel", "kernel"),
    )
    rows: list[dict[str, Any]] = [
        {
            **{column.key: getattr(one, column.key) for column in columns},
            "name": one.name or NO_LAYER,
            "count": round(one.count),
            "share": 100 * one.share,
        }
        for one in operators
    ]
    return Table(columns, rows, f"Operators of the step with their kernels, all calls together{of}", "kernels")


def _roofline(result: ModelResult, gpu: Gpu) -> Chart:
    """The operators that take most time."""
    firsts: dict[Any, TimedTask] = {}
    times: dict[Any, float] = {}
    for one in result.step.computed:
        firsts.setdefault(one.task.operator, one)
        times[one.task.operator] = times.get(one.task.operator, 0.0) + one.total_us
    largest = sorted(times, key=lambda operator: -times[operator])[:MOST_POINTS]
    points = [
        (one.op, f"{one.task.name}: {one.result.operator.shape}", one.result, one.result.tflops)
        for one in (firsts[operator] for operator in largest)
        if one.result.tflops > 0
    ]
    return roofline(points, gpu, list(dict.fromkeys(point[0] for point in points)))


def _timeline(result: ModelResult, most: int) -> Chart:
    step = result.step
    spans = sorted(step.run.spans, key=lambda one: one.start_us)
    shown = spans[:most]
    rows: list[dict[str, Any]] = [
        {
            "lane": span.stream,
            "start": round(span.start_us * 1e-3, 5),
            "end": round(span.end_us * 1e-3, 5),
            "launched": round(span.launched_us * 1e-3, 5),
            "phase": step.tasks[span.launch].task.phase,
            "layer": step.tasks[span.launch].task.name,
            "op": step.tasks[span.launch].op,
        }
        for span in shown
    ]
    lanes = ["host", *dict.fromkeys(str(row["lane"]) for row in rows)]
    phases = [one for one in _PHASES if any(row["phase"] == one for row in rows)]
    tips = charts.tips(
        ("layer", "layer", ""), ("op", "operator", ""), ("phase", "phase", ""), ("launched", "launched [ms]", ".5~g"),
        ("start", "starts [ms]", ".5~g"), ("end", "ends [ms]", ".5~g"),
    )  # fmt: skip
    colour = charts.categories("phase", "", phases, legend={"title": None})
    spec = charts.timeline(rows, "lane", "ms", 44 * len(lanes), color=colour, tooltip=tips)
    kernels = {"mark": spec.pop("mark"), "encoding": spec.pop("encoding"), "params": spec.pop("params")}
    kernels["encoding"]["y"]["scale"] = {"domain": lanes}
    calls = {
        "mark": {"type": "tick", "clip": True, "thickness": 1, "opacity": 0.7},
        "encoding": {
            "y": {"datum": "host", "type": "nominal"},
            "x": charts.field("launched", "time [ms]"),
            "color": colour,
            "tooltip": tips,
        },
    }
    cut = "" if len(shown) == len(spans) else f" The first {len(shown):,} of {len(spans):,} kernels are shown."
    waits = f"The GPU waits for the host for {100 * step.host_fraction:.1f} % of the step."
    text = (
        f"Launches of the host as ticks, kernels of each stream as bars, from the end of the step before. {waits}{cut}"
    )
    return Chart(
        {**spec, "layer": [kernels, calls]},
        "Host and GPU",
        f"{text} The wheel or the buttons zoom, dragging pans.",
    )


def _memory(result: ModelResult, gpu: Gpu) -> Chart:
    step, graph = result.step, result.graph
    used = used_bytes(graph, result.policy, gpu, [one.task for one in step.tasks])[-1]
    if isinstance(graph, Program):
        title, places = "call of the step", [float(at) for at in range(len(used))]
    else:
        title = "time [ms]"
        starts: dict[int, float] = {}
        for span in step.run.spans:
            starts.setdefault(span.launch, span.start_us * 1e-3)
        places = [starts[at] for at in range(len(used))]
    each = -(-len(used) // MOST_SAMPLES)
    rows: list[dict[str, Any]] = [
        {"at": round(places[first], 4), "gib": round(max(used[first : first + each]) / GIB, 5)}
        for first in range(0, len(used), each)
    ]
    rows.sort(key=lambda row: row["at"])
    x = charts.field("at", title, scale={"nice": False})
    y = charts.field("gib", "device memory [GiB]", scale={"zero": True})
    area = {
        "mark": {"type": "area", "interpolate": "step-after", "color": COLOURS[0], "opacity": 0.6},
        "encoding": {"x": x, "y": y, "tooltip": charts.tips(("at", title, ".4~g"), ("gib", "GiB", ".4~g"))},
    }
    spec = charts.spec_of(rows, height=240, layer=[area])
    text = f"Most at once is {max(used) / GIB:.3g} GiB of the {gpu.dram.visible_gib:.4g} GiB that programs see."
    if result.memory_gib > 1.001 * max(used) / GIB:
        text += f" The fullest GPU needs {result.memory_gib:.3g} GiB: it keeps the activations of several passes."
    return Chart(spec, "Memory", text)
