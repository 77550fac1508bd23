"""Kernels executed on numpy data: the order of summation, and its effect on the sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.catalogue import Kernel
from gpusim.lowering.gemm.plan import GemmPlan, plan
from gpusim.lowering.gemm.problem import problem_of
from gpusim.numbers.formats import FORMATS, Dtype
from gpusim.numerics.execute import Order, execute, order_of
from gpusim.numerics.rounding import Floats, convert
from gpusim.numerics.sparsity import compress, pattern_of, prune
from gpusim.prediction.plans import ranked_gemms
from gpusim.specs import load_spec
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

A100 = load_spec("A100-SXM4-80GB").system
V100 = load_spec("V100-SXM2-16GB").system
T4 = load_spec("T4").system
KERNELS = [(arch, kernel) for arch in (A100, V100, T4) for kernel in arch.library.kernels]


def planned_for(gemm: Gemm) -> GemmPlan:
    return ranked_gemms(A100, gemm)[0].plan


SPARSE_KERNELS = [one for arch, one in KERNELS if arch.gpu.instructions[one.family.instruction].sparsity == "2:4"]


def kernel(arch: System, part_of_name: str, dtype: Dtype) -> Kernel:
    return next(
        one
        for one in arch.library.kernels
        if dtype in one.family.inputs and part_of_name in one.printed_name("tn", dtype)
    )


def operands(m: int, n: int, k: int, dtype: Dtype, seed: int = 0) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    scale = 50.0 if dtype is Dtype.INT8 else 3.0 if dtype is Dtype.INT4 else 1.0
    a, b = (scale * generator.standard_normal(shape) for shape in ((m, k), (k, n)))
    return convert(a, dtype.format).values, convert(b, dtype.format).values


def slices(order: Order) -> list[tuple[int, int]]:
    return [one for warps in order.chains for lanes in warps for lane in lanes for one in lane]


# Which products, in which order -----------------------------------------------------------------


@given(st.sampled_from(KERNELS), st.integers(1, 5000), st.integers(1, 9))
@settings(max_examples=200)
def test_every_product_of_a_sum_is_added_once_and_only_once(one: tuple[System, Kernel], k: int, split_k: int) -> None:
    arch, used = one
    dtype = used.family.inputs[0]
    try:
        planned = plan(arch.gpu, Gemm(64, 64, k, dtype), used, split_k)
    except DoesNotFitError:
        reject()
    order = order_of(planned, k, dtype.bits)
    taken = sorted(chain.from_iterable(range(start, stop) for start, stop in slices(order)))
    assert taken == list(range(k))
    assert all(stop - start <= planned.instruction.shape[2] for start, stop in slices(order))
    assert len(order.chains) == split_k


def test_sliced_warps_take_their_halves_of_every_k_tile() -> None:
    used = kernel(A100, "64x64_sliced1x2", Dtype.FP16)
    order = order_of(plan(A100.gpu, Gemm(64, 64, 128, Dtype.FP16), used), 128, 16)
    ((first,), (second,)) = order.chains[0]
    assert first == ((0, 16), (16, 32), (64, 80), (80, 96))
    assert second == ((32, 48), (48, 64), (96, 112), (112, 128))


def test_splits_take_whole_k_tiles_one_after_another() -> None:
    used = kernel(A100, "128x128_ldg8_f2f_stages_32x5", Dtype.FP16)
    order = order_of(plan(A100.gpu, Gemm(64, 64, 160, Dtype.FP16), used, 2, "reduce"), 160, 16)
    ((first,),), ((second,),) = order.chains
    assert first == tuple((at, at + 16) for at in range(0, 96, 16))
    assert second == tuple((at, at + 16) for at in range(96, 160, 16))


def test_lanes_of_a_vector_kernel_take_vectors_in_turn() -> None:
    used = kernel(A100, "gemv", Dtype.FP16)  # a warp of 32 lanes has 2 results: 16 lanes each
    order = order_of(plan(A100.gpu, Gemm(1, 64, 2048, Dtype.FP16), used), 2048, 16)
    (lanes,) = order.chains[0]
    assert len(lanes) == 16
    assert [start for start, _ in lanes[1][:17]] == [*range(8, 16), *range(136, 144), 264]


# Rounding of the sums ---------------------------------------------------------------------------


def nearest(value: Fraction) -> float:
    """The FP32 number nearest to an exact value of normal range, ties to even."""
    exponent = math.frexp(float(value))[1] - 24
    return float(round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent)


def cut_off(value: Fraction) -> float:
    """The FP32 number next to an exact value on the side of zero."""
    exponent = math.frexp(float(value))[1] - 24
    return float(math.trunc(value / Fraction(2) ** exponent) * Fraction(2) ** exponent)


def by_hand(row: Sequence[float], column: Sequence[float], order: Order) -> float:
    """One element of C in exact arithmetic, rounded where the kernel rounds."""
    to_fp32 = cut_off if order.truncates else nearest
    parts = []
    for (lane,) in order.chains[0]:
        accumulator = Fraction(0)
        for start, stop in lane:
            products = (Fraction(x) * Fraction(y) for x, y in zip(row[start:stop], column[start:stop], strict=True))
            accumulator = Fraction(to_fp32(accumulator + sum(products)))
        parts.append(accumulator)
    total = parts[0]
    for part in parts[1:]:
        total = Fraction(nearest(total + part))
    return float(total)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (Dtype.FP32, "sgemm"),
        (Dtype.FP16, "128x128_ldg8"),
        (Dtype.FP16, "sliced1x2"),
        (Dtype.BF16, "64x64_ldg8"),
        (Dtype.TF32, ""),
    ],
)
def test_sums_are_those_of_exact_arithmetic_rounded_once_an_instruction(dtype: Dtype, name: str) -> None:
    k = 203
    gemm = Gemm(3, 4, k, dtype)
    planned = plan(A100.gpu, gemm, kernel(A100, name, dtype)) if name else planned_for(gemm)
    order = order_of(planned, k, dtype.bits)
    a, b = operands(3, 4, k, dtype)
    expected = [[by_hand(list(row), list(column), order) for column in b.T] for row in a]
    assert execute(a, b, order).tolist() == expected


def test_split_k_adds_the_partial_sums_in_order() -> None:
    k = 4096
    gemm = Gemm(5, 7, k, Dtype.FP16)
    used = kernel(A100, "128x128_ldg8", Dtype.FP16)
    a, b = operands(5, 7, k, Dtype.FP16)
    parts = []
    for start in range(0, k, 1024):
        part = Gemm(5, 7, 1024, Dtype.FP16)
        whole = order_of(plan(A100.gpu, part, used), 1024, 16)
        parts.append(execute(a[:, start : start + 1024], b[start : start + 1024], whole).astype(np.float32))
    in_kernel = order_of(plan(A100.gpu, gemm, used, 4, "in_kernel"), k, 16)
    np.testing.assert_array_equal(execute(a, b, in_kernel), ((parts[0] + parts[1]) + parts[2]) + parts[3])
    # For the second kernel they are stored as the result is.
    parts = [part.astype(np.float16).astype(np.float32) for part in parts]
    reduce = order_of(plan(A100.gpu, gemm, used, 4, "reduce"), k, 16)
    np.testing.assert_array_equal(execute(a, b, reduce), ((parts[0] + parts[1]) + parts[2]) + parts[3])


def test_blocks_of_c_change_no_sum() -> None:
    gemm = Gemm(300, 520, 96, Dtype.BF16)
    order = order_of(planned_for(gemm), 96, 16)
    a, b = operands(300, 520, 96, Dtype.BF16)
    whole = execute(a, b, order)
    np.testing.assert_array_equal(whole[299:, 519:], execute(a[299:], b[:, 519:], order))
    np.testing.assert_allclose(whole, a @ b, rtol=1e-4, atol=1e-4)


def test_a_tensor_core_cuts_positive_sums_off_and_a_cuda_core_does_not() -> None:
    k = 4096
    a, b = (np.full(shape, 0.1) for shape in ((1, k), (k, 1)))
    a, b = (convert(one, FORMATS["tf32"]).values for one in (a, b))
    one_chain = plan(A100.gpu, Gemm(1, 1, k, Dtype.TF32), kernel(A100, "128x128_16x5", Dtype.TF32))
    order = order_of(one_chain, k, 32)
    exact = float((a @ b)[0, 0])
    cut, rounded = (float(execute(a, b, one)[0, 0]) for one in (order, replace(order, truncates=False)))
    assert cut < exact
    assert abs(rounded - exact) < abs(cut - exact) / 4


def test_fp16_accumulators_overflow_where_fp32_ones_do_not() -> None:
    k = 1024
    a, b = np.full((1, k), 16.0), np.full((k, 1), 8.0)
    sums = {}
    for accumulate in ("fp16", "fp32"):
        planned = planned_for(Gemm(1, 1, k, Dtype.FP16, accumulate=accumulate))
        sums[accumulate] = float(execute(a, b, order_of(planned, k, 16))[0, 0])
    assert sums == {"fp16": math.inf, "fp32": 16.0 * 8 * k}


def test_int32_sums_are_exact_and_wrap() -> None:
    k = 140_000  # 127 * 127 * 140,000 = 2,258,060,000 > 2^31 - 1
    a, b = np.full((1, k), 127.0), np.full((k, 1), 127.0)
    order = order_of(planned_for(Gemm(16, 16, k, Dtype.INT8)), k, 8)
    assert execute(a, b, order)[0, 0] == 127 * 127 * k - 2**32
    k = 133_120  # 2,147,092,480
    order = order_of(planned_for(Gemm(16, 16, k, Dtype.INT8)), k, 8)
    assert execute(a[:, :k], b[:k], order)[0, 0] == 127 * 127 * k


# 2:4 --------------------------------------------------------------------------------------------


@given(
    st.sampled_from(SPARSE_KERNELS),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 3),
    st.integers(0, 2**32),
)
@settings(max_examples=60)
def test_the_sparse_product_is_the_dense_product_of_the_pruned_matrix(
    used: Kernel, m: int, n: int, chunks: int, split_k: int, seed: int
) -> None:
    dtype = used.family.inputs[-1]
    pattern = pattern_of(dtype)
    k = chunks * pattern.chunk
    a, b = operands(m, n, k, dtype, seed)
    pruned = prune(a, pattern)
    planned = plan(A100.gpu, Gemm(m, n, k, dtype, sparsity="2:4"), used, split_k, "reduce")
    order = order_of(planned, k, dtype.bits)
    np.testing.assert_array_equal(execute(compress(pruned, pattern), b, order), execute(pruned, b, order))


def test_the_compressed_operand_is_the_one_whose_rows_the_plan_counts_first() -> None:
    # A 2:4 kernel's first operand is A in either order of C; a dense one's is B where C lies in rows.
    for order in ("row", "column"):
        gemm = Gemm(512, 64, 256, Dtype.FP16, sparsity="2:4", order=order)
        shape = problem_of(gemm)
        assert (shape.m, shape.a.rows, shape.a.kept_fraction, shape.b.kept_fraction) == (512, 512, 0.5, 1.0)
        a, _ = operands(gemm.m, gemm.n, gemm.k, gemm.dtype)
        pattern = pattern_of(gemm.dtype)
        assert compress(prune(a, pattern), pattern).values.shape == (shape.m, shape.k * shape.a.kept_fraction)


def test_fp16_accumulators_go_with_2_to_4_too() -> None:
    a, b = operands(16, 8, 256, Dtype.FP16)
    pattern = pattern_of(Dtype.FP16)
    pruned = prune(a, pattern)
    order = order_of(planned_for(Gemm(16, 8, 256, Dtype.FP16, sparsity="2:4", accumulate="fp16")), 256, 16)
    assert order.accumulator == np.float16
    np.testing.assert_array_equal(execute(compress(pruned, pattern), b, order), execute(pruned, b, order))
