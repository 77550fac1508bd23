"""One SM's share of L2 and DRAM while all SMs do the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from gpusim.hardware.machine import Machine
from gpusim.launch import Tensor
from gpusim.program import Load, LoadBulk, Read, SplitKFixup, Store, executed
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.link import DramLink, Link, LinkShare
from gpusim.sim.memory import Stream
from gpusim.units import ceil_div

REMEMBERED_BLOCKS = 64
"""Blocks of a CTA whose arrival is kept for warps that ask later; what was asked for before has long arrived."""
LONGEST_PATTERN_BLOCKS = 16
"""Blocks after which the pattern of those that need DRAM repeats, at most; their bytes are exact."""

SPREADING_GENERATIONS = 8
"""Generations of CTAs in which SMs leave step; by then they store at any time."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """What one kind of load moves for a whole CTA: a block of each tensor that it names."""

    key: str
    """The tensors."""
    l2_bytes: float
    sm_bytes: float
    """Of one warp."""
    dram_bytes: float
    """Of a block that needs DRAM, in bytes of a stream."""
    evicted_bytes: float
    """What that has L2 write back, the same."""
    far_cycles: float
    """What L2 takes longer than a hit in the near partition, on average."""
    dram_cycles: float
    """What DRAM takes longer than a hit in the near partition."""
    missing: int
    pattern: int
    """So many (``missing``) of each ``pattern`` blocks need DRAM, spread evenly."""

    def misses(self, block: int) -> bool:
        """Whether a block needs something from DRAM."""
        return (block + 1) * self.missing // self.pattern > block * self.missing // self.pattern


def _fetch_of(
    machine: Machine,
    reads: tuple[Read, ...],
    warps: int,
    blocks: int,
    tensors: dict[str, Tensor],
    write_back_cost: float,
) -> Fetch:
    """The blocks of a load that a CTA executes ``blocks`` times."""
    share_in_l2, dram_bytes, evicted_bytes = 1.0, 0.0, 0.0
    far_hits = far_misses = 0.0
    for read in reads:
        tensor = tensors[read.tensor]
        far_hits = max(far_hits, tensor.far_hits_fraction)
        far_misses = max(far_misses, tensor.far_misses_fraction)
        if tensor.miss_fraction:
            share_in_l2 *= 1.0 - tensor.missing_blocks_fraction
            # What enters L2 pushes something out, some of it dirty.
            missed_bytes = warps * read.l2_bytes * tensor.miss_fraction
            dram_bytes += missed_bytes * tensor.read_cost
            evicted_bytes += missed_bytes * write_back_cost
    missing, pattern = 0, 1
    if dram_bytes:
        longest = max(1, min(LONGEST_PATTERN_BLOCKS, blocks))
        share = Fraction(1.0 - share_in_l2).limit_denominator(longest) or Fraction(1, longest)
        missing, pattern = share.numerator, share.denominator
        uneven = blocks / (blocks * missing // pattern)
        dram_bytes, evicted_bytes = uneven * dram_bytes, uneven * evicted_bytes
    return Fetch(
        key=" ".join(read.tensor for read in reads),
        l2_bytes=warps * sum(read.l2_bytes for read in reads),
        sm_bytes=sum(read.sm_bytes for read in reads),
        dram_bytes=dram_bytes,
        evicted_bytes=evicted_bytes,
        far_cycles=far_hits * machine.l2_far_cycles,
        dram_cycles=machine.dram_cycles(far_misses),
        missing=missing,
        pattern=pattern,
    )


class Earlier(NamedTuple):
    """Stores of the SMs that run a CTA less in the only round of a launch."""

    stored_from: float
    """When they begin to store [cycles]."""
    l2_cycles: float
    """What L2 takes for them all."""


class Waiting:
    """For L2 to accept the results that an SM has under way."""

    __slots__ = ("first", "last", "until")

    def __init__(self, until: float, first: float) -> None:
        self.until = until
        """When it has accepted all of them [cycles]."""
        self.first = first
        """What the first SM waits, for what was stored before [cycles]."""
        self.last = 0.0
        """What the last one waits beyond the time of its port [cycles]."""


class SampledMemory:
    """The path of a representative SM to L2 and DRAM."""

    def __init__(self, decoded: DecodedLaunch, earlier: Earlier | None = None) -> None:
        machine, launch = decoded.machine, decoded.launch
        self._machine = machine
        self._tlb_miss_cycles = machine.tlb_miss_cycles if launch.cold else 0.0
        self._write_back_cost = launch.write_back_cost
        self._missing = {tensor.name: tensor.missing_blocks_fraction for tensor in launch.tensors}
        self._first_blocks = max(1, decoded.lookahead)
        self._ctas_per_sm = decoded.ctas_per_sm
        self._fetches = fetches_of(decoded)
        self.pattern_blocks = pattern_blocks(self._fetches)
        """Blocks after which those that need DRAM recur, whichever load asks for them."""
        self._behind = 0.0
        """How much later than the first SM this one was served [cycles]."""
        self._waiting = Waiting(0.0, 0.0)
        self.port = Link("L2 port", machine.l2_port_bytes_per_cycle)
        self.l2 = LinkShare("L2", machine.l2_bytes_per_cycle / machine.sm_count, machine.l2_bytes_per_cycle)
        self.dram = DramLink("DRAM", machine.dram_bytes_per_cycle / machine.sm_count, machine.dram_bytes_per_cycle)
        self.drained_at = 0.0
        """When the last store has reached L2, jumps included [cycles]."""
        self._translated_at: float | None = None
        self._last_cta = ceil_div(launch.ctas, machine.sm_count) - 1
        last_round = launch.ctas - self._last_cta * machine.sm_count
        self._tiles_of_round = (machine.sm_count, last_round) if launch.persistent else None
        self._spread = machine.cta_interval_cycles * machine.sm_count
        """How far apart SMs start [cycles]."""
        self._spreads = [self._spread]
        """The same when CTAs of each generation store [cycles]."""
        for _ in range(SPREADING_GENERATIONS):
            self._spreads.append(self._spreads[-1] * math.log(machine.sm_count))
        self._earlier = earlier
        self.stored_from = math.inf
        """When this SM began to store [cycles]."""
        self._store_waits = 0.0
        """What a part of the results has waited beyond the time of its port, at most [cycles]."""
        self.jumped = 0
        """Cycles that an extrapolation stands for, up to now."""

    @property
    def links(self) -> tuple[Link, Link, Link]:
        return self.port, self.l2, self.dram

    def share_among(self, resident_ctas: int, active_ctas: int) -> None:
        """Set the SM's contention share: it holds so many of the CTAs that are active on the GPU."""
        share = resident_ctas / active_ctas
        self.l2.rate = self._machine.l2_bytes_per_cycle * share
        self.dram.rate = self._machine.dram_bytes_per_cycle * share

    def _turn_of(self, cta: int) -> None:
        """Set the share that a persistent CTA's tile has: it asks when the tile before has asked for all.

        What others ask for their last tile has been asked then, so that those that have one more are alone.
        """
        if self._tiles_of_round is not None:
            self.share_among(1, self._tiles_of_round[cta == self._last_cta])

    def load(self, stream: Stream, reads: tuple[Read, ...], block: int, now: float) -> float:
        """Ask for one warp's part of a block; when its last byte is in the SM [cycles]."""
        fetch = self._fetches[stream.role][id(reads)]
        in_l2 = stream.in_l2.get(block)
        if in_l2 is None and block < stream.asked:
            in_l2 = now
        elif in_l2 is None:
            # The first warp to ask speaks for its CTA: the whole block travels together.
            in_l2 = stream.in_l2[block] = self._fetched(fetch, stream, block, now)
            stream.asked = block + 1
            _ = stream.in_l2.pop(block - REMEMBERED_BLOCKS, None)
        return max(self.port.book(now, fetch.sm_bytes), in_l2) + self._machine.l2_latency_cycles

    def _fetched(self, fetch: Fetch, stream: Stream, block: int, now: float) -> float:
        """When a CTA's block has passed the common part of the path [cycles]."""
        self._turn_of(stream.cta)
        # The first blocks are asked for by all SMs at once, also by kernels that load none ahead.
        at_once = block < self._first_blocks and stream.cta < self._ctas_per_sm
        passed = self._served(self.l2, now, fetch.l2_bytes, at_once=at_once) + fetch.far_cycles
        number = stream.counts.get(fetch.key, 0)
        stream.counts[fetch.key] = number + 1
        if fetch.misses(number):
            if self._translated_at is None:
                self._translated_at = now + self._tlb_miss_cycles
            from_dram = self._served(self.dram, max(now, self._translated_at), fetch.dram_bytes, at_once=at_once)
            passed = max(passed, from_dram + fetch.dram_cycles)
            if fetch.evicted_bytes:
                _ = self.dram.write_back(now, fetch.evicted_bytes)
        return passed

    def _served(self, link: LinkShare, now: float, amount: float, *, at_once: bool) -> float:
        """Book a share of a common link; when the last byte has passed [cycles].

        Where all SMs ask at once (their first rings fill), this SM stands for the one served last: the share
        has to pay first. It stays that far behind the others. Later, what the others asked before it asks has passed.
        """
        if not at_once:
            passed = link.book(now - max(0.0, self._spread - link.credit), amount)
            return max(passed, now + amount / link.burst_rate)
        passed = link.book(now, amount)
        self._behind = max(self._behind, link.free_at - passed)
        return link.free_at

    def _last_of(self, now: float, amount: float, sent: float) -> float:
        """Book results on L2, which the port has sent by then; when L2 has accepted those of the last SM [cycles].

        SMs store as far apart as they were served before. What the last one waits longer than the first, it asks later
        the next time, when L2 has served others meanwhile.
        """
        l2, waiting = self.l2, self._waiting
        if now >= waiting.until:
            self._behind += max(0.0, waiting.last - waiting.first)
            waiting = self._waiting = Waiting(now, max(0.0, l2.free_at - (now - l2.credit)))
        _ = l2.book(now, amount)
        accepted = max(sent, l2.free_at if l2.credit else l2.free_at - self._behind)
        waiting.until = max(waiting.until, accepted)
        waiting.last = max(waiting.last, accepted - sent)
        return accepted

    def _follow(self, now: float) -> None:
        """Set what SMs with a CTA less have stored before this one, where there are some."""
        now += self.jumped
        self.stored_from = min(self.stored_from, now)
        if self._earlier is not None and now > self._earlier.stored_from:
            passed = min(now - self._earlier.stored_from, self._earlier.l2_cycles)
            self.l2.credit = self.dram.credit = max(passed, self._behind)

    def _leave_step(self, generation: int) -> None:
        """Set how far apart SMs are when CTAs of a generation store.

        Of N SMs that begin to store a little after each other, and are served in turn, the first is alone for that
        while, the second shares with one, and so on: they end ln N times as far apart. What the others stored before
        this SM does has passed.
        """
        if generation > 0:
            if self.l2.credit == 0.0:
                # The results before were booked as if the others had stored none.
                self.l2.free_at -= self._behind
            spread = self._spreads[min(generation, SPREADING_GENERATIONS)]
            self.l2.credit = self.dram.credit = max(spread, self._behind)

    def leaves_step(self, generation: int) -> bool:
        """Whether SMs are further apart when the next generation stores, and stores have to wait for others."""
        return self._store_waits > 0.0 and generation < SPREADING_GENERATIONS

    def never_in_step(self, ctas: int) -> bool:
        """Whether SMs leave step until fewer CTAs than that are left."""
        return self.leaves_step(max(0, self._last_cta - ctas) // self._ctas_per_sm)

    def store(self, stream: Stream, store: Store, now: float) -> float:
        """Write results; when the memory system has accepted them [cycles]."""
        machine = self._machine
        self._turn_of(stream.cta)
        self._follow(now)
        self._leave_step(stream.cta // self._ctas_per_sm)
        sent = self.port.book(now, store.l2_bytes * store.largest, machine.l2_port_write_bytes_per_cycle)
        accepted = self._last_of(now, store.l2_bytes * machine.l2_write_cost, sent)
        if self._write_back_cost > 0.0:
            evicted_bytes = store.size_bytes * self._write_back_cost * self._missing[store.tensor]
            written = self.dram.write_back(now, evicted_bytes)
            accepted = max(accepted, written - machine.write_back_cycles)
        self._store_waits = max(self._store_waits, accepted - sent)
        self.drained_at = max(self.drained_at, self.jumped + accepted + machine.l2_latency_cycles)
        return accepted

    def fix_up(self, op: SplitKFixup, now: float) -> float:
        """Read partial sums from L2 and write them back, link after link of a chain; when that is done [cycles]."""
        machine = self._machine
        self._follow(now)
        _ = self.port.book(now, op.size_bytes * op.largest)
        sent = self.port.book(now, op.size_bytes * op.largest, machine.l2_port_write_bytes_per_cycle)
        served = self._last_of(now, op.size_bytes * (1.0 + machine.l2_write_cost), sent)
        return served + op.times * machine.fix_up_cycles + (op.times - 1) * (sent - now)


def l2_cycles_of_stores(decoded: DecodedLaunch) -> float:
    """What L2 takes for the results and partial sums of a CTA, nothing else to serve."""
    machine = decoded.machine
    served = 0.0
    for role in decoded.launch.roles:
        for op, times in executed(role.program):
            if isinstance(op, Store):
                served += role.warps * times * op.l2_bytes * machine.l2_write_cost
            elif isinstance(op, SplitKFixup):
                served += role.warps * times * op.size_bytes * (1.0 + machine.l2_write_cost)
    return served / machine.l2_bytes_per_cycle


def dram_cycles(decoded: DecodedLaunch) -> float:
    """What DRAM takes for all CTAs, nothing else to wait for."""
    machine, launch = decoded.machine, decoded.launch
    tensors = {tensor.name: tensor for tensor in launch.tensors}
    moved = 0.0
    for role in launch.roles:
        for op, times in executed(role.program):
            if isinstance(op, Load | LoadBulk):
                for read in op.reads:
                    tensor = tensors[read.tensor]
                    cost = tensor.read_cost + launch.write_back_cost
                    moved += role.warps * times * read.l2_bytes * tensor.miss_fraction * cost
            elif isinstance(op, Store):
                missing = tensors[op.tensor].missing_blocks_fraction
                moved += role.warps * times * op.size_bytes * missing * launch.write_back_cost
    return launch.ctas * moved / machine.dram_bytes_per_cycle


def pattern_blocks(fetches: list[dict[int, Fetch]]) -> int:
    """Blocks after which those that need DRAM recur, whichever load asks for them."""
    return math.lcm(*(fetch.pattern for of_role in fetches for fetch in of_role.values()))


def fetches_of(decoded: DecodedLaunch) -> list[dict[int, Fetch]]:
    """The loads of each role, by the identity of what they read: loads of the same tensors go on counting blocks."""
    machine, launch = decoded.machine, decoded.launch
    tensors = {tensor.name: tensor for tensor in launch.tensors}
    found: list[dict[int, Fetch]] = []
    for role in launch.roles:
        loads = [(op.reads, times) for op, times in executed(role.program) if isinstance(op, Load | LoadBulk)]
        blocks: dict[tuple[Read, ...], int] = {}
        for reads, times in loads:
            blocks[reads] = blocks.get(reads, 0) + times
        fetches = {
            reads: _fetch_of(machine, reads, role.warps, count, tensors, launch.write_back_cost)
            for reads, count in blocks.items()
            if reads and count
        }
        found.append({id(reads): fetches[reads] for reads, _ in loads if reads in fetches})
    return found
