"""Charts of pages, as Vega-Lite specifications: bars with intervals, waterfalls, scatter plots, lines, timelines.

Colours are those of the plots (:mod:`gpusim.figures.style`); text and lines take the colours of the page. Series differ
by shape or dashes as well as by colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.figures.style import COLOURS

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
