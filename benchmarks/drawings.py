"""Draws the pictures of docs/machine.md: boxes with the values of a spec, tiles of a launch, timelines of a simulation.

python benchmarks/drawings.py

Numbers in them come from specs and predictions. Text stays text, and each picture has a title and a description that a
screen reader finds.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

import gpusim
from gpusim.figures.stalls import LOOKS
from gpusim.figures.style import NO_DATES, STYLE
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.report.stall_reasons import STALL_REASONS
from gpusim.sim.causes import Cause
from gpusim.sim.initial import Simulation
from gpusim.sim.state import State
from gpusim.sim.trace import LaunchTrace, Recorder, Track

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "drawings"
BOARD = "a100-sxm4-40gb"
TILED: dict[str, Any] = {"m": 2048, "n": 2048, "k": 1024, "dtype": "fp16"}
"""Product of which the tiles are drawn: its last wave is not full."""
MOST_SPANS = 20_000
LOOP_CYCLES = 3600
"""What the timeline of a main loop shows."""
PALE = ("#E3F2FD", "#FFF3E0", "#E8F5E9", "#F3E5F5", "#FFFDE7", "#E0F7FA")

Drawing = tuple[Figure, str, str]
"""A figure, its title, and what it shows in words."""


def main() -> None:
    """Draw all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        path = FOLDER / f"{name}.svg"
        path.write_text(svg_text(*draw()), encoding="utf-8")
        print(f"wrote {path}")


def svg_text(figure: Figure, title: str, description: str) -> str:
    """A figure as SVG with a title and a description; the same figure gives the same text."""
    file = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata=NO_DATES[".svg"])
    named = 'role="img" aria-labelledby="title description"'
    texts = f'<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>'
    root = re.compile(r"<svg ([^>]*)>")
    lines = root.sub(rf"<svg {named} \1>\n{texts}", file.getvalue(), count=1).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def page(width_in: float, height_in: float) -> tuple[Figure, Axes]:
    """A figure whose axes are inches."""
    figure = Figure(figsize=(width_in, height_in))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, width_in)
    ax.set_ylim(height_in, 0)
    ax.axis("off")
    return figure, ax


def box(ax: Axes, x: float, y: float, width: float, height: float, head: str, lines: Sequence[str], fill: str) -> None:
    """A box with a heading, and lines below it."""
    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.06", fc=fill, ec="0.35", lw=0.9)
    ax.add_patch(shape)
    ax.text(x + 0.1, y + 0.22, head, fontsize=9, fontweight="bold", family="sans-serif")
    for place, line in enumerate(lines):
        ax.text(x + 0.1, y + 0.43 + 0.19 * place, line, fontsize=7.5, family="sans-serif")


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
    """An arrow, with a text beside its middle."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "0.25", "lw": 1.1})
    if text:
        ax.text((start[0] + end[0]) / 2 + 0.06, (start[1] + end[1]) / 2 + 0.03, text, fontsize=7, family="sans-serif")


# Boxes ------------------------------------------------------------------------------------------


def flow() -> Drawing:
    """From an operator to a time."""
    figure, ax = page(8.9, 2.6)
    inputs = (
        ("Library", ("catalogue of kernels,", "heuristic, by version"), 2.35),
        ("Hardware", ("SMs, pipes, L2, DRAM,", "clocks, power"), 4.6),
        ("Host", ("launch gaps,", "timing method"), 6.85),
    )
    for (head, lines, x), fill in zip(inputs, PALE[3:], strict=False):
        box(ax, x, 0.15, 1.95, 0.85, head, lines, fill)
        arrow(ax, (x + 0.97, 1.0), (x + 0.97, 1.6))
    steps = (
        ("Operator", ("m, n, k, type, layout", "or a call of a model"), 0.1),
        ("Kernel", ("tile, warps, stages,", "split-K: a grid of CTAs"), 2.35),
        ("Simulation", ("programs of warps on an", "SM; power sets the clock"), 4.6),
        ("Time", ("and bottleneck, stalls,", "bytes, energy, interval"), 6.85),
    )
    for (head, lines, x), fill in zip(steps, PALE, strict=False):
        box(ax, x, 1.6, 1.95, 0.9, head, lines, fill)
    for x in (2.05, 4.3, 6.55):
        arrow(ax, (x, 2.05), (x + 0.3, 2.05))
    words = (
        "An operator enters on the left. The library selects a kernel for it: a tile, warps, stages, a grid of CTAs."
        " The programs of its warps are simulated on the SMs of the hardware, at the clock that the power limit allows."
        " The host adds launch gaps and what a timing method counts. The result is a time with its bottleneck, stalls,"
        " bytes, energy and interval."
    )
    return figure, "From an operator to a time", words


def gpu() -> Drawing:
    """The parts of a board that the simulation knows, with their rates."""
    board = gpusim.load_gpu(BOARD)
    sm, shared, l2, dram = board.sm, board.shared_memory, board.l2, board.dram
    tensor = board.instructions["hmma_16816_f32"]
    figure, ax = page(9.2, 5.0)
    box(ax, 0.1, 0.1, 9.0, 3.0, f"{board.name}: {sm.count} SMs, of which one is drawn", (), "white")
    for place in range(sm.sub_partitions):
        lines = (
            f"1 scheduler, {sm.issue_per_cycle:g} instruction a cycle",
            f"{sm.max_warps // sm.sub_partitions} warps resident",
            f"Tensor Core: an MMA of {'×'.join(map(str, tensor.shape))}",
            f"  every {tensor.issue_interval_cycles:g} cycles",
            "FMA, ALU and SFU pipes",
        )
        box(ax, 0.3 + 2.18 * place, 0.45, 2.05, 1.45, f"sub-partition {place}", lines, PALE[0])
    capacity = f"{shared.capacity_bytes // 1024} KiB"
    shared_lines = (
        f"{capacity}, {shared.bandwidth_bytes_per_cycle:g} B a cycle, latency {shared.latency_cycles} cycles",
    )
    box(ax, 0.3, 2.1, 8.59, 0.7, "shared memory and L1", shared_lines, PALE[2])
    load = board.load_store
    of_l2 = (
        f"{l2.capacity_mib:g} MiB in {l2.partitions} partitions",
        f"{l2.bandwidth_bytes_per_cycle:,.0f} B a cycle for all SMs",
        f"latency {l2.latency_cycles} cycles near, {l2.far_latency_cycles} far",
    )
    box(ax, 2.2, 3.75, 3.4, 1.1, "L2", of_l2, PALE[1])
    of_dram = (
        f"{dram.capacity_gb:g} GB of {dram.technology}",
        f"{dram.peak_bandwidth_gb_per_s:,.0f} GB/s peak",
        "pages and banks",
    )
    box(ax, 6.7, 3.75, 2.4, 1.1, "DRAM", of_dram, PALE[4])
    arrow(ax, (3.3, 3.75), (3.3, 2.8), f"{load.l2_port_bytes_per_cycle:g} B a cycle to an SM")
    arrow(ax, (6.7, 4.3), (5.6, 4.3))
    words = (
        f"{board.name} has {sm.count} SMs. An SM has {sm.sub_partitions} sub-partitions, each with a scheduler, a"
        f" Tensor Core and other pipes, and one shared memory of {capacity}. All SMs share an L2 of {l2.capacity_mib:g}"
        f" MiB, which is filled from DRAM at {dram.peak_bandwidth_gb_per_s:,.0f} GB/s."
    )
    return figure, f"The parts of {board.name}", words


# Tiles ------------------------------------------------------------------------------------------


def tiles() -> Drawing:
    """The tiles of C, by the wave in which their CTAs run."""
    launch, sms = gpusim.predict(BOARD, **TILED).launch, gpusim.load_gpu(BOARD).sm.count
    grid = recorded(BOARD, **TILED).grids[0]
    x, y, _ = grid.extents
    at_once = sms * launch.occupancy
    figure, ax = page(7.6, 4.4)
    cell = min(3.6 / y, 4.6 / x)
    for cta in range(x * y):
        _, _, at, down = grid.coordinates(cta)
        wave = cta // at_once
        shape = Rectangle((0.5 + at * cell, 0.55 + down * cell), cell, cell, fc=PALE[wave % 6], ec="0.4", lw=0.6)
        ax.add_patch(shape)
        ax.text(
            0.5 + (at + 0.5) * cell,
            0.55 + (down + 0.5) * cell,
            str(cta),
            ha="center",
            va="center",
            fontsize=6,
            family="sans-serif",
        )
    waves = -(-grid.ctas // at_once)
    ax.text(
        0.5,
        0.35,
        f"C, {TILED['m']} × {TILED['n']}, in {grid.ctas} tiles",
        fontsize=9,
        fontweight="bold",
        family="sans-serif",
    )
    for wave in range(waves):
        count = min(at_once, grid.ctas - wave * at_once)
        ax.add_patch(Rectangle((5.4, 0.6 + 0.42 * wave), 0.28, 0.24, fc=PALE[wave % 6], ec="0.4", lw=0.6))
        ax.text(5.8, 0.78 + 0.42 * wave, f"wave {wave + 1}: {count} of {at_once} CTAs", fontsize=8, family="sans-serif")
    ax.text(5.4, 0.9 + 0.42 * waves, f"{launch.occupancy} CTAs an SM on {sms} SMs", fontsize=8, family="sans-serif")
    ax.text(5.4, 1.15 + 0.42 * waves, f"{launch.waves:.2f} waves", fontsize=8, family="sans-serif")
    last = grid.ctas - (waves - 1) * at_once
    words = (
        f"C of a product of {TILED['m']} × {TILED['n']} is divided into {grid.ctas} tiles, a CTA for each. {at_once}"
        f" CTAs run at once, so that there are {waves} waves, and the last one has {last} CTAs: most SMs wait for it."
    )
    return figure, "Tiles and waves", words


# Timelines --------------------------------------------------------------------------------------


@dataclass(slots=True)
class GridRecorder(Recorder):
    """Records the grids of launches, too."""

    grids: list[gpusim.Grid] = field(default_factory=list)

    def attach(self, simulation: Simulation, state: State) -> LaunchTrace:
        """Note the grid of a launch, and record the launch."""
        self.grids.append(simulation.decoded.launch.grid)
        return Recorder.attach(self, simulation, state)


def recorded(arch: str, **arguments: Any) -> GridRecorder:
    """What a simulation of every CTA recorded."""
    recorder = GridRecorder(MOST_SPANS)
    kernel = arguments.pop("kernel", None)
    layout = arguments.pop("layout", "tn")
    operator = gpusim.Gemm(**{**arguments, "dtype": gpusim.Dtype(arguments["dtype"]), "layout": layout})
    _ = predict(gpusim.load_system(arch), operator, Options(kernel=kernel, detail="full"), recorder)
    return recorder


def timeline(ax: Axes, tracks: Sequence[Track], end: float) -> None:
    """A row for each track: what its warp does, by cause, or when its link is busy."""
    for place, track in enumerate(tracks):
        found: dict[str, list[tuple[float, float]]] = {}
        for span in track.spans:
            if span.start < end and span.end > span.start:
                found.setdefault(span.name, []).append((span.start, min(span.end, end) - span.start))
        for name, bars in found.items():
            colour = "0.35" if track.unit else LOOKS[Cause(name)][0]
            shown = joined(bars) if track.unit else bars
            ax.broken_barh(shown, (place - 0.4, 0.8), fc=colour, ec="white", lw=0 if track.unit else 0.2)
    ax.set_yticks(range(len(tracks)), [track.name.removeprefix("CTA slot 0 ") for track in tracks], fontsize=7)
    ax.set_ylim(len(tracks) - 0.5, -0.5)
    ax.set_xlim(0, end)
    ax.tick_params(axis="x", labelsize=7)
    ax.grid(visible=False, axis="y")


def joined(bars: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of a link as (start, length), those that touch as one.

    >>> joined([(0.0, 2.0), (2.0, 1.0), (5.0, 1.0)])
    [(0.0, 3.0), (5.0, 1.0)]
    """
    found: list[tuple[float, float]] = []
    for start, length in bars:
        if found and start <= sum(found[-1]):
            first = found.pop()[0]
            found.append((first, start + length - first))
        else:
            found.append((start, length))
    return found


def legend(figure: Figure, tracks: Sequence[Track], end: float) -> None:
    """The causes that occur until then, below the panels."""
    found = {span.name for track in tracks for span in track.spans if not track.unit and span.start < end}
    shown = [cause for cause in Cause if cause.value in found]
    patches = [Patch(fc=LOOKS[cause][0], ec="white", label=STALL_REASONS[cause].name) for cause in shown]
    figure.legend(handles=patches, loc="lower center", ncols=4, fontsize=7.5)


def main_loop() -> Drawing:
    """One CTA of a GEMM on Tensor Cores: its warps, and the pipes and ports that they use."""
    trace = recorded(BOARD, **TILED).launches[0]
    warps = [track for track in trace.tracks if not track.unit and track.spans][:4]
    links = [track for track in trace.tracks if track.unit and track.spans and "ALU" not in track.name]
    links = [track for track in links if re.match(r"sub-partition 0 Tensor|shared-memory|L2 port", track.name)]
    figure = Figure(figsize=(8.4, 3.4))
    with mpl.rc_context(STYLE):
        ax = figure.subplots()
        timeline(ax, [*warps, *links], LOOP_CYCLES)
        ax.set_xlabel("cycle", fontsize=8)
        ax.set_title(f"{trace.kernel}: the first {LOOP_CYCLES:,} cycles", loc="left", fontsize=8)
        figure.subplots_adjust(left=0.21, right=0.98, top=0.91, bottom=0.3)
        legend(figure, warps, LOOP_CYCLES)
    words = (
        "Four warps of a CTA, and below them what they share. The warps first wait for the first tiles from DRAM."
        " In the main loop they multiply, wait for the shared-memory port, which takes in the next tiles, and then at"
        " barriers."
    )
    return figure, "The main loop of a GEMM, warp by warp", words


DRAWINGS: Mapping[str, Callable[[], Drawing]] = {
    "flow": flow,
    "gpu": gpu,
    "tiles": tiles,
    "main_loop": main_loop,
}
"""The drawings by the names of their files."""


if __name__ == "__main__":
    main()
