"""Arithmetic: loops of one instruction, and streams with so many multiply-adds an element."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.lowering.locality import Traffic
from gpusim.lowering.totals import Lowered
from gpusim.program import Alu, Load, Mma, Op, Read, Repeat, Role, WaitLoad

ITERATIONS = 128
"""Iterations of a loop of one instruction."""
UNROLLED = 16
"""Instructions of a chain in an iteration."""
LOOP_INSTRUCTIONS = 4.0
"""Instructions of an iteration of a stream's loop beside its arithmetic: addresses, counter, branch."""


@dataclass(frozen=True, slots=True)
class InstructionLoop:
    """Warps of one CTA on one SM that execute one instruction over and over."""

    instruction: str
    """A multiply-accumulate of the spec, or a pipe beside them."""
    warps: int
    chains: int
    """Independent chains of instructions of a warp."""

    @property
    def of_a_warp(self) -> int:
        """Instructions that a warp executes."""
        return ITERATIONS * UNROLLED * self.chains


def instruction_launch(gpu: Gpu, loop: InstructionLoop) -> Launch:
    """The launch of a loop."""
    role = Role(loop.warps, (Repeat((_chained(gpu, loop),), ITERATIONS),))
    resources = Resources(loop.warps * gpu.sm.warp_size, 32, 0)
    return Launch(f"loop_{loop.instruction}", Grid(1), (role,), resources, cold=False)


def _chained(gpu: Gpu, loop: InstructionLoop) -> Op:
    """An iteration: every chain goes on by ``UNROLLED`` instructions."""
    count = float(UNROLLED * loop.chains)
    if loop.instruction in gpu.instructions:
        return Mma(loop.instruction, count, UNROLLED, 0.0, 0.0, pipelined=True)
    latency_cycles = [pipe.latency_cycles for name, pipe in gpu.pipes.items() if name == loop.instruction]
    return Alu(((loop.instruction, count),), UNROLLED * max(latency_cycles))


@dataclass(frozen=True, slots=True)
class MultiplyAddStream:
    """A stream that reads arrays and does so many multiply-adds on each element."""

    instruction: str
    multiply_adds: int
    """Multiply-adds of an element, each on the result of the one before; a subtraction and a sum come on top."""
    arrays: int
    element_bytes: float
    threads: int
    ctas: int
    in_flight: int
    """Elements of a thread that are loaded and computed together."""
    iterations: int

    @property
    def elements(self) -> float:
        """Elements of an array that all CTAs read."""
        return float(self.ctas * self.threads * self.in_flight * self.iterations)


def multiply_add_launch(gpu: Gpu, stream: MultiplyAddStream) -> Lowered:
    """The launch of a stream whose arrays are far larger than L2."""
    warp_bytes = gpu.sm.warp_size * stream.in_flight * stream.element_bytes
    names = tuple(f"input {number}" for number in range(stream.arrays))
    reads = tuple(Read(name, warp_bytes, warp_bytes) for name in names)
    iteration = (
        Load(reads, stream.arrays * warp_bytes, float(stream.arrays * stream.in_flight)),
        WaitLoad(),
        Alu((("alu", LOOP_INSTRUCTIONS),), 0.0),
        _multiply_adds(stream),
    )
    warps = stream.threads // gpu.sm.warp_size
    launch = Launch(
        "multiply_add_stream",
        Grid(stream.ctas),
        (Role(warps, (Repeat(iteration, stream.iterations),)),),
        Resources(stream.threads, 32, 0),
        tuple(Tensor(name, warps * warp_bytes, None, 1.0) for name in names),
        cold=False,
    )
    moved_bytes = stream.arrays * stream.elements * stream.element_bytes
    return Lowered(launch, Traffic(moved_bytes, moved_bytes, 0.0))


def _multiply_adds(stream: MultiplyAddStream) -> Op:
    """A subtraction, the multiply-adds and a sum, of the elements that are in flight."""
    chain = stream.multiply_adds + 2
    return Mma(stream.instruction, float(chain * stream.in_flight), chain, 0.0, 0.0, pipelined=True)
