"""Numbers for the blocks that an L2 cache holds, and what earlier runs left there.

The names are those of :class:`gpusim.sim.block_cache.BlockCache`; here the blocks of a tensor follow each other.
"""

from __future__ import annotations

import struct
from itertools import product

import numpy as np

from gpusim.launch import Launch, Tensor
from gpusim.program import Load, LoadBulk, Store, executed
from gpusim.sim.compiled.layout import Floats, Integers

_TENSOR = struct.Struct("=qqqqqqq")


class BlockTable:
    """Where the blocks of a launch's tensors are."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.counts: dict[str, int] = {}
        """Blocks of each tensor that the roles of a CTA load."""
        for role in launch.roles:
            for op, times in executed(role.program):
                for read in op.reads if isinstance(op, Load | LoadBulk) else ():
                    self.counts[read.tensor] = self.counts.get(read.tensor, 0) + times
        stored = (op.tensor for role in launch.roles for op, _ in executed(role.program) if isinstance(op, Store))
        self.stored = tuple(dict.fromkeys(stored))
        self.rows: list[bytes] = []
        self.strides: dict[str, dict[str, int]] = {}
        self.first: dict[str, int] = {}
        self.results: dict[str, int] = {}
        """Where the CTAs' results of a tensor begin, and how far they are apart: the blocks of a row."""
        self.blocks = 0
        for tensor in launch.tensors:
            self._place(tensor)

    def _place(self, tensor: Tensor) -> None:
        grid = self.launch.grid
        extents = {"batch": grid.batch, "split": grid.splits, "x": grid.x, "y": grid.y, "cta": self.launch.ctas}
        strides, rows = dict.fromkeys(extents, 0), 1
        for axis in ("cta",) if tensor.axes is None else dict.fromkeys(tensor.axes):
            strides[axis] = rows
            rows *= extents[axis]
        blocks = max(1, self.counts.get(tensor.name, 0))
        self.strides[tensor.name], self.first[tensor.name] = strides, self.blocks
        self.rows.append(_TENSOR.pack(self.blocks, blocks, *strides.values()))
        self.results[tensor.name] = self.blocks
        if tensor.axes is not None and len(tensor.axes) == 1:
            # A cache names a block by numbers only: here results and blocks may have the same.
            rows = max(rows, self.launch.ctas)
        elif tensor.axes is not None:
            self.results[tensor.name] += rows * blocks
            rows += self.launch.ctas
        self.blocks += rows * blocks

    def left(self) -> tuple[Integers, Floats]:
        """Blocks that earlier runs asked for and results that they stored, in that order; and their sizes [B]."""
        keys, sizes = self._shared()
        if not len(keys):
            return keys, sizes
        tensors = {tensor.name: tensor for tensor in self.launch.tensors}
        ctas = np.arange(self.launch.ctas)
        results = [self.results[name] + ctas * max(1, self.counts.get(name, 0)) for name in self.stored]
        of_cta = [tensors[name].block_bytes for name in self.stored]
        return (
            np.concatenate([keys, np.stack(results, axis=1).ravel()] if results else [keys]),
            np.concatenate([sizes, np.tile(of_cta, self.launch.ctas)]),
        )

    def _shared(self) -> tuple[Integers, Floats]:
        """Blocks that several CTAs read, plane by plane, in the order in which CTAs that advance together ask."""
        grid = self.launch.grid
        tensors = {tensor.name: tensor for tensor in self.launch.tensors}
        shared = [(name, count) for name, count in self.counts.items() if tensors[name].axes is not None]
        longest = max((count for _, count in shared), default=0)
        keys, sizes = [np.empty(0, np.int64)], [np.empty(0)]
        for batch, split in product(range(grid.batch), range(grid.splits)):
            columns, bytes_of = [], []
            for name, count in shared:
                strides = self.strides[name]
                xs = np.arange(grid.x if strides["x"] or grid.x == 1 else 1) * strides["x"]
                ys = np.arange(grid.y if strides["y"] or grid.y == 1 else 1) * strides["y"]
                rows = (xs[:, None] + ys).ravel() + batch * strides["batch"] + split * strides["split"]
                block = np.arange(longest)[:, None]
                column = self.first[name] + rows * max(1, count) + block
                columns.append(np.where(block < count, column, -1))
                bytes_of.append(np.full(column.shape, tensors[name].block_bytes))
            if columns:
                found = np.concatenate(columns, axis=1).ravel()
                keys.append(found[found >= 0])
                sizes.append(np.concatenate(bytes_of, axis=1).ravel()[found >= 0])
        return np.concatenate(keys), np.concatenate(sizes)
