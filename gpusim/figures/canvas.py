"""Layout of a figure: panels in rows, title above, legend and notes below.

Panels have a least size [inch]. Labels and ticks around them are measured after drawing, and the figure is made as
large as the sum, so that no text is cut or overlaps. Rows that have as many panels, of one kind, stand below each other
as a grid; other rows are stretched to the same width, so that no corner of the figure stays empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

from gpusim.figures.style import DPI, renderer_of, wrapped

PAD_IN = 0.12
"""Margin at the edge of the figure."""
GAP_IN = 0.22
"""Gap between panels, and to the title, legend and notes."""
LEAST_WIDTH_IN = 5.6
ENTRY_IN = 3.3
"""Longest line of a legend entry."""
MAX_COLUMNS = 4
TITLE_SIZE, SUBTITLE_SIZE, PANEL_TITLE_SIZE, NOTE_SIZE = 12.0, 8.5, 9.0, 7.5
COLOUR_BAR_IN = (3.6, 0.13)
PROVISIONAL_IN = 10.0
"""Figure size while panels are drawn and measured."""

Entry = tuple[Artist | tuple[Artist, ...], str]
"""One or several overlaid artists and their label."""


@dataclass(frozen=True, slots=True)
class Caption:
    """Title, subtitle and notes."""

    title: str
    subtitle: str
    """States that the values are simulated, and under which conditions."""
    entries: Sequence[Entry] = ()
    notes: Sequence[str] = ()


def cells(count: int, most: int) -> list[tuple[int, int]]:
    """Row and column of each of ``count`` panels, at most ``most`` abreast, in rows that are about equally full.

    >>> cells(4, 3), cells(5, 3)
    ([(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
    """
    rows = math.ceil(count / most)
    fuller = count % rows if rows else 0
    sizes = [count // rows + (row < fuller) for row in range(rows)]
    return [(row, column) for row, size in enumerate(sizes) for column in range(size)]


def page_title(title: str, number: int, pages: int) -> str:
    """The title of one of several pages.

    >>> page_title("Stalls", 2, 3)
    'Stalls (2 of 3)'
    """
    return title if pages == 1 else f"{title} ({number} of {pages})"


@dataclass(frozen=True, slots=True)
class _Margins:
    """Space taken around a panel's axes [inch]."""

    left: float
    right: float
    bottom: float
    top: float


@dataclass(slots=True)
class _Panel:
    ax: Axes
    row: int
    column: int
    width: float
    height: float
    kind: str
    stretches: bool
    margins: _Margins = field(default_factory=lambda: _Margins(0, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the rows of a grid: widest margin before, width, and widest margin after the panels of each."""

    lefts: list[float]
    widths: list[float]
    rights: list[float]
    stretches: bool

    @property
    def width(self) -> float:
        """From the first margin to the last."""
        return sum(self.lefts) + sum(self.widths) + sum(self.rights) + GAP_IN * (len(self.widths) - 1)

    def stretched_to(self, width: float) -> _Columns:
        """The columns with the rest of a width divided among them, where they stretch."""
        share = (width - self.width) / len(self.widths) if self.stretches else 0.0
        return replace(self, widths=[own + share for own in self.widths])


class Canvas:
    """A figure under construction; use within ``mpl.rc_context(STYLE)``."""

    def __init__(self) -> None:
        self.figure = Figure(figsize=(PROVISIONAL_IN, PROVISIONAL_IN), dpi=DPI)
        self._panels: list[_Panel] = []

    def panel(
        self,
        row: int,
        column: int,
        width_in: float,
        height_in: float,
        *titles: str,
        kind: str = "",
        stretches: bool = True,
    ) -> Axes:
        """Axes of a least size in a row; each title begins on a line of its own.

        Args:
            row: Counted from the top.
            column: Counted from the left within the row.
            width_in: Width without labels [inch]; more where another row is wider.
            height_in: Height without labels [inch].
            titles: Above the axes.
            kind: Only rows of one kind, and with as many panels, are aligned with each other.
            stretches: Whether the panel may become wider; all or none of a row do.
        """
        ax = self.figure.add_axes((0.0, 0.0, width_in / PROVISIONAL_IN, height_in / PROVISIONAL_IN))
        lines = [wrapped(title, width_in, PANEL_TITLE_SIZE) for title in titles if title]
        ax.set_title("\n".join(lines), loc="left", fontsize=PANEL_TITLE_SIZE)
        self._panels.append(_Panel(ax, row, column, width_in, height_in, kind, stretches))
        return ax

    def colour_bar(self, row: int, scale: ScalarMappable, label: str, *, extend: str = "neither") -> Colorbar:
        """A horizontal bar with the colours of all maps, in a row of its own below them."""
        bar = self.panel(row, 0, *COLOUR_BAR_IN, kind="colour bar", stretches=False)
        bar.grid(visible=False)
        drawn = self.figure.colorbar(scale, cax=bar, orientation="horizontal", extend=extend)
        bar.set_xlabel(label)
        return drawn

    def finish(self, caption: Caption) -> Figure:
        """Measure what was drawn, set the size of the figure and place everything."""
        renderer = renderer_of(self.figure)
        for panel in self._panels:
            panel.margins = _margins(panel.ax, renderer)
        numbers = sorted({panel.row for panel in self._panels})
        rows = [[panel for panel in self._panels if panel.row == number] for number in numbers]
        columns = self._columns(rows)
        inner = max(one.width for one in columns)
        page = max(inner, LEAST_WIDTH_IN)
        head = _Stack(self.figure, renderer)
        head.add(caption.title, page, TITLE_SIZE, weight="bold")
        head.add(caption.subtitle, page, SUBTITLE_SIZE, color="0.35")
        foot = _Stack(self.figure, renderer)
        foot.add_legend(caption.entries, page)
        for note in caption.notes:
            foot.add(note, page, NOTE_SIZE, color="0.35")
        tops = [max(panel.margins.top for panel in row) for row in rows]
        heights = [max(panel.height for panel in row) for row in rows]
        bottoms = [max(panel.margins.bottom for panel in row) for row in rows]
        body = sum(tops) + sum(heights) + sum(bottoms) + GAP_IN * (len(heights) - 1)
        gaps = GAP_IN * (bool(head.height) + bool(foot.height))
        width, height = page + 2 * PAD_IN, head.height + body + foot.height + gaps + 2 * PAD_IN
        self.figure.set_size_inches(width, height)
        head.place(PAD_IN, height - PAD_IN, width, height)
        foot.place(PAD_IN, PAD_IN + foot.height, width, height)
        top_edges = _edges(PAD_IN + head.height + (GAP_IN if head.height else 0), tops, heights, bottoms)
        for row, own, below in zip(rows, columns, top_edges, strict=True):
            filled = own.stretched_to(inner)
            lefts = _edges(PAD_IN + (page - filled.width) / 2, filled.lefts, filled.widths, filled.rights)
            for panel in row:
                at = panel.column
                wide = panel.width + filled.widths[at] - own.widths[at]
                box = (lefts[at] / width, (height - below - panel.height) / height, wide / width, panel.height / height)
                panel.ax.set_position(box)
        return self.figure

    @staticmethod
    def _columns(rows: Sequence[Sequence[_Panel]]) -> list[_Columns]:
        """The columns of each row; rows of one kind with as many panels share theirs."""
        grids: dict[tuple[str, int], list[_Panel]] = {}
        for row in rows:
            grids.setdefault((row[0].kind, len(row)), []).extend(row)
        found = {}
        for key, panels in grids.items():
            own = [[panel for panel in panels if panel.column == column] for column in range(key[1])]
            found[key] = _Columns(
                [max(panel.margins.left for panel in column) for column in own],
                [max(panel.width for panel in column) for column in own],
                [max(panel.margins.right for panel in column) for column in own],
                all(panel.stretches for panel in panels),
            )
        return [found[row[0].kind, len(row)] for row in rows]


class _Stack:
    """Lines of text and a legend below each other, left-aligned."""

    def __init__(self, figure: Figure, renderer: Any) -> None:
        self.height = 0.0
        self._figure = figure
        self._renderer = renderer
        self._items: list[tuple[Text | Legend, float]] = []

    def add(self, text: str, width_in: float, size: float, **look: Any) -> None:
        """Text, wrapped."""
        if text:
            lines = wrapped(text, width_in, size, bold="weight" in look)
            self._append(self._figure.text(0, 0, lines, size=size, va="top", ha="left", linespacing=1.15, **look))

    def add_legend(self, entries: Sequence[Entry], width_in: float) -> None:
        """A legend with as many columns as fit."""
        if not entries:
            return
        size = mpl.rcParams["legend.fontsize"]
        said = [wrapped(text, min(ENTRY_IN, width_in - 0.6), size) for _, text in entries]
        columns = min(MAX_COLUMNS, len(entries))
        legend = self._legend(entries, said, columns)
        while columns > 1 and legend.get_window_extent(self._renderer).width > width_in * DPI:
            legend.remove()
            columns -= 1
            legend = self._legend(entries, said, columns)
        self._append(legend)

    def _legend(self, entries: Sequence[Entry], said: Sequence[str], columns: int) -> Legend:
        """A legend whose texts are set afterwards: a label that starts with an underscore would be left out."""
        handles: list[Any] = [handle for handle, _ in entries]
        legend = self._figure.legend(
            handles, ["x"] * len(handles), ncols=columns, loc="upper left", borderaxespad=0, borderpad=0
        )
        for text, words in zip(legend.get_texts(), said, strict=True):
            text.set_text(words)
        return legend

    def _append(self, item: Text | Legend) -> None:
        self.height += 0.06 if self._items else 0.0
        self._items.append((item, self.height))
        self.height += item.get_window_extent(self._renderer).height / DPI

    def place(self, left_in: float, top_in: float, width_in: float, height_in: float) -> None:
        """Place everything within a figure of this size."""
        for item, below in self._items:
            place = (left_in / width_in, (top_in - below) / height_in)
            if isinstance(item, Legend):
                item.set_bbox_to_anchor(place, self._figure.transFigure)
            else:
                item.set_position(place)


def _margins(ax: Axes, renderer: Any) -> _Margins:
    """How far ticks, labels and titles extend beyond the axes."""
    outer, inner = ax.get_tightbbox(renderer), ax.get_window_extent(renderer)
    assert outer is not None  # it is visible
    return _Margins(
        max(0.0, inner.x0 - outer.x0) / DPI,
        max(0.0, outer.x1 - inner.x1) / DPI,
        max(0.0, inner.y0 - outer.y0) / DPI,
        max(0.0, outer.y1 - inner.y1) / DPI,
    )


def _edges(start: float, before: Sequence[float], sizes: Sequence[float], after: Sequence[float]) -> list[float]:
    """Where each column of axes begins, from the left, or each row, from the top [inch]."""
    edges = []
    for left, size, right in zip(before, sizes, after, strict=True):
        edges.append(start + left)
        start += left + size + right + GAP_IN
    return edges
