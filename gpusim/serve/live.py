"""The live page: its HTML, and the files that it loads from this server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from importlib import resources
from string import Template

from gpusim.pages.page import Chart, json_in_script
from gpusim.pages.vega import script
from gpusim.pages.what_if import charts_of


def live_html() -> str:
    """The page, whose charts have no rows yet."""
    charts = charts_of({})
    specs = {_place(at): {"name": one.name, "spec": dict(one.spec)} for at, one in enumerate(charts)}
    figures = "\n".join(_figure(_place(at), one) for at, one in enumerate(charts))
    text = _file("gpusim.serve", "live.html")
    return Template(text).substitute(figures=figures, specs=json_in_script(specs))


def _place(at: int) -> str:
    return f"chart-{at}"


def _figure(place: str, chart: Chart) -> str:
    said = escape(chart.description)
    return (
        f'<figure><figcaption>{escape(chart.title)}</figcaption><div class="chart" id="{place}"'
        f' data-description="{said}"></div><p class="said">{said}</p></figure>'
    )


def _file(package: str, name: str) -> str:
    return (resources.files(package) / "assets" / name).read_text(encoding="utf-8")


LIVE_FILES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "page.css": ("text/css", lambda: _file("gpusim.pages", "page.css")),
    "page.js": ("text/javascript", lambda: _file("gpusim.pages", "page.js")),
    "vega.js": ("text/javascript", cache(script)),
    "live.css": ("text/css", lambda: _file("gpusim.serve", "live.css")),
    "live.js": ("text/javascript", lambda: _file("gpusim.serve", "live.js")),
}
"""Files by name: their types, and what is in them."""
