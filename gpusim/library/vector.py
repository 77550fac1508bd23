"""Kernels of operators on rows (elementwise, softmax, layer norm, reductions) as data.

A kernel's kind of main loop is a case of :data:`VectorKernel`; ``gpusim.lowering.vector`` has a module for each.
Instruction counts are what a compiler makes of a kernel's source; each kernel says where they are from.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpusim.library.main_loops import Cited, Count, Entry
from gpusim.numbers.formats import Dtype
from gpusim.workloads.functions import KINDS_OF_ARITHMETIC, REDUCTIONS
from gpusim.workloads.memory_bound import MemoryBoundOperator
from gpusim.workloads.vector import (
    Elementwise,
    LayerNorm,
    Reduction,
    Softmax,
    VectorOperator,
)

Threads = Annotated[int, Field(ge=32, le=1024, multiple_of=32, strict=True)]
"""Threads of a CTA, in whole warps."""
Registers = Annotated[int, Field(ge=1, le=255, strict=True)]
"""32-bit registers of a thread."""
Instructions = Annotated[float, Field(ge=0, le=1000)]
"""Instructions of a thread: a fraction where a compiler shares one among the elements of an access."""


class Pipes(Entry):
    """Instructions by pipe."""

    fma: Instructions = Field(default=0.0, description="FADD, FMUL, FFMA, IMAD")
    alu: Instructions = Field(default=0.0, description="integer, compare, select, move and branch instructions")
    sfu: Instructions = Field(default=0.0, description="MUFU")

    @property
    def by_pipe(self) -> dict[str, float]:
        return {"fma": self.fma, "alu": self.alu, "sfu": self.sfu}


class Work(Pipes):
    """What a thread executes for one element, or for what the field that holds it says."""

    chain: Pipes = Field(default=Pipes(), description="instructions of the longest chain that depend on each other")
    serial: bool = Field(default=False, description="an element starts when the one before is done")


def _names_among(known: Collection[str]) -> AfterValidator:
    def check(functions: dict[str, Work]) -> dict[str, Work]:
        unknown = functions.keys() - set(known)
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}; known are {', '.join(known)}")
        return functions

    return AfterValidator(check)


class _Kernel(Entry):
    name: str = Field(description="as profilers print it, less template arguments; may hold {function}")
    source: str
    dtypes: tuple[Dtype, ...] = Field(min_length=1, description="data types of input and output")
    registers: Cited[Registers] = Field(description="of a thread")
    instruction_counts: Cited[str] = Field(description="what was compiled to count the instructions below")
    setup: Work = Field(description="of a thread before its first load")

    def printed_name(self, operator: VectorOperator) -> str:
        """The name a profiler would show."""
        return self.name.format(function=operator.op)

    def computes(self, operator: VectorOperator) -> bool:
        """Whether it computes what the operator does, of any size and type."""
        raise NotImplementedError

    def refusal(self, operator: VectorOperator) -> str:
        """Why it cannot run an operator; empty where it can."""
        return "" if self.computes(operator) else f"it does not compute {operator.op}"


StreamedOperator = Elementwise | MemoryBoundOperator
"""An operator that a kernel computes in one pass over what it touches."""


class ElementwiseKernel(_Kernel):
    """Each thread loads its elements, computes, and stores."""

    kind: Literal["elementwise"]
    threads: Threads
    elements_per_thread: Count
    vector_elements: Count = Field(description="elements of one load or store")
    arithmetic: Annotated[dict[str, Work], _names_among(KINDS_OF_ARITHMETIC)] = Field(
        description="of an operation on one element, by kind"
    )

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, StreamedOperator) and operator.arithmetic.keys() <= self.arithmetic.keys()

    def work(self, operator: StreamedOperator) -> Work:
        """Of an element: its operations one after the other."""
        operations = [(self.arithmetic[kind], count) for kind, count in operator.arithmetic.items()]

        def total(works: list[tuple[Pipes, int]]) -> dict[str, float]:
            return {pipe: sum(count * work.by_pipe[pipe] for work, count in works) for pipe in ("fma", "alu", "sfu")}

        chain = total([(work.chain, count) for work, count in operations])
        return Work(**total(list(operations)), chain=Pipes(**chain))


class WarpSoftmaxKernel(_Kernel):
    """Each warp holds a row in registers, or two short ones: one pass over memory."""

    kind: Literal["warp_softmax"]
    threads: Threads
    max_n: Count = Field(description="longest row")
    two_rows_until: Count = Field(description="longest row of which a warp takes two")
    registers_by_elements: tuple[tuple[Count, Registers], ...] = Field(
        description="pairs of the elements that a thread holds and its registers, upwards; more take ``registers``"
    )
    load: Work = Field(description="of an element's load: address and predicate")
    maximum: Work
    exponential: Work = Field(description="exponential of the difference, and its sum")
    combine: Work = Field(description="of two threads' results, after a shuffle")
    scale: Work

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, Softmax)

    def refusal(self, operator: VectorOperator) -> str:
        if not isinstance(operator, Softmax) or operator.n <= self.max_n:
            return _Kernel.refusal(self, operator)
        return f"n must be at most {self.max_n}, got {operator.n}"


class BlockSoftmaxKernel(_Kernel):
    """Each CTA reads its row three times: for the maximum, for the sum of exponentials, to scale."""

    kind: Literal["block_softmax"]
    max_threads: Threads
    vector_bytes: Count = Field(description="aligned load or store of a thread [B]")
    turn: Work = Field(description="of a loop's turn: address, compare, branch")
    maximum: Work
    exponential: Work = Field(description="exponential of the difference, and its sum")
    combine: Work = Field(description="of two results in shared memory")
    scale: Work

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, Softmax)


class LayerNormKernel(_Kernel):
    """Each CTA reads its row twice: for mean and variance (Welford), then to normalise."""

    kind: Literal["layer_norm"]
    threads: Threads
    vector_elements: Count = Field(description="elements of one load or store; rows hold a multiple")
    turn: Work = Field(description="of a loop's turn: address, compare, branch")
    statistics: Work
    combine: Work = Field(description="of two threads' statistics")
    finish: Work = Field(description="from the row's statistics to its scale")
    normalise: Work

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, LayerNorm)

    def refusal(self, operator: VectorOperator) -> str:
        if not isinstance(operator, LayerNorm) or operator.n % self.vector_elements == 0:
            return _Kernel.refusal(self, operator)
        return f"n must be a multiple of {self.vector_elements}, got {operator.n}"


class ReductionKernel(_Kernel):
    """Each warp reduces a row; all warps of a CTA share a long one, and CTAs one that is longer still."""

    kind: Literal["reduction"]
    threads: Threads
    vector_elements: Count
    min_values_per_thread: Count = Field(description="of threads in CTAs that share a row")
    max_values_per_thread: Count = Field(description="from which on warps share a row, and then CTAs")
    turn: Work = Field(description="of a loop's turn: address, compare, branch")
    functions: Annotated[dict[str, Work], _names_among(REDUCTIONS)] = Field(description="of an element, by function")

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, Reduction) and operator.function in self.functions


VectorKernel = Annotated[
    ElementwiseKernel | WarpSoftmaxKernel | BlockSoftmaxKernel | LayerNormKernel | ReductionKernel,
    Field(discriminator="kind"),
]
"""A kernel of an operator on rows, by the kind of its main loop."""
