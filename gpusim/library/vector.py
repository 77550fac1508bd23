"""Kernels of operators that multiply no matrices (pointwise, on rows, on columns) as data.

A kernel's kind of main loop is a case of :data:`VectorKernel`; ``gpusim.lowering.vector`` has a module for each.
Instruction counts are what a compiler makes of a kernel's source; each kernel says where they are from.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field

from gpusim.library.main_loops import Cited, Count, Entry, Pipes, Source
from gpusim.numbers.formats import Dtype
from gpusim.workloads.functions import COLUMN_REDUCTIONS, KINDS_OF_ARITHMETIC, POINTWISE, ROW_REDUCTIONS
from gpusim.workloads.memory_bound import ColumnReduction, Pointwise, RowReduction
from gpusim.workloads.vector import Elementwise, Reduction, RowsOperator, VectorOperator

WARP = 32
"""Threads of a warp."""
STATIC_SHARED_BYTES = 48 * 1024
"""Shared memory of a CTA without an opt-in (CUDA C++ Programming Guide, technical specifications) [B]."""
PARTIAL_BYTES = 4
"""A partial result in its accumulator [B]."""

Threads = Annotated[
    int, Field(ge=32, le=1024, multiple_of=32, strict=True, description="threads of a CTA, in whole warps")
]
Registers = Annotated[int, Field(ge=1, le=255, strict=True)]
"""32-bit registers of a thread."""
Capability = Annotated[str, Field(pattern=r"^\d+\.\d$")]
"""Compute capability, such as 8.0."""
Cycles = Annotated[float, Field(ge=0, le=10_000)]
"""SM clock cycles."""


class Work(Pipes):
    """What a thread executes for one element, or for what the field that holds it says."""

    chain: Pipes = Field(default=Pipes(), description="instructions of the longest chain that depend on each other")
    serial: bool = Field(default=False, description="an element starts when the one before is done")


Names = TypeVar("Names", bound=Collection[str])


def _names_among(known: Collection[str]) -> AfterValidator:
    def check(names: Names) -> Names:
        unknown = set(names) - set(known)
        if unknown:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}; known are {', '.join(known)}")
        return names

    return AfterValidator(check)


Functions = Annotated[
    tuple[str, ...],
    _names_among(ROW_REDUCTIONS),
    Field(min_length=1, description="functions of a row that it computes"),
]


Version = Annotated[str, Field(pattern=r"^\d{1,3}\.\d{1,3}$")]
"""Version of a framework, such as 2.10."""


def version_key(version: str) -> tuple[int, ...]:
    """What versions are ordered by.

    >>> version_key("2.9") < version_key("2.10")
    True
    """
    return tuple(int(part) for part in version.split("."))


_KIND = Field(description="how threads divide the work of an operator, which decides the other keys")


class _Kernel(Entry):
    since: Version | None = Field(default=None, description="first version of the framework that launches it")
    until: Version | None = Field(default=None, description="last version of the framework that launches it")
    name: str = Field(description="as profilers print it, less template arguments; may hold {function}")
    source: Source
    dtypes: tuple[Dtype, ...] = Field(min_length=1, description="data types of the result")
    registers: Cited[Registers] = Field(description="of a thread")
    registers_by_capability: dict[Capability, dict[Dtype, Registers]] = Field(
        default={}, description="the same, by compute capability and data type, where the compiler gives others"
    )
    instruction_counts: Cited[str] = Field(description="what was compiled to count the instructions below")
    setup: Work = Field(description="of a thread before its first load")

    def printed_name(self, operator: VectorOperator) -> str:
        """The name a profiler would show."""
        return self.name.format(function=operator.function)

    def registers_on(self, capability: str, dtype: Dtype) -> int:
        """Registers of a thread, compiled for a compute capability and a data type."""
        return self.registers_by_capability.get(capability, {}).get(dtype, self.registers.value)

    def is_of(self, version: str) -> bool:
        """Whether a version of the framework launches it; empty for the newest."""
        if not version:
            return self.until is None
        key = version_key(version)
        return version_key(self.since or "0.0") <= key <= (version_key(self.until) if self.until else key)

    @property
    def is_compiled(self) -> bool:
        """Whether a compiler made it of a framework's calls."""
        return False

    def computes(self, operator: VectorOperator) -> bool:
        """Whether it computes what the operator does, of any size and type."""
        raise NotImplementedError

    def refusal(self, operator: VectorOperator) -> str:
        """Why it cannot run an operator; empty where it can."""
        return "" if self.computes(operator) else f"it does not compute {operator.op}"


Arithmetic = Annotated[dict[str, Work], _names_among(KINDS_OF_ARITHMETIC)]


class ElementwiseKernel(_Kernel):
    """Each thread loads elements, computes, and stores, once or several times."""

    kind: Annotated[Literal["elementwise"], _KIND]
    threads: Threads
    elements_per_thread: Count = Field(description="results that a thread computes, in one iteration or several")
    elements_per_iteration: Count | None = Field(
        default=None, description="loaded at once, before the next ones of the thread; all of them if absent"
    )
    vector_elements: Count = Field(description="elements of one load or store")
    only: Annotated[tuple[str, ...], _names_among(POINTWISE)] = Field(
        default=(), description="an operator has one of these functions; any if absent"
    )
    compiled: bool = Field(default=False, description="made by a compiler for a chain of functions")
    channels_apart: bool = Field(
        default=False, description="a CTA for each channel of images whose channels lie apart (NCHW)"
    )
    planes: bool = Field(default=False, description="images whose channels lie apart (NCHW) alone")
    plane_ctas: bool = Field(
        default=False,
        description="a CTA for each channel of each image (NCHW), which loads what is broadcast to it once; threads "
        "beyond its pixels exit",
    )
    pixel_threads: bool = Field(
        default=False, description="a thread for each pixel of a plane, which goes through the planes of all images"
    )
    contiguous: bool = Field(default=False, description="tensors that are touched in order, each element once")
    gathers: bool = Field(default=False, description="copies of rows that an index names")
    max_ctas_per_sm: Count | None = Field(
        default=None,
        description="of the grid for each SM, which take all elements in turn; as many as it takes if absent",
    )
    one_type: bool = Field(default=False, description="tensors of one data type, but for masks")
    idle_setup: Work | None = Field(default=None, description="of a thread without elements; as ``setup`` if absent")
    index: Work = Field(default=Work(), description="of an element: where it lies in each tensor")
    iteration_wait_cycles: Cited[Cycles] | None = Field(
        default=None, description="that an iteration takes beyond its instructions and the latency of its loads"
    )
    arithmetic: Arithmetic = Field(description="of an operation on one element, by kind")

    def computes(self, operator: VectorOperator) -> bool:
        functions = operator.functions if isinstance(operator, Pointwise) else (operator.function,)
        return (
            isinstance(operator, Elementwise | Pointwise)
            and operator.arithmetic.keys() <= self.arithmetic.keys()
            and (not self.only or not set(functions).isdisjoint(self.only))
            and (not self.compiled or len(functions) > 1)
        )

    def refusal(self, operator: VectorOperator) -> str:
        touched = (*operator.reads, *operator.writes)
        if (self.channels_apart or self.planes or self.plane_ctas) and (operator.reads[0].run or 1) == 1:
            return "it takes images whose channels lie apart"
        if self.pixel_threads and operator.writes[0].run is None:
            return "it takes images of several planes, and the result states a plane as its run"
        if self.gathers and not _gathers(operator):
            return "it copies rows that an index names"
        if self.contiguous and any(access.run or access.distinct for access in touched):
            return "it touches whole tensors in order"
        types = {access.dtype for access in touched}
        if self.one_type and len(types if operator.function == "copy" else types - {Dtype.INT8}) > 1:
            return "it converts no data types"
        return _Kernel.refusal(self, operator)

    def work(self, operator: VectorOperator) -> Work:
        """Work of an element: its operations one after the other."""
        operations = [(self.arithmetic[kind], count) for kind, count in operator.arithmetic.items()]

        def total(works: Iterable[tuple[Pipes, int]]) -> dict[str, float]:
            each = [(work.by_pipe, count) for work, count in works]
            return {pipe: sum(count * work[pipe] for work, count in each) for pipe in ("fma", "alu", "sfu")}

        chain = Pipes(**total((work.chain, count) for work, count in operations))
        return Work(**total(operations), chain=chain)


def _gathers(operator: VectorOperator) -> bool:
    """Whether it copies rows of a tensor, each named by an index."""
    elements = operator.writes[0].elements
    read = sorted(access.elements for access in operator.reads)
    return operator.function == "copy" and len(read) == 2 and read[0] < read[1] == elements


class _RowsKernel(_Kernel):
    """A kernel that goes over the rows of an operator in passes, with a value of each row after each but the last."""

    functions: Functions
    passes: tuple[Work, ...] = Field(min_length=1, description="of an element, by pass")
    combine: Work = Field(description="of two threads' results of a pass")

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, RowsOperator | RowReduction) and operator.function in self.functions


class WarpRowsKernel(_RowsKernel):
    """Each warp holds a row in registers, or two short ones: one pass over memory."""

    kind: Annotated[Literal["warp_rows"], _KIND]
    threads: Threads
    max_n: Count = Field(description="longest row")
    two_rows_until: Count = Field(description="longest row of which a warp takes two")
    registers_by_elements: tuple[tuple[Count, Registers], ...] = Field(
        description="pairs of the elements that a thread holds and its registers, upwards; more take ``registers``"
    )
    load: Work = Field(description="of an element's load: address and predicate")

    def refusal(self, operator: VectorOperator) -> str:
        _, n = operator.extents
        if self.computes(operator) and n > self.max_n:
            return f"n must be at most {self.max_n}, got {n}"
        return _Kernel.refusal(self, operator)


class BlockRowsKernel(_RowsKernel):
    """Each CTA reads its row in every pass, or keeps it after the first one."""

    kind: Annotated[Literal["block_rows"], _KIND]
    max_threads: Threads = Field(description="most threads of a CTA, in whole warps; short rows have fewer")
    thread_for_each: Literal["vectors", "element", "block"] = Field(
        default="vectors",
        description="what a row has one thread for, up to the most: two vectors, in a power of two; or an element; "
        "block: the most, whatever the row has",
    )
    elements_per_iteration: Count | None = Field(
        default=None,
        description="of a thread in a kernel that a compiler made, computed whether the row has them or not",
    )
    keeps: Literal["nothing", "registers", "shared_memory"] = Field(
        default="nothing", description="where the row is in all passes but the first"
    )
    max_elements_per_thread: Count | None = Field(default=None, description="of rows in registers")
    first_reads: Count | None = Field(
        default=None, description="tensors that the first pass reads and keeps; all of them if absent"
    )
    reduces_by: Literal["shared_memory", "shuffles"] = Field(
        default="shared_memory", description="how the threads of a warp combine their results"
    )
    vector_bytes: Count = Field(description="aligned load or store of a thread [B]")
    iteration: Work = Field(description="of an iteration of a loop: address, compare, branch")
    reduction_wait_cycles: Cited[Cycles] | None = Field(
        default=None, description="that a reduction through shared memory takes beyond its instructions and conflicts"
    )
    between: Work = Field(default=Work(), description="of a thread before each pass but the first")

    @property
    def is_compiled(self) -> bool:
        return self.elements_per_iteration is not None

    def threads_of(self, n: int, vector: int) -> int:
        """Threads of a CTA for rows of ``n`` elements that lie in vectors of so many."""
        if self.thread_for_each == "block":
            return self.max_threads
        if self.thread_for_each == "element":
            return min(self.max_threads, -(-n // WARP) * WARP)
        # Two vectors of a thread, or more, cover the row.
        return min(self.max_threads, max(WARP, 1 << (-(-n // (2 * vector)) - 1).bit_length()))

    def refusal(self, operator: VectorOperator) -> str:
        if not self.computes(operator) or self.keeps == "nothing":
            return _Kernel.refusal(self, operator)
        _, n = operator.extents
        access = operator.reads[0]
        vector = int(self.vector_bytes / access.element_bytes)
        threads = self.threads_of(n, vector)
        if self.keeps == "registers":
            most = (self.max_elements_per_thread or 1) * threads
            return f"n must be at most {most}, got {n}" if n > most else ""
        if n % vector:
            return f"n must be a multiple of {vector}, got {n}"
        most = int((STATIC_SHARED_BYTES - threads // WARP * PARTIAL_BYTES) / access.element_bytes) - 1
        return f"n must be at most {most}, got {n}" if n > most else ""


class NormKernel(_RowsKernel):
    """Each CTA reads its row twice: for its statistics, then to normalise."""

    kind: Annotated[Literal["norm"], _KIND]
    threads: Threads
    vector_elements: Count = Field(description="elements of one load or store; rows hold a multiple")
    iteration: Work = Field(description="of an iteration of a loop: address, compare, branch")
    unrolled_iterations: Count = Field(
        default=1, description="of the compiled loop at once; what is left over has a loop of its own"
    )
    statistics: Count = Field(description="values of a row, of 4 bytes")
    finish: Work = Field(description="from the row's statistics to its scale")
    idle_setup: Work | None = Field(
        default=None, description="setup of a warp that has no element of the row; ``setup`` if absent"
    )
    idle_finish: Work | None = Field(default=None, description="finish of such a warp; ``finish`` if absent")

    def refusal(self, operator: VectorOperator) -> str:
        _, n = operator.extents
        if self.computes(operator) and n % self.vector_elements:
            return f"n must be a multiple of {self.vector_elements}, got {n}"
        return _Kernel.refusal(self, operator)


class ReductionKernel(_Kernel):
    """Threads in two axes share the inputs of results: of rows, of columns, or along a dimension between.

    How many share them follows from the sizes (:func:`gpusim.lowering.vector.reduction.divided`).
    """

    kind: Annotated[Literal["reduction"], _KIND]
    threads: Threads = Field(description="of a CTA at most, over the neighbouring results of a thread")
    vector_elements: Count = Field(description="neighbouring inputs, or results, of a thread in one load at most")
    loads_at_once: Count = Field(
        description="loads of a thread before it uses the first one, where they take no vector"
    )
    min_values_per_thread: Count = Field(description="of threads in CTAs that share a result")
    max_values_per_thread: Count = Field(description="from which on warps share a result, and then CTAs")
    iteration: Work = Field(description="of an iteration of a loop: address, compare, branch")
    functions: Annotated[dict[str, Work], _names_among((*ROW_REDUCTIONS, *COLUMN_REDUCTIONS))] = Field(
        description="of an element, by function"
    )
    registers_of_vectors: Registers | None = Field(
        default=None, description="of a thread that has several results; ``registers`` if absent"
    )

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, Reduction | RowReduction | ColumnReduction) and operator.function in self.functions

    def along(self, operator: VectorOperator) -> bool:
        """Whether what is reduced lies along memory: rows, or columns in pieces."""
        return not isinstance(operator, ColumnReduction) or (operator.reads[0].run or 1) > 1

    def outputs_of_thread(self, operator: VectorOperator) -> int:
        """Neighbouring results of a thread: as many as divide the columns."""
        if self.along(operator):
            return 1
        return math.gcd(operator.extents[1], self.vector_elements)

    def printed_name(self, operator: VectorOperator) -> str:
        of_thread = self.outputs_of_thread(operator)
        return self.name.format(threads=self.threads // of_thread, outputs=of_thread, function=operator.function)

    def registers_of(self, operator: VectorOperator) -> int:
        """Registers of a thread."""
        return (self.outputs_of_thread(operator) > 1 and self.registers_of_vectors) or self.registers.value


class ColumnKernel(_Kernel):
    """Threads side by side take neighbouring columns, those behind each other rows; CTAs share a long column.

    Columns whose elements stand together in pieces (NCHW) have a CTA each.
    """

    kind: Annotated[Literal["columns"], _KIND]
    threads: Threads
    columns: Count = Field(description="of a CTA")
    vector_elements: Count = Field(description="neighbouring columns of a thread, in one load")
    rows_per_iteration: Count = Field(description="rows that a thread loads at once; in pieces, elements")
    in_pieces: bool = Field(default=False, description="columns whose elements stand together in pieces (NCHW)")
    min_rows_per_thread: Count | None = Field(
        default=None, description="of threads in CTAs that share a column; none share if absent"
    )
    iteration: Work = Field(description="of an iteration of a loop: address, compare, branch")
    functions: Annotated[dict[str, Work], _names_among(COLUMN_REDUCTIONS)] = Field(
        description="of an element, by function"
    )

    def computes(self, operator: VectorOperator) -> bool:
        return isinstance(operator, ColumnReduction) and operator.function in self.functions

    def refusal(self, operator: VectorOperator) -> str:
        if self.in_pieces and (operator.reads[0].run or 1) == 1:
            return "it takes columns that lie in pieces"
        return _Kernel.refusal(self, operator)


VectorKernel = Annotated[
    ElementwiseKernel | WarpRowsKernel | BlockRowsKernel | NormKernel | ReductionKernel | ColumnKernel,
    Field(discriminator="kind"),
]
"""A kernel of an operator that multiplies no matrices, by the kind of its main loop."""
