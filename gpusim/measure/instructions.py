"""CUDA source of the instruction microbenchmarks: one arithmetic instruction, repeated.

The issue interval is measured with many independent chains on every sub-partition, the latency with one chain of one
warp (or warpgroup). Operand registers, shapes and qualifiers follow the PTX ISA, sections "Warp Level
Matrix Multiply-Accumulate Instructions" and "Asynchronous Warpgroup Level Matrix Instructions"
(https://docs.nvidia.com/cuda/parallel-thread-execution/). Operands are zeros: only cycles are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNROLL = 8
"""Instructions per chain in one loop iteration."""
CHAINS = 4
"""Independent chains of a warp for an interval: with two warps per sub-partition, eight in flight."""
INTERVAL_THREADS = 256
"""Two warps per sub-partition, or two warpgroups."""
WARPGROUP_THREADS = 128
WARPGROUP_BATCH = 8
"""Asynchronous instructions per wait, for an interval."""
OPERAND_TILES_BYTES = 40 * 1024
"""64 rows of A and 256 columns of B, 128 bytes each, in shared memory."""


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction: its PTX and the registers of its operands."""

    name: str
    since: tuple[int, int]
    """First compute capability that has it."""
    opcode: str
    result: tuple[str, int]
    """Constraint letter and number of the accumulator registers (``f`` FP32, ``r`` 32 bits, ``d`` FP64)."""
    operands: tuple[tuple[str, int], ...] = ()
    """Constraint letter and number of the registers of A and B; empty for a warpgroup's descriptors."""
    suffix: str = ""
    """Operands after the accumulator input."""
    until: tuple[int, int] = (99, 0)
    """First compute capability without it."""

    @property
    def warpgroup(self) -> bool:
        """Issued by four warps together, asynchronously."""
        return self.opcode.startswith("wgmma")

    @property
    def unit(self) -> str:
        """Unit of an interval."""
        return "cycles per SM" if self.warpgroup else "cycles per sub-partition"

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether a compute capability has it."""
        return self.since <= (major, minor) < self.until


def _fma(name: str, opcode: str, register: str, operands: int = 2) -> PtxInstruction:
    return PtxInstruction(name, (7, 0), opcode, (register, 1), ((register, operands),))


def _mma(
    name: str,
    shape: str,
    types: str,
    since: tuple[int, int],
    a: int,
    b: int,
    c: int,
    *,
    register: str = "r",
    until: tuple[int, int] = (99, 0),
) -> PtxInstruction:
    accumulator = {"f32": "f", "f64": "d"}.get(types.rpartition(".")[2], "r")
    opcode = f"mma.sync.aligned.{shape}.row.col.{types}"
    return PtxInstruction(name, since, opcode, (accumulator, c), ((register, a), (register, b)), until=until)


def _sparse_mma(name: str, shape: str, types: str, a: int, b: int) -> PtxInstruction:
    accumulator = "f" if types.endswith("f32") else "r"
    opcode = f"mma.sp.sync.aligned.{shape}.row.col.{types}"
    return PtxInstruction(name, (8, 0), opcode, (accumulator, 4), (("r", a), ("r", b)), ", %meta, 0x0")


def _wgmma(name: str, shape: str, types: str, accumulators: int, suffix: str) -> PtxInstruction:
    """A warpgroup's instruction with both operands in shared memory; ``sp`` ones read their metadata register."""
    sparse = ".sp" if name.startswith("wgmma_sp") else ""
    accumulator = "r" if types.startswith("s32") else "f"
    opcode = f"wgmma.mma_async{sparse}.sync.aligned.{shape}.{types}"
    return PtxInstruction(name, (9, 0), opcode, (accumulator, accumulators), (), suffix, until=(10, 0))


_BOTH_K_MAJOR = ", p, 1, 1, 0, 0"
"""Accumulate (a predicate), signs of A and B, neither transposed (16-bit types)."""
_SCALED = ", p, 1, 1"
_UNSCALED = ", p"

INSTRUCTIONS: dict[str, PtxInstruction] = {
    one.name: one
    for one in (
        _fma("fma_fp32", "fma.rn.f32", "f"),
        _fma("fma_fp64", "fma.rn.f64", "d"),
        _fma("fma_fp16x2", "fma.rn.f16x2", "r"),
        _fma("mad_int32", "mad.lo.s32", "r"),
        _fma("dp4a", "dp4a.s32.s32", "r"),
        _mma("mma_fp16_m8n8k4", "m8n8k4", "f32.f16.f16.f32", (7, 0), 2, 2, 8, until=(7, 5)),
        _mma("mma_fp16_m16n8k8", "m16n8k8", "f32.f16.f16.f32", (7, 5), 2, 1, 4),
        _mma("mma_fp16_m16n8k16", "m16n8k16", "f32.f16.f16.f32", (8, 0), 4, 2, 4),
        _mma("mma_fp16_acc16_m16n8k16", "m16n8k16", "f16.f16.f16.f16", (8, 0), 4, 2, 2),
        _mma("mma_bf16_m16n8k16", "m16n8k16", "f32.bf16.bf16.f32", (8, 0), 4, 2, 4),
        _mma("mma_tf32_m16n8k8", "m16n8k8", "f32.tf32.tf32.f32", (8, 0), 4, 2, 4),
        _mma("mma_int8_m8n8k16", "m8n8k16", "s32.s8.s8.s32", (7, 5), 1, 1, 2),
        _mma("mma_int8_m16n8k32", "m16n8k32", "s32.s8.s8.s32", (8, 0), 4, 2, 4),
        # Hopper has FP8 in wgmma only: the assembler turns mma into FP16 products, and merges equal ones.
        _mma("mma_fp8_m16n8k32", "m16n8k32", "f32.e4m3.e4m3.f32", (8, 9), 4, 2, 4, until=(9, 0)),
        _mma("mma_fp64_m8n8k4", "m8n8k4", "f64.f64.f64.f64", (8, 0), 1, 1, 2, register="d"),
        _mma("mma_fp64_m16n8k16", "m16n8k16", "f64.f64.f64.f64", (9, 0), 8, 4, 4, register="d"),
        _sparse_mma("mma_sp_fp16_m16n8k16", "m16n8k16", "f32.f16.f16.f32", 2, 2),
        _sparse_mma("mma_sp_fp16_m16n8k32", "m16n8k32", "f32.f16.f16.f32", 4, 4),
        _sparse_mma("mma_sp_bf16_m16n8k32", "m16n8k32", "f32.bf16.bf16.f32", 4, 4),
        _sparse_mma("mma_sp_tf32_m16n8k16", "m16n8k16", "f32.tf32.tf32.f32", 4, 4),
        _sparse_mma("mma_sp_int8_m16n8k64", "m16n8k64", "s32.s8.s8.s32", 4, 4),
        _wgmma("wgmma_bf16_m64n64k16", "m64n64k16", "f32.bf16.bf16", 32, _BOTH_K_MAJOR),
        _wgmma("wgmma_bf16_m64n128k16", "m64n128k16", "f32.bf16.bf16", 64, _BOTH_K_MAJOR),
        _wgmma("wgmma_bf16_m64n256k16", "m64n256k16", "f32.bf16.bf16", 128, _BOTH_K_MAJOR),
        _wgmma("wgmma_fp16_m64n256k16", "m64n256k16", "f32.f16.f16", 128, _BOTH_K_MAJOR),
        _wgmma("wgmma_tf32_m64n256k8", "m64n256k8", "f32.tf32.tf32", 128, _SCALED),
        _wgmma("wgmma_fp8_m64n256k32", "m64n256k32", "f32.e4m3.e4m3", 128, _SCALED),
        _wgmma("wgmma_int8_m64n256k32", "m64n256k32", "s32.s8.s8", 128, _UNSCALED),
        _wgmma("wgmma_sp_bf16_m64n256k32", "m64n256k32", "f32.bf16.bf16", 128, _BOTH_K_MAJOR),
        _wgmma("wgmma_sp_fp8_m64n256k64", "m64n256k64", "f32.e4m3.e4m3", 128, _SCALED),
        _wgmma("wgmma_sp_int8_m64n256k64", "m64n256k64", "s32.s8.s8", 128, _UNSCALED),
    )
}
"""By name, older ones first."""

_TYPES = {"f": "float", "d": "double", "r": "unsigned"}


@dataclass(frozen=True, slots=True)
class InstructionBenchmark:
    """Source and launch of one microbenchmark; its kernel is called ``bench(rounds, zero, elapsed_cycles, sink)``."""

    source: str
    threads: int
    shared_bytes: int
    instructions_per_round: int
    """Instructions on one sub-partition (on the SM for wgmma), by which the elapsed cycles are divided."""


def benchmark(instruction: PtxInstruction, *, latency: bool) -> InstructionBenchmark:
    """The program that measures an instruction's latency, or the interval at which it issues."""
    if instruction.warpgroup:
        threads = WARPGROUP_THREADS if latency else INTERVAL_THREADS
        turns = UNROLL * (1 if latency else WARPGROUP_BATCH * threads // WARPGROUP_THREADS)
        return InstructionBenchmark(_warpgroup_source(instruction, latency), threads, OPERAND_TILES_BYTES, turns)
    chains = 1 if latency else CHAINS
    threads = 32 if latency else INTERVAL_THREADS
    warps_per_sub_partition = 1 if latency else INTERVAL_THREADS // 32 // 4
    turns = UNROLL * chains * warps_per_sub_partition
    return InstructionBenchmark(_warp_source(instruction, chains), threads, 0, turns)


def _warp_source(instruction: PtxInstruction, chains: int) -> str:
    """Chains of a warp-level instruction, operands in registers."""
    letter, count = instruction.result
    sides = [(f"s{side}", kind, number) for side, (kind, number) in enumerate(instruction.operands)]
    declared = [f"{_TYPES[letter]} c[{chains}][{count}] = {{}};"]
    # From an argument: with a constant zero the assembler would remove the instruction.
    declared += [
        f"{_TYPES[kind]} {name}[{number}]; for (auto &one : {name}) one = zero;" for name, kind, number in sides
    ]
    inputs = [(kind, f"{name}[{i}]") for name, kind, number in sides for i in range(number)]
    statements = [
        _statement(instruction, [f"c[{chain}][{i}]" for i in range(count)], inputs) for chain in range(chains)
    ]
    used = " + ".join(f"c[{chain}][0]" for chain in range(chains))
    return _kernel(declared, statements, used)


def _statement(instruction: PtxInstruction, result: Sequence[str], inputs: Sequence[tuple[str, str]]) -> str:
    """One inline instruction that accumulates into ``result``."""
    letter, count = instruction.result
    places = [f"%{i}" for i in range(count + len(inputs) + 1)]
    if instruction.opcode.startswith(("mma", "wgmma")):
        groups = []
        at = count
        for _, number in instruction.operands:
            groups.append("{" + ", ".join(places[at : at + number]) + "}")
            at += number
        accumulators = "{" + ", ".join(places[:count]) + "}"
        suffix = instruction.suffix.replace("%meta", places[-1])
        text = f"{instruction.opcode} {accumulators}, {', '.join(groups)}, {accumulators}{suffix};"
    else:
        text = f"{instruction.opcode} %0, {', '.join(places[1 : 1 + len(inputs)])}, %0;"
    outputs = ", ".join(f'"+{letter}"({name})' for name in result)
    given = ", ".join(f'"{kind}"({name})' for kind, name in inputs)
    meta = ', "r"(meta)' if "%meta" in instruction.suffix else ""
    return f'asm volatile("{text}" : {outputs} : {given}{meta});'


def _warpgroup_source(instruction: PtxInstruction, latency: bool) -> str:
    """Asynchronous instructions on tiles in shared memory; for a latency each is followed by a wait."""
    letter, count = instruction.result
    accumulators = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
    metadata = f", %{count + 2}, 0" if ".sp." in instruction.opcode else ""
    issue = f"{instruction.opcode} {accumulators}, %{count}, %{count + 1}{metadata}{instruction.suffix};"
    text = f"{{ .reg .pred p; setp.ne.b32 p, 1, 0; {issue} }}"
    outputs = ", ".join(f'"+{letter}"(c[{i}])' for i in range(count))
    statement = f'asm volatile("{text}" : {outputs} : "l"(a), "l"(b), "r"(meta));'
    fence = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
    wait = (
        'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");'
        'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'
    )
    declared = [
        f"{_TYPES[letter]} c[{count}] = {{}};",
        "extern __shared__ __align__(1024) unsigned tiles[];",
        f"for (int i = threadIdx.x; i < {OPERAND_TILES_BYTES // 4}; i += blockDim.x) tiles[i] = 0;",
        # Make ordinary stores visible to the asynchronous proxy.
        'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
        "const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(tiles));",
        # Matrix descriptor: address and strides in units of 16 bytes, K-major with the 128-byte swizzle.
        "const unsigned long long form = (1ull << 62) | (64ull << 32) | (1ull << 16);",
        "const unsigned long long a = form | ((at & 0x3ffff) >> 4);",
        "const unsigned long long b = form | (((at + 8192) & 0x3ffff) >> 4);",
    ]
    # While one warpgroup waits for its last instructions, those of the other occupy the Tensor Cores.
    return _kernel(declared, [fence, *[statement] * (1 if latency else WARPGROUP_BATCH), wait], "c[0]")


def _kernel(declared: Sequence[str], statements: Sequence[str], used: str) -> str:
    """The loop around the statements, between two reads of the SM's cycle counter."""
    setup, turn = ("\n".join(lines) for lines in (declared, statements))
    return f"""extern "C" __global__ void bench(int rounds, int zero, long long *elapsed_cycles, unsigned *sink) {{
const unsigned meta = 0x44444444u;  // positions 0 and 1 of every four
{setup}
__syncthreads();
const long long begin = clock64();
for (int round = 0; round < rounds; ++round) {{
#pragma unroll
for (int i = 0; i < {UNROLL}; ++i) {{
{turn}
}}
}}
__syncthreads();
const long long end = clock64();
if (threadIdx.x == 0) *elapsed_cycles = end - begin;
const auto used = {used};
if (rounds < 0) *sink = static_cast<unsigned>(used);
}}
"""
