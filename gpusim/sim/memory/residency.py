"""What earlier runs of a launch left in L2: the lines that its CTAs touched last, wave after wave."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpusim.launch import Work
from gpusim.program import Load, LoadBulk, Store, executed
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.memory.blocks import blocks_of, row_of
from gpusim.sim.state import Table

WARMING_RUNS = 3
"""Runs before this one; the share of lines that survive hardly moves after that."""
WARMING_CAPACITIES = 4.0
"""Fillings of L2 after which only the end of a run matters: e^-4 of what was there before are left."""
UNRELATED_LINES = 1024
"""Pieces in which what a cold run finds beside is counted."""
NAMELESS = -1
"""In place of the first unit of a line that no CTA asks for."""


Array: TypeAlias = NDArray[Any]


class Touched(NamedTuple):
    """Lines in the order in which CTAs touched them."""

    line: Array
    """First unit."""
    units: Array
    size_bytes: Array
    dirty_bytes: Array
    """Written, so that they go to DRAM when they leave L2."""


NOTHING = Touched(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))


def touched_before(decoded: DecodedLaunch, tables: dict[str, Table]) -> tuple[Touched, int]:
    """The end of an earlier run, or the whole of a short one, and how often it was run."""
    launch, machine = decoded.launch, decoded.machine
    wave = machine.sm_count * decoded.ctas_per_sm
    waves: list[tuple[Touched, Touched]] = []
    known = np.empty(0, np.int64)
    entered_bytes, runs = 0.0, WARMING_RUNS
    for first in range((launch.ctas - 1) // wave * wave, -1, -wave):
        both = _wave(decoded, tables, range(first, min(first + wave, launch.ctas)))
        waves.append(both)
        for touched in both:
            named = touched.line[touched.line != NAMELESS]
            new = ~np.isin(touched.line, known)
            entered_bytes += float(touched.size_bytes[new].sum())
            known = np.union1d(known, named)
        if entered_bytes >= WARMING_CAPACITIES * machine.l2_held_bytes:
            runs = 1
            break
    if launch.cold and entered_bytes <= machine.l2_held_bytes:
        # Every run before had operands of its own. Repeated, this one would find its results in L2, and not what no
        # line names: its share would grow.
        runs = 1
    columns = zip(*_in_order(decoded, tables, waves[::-1]), strict=True)
    return Touched(*(np.concatenate(column) for column in columns)), runs


def _in_order(decoded: DecodedLaunch, tables: dict[str, Table], waves: list[tuple[Touched, Touched]]) -> list[Touched]:
    """What waves load, and what they store: a persistent CTA has loaded the tiles that its ring holds before."""
    ahead = 0
    if decoded.launch.persistent:
        ahead = round(decoded.lookahead / max((table.blocks for table in tables.values()), default=1))
    ordered: list[Touched] = []
    for number in range(len(waves) + ahead):
        if number < len(waves):
            ordered.append(waves[number][0])
        if number >= ahead:
            ordered.append(waves[number - ahead][1])
    return ordered


def _wave(decoded: DecodedLaunch, tables: dict[str, Table], ctas: range) -> tuple[Touched, Touched]:
    """What CTAs that run side by side touch: the blocks that they share, step by step, and what they store."""
    launch = decoded.launch
    works = launch.works
    at = [launch.grid.coordinates(cta) for cta in ctas]
    doing = [launch.work_at(place) for place in at]
    parts, order = [], []
    last = max((table.blocks for table in tables.values()), default=0)
    for number, tensor in enumerate(launch.tensors):
        table = tables[tensor.name]
        if tensor.axes is None or not _is_loaded(works[0], tensor.name):
            continue
        rows = {
            row_of(table, *place, 0): works[work].tensors[number].block_bytes
            for place, work in zip(at, doing, strict=True)
        }
        units = np.arange(0, table.units, table.units_per_line)
        blocks = np.array([blocks_of(table, unit, table.units_per_line) for unit in units.tolist()])
        begins = units % (table.units // table.groups) * (table.groups * blocks[0] / table.units_per_line)
        first = table.first_unit + np.array([*rows]) * table.units + units[:, None]
        sizes = blocks[:, None] * np.array([*rows.values()])
        # What a CTA stores as well, it loads at its end.
        order.append(np.broadcast_to(begins[:, None] + table.rewritten * last, first.shape).ravel())
        parts.append(_touched(first.ravel(), table.units_per_line, sizes.ravel(), written=table.rewritten))
    step_by_step = np.argsort(np.concatenate(order), kind="stable") if order else np.empty(0, np.int64)
    columns = zip(*(parts or [NOTHING]), strict=True)
    loaded = Touched(*(np.concatenate(column)[step_by_step] for column in columns))
    return loaded, _stored(decoded, tables, ctas, doing)


def _touched(line: Array, units: int, size_bytes: Array, *, written: bool) -> Touched:
    return Touched(line, np.full(len(line), units), size_bytes, size_bytes if written else np.zeros(len(line)))


def _is_loaded(work: Work, name: str) -> bool:
    reads = (op.reads for role in work.roles for op, _ in executed(role.program) if isinstance(op, Load | LoadBulk))
    return any(read.tensor == name for of_load in reads for read in of_load)


def _stored(decoded: DecodedLaunch, tables: dict[str, Table], ctas: range, doing: list[int]) -> Touched:
    """What CTAs alone read, and what they store, piece by piece: they end together."""
    works = [_own_lines(work, tables) for work in decoded.launch.works]
    order, lines, sizes, dirty = [], [], [], []
    for cta, work in zip(ctas, doing, strict=True):
        for piece, (first, apart, size_bytes, dirty_bytes) in enumerate(works[work]):
            order.append(piece)
            lines.append(first + cta * apart)
            sizes.append(size_bytes)
            dirty.append(dirty_bytes)
    by_piece = sorted(range(len(order)), key=order.__getitem__)
    stored = Touched(np.array(lines, np.int64), np.ones(len(lines), np.int64), np.array(sizes), np.array(dirty))
    return Touched(*(column[by_piece] for column in stored))


def _own_lines(work: Work, tables: dict[str, Table]) -> list[tuple[int, int, float, float]]:
    """Lines of CTA 0 alone, how far apart those of the next CTA are, their sizes and dirty bytes."""
    own = {tensor.name: tensor.miss_fraction for tensor in work.tensors if tensor.axes is None}
    read_bytes = 0.0
    stored: dict[str, list[float]] = {}
    for role in work.roles:
        for op, times in executed(role.program):
            match op:
                case Load() | LoadBulk():
                    missed = sum(own.get(read.tensor, 0.0) * read.l2_bytes for read in op.reads)
                    read_bytes += role.warps * times * missed
                case Store():
                    stored.setdefault(op.tensor, []).extend([op.size_bytes] * (role.warps * times))
    lines = [(NAMELESS, 0, read_bytes, 0.0)] if read_bytes else []
    for name, sizes in stored.items():
        table = tables[name]
        if table.rewritten:
            continue
        lines += [(table.first_result + piece, table.results, size, size) for piece, size in enumerate(sizes)]
    return lines
