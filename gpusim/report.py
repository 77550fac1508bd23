"""Result rows to pictures; the only module that draws.

A figure reads result rows and measured points and nothing else. Simulated is a filled marker on a line
or a filled bar, measured is a hollow marker without a line, each GPU has its own marker and hatch: the
pictures can be read without colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gpusim.experiment import MeasuredPoint, PlotEntry, ReferenceLine, TrainingFile
from gpusim.numerics.formats import FORMATS
from gpusim.numerics.training import Run
from gpusim.results import Cause
from gpusim.tables import Row, asked_type, shape_key, shape_text
from gpusim.workload import Dtype

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Okabe and Ito's palette, told apart with every common kind of colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++", "oo", "**")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
MAX_BARS = 40
"""More bars than this in one panel cannot be read; the first are drawn and the rest is said to be left out."""
DARK_CELL = 0.7
"""A heat map's colours further than this from its middle are too dark for black digits."""
MOST_OF_SPARSITY = 2.0
"""Half the arithmetic, twice the speed; what is faster still owes the rest to other tiles and fuller waves."""
MAX_TICKS = 7
"""Labelled sizes on the axis of a sweep."""

Drawn = tuple[Figure, list[Artist]]
"""A figure and the entries of its legend."""

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "figure.dpi": 130,
}


def draw(plot: PlotEntry, title: str, rows: Sequence[Row], points: Sequence[MeasuredPoint], path: Path) -> None:
    """Draw one plot of an experiment into a PNG; the same rows give the same bytes."""
    measured = [_measured_row(point) for point in points]
    with mpl.rc_context(STYLE):
        match plot.kind:
            case "time":
                figure, handles = _panels(rows, measured, "time_us", "time [µs]", ())
            case "speedup":
                figure, handles = _speedup(plot, rows, measured)
            case "sparse_speedup":
                figure, handles = _sparse_speedup(rows)
            case "tflops_roofline":
                figure, handles = _roofline(rows, measured)
            case "stalls":
                figure, handles = _stalls(rows)
            case _:
                assert_never(plot.kind)
        figure.suptitle(plot.title or title, fontsize=12, fontweight="bold")
        _legend(figure, handles, points if plot.kind not in ("stalls", "sparse_speedup") else ())
        figure.savefig(path, metadata={"Software": None})


def _speedup(plot: PlotEntry, rows: Sequence[Row], measured: Sequence[Row]) -> Drawn:
    """Speedups over the baseline GPU, type by type, or of every path over one type of it."""
    baseline = plot.baseline
    if plot.baseline_dtype:
        baseline = f"{baseline} {plot.baseline_dtype.value}"
        rows, measured = (_as_paths(those, plot.baseline_dtype) for those in (rows, measured))
    label = f"speedup over {baseline}"
    ratios, seen = speedups(rows, baseline), speedups(measured, baseline)
    return _panels(ratios, seen, "speedup", label, plot.lines, paths=plot.baseline_dtype is not None)


def _as_paths(rows: Sequence[Row], dtype: Dtype) -> list[Row]:
    """The rows with each GPU and data type as one series, all comparable with ``dtype``."""
    return [{**row, "gpu": f"{row['gpu']} {row['dtype']}", "dtype": dtype.value} for row in rows]


def sparse_speedups(rows: Sequence[Row]) -> list[Row]:
    """The 2:4 rows whose dense twin is there, with the ``speedup`` over it."""
    dense = {(row["gpu"], shape_key({**row, "sparsity": "2:4"})): row for row in rows if row["sparsity"] == "dense"}
    pairs = [(row, dense.get((row["gpu"], shape_key(row)))) for row in rows if row["sparsity"] == "2:4"]
    return [{**row, "speedup": twin["time_us"] / row["time_us"]} for row, twin in pairs if twin]


def speedups(rows: Sequence[Row], baseline: str) -> list[Row]:
    """Rows of the other GPUs that the baseline ran too, with their ``speedup``; the fastest run counts."""
    base: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row["gpu"] == baseline:
            base[shape_key(row)] = min(row["time_us"], base.get(shape_key(row), row["time_us"]))
    return [
        {**row, "speedup": base[shape_key(row)] / row["time_us"]}
        for row in rows
        if row["gpu"] != baseline and shape_key(row) in base
    ]


def measured_speedups(points: Sequence[MeasuredPoint], baseline: str) -> dict[tuple[Any, ...], float]:
    """Measured speedups by :func:`~gpusim.tables.shape_key` and GPU; the fastest run counts."""
    best: dict[tuple[Any, ...], float] = {}
    for row in speedups([_measured_row(point) for point in points], baseline):
        key = (*shape_key(row), row["gpu"])
        best[key] = max(row["speedup"], best.get(key, 0.0))
    return best


def _measured_row(point: MeasuredPoint) -> Row:
    """A measured run under the names of a result row."""
    row = point.row
    return {
        "gpu": point.gpu,
        "dtype": row.dtype.value,
        "sparsity": row.sparsity,
        "batch": row.batch,
        "m": row.m,
        "n": row.n,
        "k": row.k,
        "time_us": row.time_us,
        "tflops": point.tflops,
        "element_bits": row.dtype.bits,
        "output_bits": row.dtype.output_bits,
    }


def _legend(figure: Figure, handles: Sequence[Artist], points: Iterable[MeasuredPoint]) -> None:
    """What markers, bars and lines stand for, and which measured boards stand in for a simulated one."""
    if not handles:
        return
    boards = {point.board: point.gpu for point in points if point.board.lower() != point.gpu.lower()}
    drawn: dict[str, list[str]] = {}
    for board, gpu in boards.items():
        drawn.setdefault(gpu, []).append(board)
    said = "; ".join(f"{', '.join(names)} with {gpu}" for gpu, names in drawn.items())
    kinds = 3 if len(handles) % 3 == 0 else 4
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(kinds, len(handles)),
        title=f"some points were measured on sister boards: {said}" if said else "",
        title_fontsize=7.5,
    )


# Panels: a row per group of shapes, a column per data type --------------------------------------


class _Group:
    """Rows of one group and data type: a sweep over one size, or a list of named shapes."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self.name = name
        self.rows = rows
        self.dtypes = {row["gpu"]: Dtype(row["dtype"]) for row in rows}
        self.shapes = list(dict.fromkeys(_shape(row) for row in rows))
        self.axis = self._swept_axis()

    def _swept_axis(self) -> str:
        """The size that varies alone: ``m = n = k``, one of the four, or empty."""
        if len(self.shapes) < 3:
            return ""
        if all(m == n == k for _, m, n, k in self.shapes) and len({shape[0] for shape in self.shapes}) == 1:
            return "m = n = k"
        varying = [
            axis for axis, sizes in zip(_AXES, zip(*self.shapes, strict=True), strict=True) if len(set(sizes)) > 1
        ]
        return varying[0] if len(varying) == 1 else ""

    def size(self, row: Row) -> int:
        """Where a row stands on the axis of a sweep."""
        return int(row["m" if self.axis == "m = n = k" else self.axis])

    def holds(self, row: Row) -> bool:
        """A measured row belongs here: the GPU's data type, and a shape of the list or on the sweep's line."""
        dtype = self.dtypes.get(row["gpu"])
        if dtype is None or row["dtype"] != dtype.value:
            return False
        if not self.axis:
            return _shape(row) in self.shapes
        if self.axis == "m = n = k":
            same = row["m"] == row["n"] == row["k"] and row["batch"] == self.rows[0]["batch"]
        else:
            same = all(row[axis] == self.rows[0][axis] for axis in _AXES if axis != self.axis)
        sizes = [self.size(one) for one in self.rows]
        return same and min(sizes) <= self.size(row) <= max(sizes)

    def names(self) -> list[str]:
        """What to call each shape."""
        rows = {_shape(row): row for row in self.rows}
        sizes = {shape: shape_text(row).replace("x", "×") for shape, row in rows.items()}
        return [f"{row['label']}  {sizes[shape]}" if row["label"] else sizes[shape] for shape, row in rows.items()]


_AXES = ("batch", "m", "n", "k")


def _shape(row: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(row[axis] for axis in _AXES)


def _groups(rows: Sequence[Row]) -> list[list[_Group]]:
    """A line of groups per group name, one for each data type."""
    types = list(dict.fromkeys(asked_type(row) for row in rows))
    return [
        [
            _Group(
                f"{asked}, {name}" if name else asked,
                [row for row in rows if (row["group"], asked_type(row)) == (name, asked)],
            )
            for asked in types
        ]
        for name in dict.fromkeys(row["group"] for row in rows)
    ]


def _panels(
    rows: Sequence[Row],
    measured: Sequence[Row],
    value: str,
    label: str,
    lines: Sequence[ReferenceLine],
    *,
    paths: bool = False,
) -> Drawn:
    """One value of every row: curves for sweeps, bars or dots for lists of shapes.

    Where the series are ``paths``, each with a data type of its own, the groups stand side by side.
    """
    grid = [[group for line in _groups(rows) for group in line]] if paths else _groups(rows)
    gpus = list(dict.fromkeys(row["gpu"] for row in rows))
    heights = [3.3 if any(group.axis for group in line) else 1.1 + 0.17 * _lanes(line, len(gpus)) for line in grid]
    figure = Figure(figsize=(5.4 * len(grid[0]) + 0.6, sum(heights) + 1.3), layout="constrained")
    FigureCanvasAgg(figure)
    bands = figure.subfigures(len(grid), 1, squeeze=False, height_ratios=heights)[:, 0]
    for groups, band in zip(grid, bands, strict=True):
        drawn = [group for group in groups if group.rows]
        alike = not any(group.axis for group in drawn) and len({tuple(group.shapes) for group in drawn}) == 1
        for index, (group, ax) in enumerate(zip(drawn, band.subplots(1, len(drawn), squeeze=False)[0], strict=True)):
            seen = [row for row in measured if group.holds(row) and row["gpu"] in gpus]
            ax.set_title(group.rows[0]["group"] if paths else group.name, loc="left")
            shown = [line for line in lines if line.dtypes is None or set(line.dtypes) & set(group.dtypes.values())]
            if group.axis:
                _curves(ax, group, seen, gpus, value, label)
            else:
                _lists(ax, group, seen, gpus, value, label)
                ax.tick_params(axis="y", labelleft=index == 0 or not alike)
            for line in shown:
                draw_line = ax.axhline if group.axis else ax.axvline
                draw_line(line.value, color="0.25", linestyle=_line_dash(lines, line), linewidth=1.1)
            if value != "time_us":
                top = 1.1 * max(*(row[value] for row in (*group.rows, *seen)), *(line.value for line in shown), 0.0)
                (ax.set_ylim if group.axis else ax.set_xlim)(0, top)
    return figure, _panel_handles(gpus, bool(measured), lines)


def _lanes(groups: Sequence[_Group], gpus: int) -> int:
    return max(min(len(group.shapes), MAX_BARS) * (gpus + 1) for group in groups)


def _line_dash(lines: Sequence[ReferenceLine], line: ReferenceLine) -> Any:
    return DASHES[1 + lines.index(line) % 7]


def _look(gpus: Sequence[str], gpu: str) -> dict[str, Any]:
    """Colour and marker of a GPU."""
    index = gpus.index(gpu) % len(COLOURS)
    return {"color": COLOURS[index], "marker": MARKERS[index]}


def _dash(gpus: Sequence[str], gpu: str) -> Any:
    return DASHES[gpus.index(gpu) % len(DASHES)]


_HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none", "markersize": 8, "markeredgewidth": 1.3}


def _curves(ax: Axes, group: _Group, seen: Sequence[Row], gpus: Sequence[str], value: str, label: str) -> None:
    """A sweep: one curve per GPU, measured runs as hollow markers."""
    for gpu in gpus:
        own = sorted((group.size(row), row[value]) for row in group.rows if row["gpu"] == gpu)
        if own:
            ax.plot(
                *zip(*own, strict=True), **_look(gpus, gpu), markersize=4, linewidth=1.3, linestyle=_dash(gpus, gpu)
            )
        points = [(group.size(row), row[value]) for row in seen if row["gpu"] == gpu]
        if points:
            ax.plot(*zip(*points, strict=True), **_look(gpus, gpu), **_HOLLOW)
    ax.set_xscale("log", base=2)
    ticks = _spread(sorted({group.size(row) for row in group.rows}))
    ax.set_xticks(ticks, [str(size) for size in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.tick_params(axis="x", which="minor", length=0)
    ax.set_xlabel(group.axis)
    ax.set_ylabel(label)
    if value == "time_us":
        ax.set_yscale("log")


def _spread(sizes: Sequence[int]) -> list[int]:
    """The first size and those after it that lie far enough apart to be labelled on a logarithmic axis."""
    apart = math.log(sizes[-1] / sizes[0]) / MAX_TICKS
    kept: list[int] = []
    for size in sizes:
        if not kept or math.log(size / kept[-1]) >= apart:
            kept.append(size)
    return kept


def _lists(ax: Axes, group: _Group, seen: Sequence[Row], gpus: Sequence[str], value: str, label: str) -> None:
    """A list of shapes, a lane per GPU: bars from zero, or dots where the axis has no zero."""
    shapes, names = group.shapes[:MAX_BARS], group.names()[:MAX_BARS]
    lane_height = 0.8 / len(gpus)
    for lane, gpu in enumerate(gpus):
        offset = (lane - (len(gpus) - 1) / 2) * lane_height
        own = {_shape(row): row[value] for row in group.rows if row["gpu"] == gpu}
        places = [place + offset for place, shape in enumerate(shapes) if shape in own]
        values = [own[shape] for shape in shapes if shape in own]
        if value == "time_us":
            ax.plot(values, places, **_look(gpus, gpu), linestyle="none", markersize=5)
        else:
            style = {"color": _look(gpus, gpu)["color"], "hatch": HATCHES[lane % len(HATCHES)]}
            ax.barh(places, values, height=0.9 * lane_height, edgecolor="white", linewidth=0, **style)
        points = [(row[value], shapes.index(_shape(row)) + offset) for row in seen if row["gpu"] == gpu]
        if points:
            ax.plot(*zip(*points, strict=True), **{**_look(gpus, gpu), "color": "black"}, **_HOLLOW)
    ax.set_yticks(range(len(shapes)), names)
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.set_ylim(len(shapes) - 0.5, -0.5)
    rest = len(group.shapes) - len(shapes)
    ax.set_xlabel(label + (f"   ({rest} more shapes in results.csv)" if rest else ""))
    if value == "time_us":
        ax.set_xscale("log")
    else:
        ax.grid(visible=False, axis="y")


def _panel_handles(gpus: Sequence[str], measured: bool, lines: Sequence[ReferenceLine]) -> list[Artist]:
    """Legend entries of the panels."""
    handles: list[Artist] = []
    for gpu in gpus:
        look = _look(gpus, gpu)
        handles.append(Line2D([], [], **look, markersize=5, linestyle=_dash(gpus, gpu), label=f"{gpu}, simulated"))
        if measured:
            handles.append(Line2D([], [], **look, **_HOLLOW, label=f"{gpu}, measured"))
    for line in lines:
        said = f"{line.label} = {line.value:.2f}"
        handles.append(Line2D([], [], color="0.25", linestyle=_line_dash(lines, line), label=said))
    return handles


# Heat map of 2:4 over dense -----------------------------------------------------------------------


def _sparse_speedup(rows: Sequence[Row]) -> Drawn:
    """How many times faster than dense 2:4 is, over the columns n and the rows of A; a panel per GPU and type."""
    ratios = sparse_speedups(rows)
    panels = list(dict.fromkeys((row["gpu"], row["dtype"]) for row in ratios))
    figure = Figure(figsize=(4.6 * len(panels) + 0.8, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    image = None
    for ax, (gpu, dtype) in zip(axes, panels, strict=True):
        image = _heat_map(ax, [row for row in ratios if (row["gpu"], row["dtype"]) == (gpu, dtype)])
        ax.set_title(f"{gpu}, {dtype}", loc="left")
        ax.label_outer()
    if image is not None:
        beyond = "max" if any(row["speedup"] > MOST_OF_SPARSITY for row in ratios) else "neither"
        figure.colorbar(image, ax=list(axes), label="dense time / 2:4 time", shrink=0.9, extend=beyond)
    return figure, []


def _heat_map(ax: Axes, rows: Sequence[Row]) -> AxesImage:
    """One panel: colour and number of each cell say the speedup; 1 is white, 2 is what the arithmetic could win."""
    columns = sorted({row["n"] for row in rows})
    lines = sorted({(row["m"], row["k"]) for row in rows})
    values = np.full((len(lines), len(columns)), np.nan)
    for row in rows:
        values[lines.index((row["m"], row["k"])), columns.index(row["n"])] = row["speedup"]
    image = ax.imshow(values, cmap="PuOr_r", vmin=0.0, vmax=MOST_OF_SPARSITY, origin="lower", aspect="auto")
    for (line, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            dark = abs(value - 1.0) > DARK_CELL
            ax.text(column, line, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black", size=8)
    ax.set_xticks(range(len(columns)), [str(size) for size in columns])
    square = all(m == k for m, k in lines)
    ax.set_yticks(range(len(lines)), [str(m) if square else f"{m} × {k}" for m, k in lines])
    ax.set_xlabel("n, columns of the dense B")
    ax.set_ylabel("m = k of the 2:4 A" if square else "m × k of the 2:4 A")
    ax.grid(visible=False)
    return image


# Roofline ---------------------------------------------------------------------------------------


def _intensity(row: Row) -> float:
    """Operations per byte when every operand moves once [FLOP/B]."""
    m, n, k = row["m"], row["n"], row["k"]
    moved_bits = (m * k + k * n) * row["element_bits"] + m * n * row["output_bits"]
    return float(2 * m * n * k / (moved_bits / 8))


def _roofline(rows: Sequence[Row], measured: Sequence[Row]) -> Drawn:
    """Rate against arithmetic intensity, under each GPU's roof; a panel per data type."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    gpus = list(dict.fromkeys(row["gpu"] for row in rows))
    figure = Figure(figsize=(5.4 * len(dtypes) + 0.6, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, dtype in zip(figure.subplots(1, len(dtypes), squeeze=False)[0], dtypes, strict=True):
        seen = [row for row in measured if row["dtype"] == dtype and row["gpu"] in gpus]
        _roofline_panel(ax, [row for row in rows if row["dtype"] == dtype], seen, gpus)
        ax.set_title(dtype, loc="left")
    looks = [(gpu, _look(gpus, gpu)) for gpu in gpus]
    handles: list[Artist] = [
        Line2D([], [], color=look["color"], linestyle=_dash(gpus, gpu), linewidth=1.6, label=f"{gpu}, roofline")
        for gpu, look in looks
    ]
    handles += [
        Line2D([], [], **look, linestyle="none", markersize=5, label=f"{gpu}, simulated") for gpu, look in looks
    ]
    if measured:
        handles += [Line2D([], [], **look, **_HOLLOW, label=f"{gpu}, measured") for gpu, look in looks]
    return figure, handles


def _roofline_panel(ax: Axes, rows: Sequence[Row], seen: Sequence[Row], gpus: Sequence[str]) -> None:
    """The roofs and points of one data type."""
    intensities = [_intensity(row) for row in (*rows, *seen)]
    span = np.geomspace(min(intensities) / 2, max(intensities) * 2, 200)
    for gpu in gpus:
        own = [row for row in rows if row["gpu"] == gpu]
        if not own:
            continue
        look = _look(gpus, gpu)
        peak, bandwidth_gb_per_s = max(row["peak_tflops"] for row in own), own[0]["dram_peak_gb_per_s"]
        roof = np.minimum(span * bandwidth_gb_per_s / 1e3, peak)
        ax.plot(span, roof, color=look["color"], linestyle=_dash(gpus, gpu), linewidth=1.6)
        ax.annotate(
            f"{peak:.3g} TFLOP/s",
            (span[-1], peak),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=7.5,
            color=look["color"],
        )
        ax.plot(
            [_intensity(row) for row in own], [row["tflops"] for row in own], **look, linestyle="none", markersize=4.5
        )
        runs = [row for row in seen if row["gpu"] == gpu]
        ax.plot([_intensity(row) for row in runs], [row["tflops"] for row in runs], **look, **_HOLLOW)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("arithmetic intensity, every operand moved once [FLOP/B]")
    ax.set_ylabel("rate [TFLOP/s]")


# Stall ledger -----------------------------------------------------------------------------------


def _stalls(rows: Sequence[Row]) -> Drawn:
    """Where the warps' cycles went, as shares of their lifetime; a bar per prediction."""
    shown = rows[:MAX_BARS]
    causes = [cause.value for cause in Cause if any(row["stall_cycles"].get(cause.value) for row in shown)]
    figure = Figure(figsize=(10.0, 1.9 + 0.27 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    left = np.zeros(len(shown))
    for index, cause in enumerate(causes):
        share = np.array([100 * row["stall_cycles"].get(cause, 0) / (row["warp_cycles"] or 1) for row in shown])
        ax.barh(
            range(len(shown)),
            share,
            left=left,
            color=COLOURS[index % 8],
            hatch=HATCHES[(index + index // 8) % 8],
            edgecolor="white",
            linewidth=0.4,
            label=cause,
        )
        left += share
    names = [f"{row['gpu']}  {row['dtype']}  {row['label'] or shape_text(row).replace('x', '×')}" for row in shown]
    ax.set_yticks(range(len(shown)), names)
    ax.tick_params(axis="y", length=0, labelsize=7.5)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlim(0, 100)
    ax.grid(visible=False, axis="y")
    rest = len(rows) - len(shown)
    ax.set_xlabel("share of the warps' cycles [%]" + (f"   ({rest} more predictions in results.csv)" if rest else ""))
    return figure, list(ax.get_legend_handles_labels()[0])


# Training ---------------------------------------------------------------------------------------


def draw_training(content: TrainingFile, rows: Sequence[Row], gradients: Sequence[Row], path: Path) -> None:
    """Draw a training experiment into a PNG: loss, gradients by magnitude, loss scale, updates lost."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.4, 8.6), layout="constrained")
        FigureCanvasAgg(figure)
        loss, magnitudes, scale, updates = figure.subplots(2, 2).flat
        by_run = {run.label: [row for row in rows if row["run"] == run.label] for run in content.runs}
        looks = {run.label: _run_look(index) for index, run in enumerate(content.runs)}
        _training_curves(loss, by_run, looks, "loss", "mean squared error (of targets: 1)")
        loss.set_yscale("log")
        loss.set_title("Does it learn?", loc="left")
        _training_curves(
            updates, by_run, looks, "lost_update_fraction", "updates that leave their weight unchanged [%]"
        )
        updates.set_title("What becomes of the updates?", loc="left")
        scaled = [run.label for run in content.runs if run.loss_scale is not None]
        _training_curves(scale, {label: by_run[label] for label in scaled}, looks, "loss_scale", "loss scale")
        scale.set_yscale("log", base=2)
        scale.set_title("How large may the loss scale be?  (× steps skipped for overflow)", loc="left")
        for label in scaled:
            _skips(scale, by_run[label], looks[label])
        _magnitudes(magnitudes, content, gradients, looks)
        figure.suptitle(content.title, fontsize=12, fontweight="bold")
        handles = [Line2D([], [], **look, label=label) for label, look in looks.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        figure.savefig(path, metadata={"Software": None})


def _run_look(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of a run."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.3,
    }


def _training_curves(
    ax: Axes, by_run: Mapping[str, Sequence[Row]], looks: Mapping[str, dict[str, Any]], value: str, label: str
) -> None:
    """One value of every run over the steps; fractions in percent."""
    factor = 100.0 if value.endswith("_fraction") else 1.0
    for index, (run, rows) in enumerate(by_run.items()):
        every = max(1, len(rows) // 8)
        values = [math.nan if row[value] is None else factor * row[value] for row in rows]
        ax.plot([row["step"] for row in rows], values, **looks[run], markevery=(index * every // 8, every))
    ax.set_xlabel("step")
    ax.set_ylabel(label)


def _skips(ax: Axes, rows: Sequence[Row], look: Mapping[str, Any]) -> None:
    """A cross at each step that was skipped."""
    before = [0, *(row["skipped_steps"] for row in rows)]
    skipped = [row for row, sofar in zip(rows, before, strict=False) if row["skipped_steps"] > sofar]
    ax.plot(
        [row["step"] for row in skipped],
        [row["loss_scale"] for row in skipped],
        linestyle="none",
        marker="x",
        markersize=9,
        markeredgewidth=1.8,
        color=look["color"],
    )


def _magnitudes(ax: Axes, content: TrainingFile, gradients: Sequence[Row], looks: Mapping[str, dict[str, Any]]) -> None:
    """Activation gradients by binade before they are rounded, in the range of FP16."""
    fp16, bf16 = FORMATS["fp16"], FORMATS["bf16"]
    for index, run in enumerate(_shown_gradients(content.runs)):
        own = sorted((row["exponent"], row["gradients"]) for row in gradients if row["run"] == run.label)
        total = sum(count for _, count in own)
        shares = [100 * count / total for _, count in own]
        ax.plot([exponent for exponent, _ in own], shares, **looks[run.label], markevery=(index, 4))
    lowest, highest = math.log2(fp16.smallest), math.log2(fp16.largest)
    ax.axvspan(lowest - 1, highest, color="0.92", zorder=0)
    ax.axvspan(lowest - 1, math.log2(fp16.smallest_normal), color="0.84", zorder=0)
    top = 1.25 * ax.get_ylim()[1]
    ax.set_ylim(0, top)
    for place, text, side in (
        (lowest - 1.6, "FP16:\nzero", "right"),
        (lowest - 0.6, "FP16:\nsubnormal", "left"),
        (math.log2(fp16.smallest_normal) + 0.4, "FP16: normal,\nto 65504", "left"),
        (highest + 0.4, "FP16:\ninfinite", "left"),
    ):
        ax.text(place, 0.98 * top, text, ha=side, va="top", fontsize=7.5)
    ax.set_xlim(-48, 24)
    ax.set_xlabel(
        "binary exponent of a gradient, loss scale included\n"
        f"(BF16 and FP32 go on to {math.log2(bf16.largest):.0f}; BF16 starts at ${math.log2(bf16.smallest):.0f}$)"
    )
    ax.set_ylabel("activation gradients [% per binade]")
    ax.set_title(f"Where do the gradients lie?  (step {content.training.gradients_at})", loc="left")


def _shown_gradients(runs: Sequence[Run]) -> list[Run]:
    """Runs with FP32 weights: the others' gradients are those of a worse network."""
    return [run for run in runs if run.weights == "fp32"]
