"""Ranking by machine code: the candidates that formulas over columns give, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from conftest import shipped_spec
from gemm_kernels import BOARDS, BOARDS_OF_LIBRARIES
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ranked import CONVOLUTIONS
from test_ranked import seen as of_ranked

from gpusim.lowering.fused import Fused
from gpusim.lowering.gemm.kernel_table import table_of
from gpusim.lowering.gemm.plan import GemmPlans
from gpusim.lowering.gemm.problem import Problems, problem_of
from gpusim.lowering.traced import Graph, TracedRecord, Varies
from gpusim.numbers.formats import Dtype
from gpusim.prediction import fused_ranking
from gpusim.prediction.choose import rankings
from gpusim.prediction.heuristic import choices_of
from gpusim.prediction.options import Options
from gpusim.prediction.ranked import RankRequest, rank_together
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.sim.drivers.choice import VARIABLE, has_numba
from gpusim.specs import load_spec
from gpusim.system import System
from gpusim.units import ceil_div
from gpusim.workloads.convolution import CONVOLUTION_OPS, Convolution, ConvolutionShape
from gpusim.workloads.gemm import Gemm

needs_numba = pytest.mark.skipif(not has_numba(), reason="needs numba")


OLDER = "V100-SXM2-16GB of CUDA 10"
SYSTEMS: Mapping[str, System] = {
    **{name: shipped_spec(name).system for name in BOARDS},
    OLDER: load_spec("V100-SXM2-16GB", cuda=10).system,  # a library that was tuned for another GPU
}
SIZES = st.integers(min_value=1, max_value=1024).map(lambda size: 8 * size) | st.integers(min_value=1, max_value=20_000)
KINDS = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([Dtype.FP16, Dtype.FP32, Dtype.BF16, Dtype.TF32, Dtype.INT8, Dtype.FP64]),
        "batch": st.sampled_from([1, 1, 1, 5]),
        "layout": st.sampled_from(["tn", "nn", "nt", "tt"]),
        "order": st.sampled_from(["row", "column"]),
        "sparsity": st.sampled_from(["dense", "dense", "2:4"]),
        "beta": st.sampled_from([0.0, 0.0, 1.0]),
        "bias": st.booleans(),
    }
)


def seen(system: System, gemms: list[Gemm], *, warm: bool) -> list[object]:
    """All candidates, and all that the plans of the first ones hold, with types of numbers."""
    kernels, clock_mhz = usable_kernels(system, gemms[0]), system.gpu.clock.boost_mhz
    found = rankings(system, gemms, kernels, warm=warm, clock_mhz=clock_mhz)
    columns = [
        [(one.choice, one.extents, one.estimate_us, one.tuned_us, one.row) for one in ranking] for ranking in found
    ]
    return [columns, [ranking[0].plan if ranking else None for ranking in found]]


@needs_numba
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([*SYSTEMS]), KINDS, st.booleans(), st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=12)
)
def test_machine_code_ranks_as_columns_do(
    name: str, kind: dict[str, object], warm: bool, sizes: list[tuple[int, int, int]]
) -> None:
    system = SYSTEMS[name]
    try:
        asked = [Gemm(*size, **kind) for size in sizes]  # type: ignore[arg-type]
        _ = usable_kernels(system, asked[0])
    except (UnsupportedError, ValueError):
        return
    gemms = [gemm for gemm in asked if problem_of(gemm).types == problem_of(asked[0]).types]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(VARIABLE, "1")
        compiled = seen(system, gemms, warm=warm)
        environment.setenv(VARIABLE, "0")
        assert compiled == seen(system, gemms, warm=warm)


@needs_numba
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(BOARDS_OF_LIBRARIES),
    st.sampled_from([Dtype.FP16, Dtype.FP32, Dtype.TF32]),
    st.sampled_from(["nchw", "nhwc"]),
    st.lists(st.tuples(CONVOLUTIONS, st.sampled_from(CONVOLUTION_OPS)), min_size=2, max_size=6),
)
def test_machine_code_ranks_convolutions_as_columns_do(
    name: str, dtype: Dtype, layout: str, asked: list[tuple[ConvolutionShape, str]]
) -> None:
    convolutions = [Convolution(shape, dtype, op, layout=layout) for shape, op in asked]
    questions: list[RankRequest] = [(SYSTEMS[name], convolution, Options()) for convolution in convolutions]
    found = []
    for compiled in ("1", "0"):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(VARIABLE, compiled)
            found.append([one and of_ranked(one) for one in rank_together(questions)])
    assert found[0] == found[1]


@needs_numba
def test_plain_products_are_ranked_by_machine_code_and_others_as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    system = load_spec("A100-SXM4-80GB").system
    monkeypatch.setenv(VARIABLE, "1")

    def is_compiled(gemm: Gemm) -> bool:
        problems = Problems.of([problem_of(gemm)])
        table = table_of(system.gpu, usable_kernels(system, gemm), problem_of(gemm))
        plans = GemmPlans(table, problems, choices_of(system, table, problems), warm=False)
        clock_mhz = system.gpu.clock.boost_mhz
        return fused_ranking.ranked_by_machine_code(system, plans, clock_mhz, clock_mhz) is not None

    assert is_compiled(Gemm(640, 480, 320, Dtype.FP16))
    assert is_compiled(Gemm(640, 480, 320, Dtype.FP16, batch=7))
    assert not is_compiled(Gemm(2**62, 8, 8, Dtype.FP16))  # too large for the numbers of arrays
    assert [*rankings(system, [Gemm(640, 480, 320, Dtype.FP16)], (), warm=False, clock_mhz=1000.0)[0]] == []
    monkeypatch.setenv(VARIABLE, "0")
    assert not is_compiled(Gemm(640, 480, 320, Dtype.FP16))


def test_the_formulas_are_the_same_loop_on_every_board() -> None:
    texts = {fused_ranking.traced_formulas(load_spec(name).system.gpu).text for name in BOARDS_OF_LIBRARIES}
    assert len(texts) == 1


# Tracing ------------------------------------------------------------------------------------------


class Cache:
    """A record with a number, a property and a method."""

    size_bytes = 96

    @property
    def half_bytes(self) -> int:
        return self.size_bytes // 2

    def lines(self, line_bytes: int) -> int:
        return ceil_div(self.size_bytes, line_bytes)


def test_what_is_computed_twice_is_computed_once() -> None:
    graph = Graph()
    m = graph.leaf(("m",), int, Varies.PROBLEM, (1,))
    tile = graph.leaf(("tile",), int, Varies.KERNEL, (2, 1))
    first: Any = np.where(m > 4, ceil_div(m, tile[0]), 1) * 0.5
    again: Any = np.where(m > 4, ceil_div(m, tile[0]), 1) * 0.5
    assert first.item(0) is again.item(0)
    assert first.dtype == float
    assert first.item(0).varies == Varies.KERNEL | Varies.PROBLEM


def test_values_that_differ_with_kernels_alone_are_passed_to_the_loop() -> None:
    graph = Graph()
    m = graph.leaf(("m",), int, Varies.PROBLEM, (1,))
    tile = graph.leaf(("tile",), int, Varies.KERNEL, (2, 1))
    cache: Cache = TracedRecord(graph, Cache(), ("cache",))  # type: ignore[assignment]
    areas = tile[0] * tile[1] + cache.lines(32) + cache.half_bytes
    fused = Fused([m // areas])
    roots = {"m": np.array([640, 64]), "tile": np.array([[4, 8, 16], [2, 2, 2]]), "cache": Cache()}
    (of_kernels,) = [matrix for matrix in fused.given(roots, Varies.KERNEL) if matrix.size]
    assert of_kernels.tolist() == [[8 + 3 + 48], [16 + 3 + 48], [32 + 3 + 48]]
    assert "tile" not in fused.source


def test_a_formula_that_branches_on_a_value_cannot_be_traced() -> None:
    m = Graph().leaf(("m",), int, Varies.PROBLEM, (1,))
    with pytest.raises(TypeError, match=r"numpy\.where chooses"):
        _ = max(m, 3)
