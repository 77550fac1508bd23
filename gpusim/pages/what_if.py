"""Page of a workload on one or two boards, as shipped and with values replaced: what follows from what was turned.

A live page shows the same charts and the same table, whose rows it replaces as values change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusim.confidence import Ratio
from gpusim.figures.style import COLOURS
from gpusim.pages import charts
from gpusim.pages.page import Chart, Code, Column, Page, Section, Table, shown
from gpusim.pages.provenance import cautions, provenance
from gpusim.report.formatting import energy_text, ratio_text, time_text
from gpusim.report.stall_reasons import STALL_REASONS
from gpusim.sim.causes import Cause
from gpusim.specs import Spec
from gpusim.studies.explain.parts import meaning_of
from gpusim.studies.what_if import BoardPrediction, Roofline

MOST_PARTS = 10
"""Parts of a time that are drawn; the others together are one more."""
_OTHERS = "others"
MOST_REPLACED = 4
"""Replaced values that the table lists."""
_MARGIN = 4.0
"""A roofline goes beyond its points and ridges by this factor."""

_ROOFLINE_PX = 340
_OF_ROOFLINE = (
    "Rate of the operator, or of those that take the most time of a step, against its operations per byte, every "
    "operand moved once. Roofs: DRAM and the stated peak; dashed, L2 and the peak at the clock of the run."
)

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Side:
    """A board of the page."""

    label: str
    prediction: BoardPrediction
    shipped: BoardPrediction | None = None
    """Prediction on the board as it ships, where values are replaced."""


def sides_of(boards: Sequence[tuple[BoardPrediction, BoardPrediction]]) -> list[Side]:
    """Boards beside what ships.

    Args:
        boards: each as shipped, and with its values; the same where none is replaced.
    """
    found = []
    for shipped, changed in boards:
        found.append(Side(shipped.arch, shipped))
        if changed.overrides:
            found.append(Side(f"{changed.arch}, changed", changed, shipped))
    return found


def what_if_page(workload: str, sides: Sequence[Side], specs: Sequence[Spec], files: Mapping[str, str]) -> Page:
    """The page, as one to keep.

    Args:
        workload: as commands take it, with its options.
        specs: those of the boards.
        files: texts of spec files of changed boards, by the name that each is stored under.
    """
    first = sides[0]
    yaml = [Code(text, f"{name}, a spec file") for name, text in files.items()]
    command = ["explain", *workload.split(), "--arch", first.prediction.arch]
    name = first.prediction.step or workload.split(maxsplit=1)[0]
    lead = f"How long {name} takes on {' and '.join(one.label for one in sides)}, "
    return Page(
        f"{name}: what if?",
        lead + "what limits it, and where the time goes. Every time is predicted." + cautions(specs),
        [
            Section("Boards", [table_of(sides)]),
            Section("What takes the time", charts_of(rows_of(sides))),
            *([Section("Changed boards as files", yaml, folded=True)] if yaml else []),
            *provenance(specs, command, _ASSUMPTIONS, caption="Command that predicts the first board again"),
        ],
    )


_ASSUMPTIONS = (
    "energy and power are of the board at the predicted clock, without its host",
    "the library chooses kernels on a changed board as on the shipped one",
)


def table_of(sides: Sequence[Side]) -> Table:
    """A column for each board."""
    columns = [Column("name", "value")] + [Column(f"side_{at}", side.label) for at, side in enumerate(sides)]
    rows = [
        {"name": name, **{f"side_{at}": text for at, text in enumerate(texts)}}
        for name, texts in _values(sides).items()
    ]
    return Table(columns, rows, "What is predicted of each board", name="boards", filtered=False)


def _values(sides: Sequence[Side]) -> dict[str, list[str]]:
    """Texts of each value, in the order of the sides; values that no side has are left out."""
    first = sides[0].prediction
    found: dict[str, list[str]] = {}
    for side in sides:
        one = side.prediction
        values = {
            "time": time_text(one.time_us),
            "8 in 10 runs": _span(one.time_us_p10, one.time_us_p90),
            "speedup over as shipped": _ratio(one.speedup_over(side.shipped)) if side.shipped else "",
            f"speedup over {sides[0].label}": "" if one is first else _ratio(one.speedup_over(first)),
            "limit": one.limit if one.limited else "...",
            "SM clock": f"{one.clock_mhz:.0f} of {one.max_clock_mhz:.0f} MHz",
            "power": f"{one.power_w:.0f} of {one.power_limit_w:.0f} W",
            "energy": energy_text(one.energy_mj),
            "rate": f"{one.result['tflops']:.4g} TFLOP/s",
            "memory": f"{one.memory_gib:.4g} GiB" + ("" if one.fits else ", does not fit"),
            "evidence": one.evidence or "whole model",
            "calibrated on": "nothing: how far times are off is not known" if one.calibrated_on == "nothing" else "",
            "kernel": str(one.result.get("kernel", "")),
            "replaced values": _replaced(one.overrides),
        }
        for name, text in values.items():
            found.setdefault(name, []).append(text)
    if len({side.prediction.arch for side in sides}) == 1:
        del found[f"speedup over {sides[0].label}"]
    return {name: texts for name, texts in found.items() if any(texts)}


def _replaced(overrides: Mapping[str, Any]) -> str:
    """The first of the replaced values, and how many more there are."""
    texts = [f"{key}={_short(value)}" for key, value in overrides.items()]
    more = len(texts) - MOST_REPLACED
    return ", ".join(texts[:MOST_REPLACED]) + (f" and {more} more" if more > 0 else "")


def _ratio(ratio: Ratio) -> str:
    return ratio_text(*ratio)


def _span(low_us: float | None, high_us: float | None) -> str:
    return "" if low_us is None or high_us is None else f"{time_text(low_us)} to {time_text(high_us)}"


def _short(value: object) -> str:
    return " ".join(map(_short, value)) if isinstance(value, list | tuple) else shown(value)  # type: ignore[arg-type]


# Charts ---------------------------------------------------------------------------------------------------------------


def rows_of(sides: Sequence[Side]) -> dict[str, Rows]:
    """The rows of each chart by its name."""
    return {
        "times": [
            {
                "board": side.label,
                "time_us": side.prediction.time_us,
                "low_us": side.prediction.time_us_p10 or side.prediction.time_us,
                "high_us": side.prediction.time_us_p90 or side.prediction.time_us,
                "interval": _span(side.prediction.time_us_p10, side.prediction.time_us_p90),
            }
            for side in sides
        ],
        "parts": _part_rows(sides),
        "stalls": [
            {"board": side.label, "cause": STALL_REASONS[Cause(cause)].name, "share": share}
            for side in sides
            for cause, share in side.prediction.stalls.items()
        ],
        "roofline": _roofline_rows(sides),
    }


def _part_rows(sides: Sequence[Side]) -> Rows:
    """Parts of the times; those that are small on every board together."""
    largest: dict[str, float] = {}
    for side in sides:
        for part in side.prediction.parts:
            largest[part.name] = max(largest.get(part.name, 0.0), part.us)
    drawn = sorted(largest, key=lambda name: (-largest[name], name))
    drawn = drawn if len(drawn) <= MOST_PARTS + 1 else drawn[:MOST_PARTS]
    rows = []
    for side in sides:
        own = {part.name: part for part in side.prediction.parts}
        parts = [(name, own[name].us if name in own else 0.0) for name in drawn]
        if others := sum(part.us for name, part in own.items() if name not in drawn):
            parts.append((_OTHERS, others))
        rows += [
            {
                "board": side.label,
                "part": name.replace("_", " "),
                "us": us,
                "share": us / side.prediction.time_us,
                "meaning": meaning_of(name) or name,
            }
            for name, us in parts
        ]
    return rows


def _roofline_rows(sides: Sequence[Side]) -> Rows:
    roofs = [side.prediction.roofline for side in sides]
    places = [point.intensity for roof in roofs for point in roof.points]
    places += [1e3 * roof.peak_tflops / roof.dram_gb_per_s for roof in roofs]
    left, right = min(places) / _MARGIN, max(places) * _MARGIN
    return [
        row for side, roof in zip(sides, roofs, strict=True) for row in _rows_of_roof(side.label, roof, left, right)
    ]


def _rows_of_roof(board: str, roof: Roofline, left: float, right: float) -> Rows:
    """The roofs of DRAM and L2 below the peak, the peak at the clock of the run, and the points."""
    found: Rows = []
    for name, gb_per_s, peak in (
        ("DRAM", roof.dram_gb_per_s, roof.peak_tflops),
        ("L2, at this clock", roof.l2_gb_per_s, roof.peak_at_clock_tflops),
    ):
        ridge = min(max(1e3 * peak / gb_per_s, left), right)
        corners = [left, ridge, right]
        found += [
            {"board": board, "roof": name, "intensity": at, "tflops": min(peak, at * gb_per_s * 1e-3)} for at in corners
        ]
    return found + [
        {"board": board, "point": one.name, "intensity": one.intensity, "tflops": one.tflops, "share": one.share}
        for one in roof.points
    ]


def heights_px(rows: Mapping[str, Rows]) -> dict[str, float]:
    """The height of each chart with these rows, by its name."""
    return {
        "times": charts.BAR_PX * max(1, len(rows.get("times", []))),
        **{name: charts.BAR_PX / 2 * max(1, len(rows.get(name, []))) + charts.BAR_PX for name in ("parts", "stalls")},
        "roofline": _ROOFLINE_PX,
    }


def charts_of(rows: Mapping[str, Rows]) -> list[Chart]:
    """The charts; with no rows, those of a live page before its first prediction."""
    scale, legend = {"range": list(COLOURS)}, {"direction": "vertical"}
    series = {"field": "board", "type": "nominal", "title": "board", "sort": None, "scale": scale, "legend": legend}
    us, share = ("us", "time [µs]", ".4~g"), ("share", "share", ".1%")
    times = charts.interval_bars(
        rows.get("times", []),
        "board",
        ("time_us", "time [µs]"),
        ("low_us", "high_us"),
        color={**series, "legend": None},
        tooltip=charts.tips(("board", "board", ""), ("time_us", "time [µs]", ".4~g"), ("interval", "8 in 10 runs", "")),
    )
    parts = _grouped(rows.get("parts", []), "part", "us", "time [µs]", series, (("meaning", "is", ""), us, share))
    stalls = _grouped(rows.get("stalls", []), "cause", "share", "share of the warps' cycles", series, (share,))
    charts_by_name = {
        "times": ("Time", times, "Time on each board, with the interval of eight in ten runs."),
        "parts": ("Where the time goes", parts, "Parts of the time on each board, which add up to it."),
        "stalls": (
            "What warps wait for",
            stalls,
            "Shares of the cycles of all warps by cause, under the names of Nsight Compute's warp states.",
        ),
        "roofline": (
            "Roofline",
            _roofline(rows.get("roofline", []), series),
            _OF_ROOFLINE,
        ),
    }
    px = heights_px(rows)
    return [
        Chart({**spec, "height": px[name]}, title, description, name=name)
        for name, (title, spec, description) in charts_by_name.items()
    ]


def _grouped(
    rows: Rows, name: str, value: str, title: str, series: charts.Spec, tooltip: Sequence[tuple[str, str, str]]
) -> charts.Spec:
    """Bars by name, beside each other by board."""
    encoding = {
        "y": charts.field(name, "", "nominal", sort=None, axis={"ticks": False, "labelPadding": 6}),
        "yOffset": {"field": "board", "sort": None},
        "x": charts.field(value, title),
        "color": series,
        "tooltip": charts.tips(("board", "board", ""), (name, name, ""), *tooltip),
    }
    return charts.spec_of(rows, mark={"type": "bar", "opacity": 0.85}, encoding=encoding)


def _roofline(rows: Rows, series: charts.Spec) -> charts.Spec:
    x = charts.field("intensity", "operations per byte", scale={"type": "log", "nice": False})
    y = charts.field("tflops", "rate [TFLOP/s]", scale={"type": "log", "nice": True})
    roofs = {
        "transform": [{"filter": "isValid(datum.roof)"}],
        "mark": {"type": "line", "strokeWidth": 1.6},
        "encoding": {
            "x": x,
            "y": y,
            "color": series,
            "strokeDash": {
                "field": "roof",
                "type": "nominal",
                "title": "roof",
                "sort": None,
                "legend": {"direction": "vertical"},
                "scale": {"range": [[1, 0], [5, 4]]},
            },
        },
    }
    tooltip = charts.tips(
        ("board", "board", ""),
        ("point", "operator", ""),
        ("tflops", "rate [TFLOP/s]", ".4~g"),
        ("intensity", "operations per byte", ".4~g"),
        ("share", "share of the time", ".1%"),
    )
    points = {
        "transform": [{"filter": "isValid(datum.point)"}],
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.85},
        "encoding": {
            "x": x,
            "y": y,
            "color": series,
            "shape": {"field": "board", "type": "nominal", "sort": None, "legend": None},
            "tooltip": tooltip,
        },
    }
    return charts.spec_of(rows, layer=[roofs, points])
