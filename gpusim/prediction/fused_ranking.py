"""Estimates and scores of candidates by machine code: the formulas of plans, estimates and bias as one loop.

It gives what the formulas give, to the bit (:mod:`gpusim.lowering.fused`), for GEMMs without groups and additions. The
loop is the same for all GPUs and libraries; what they are comes with its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.library.library import HeuristicBias
from gpusim.lowering.columns import Array
from gpusim.lowering.fused import Fused
from gpusim.lowering.gemm.kernel_table import KernelTable
from gpusim.lowering.gemm.plan import Choices, GemmPlans, schedules_of
from gpusim.lowering.gemm.problem import Problems, problem_of
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
OF_TYPES = ("k_contiguous", "kept_fraction", "bits")
"""Columns of operands that are the same for all problems."""
VALUES = 4
"""What the formulas give of a row: estimate [us], score, and size of the grid along x and y."""
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
    tuned_us, scores, x, y = _values(system, plans, tuned_mhz)
    estimates_us = tuned_us if tuned_mhz == clock_mhz else _values(system, plans, clock_mhz)[0]
    batch = plans.problems.batch[plans.choices.problem]
    extents = x.astype(np.int64), y.astype(np.int64), plans.choices.split_k * batch
    return Ranked(estimates_us, tuned_us, scores, extents)


def compile_ahead(gpu: Gpu) -> bool:
    """Compile the formulas, and keep them for other processes, unless that has been done; whether they are kept.

    It needs numba.
    """
    _ = _code(gpu)
    return is_kept(fused_ranking(gpu).text)


class _Process:
    """What this process has of the formulas."""

    columns_s = 0.0
    """What ranking has taken, or would have, without machine code [s]."""
    fused: Fused | None = None
    code: Callable[..., None] | None = None
    is_kept: bool | None = None
    """Whether machine code was there when it was first asked for."""


def _is_kept(gpu: Gpu) -> bool:
    if _Process.is_kept is None:
        _Process.is_kept = is_kept(fused_ranking(gpu).text)
    return _Process.is_kept


def _code(gpu: Gpu) -> Callable[..., None]:
    if _Process.code is None:
        from gpusim.lowering.fused_code import compiled  # noqa: PLC0415 - numba takes half a second

        _Process.code = compiled(fused_ranking(gpu))
    return _Process.code


def fused_ranking(gpu: Gpu) -> Fused:
    """The formulas, traced once for all GPUs, libraries and tables of kernels.

    Args:
        gpu: any.
    """
    if _Process.fused is None:
        _Process.fused = _traced_formulas(gpu)
    return _Process.fused


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


def _values(system: System, plans: GemmPlans, clock_mhz: float) -> Array:
    """The values of the loop at a clock: a row of each."""
    problems, choices = plans.problems, plans.choices
    formats = (problems.output_bits, problems.accumulator_bytes, problems.partial_bytes, problems.operands.element_bits)
    of_types = CacheKey(problems, (formats, *(getattr(problems.operands, name).tobytes() for name in OF_TYPES)))
    of_table, of_gpu, bias = CacheKey(plans.table), CacheKey(system.gpu), CacheKey(system.library.heuristic_bias)
    fixed = _fixed(of_gpu, of_table, bias, of_types, system.host.graph_gap_us, clock_mhz, plans.warm)
    roots = {
        "problems": problems,
        "choices": choices,
        "second": second_cycles(Machine.of(system.gpu, clock_mhz), plans),
    }
    values = np.empty((VALUES, len(choices.kernel)))
    begins = choices.problem.searchsorted(np.arange(len(problems.m) + 1))
    kernel = np.ascontiguousarray(choices.kernel)
    code, fused = _code(system.gpu), fused_ranking(system.gpu)
    code(begins, kernel, values, *fixed, *fused.given(roots, Varies.PROBLEM, Varies.ROW))
    return values


@lru_cache(maxsize=256)
def _fixed(
    gpu: CacheKey[Gpu],
    table: CacheKey[KernelTable],
    bias: CacheKey[HeuristicBias],
    problems: CacheKey[Problems],
    graph_gap_us: float,
    clock_mhz: float,
    warm: bool,
) -> list[Array]:
    """What the loop takes of all but sizes."""
    roots = {
        "gpu": gpu.record,
        "machine": Machine.of(gpu.record, clock_mhz),
        "clock_mhz": clock_mhz,
        "graph_gap_us": graph_gap_us,
        "warm": warm,
        "problems": problems.record,
        "extents": table.record.extents,
        "bias": np.stack(bias_of_kernels(bias.record, table.record)),
        **{kind.__name__: values for kind, values in table.record.numbers.items()},
    }
    return fused_ranking(gpu.record).given(roots, Varies.NEVER, Varies.KERNEL)


def _traced_formulas(of_gpu: Gpu) -> Fused:
    """The formulas of :data:`VALUES`."""
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
    return Fused([column.item(0) for column in (times, scores, main.grid.x, main.grid.y)])


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
