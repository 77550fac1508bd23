"""L2 hits of tile loads: reuse between the CTAs of a wave, and from one wave to the next.

The CTAs of a wave march over k roughly in step, so an operand panel that several of them use is read
from DRAM once a wave. A panel that the next wave needs again hits if it survived the traffic in between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import REPLACEMENT_CANDIDATES
from gpusim.lowering.columns import Array, Columns, elementwise, share
from gpusim.units import ceil_div

HALVINGS = 20
"""Bisections of the interval in which a lost share is searched for."""
ROOMY = 0.5
"""What is wanted, of what a cache holds, up to which next to nothing is lost: N lines drawn are rarely all wanted."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a whole grid moves."""

    l2_read_bytes: float
    dram_read_bytes: float
    dram_write_bytes: float
    resident_fraction: float = 0.0
    """Share of the operands' tiles that L2 holds before the launch."""
    read_cost: float = 1.0
    """DRAM time of what is read over that of a stream of as many bytes: above 1 where pages are opened for little."""
    read_energy: float = 1.0
    """DRAM energy of what is read over that of a stream of as many bytes."""
    write_cost: float = 1.0
    """DRAM time of a written byte over that of a byte read in a stream."""
    c_read_bytes: float = 0.0
    """Part of ``l2_read_bytes`` that is read of C before C is written."""
    c_missed_bytes: float = 0.0
    """Part of ``dram_read_bytes`` that is read of C before C is written."""

    @property
    def miss_fraction(self) -> float:
        """Share of the operands' bytes read from L2 that L2 had to fetch from DRAM."""
        requested_bytes, missed_bytes = (
            self.l2_read_bytes - self.c_read_bytes,
            self.dram_read_bytes - self.c_missed_bytes,
        )
        return float(miss_fraction(requested_bytes, missed_bytes))

    @property
    def c_miss_fraction(self) -> float:
        """Share of C's bytes read from L2 that L2 had to fetch from DRAM."""
        return float(miss_fraction(self.c_read_bytes, self.c_missed_bytes))

    @property
    def write_back_cost(self) -> float:
        """DRAM time of writing back what leaves L2 for a line that enters, of the time that reading it takes."""
        return self.write_cost * float(dirty_fraction(self.dram_read_bytes, self.dram_write_bytes))


def miss_fraction(l2_read_bytes: Any, dram_read_bytes: Any) -> Array:
    """Share of the bytes read from L2 that L2 has to fetch from DRAM."""
    return np.asanyarray(np.minimum(1.0, share(dram_read_bytes, l2_read_bytes)))


def dirty_fraction(dram_read_bytes: Any, dram_write_bytes: Any) -> Array:
    """Share of the lines leaving L2 that must be written back.

    L2 writes back on eviction. Run after run, each byte that enters (read on a miss, or written)
    pushes one out, and what is pushed out holds results in the proportion in which they entered.
    """
    return share(dram_write_bytes, dram_read_bytes + dram_write_bytes)


def survival_fraction(reuse_bytes: float, capacity_bytes: float) -> float:
    """Chance that a cached line outlives ``reuse_bytes`` of cyclic traffic.

    Where the least recently used of N lines drawn at random is replaced, and a footprint of r capacities is read over
    and over, a share m of the reads misses with r = 1 + m / (N + 1) + m**2 / (2 N + 1) + ...; the hits are
    exp(-N (r - 1)) to within 0.04.

    >>> survival_fraction(1.0, 2.0)
    1.0
    >>> round(survival_fraction(1.25, 1.0), 3)
    0.135
    """
    return _survival(reuse_bytes / capacity_bytes)


def _survival(ratio: float) -> float:
    """Chance that a line survives where the footprint is ``ratio`` times the capacity."""
    return math.exp(-REPLACEMENT_CANDIDATES * max(0.0, ratio - 1.0))


def survival_fractions(reuse_bytes: Array, capacity_bytes: float) -> Array:
    """:func:`survival_fraction` of each row."""
    ratios = reuse_bytes / capacity_bytes
    return elementwise(_survival, ratios, where=ratios > 1.0, otherwise=1.0)


def lost_fraction(wanted_ratio: float, replaced: float) -> float:
    """Share of the lines that a full cache loses between two uses, where each round of uses lets go of some.

    A round misses what was lost, m of the lines that are wanted, and what is new, ``replaced`` of them. What it takes
    the place of is lost too where all lines drawn are wanted, which the law of :func:`survival_fraction` says of a
    footprint that is ((m + ``replaced``) / m) ** (1 / N) times as large.

    Args:
        wanted_ratio: lines that are wanted again or new, of those that the cache holds.
        replaced: share of them that is new in a round.

    >>> [round(lost_fraction(ratio, 0.25), 2) for ratio in (0.5, 0.8, 0.98)]
    [0.0, 0.05, 0.33]
    >>> lost_fraction(1.25, 0.0) == 1.0 - survival_fraction(1.25, 1.0)
    True
    """
    if not replaced:
        return 1.0 - _survival(wanted_ratio)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        lost = (low + high) / 2
        footprint = wanted_ratio * math.pow(1.0 + replaced / lost, 1.0 / REPLACEMENT_CANDIDATES)
        if 1.0 - _survival(footprint) > lost:
            low = lost
        else:
            high = lost
    return low


def kept_fractions(wanted_bytes: Array, replaced: Array, capacity_bytes: float) -> Array:
    """What :func:`lost_fraction` leaves of each row."""
    ratios = wanted_bytes / capacity_bytes
    return 1.0 - elementwise(lost_fraction, ratios, replaced, where=ratios > ROOMY, otherwise=0.0)


@dataclass(frozen=True, slots=True)
class Residency:
    """Who answers reads that go round a footprint over and over, as shares of the reads.

    Each line has a home, one of the L2 partitions with its part of DRAM; an SM reads through its near partition, which
    keeps copies of what its SMs read.
    """

    near: float
    far: float
    dram_near: float
    """Share that DRAM answers, of lines whose home is the near partition."""
    dram_far: float


def residency_of_one_sm(gpu: Gpu, footprint_bytes: float) -> Residency:
    """Who answers the reads of the SMs of one partition.

    A footprint that the near partition does not hold is looked up at its home: of the lines whose home it is itself,
    DRAM has to answer; of the others the far partition holds what fits.
    """
    l2 = gpu.l2
    elsewhere = (l2.partitions - 1) / l2.partitions
    missed = 1.0 - survival_fraction(footprint_bytes, l2.capacity_bytes / l2.partitions)
    at_home = survival_fraction(footprint_bytes, l2.capacity_bytes)
    far = missed * elsewhere
    return Residency(1.0 - missed, far * at_home, missed - far, far * (1.0 - at_home))


def residency_of_all_sms(gpu: Gpu, footprint_bytes: float) -> Residency:
    """Who answers the reads of all SMs, which read out of step: each refreshes the lines for the others."""
    l2 = gpu.l2
    elsewhere = (l2.partitions - 1) / l2.partitions
    held = survival_fraction(footprint_bytes, l2.capacity_bytes * l2.usable_fraction)
    copied = survival_fraction(footprint_bytes, l2.capacity_bytes / l2.partitions)
    far = held * elsewhere * (1.0 - copied)
    return Residency(held - far, far, (1.0 - held) * (1.0 - elsewhere), (1.0 - held) * elsewhere)


def fetches(readers: Array, outlives_a_step: Array, lag_steps: Array | float) -> Array:
    """How often a line comes from DRAM that several CTAs read.

    Args:
        outlives_a_step: chance that a line is still in L2 a step after it was read.
        lag_steps: steps that most of the readers are within; they are evenly spread.

    >>> fetches(np.array([16, 2]), np.array([1.0, 0.25]), 1.5).tolist()
    [1.0, 1.5]
    """
    apart_steps = lag_steps / (readers + 1.0)
    kept = elementwise(math.pow, outlives_a_step, apart_steps, where=outlives_a_step < 1.0, otherwise=1.0)
    return 1.0 + (readers - 1.0) * (1.0 - kept)


def wave_panels(panels: Array, wave_tiles: Array, swizzle_width: Array) -> Array:
    """Different x panels and y panels that a wave of tiles reads.

    Args:
        panels: across the stripes of a threadblock swizzle, and along them.

    >>> wave_panels(np.array([[8, 8, 8], [100, 100, 2]]), np.array([32, 3, 6]), np.array([4, 8, 2])).tolist()
    [[4, 3, 3], [8, 1, 2]]
    """
    # A wave of more than a stripe takes the next ones too.
    width = np.minimum(np.maximum(swizzle_width, ceil_div(wave_tiles, panels[1])), panels[0])
    return np.stack([np.minimum(width, wave_tiles), np.minimum(panels[1], ceil_div(wave_tiles, width))])


@dataclass(frozen=True, slots=True)
class Panels:
    """What the tiles of GEMMs read of both operands: a panel over all k for each row, or column, of tiles.

    The first row of each array is of the panels across the stripes of a threadblock swizzle (x), the second of those
    along them (y).
    """

    counts: Array
    sizes_bytes: Array
    """Size of a panel [B]."""
    read_costs: Array
    """DRAM time of a panel's bytes over that of a stream of as many bytes."""
    read_energies: Array
    """DRAM energy of a panel's bytes over that of a stream of as many bytes."""

    @property
    def total_bytes(self) -> Array:
        return np.asanyarray(self.counts * self.sizes_bytes)


def traffic(
    panels: Panels,
    wave: Array,
    wave_tiles: Array,
    *,
    planes: Array,
    result_bytes: Array,
    swizzle_width: Array,
    l2_capacity_bytes: float,
    usable_fraction: float,
    warm: bool,
    outlives_a_step: Array,
    lag_steps: Array,
) -> Columns[Traffic]:
    """Bytes between L2, DRAM and the CTAs of tiled GEMMs.

    Args:
        wave: different x panels and y panels that a wave reads.
        wave_tiles: tiles of one plane in a wave.
        planes: GEMMs with panels of their own, one launched after the other: those of a batch, and each split of k.
        result_bytes: all of C, every plane [B].
        swizzle_width: tiles across a stripe of a threadblock swizzle; the panels along x for plain order.
        l2_capacity_bytes: capacity that one copy of shared data sees [B].
        usable_fraction: of it, what holds panels from one wave to the next.
        warm: operands were used just before.
        outlives_a_step: chance that a line is still in L2 a step after it was read.
        lag_steps: steps that most of the CTAs that read a panel together are within.
    """
    tiles = panels.counts[0] * panels.counts[1]
    totals = panels.total_bytes
    compulsory = planes * (totals[0] + totals[1])
    l2_read = planes * tiles * (panels.sizes_bytes[0] + panels.sizes_bytes[1])
    written_by_wave = result_bytes / np.maximum(1.0, planes * tiles / wave_tiles)
    usable_bytes = l2_capacity_bytes * usable_fraction
    reads = _dram_reads(panels, totals, wave, wave_tiles, swizzle_width, written_by_wave, usable_bytes)
    again = np.stack([fetches(readers, outlives_a_step, lag_steps) for readers in wave[::-1]])
    both = reads[0] + reads[1]
    read_cost, read_energy = (
        (reads[0] * of_each[0] + reads[1] * of_each[1]) / both
        for of_each in (panels.read_costs * again, panels.read_energies * again)
    )
    dram_read, dram_write = np.minimum(l2_read, np.maximum(compulsory, planes * both)), result_bytes
    resident = np.where(warm, survival_fractions(compulsory + result_bytes, usable_bytes), 0.0)
    dram_read = dram_read - resident * np.minimum(dram_read, compulsory)
    dram_write = dram_write * (1.0 - resident)
    return Columns(
        Traffic,
        l2_read_bytes=l2_read,
        dram_read_bytes=dram_read,
        dram_write_bytes=dram_write,
        resident_fraction=resident,
        read_cost=read_cost,
        read_energy=read_energy,
        c_read_bytes=0.0,
        c_missed_bytes=0.0,
    )


def _dram_reads(
    panels: Panels,
    totals: Array,
    wave: Array,
    wave_tiles: Array,
    swizzle_width: Array,
    written_by_wave: Array,
    l2_capacity_bytes: float,
) -> tuple[Array, Array]:
    """Bytes of one GEMM's x and y panels that come from DRAM, a cold L2 before [B].

    Args:
        totals: bytes of all x panels and all y panels [B].
        wave: different x and y panels that a wave of tiles reads.
        wave_tiles: tiles of a wave.
        written_by_wave: results of a wave [B].
    """
    (x_count, y_count), (x_bytes, y_bytes), (x_total, y_total) = panels.counts, panels.sizes_bytes, totals
    width = np.minimum(swizzle_width, x_count)
    # A wave of more than a stripe reads a y panel for all of them at once.
    stripes = np.minimum(ceil_div(x_count, width), np.maximum(1.0, x_count * y_count / wave_tiles))
    # Along a stripe each y panel is read once and the stripe's x panels once a wave, unless they survive.
    # Waves begin and end within rows of tiles.
    waves_per_stripe = np.minimum(y_count, np.maximum(1.0, width * y_count / wave_tiles))
    # The next tile that reads an x panel is a row of tiles away, which may take several waves.
    waves_per_row = np.maximum(1.0, width / wave_tiles)
    written_by_row = written_by_wave * (width / wave_tiles)
    row_bytes = np.maximum(wave[0], width) * x_bytes + wave[1] * y_bytes + written_by_row
    x_survives = survival_fractions(row_bytes, l2_capacity_bytes)
    x_reads = x_total * (1.0 + (waves_per_stripe - 1.0) * (1.0 - x_survives))
    # The next stripe needs all y panels again; the waves between two uses of one read the x panels of both stripes.
    stripes_read = np.minimum(2.0, waves_per_stripe)
    stripe_bytes = np.minimum(stripes_read * width, x_count) * x_bytes + y_total + waves_per_stripe * written_by_wave
    y_survives = survival_fractions(stripe_bytes, l2_capacity_bytes)
    # A row of a stripe that takes several waves reads its y panel in each of them.
    wave_bytes = wave[0] * x_bytes + wave[1] * y_bytes + written_by_row / waves_per_row
    of_stripe = 1.0 + (waves_per_row - 1.0) * (1.0 - survival_fractions(wave_bytes, l2_capacity_bytes))
    return x_reads, y_total * of_stripe * (1.0 + (stripes - 1) * (1.0 - y_survives))
