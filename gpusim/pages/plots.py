"""Plots of an experiment as charts: the rows of each panel are those that its picture is drawn from.

A plot of few panels has a chart for each; one of many has a single chart, whose panel the reader chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, assert_never

from gpusim.experiment.comparison import Row, interval, shape, with_series
from gpusim.experiment.definition import MeasuredPoint
from gpusim.experiment.key_units import heading, value_text
from gpusim.experiment.plot_pages import (
    PanelRows,
    band_pages,
    heat_map_pages,
    ledger_pages,
    places,
    speedup_rows,
    value_pages,
)
from gpusim.experiment.plot_schema import PlotEntry
from gpusim.experiment.schema import TrainingFile
from gpusim.experiment.value_panels import Dot
from gpusim.figures.heat_map import MOST_OF_SPARSITY
from gpusim.figures.overlay import conditions, measured_row, series_of, sister_boards
from gpusim.figures.panels import shape_name
from gpusim.figures.roofline_plot import above_roof, intensity, peak_rate, rate_unit
from gpusim.figures.stalls import LOOKS, READABLE_RATIO, bar_name
from gpusim.figures.training_plot import shown_gradients
from gpusim.figures.value_plots import DARK, LOG_RATIO, METRICS, SCALES
from gpusim.pages import charts
from gpusim.pages.page import Chart, shown
from gpusim.sim.causes import Cause

MOST_PANELS = 8
"""Panels that each get a chart."""
LANE_PX = 15
"""Height of a bar of a series, in a list of shapes."""
INTERVALS = "Thin lines and bands are intervals, which hold eight in ten measured runs."
PREDICTED, MEASURED, LINE = (f"datum.drawn === '{one}'" for one in ("predicted", "measured", "line"))
"""Expressions of the rows of a chart: predictions, measured runs and reference lines."""

_Make = Callable[[Sequence[Row]], charts.Spec]


class _Panel(NamedTuple):
    """Rows of a chart, with its title."""

    title: str
    rows: Sequence[Row]


class _Quantity(NamedTuple):
    """What is drawn of GEMMs."""

    key: str
    title: str
    logarithmic: bool

    @property
    def scale(self) -> dict[str, Any]:
        return dict(charts.LOG) if self.logarithmic else {"zero": True}


def plot_charts(plot: PlotEntry, title: str, rows: Sequence[Row], points: Sequence[MeasuredPoint]) -> list[Chart]:
    """The charts of one plot."""
    title = plot.title or title
    measured = [measured_row(point) for point in points]
    note = sister_boards(points)
    match plot.kind:
        case "time":
            quantity = _Quantity("time_us", "time [µs]", logarithmic=True)
            return _of_gemms(plot, title, with_series(rows), measured, quantity, note)
        case "speedup":
            quantity = _Quantity("speedup", f"speedup over {plot.over}", logarithmic=False)
            return _of_gemms(plot, title, speedup_rows(plot, rows), speedup_rows(plot, measured), quantity, note)
        case "sparse_speedup":
            return _sparse_speedups(title, rows)
        case "tflops_roofline":
            return _rooflines(title, with_series(rows), measured, note)
        case "stalls":
            return _stalls(title, rows)
        case "heat_map" | "curves":
            return _over_values(plot, title, rows)
    assert_never(plot.kind)


def _charts(title: str, panels: Sequence[_Panel], make: _Make, text: str) -> list[Chart]:
    """A chart of each panel, or one for all of them to choose from."""
    if len(panels) <= MOST_PANELS:
        named = [f"{title}: {panel.title}" if len(panels) > 1 and panel.title else title for panel in panels]
        return [Chart(make(panel.rows), name, text) for name, panel in zip(named, panels, strict=True)]
    rows = [{**row, "panel": panel.title} for panel in panels for row in panel.rows]
    return [Chart(charts.with_choice(make(rows), "panel", "panel", whole=False), title, text)]


def _merged(panels: Iterable[_Panel]) -> list[_Panel]:
    """The panels, with those of one title as one."""
    found: dict[str, list[Row]] = {}
    for panel in panels:
        found.setdefault(panel.title, []).extend(panel.rows)
    return [_Panel(*one) for one in found.items()]


def _where(condition: str, layer: charts.Spec) -> charts.Spec:
    """A layer of some of the rows."""
    return {**layer, "transform": [{"filter": condition}]}


# Times and speedups of GEMMs --------------------------------------------------------------------


def _of_gemms(
    plot: PlotEntry, title: str, rows: Sequence[Row], measured: Sequence[Row], quantity: _Quantity, note: str
) -> list[Chart]:
    """Curves of sweeps over a size, and lists of shapes with a mark for each series."""
    domain = list(dict.fromkeys(row["series"] for row in rows))
    gpus = {row["gpu"] for row in rows}
    seen = [{**row, "series": series_of(row, rows)} for row in measured if row["gpu"] in gpus]
    pages = band_pages(rows, paths=plot.baseline_dtype is not None)
    groups = [group for page in pages for band in page for group in band]
    found: list[Chart] = []
    for axis in dict.fromkeys(group.axis for group in groups):
        own = [group for group in groups if group.axis == axis]
        panels = _merged(_Panel(group.name, _gemm_rows(plot, group, seen, quantity)) for group in own)
        drawn = [row for panel in panels for row in panel.rows]
        text = [f"Predicted {quantity.title}, {conditions(rows)}."]
        text += [INTERVALS] if any(row.get("low") for row in drawn) else []
        text += [f"Hollow: measured. {note}".strip()] if any(row["drawn"] == "measured" for row in drawn) else []
        named = dict.fromkeys(f"{row['series']}" for row in drawn if row["drawn"] == "line")
        text += [f"Lines across: {', '.join(named)}."] if named else []

        def make(of_panel: Sequence[Row], axis: str = axis) -> charts.Spec:
            return _sweep(of_panel, axis, domain, quantity) if axis else _list(of_panel, domain, quantity)

        found += _charts(title, panels, make, " ".join(text))
    return found


def _gemm_rows(plot: PlotEntry, group: PanelRows, seen: Sequence[Row], quantity: _Quantity) -> list[Row]:
    """The predictions, measured runs and reference lines of a panel."""
    runs = [row for row in seen if group.holds(row)]
    found = []
    if group.axis:
        found += [_gemm_row(row, group.size(row), quantity) for row in group.rows]
        found += [_gemm_row(row, group.size(row), quantity, "measured") for row in runs]
    else:
        for alike in places(group.rows):
            name = shape_name(alike[0])
            found += [_gemm_row(row, name, quantity) for row in alike]
            found += [_gemm_row(run, name, quantity, "measured") for run in runs if shape(run) == shape(alike[0])]
    lines = {f"1: as fast as {plot.over}": 1.0} if plot.kind == "speedup" else {}
    lines |= {f"{one.label} = {shown(one.value, 3)}": one.value for one in group.lines(plot.lines)}
    return found + [{"drawn": "line", "series": label, "value": value} for label, value in lines.items()]


def _gemm_row(row: Row, place: object, quantity: _Quantity, drawn: str = "predicted") -> Row:
    low, high = interval(row, quantity.key)
    return {
        "drawn": drawn,
        "series": row["series"],
        "place": place,
        "value": row[quantity.key],
        "low": low,
        "high": high,
        "dtype": row["dtype"],
        "bottleneck": row.get("bottleneck", ""),
        "kernel": row.get("kernel", ""),
    }


def _gemm_told(place: str, quantity: _Quantity) -> list[charts.Spec]:
    return charts.tips(
        ("series", "series", ""),
        ("place", place, ""),
        ("dtype", "type", ""),
        ("value", quantity.title, ",.4~g"),
        ("low", "p10", ",.4~g"),
        ("high", "p90", ",.4~g"),
        ("bottleneck", "bottleneck", ""),
        ("kernel", "kernel", ""),
        ("drawn", "is", ""),
    )


def _across(axis: str) -> list[charts.Spec]:
    """Reference lines with their names."""
    encoding: dict[str, Any] = {axis: {"field": "value", "type": "quantitative"}}
    rule = {"mark": {"type": "rule", "style": "ink", "strokeDash": [4, 3], "aria": False}, "encoding": encoding}
    if axis == "x":
        return [_where(LINE, rule)]
    name = {"type": "text", "align": "right", "dx": -4, "dy": -6, "style": "ink", "strokeWidth": 0, "aria": False}
    text = {"mark": name, "encoding": {**encoding, "x": {"value": "width"}, "text": {"field": "series"}}}
    return [_where(LINE, rule), _where(LINE, text)]


def _sweep(rows: Sequence[Row], axis: str, domain: Sequence[str], quantity: _Quantity) -> charts.Spec:
    """A curve for each series, with the band of its intervals."""
    named = charts.series("series", "GPU", domain)
    x = charts.field("place", axis, scale=dict(charts.LOG))
    y = charts.field("value", quantity.title, scale=quantity.scale)
    tooltip = _gemm_told(axis, quantity)
    spec = charts.lines(rows, x, y, named, tooltip)
    spec["layer"] = [_where(PREDICTED, layer) for layer in spec["layer"]]
    band = {
        "mark": {"type": "area", "opacity": 0.15, "aria": False},
        "encoding": {
            "x": x,
            "y": {**y, "field": "low"},
            "y2": {"field": "high"},
            "color": {**named["color"], "legend": None},
        },
    }
    measured = charts.hollow(x, y, tooltip, where=MEASURED, color=named["color"], shape=named["shape"])
    spec["layer"] = [*_across("y"), _where(f"{PREDICTED} && datum.low > 0", band), *spec["layer"], measured]
    return spec


def _list(rows: Sequence[Row], domain: Sequence[str], quantity: _Quantity) -> charts.Spec:
    """A lane for each series of a shape: a bar from zero, or a point where the axis has no zero."""
    named = charts.series("series", "GPU", domain)
    y = charts.field("place", "", "nominal", sort=None, axis={"ticks": False, "labelPadding": 6})
    x = charts.field("value", quantity.title, scale=quantity.scale)
    lane = {"yOffset": {"field": "series", "sort": list(domain)}}
    tooltip = _gemm_told("shape", quantity)
    point = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    mark = point if quantity.logarithmic else {"type": "bar", "opacity": 0.85}
    looks = {"color": named["color"], **({"shape": named["shape"]} if quantity.logarithmic else {})}
    whisker = {
        "mark": {"type": "rule", "style": "ink", "strokeWidth": 1.2, "aria": False},
        "encoding": {"y": y, **lane, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
    }
    layers = [
        *_across("x"),
        _where(PREDICTED, {"mark": mark, "encoding": {"y": y, "x": x, **lane, **looks, "tooltip": tooltip}}),
        _where(f"{PREDICTED} && datum.low > 0", whisker),
        charts.hollow(x, y, tooltip, where=MEASURED, shape=named["shape"], **lane),
    ]
    layers[-1]["mark"]["style"] = "ink-line"
    height = (LANE_PX * len(domain) + 8) * charts.lanes(rows, "place")
    return charts.spec_of(rows, height=height, layer=layers)


# Rooflines --------------------------------------------------------------------------------------


def _rooflines(title: str, rows: Sequence[Row], measured: Sequence[Row], note: str) -> list[Chart]:
    """Rate against arithmetic intensity below the roof of each GPU, a panel for each data type."""
    domain = list(dict.fromkeys(row["series"] for row in rows))
    gpus = {row["gpu"] for row in rows}
    seen = [{**row, "series": series_of(row, rows)} for row in measured if row["gpu"] in gpus]
    panels, any_seen = [], False
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        own = [row for row in rows if row["dtype"] == dtype]
        runs = [row for row in seen if row["dtype"] == dtype and row["gpu"] in {one["gpu"] for one in own}]
        any_seen |= bool(runs)
        drawn = [*(_roofline_row(row, "predicted") for row in own), *(_roofline_row(row, "measured") for row in runs)]
        panels.append(_Panel(dtype, [*drawn, *_roofs(own, [row["intensity"] for row in drawn])]))
    notes = [*above_roof(rows, seen), *([f"Hollow: measured. {note}".strip()] if any_seen else [])]
    text = f"Rate of each GEMM against its arithmetic intensity, {conditions(rows)}. Lines are the roofs of the GPUs."
    unit = rate_unit(rows)

    def make(of_panel: Sequence[Row]) -> charts.Spec:
        return _roofline(of_panel, domain, unit)

    return _charts(title, panels, make, " ".join([text, *notes]))


def _roofline_row(row: Row, drawn: str) -> Row:
    return {
        "drawn": drawn,
        "series": row["series"],
        "name": shape_name({"label": "", **row}),
        "intensity": intensity(row),
        "tflops": row["tflops"],
        "bottleneck": row.get("bottleneck", ""),
    }


def _roofs(rows: Sequence[Row], intensities: Sequence[float]) -> Iterator[Row]:
    """Ends and ridge of the roof of each GPU."""
    left, right = min(intensities) / 2, max(intensities) * 2
    for gpu, name in {row["gpu"]: row["series"] for row in reversed(rows)}.items():
        own = [row for row in rows if row["gpu"] == gpu]
        slope, peak = own[0]["dram_peak_gb_per_s"] / 1e3, peak_rate(own)
        for at in sorted({left, min(max(peak / slope, left), right), right}):
            yield {"drawn": "line", "series": name, "intensity": at, "tflops": min(peak, at * slope)}


def _roofline(rows: Sequence[Row], domain: Sequence[str], unit: str) -> charts.Spec:
    named = charts.series("series", "GPU", domain)
    operations = "OP" if unit == "TOP/s" else "FLOP"
    x = charts.field("intensity", f"arithmetic intensity [{operations}/B]", scale=dict(charts.LOG))
    y = charts.field("tflops", f"rate [{unit}]", scale=dict(charts.LOG))
    tooltip = charts.tips(
        ("series", "GPU", ""),
        ("name", "GEMM", ""),
        ("intensity", f"intensity [{operations}/B]", ",.4~g"),
        ("tflops", f"rate [{unit}]", ",.4~g"),
        ("bottleneck", "bottleneck", ""),
        ("drawn", "is", ""),
    )
    spec = charts.lines(rows, x, y, named, tooltip, 380)
    roof, points = spec["layer"]
    measured = charts.hollow(x, y, tooltip, where=MEASURED, color=named["color"], shape=named["shape"])
    spec["layer"] = [_where(LINE, roof), _where(PREDICTED, points), measured]
    return spec


# Heat maps and curves ---------------------------------------------------------------------------


def _sparse_speedups(title: str, rows: Sequence[Row]) -> list[Chart]:
    panels = [
        _Panel(
            name,
            [
                {
                    "x": row["n"],
                    "y": f"{row['m']} × {row['k']}",
                    "value": row["speedup"],
                    "text": f"{row['speedup']:.2f}",
                }
                for row in sorted(own, key=lambda row: (row["m"], row["k"]))
            ],
        )
        for page in heat_map_pages(rows)
        for name, own in page
    ]
    colour = {"domain": [0, 1, MOST_OF_SPARSITY], "scheme": "purpleorange", "clamp": True}
    value = charts.field("value", "dense time / 2:4 time", scale=colour)
    tooltip = charts.tips(("x", "n", ""), ("y", "m × k", ""), ("value", "speedup", ".3~g"))
    x, y = _axis("x", "n"), _axis("y", "m × k", sort=None)
    dark = "abs(datum.value - 1) > 0.7"
    text = f"Predicted time of the dense GEMM over that of the 2:4 one, {conditions(rows)}. Orange: 2:4 is faster."
    return _charts(title, panels, lambda own: charts.cells(own, x, y, value, "text", dark, tooltip), text)


def _axis(name: str, title: str, **others: Any) -> charts.Spec:
    """An axis of a heat map: its values side by side."""
    return charts.field(name, title, "ordinal", axis={"labelAngle": 0, "ticks": False, "grid": False}, **others)


def _over_values(plot: PlotEntry, title: str, rows: Sequence[Row]) -> list[Chart]:
    """Maps over two values of the spec, or curves over one."""
    factor = SCALES.get(plot.metric, 1.0)
    scaled = [{**row, plot.metric: row[plot.metric] * factor} for row in rows]
    panels = [
        _Panel(panel.title, [_dot_row(plot, dot) for dot in panel.dots])
        for page in value_pages(plot, scaled)
        for panel in page
    ]
    what = f"{'Total predicted' if plot.total else 'Predicted'} {METRICS[plot.metric]}, {conditions(rows)}."
    tooltip = charts.tips(
        ("gpu", "GPU", ""),
        ("x", heading(plot.x), ""),
        ("other", _other(plot), ""),
        ("value", METRICS[plot.metric], ",.4~g"),
    )
    if plot.kind == "curves":
        domain = [_named(plot, one) for one in sorted({row["other"] for panel in panels for row in panel.rows})]
        return _charts(title, panels, lambda own: _curves(plot, own, domain, tooltip), what)
    return _charts(title, panels, lambda own: _map(plot, own, tooltip), what)


def _other(plot: PlotEntry) -> str:
    key_path = plot.y if plot.kind == "heat_map" else plot.series
    return heading(key_path) if key_path else "series"


def _named(plot: PlotEntry, value: float) -> str:
    return value_text(plot.series, value) if plot.series else "all"


def _dot_row(plot: PlotEntry, dot: Dot) -> Row:
    return {
        "x": dot.x,
        "other": dot.other,
        "series": _named(plot, dot.other) if plot.kind == "curves" else "",
        "value": dot.metric,
        "text": shown(dot.metric, 3),
        "gpu": dot.gpu,
    }


def _map(plot: PlotEntry, rows: Sequence[Row], tooltip: list[charts.Spec]) -> charts.Spec:
    """Cells where the values form a grid, else points of samples."""
    value = charts.field("value", METRICS[plot.metric], scale={"scheme": "blues", "zero": False})
    xs, others = {row["x"] for row in rows}, {row["other"] for row in rows}
    if len(xs) * len(others) <= 2 * len(rows):
        low, high = min(row["value"] for row in rows), max(row["value"] for row in rows)
        dark = f"datum.value > {low + DARK * (high - low)}"
        y = _axis("other", heading(plot.y), sort="descending")
        return charts.cells(rows, _axis("x", heading(plot.x)), y, value, "text", dark, tooltip)
    mark = {"type": "point", "filled": True, "size": 90, "opacity": 1, "stroke": "#666", "strokeWidth": 0.5}
    encoding = {
        "x": charts.field("x", heading(plot.x), scale=_value_scale(xs)),
        "y": charts.field("other", heading(plot.y), scale=_value_scale(others)),
        "color": value,
        "tooltip": tooltip,
    }
    return charts.spec_of(rows, height=360, mark=mark, params=[charts.ZOOM], encoding=encoding)


def _curves(plot: PlotEntry, rows: Sequence[Row], domain: Sequence[str], tooltip: list[charts.Spec]) -> charts.Spec:
    named = charts.series("series", _other(plot), domain)
    x = charts.field("x", heading(plot.x), scale=_value_scale({row["x"] for row in rows}))
    y = charts.field("value", METRICS[plot.metric], scale={"zero": True})
    return charts.lines(rows, x, y, named, tooltip)


def _value_scale(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis for values that differ by factors."""
    low, high = min(values), max(values)
    return dict(charts.LOG) if low > 0 and high >= LOG_RATIO * low else {"zero": False, "padding": 12}


# Stalls -----------------------------------------------------------------------------------------


def _stalls(title: str, rows: Sequence[Row]) -> list[Chart]:
    """A bar for each prediction, divided by cause."""
    pages = ledger_pages(rows)
    cycles = [row["cycles"] for page in pages for row in page]
    absolute = max(cycles) <= READABLE_RATIO * min(cycles)
    panels = []
    first = 1
    for page in pages:
        panels.append(_Panel(f"rows {first} to {first + len(page) - 1}", list(_stall_rows(page))))
        first += len(page)
    met = {row["cause"] for panel in panels for row in panel.rows}
    causes = [cause.value for cause in Cause if cause.value in met]
    value = ("cycles", "duration of the kernel [cycles]") if absolute else ("share_pct", "share of the warps' time [%]")

    def make(of_panel: Sequence[Row]) -> charts.Spec:
        return _stall_bars(of_panel, value, causes)

    text = f"Predicted cycles of the warps by cause, {conditions(rows)}. Each bar is a kernel"
    how = ", as long as it takes, divided as its warps' time is." if absolute else ": how its warps' time is divided."
    return _charts(title, panels, make, text + how)


def _stall_rows(page: Sequence[Row]) -> Iterator[Row]:
    met: dict[str, int] = {}
    for row in page:
        name = bar_name(row)
        met[name] = met.get(name, 0) + 1
        label = name if met[name] == 1 else f"{name} ({met[name]})"
        for at, cause in enumerate(Cause):
            if own := row["stall_cycles"].get(cause.value, 0):
                share = own / row["warp_cycles"]
                of = {"name": label, "cause": cause.value, "order": at, "whole": row["cycles"]}
                yield {**of, "cycles": row["cycles"] * share, "share_pct": 100 * share}


def _stall_bars(rows: Sequence[Row], value: tuple[str, str], causes: Sequence[str]) -> charts.Spec:
    scale = {"domain": list(causes), "range": [LOOKS[Cause(cause)][0] for cause in causes]}
    tooltip = charts.tips(
        ("name", "kernel of", ""),
        ("cause", "cause", ""),
        ("share_pct", "share [%]", ".3~g"),
        ("whole", "duration [cycles]", ",d"),
    )
    encoding = {
        "y": charts.field("name", "", "nominal", sort=None, axis={"ticks": False, "labelPadding": 6}),
        "x": charts.field(*value, stack=True),
        "color": charts.field("cause", "cause", "nominal", scale=scale),
        "order": {"field": "order"},
        "tooltip": tooltip,
    }
    mark = {"type": "bar", "stroke": "white", "strokeWidth": 0.4}
    return charts.spec_of(rows, height=charts.BAR_PX * charts.lanes(rows, "name"), mark=mark, encoding=encoding)


# Training, and speedups of models ---------------------------------------------------------------


def training_charts(content: TrainingFile, rows: Sequence[Row], gradients: Sequence[Row]) -> list[Chart]:
    """Loss, gradients by magnitude, loss scale where a run has one, updates lost."""
    labels = [run.label for run in content.runs]
    drawn = [
        {
            "run": row["run"],
            "step": row["step"],
            "loss": row["loss"],
            "loss_scale": row["loss_scale"],
            "lost_pct": 100 * row["lost_update_fraction"],
            "skipped": row["skipped_steps"],
        }
        for row in rows
    ]
    scaled = {run.label for run in content.runs if run.loss_scale is not None}
    found = [
        _training("Does it learn?", drawn, labels, ("loss", "mean squared error (of targets: 1)"), charts.LOG),
        _magnitudes(content, gradients, labels),
    ]
    if scaled:
        own = [row for row in drawn if row["run"] in scaled]
        label = ("loss_scale", "loss scale")
        found.append(_training("How large may the loss scale be?", own, labels, label, {**charts.LOG, "base": 2}))
    lost = ("lost_pct", "updates that leave their weight unchanged [%]")
    return [*found, _training("How many updates are lost?", drawn, labels, lost, {"zero": True})]


def _training(
    title: str, rows: Sequence[Row], labels: Sequence[str], value: tuple[str, str], scale: Mapping[str, Any]
) -> Chart:
    name, label = value
    kept = [row for row in rows if row[name] is not None and (row[name] > 0 or scale.get("type") != "log")]
    tooltip = charts.tips(
        ("run", "run", ""), ("step", "step", ",d"), (name, label, ".4~g"), ("skipped", "steps skipped", "")
    )
    x, y = charts.field("step", "step"), charts.field(name, label, scale=dict(scale))
    spec = charts.lines(kept, x, y, charts.series("run", "run", labels), tooltip)
    return Chart(spec, title, f"{label.capitalize()}, of each run over the steps of the training.")


def _magnitudes(content: TrainingFile, gradients: Sequence[Row], labels: Sequence[str]) -> Chart:
    """Activation gradients by binade before they are rounded."""
    rows = []
    for run in shown_gradients(content.runs):
        own = [row for row in gradients if row["run"] == run.label]
        total = sum(row["gradients"] for row in own)
        rows += [
            {"run": run.label, "exponent": row["exponent"], "share_pct": 100 * row["gradients"] / total} for row in own
        ]
    x = charts.field("exponent", "binary exponent of a gradient, loss scale included")
    y = charts.field("share_pct", "activation gradients [% per binade]")
    tooltip = charts.tips(("run", "run", ""), ("exponent", "exponent", ""), ("share_pct", "share [%]", ".3~g"))
    spec = charts.lines(rows, x, y, charts.series("run", "run", labels), tooltip)
    step = content.training.gradients_at
    text = f"Activation gradients by magnitude at step {step}, before they are rounded, of runs with FP32 weights."
    return Chart(spec, "Which magnitudes do the gradients have?", text)


def model_speedup_charts(title: str, rows: Sequence[Row]) -> list[Chart]:
    """Speedups of whole models with their intervals, beside measured and claimed ones."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        before, after = row["baseline_precision"], row["precision"]
        kind = after if before == after else f"{after} over {before}"
        panels.setdefault(f"{kind}, {row['gpus']} GPU{'s' if row['gpus'] > 1 else ''}", []).append(row)
    boards = ", ".join(dict.fromkeys(f"{row['gpu']} over {row['baseline']}" for row in rows))
    text = (
        f"Speedup at equal batch, {boards}. Thin lines are intervals, which hold eight in ten measured runs. Diamond: "
        "measured, published by others. Cross: claimed."
    )
    drawn = [_Panel(name, [_speedup_row(row) for row in own]) for name, own in panels.items()]
    return _charts(title, drawn, _model_speedups, text)


def _speedup_row(row: Row) -> Row:
    names = ("label", "gpu", "baseline", "batch", "speedup")
    stated = {name: row[name] or None for name in ("measured_speedup", "claimed_speedup")}
    return {**{name: row[name] for name in names}, "low": row["speedup_p10"], "high": row["speedup_p90"], **stated}


def _model_speedups(rows: Sequence[Row]) -> charts.Spec:
    tooltip = charts.tips(
        ("label", "model", ""),
        ("gpu", "GPU", ""),
        ("baseline", "over", ""),
        ("batch", "batch", ""),
        ("speedup", "predicted", ".3~g"),
        ("low", "p10", ".3~g"),
        ("high", "p90", ".3~g"),
        ("measured_speedup", "measured", ".3~g"),
        ("claimed_speedup", "claimed", ".3~g"),
    )
    title = ("speedup", "speedup")
    spec = charts.interval_bars(rows, "label", title, ("low", "high"), tooltip=tooltip)
    y = spec["layer"][0]["encoding"]["y"]
    for name, mark in (("measured_speedup", "diamond"), ("claimed_speedup", "cross")):
        if any(row[name] for row in rows):
            layer = charts.hollow(charts.field(name, "speedup"), y, tooltip, where=f"datum.{name} > 0")
            layer["mark"] |= {"shape": mark, "style": "ink-line", **({"angle": 45} if mark == "cross" else {})}
            spec["layer"].append(layer)
    spec["layer"].append(charts.rule("x", 1))
    return spec
