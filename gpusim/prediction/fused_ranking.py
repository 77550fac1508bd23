"""Estimates and scores of candidates by machine code: the formulas of plans, estimates and bias as one loop.

It gives what the formulas give, to the bit (:mod:`gpusim.lowering.fused`), for GEMMs without groups and additions. The
loop is the same for all GPUs and libraries; what they are comes with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.library.library import HeuristicBias
from gpusim.lowering.columns import Array, Columns
from gpusim.lowering.fused import Fused
from gpusim.lowering.gemm.k_step import axes_of_runs
from gpusim.lowering.gemm.kernel_table import KernelTable
from gpusim.lowering.gemm.plan import Choices, GemmPlans, schedules_of
from gpusim.lowering.gemm.problem import Problems, problem_of
from gpusim.lowering.gemm.schedule import Schedule
from gpusim.lowering.operand import Operands
from gpusim.lowering.traced import Graph, TracedRecord, Varies
from gpusim.numbers.formats import Dtype
from gpusim.prediction.estimate import second_cycles, times_us
from gpusim.prediction.heuristic import FEATURES, bias_of_kernels, biased
from gpusim.sim.drivers.choice import MachineCode, fuses
from gpusim.sim.drivers.code_folder import is_kept
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

EXAMPLE = Gemm(1, 1, 1, Dtype.FP16)
"""One for whose columns the formulas are traced: those of others have the same types of numbers."""
WIDTHS = ("output_bits", "accumulator_bytes", "partial_bytes")
"""Numbers of problems that are the same for all of them."""
OF_TYPES = ("k_contiguous", "kept_fraction", "bits")
"""Columns of operands that are the same for all problems."""
LOADING_S, COMPILING_S = 0.7, 10.0
"""What machine code of the formulas takes to load, numba included, and to compile where none is kept."""
COLUMNS_OF_GEMM_S, COLUMNS_S = 2.5e-4, 1.5e-3
"""What ranking takes without machine code: for each GEMM, and for all that are ranked together [s of a processor]."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """What the formulas give of each row."""

    estimates_us: Array
    tuned_us: Array
    """At the clock that the library goes by."""
    scores: Array
    extents: tuple[Array, Array, Array]
    """Sizes of the grids: x, y, z."""


def ranked_by_machine_code(system: System, plans: GemmPlans, clock_mhz: float, tuned_mhz: float) -> Ranked | None:
    """Estimates at two clocks, and scores; None where columns have to do, take no longer, or have no rows."""
    if not len(plans.choices.kernel) or not _is_plain(plans.problems):
        return None
    _Process.columns_s += COLUMNS_S + COLUMNS_OF_GEMM_S * len(plans.problems.m)
    if not fuses(_Process.columns_s, MachineCode(LOADING_S, COMPILING_S, partial(_is_kept, system.gpu))):
        return None
    tuned_us, scores, x, y = _ranked(system, plans, tuned_mhz)
    estimates_us = tuned_us if tuned_mhz == clock_mhz else _ranked(system, plans, clock_mhz)[0]
    batch = plans.problems.batch[plans.choices.problem]
    extents = x.astype(np.int64), y.astype(np.int64), plans.choices.split_k * batch
    return Ranked(estimates_us, tuned_us, scores, extents)


def compile_ahead(gpu: Gpu) -> bool:
    """Compile the formulas, and keep them for other processes, unless that has been done; whether they are kept.

    It needs numba.
    """
    _ = _code(gpu)
    return is_kept(formulas(gpu).text)


class _Formulas(NamedTuple):
    """The formulas, traced."""

    ranking: Fused
    """Columns of the answer: estimate [us], score, and size of the grid along x and y."""
    schedules: Fused
    """The numbers of :attr:`template`."""
    template: Columns[Schedule]
    """Traced, without columns of kernels."""

    @property
    def text(self) -> str:
        """All that decides the machine code."""
        return self.ranking.text + self.schedules.text


class _Code(NamedTuple):
    """Machine code of the formulas."""

    ranking: Callable[..., None]
    schedules: Callable[..., None]


class _Process:
    """What this process has of the formulas."""

    columns_s = 0.0
    """What ranking has taken, or would have, without machine code [s]."""
    formulas: _Formulas | None = None
    code: _Code | None = None
    is_kept: bool | None = None
    """Whether machine code was there when it was first asked for."""


def _is_kept(gpu: Gpu) -> bool:
    if _Process.is_kept is None:
        _Process.is_kept = is_kept(formulas(gpu).text)
    return _Process.is_kept


def _code(gpu: Gpu) -> _Code:
    if _Process.code is None:
        from gpusim.lowering.fused_code import compiled  # noqa: PLC0415 - numba takes half a second

        traced = formulas(gpu)
        _Process.code = _Code(*compiled((traced.ranking, traced.schedules), traced.text))
    return _Process.code


def formulas(gpu: Gpu) -> _Formulas:
    """The formulas, traced once for all GPUs, libraries and tables of kernels.

    Args:
        gpu: any.
    """
    if _Process.formulas is None:
        _Process.formulas = traced_formulas(gpu)
    return _Process.formulas


def _is_plain(problems: Problems) -> bool:
    """Whether the formulas were traced for such problems."""
    is_whole = problems.additions is None and problems.longest_k is None and not problems.counts
    return is_whole and not problems.reads_c and _types(problems) == _types_traced()


def _types(problems: Problems) -> list[Any]:
    """Types of the columns."""
    values = [getattr(record, one.name) for record in (problems, problems.operands) for one in fields(record)]
    return [value.dtype for value in values if isinstance(value, np.ndarray)]


@cache
def _types_traced() -> list[Any]:
    return _types(Problems.of([problem_of(EXAMPLE)]))


def _ranked(system: System, plans: GemmPlans, clock_mhz: float) -> Array:
    """Estimates, scores, and sizes of the grid along x and y of each row, at a clock."""
    fixed = _Fixed(
        CacheKey(system.gpu),
        CacheKey(plans.table),
        _types_of(plans.problems),
        plans.warm,
        CacheKey(system.library.heuristic_bias),
        system.host.graph_gap_us,
        clock_mhz,
    )
    second = second_cycles(Machine.of(system.gpu, clock_mhz), plans)
    return _values(_code(system.gpu).ranking, formulas(system.gpu).ranking, plans, _given_to_ranking(fixed), second)


def schedules_by_machine_code(gpu: Gpu, plans: GemmPlans) -> Columns[Schedule]:
    """The GEMMs of plain problems, as :func:`gpusim.lowering.gemm.plan.schedules_of` gives them."""
    fixed = _Fixed(CacheKey(gpu), CacheKey(plans.table), _types_of(plans.problems), plans.warm)
    _, schedules, template = formulas(gpu)
    values = _values(_code(gpu).schedules, schedules, plans, _given_to_schedules(fixed))
    found = template.mapped(lambda column: schedules.column(values, column))
    blocks = [
        block.replaced(runs=block.runs.replaced(axis=axis))
        for block, axis in zip(found.step.blocks, axes_of_runs(plans.problems.operands), strict=True)
    ]
    return found.replaced(
        kernel=plans.table[plans.choices.kernel], step=found.step.replaced(blocks=tuple(blocks)), cold=not plans.warm
    )


def _values(code: Callable[..., None], fused: Fused, plans: GemmPlans, fixed: list[Array], *second: Array) -> Array:
    """The values of a loop: a row of each."""
    problems, choices = plans.problems, plans.choices
    values = np.empty((fused.count, len(choices.kernel)))
    begins = choices.problem.searchsorted(np.arange(len(problems.m) + 1))
    roots = {"problems": problems, "choices": choices, "second": second[0] if second else None}
    of_rows = fused.given(roots, Varies.PROBLEM, Varies.ROW)
    code(begins, np.ascontiguousarray(choices.kernel), values, *fixed, *of_rows)
    return values


class _Fixed(NamedTuple):
    """What decides what loops take of all but sizes."""

    gpu: CacheKey[Gpu]
    table: CacheKey[KernelTable]
    problems: CacheKey[SimpleNamespace]
    """What is the same for all problems."""
    warm: bool
    bias: CacheKey[HeuristicBias] | None = None
    graph_gap_us: float = 0.0
    clock_mhz: float = 0.0


def _types_of(problems: Problems) -> CacheKey[SimpleNamespace]:
    """What is the same for all problems, without their sizes."""
    widths = {name: getattr(problems, name) for name in WIDTHS}
    of_operands = {name: getattr(problems.operands, name) for name in OF_TYPES}
    element_bits = problems.operands.element_bits
    key = (element_bits, *widths.values(), *(values.tobytes() for values in of_operands.values()))
    operands = SimpleNamespace(element_bits=element_bits, **of_operands)
    return CacheKey(SimpleNamespace(operands=operands, **widths), key)


@lru_cache(maxsize=256)
def _given_to_ranking(fixed: _Fixed) -> list[Array]:
    assert fixed.bias is not None
    gpu = fixed.gpu.record
    roots = {
        **_roots(fixed),
        "machine": Machine.of(gpu, fixed.clock_mhz),
        "clock_mhz": fixed.clock_mhz,
        "graph_gap_us": fixed.graph_gap_us,
        "bias": np.stack(bias_of_kernels(fixed.bias.record, fixed.table.record)),
    }
    return formulas(gpu).ranking.given(roots, Varies.NEVER, Varies.KERNEL)


@lru_cache(maxsize=256)
def _given_to_schedules(fixed: _Fixed) -> list[Array]:
    return formulas(fixed.gpu.record).schedules.given(_roots(fixed), Varies.NEVER, Varies.KERNEL)


def _roots(fixed: _Fixed) -> dict[str, Any]:
    table = fixed.table.record
    of_table = {"extents": table.extents, **{kind.__name__: values for kind, values in table.numbers.items()}}
    return {"gpu": fixed.gpu.record, "problems": fixed.problems.record, "warm": fixed.warm, **of_table}


def traced_formulas(of_gpu: Gpu) -> _Formulas:
    """The formulas, traced with a GPU, of which no value is taken."""
    graph = Graph()
    gpu: Any = TracedRecord(graph, of_gpu, ("gpu",))
    machine = TracedRecord(graph, Machine.of(of_gpu, of_gpu.clock.boost_mhz), ("machine",))
    table = KernelTable.of(of_gpu, (), problem_of(EXAMPLE))
    traced_table = replace(
        table,
        gpu=gpu,
        extents=graph.leaf(("extents",), int, Varies.KERNEL, (len(table.extents), 1)),
        numbers={
            kind: graph.leaf((kind.__name__,), kind, Varies.KERNEL, (len(values), 1))
            for kind, values in table.numbers.items()
        },
    )
    problems = _traced(graph, Problems.of([problem_of(EXAMPLE)]))
    choices = Choices(
        problem=np.zeros(1, np.int64),  # rows are what is traced
        kernel=np.zeros(1, np.int64),
        split_k=graph.leaf(("choices", "split_k"), int, Varies.ROW, (1,)),
        reduce=graph.leaf(("choices", "reduce"), bool, Varies.ROW, (1,)),
    )
    warm: Any = graph.leaf(("warm",), bool, Varies.NEVER)
    main = schedules_of(traced_table, problems, choices, warm=warm)
    plans: Any = SimpleNamespace(table=traced_table, problems=problems, choices=choices, main=main)
    clock_mhz, gap_us = (graph.leaf((name,), float, Varies.NEVER) for name in ("clock_mhz", "graph_gap_us"))
    system = SimpleNamespace(gpu=gpu, host=SimpleNamespace(graph_gap_us=gap_us))
    times = times_us(system, machine, clock_mhz, plans, graph.leaf(("second",), float, Varies.ROW, (1,)))
    bias = graph.leaf(("bias",), float, Varies.KERNEL, (2, 1 + len(FEATURES), 1))
    constant, *weights = np.where(problems.batch == 1, *bias)
    scores = biased(plans, times, constant, dict(zip(FEATURES, weights, strict=True)))
    template, columns = main.replaced(kernel=()), list[Array]()
    _ = template.mapped(columns.append)
    return _Formulas(Fused([times, scores, main.grid.x, main.grid.y]), Fused(columns), template)


def _traced(graph: Graph, problems: Problems) -> Problems:
    """Columns of problems, traced, without what plain problems leave out."""

    def columns(record: Any, path: tuple[str, ...]) -> dict[str, Any]:
        traced: dict[str, Any] = {}
        for name in (one.name for one in fields(record)):
            value = getattr(record, name)
            if isinstance(value, np.ndarray):
                varies = Varies.NEVER if name in OF_TYPES else Varies.PROBLEM
                traced[name] = graph.leaf((*path, name), value.dtype, varies, value.shape)
            elif type(value) in {int, float}:
                traced[name] = graph.leaf((*path, name), type(value), Varies.NEVER)
            elif isinstance(value, Operands):
                traced[name] = Operands(**columns(value, (*path, name)))
            else:
                traced[name] = value
        return traced

    return Problems(**columns(problems, ("problems",)))
