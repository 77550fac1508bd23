"""Why a workload takes its time, as parts of a page: waterfall from the peak, roofline, sensitivities, speedup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpusim.figures.style import COLOURS
from gpusim.hardware.gpu import Gpu
from gpusim.pages import charts
from gpusim.pages.page import Block, Chart, Column, Section, Table, shown
from gpusim.prediction.results import Result
from gpusim.prediction.selection import CORES
from gpusim.report.formatting import interval_text, ratio_text, time_text
from gpusim.studies.explain.explanation import Explained, Explanation
from gpusim.studies.explain.losses import losses
from gpusim.studies.explain.parts import meaning_of
from gpusim.studies.explain.sensitivities import FACTORS

LEAST_SHARE = 0.0005
"""Fraction of the time below which a bar is left out of a waterfall, whose next bar starts where it ends."""
WIDEST = 1e3
"""How far below the first point a roofline begins at most, as a ratio: further ridges are not shown."""
LEAST_IN_MS = 1e4
"""Times from which a waterfall counts in milliseconds [us]."""
STEPS = ("peak", "adds", "saves", "predicted")
COLOURS_OF_STEPS = tuple(COLOURS[at] for at in (0, 1, 2, 5))


def waterfall_sections(one: Explained, gpu: Gpu, of: str = "") -> list[Section]:
    """How the time at the peak becomes the predicted one, and the parts of that.

    Args:
        of: ends the headings.
    """
    found = losses(one.result, one.parts, gpu)
    rows = _steps([(loss.name, loss.us, loss.meaning) for loss in found], one.total_us)
    columns = (
        Column("name", "part"),
        Column("us", "time", "µs"),
        Column("share", "share", "%", 3),
        Column("meaning", "meaning"),
    )
    table = Table(columns, rows, f"From the peak to the predicted time; the parts add up to it{of}", "waterfall", False)
    described = f"At the peak the work would take {time_text(rows[0]['us'])}, predicted are {time_text(one.total_us)}. "
    chart = Chart(
        _waterfall(rows, one.total_us),
        "From the peak to the predicted time",
        f"{described}Each bar starts where the one above it ends.",
        table,
        "waterfall",
    )
    return [
        Section(f"From peak to achieved{of}", [chart]),
        Section(f"Parts of the time{of}", [_parts(one, of)], folded=True),
    ]


def _parts(one: Explained, of: str) -> Table:
    columns = (
        Column("name", "part"),
        Column("us", "time", "µs"),
        Column("share", "share", "%", 3),
        Column("meaning", "what happens"),
    )
    rows: list[dict[str, Any]] = [
        {"name": part.name, "us": part.us, "share": 100 * part.share, "meaning": meaning_of(part.name)}
        for part in one.parts
    ]
    return Table(columns, rows, f"Parts of the predicted time, which add up to it{of}", "parts")


def _steps(parts: Iterable[tuple[str, float, str]], total_us: float, last: str = "predicted") -> list[dict[str, Any]]:
    """Rows of a waterfall, whose last is the sum."""
    rows: list[dict[str, Any]] = []
    at_us = 0.0
    for name, us, meaning in parts:
        kind = "peak" if not rows else "adds" if us >= 0 else "saves"
        rows.append(_step(name, us, meaning, kind, total_us, at_us))
        at_us += us
    return [*rows, _step(last, total_us, "", "predicted", total_us, 0.0)]


def _step(name: str, us: float, meaning: str, kind: str, total_us: float, start_us: float) -> dict[str, Any]:
    return {
        "name": name.replace("_", " "),
        "us": us,
        "share": 100 * us / total_us,
        "meaning": meaning,
        "kind": kind,
        "start": start_us * _scale(total_us)[1],
        "end": (start_us + us) * _scale(total_us)[1],
        "text": time_text(us) if us >= 0 else f"-{time_text(-us)}",
    }


def _scale(total_us: float) -> tuple[str, float]:
    """Unit of a time axis, and how many of it a microsecond is."""
    return ("ms", 1e-3) if total_us >= LEAST_IN_MS else ("µs", 1.0)


def _waterfall(rows: Sequence[Mapping[str, Any]], total_us: float) -> charts.Spec:
    drawn = [row for row in rows if abs(row["share"]) >= 100 * LEAST_SHARE]
    colour = charts.field(
        "kind", "", "nominal", scale={"domain": list(STEPS), "range": list(COLOURS_OF_STEPS)}, legend={"title": None}
    )
    tips = charts.tips(
        ("name", "part", ""), ("us", "time [µs]", ".4~g"), ("share", "share [%]", ".3~g"), ("meaning", "meaning", "")
    )
    return charts.waterfall(drawn, "name", f"time [{_scale(total_us)[0]}]", color=colour, tooltip=tips)


def speedup_section(found: Explanation) -> Section:
    """The difference to another GPU, taken apart."""
    assert found.to is not None
    here, there = found.of.gpu, found.to.gpu
    at_us = found.total_us
    rows: list[dict[str, Any]] = []
    first = _step(here, found.total_us, "", "peak", found.total_us, 0.0)
    for one in found.differences:
        if one.difference_us:
            kind = "saves" if one.difference_us > 0 else "adds"
            rows.append(
                _step(one.name, -one.difference_us, meaning_of(one.name), kind, found.total_us, at_us)
                | {"here": one.us, "there": one.to_us}
            )
            at_us -= one.difference_us
    last = _step(there, found.to.total_us, "", "predicted", found.total_us, 0.0)
    total = {**last, "name": "all", "here": found.total_us, "there": found.to.total_us}
    total["us"] = found.to.total_us - found.total_us
    total["share"] = 100 * total["us"] / found.total_us
    columns = (
        Column("name", "part"),
        Column("here", here, "µs"),
        Column("there", there, "µs"),
        Column("us", "difference", "µs"),
        Column("share", f"of {here}", "%", 3),
        Column("meaning", "what happens"),
    )
    table = Table(columns, [*rows, total], f"Parts on {here} and on {there}; the differences add up", "speedup", False)
    ratio = ratio_text(*found.speedup)
    spec = _waterfall([first, *rows, last], found.total_us)
    spec["layer"][0]["encoding"]["color"]["legend"] = None
    interval = interval_text(*found.to.interval)
    text = f"{there} is {ratio} times as fast as {here}: {time_text(found.to.total_us)}"
    text += f" (8 in 10 runs: {interval})" if interval else ""
    chart = Chart(
        spec,
        f"From {here} to {there}",
        f"{text}. Each bar is a part of the time that is shorter there, or longer.",
        table,
        "speedup",
    )
    return Section("The speedup taken apart", [chart])


def tornado_section(found: Explanation, limit: str) -> list[Section]:
    """What better hardware and other workloads would do; empty where nothing was predicted."""
    blocks: list[Block] = []
    if found.sensitivities:
        blocks.append(_tornado(found, limit))
    if found.advice:
        columns = (
            Column("text", "change"),
            Column("total_us", "time", "µs"),
            Column("gain_us", "gain", "µs"),
            Column("speedup", "speedup", "×", 3),
            Column("rule", "kind"),
        )
        rows = [{column.key: getattr(one, column.key) for column in columns} for one in found.advice]
        blocks.append(Table(columns, rows, "Changes that are predicted to be faster on the same GPU", "advice"))
    return [Section("What limits it and what would help", blocks)] if blocks else []


def _tornado(found: Explanation, limit: str) -> Chart:
    names = {FACTORS[0]: f"{100 * (FACTORS[0] - 1):.0f} % better", FACTORS[1]: "twice as good"}
    rows: list[dict[str, Any]] = [
        {
            "resource": one.resource,
            "change": names[one.factor],
            "saved": 100 * (1 - one.time_ratio),
            "total_us": one.total_us,
            "ratio": one.time_ratio,
            "interval": f"{one.time_ratio_p10:.2f} to {one.time_ratio_p90:.2f}",
            "values": ", ".join(f"{key}={shown(value)}" for key, value in list(one.overrides.items())[:4])
            + (f" and {len(one.overrides) - 4} more" if len(one.overrides) > 4 else ""),
        }
        for one in found.sensitivities
    ]
    columns = (
        Column("resource", "resource"),
        Column("change", "change"),
        Column("saved", "saves", "%", 3),
        Column("total_us", "time", "µs"),
        Column("interval", "8 in 10 such boards", "time ratio"),
        Column("values", "values replaced"),
    )
    tips = charts.tips(
        ("resource", "resource", ""), ("change", "change", ""), ("saved", "saves [%]", ".3~g"),
        ("total_us", "time [µs]", ".4~g"), ("values", "values", ""),
    )  # fmt: skip
    resources = list(dict.fromkeys(row["resource"] for row in rows))
    encoding = {
        "y": charts.field("resource", "", "nominal", sort=resources, axis={"ticks": False, "labelPadding": 6}),
        "x": charts.field("saved", "time saved [%]"),
        "color": charts.categories("change", "resource", [*names.values()][::-1]),
        "tooltip": tips,
    }
    layers = [
        {
            "transform": [{"filter": {"field": "change", "equal": name}}],
            "mark": {"type": "bar", "height": {"band": height}},
            "encoding": encoding,
        }
        for name, height in ((names[FACTORS[1]], 0.8), (names[FACTORS[0]], 0.4))
    ]
    spec = charts.spec_of(rows, height=charts.BAR_PX * len(resources), layer=layers)
    text = f"The limit is {limit}. " if limit else ""
    return Chart(
        spec,
        "Time saved if one resource were better",
        f"{text}Each resource is made better on its own and the workload predicted again; a bar to the left is a loss.",
        Table(columns, rows, "Time with each resource better", "sensitivities"),
        "tornado",
    )


def roofline(points: Sequence[tuple[str, str, Result, float]], gpu: Gpu, kinds: Sequence[str]) -> Chart:
    """Rates over the arithmetic intensity, under the roofs of the GPU.

    Args:
        points: kind, name, the prediction that they are of, and their rate [TFLOP/s].
        kinds: in the order of their colours and shapes.
    """
    rows: list[dict[str, Any]] = [
        {
            "kind": kind,
            "name": name,
            "intensity": result.tflops * 1e3 / result.timing.bandwidth_gb_per_s,
            "rate": rate,
            "of_peak": 100 * rate / result.timing.peak_tflops,
        }
        for kind, name, result, rate in points
        if result.tflops > 0
    ]
    of_types: dict[float, dict[str, None]] = {}
    for _, _, one, _ in points:
        of_types.setdefault(one.timing.peak_tflops, {})[f"{one.operator.dtype} on {CORES[one.launch.unit]}"] = None
    peaks = {", ".join(types): peak for peak, types in of_types.items()}
    bandwidth = gpu.dram.peak_bandwidth_gb_per_s / 1e3
    ridges = [peak / bandwidth for peak in peaks.values()]
    least = min(row["intensity"] for row in rows)
    low = max(min([least, *ridges]) / 3, least / WIDEST)
    high = 2 * max([row["intensity"] for row in rows] + ridges)
    roofs = [
        {"roof": name, "intensity": x, "rate": min(x * bandwidth, peak)}
        for name, peak in peaks.items()
        for x in sorted({low, max(low, peak / bandwidth), high})
    ]
    unit = points[0][2].operator.rate_unit
    x = charts.field("intensity", "operations per byte moved once [FLOP/B]", scale={"type": "log", "nice": False})
    y = charts.field("rate", f"rate [{unit}]", scale={"type": "log"})
    tips = charts.tips(
        ("name", "operator", ""), ("kind", "", ""), ("rate", f"rate [{unit}]", ".4~g"),
        ("of_peak", "of the peak [%]", ".3~g"), ("intensity", "operations per byte", ".4~g"),
    )  # fmt: skip
    colour = charts.categories("kind", "", kinds, legend={"title": None})
    drawn = charts.scatter(
        rows, x, y, color=colour,
        shape=charts.field("kind", "", "nominal", scale={"domain": list(kinds)}), tooltip=tips,
    )  # fmt: skip
    line = {
        "data": {"values": roofs},
        "mark": {"type": "line", "style": "ink", "fill": "transparent", "strokeWidth": 1.2},
        "encoding": {"x": x, "y": y, "detail": {"field": "roof"}},
    }
    columns = (
        Column("name", "operator"),
        Column("kind", "what"),
        Column("rate", "rate", unit),
        Column("of_peak", "of the peak", "%", 3),
        Column("intensity", "intensity", "FLOP/B"),
    )
    drawn["layer"] = [line, *drawn["layer"]]
    stated = " and ".join(f"{peak:.4g} {unit} ({name})" for name, peak in peaks.items())
    return Chart(
        drawn,
        "Roofline",
        f"The roof is {bandwidth * 1e3:.4g} GB/s of DRAM and {stated}. Points above the slant find operands in L2.",
        Table(columns, rows, "Points under the roof", "roofline"),
        "roofline",
    )
