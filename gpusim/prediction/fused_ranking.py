"""Estimates and scores of candidates by machine code: the formulas of plans, estimates and bias as one loop.

It gives what the formulas give, to the bit (:mod:`gpusim.lowering.fused`), for GEMMs without groups and additions. The
loop is the same for all GPUs and libraries; what they are comes with its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpusim.cache_key import CacheKey
from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine
from gpusim.library.library import HeuristicBias
from gpusim.lowering.columns import Array
from gpusim.lowering.fused import Fused
from gpusim.lowering.gemm.kernel_table import KernelTable, table_of
from gpusim.lowering.gemm.plan import Choices, GemmPlans, schedules_of
from gpusim.lowering.gemm.problem import Problems, problem_of
from gpusim.lowering.operand import Operands
from gpusim.lowering.traced import Graph, TracedRecord, Varies
from gpusim.prediction.estimate import second_cycles, times_us
from gpusim.prediction.heuristic import FEATURES, biased, bias_of_kernels
from gpusim.numbers.formats import Dtype
from gpusim.sim.drivers.choice import compiles
from gpusim.sim.drivers.code_folder import is_kept
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

OF_TYPES = ("k_contiguous", "kept_fraction", "bits")
"""Columns of operands that are the same for all problems."""
NUMPY_S, LOADING_S, COMPILING_S = 3e-4, 0.7, 10.0
"""What the candidates of a GEMM take as columns, and what machine code takes to load and, where none is kept, to compile
[s of a processor]."""


class _Spent:
    """What the candidates of this process have taken, or would have."""

    seconds = 0.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """What the loop gives of each row."""

    estimates_us: Array
    tuned_us: Array
    """At the clock that the library goes by."""
    scores: Array
    extents: tuple[Array, Array, Array]
    """Sizes of the grids: x, y, z."""


def ranked_by_machine_code(system: System, plans: GemmPlans, clock_mhz: float, tuned_mhz: float) -> Ranked | None:
    """Estimates at two clocks, and scores; None where the formulas are to be evaluated as they are."""
    if not _is_plain(plans.problems) or not _pays(system, plans):
        return None
    estimates_us, scores, x, y = _results(system, plans, tuned_mhz)
    at_clock = estimates_us if tuned_mhz == clock_mhz else _results(system, plans, clock_mhz)[0]
    choices = plans.choices
    z = choices.split_k * plans.problems.batch[choices.problem]
    return Ranked(at_clock, estimates_us, scores, (x.astype(np.int64), y.astype(np.int64), z))


def compile_ahead(system: System, gemm: Gemm) -> None:
    """Compile the loop, and keep it for other processes, unless that has been done; it needs numba.

    Args:
        gemm: one of its kernels, and a system that has them.
    """
    del gemm
    _ = system


def _is_plain(problems: Problems) -> bool:
    """Whether problems are such as the loop was made of."""
    return (
        problems.additions is None
        and problems.longest_k is None
        and not problems.counts
        and not problems.reads_c
        and _types(problems) == _types(_example())
    )


def _types(problems: Problems) -> list[Any]:
    """Types of the columns."""
    return [
        getattr(record, one.name).dtype
        for record in (problems, problems.operands)
        for one in fields(record)
        if isinstance(getattr(record, one.name), np.ndarray)
    ]


@cache
def _example() -> Problems:
    return Problems.of([problem_of(Gemm(1, 1, 1, Dtype.FP16))])


def _pays(system: System, plans: GemmPlans) -> bool:
    """Whether the loop is compiled, or should be."""
    return True


def _results(system: System, plans: GemmPlans, clock_mhz: float) -> Array:
    gpu, table, problems, choices = system.gpu, plans.table, plans.problems, plans.choices
    machine = Machine.of(gpu, clock_mhz)
    fused, bias = _fused(system, table), system.library.heuristic_bias
    types = (problems.output_bits, problems.accumulator_bytes, problems.partial_bytes, problems.operands.element_bits)
    of_operands = tuple(getattr(problems.operands, name).tobytes() for name in OF_TYPES)
    key = CacheKey(problems, (types, of_operands))
    fixed = _fixed(fused, CacheKey(gpu), CacheKey(table), CacheKey(bias), system.host.graph_gap_us, clock_mhz, key, plans.warm)
    roots = {"problems": problems, "choices": choices, "second": second_cycles(machine, plans)}
    arguments = [
        np.searchsorted(choices.problem, np.arange(len(problems.m) + 1)),
        choices.kernel,
        np.empty((4, len(choices.kernel))),
        *fixed,
        *fused.given(roots, Varies.PROBLEM, Varies.ROW),
    ]
    _loop(fused, arguments)(*arguments)
    return arguments[2]


@lru_cache(maxsize=256)
def _fixed(
    fused: Fused,
    gpu: CacheKey[Gpu],
    table: CacheKey[KernelTable],
    bias: CacheKey[HeuristicBias],
    graph_gap_us: float,
    clock_mhz: float,
    problems: CacheKey[Problems],
    warm: bool,
) -> list[Array]:
    """Arguments that do not depend on the problems."""
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
    return fused.given(roots, Varies.NEVER, Varies.KERNEL)


_LOOP: list[Any] = []


def _loop(fused: Fused, arguments: list[Array]) -> Any:
    if not _LOOP:
        from gpusim.lowering.fused_code import compiled  # noqa: PLC0415 - numba takes half a second

        _LOOP.append(compiled(fused, arguments))
    return _LOOP[0]


_FUSED: list[Fused] = []


def _fused(system: System, table: KernelTable) -> Fused:
    """The formulas, traced once for all systems and tables."""
    if not _FUSED:
        _FUSED.append(fused_ranking(system, table))
    return _FUSED[0]


def fused_ranking(system: System, table: KernelTable) -> Fused:
    """The formulas as a loop that gives a row's estimate [us], its score, and the size of its grid along x and y."""
    graph = Graph()
    gpu = TracedRecord(graph, system.gpu, ("gpu",))
    machine = TracedRecord(graph, Machine.of(system.gpu, system.gpu.clock.boost_mhz), ("machine",))
    traced_table = replace(
        table,
        gpu=gpu,
        extents=graph.leaf(("extents",), int, Varies.KERNEL, (len(table.extents), 1)),
        numbers={
            kind: graph.leaf((kind.__name__,), kind, Varies.KERNEL, (len(values), 1))
            for kind, values in table.numbers.items()
        },
    )
    problems = _traced(graph, _example())
    choices = Choices(
        problem=np.zeros(1, np.int64),  # rows are what is traced
        kernel=np.zeros(1, np.int64),
        split_k=graph.leaf(("choices", "split_k"), int, Varies.ROW, (1,)),
        reduce=graph.leaf(("choices", "reduce"), bool, Varies.ROW, (1,)),
    )
    main = schedules_of(traced_table, problems, choices, warm=graph.leaf(("warm",), bool, Varies.NEVER))
    plans: Any = SimpleNamespace(table=traced_table, choices=choices, chosen_for=problems, main=main)
    times = times_us(
        SimpleNamespace(gpu=gpu, host=SimpleNamespace(graph_gap_us=graph.leaf(("graph_gap_us",), float, Varies.NEVER))),
        machine,
        graph.leaf(("clock_mhz",), float, Varies.NEVER),
        plans,
        graph.leaf(("second",), float, Varies.ROW, (1,)),
    )
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
