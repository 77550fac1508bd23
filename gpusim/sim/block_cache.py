"""L2 and DRAM of the whole GPU, with the blocks that L2 holds, and the path of each SM to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from gpusim.hardware.machine import Machine
from gpusim.launch import Axis, Coordinates, Launch
from gpusim.program import Load, LoadBulk, Read, Store, executed
from gpusim.sim.link import DramLink, Link
from gpusim.sim.memory import Stream

SEED = 0
"""Of the random choice of the blocks to replace."""
WARMING_RUNS = 3
"""Runs before a warm one; the share of blocks that survive hardly moves after that."""

_Key = tuple[int, ...]
"""Tensor, coordinates that pick the block, number of the block within the CTA."""


class BlockCache:
    """L2 and DRAM with the blocks of tensors that L2 holds; a full L2 replaces blocks at random.

    NVIDIA does not publish the policy. Random replacement is what :func:`gpusim.lowering.locality.survival_fraction`
    assumes too; the draw is seeded, so that the same input gives the same output.
    """

    def __init__(self, machine: Machine, launch: Launch) -> None:
        self._machine = machine
        self._launch = launch
        self.l2 = Link("L2", machine.l2_bytes_per_cycle)
        self.dram = DramLink("DRAM", machine.dram_bytes_per_cycle)
        self.read_bytes = 0.0
        self.missed_bytes = 0.0
        self._tensors = {tensor.name: (number, tensor) for number, tensor in enumerate(launch.tensors)}
        self._held_bytes = 0.0
        self._arrival: dict[_Key, float] = {}
        self._slots: list[tuple[_Key, float]] = []
        self._random = random.Random(SEED)  # noqa: S311 - no secret, only repeatable
        if not launch.cold:
            self._preload()

    def _preload(self) -> None:
        """Leave in L2 what earlier runs did: shared blocks and results, as far as they fit."""
        shared = list(self._shared_blocks())
        blocks = [*shared, *self._results()] if shared else []
        for _ in range(WARMING_RUNS):
            for key, size_bytes in blocks:
                if key not in self._arrival:
                    self._hold(key, size_bytes, 0.0)

    def _shared_blocks(self) -> Iterator[tuple[_Key, float]]:
        """Blocks that several CTAs read, plane by plane, in the order in which CTAs that advance together ask."""
        counts: dict[str, int] = {}
        for role in self._launch.roles:
            for op, times in executed(role.program):
                for read in op.reads if isinstance(op, Load | LoadBulk) else ():
                    counts[read.tensor] = counts.get(read.tensor, 0) + times
        grid = self._launch.grid
        for batch, split in product(range(grid.batch), range(grid.splits)):
            for block in range(max(counts.values(), default=0)):
                for name, count in counts.items():
                    number, tensor = self._tensors[name]
                    if tensor.axes is None or block >= count:
                        continue
                    xs = range(grid.x if "x" in tensor.axes else 1)
                    for x, y in product(xs, range(grid.y if "y" in tensor.axes else 1)):
                        picked = _picked(tensor.axes, Coordinates(batch, split, x, y))
                        yield (number, *picked, block), tensor.block_bytes

    def _results(self) -> Iterator[tuple[_Key, float]]:
        """What the CTAs store, one after the other."""
        names = [op.tensor for role in self._launch.roles for op, _ in executed(role.program) if isinstance(op, Store)]
        stored = [self._tensors[name] for name in dict.fromkeys(names)]
        for cta in range(self._launch.ctas):
            for number, tensor in stored:
                yield (number, cta, 0), tensor.block_bytes

    def _hold(self, key: _Key, size_bytes: float, arrival: float) -> None:
        while self._held_bytes + size_bytes > self._machine.l2_copy_bytes and self._slots:
            victim = self._random.randrange(len(self._slots))
            self._slots[victim], self._slots[-1] = self._slots[-1], self._slots[victim]
            evicted, evicted_bytes = self._slots.pop()
            del self._arrival[evicted]
            self._held_bytes -= evicted_bytes
        self._arrival[key] = arrival
        self._slots.append((key, size_bytes))
        self._held_bytes += size_bytes

    def fetch(self, stream: Stream, reads: tuple[Read, ...], block: int, now: float) -> float:
        """When the blocks that a load names are in L2: now, when an earlier miss brings them, or after one [cycles]."""
        keys = stream.keys.get(block)
        if keys is None:
            keys = stream.keys[block] = [self._key(stream, read.tensor) for read in reads]
        latest = now
        for key, read in zip(keys, reads, strict=True):
            arrival = self._arrival.get(key)
            if arrival is None:
                arrival = self._miss(key, read, self._launch.roles[stream.role].warps, now)
            latest = max(latest, arrival)
        return latest

    def _miss(self, key: _Key, read: Read, warps: int, now: float) -> float:
        """When a block that L2 does not hold has come from DRAM [cycles]."""
        _, tensor = self._tensors[read.tensor]
        size_bytes = tensor.block_bytes if tensor.axes is not None else tensor.miss_fraction * warps * read.l2_bytes
        if not size_bytes:
            return now
        # What enters L2 pushes something out, some of it dirty.
        passed = self.dram.book(now, size_bytes * (tensor.read_cost + self._launch.write_back_cost))
        arrival = passed + self._machine.dram_cycles(tensor.far_misses_fraction)
        self.missed_bytes += size_bytes
        self._hold(key, size_bytes, arrival)
        return arrival

    def _key(self, stream: Stream, name: str) -> _Key:
        """Name of the next block of a tensor that a stream loads."""
        block = stream.counts.get(name, 0)
        stream.counts[name] = block + 1
        number, tensor = self._tensors[name]
        if tensor.axes is None:
            return number, stream.cta, block
        return number, *_picked(tensor.axes, self._launch.grid.coordinates(stream.cta)), block

    def write(self, store: Store, now: float) -> float:
        """Take written bytes; when L2 has found room for the last [cycles]."""
        accepted = self.l2.book(now, store.l2_bytes * self._machine.l2_write_cost)
        if self._launch.write_back_cost > 0.0:
            written = self.dram.write_back(now, store.size_bytes * self._launch.write_back_cost)
            accepted = max(accepted, written - self._machine.write_back_cycles)
        return accepted


def _picked(axes: tuple[Axis, ...], at: Coordinates) -> tuple[int, ...]:
    """The coordinates that tell a tensor's blocks apart."""
    return tuple(getattr(at, axis) for axis in axes)


class FullMemory:
    """One SM's port into the shared :class:`BlockCache`."""

    def __init__(self, machine: Machine, launch: Launch, cache: BlockCache) -> None:
        self._machine = machine
        self._cache = cache
        self._tlb_miss_cycles = machine.tlb_miss_cycles if launch.cold else 0.0
        self.port = Link("L2 port", machine.l2_port_bytes_per_cycle)
        self.drained_at = 0.0
        self._translated_at: float | None = None

    @property
    def links(self) -> tuple[Link, Link, Link]:
        return self.port, self._cache.l2, self._cache.dram

    def load(self, stream: Stream, reads: tuple[Read, ...], block: int, now: float) -> float:
        """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
        cache = self._cache
        l2_bytes = sm_bytes = 0.0
        for read in reads:
            l2_bytes += read.l2_bytes
            sm_bytes += read.sm_bytes
        cache.read_bytes += l2_bytes
        if self._translated_at is None:
            self._translated_at = now + self._tlb_miss_cycles
        in_l2 = cache.fetch(stream, reads, block, max(now, self._translated_at))
        passed = max(self.port.book(now, sm_bytes), cache.l2.book(now, l2_bytes))
        return max(passed, in_l2) + self._machine.l2_latency_cycles

    def store(self, store: Store, now: float) -> float:
        """Write results; when the memory system has accepted them [cycles]."""
        sent = self.port.book(now, store.l2_bytes, self._machine.l2_port_write_bytes_per_cycle)
        accepted = max(sent, self._cache.write(store, now))
        self.drained_at = max(self.drained_at, accepted + self._machine.l2_latency_cycles)
        return accepted

    def fix_up(self, size_bytes: float, now: float) -> float:
        """Read partial sums of another CTA from L2 and write them back; when that is done [cycles]."""
        passed = max(self.port.book(now, 2 * size_bytes), self._cache.l2.book(now, 2 * size_bytes))
        return passed + 2 * self._machine.l2_latency_cycles
