"""A matrix in memory, and the sectors and lines that reading a tile touches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.hardware.gpu import Dram
from gpusim.hardware.machine import rows_of_a_page
from gpusim.lowering.columns import Array
from gpusim.units import ceil_div

SECTOR_BYTES = 32
"""Smallest unit of traffic between L1 and L2."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix of ``rows`` (of m or n) by k."""

    rows: int
    k: int
    k_contiguous: bool
    element_bits: int
    kept_fraction: float = 1.0
    """Share of k that is stored: half of a 2:4 operand."""
    metadata_bits: float = 0.0
    """Bits that tell which elements are kept, per element of the dense operand."""
    values_per_element: float = 1.0
    """Values in memory for an element: more than 1 where an element of the GEMM stands for several."""
    slices: int = 1
    """Parts of the rows that no tile spans."""
    run: int | None = None
    """Neighbours in memory along the contiguous dimension; None: all of it. Of images a pixel's channels, or a row."""
    spacing: int = 1
    """Distance from one of these neighbours to the next: a stride passes over those between, which come with them."""
    taps_in_row: float = 1.0
    """Neighbouring taps of a filter that read the same sectors: what comes through L1 serves them together."""
    rows_together: float = 1.0
    """Neighbouring rows in the same lines: taps of a filter see the same row of pixels, each one further on."""
    reads_per_element: float = 1.0
    """Elements of the matrix by those that come from memory: several taps of a filter read each pixel."""

    @property
    def bits(self) -> float:
        """Bits stored per element of the dense operand, metadata included."""
        return self.element_bits * self.values_per_element * self.kept_fraction + self.metadata_bits


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands A, in the first row of each array, and B of many GEMMs."""

    rows: Array
    slices: Array
    """Parts of the rows that no tile spans."""
    row_bytes: Array
    """Neighbours along the contiguous dimension, which bound the width of loads [B]."""
    row_alignment_bytes: Array
    """Widest aligned access into them [B]."""
    runs_per_row: Array
    """Runs of such neighbours in the contiguous dimension."""
    spacing: Array
    """Distance from one neighbour to the next, up to that of a sector [elements]."""
    taps_in_row: Array
    rows_together: Array
    reads_per_element: Array
    k_contiguous: Array
    element_bits: int
    kept_fraction: Array
    bits: Array

    @classmethod
    def of(cls, a: Sequence[Operand], b: Sequence[Operand], rows: Array, k: Array) -> Operands:
        """Operands that differ from each other in nothing but their sizes and runs."""
        of_a, of_b = a[0], b[0]
        k_contiguous, kept_fraction, bits = (
            np.array([[one], [other]])
            for one, other in (
                (of_a.k_contiguous, of_b.k_contiguous),
                (of_a.kept_fraction, of_b.kept_fraction),
                (of_a.bits, of_b.bits),
            )
        )
        along_bytes = np.where(k_contiguous, k * kept_fraction, rows) * of_a.element_bits / 8
        run_bytes = np.array([[(one.run or math.inf) * one.element_bits / 8 for one in those] for those in (a, b)])
        row_bytes = np.minimum(along_bytes, run_bytes)
        in_sector = SECTOR_BYTES * 8 / of_a.element_bits
        return cls(
            rows,
            np.array([[one.slices for one in those] for those in (a, b)]),
            row_bytes,
            _alignment_bytes(row_bytes),
            along_bytes / row_bytes,
            np.array([[min(one.spacing, in_sector) for one in those] for those in (a, b)]),
            np.array([[one.taps_in_row for one in those] for those in (a, b)]),
            np.array([[one.rows_together for one in those] for those in (a, b)]),
            np.array([[one.reads_per_element for one in those] for those in (a, b)]),
            k_contiguous,
            of_a.element_bits,
            kept_fraction,
            bits,
        )

    def __getitem__(self, columns: Array) -> Operands:
        """The operands of some of the GEMMs."""
        return Operands(
            self.rows.take(columns, axis=1),
            self.slices.take(columns, axis=1),
            self.row_bytes.take(columns, axis=1),
            self.row_alignment_bytes.take(columns, axis=1),
            self.runs_per_row.take(columns, axis=1),
            self.spacing.take(columns, axis=1),
            self.taps_in_row.take(columns, axis=1),
            self.rows_together.take(columns, axis=1),
            self.reads_per_element.take(columns, axis=1),
            self.k_contiguous,
            self.element_bits,
            self.kept_fraction,
            self.bits,
        )

    def run_bytes(self, rows: Any, tile_k: Any) -> Array:
        """What lies together in memory of so many rows and values of k [B]."""
        return np.asanyarray(np.minimum(self._along_bytes(rows, tile_k), self.row_bytes))

    def _along_bytes(self, rows: Any, tile_k: Any) -> Array:
        """What lies along the contiguous dimension, in runs or together, of so many rows and values of k [B]."""
        along = np.where(self.k_contiguous, tile_k * self.kept_fraction, rows)
        return np.asanyarray(along * self.element_bits / 8)

    def touched_bytes(
        self, rows: Any, tile_k: Any, *units_bytes: int, longest_bytes: float = math.inf
    ) -> tuple[Array, ...]:
        """Aligned units of memory that a step's slice of so many rows touches, wherever it starts [B].

        Rows that are shorter than a unit share it.

        Args:
            units_bytes: sizes of units, each of which has an answer [B].
            longest_bytes: what is read together; units that two readings share count twice [B].
        """
        row_bytes, along_bytes = self.row_bytes, self._along_bytes(rows, tile_k)
        run_bytes = np.minimum(along_bytes, row_bytes)
        runs = np.where(self.k_contiguous, rows, tile_k * self.kept_fraction)
        if longest_bytes < math.inf:
            whole_bytes, run_bytes = run_bytes, np.minimum(run_bytes, longest_bytes)
            runs = runs * (whole_bytes / run_bytes)
        runs = runs * np.maximum(1.0, np.minimum(along_bytes / row_bytes, self.runs_per_row))
        alignment_bytes = np.minimum(self.row_alignment_bytes, _alignment_bytes(run_bytes))
        return tuple(
            np.asanyarray(runs * np.maximum(run_bytes, np.minimum(run_bytes + unit - aligned, row_bytes)))
            for unit, aligned in ((unit, np.minimum(alignment_bytes, unit)) for unit in units_bytes)
        )

    def sector_overfetch(self, tile_rows: Any, tile_k: Any) -> Array:
        """Bytes that an SM fetches per byte wanted: runs that start inside a 32-byte sector touch one more."""
        run_bytes, aligned = self.run_bytes(tile_rows, tile_k), np.minimum(self.row_alignment_bytes, SECTOR_BYTES)
        return np.asanyarray(self.spacing + (SECTOR_BYTES - aligned) / np.maximum(run_bytes, SECTOR_BYTES))

    def page_shares_bytes(self, requested_k: Sequence[Any], dram: Dram) -> list[Array]:
        """What is read of a DRAM page at once, for each of ``requested_k`` values of k that are read together [B].

        Neighbours read the rest of rows that lie along m or n at the same time. Of rows that lie along k one slice
        each is read, and of a page as many slices as it holds rows.
        """
        page_bytes = dram.page_bytes
        apart = rows_of_a_page(self.row_bytes, dram.page_part_stride_bytes, dram.conflict_stride_bytes)
        slices = np.maximum(page_bytes / self.row_bytes, np.where(self.runs_per_row == 1, apart, 1.0))
        found = []
        for of_slice in requested_k:
            slice_bytes = of_slice * self.kept_fraction * self.element_bits / 8
            read_bytes = np.minimum(page_bytes, np.maximum(SECTOR_BYTES, slice_bytes * slices))
            found.append(np.where(self.k_contiguous, read_bytes, page_bytes))
        return found


def access_bytes(row_bytes: Any, widest: Any) -> Array:
    """Widest aligned access into rows of ``row_bytes`` [B], at least one byte.

    >>> access_bytes(np.array([24.0, 4096.0]), 16).tolist()
    [8, 16]
    """
    return np.asanyarray(np.minimum(widest, _alignment_bytes(np.asanyarray(row_bytes))))


def _alignment_bytes(size_bytes: Array) -> Array:
    """The largest power of two that divides whole bytes, at least one."""
    whole = np.maximum(_whole(size_bytes), 1)
    return np.asanyarray(whole & -whole)


def _whole(size_bytes: Array) -> Array:
    """Whole bytes; Python's numbers where sizes are too large for others."""
    if size_bytes.dtype != object:
        return size_bytes.astype(np.int64)
    return np.array([int(size) for size in size_bytes.flat], dtype=object).reshape(size_bytes.shape)


def element_access_bytes(row_bytes: Any, widest: Any, element_bits: int) -> Array:
    """Access of a kernel that was compiled for rows that are all aligned, and for single elements [B].

    >>> element_access_bytes(np.array([24.0, 4096.0]), 16, 32).tolist()
    [4, 16]
    """
    return np.asanyarray(np.where(row_bytes % widest == 0, widest, ceil_div(element_bits, 8)))
