"""Where the blocks of a launch's tensors lie: in units that DRAM delivers, lines of L2, and pages of DRAM.

A tensor is a table of blocks: a CTA's coordinates pick a row, and its loads go along the row. Blocks that are narrower
than a line share it with those beside them.
"""

from __future__ import annotations

import math

from gpusim.hardware.machine import LINE_BYTES, Machine, rows_of_a_page
from gpusim.launch import Launch, Runs, Tensor
from gpusim.program import Load, LoadBulk, Read, Store, executed
from gpusim.sim.compilable import compilable
from gpusim.sim.state import EncodedRead, Table
from gpusim.units import ceil_div

PARTS_OF_UNIT = 16
"""Places in a unit at which rows of memory are taken to begin."""
FEW_PLACES = 4
"""In a line, up to which each is counted for itself."""


@compilable
def row_of(table: Table, batch: int, split: int, x: int, y: int, cta: int) -> int:
    """The row of a CTA, by its coordinates and its number."""
    return table.batch * batch + table.split * split + table.x * x + table.y * y + table.cta * cta


@compilable
def blocks_of(table: Table, unit: int, units: int) -> float:
    """Blocks that so many units of a row hold, from ``unit`` on."""
    if table.group_units == 0:
        return float(min(units * table.blocks_per_unit, table.blocks - unit * table.blocks_per_unit))
    last = unit % (table.units // table.groups) + units
    return (units - max(0, last - table.group_units)) * table.blocks / (table.group_units * table.groups)


def tables_of(machine: Machine, launch: Launch) -> dict[str, Table]:
    """The tables of all tensors, one after the other."""
    loads, stores = _executed(launch)
    found: dict[str, Table] = {}
    first = 0
    for tensor in launch.tensors:
        table = _table(machine, launch, tensor, max(1, loads.get(tensor.name, 0)))
        rows, results = _rows(launch, tensor), stores.get(tensor.name, 0)
        after = first + rows * table.units
        rewritten = tensor.axes is not None and results > 0
        results = 0 if rewritten else results
        found[tensor.name] = table._replace(first_unit=first, results=results, first_result=after, rewritten=rewritten)
        first = after + launch.ctas * results
    return found


def units_of(launch: Launch, tables: dict[str, Table]) -> int:
    """Units in all tables."""
    last = tables[launch.tensors[-1].name] if launch.tensors else None
    return last.first_result + launch.ctas * last.results if last else 0


def _executed(launch: Launch) -> tuple[dict[str, int], dict[str, int]]:
    """Blocks of each tensor that the roles of a CTA load, and how often its warps store."""
    loads: dict[str, int] = {}
    stores: dict[str, int] = {}
    for role in launch.roles:
        for op, times in executed(role.program):
            for read in op.reads if isinstance(op, Load | LoadBulk) else ():
                loads[read.tensor] = loads.get(read.tensor, 0) + times
            if isinstance(op, Store):
                stores[op.tensor] = stores.get(op.tensor, 0) + role.warps * times
    return loads, stores


def _extents(launch: Launch) -> dict[str, int]:
    grid = launch.grid
    return {"batch": grid.batch, "split": grid.splits, "x": grid.x, "y": grid.y, "cta": launch.ctas}


def _axes(tensor: Tensor) -> tuple[str, ...]:
    return ("cta",) if tensor.axes is None else tuple(dict.fromkeys(tensor.axes))


def _rows(launch: Launch, tensor: Tensor) -> int:
    extents = _extents(launch)
    return math.prod(extents[axis] for axis in _axes(tensor))


def _table(machine: Machine, launch: Launch, tensor: Tensor, blocks: int) -> Table:
    """A tensor's table, as if it were the first."""
    extents = _extents(launch)
    strides, rows = dict.fromkeys(extents, 0), 1
    for axis in _axes(tensor):
        strides[axis] = rows
        rows *= extents[axis]
    runs, per_unit, per_line, per_page = tensor.runs, 1, 1, 1
    groups, group_units, steps, begin, apart = 1, 0, (0, 0), 0, 0
    across = {"x": 1, "y": 1}
    if runs is not None and runs.axis is None:
        per_unit = min(blocks, _within(machine.l2_fetch_bytes, runs.size_bytes))
        per_line = _within(LINE_BYTES, per_unit * runs.size_bytes)
        per_page = _within(machine.dram_page_bytes, per_unit * runs.size_bytes)
        if runs.row_bytes < machine.dram_page_bytes:
            per_page = blocks  # a page holds whole rows
        if 0.0 < runs.begins_bytes < LINE_BYTES and blocks > 1:
            unit_bytes = machine.l2_fetch_bytes
            split = extents["split"] if "split" in _axes(tensor) else 1
            groups, begin, apart = _beginnings(runs, unit_bytes)
            if begin:
                group_units = max(1, round(runs.row_bytes / split / unit_bytes))
                steps = group_units, blocks
            else:
                group_units = math.ceil(blocks * runs.size_bytes / unit_bytes)
                steps = round(PARTS_OF_UNIT * runs.size_bytes / unit_bytes), PARTS_OF_UNIT
            per_unit, per_line = 1, _within(LINE_BYTES, unit_bytes)
            per_page = group_units if per_page == blocks else _within(machine.dram_page_bytes, unit_bytes)
    elif runs is not None:
        short = runs.row_bytes < machine.dram_page_bytes
        across[runs.axis or "x"] = (
            extents[runs.axis or "x"] if short else _within(machine.dram_page_bytes, runs.size_bytes)
        )
    units = groups * ceil_div(group_units or blocks, per_unit * per_line) * per_line
    return Table(
        **strides, blocks=blocks, units=units, blocks_per_unit=per_unit, groups=groups, group_units=group_units,
        step_units=steps[0], step_blocks=steps[1], begin=begin, apart=apart, units_per_line=per_line,
        units_per_page=per_page, x_per_page=across["x"], y_per_page=across["y"], readers=launch.ctas // rows,
        first_unit=0, results=0, first_result=0, rewritten=False,
    )  # fmt: skip


def _beginnings(runs: Runs, unit_bytes: float) -> tuple[int, int, int]:
    """Groups of rows by where they begin within a line, the first one's place in a unit, and from one to the next.

    Rows begin at all places that their alignment allows, equally often. Where these are many, groups stand for them
    that lie as far apart as runs are long, and begin half a run, or unit, into the unit.
    """
    sixteenth = unit_bytes / PARTS_OF_UNIT
    places = round(LINE_BYTES / runs.begins_bytes)
    if places <= FEW_PLACES:
        return places, 0, round(runs.begins_bytes / sixteenth)
    groups = min(PARTS_OF_UNIT, _within(LINE_BYTES, runs.size_bytes))
    begin = round(min(runs.size_bytes, unit_bytes) / 2.0 / sixteenth)
    return groups, begin, round(LINE_BYTES / groups / sixteenth)


def _within(unit_bytes: float, size_bytes: float) -> int:
    """How often a size goes into a unit, once at least."""
    return max(1, int(unit_bytes // size_bytes)) if size_bytes else 1


def read_of(machine: Machine, tensor: Tensor, table: Table, read: Read, warps: int, key: int = 0) -> EncodedRead:
    """What a warp reads of a tensor's block, and what so many of them read together from DRAM on a miss."""
    encoded = EncodedRead(key, l2_bytes=read.l2_bytes, sm_bytes=read.sm_bytes)
    encoded.dram_cycles = machine.dram_cycles(tensor.far_misses_fraction)
    if tensor.axes is None:
        encoded.block_bytes = tensor.miss_fraction * warps * read.l2_bytes
        encoded.dram_bytes = encoded.block_bytes * tensor.read_cost
        return encoded
    runs = tensor.runs or Runs(tensor.block_bytes, tensor.block_bytes)
    page = machine.dram_page_bytes
    unit_run_bytes = runs.size_bytes * table.blocks_per_unit
    pages, opening_bytes = 0.0, machine.dram_activation_bytes
    if runs.size_bytes:
        of_each_row = min(1.0, runs.row_bytes / page) * max(1.0, unit_run_bytes / page)
        pages = tensor.block_bytes / runs.size_bytes * of_each_row
        if runs.axis is None:
            reach_bytes = machine.dram_conflict_stride_bytes
            pages /= float(rows_of_a_page(runs.row_bytes, machine.dram_page_part_stride_bytes, reach_bytes))
            if runs.row_bytes >= machine.dram_conflict_stride_bytes:
                opening_bytes *= machine.dram_conflict_cost
    # The bandwidth is that of whole pages: their openings are in it.
    whole = 1.0 + machine.dram_activation_bytes / page
    encoded.pages = pages / table.groups
    encoded.block_bytes = tensor.block_bytes
    encoded.dram_bytes, encoded.page_bytes = tensor.block_bytes / whole, encoded.pages * opening_bytes / whole
    return encoded
