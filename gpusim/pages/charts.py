"""Charts of pages, as Vega-Lite specifications: bars with intervals, waterfalls, scatter plots, lines, timelines.

Colours are those of the plots (:mod:`gpusim.figures.style`); text and lines take the colours of the page. Series differ
by shape or dashes as well as by colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.figures.style import COLOURS

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
DASHES: tuple[list[int], ...] = ([], [6, 3], [8, 3, 2, 3], [2, 2], [10, 2], [5, 2, 2, 2, 2, 2], [1, 1], [14, 4])
HOLLOW = {"filled": False, "size": 90, "strokeWidth": 1.6, "opacity": 1, "clip": True, "aria": False}
"""Points of measured runs."""
MANY_POINTS = 300
"""Points above which those along lines are small."""
MOST_CHOICES = 100
"""Values that a reader may choose from."""
LOG = {"type": "log", "nice": False, "padding": 12}
"""A logarithmic axis that ends a little beyond the values."""
Rows = Sequence[Mapping[str, Any]]
Spec = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
BAR_PX = 24
"""Height of a bar and the gap to the next."""
VALUE_PX = 70
"""Room for a value beside the longest bar of a waterfall."""
ZOOM = {"name": "zoom", "select": "interval", "bind": "scales"}
"""Zoom by the wheel, and pan by dragging."""


def spec_of(rows: Rows, **others: Any) -> Spec:
    """A specification of rows, as wide as its place."""
    data = {"name": "rows", "values": list(rows)}
    fitted = {"type": "fit-x", "contains": "padding"}
    return {"$schema": SCHEMA, "width": "container", "autosize": fitted, "data": data, **others}


def field(name: str, title: str, kind: str = "quantitative", **others: Any) -> Spec:
    """A value of the rows as an axis or another channel shows it."""
    return {"field": name, "type": kind, "title": title, **others}


def tips(*fields: tuple[str, str, str]) -> list[Spec]:
    """What a pointer or the keyboard tells of a mark: values, their titles and their formats (d3; empty: text)."""
    return [
        {
            "field": name,
            "title": title,
            "type": "quantitative" if style else "nominal",
            **({"format": style} if style else {}),
        }
        for name, title, style in fields
    ]


def interval_bars(rows: Rows, label: str, value: tuple[str, str], interval: tuple[str, str], **others: Any) -> Spec:
    """Horizontal bars in the order of the rows, with the interval of each.

    Args:
        label: names the bars.
        value: name and title of what the bars show.
        interval: names of its ends.
        others: channels of the bars, such as ``color`` and ``tooltip``.
    """
    name, title = value
    y = field(label, "", "nominal", sort=None, axis={"labelPadding": 6, "ticks": False})
    bars = {"mark": {"type": "bar", "opacity": 0.85}, "encoding": {"y": y, "x": field(name, title), **others}}
    whiskers = {
        "mark": {"type": "rule", "strokeWidth": 1.5, "style": "ink"},
        "encoding": {"y": y, "x": field(interval[0], title), "x2": {"field": interval[1]}},
    }
    return spec_of(rows, height=BAR_PX * len(rows), layer=[bars, whiskers])


def waterfall(rows: Rows, label: str, title: str, **others: Any) -> Spec:
    """Parts of a whole, each from where the one before it ends: rows have ``start`` and ``end``."""
    y = field(label, "", "nominal", sort=None, axis={"ticks": False, "labelPadding": 6})
    longest = max(max(float(row["start"]), float(row["end"])) for row in rows)
    scale = {"domainMax": {"expr": f"{longest} * (1 + {VALUE_PX} / width)"}, "nice": False}
    encoding = {"y": y, "x": field("start", title, scale=scale), "x2": {"field": "end"}, **others}
    text = {
        "transform": [{"calculate": "max(datum.start, datum.end)", "as": "right"}],
        "mark": {"type": "text", "align": "left", "dx": 4},
        "encoding": {"y": y, "x": field("right", title, scale=scale), "text": {"field": "text"}},
    }
    return spec_of(rows, height=BAR_PX * len(rows), layer=[{"mark": {"type": "bar"}, "encoding": encoding}, text])


def categories(name: str, title: str, domain: Sequence[str], **others: Any) -> Spec:
    """Colours of named groups, in a fixed order."""
    colours = [COLOURS[at % len(COLOURS)] for at in range(len(domain))]
    return field(name, title, "nominal", scale={"domain": list(domain), "range": colours}, **others)


def series(name: str, title: str, domain: Sequence[str] = ()) -> Spec:
    """Channels that tell series apart: colour, dashes and shape.

    Args:
        domain: names of the series; those that are drawn if empty.
    """
    places = range(len(domain) or len(COLOURS))
    looks = {
        "color": [COLOURS[at % len(COLOURS)] for at in places],
        "strokeDash": [DASHES[(at + at // len(DASHES)) % len(DASHES)] for at in places],
        "shape": [SHAPES[at % len(SHAPES)] for at in places],
    }
    names = {"domain": list(domain)} if domain else {}
    return {channel: field(name, title, "nominal", scale={**names, "range": looks[channel]}) for channel in looks}


def lines(rows: Rows, x: Spec, y: Spec, named: Spec, tooltip: list[Spec], height_px: int = 320) -> Spec:
    """Lines with a point for each row, which can be zoomed.

    Args:
        named: channels of :func:`series`.
        tooltip: tooltip of a point.
    """
    size = 45 if len(rows) <= MANY_POINTS else 12
    line = {channel: named[channel] for channel in ("color", "strokeDash")}
    point = {channel: named[channel] for channel in ("color", "shape")}
    layers = [
        {"mark": {"type": "line", "strokeWidth": 1.5, "clip": True}, "encoding": {"x": x, "y": y, **line}},
        {
            "mark": {"type": "point", "filled": True, "size": size, "opacity": 1, "clip": True},
            "params": [ZOOM],
            "encoding": {"x": x, "y": y, **point, "tooltip": tooltip},
        },
    ]
    return spec_of(rows, height=height_px, layer=layers)


def hollow(x: Spec, y: Spec, tooltip: list[Spec], *, where: str, **others: Any) -> Spec:
    """A layer of hollow points, of those rows for which an expression holds: measured runs."""
    return {
        "transform": [{"filter": where}],
        "mark": {
            "type": "point",
            "filled": False,
            "size": 90,
            "strokeWidth": 1.6,
            "opacity": 1,
            "clip": True,
            "aria": False,
        },
        "encoding": {"x": x, "y": y, "tooltip": tooltip, **others},
    }


def rule(axis: str, value: float, *, dash: Sequence[int] = ()) -> Spec:
    """A layer of a line across the chart, at a value of the axis ``x`` or ``y``."""
    mark = {"type": "rule", "style": "ink", "strokeWidth": 1, "strokeDash": list(dash), "aria": False}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": {axis: {"datum": value}}}


def cells(rows: Rows, x: Spec, y: Spec, value: Spec, text: str, dark: str, tooltip: list[Spec]) -> Spec:
    """A cell for each pair of values, with its colour and number.

    Args:
        text: name of the number's text.
        dark: expression of the cells whose numbers are white.
    """
    number = {"condition": {"test": dark, "value": "white"}, "value": "#1a1a1a"}
    layers = [
        {"mark": {"type": "rect"}, "encoding": {"color": value, "tooltip": tooltip}},
        {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": text}, "color": number}},
    ]
    return spec_of(rows, height=26 * lanes(rows, y["field"]), layer=layers, encoding={"x": x, "y": y})


def lanes(rows: Rows, name: str, panel: str = "panel") -> int:
    """Places along an axis of names: of the panel that has most of them, where rows are of several."""
    found: dict[Any, set[Any]] = {}
    for row in rows:
        if row.get(name) is not None:
            found.setdefault(row.get(panel), set()).add(row[name])
    return max(map(len, found.values()), default=1)


def spread_bars(rows: Rows, label: str, title: str, tooltip: list[Spec]) -> Spec:
    """How values of groups are spread: ``p10`` to ``p90`` a line, ``p25`` to ``p75`` a bar, ``p50`` a mark."""
    y = field(label, "", "nominal", sort=None, axis={"ticks": False, "labelPadding": 6})
    x = field("p10", title, scale={"zero": True})

    def between(low: str, high: str, **mark: Any) -> Spec:
        return {"mark": mark, "encoding": {"y": y, "x": {**x, "field": low}, "x2": {"field": high}, "tooltip": tooltip}}

    layers = [
        between("p10", "p90", type="rule", style="ink", strokeWidth=1.5),
        between("p25", "p75", type="bar", height=12, color=COLOURS[0]),
        {
            "mark": {"type": "tick", "thickness": 3, "size": 18, "color": COLOURS[1]},
            "encoding": {"y": y, "x": {**x, "field": "p50"}, "tooltip": tooltip},
        },
        rule("x", 0),
    ]
    return spec_of(rows, height=BAR_PX * len(rows), layer=layers)


def with_choice(spec: Spec, name: str, title: str, *, whole: bool = True) -> Spec:
    """A chart of which the reader chooses the rows that have one value of a field, where rows have several.

    Args:
        whole: whether all rows can be shown at once, as they are at first.
    """
    values = list(dict.fromkeys(row[name] for row in spec["data"]["values"]))
    if not 1 < len(values) <= MOST_CHOICES:
        return spec
    options = {"options": [None, *values], "labels": ["all", *map(str, values)]} if whole else {"options": values}
    chosen = f"chosen_{name}"
    control = {
        "name": chosen,
        "value": None if whole else values[0],
        "bind": {"input": "select", "name": title, **options},
    }
    kept = {"filter": f"{chosen} === null || datum.{name} === {chosen}"}
    return {**spec, "params": [*spec.get("params", []), control], "transform": [kept, *spec.get("transform", [])]}


def scatter(rows: Rows, x: Spec, y: Spec, height_px: int = 360, *, diagonal: bool = False, **others: Any) -> Spec:
    """Points, which can be zoomed; with the line on which both values are equal."""
    points = {
        "mark": {"type": "point", "filled": True, "size": 45, "opacity": 0.7},
        "params": [ZOOM],
        "encoding": {"x": x, "y": y, **others},
    }
    layers: list[Spec] = [points]
    if diagonal:
        values = [float(row[x["field"]]) for row in rows] + [float(row[y["field"]]) for row in rows]
        ends = [{x["field"]: one, y["field"]: one} for one in (min(values), max(values))]
        line = {
            "data": {"values": ends},
            "mark": {"type": "line", "style": "ink", "strokeWidth": 1, "strokeDash": [4, 3]},
            "encoding": {"x": x, "y": y},
        }
        layers.append(line)
    return spec_of(rows, height=height_px, layer=layers)


def timeline(rows: Rows, lane: str, unit: str, height_px: int, **others: Any) -> Spec:
    """Bars of what runs when, in lanes: rows have ``start`` and ``end``. It can be zoomed along the time."""
    encoding = {
        "y": field(lane, "", "nominal", sort=None),
        "x": field("start", f"time [{unit}]", scale={"nice": False}),
        "x2": {"field": "end"},
        **others,
    }
    zoom = {"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}
    return spec_of(rows, height=height_px, mark={"type": "bar", "clip": True}, params=[zoom], encoding=encoding)
