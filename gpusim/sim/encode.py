"""The programs of a launch as a list of operations in numbers, one role after the other."""

from __future__ import annotations

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
from gpusim.sim import state as code
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.memory.blocks import read_of
from gpusim.sim.state import NONE, AluWork, EncodedLoop, EncodedOp, EncodedRead, EncodedRole, Table


@dataclass(slots=True)
class EncodedProgram:
    """The programs of a launch, and how much room they need."""

    decoded: DecodedLaunch
    fetches: list[dict[int, EncodedRead]] | None
    """What loads move, by role; None where a cache keeps blocks."""
    tables: dict[str, Table]
    """Where the cache's blocks are."""
    ops: list[EncodedOp] = field(default_factory=list)
    alu_work: list[AluWork] = field(default_factory=list)
    reads: list[EncodedRead] = field(default_factory=list)
    loops: list[EncodedLoop] = field(default_factory=list)
    roles: list[EncodedRole] = field(default_factory=list)
    """Roles of each :class:`gpusim.launch.Work`, one after the other."""
    rings: bool = False
    iterations: int = 1
    """Most iterations of a watched loop."""
    blocks: int = 1
    """That a warp loads, at most."""
    _loop_indices: dict[int, int] = field(default_factory=dict)
    """Index of each watched loop, by its identity."""
    _alike: dict[int, EncodedOp] = field(default_factory=dict)
    """By identity, operations that are the same wherever they stand: epilogues repeat theirs."""
    _numbers: dict[str, int] = field(default_factory=dict)
    """Number of each tensor, by its name."""
    _missing: dict[str, float] = field(default_factory=dict)
    """By tensor, the share of its results that L2 does not hold from an earlier run."""

    def __post_init__(self) -> None:
        launch = self.decoded.launch
        self._numbers = {tensor.name: number for number, tensor in enumerate(launch.tensors)}
        self._missing = {tensor.name: tensor.missing_blocks_fraction for tensor in launch.tensors}
        for work in self.decoded.works if self.fetches is None else self.decoded.works[:1]:
            self._encode_work(work)

    def _encode_work(self, work: Work) -> None:
        """Encode the roles of CTAs that do the same."""
        warps = warp_slots = 0
        for number, role in enumerate(work.roles):
            start = len(self.ops)
            self._encode(role.program, work, number, NONE)
            self.blocks = max(self.blocks, _blocks(role.program))
            self.ops.append(EncodedOp(code.EXIT))
            first = self.decoded.first_loop(role)
            watched = NONE if first is None else self._loop_indices[id(first)]
            reports = number == len(work.roles) - 1
            self.roles.append(EncodedRole(start, role.warps, role.instances, warps, warp_slots, watched, reports))
            warps += role.warps
            warp_slots += role.warps * role.instances

    def _encode(self, program: Program, work: Work, role: int, loop: int) -> None:
        for op in program:
            match op:
                case Repeat():
                    self._encode_loop(op, work, role)
                case Load() | LoadBulk():
                    if op.reads or op.instructions:
                        self.ops.append(self._load(op, work, role, loop))
                case _ if id(op) in self._alike:
                    self.ops.append(self._alike[id(op)])
                case _:
                    encoded = self._alike[id(op)] = self._encoded(op)
                    self.ops.append(encoded)

    def _encode_loop(self, op: Repeat, work: Work, role: int) -> None:
        watched = self.decoded.watched(op)
        index = len(self.loops)
        self.loops.append(EncodedLoop(op.times, watched is not None, watched.blocks if watched else 0))
        if watched is not None:
            _ = self._loop_indices.setdefault(id(op), index)
            self.iterations = max(self.iterations, op.times)
        repeat = EncodedOp(code.REPEAT, index, len(self.ops) + 1)
        self.ops.append(repeat)
        self._encode(op.body, work, role, index)
        repeat.last = len(self.ops) + 1
        self.ops.append(EncodedOp(code.END_ITERATION, index, repeat.first, repeat.last))

    def _load(self, op: Load | LoadBulk, work: Work, role: int, loop: int) -> EncodedOp:
        first = len(self.reads)
        if self.fetches is None:
            machine, warps = self.decoded.machine, work.roles[role].warps
            for read in op.reads:
                key = self._numbers[read.tensor]
                table = self.tables[read.tensor]
                self.reads.append(read_of(machine, work.tensors[key], table, read, warps, key))
        elif (fetch := self.fetches[role].get(id(op.reads))) is not None:
            self.reads.append(fetch)
        bulk = isinstance(op, LoadBulk)
        self.rings |= bulk
        return EncodedOp(
            code.LOAD_BULK if bulk else code.LOAD,
            loop=loop,
            first=first,
            last=len(self.reads),
            prefetch_distance=0 if isinstance(op, LoadBulk) else op.prefetch_distance,
            instructions=op.instructions,
            size_bytes=op.port_bytes,
            l2_bytes=sum(read.l2_bytes for read in op.reads),
            sm_bytes=sum(read.sm_bytes for read in op.reads),
        )

    def _encoded(self, op: Op) -> EncodedOp:
        """An operation that is the same wherever it stands."""
        match op:
            case Mma() | WarpgroupMma():
                return self._multiply(op)
            case Alu():
                return self._alu(op)
            case Store():
                return EncodedOp(
                    code.STORE, first=self._numbers[op.tensor], instructions=op.instructions, size_bytes=op.size_bytes,
                    l2_bytes=op.l2_bytes, largest=op.largest, missing_fraction=self._missing[op.tensor],
                )  # fmt: skip
            case Compute():
                return EncodedOp(code.COMPUTE, latency_cycles=op.cycles)
            case WaitLoad():
                return EncodedOp(code.WAIT_LOAD)
            case StoreShared():
                return EncodedOp(code.STORE_SHARED, instructions=op.instructions, size_bytes=op.size_bytes)
            case LoadShared():
                return EncodedOp(code.LOAD_SHARED, instructions=op.instructions, size_bytes=op.size_bytes)
            case Drain():
                return EncodedOp(code.DRAIN)
            case Barrier():
                return EncodedOp(code.BARRIER)
            case AcquireStage():
                return EncodedOp(code.ACQUIRE_STAGE, stages=op.stages)
            case WaitStage():
                self.rings = True
                return EncodedOp(code.WAIT_STAGE)
            case ReleaseStage():
                self.rings = True
                return EncodedOp(code.RELEASE_STAGE, stages=op.pending)
            case SplitKFixup():
                return EncodedOp(
                    code.SPLIT_K_FIXUP, chain_length=op.times, size_bytes=op.size_bytes, largest=op.largest
                )
            case Load() | LoadBulk() | Repeat():
                raise AssertionError(f"{type(op).__name__} depends on where it stands")

    def _multiply(self, op: Mma | WarpgroupMma) -> EncodedOp:
        timing = self.decoded.mmas[op.instruction]
        if timing.instructions_per_cycle <= 0 or (isinstance(op, Mma) and op.k_groups < 1):
            raise ValueError(f"{self.decoded.launch.name}: '{op.instruction}' needs a rate and k-groups above 0")
        encoded = EncodedOp(
            code.WARPGROUP_MMA,
            pipe=self.decoded.pipes.index(timing.pipe),
            instructions_per_cycle=timing.instructions_per_cycle,
            latency_cycles=timing.latency_cycles,
            size_bytes=op.operand_bytes,
        )
        if isinstance(op, WarpgroupMma):
            encoded.pipe_instructions, encoded.instructions = op.instructions, op.issue_slots
            return encoded
        encoded.k_groups = op.k_groups
        encoded.pipe_instructions = op.pipe_instructions
        if op.pipelined:
            encoded.code = code.MMA
            encoded.instructions = op.pipe_instructions + op.other_instructions
        else:
            encoded.code = code.MMA_IN_TURN
            encoded.size_bytes /= op.k_groups
            encoded.pipe_instructions /= op.k_groups
            encoded.instructions = encoded.pipe_instructions
        return encoded

    def _alu(self, op: Alu) -> EncodedOp:
        first = len(self.alu_work)
        self.alu_work += [AluWork(self.decoded.pipes.index(pipe), count) for pipe, count in op.work]
        instructions = sum(count for _, count in op.work)
        return EncodedOp(
            code.ALU, first=first, last=len(self.alu_work), instructions=instructions, latency_cycles=op.latency_cycles
        )


def _blocks(program: Program) -> int:
    """Blocks that a warp loads."""
    return sum(times for op, times in executed(program) if isinstance(op, Load | LoadBulk))
