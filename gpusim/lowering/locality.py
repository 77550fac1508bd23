"""L2 hits of tile loads: reuse between the CTAs of a wave, and from one wave to the next.

The CTAs of a wave march over k roughly in step, so an operand panel that several of them use is read
from DRAM once a wave. A panel that the next wave needs again hits if it survived the traffic in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.units import ceil_div


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes a whole grid moves [B]."""

    l2_read_bytes: float
    dram_read_bytes: float
    dram_write_bytes: float
    resident_fraction: float = 0.0
    """Share of the operands' tiles that L2 holds before the launch."""
    read_cost: float = 1.0
    """DRAM time of what is read, of the same bytes in a stream: more where pages are opened for little."""

    @property
    def missing_steps_fraction(self) -> float:
        """Share of a CTA's steps that need something from DRAM, if any do: a step needs a tile of either operand."""
        return 1.0 - self.resident_fraction**2

    @property
    def miss_fraction(self) -> float:
        """Share of the bytes read from L2 that L2 had to fetch from DRAM."""
        return min(1.0, self.dram_read_bytes / self.l2_read_bytes) if self.l2_read_bytes else 0.0

    @property
    def dirty_fraction(self) -> float:
        """Share of the lines leaving L2 that must be written back.

        L2 writes back on eviction. Run after run, each byte that enters (read on a miss, or written)
        pushes one out, and what is pushed out holds results in the proportion in which they entered.
        """
        entered = self.dram_read_bytes + self.dram_write_bytes
        return self.dram_write_bytes / entered if entered else 0.0


def survival_fraction(reuse_bytes: float, capacity_bytes: float) -> float:
    """Chance that a cached line outlives ``reuse_bytes`` of cyclic traffic, random replacement.

    A line of a cyclically read footprint F survives the misses between two uses of it with
    h = exp(-(1 - h) F / C); the fixed point below one where F > C.

    >>> survival_fraction(1.0, 2.0)
    1.0
    >>> round(survival_fraction(2.0, 1.0), 2)
    0.2
    """
    ratio = reuse_bytes / capacity_bytes
    if ratio <= 1.0:
        return 1.0
    hit = 0.0
    for _ in range(60):
        hit = math.exp(-(1.0 - hit) * ratio)
    return hit


def fetches(readers: float, outlives_a_step: float, drift_steps: float) -> float:
    """How often a line comes from DRAM that several CTAs read.

    Args:
        outlives_a_step: chance that a line is still in L2 a step after it was read.
        drift_steps: steps between the first and the last reader; the others are evenly spread between them.

    >>> fetches(16, 1.0, 1.5), round(fetches(2, 0.25, 1.5), 2), round(fetches(1e9, 0.25, 1.5), 2)
    (1.0, 1.5, 3.08)
    """
    apart_steps = drift_steps / (readers + 1.0)
    return 1.0 + (readers - 1.0) * (1.0 - math.pow(outlives_a_step, apart_steps))


def slices_in_use(readers: float, drift_steps: float) -> float:
    """Different slices of a panel in use at once, of the CTAs that read it one after the other.

    >>> slices_in_use(1, 1.5), slices_in_use(100, 1.5)
    (1.0, 2.5)
    """
    return min(float(readers), 1.0 + drift_steps)


def wave_panels(panels_x: int, panels_y: int, wave_tiles: int, swizzle_width: int) -> tuple[int, int]:
    """Different x panels and y panels that a wave of tiles reads.

    >>> wave_panels(8, 100, 32, 8), wave_panels(8, 100, 32, 4), wave_panels(8, 100, 3, 8)
    ((8, 4), (4, 8), (3, 1))
    """
    width = min(swizzle_width, panels_x)
    return min(width, wave_tiles), min(panels_y, ceil_div(wave_tiles, width))


@dataclass(frozen=True, slots=True)
class Panels:
    """What the tiles of a product read of one operand: a panel over all k for each row, or column, of tiles."""

    count: int
    size_bytes: float
    """Of one panel [B]."""
    read_cost: float = 1.0
    """DRAM time of its bytes, of the same bytes in a stream."""

    @property
    def total_bytes(self) -> float:
        return self.count * self.size_bytes


def traffic(
    x: Panels,
    y: Panels,
    *,
    batch: int,
    splits: int,
    result_bytes: float,
    concurrent_ctas: int,
    swizzle_width: int,
    l2_capacity_bytes: float,
    warm: bool,
    outlives_a_step: float = 1.0,
    drift_steps: float = 0.0,
) -> Traffic:
    """Bytes between L2, DRAM and the CTAs of a tiled product.

    Args:
        x: panels along the grid's fastest dimension.
        y: panels along the other one.
        batch: independent products, outermost.
        splits: CTAs that share a tile's k range (their panels are disjoint in k).
        result_bytes: all of C, every product [B].
        concurrent_ctas: CTAs resident on the GPU at once.
        swizzle_width: tiles along x of a threadblock swizzle; ``x.count`` for plain order.
        l2_capacity_bytes: capacity that one copy of shared data sees [B].
        warm: operands were used just before.
        outlives_a_step: chance that a line is still in L2 a step after it was read.
        drift_steps: steps between the first and the last of the CTAs that read a panel together.
    """
    tiles = x.count * y.count
    compulsory = batch * (x.total_bytes + y.total_bytes)
    l2_read = batch * tiles * (x.size_bytes + y.size_bytes)
    # A wave, in tiles of one product: splits of one tile run side by side and read different k ranges.
    wave_tiles = max(1, min(tiles, concurrent_ctas // splits))
    wave = wave_panels(x.count, y.count, wave_tiles, swizzle_width)
    written_by_wave = result_bytes / max(1.0, batch * tiles / wave_tiles)
    x_reads, y_reads = _dram_reads(x, y, wave, swizzle_width, written_by_wave, l2_capacity_bytes)
    x_cost = x.read_cost * fetches(wave[1], outlives_a_step, drift_steps)
    y_cost = y.read_cost * fetches(wave[0], outlives_a_step, drift_steps)
    read_cost = (x_reads * x_cost + y_reads * y_cost) / (x_reads + y_reads)
    dram_read, dram_write = min(l2_read, max(compulsory, batch * (x_reads + y_reads))), result_bytes
    resident = 0.0
    if warm:
        resident = survival_fraction(compulsory + result_bytes, l2_capacity_bytes)
        dram_read -= resident * min(dram_read, compulsory)
        dram_write *= 1.0 - resident
    return Traffic(l2_read, dram_read, dram_write, resident, read_cost)


def _dram_reads(
    x: Panels,
    y: Panels,
    wave: tuple[int, int],
    swizzle_width: int,
    written_by_wave: float,
    l2_capacity_bytes: float,
) -> tuple[float, float]:
    """Bytes of one product's x and y panels that come from DRAM, a cold L2 before [B].

    Args:
        wave: different x and y panels that a wave of tiles reads.
        written_by_wave: results of a wave [B].
    """
    width = min(swizzle_width, x.count)
    stripes = ceil_div(x.count, width)
    waves_per_stripe = max(1.0, y.count / wave[1])
    # Along a stripe each y panel is read once and the stripe's x panels once a wave, unless they survive.
    wave_bytes = wave[0] * x.size_bytes + wave[1] * y.size_bytes + written_by_wave
    x_survives = survival_fraction(wave_bytes, l2_capacity_bytes)
    x_reads = x.total_bytes * (1.0 + (waves_per_stripe - 1.0) * (1.0 - x_survives))
    # The next stripe needs all y panels again.
    stripe_bytes = width * x.size_bytes + y.total_bytes
    y_survives = survival_fraction(stripe_bytes, l2_capacity_bytes)
    return x_reads, y.total_bytes * (1.0 + (stripes - 1) * (1.0 - y_survives))
