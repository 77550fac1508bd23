"""2:4 sparsity: pruning, metadata, and lossless decompression."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.numbers.formats import Dtype, SparsePattern
from gpusim.numerics.rounding import Floats
from gpusim.numerics.sparsity import SparsityError, compress, pattern_of, prune
from gpusim.workloads.gemm import Gemm

SPARSE = [dtype for dtype in Dtype if dtype.format.sparse]
INVALID = {0b0000, 0b0101, 0b1010, 0b1111}
"""Metadata of a chunk that PTX leaves undefined."""


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Floats, SparsePattern]:
    pattern = pattern_of(draw(st.sampled_from(SPARSE)))
    m, chunks = draw(st.integers(1, 9)), draw(st.integers(1, 21))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    a = generator.integers(-4, 5, (m, chunks * pattern.chunk)).astype(np.float64)  # many ties and zeros
    return a, pattern


@given(matrices())
def test_decompressing_what_was_compressed_gives_the_pruned_matrix(drawn: tuple[Floats, SparsePattern]) -> None:
    a, pattern = drawn
    pruned = prune(a, pattern)
    compressed = compress(pruned, pattern)
    assert compressed.values.shape == (len(a), a.shape[1] // 2)
    np.testing.assert_array_equal(compressed.decompressed(), pruned)


@given(matrices())
def test_pruning_keeps_the_heavier_half_of_each_chunk(drawn: tuple[Floats, SparsePattern]) -> None:
    a, pattern = drawn
    shape = (len(a), -1, pattern.groups, pattern.group)
    before, after = np.abs(a).reshape(shape).sum(axis=3), np.abs(prune(a, pattern)).reshape(shape).sum(axis=3)
    best = np.sort(before, axis=2)[:, :, pattern.groups // 2 :].sum(axis=2)
    np.testing.assert_array_equal(after.sum(axis=2), best)
    assert (np.count_nonzero(after, axis=2) <= pattern.groups // 2).all()
    assert ((after == 0) | (after == before)).all()


@given(matrices())
def test_pruning_what_is_pruned_changes_nothing(drawn: tuple[Floats, SparsePattern]) -> None:
    a, pattern = drawn
    pruned = prune(a, pattern)
    np.testing.assert_array_equal(prune(pruned, pattern), pruned)


@given(matrices())
def test_metadata_hold_four_bits_a_chunk_and_only_values_that_ptx_defines(drawn: tuple[Floats, SparsePattern]) -> None:
    a, pattern = drawn
    metadata = compress(prune(a, pattern), pattern).metadata
    chunks = a.shape[1] // pattern.chunk
    assert metadata.shape == (len(a), -(-chunks // 8))
    for row in metadata:
        codes = [int(row[chunk // 8]) >> (4 * (chunk % 8)) & 0xF for chunk in range(chunks)]
        assert not INVALID & set(codes)
        assert all(code & 3 < code >> 2 for code in codes)  # ascending, as mma.sp::ordered_metadata wants them


@pytest.mark.parametrize("dtype", SPARSE)
def test_the_compressed_form_is_as_large_as_the_traffic_that_is_counted_for_it(dtype: Dtype) -> None:
    gemm = Gemm(16, 8, 512, dtype, sparsity="2:4")
    pattern = pattern_of(dtype)
    compressed = compress(prune(np.random.default_rng(0).random((gemm.m, gemm.k)), pattern), pattern)
    assert compressed.values.size == gemm.kept_fraction * gemm.m * gemm.k
    assert 8 * compressed.metadata.nbytes == gemm.metadata_bits * gemm.m * gemm.k


def test_types_without_a_sparse_multiplication_have_no_pattern() -> None:
    for dtype in set(Dtype) - set(SPARSE):
        with pytest.raises(SparsityError, match=f"{dtype.value} has no 2:4 multiplication"):
            pattern_of(dtype)


def test_metadata_of_a_row_written_out() -> None:
    # Kept are 1 and 3 of the first chunk (0b1101), 0 and 1 of the second (0b0100), 2 and 3 of the third (0b1110).
    row = np.array([[0.0, 5, 0, 6, 7, 8, 0, 0, 0, 0, 9, 1]])
    compressed = compress(row, pattern_of(Dtype.FP16))
    assert compressed.values.tolist() == [[5, 6, 7, 8, 9, 1]]
    assert compressed.metadata.tolist() == [[0b1110_0100_1101]]
    assert compressed.columns().tolist() == [[1, 3, 4, 5, 10, 11]]


def test_tf32_keeps_one_of_two_under_the_two_codes_that_ptx_has_for_it() -> None:
    compressed = compress(np.array([[3.0, 0, 0, 4]]), pattern_of(Dtype.TF32))
    assert compressed.values.tolist() == [[3, 4]]
    assert compressed.metadata.tolist() == [[0b1110_0100]]


def test_int4_is_kept_and_pruned_in_pairs() -> None:
    pattern = pattern_of(Dtype.INT4)
    row = np.array([[7.0, 0, 1, 1, -3, 4, 0, 2]])
    pruned = prune(row, pattern)
    assert pruned.tolist() == [[7, 0, 0, 0, -3, 4, 0, 0]]
    compressed = compress(pruned, pattern)
    assert compressed.values.tolist() == [[7, 0, -3, 4]]
    assert compressed.metadata.tolist() == [[0b1000]]


def test_what_does_not_fit_the_pattern_is_refused_with_the_remedy() -> None:
    with pytest.raises(SparsityError, match="more than half non-zero groups; prune it first"):
        compress(np.ones((1, 4)), pattern_of(Dtype.FP16))
    with pytest.raises(SparsityError, match="6 is not a multiple of 4"):
        prune(np.ones((1, 6)), pattern_of(Dtype.FP16))
