"""What lies beyond an SM: its port to L2, the L2, and DRAM.

An SM asks for a step's data and is told when it will be there; it does not know who answered. ``sampled``
detail gives one SM its fair share of the common links and a hit fraction; ``full`` detail shares real links
among all SMs and keeps the tiles in an explicit cache.
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Protocol

from gpusim.hardware.gpu import Gpu
from gpusim.lowering.launch import Launch, Tiling
from gpusim.sim.link import Link
from gpusim.units import cycles_of_ns

REMEMBERED_STEPS = 64
"""Steps of a CTA whose arrival is kept for warps that ask later; what was asked for before has long arrived."""
LONGEST_PATTERN_STEPS = 16
"""Steps after which the pattern of those that need DRAM repeats, at most; their bytes are exact."""

WARMING_RUNS = 3
"""Runs before a warm one; the share of tiles that survive hardly moves after that."""

_Tile = tuple[int, int, int, int]
"""Operand, product of the batch, panel, step."""


class Memory(Protocol):
    """The global-memory path of one SM."""

    def load(self, cta: int, step: int, share: float, now: float) -> float:
        """Ask for ``share`` of the data of a CTA's step; when the last byte is in the SM [cycles]."""
        ...

    def store(self, size_bytes: float, now: float) -> float:
        """Write results; when the memory system has accepted them [cycles]."""
        ...

    def exchange(self, size_bytes: float, now: float) -> float:
        """Read partial sums of another CTA from L2 and write them back; when that is done [cycles]."""
        ...

    def crowd(self, resident_ctas: int, active_ctas: int) -> None:
        """Told whenever the SM's CTAs change: how many it holds, and how many the GPU holds then."""
        ...

    @property
    def drained_at(self) -> float:
        """When the last store has reached L2 [cycles]."""
        ...

    @property
    def links(self) -> tuple[Link, ...]:
        """All links, for traces."""
        ...


class Latencies:
    """Latencies of the path at one SM clock [cycles]."""

    __slots__ = ("dram", "l2", "tlb")

    def __init__(self, gpu: Gpu, launch: Launch, clock_mhz: float) -> None:
        # A line is as likely in the far partition as in the near one.
        far_share = (gpu.l2.partitions - 1) / gpu.l2.partitions
        self.l2 = gpu.l2.latency_cycles + far_share * (gpu.l2.far_latency_cycles - gpu.l2.latency_cycles)
        self.dram = max(self.l2, cycles_of_ns(gpu.dram.latency_ns, clock_mhz))
        self.tlb = cycles_of_ns(gpu.dram.tlb_miss_ns, clock_mhz) if launch.cold else 0.0


def _missing_steps(launch: Launch) -> tuple[int, int]:
    """Of how many steps in a row how many need DRAM, in small numbers, so that the pattern repeats soon."""
    if not launch.traffic.miss_fraction:
        return 0, 1
    longest = max(1, min(LONGEST_PATTERN_STEPS, launch.steps))
    share = Fraction(launch.traffic.missing_steps_fraction).limit_denominator(longest) or Fraction(1, longest)
    return share.numerator, share.denominator


class SampledMemory:
    """One SM's share of L2 and DRAM while its siblings do the same as it does."""

    def __init__(self, gpu: Gpu, launch: Launch, clock_mhz: float) -> None:
        self._latency = Latencies(gpu, launch, clock_mhz)
        self._l2_rate = gpu.l2.bandwidth_bytes_per_cycle
        self._dram_rate = gpu.dram_bytes_per_cycle(clock_mhz)
        self._bytes = launch.load_bytes_per_step
        self._received = launch.received_bytes_per_step
        self._store_passes = launch.store_passes
        self._ahead = launch.stages_ahead
        self._slots = launch.occupancy.ctas
        self._behind = 0.0
        """How much later than the first SM this one was served [cycles]."""
        # What enters L2 pushes something out, some of it dirty.
        self._dirty = launch.traffic.dirty_fraction
        self._missing, self.pattern_steps = _missing_steps(launch)
        """So many of each ``pattern_steps`` steps need DRAM, spread evenly over the loop."""
        if self._missing:
            missing = launch.steps * self._missing // self.pattern_steps
            traffic = launch.traffic
            self._miss = traffic.miss_fraction * (traffic.read_cost + self._dirty) * launch.steps / missing
        self.port = Link("L2 port", gpu.load_store.l2_port_bytes_per_cycle)
        self.l2 = Link("L2", self._l2_rate / gpu.sm.count, self._l2_rate)
        self.dram = Link("DRAM", self._dram_rate / gpu.sm.count, self._dram_rate)
        self.drained_at = 0.0
        self._translated_at: float | None = None
        self._in_l2: dict[tuple[int, int], float] = {}
        self._asked: dict[int, int] = {}
        """Steps of each CTA that have been asked for."""

    @property
    def links(self) -> tuple[Link, ...]:
        return (self.port, self.l2, self.dram)

    def crowd(self, resident_ctas: int, active_ctas: int) -> None:
        share = resident_ctas / active_ctas
        self.l2.rate = self._l2_rate * share
        self.dram.rate = self._dram_rate * share

    def load(self, cta: int, step: int, share: float, now: float) -> float:
        in_l2 = self._in_l2.get((cta, step))
        if in_l2 is None and step < self._asked.get(cta, 0):
            in_l2 = now
        elif in_l2 is None:
            # The first warp to ask speaks for its CTA: the whole step travels together.
            in_l2 = self._in_l2[cta, step] = self._fetch(cta, step, now)
            self._asked[cta] = step + 1
            _ = self._in_l2.pop((cta, step - REMEMBERED_STEPS), None)
        return max(self.port.book(now, self._received * share), in_l2) + self._latency.l2

    def _fetch(self, cta: int, step: int, now: float) -> float:
        """When a CTA's step has passed the shared part of the path [cycles]."""
        # A first step is asked for by all SMs at once, also by kernels that keep none ahead.
        filling = step < max(1, self._ahead) and cta < self._slots
        passed = self._share_of(self.l2, now, self._bytes, at_once=filling)
        if (step + 1) * self._missing // self.pattern_steps > step * self._missing // self.pattern_steps:
            if self._translated_at is None:
                self._translated_at = now + self._latency.tlb
            asked = max(now, self._translated_at)
            from_dram = self._share_of(self.dram, asked, self._bytes * self._miss, at_once=filling)
            in_l2 = from_dram + self._latency.dram - self._latency.l2
            passed = max(passed, in_l2)
        return passed

    def _share_of(self, link: Link, now: float, amount: float, *, at_once: bool) -> float:
        """Book a share of a common link; when the last byte has passed [cycles].

        Where all SMs ask at once (their first rings fill), this SM stands for the one served last: the share
        has to pay first. It stays that far behind the others.
        """
        passed = link.book(now, amount)
        if not at_once:
            return passed
        self._behind = max(self._behind, link.free_at - passed)
        return link.free_at

    def _last_of(self, link: Link, now: float, amount: float) -> float:
        """The same for results, which all SMs hand over as far apart as they started [cycles]."""
        passed = link.book(now, amount)
        return max(passed, link.free_at - self._behind)

    def store(self, size_bytes: float, now: float) -> float:
        handed = size_bytes * self._store_passes
        accepted = max(self.port.book(now, handed), self._last_of(self.l2, now, handed))
        if self._dirty > 0.0:
            accepted = max(accepted, self._last_of(self.dram, now, size_bytes * self._dirty))
        self.drained_at = max(self.drained_at, accepted + self._latency.l2)
        return accepted

    def exchange(self, size_bytes: float, now: float) -> float:
        passed = max(self.port.book(now, 2 * size_bytes), self.l2.book(now, 2 * size_bytes))
        return passed + 2 * self._latency.l2


class TileCache:
    """L2 and DRAM of the whole GPU with the tiles L2 holds; a full L2 replaces tiles at random.

    NVIDIA does not publish the policy. Random replacement is what :func:`gpusim.lowering.locality.survival_fraction`
    assumes too; the draw is seeded, so that the same input gives the same output.
    """

    def __init__(self, gpu: Gpu, launch: Launch, clock_mhz: float, warm: bool) -> None:
        self.latency = Latencies(gpu, launch, clock_mhz)
        self.l2 = Link("L2", gpu.l2.bandwidth_bytes_per_cycle)
        self.dram = Link("DRAM", gpu.dram_bytes_per_cycle(clock_mhz))
        self.read_bytes = 0.0
        self.missed_bytes = 0.0
        self.launch = launch
        self.dirty = launch.traffic.dirty_fraction
        self._read_cost = launch.traffic.read_cost
        self._capacity = gpu.l2.capacity_bytes / gpu.l2.partitions
        self._held = 0.0
        self._arrival: dict[_Tile, float] = {}
        self._slots: list[tuple[_Tile, float]] = []
        self._random = random.Random(0)  # noqa: S311 - no secret, only repeatable
        if warm and launch.tiling is not None:
            self._preload(launch.tiling)

    def _preload(self, tiling: Tiling) -> None:
        """Leave behind what earlier runs did: their operands and results, as far as they fit."""
        launch = self.launch
        products = launch.ctas // (tiling.panels_x * tiling.panels_y * tiling.splits)
        tiles = [
            ((operand, product, panel, step), size_bytes)
            for product in range(products)
            for step in range(launch.steps * tiling.splits)
            for operand, panels, size_bytes in (
                (0, tiling.panels_x, tiling.x_bytes_per_step),
                (1, tiling.panels_y, tiling.y_bytes_per_step),
            )
            for panel in range(panels)
        ]
        tiles += [((3, 0, cta, 0), launch.store_bytes) for cta in range(launch.ctas)]
        for _ in range(WARMING_RUNS):
            for tile, size_bytes in tiles:
                if tile not in self._arrival:
                    self._hold(tile, size_bytes, 0.0)

    def _hold(self, tile: _Tile, size_bytes: float, arrival: float) -> None:
        while self._held + size_bytes > self._capacity and self._slots:
            victim = self._random.randrange(len(self._slots))
            self._slots[victim], self._slots[-1] = self._slots[-1], self._slots[victim]
            evicted, evicted_bytes = self._slots.pop()
            del self._arrival[evicted]
            self._held -= evicted_bytes
        self._arrival[tile] = arrival
        self._slots.append((tile, size_bytes))
        self._held += size_bytes

    def _fetch(self, tile: _Tile, size_bytes: float, now: float) -> float:
        """When a tile is in L2: now, when an earlier miss brings it, or after a miss of its own [cycles]."""
        arrival = self._arrival.get(tile)
        if arrival is None:
            # What enters L2 pushes something out, some of it dirty.
            passed = self.dram.book(now, size_bytes * (self._read_cost + self.dirty))
            arrival = passed + self.latency.dram - self.latency.l2
            self.missed_bytes += size_bytes
            self._hold(tile, size_bytes, arrival)
        return arrival

    def fetch(self, cta: int, step: int, now: float) -> float:
        """When all that a CTA's step needs is in L2 [cycles]."""
        tiling = self.launch.tiling
        if tiling is None:
            missed = self.launch.traffic.miss_fraction
            return self._fetch((2, 0, cta, step), self.launch.load_bytes_per_step * missed, now) if missed else now
        product, split, x, y = tiling.panels(cta)
        at = split * self.launch.steps + step
        return max(
            self._fetch((0, product, x, at), tiling.x_bytes_per_step, now),
            self._fetch((1, product, y, at), tiling.y_bytes_per_step, now),
        )

    def write(self, size_bytes: float, now: float) -> float:
        """Take written bytes; when L2 has found room for the last [cycles]."""
        accepted = self.l2.book(now, size_bytes * self.launch.store_passes)
        if self.dirty > 0.0:
            accepted = max(accepted, self.dram.book(now, size_bytes * self.dirty))
        return accepted


class FullMemory:
    """One SM's port into the shared :class:`TileCache`."""

    def __init__(self, gpu: Gpu, launch: Launch, cache: TileCache) -> None:
        self._cache = cache
        self._bytes = launch.load_bytes_per_step
        self._received = launch.received_bytes_per_step
        self._store_passes = launch.store_passes
        self.port = Link("L2 port", gpu.load_store.l2_port_bytes_per_cycle)
        self.drained_at = 0.0
        self._translated_at: float | None = None

    @property
    def links(self) -> tuple[Link, ...]:
        return (self.port, self._cache.l2, self._cache.dram)

    def crowd(self, resident_ctas: int, active_ctas: int) -> None:
        """Nothing to do: the links are shared for real."""

    def load(self, cta: int, step: int, share: float, now: float) -> float:
        cache = self._cache
        size = self._bytes * share
        cache.read_bytes += size
        if self._translated_at is None:
            self._translated_at = now + cache.latency.tlb
        in_l2 = cache.fetch(cta, step, max(now, self._translated_at))
        passed = max(self.port.book(now, self._received * share), cache.l2.book(now, size))
        return max(passed, in_l2) + cache.latency.l2

    def store(self, size_bytes: float, now: float) -> float:
        accepted = max(self.port.book(now, size_bytes * self._store_passes), self._cache.write(size_bytes, now))
        self.drained_at = max(self.drained_at, accepted + self._cache.latency.l2)
        return accepted

    def exchange(self, size_bytes: float, now: float) -> float:
        passed = max(self.port.book(now, 2 * size_bytes), self._cache.l2.book(now, 2 * size_bytes))
        return passed + 2 * self._cache.latency.l2
