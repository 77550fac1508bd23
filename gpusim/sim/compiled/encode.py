"""A launch on a machine as records of numbers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from gpusim.launch import Work
from gpusim.program import (
    AcquireStage,
    Alu,
    Barrier,
    Compute,
    Drain,
    Load,
    LoadBulk,
    LoadShared,
    Mma,
    Op,
    Program,
    Read,
    ReleaseStage,
    Repeat,
    SplitKFixup,
    Store,
    StoreShared,
    WaitLoad,
    WaitStage,
    WarpgroupMma,
    executed,
)
from gpusim.sim.blocks import Table, sizes_of
from gpusim.sim.compiled import layout
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.sampled_memory import Fetch

NO_LOOP = -1
_OP = struct.Struct(f"={len(layout.OP_INTEGERS.split())}q{len(layout.OP_FLOATS.split())}d")
_WORK = struct.Struct("=qd")
_READ = struct.Struct("=qqqddddddddd")
_LOOP = struct.Struct("=qqq")
_ROLE = struct.Struct("=qqqqqqq")


class NotCoveredError(Exception):
    """Only the processes play this."""


@dataclass(slots=True)
class Encoder:
    """Lays the programs of a launch one after the other."""

    decoded: DecodedLaunch
    fetches: list[dict[int, Fetch]] | None
    """What loads move, by role; None where a cache keeps blocks."""
    tables: dict[str, Table]
    """Where the cache's blocks are."""
    ops: list[bytes] = field(default_factory=list)
    alu_work: list[bytes] = field(default_factory=list)
    reads: list[bytes] = field(default_factory=list)
    loops: list[bytes] = field(default_factory=list)
    roles: list[bytes] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    """Numbers of what blocks are counted by."""
    loop_rows: dict[int, int] = field(default_factory=dict)
    """Of watched loops, by identity."""
    rings: bool = False
    turns: int = 1
    """Of a watched loop, at most."""
    blocks: int = 1
    """That a warp loads, at most."""
    alike: dict[int, bytes] = field(default_factory=dict)
    """By identity, operations that are the same wherever they stand: epilogues repeat theirs."""
    work: Work = field(init=False)
    """That is being encoded."""

    def encode(self) -> None:
        """Encode all roles."""
        launch = self.decoded.launch
        if self.fetches is None:
            self.keys = {tensor.name: number for number, tensor in enumerate(launch.tensors)}
        for work in self.decoded.works if self.fetches is None else self.decoded.works[:1]:
            self._work(work)

    def _work(self, work: Work) -> None:
        """Encode the roles of CTAs that do the same."""
        self.work = work
        warps = lanes = 0
        for number, role in enumerate(work.roles):
            start = len(self.ops)
            self._program(role.program, number, NO_LOOP)
            self.blocks = max(self.blocks, _blocks(role.program))
            self._op(layout.END)
            first = self.decoded.first_loop(role)
            watched = NO_LOOP if first is None else self.loop_rows[id(first)]
            reports = number == len(work.roles) - 1
            self.roles.append(_ROLE.pack(start, role.warps, role.instances, warps, lanes, watched, reports))
            warps += role.warps
            lanes += role.warps * role.instances

    def _op(
        self,
        code: int,
        loop: int = 0,
        rows: tuple[int, int] = (0, 0),
        count: int = 0,
        pipe: int = 0,
        instructions: float = 0.0,
        size_bytes: float = 0.0,
        l2_bytes: float = 0.0,
        amount: float = 0.0,
        other: float = 0.0,
        rate: float = 0.0,
        latency: float = 0.0,
    ) -> None:
        numbers = (instructions, size_bytes, l2_bytes, amount, other, rate, latency)
        self.ops.append(_OP.pack(code, loop, *rows, pipe, count, *numbers))

    def _program(self, program: Program, role: int, loop: int) -> None:
        for op in program:
            match op:
                case Repeat():
                    self._repeat(op, role)
                case Load() | LoadBulk():
                    self._load(op, role, loop)
                case Store():
                    self._store(op)
                case _ if id(op) in self.alike:
                    self.ops.append(self.alike[id(op)])
                case _:
                    self._plain(op)
                    self.alike[id(op)] = self.ops[-1]

    def _repeat(self, op: Repeat, role: int) -> None:
        watched = self.decoded.watched(op)
        row = len(self.loops)
        self.loops.append(_LOOP.pack(op.times, watched is not None, watched.blocks if watched else 0))
        if watched is not None:
            _ = self.loop_rows.setdefault(id(op), row)
            self.turns = max(self.turns, op.times)
        at = len(self.ops)
        self.ops.append(b"")  # until its end is known
        self._program(op.body, role, row)
        end = len(self.ops)
        self._op(layout.END_TURN, row, (at + 1, end + 1))
        self.ops[at] = _OP.pack(layout.REPEAT, row, at + 1, end + 1, *(0,) * 2, *(0.0,) * 7)

    def _load(self, op: Load | LoadBulk, role: int, loop: int) -> None:
        if not op.reads and (isinstance(op, LoadBulk) or not op.instructions):
            raise NotCoveredError("a load of nothing")
        start = len(self.reads)
        l2_bytes = sm_bytes = 0.0
        if self.fetches is None:
            for read in op.reads:
                l2_bytes += read.l2_bytes
                sm_bytes += read.sm_bytes
                self.reads.append(self._cached_read(read, role))
        elif (fetch := self.fetches[role].get(id(op.reads))) is not None:
            key = self.keys.setdefault(fetch.key, len(self.keys))
            late = fetch.far_cycles, fetch.dram_cycles
            amounts = fetch.l2_bytes, fetch.sm_bytes, 0.0, fetch.dram_bytes, 0.0, 0.0, fetch.evicted_bytes, *late
            self.reads.append(_READ.pack(key, fetch.missing, fetch.pattern, *amounts))
        rows = start, len(self.reads)
        if isinstance(op, Load):
            self._op(layout.LOAD, loop, rows, op.ahead, 0, op.instructions, op.port_bytes, l2_bytes, sm_bytes)
        else:
            self.rings = True
            self._op(layout.LOAD_BULK, loop, rows, 0, 0, op.instructions, op.port_bytes, l2_bytes, sm_bytes)

    def _missing(self, name: str) -> float:
        """Share of the results of a tensor that L2 does not hold from an earlier run."""
        return next(tensor.missing_blocks_fraction for tensor in self.decoded.launch.tensors if tensor.name == name)

    def _cached_read(self, read: Read, role: int) -> bytes:
        work, key = self.work, self.keys[read.tensor]
        sizes = sizes_of(
            self.decoded.machine, work.tensors[key], self.tables[read.tensor], read, work.roles[role].warps
        )
        moved = sizes.block_bytes, sizes.read_bytes, sizes.page_bytes, sizes.pages
        return _READ.pack(key, 0, 1, read.l2_bytes, read.sm_bytes, *moved, 0.0, 0.0, sizes.dram_cycles)

    def _multiply(self, op: Mma | WarpgroupMma) -> None:
        timing = self.decoded.mmas[op.instruction]
        pipe, rate, latency = (
            self.decoded.pipes.index(timing.pipe),
            timing.instructions_per_cycle,
            timing.latency_cycles,
        )
        if rate <= 0.0:
            raise NotCoveredError("a multiply-accumulate that takes for ever")
        if isinstance(op, WarpgroupMma):
            self._op(
                layout.WARPGROUP_MMA, pipe=pipe, size_bytes=op.operand_bytes, amount=op.instructions,
                other=op.issue_slots, rate=rate, latency=latency,
            )  # fmt: skip
        elif op.k_groups < 1:
            raise NotCoveredError("a multiply-accumulate of nothing")
        elif op.pipelined:
            self._op(
                layout.MMA, pipe=pipe, size_bytes=op.operand_bytes, amount=op.instructions + op.fill_instructions,
                other=op.other_instructions, rate=rate, latency=latency, count=op.k_groups,
            )  # fmt: skip
        else:
            self._op(
                layout.MMA_IN_TURN, pipe=pipe, size_bytes=op.operand_bytes / op.k_groups,
                amount=op.pipe_instructions / op.k_groups, rate=rate, latency=latency, count=op.k_groups,
            )  # fmt: skip

    def _alu(self, op: Alu) -> None:
        start = len(self.alu_work)
        for pipe, count in op.work:
            self.alu_work.append(_WORK.pack(self.decoded.pipes.index(pipe), count))
        issued = sum(count for _, count in op.work)
        self._op(layout.ALU, rows=(start, len(self.alu_work)), instructions=issued, latency=op.latency_cycles)

    def _store(self, op: Store) -> None:
        key = self.keys.get(op.tensor, 0)
        self._op(
            layout.STORE, rows=(key, key), instructions=op.instructions, size_bytes=op.size_bytes,
            l2_bytes=op.l2_bytes, amount=self._missing(op.tensor), other=op.largest,
        )  # fmt: skip

    def _plain(self, op: Op) -> None:
        """What is the same wherever it stands: an operation each."""
        match op:
            case Mma() | WarpgroupMma():
                self._multiply(op)
            case Alu():
                self._alu(op)
            case Compute():
                self._op(layout.COMPUTE, latency=op.cycles)
            case WaitLoad():
                self._op(layout.WAIT_LOAD)
            case StoreShared():
                self._op(layout.STORE_SHARED, instructions=op.instructions, size_bytes=op.size_bytes)
            case LoadShared():
                self._op(layout.LOAD_SHARED, instructions=op.instructions, size_bytes=op.size_bytes)
            case Drain():
                self._op(layout.DRAIN)
            case Barrier():
                self._op(layout.BARRIER)
            case AcquireStage():
                self._op(layout.ACQUIRE_STAGE, count=op.stages)
            case WaitStage():
                self._op(layout.WAIT_STAGE)
                self.rings = True
            case ReleaseStage():
                self._op(layout.RELEASE_STAGE, count=op.pending)
            case SplitKFixup():
                self._op(layout.FIX_UP, count=op.times, size_bytes=op.size_bytes, other=op.largest)
            case _:
                raise NotCoveredError(type(op).__name__)


def _blocks(program: Program) -> int:
    """Blocks that a warp loads."""
    return sum(times for op, times in executed(program) if isinstance(op, Load | LoadBulk))
