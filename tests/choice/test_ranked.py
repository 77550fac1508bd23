"""Ranking many operators at once: the same plans as one by one, to the bit."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import shipped_spec
from gemm_kernels import BOARDS
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.lowering.gemm.kernel_table import table_of
from gpusim.lowering.gemm.plan import Choices, GemmPlans
from gpusim.lowering.gemm.problem import EXACT_SIZE, Problems, problem_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.ranked import Ranked, RankRequest, rank, rank_together
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.specs import load_spec, with_overrides
from gpusim.system import System
from gpusim.workloads.convolution import CONVOLUTION_OPS, Convolution, ConvolutionShape
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import Softmax

SIZES = st.integers(min_value=1, max_value=1024).map(lambda size: 8 * size) | st.integers(min_value=1, max_value=9999)


def seen(ranked: Ranked) -> list[tuple[object, ...]]:
    """All that a prediction takes from a ranking."""
    shown = [(one.choice, one.extents, one.estimate_us) for one in ranked.candidates]
    first = ranked.candidates[0].plan
    return [*shown, (first,), (ranked.retuned and ranked.retuned.choice,)]


def systems() -> list[System]:
    as_shipped = [shipped_spec(name) for name in BOARDS]
    older = [load_spec("V100-SXM2-16GB", cuda=10)]
    faster = [
        with_overrides(shipped_spec(name), {"dram.peak_bandwidth_gb_per_s": 5000.0, "sm.count": 60})
        for name in ("A100-SXM4-80GB", "H100-SXM5-80GB", "T4")
    ]
    return [spec.system for spec in (*as_shipped, *older, *faster)]


SYSTEMS = st.sampled_from(systems())
KINDS = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([Dtype.FP16, Dtype.FP32, Dtype.BF16, Dtype.TF32, Dtype.INT8, Dtype.FP64]),
        "batch": st.sampled_from([1, 1, 1, 5]),
        "layout": st.sampled_from(["tn", "nn", "nt", "tt"]),
        "order": st.sampled_from(["row", "column"]),
        "sparsity": st.sampled_from(["dense", "dense", "2:4"]),
    }
)
OPTIONS = st.builds(Options, l2=st.sampled_from(["cold", "warm"]), unit=st.sampled_from([None, None, "cuda", "tensor"]))


@settings(max_examples=120)
@given(SYSTEMS, KINDS, OPTIONS, st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=2, max_size=12))
def test_ranked_together_every_operator_has_the_plans_it_has_alone(
    system: System, kind: dict[str, object], options: Options, sizes: list[tuple[int, int, int]]
) -> None:
    questions: list[RankRequest] = [(system, Gemm(*size, **kind), options) for size in sizes]  # type: ignore[arg-type]
    for question, together in zip(questions, rank_together(questions), strict=True):
        try:
            alone = rank(*question)
        except UnsupportedError:
            assert together is None
        else:
            assert together is None or seen(together) == seen(alone)


CONVOLUTIONS = st.builds(
    ConvolutionShape,
    images=st.sampled_from([1, 8, 32]),
    channels=st.sampled_from([3, 32, 64, 96, 256]),
    height=st.sampled_from([7, 14, 28, 56]),
    width=st.sampled_from([7, 14, 56]),
    filters=st.sampled_from([32, 64, 100, 256]),
    filter_h=st.sampled_from([1, 3, 5]),
    filter_w=st.sampled_from([1, 3]),
    stride=st.sampled_from([(1, 1), (2, 2)]),
    pad=st.sampled_from([(0, 0), (1, 1)]),
)
DEPTHWISE = ConvolutionShape(8, 64, 28, 28, 64, 3, 3, pad=(1, 1), groups=64)


@settings(max_examples=40)
@given(
    SYSTEMS,
    st.sampled_from([Dtype.FP16, Dtype.FP32, Dtype.TF32, Dtype.FP64]),
    st.sampled_from(["nchw", "nhwc"]),
    OPTIONS,
    st.lists(st.tuples(CONVOLUTIONS, st.sampled_from(CONVOLUTION_OPS)), min_size=1, max_size=8),
)
def test_convolutions_ranked_together_have_the_plans_they_have_alone(
    system: System,
    dtype: Dtype,
    layout: str,
    options: Options,
    asked: list[tuple[ConvolutionShape, str]],
) -> None:
    shapes = [*asked, (DEPTHWISE, CONVOLUTION_OPS[0])]
    questions: list[RankRequest] = [
        (system, Convolution(shape, dtype, op, layout=layout), options) for shape, op in shapes
    ]
    for question, together in zip(questions, rank_together(questions), strict=True):
        try:
            alone = rank(*question)
        except UnsupportedError:
            assert together is None
        else:
            assert together is not None
            assert seen(together) == seen(alone)


def test_operators_that_differ_in_more_than_their_sizes_are_not_ranked_together() -> None:
    t4, a100 = shipped_spec("T4").system, shipped_spec("A100-SXM4-80GB").system
    gemm, cold, warm = Gemm(512, 512, 512, Dtype.FP16), Options(), Options(l2="warm")
    others: list[tuple[System, Operator, Options]] = [
        (a100, gemm, cold),
        (t4, gemm, warm),
        (t4, replace(gemm, dtype=Dtype.FP32, accumulate="", output=""), cold),
        (t4, replace(gemm, k=511), cold),
        (t4, Softmax(512, 512, Dtype.FP16), cold),
        (t4, replace(gemm, m=2**60, n=8, k=8), cold),
    ]
    assert rank_together([(t4, gemm, cold), *others]) == [None] * 7
    together = rank_together([*others, (t4, gemm, cold), (t4, replace(gemm, m=1024), cold)])
    assert together[:6] == [None] * 6
    assert None not in together[6:]


def test_a_prediction_from_a_ranking_made_before_is_the_same() -> None:
    system, options = shipped_spec("V100-SXM2-16GB").system, Options(load="burst")
    gemms = [Gemm(m, 1024, 1024, Dtype.FP16) for m in (64, 2048)]
    for gemm, ranked in zip(gemms, rank_together([(system, gemm, options) for gemm in gemms]), strict=True):
        assert ranked is not None
        assert predict(system, gemm, options, ranked=ranked) == predict(system, gemm, options)


@pytest.mark.parametrize("name", ["T4", "H100-SXM5-80GB"])
def test_sizes_beyond_doubles_are_planned_as_exactly_as_others(name: str) -> None:
    # one product above the limit makes all that are planned with it use Python's numbers
    gpu, system = shipped_spec(name).system.gpu, shipped_spec(name).system
    gemms = [Gemm(3000, 1096, 712, Dtype.FP16), Gemm(2**62, 8, 8, Dtype.FP16)]
    problems = [problem_of(gemm) for gemm in gemms]
    assert [problem.is_large for problem in problems] == [False, True]
    assert gemms[1].flops / 2 > EXACT_SIZE
    table = table_of(gpu, usable_kernels(system, gemms[0]), problems[0])
    count = len(table.kernels)
    choices = Choices(np.zeros(count, dtype=int), np.arange(count), np.full(count, 3), np.zeros(count, dtype=bool))
    exact, fast = (GemmPlans(table, Problems.of(some), choices, warm=True) for some in (problems, problems[:1]))
    for row in range(count):
        assert exact.plan(gemms[0], row) == fast.plan(gemms[0], row)


@settings(max_examples=40)
@given(
    SYSTEMS,
    KINDS,
    st.sampled_from(["sustained", "burst", "flushed", "25"]),
    st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=2, max_size=12),
)
def test_estimated_together_every_product_has_the_result_it_has_alone(
    system: System, kind: dict[str, object], load: str, sizes: list[tuple[int, int, int]]
) -> None:
    options = Options("estimate", load=load, limits=False)
    questions: list[RankRequest] = [(system, Gemm(*size, **kind), options) for size in sizes]  # type: ignore[arg-type]
    for question, ranked in zip(questions, rank_together(questions), strict=True):
        if ranked is not None:
            assert predict(*question, ranked=ranked) == predict(*question)
