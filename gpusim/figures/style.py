"""One style for all plots: colours, markers, text and files.

Simulated is a filled marker on a line or a filled bar, measured is a hollow marker without a line, each series has its
own marker, dashes and hatch: plots can be read without colour.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""Okabe and Ito's palette, distinguishable with every common kind of colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++", "oo", "**")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
WHISKER: dict[str, Any] = {"color": "0.15", "linewidth": 0.9, "marker": "|", "markersize": 4.0}
"""An interval across the end of a bar."""
HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none", "markersize": 8, "markeredgewidth": 1.3}
"""A measured run."""
FONT = "DejaVu Sans"
"""Ships with matplotlib, so that text has the same size on every machine."""
DPI = 130

STYLE: Any = {
    "font.family": FONT,
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": False,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.6,
    "figure.dpi": DPI,
    "savefig.dpi": "figure",
    "savefig.bbox": None,
    "text.parse_math": False,
    "text.usetex": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "gpusim",
}
"""No mathtext: a dollar sign in a title does not start a formula."""

NO_DATES: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata that each format would write (dates, versions); removed, so that the same rows give the same bytes."""


def look(index: int) -> dict[str, Any]:
    """Colour and marker of a series; markers and dashes together differ for the first 64."""
    return {"color": COLOURS[index % 8], "marker": MARKERS[index % 8]}


def dash(index: int) -> Any:
    """Dashes of a series."""
    return DASHES[(index + index // 8) % 8]


def hatch(index: int) -> str:
    """Hatch of a series' bars."""
    return HATCHES[(index + index // 8) % 8]


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, SVG or PDF by the ending of the name; the same figure gives the same bytes."""
    with mpl.rc_context(STYLE):
        figure.savefig(path, metadata=NO_DATES[path.suffix.lower()])


# Text ---------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Text on one line, in characters that the font has; □ for any other."""
    known = _characters()
    return "".join(one if ord(one) in known else "□" for one in " ".join(text.split()))


def wrapped(text: str, width_in: float, size: float, *, bold: bool = False) -> str:
    """Text on lines that are no wider than ``width_in`` [inch]; a longer word is cut, a % keeps its number."""
    text = plain(text)
    if text_width(text, size, bold=bold) <= width_in:
        return text
    lines: list[str] = []
    for word in re.split(r" (?!%)", text):
        if lines and text_width(f"{lines[-1]} {word}", size, bold=bold) <= width_in:
            lines[-1] += f" {word}"
            continue
        rest = word
        while text_width(rest, size, bold=bold) > width_in and len(rest) > 1:
            fits = max(1, int(len(rest) * width_in / text_width(rest, size, bold=bold)))
            while fits > 1 and text_width(rest[:fits], size, bold=bold) > width_in:
                fits -= 1
            lines.append(rest[:fits])
            rest = rest[fits:]
        lines.append(rest)
    return "\n".join(lines)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of one line of text [inch]."""
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    return float(_ruler().get_text_width_height_descent(text, font, ismath=False)[0]) / DPI


@lru_cache(maxsize=1)
def _ruler() -> Any:
    """The renderer that measures text."""
    return renderer_of(Figure(figsize=(1, 1), dpi=DPI))


def renderer_of(figure: Figure) -> Any:
    """The renderer of a figure."""
    return FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1)
def _characters() -> frozenset[int]:
    """Code points of the font."""
    return frozenset(get_font(fontManager.findfont(FONT)).get_charmap())
