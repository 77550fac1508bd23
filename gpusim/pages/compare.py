"""Page of a comparison: GPUs and workloads with their times, energy and price, and which are best for the money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusim.figures.style import COLOURS
from gpusim.pages import charts
from gpusim.pages.page import Block, Chart, Column, Facts, Page, Section, Table, shown
from gpusim.pages.provenance import cautions, provenance
from gpusim.specs import Spec
from gpusim.studies.compare import US_OF_HOUR, Compared
from gpusim.studies.prices import Kind

_ITEMS = {"img": "images", "seq": "sequences", "tok": "tokens", "": "runs"}


@dataclass(frozen=True, slots=True)
class ComparedWorkload:
    """A workload as the command line names it, and its comparison."""

    name: str
    found: Sequence[Compared]

    @property
    def title(self) -> str:
        """What is predicted."""
        return next((one.step for one in self.found if one.step), "") or self.name

    @property
    def ran(self) -> list[Compared]:
        """Boards that can run it, the fastest first."""
        return [one for one in self.found if one.time_us is not None]


def compare_page(
    workloads: Sequence[ComparedWorkload], price: Kind, specs: Sequence[Spec], command: Sequence[str]
) -> Page:
    """The page.

    Args:
        price: whether prices are by the hour or to buy.
        specs: those of the boards.
        command: the arguments that made it.
    """
    names = [one.title for one in workloads]
    rows = [row for one in workloads for row in _rows(one)]
    sections = [
        Section("GPUs and workloads", [_table(rows, price), *_refused(workloads)]),
        *(_times(one) for one in workloads if one.ran),
        Section("Time against energy and price", [_energy(rows), _pareto(rows, price)]),
        *provenance(specs, command, _ASSUMPTIONS),
    ]
    boards = len({one.gpu for each in workloads for one in each.ran})
    lead = f"How long {' and '.join(names)} takes on {boards} GPUs, what limits it there, and what it costs. "
    lead += "Every time is predicted, with the interval of eight in ten runs."
    return Page(f"{boards} GPUs compared", lead + cautions(specs), sections)


_ASSUMPTIONS = ("energy and power are of the board at the predicted clock, without its host",)


def _rows(workload: ComparedWorkload) -> list[dict[str, Any]]:
    return [
        {
            "workload": workload.title,
            "gpu": one.gpu,
            "time_us": one.time_us,
            "low_us": one.time_us_p10,
            "high_us": one.time_us_p90,
            "interval": _interval(one.time_us_p10, one.time_us_p90),
            "evidence": one.evidence or "whole model",
            "speedup": one.speedup,
            "low": one.speedup_p10,
            "high": one.speedup_p90,
            "speedup_interval": _interval(one.speedup_p10, one.speedup_p90),
            "bottleneck": one.bottleneck,
            "graph_us": one.as_graph_us,
            "power_w": one.power_w,
            "energy_j": one.energy_mj and one.energy_mj * 1e-3,
            "memory_gib": one.memory_gib,
            "fits": one.fits,
            "items": one.items or 1,
            "counted": _ITEMS[one.item],
            "price": one.price,
            "dollars_per_run": one.price and one.time_us and one.price * one.time_us / US_OF_HOUR,
            "items_per_dollar": one.runs_per_dollar and one.runs_per_dollar * (one.items or 1),
            "relative_value": one.relative_value,
        }
        for one in workload.ran
    ]


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{shown(low)} to {shown(high)}"


def _table(rows: Sequence[Mapping[str, Any]], price: Kind) -> Table:
    hourly = price == "per_hour"
    columns = [
        Column("gpu", "GPU"),
        Column("time_us", "time", "µs"),
        Column("interval", "8 in 10 runs", "µs", meaning="Eight in ten measured runs take this long"),
        Column("speedup", "speedup", "×", 3),
        Column("speedup_interval", "8 in 10", "×", meaning="Eight in ten measured speedups are in it"),
        Column("price", "price", "$/h" if hourly else "$", edited=True),
    ]
    if hourly:
        columns += [Column("dollars_per_run", "a run", "$", 3), Column("items_per_dollar", "for a dollar", "", 4)]
    columns += [
        Column("relative_value", "for the money", "best = 1", 3),
        Column("bottleneck", "bottleneck", meaning="What would help most if it were twice as good"),
        Column("graph_us", "as a CUDA graph", "µs", meaning="Of a step that is bound by its host"),
        Column("power_w", "power", "W", 3),
        Column("energy_j", "energy", "J", 3),
        Column("memory_gib", "memory", "GiB", 3),
        Column("fits", "fits"),
        Column("items", "a run is", meaning="Images, sequences or tokens of a run"),
        Column("counted", "of"),
        Column("evidence", "evidence", meaning="Measured runs that surround an operator, or none"),
    ]
    kind = "by the hour" if hourly else "of a board"
    caption = f"The fastest first. Prices {kind} can be edited: what follows from them is computed again."
    columns.insert(1 if _are_several(rows) else len(columns), Column("workload", "workload"))
    return Table(columns, list(rows), caption, name="prices")


def _are_several(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rows are of more than one workload."""
    return len({row["workload"] for row in rows}) > 1


def _refused(workloads: Sequence[ComparedWorkload]) -> list[Block]:
    rows = [
        {"gpu": one.gpu, "workload": each.title, "reason": one.reason}
        for each in workloads
        for one in each.found
        if one.time_us is None
    ]
    columns = (Column("gpu", "GPU"), Column("workload", "workload"), Column("reason", "reason"))
    return [Table(columns, rows, "Cannot run it")] if rows else []


def _times(workload: ComparedWorkload) -> Section:
    """Bars of times and speedups, with their intervals."""
    rows = _rows(workload)
    step = any(one.step for one in workload.ran)
    for row in rows:
        row["limit"] = "host" if row["bottleneck"] == "host" else "GPU"
    groups = ("GPU", "host") if step else ("validated", "interpolated", "extrapolated")
    key, title = ("limit", "limited by") if step else ("evidence", "evidence")
    tooltip = charts.tips(
        ("gpu", "GPU", ""),
        ("time_us", "time [µs]", ".4~g"),
        ("interval", "8 in 10 runs [µs]", ""),
        ("speedup", "speedup", ".3~g"),
        ("bottleneck", "bottleneck", ""),
    )
    colour = charts.categories(key, title, groups)
    times = charts.interval_bars(
        rows, "gpu", ("time_us", "time [µs]"), ("low_us", "high_us"), color=colour, tooltip=tooltip
    )
    times["layer"].append(
        {
            "transform": [{"filter": "datum.graph_us > 0"}],
            "mark": {"type": "point", "shape": "diamond", "size": 70, "filled": True, "style": "ink"},
            "encoding": {
                "y": charts.field("gpu", "", "nominal", sort=None),
                "x": charts.field("graph_us", "time [µs]"),
                "tooltip": charts.tips(("gpu", "GPU", ""), ("graph_us", "as a CUDA graph [µs]", ".4~g")),
            },
        }
    )
    over = next(one.baseline for one in workload.ran)
    # Without rows that have one, the axis would have no extent.
    if not any(row["graph_us"] for row in rows):
        times["layer"].pop()
    speedups = charts.interval_bars(
        rows, "gpu", ("speedup", f"speedup over {over}"), ("low", "high"), color=colour, tooltip=tooltip
    )
    fastest = workload.ran[0]
    graphs = " A diamond is the time as a CUDA graph, of a step that waits for its host." if step else ""
    facts = Facts((
        ("fastest", fastest.gpu),
        ("its time", f"{shown(fastest.time_us)} µs"),
        ("speedup", f"{fastest.speedup:.3g} over {over} ({_interval(fastest.speedup_p10, fastest.speedup_p90)})"),
        ("its limit", fastest.bottleneck),
    ))  # fmt: skip
    return Section(workload.title, [
        facts,
        Chart(times, "Time", f"Time of {workload.title} on each GPU, with the interval of eight in ten runs.{graphs}"),
        Chart(speedups, "Speedup", f"Speedup over {over}, with the interval of eight in ten measured speedups."),
    ])  # fmt: skip


def _fronts(rows: Sequence[Mapping[str, Any]], other: str) -> list[dict[str, Any]]:
    """Rows with whether no GPU is both as fast and as low in another value."""
    found = []
    for row in rows:
        better = [
            one
            for one in rows
            if one["workload"] == row["workload"]
            and one["time_us"] <= row["time_us"]
            and one[other] <= row[other]
            and (one["time_us"] < row["time_us"] or one[other] < row[other])
        ]
        found.append({**row, "front": not better})
    return found


def _front_chart(rows: Sequence[Mapping[str, Any]], x: tuple[str, str]) -> charts.Spec:
    """Time against another value, with the names of those on the front, for which each side has half a name's width."""
    name, title = x
    place = {
        "x": charts.field(name, title, scale={"zero": False, "nice": False, "padding": 55}),
        "y": charts.field("time_us", "time [µs]", scale={"type": "log", "nice": False, "padding": 25}),
    }
    front = {
        "field": "front",
        "type": "nominal",
        "title": "no GPU is faster and lower",
        "scale": {"domain": [True, False], "range": [COLOURS[1], COLOURS[0]]},
        "legend": {"labelExpr": "datum.value ? 'true: on the front' : 'false'"},
    }
    tooltip = charts.tips(
        ("gpu", "GPU", ""), ("workload", "workload", ""), ("time_us", "time [µs]", ".4~g"), (name, title, ".4~g")
    )
    points = {
        "mark": {"type": "point", "filled": True, "size": 70},
        "params": [charts.ZOOM],
        "encoding": {
            **place,
            "color": front,
            **({"shape": {"field": "workload", "type": "nominal", "title": "workload"}} if _are_several(rows) else {}),
            "tooltip": tooltip,
        },
    }
    names = {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "text", "align": "center", "dy": -12, "style": "ink"},
        "encoding": {**place, "text": {"field": "gpu"}},
    }
    return charts.spec_of(rows, height=340, layer=[points, names])


def _energy(rows: Sequence[Mapping[str, Any]]) -> Chart:
    drawn = [row for row in rows if row["energy_j"]]
    return Chart(
        _front_chart(_fronts(drawn, "energy_j"), ("energy_j", "energy of a run [J]")),
        "Time against energy",
        "Time and energy of a run on each GPU. On the front no other GPU is both as fast and as frugal.",
    )


def _pareto(rows: Sequence[Mapping[str, Any]], price: Kind) -> Chart:
    drawn = [row for row in rows if row["price"]]
    title = "price [$/h]" if price == "per_hour" else "price [$]"
    return Chart(
        _front_chart(_fronts(drawn, "price"), ("price", title)),
        "Time against price",
        "Time and price of each GPU that has a price in the table above, as it is edited there. On the front no other "
        "GPU is both as fast and as cheap.",
        name="pareto",
    )
