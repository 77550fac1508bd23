"""Panels and pages of a plot, and the plots that cannot be drawn.

Decided from what is known of the rows before prediction (GPU, type, shape): every file name is known, and a plot that
cannot be drawn is refused, before anything is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gpusim.experiment.comparison import (
    SHAPE,
    VARIANTS,
    Row,
    as_paths,
    requested_type,
    shape,
    sparse_speedups,
    speedups,
    with_series,
)
from gpusim.experiment.plot_schema import PlotEntry, ReferenceLine
from gpusim.experiment.value_panels import ValuePanel, panel_problem, value_panels
from gpusim.numbers.formats import Dtype
from gpusim.prediction.results import SIMULATED

MAX_SERIES = 64
"""Series that can be distinguished without colour: 8 markers times 8 line styles."""
MAX_PAGES = 100
LEDGERS_PER_PAGE = 40
"""Bars on one page of a stall plot."""
LANES_PER_PAGE = 90
"""Height of one page of a time or speedup plot, in bars."""
LANES_OF_CURVES = 24
"""Height of a panel of curves, in bars."""
LANES_AROUND = 4
"""Height of a panel's title and axis, in bars."""
HEAT_MAPS_PER_PAGE = 9
PANELS_ABREAST = 2
OVER_VALUES = ("heat_map", "curves")
"""Kinds of plots over values of the spec."""


class PanelRows:
    """Rows of one panel: a sweep over one size, or a list of shapes."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self.name = name
        self.rows = rows
        self.dtypes = {row["gpu"]: Dtype(row["dtype"]) for row in rows}
        self.shapes = list(dict.fromkeys(shape(row) for row in rows))
        self.axis = self._swept_axis()

    def _swept_axis(self) -> str:
        """The only size that varies: ``m = n = k``, one of the four, or empty."""
        if len(self.shapes) < 3:
            return ""
        if all(m == n == k for _, m, n, k in self.shapes) and len({batch for batch, *_ in self.shapes}) == 1:
            return "m = n = k"
        sizes = zip(*self.shapes, strict=True)
        varying = [axis for axis, found in zip(SHAPE, sizes, strict=True) if len(set(found)) > 1]
        return varying[0] if len(varying) == 1 else ""

    def size(self, row: Row) -> int:
        """Position of a row on the axis of a sweep."""
        return int(row["m" if self.axis == "m = n = k" else self.axis])

    def holds(self, row: Row) -> bool:
        """Whether a measured row belongs here: the GPU's data type, and a shape of the list or of the sweep."""
        dtype = self.dtypes.get(row["gpu"])
        if dtype is None or row["dtype"] != dtype.value:
            return False
        if not self.axis:
            return shape(row) in self.shapes
        if self.axis == "m = n = k":
            same = row["m"] == row["n"] == row["k"] and row["batch"] == self.rows[0]["batch"]
        else:
            same = all(row[axis] == self.rows[0][axis] for axis in SHAPE if axis != self.axis)
        sizes = [self.size(one) for one in self.rows]
        return same and min(sizes) <= self.size(row) <= max(sizes)

    def lines(self, lines: Sequence[ReferenceLine]) -> list[ReferenceLine]:
        """The reference lines that hold for its data types."""
        return [one for one in lines if one.dtypes is None or set(one.dtypes) & set(self.dtypes.values())]

    def part(self, wanted: slice) -> PanelRows:
        """The shapes of a list on one page."""
        part = PanelRows(self.name, [row for place in list(places(self.rows))[wanted] for row in place])
        part.axis = ""
        return part


Band = list[PanelRows]
"""Panels side by side."""


def places(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of a list grouped by label and shape, each series once."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    met: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = (row["label"], *shape(row))
        turn = met.get((row["series"], *key), 0)
        met[row["series"], *key] = turn + 1
        found.setdefault((*key, turn), []).append(row)
    return list(found.values())


def band_pages(rows: Sequence[Row], *, paths: bool = False) -> list[list[Band]]:
    """The panels of a time or speedup plot, page by page; each row has its ``series``.

    A row of panels per group, a column per data type. Where the series are ``paths``, each with a data type of its
    own, the groups are side by side.
    """
    series = len({row["series"] for row in rows})
    filled: list[list[Band]] = []
    lanes = 0
    for band in _bands(rows, series, paths=paths):
        height = max(LANES_OF_CURVES if group.axis else len(places(group.rows)) * (series + 1) for group in band)
        lanes += LANES_AROUND + height
        if not filled or lanes > LANES_PER_PAGE:
            filled.append([])
            lanes = LANES_AROUND + height
        filled[-1].append(band)
    return filled


def _bands(rows: Sequence[Row], series: int, *, paths: bool) -> Iterator[Band]:
    """Panels side by side; those too large for a page are divided evenly."""
    by_name = _groups(rows, paths=paths)
    for groups in [[group for named in by_name for group in named]] if paths else by_name:
        for alike in ([group for group in groups if group.axis], [group for group in groups if not group.axis]):
            for at in range(0, len(alike), PANELS_ABREAST):
                band = alike[at : at + PANELS_ABREAST]
                longest = max(len(places(group.rows)) for group in band)
                most = len(rows) if band[0].axis else max(1, (LANES_PER_PAGE - LANES_AROUND) // (series + 1))
                parts = [[group.part(part) for group in band] for part in _even_parts(longest, most)]
                yield from ([[group for group in part if group.rows] for part in parts] if len(parts) > 1 else [band])


def _groups(rows: Sequence[Row], *, paths: bool) -> list[list[PanelRows]]:
    """By group name, a group of rows per data type; with ``paths`` the type is the baseline's and not in the name."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(row["group"], {}).setdefault(requested_type(row), []).append(row)
    return [
        [PanelRows(name if paths else f"{asked}, {name}" if name else asked, own) for asked, own in by_type.items()]
        for name, by_type in found.items()
    ]


def _even_parts(count: int, most: int) -> list[slice]:
    """Slices of at most ``most`` items whose lengths differ by at most one; none for no items.

    >>> _even_parts(90, 40)
    [slice(0, 30, None), slice(30, 60, None), slice(60, 90, None)]
    """
    parts = math.ceil(count / most)
    return [slice(part * count // parts, (part + 1) * count // parts) for part in range(parts)]


def ledger_pages(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """The rows of a stall plot, page by page; a closed form has no ledger."""
    simulated = [row for row in rows if row["detail"] in SIMULATED]
    return [simulated[part] for part in _even_parts(len(simulated), LEDGERS_PER_PAGE)]


def heat_map_pages(rows: Sequence[Row]) -> list[list[tuple[str, list[Row]]]]:
    """The panels of a sparse speedup, page by page: title, and rows with their ``speedup``."""
    varying = [name for name in VARIANTS[1:] if len({row[name] for row in rows}) > 1]
    batches = len({row["batch"] for row in rows}) > 1
    panels: dict[str, list[Row]] = {}
    for row in sparse_speedups(rows):
        words = [row["gpu"], requested_type(row), *([f"batch {row['batch']}"] if batches else [])]
        panels.setdefault(", ".join([*words, *(row[name] for name in varying)]), []).append(row)
    items = list(panels.items())
    return [items[part] for part in _even_parts(len(items), HEAT_MAPS_PER_PAGE)]


def value_pages(plot: PlotEntry, rows: Sequence[Row]) -> list[list[ValuePanel]]:
    """The panels of a plot over values of the spec, page by page."""
    panels = value_panels(plot, rows)
    return [panels[part] for part in _even_parts(len(panels), HEAT_MAPS_PER_PAGE)]


def speedup_rows(plot: PlotEntry, rows: Sequence[Row]) -> list[Row]:
    """Rows of a speedup plot, with ``series`` and ``speedup``: over the baseline type by type, or over one type."""
    compared = as_paths(rows, plot.baseline_dtype.value) if plot.baseline_dtype else rows
    return speedups(with_series(compared), plot.over)


def page_count(plot: PlotEntry, rows: Sequence[Row]) -> int:
    """Number of pages of a plot; 0 if there is nothing to draw."""
    match plot.kind:
        case "time":
            return len(band_pages(with_series(rows)))
        case "speedup":
            return len(band_pages(speedup_rows(plot, rows), paths=plot.baseline_dtype is not None))
        case "stalls":
            return len(ledger_pages(rows))
        case "sparse_speedup":
            return len(heat_map_pages(rows))
        case "tflops_roofline":
            return min(1, len(rows))
        case "heat_map" | "curves":
            return len(value_pages(plot, rows))


def problem(plot: PlotEntry, rows: Sequence[Row], varying: Sequence[str]) -> str:
    """Why a plot cannot be drawn, with the remedy; empty if it can.

    Args:
        plot: The plot.
        rows: What is known of the results.
        varying: Key paths of the values of the spec that vary between the GPUs.
    """
    remedy = "remove the plot or split the experiment"
    if plot.kind in OVER_VALUES and (found := panel_problem(plot, rows, varying)):
        return found
    shown = speedup_rows(plot, rows) if plot.kind == "speedup" else with_series(rows)
    series = _series_count(plot, shown)
    if series > MAX_SERIES:
        return f"{series} series cannot be distinguished, at most {MAX_SERIES} can; {remedy}"
    pages = page_count(plot, rows)
    if pages > MAX_PAGES:
        return f"it would need {pages} pages, the limit is {MAX_PAGES}; {remedy}"
    return "" if pages else _nothing_to_draw(plot, rows)


def _series_count(plot: PlotEntry, rows: Sequence[Row]) -> int:
    """Number of series that a legend tells apart."""
    match plot.kind:
        case "stalls" | "sparse_speedup" | "heat_map":
            return 0
        case "curves":
            return len({row[plot.series] for row in rows}) if plot.series else 1
    return len({row["series"] for row in rows})


def _nothing_to_draw(plot: PlotEntry, rows: Sequence[Row]) -> str:
    """Why a plot is empty."""
    match plot.kind:
        case "speedup":
            remedy = "add a GPU, or a data type and 'baseline_dtype'"
            if len({row["gpu"] for row in rows}) > 1:
                remedy = "give it the same data types as another GPU"
            return f"no other GPU runs the GEMMs of {plot.over}; {remedy}"
        case "sparse_speedup":
            return "a sparse speedup needs both; write sparsity: [dense, '2:4']"
        case "stalls":
            return "a closed form has no stall ledger; write detail: sampled or full"
        case _:
            return "no GPU runs any of the GEMMs; change 'dtypes'"
