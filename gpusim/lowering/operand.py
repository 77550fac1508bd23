"""A matrix in memory, and the sectors and lines that reading a tile touches."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    """What says which elements are kept, per element of the dense operand."""

    @property
    def bits(self) -> float:
        """All that is stored per element of the dense operand."""
        return self.element_bits * self.kept_fraction + self.metadata_bits

    @property
    def row_bytes(self) -> float:
        """Values along the contiguous dimension, which bound the width of loads [B]."""
        return self._contiguous_bytes(self.rows, self.k)

    def _contiguous_bytes(self, rows: float, k: int) -> float:
        return (k * self.kept_fraction if self.k_contiguous else rows) * self.element_bits / 8

    def touched_bytes(self, rows: float, tile_k: int, unit_bytes: int) -> float:
        """Aligned units of memory that a step's slice of so many rows touches, wherever it starts [B].

        Rows that are shorter than a unit share it.
        """
        run_bytes = min(self._contiguous_bytes(rows, tile_k), self.row_bytes)
        runs = rows if self.k_contiguous else tile_k * self.kept_fraction
        aligned = min(access_bytes(self.row_bytes, unit_bytes), access_bytes(run_bytes, unit_bytes))
        return runs * max(run_bytes, min(run_bytes + unit_bytes - aligned, self.row_bytes))

    def sector_overfetch(self, tile_rows: int, tile_k: int) -> float:
        """Bytes that an SM fetches per byte wanted: runs that start inside a 32-byte sector touch one more."""
        run_bytes = min(self._contiguous_bytes(tile_rows, tile_k), self.row_bytes)
        aligned = access_bytes(self.row_bytes, SECTOR_BYTES)
        return 1.0 + (SECTOR_BYTES - aligned) / max(run_bytes, SECTOR_BYTES)

    def page_share_bytes(self, asked_k: int, page_bytes: float) -> float:
        """What is read of a DRAM page at once, where ``asked_k`` values of k are on their way together [B].

        Neighbours read the rest of rows that lie along m or n at the same time. Of rows that lie along k one slice
        each is taken, and of a page as many slices as it holds rows.
        """
        if not self.k_contiguous:
            return page_bytes
        slices = max(1.0, page_bytes / self.row_bytes)
        return min(page_bytes, max(SECTOR_BYTES, asked_k * self.kept_fraction * self.element_bits / 8 * slices))


def access_bytes(row_bytes: float, widest: int) -> int:
    """Widest aligned access into rows of ``row_bytes`` [B], at least one byte.

    >>> access_bytes(24, 16), access_bytes(4096, 16)
    (8, 16)
    """
    whole = int(row_bytes) or 1
    return min(widest, whole & -whole)


def element_access_bytes(row_bytes: float, widest: int, element_bytes: float) -> int:
    """Access of a kernel that was compiled for rows that are all aligned, and for single elements [B].

    >>> element_access_bytes(24, 16, 4), element_access_bytes(4096, 16, 4)
    (4, 16)
    """
    return widest if row_bytes % widest == 0 else math.ceil(element_bytes)
