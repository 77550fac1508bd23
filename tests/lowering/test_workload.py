"""Workloads: operations and bytes, and refused values."""

import pytest

from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import LAYOUTS, Gemm

# Bytes of an element of A and B, and of C as libraries write it by default.
ELEMENT_BYTES = {
    Dtype.FP64: (8, 8),
    Dtype.FP32: (4, 4),
    Dtype.TF32: (4, 4),  # stored as FP32
    Dtype.FP16: (2, 2),
    Dtype.BF16: (2, 2),
    Dtype.INT8: (1, 4),  # INT32 results
    Dtype.INT4: (0.5, 4),
    Dtype.FP8: (1, 2),  # BF16 results
}


@pytest.mark.parametrize("dtype", Dtype)
def test_elements_have_the_size_in_which_they_are_stored(dtype: Dtype) -> None:
    assert (dtype.bits / 8, dtype.output_bits / 8) == ELEMENT_BYTES[dtype]


def test_a_multiply_add_counts_as_two_operations() -> None:
    assert Gemm(3, 5, 7, Dtype.FP32, batch=2).flops == 2 * 2 * 3 * 5 * 7


def test_sparsity_counts_the_operations_of_the_dense_product() -> None:
    dense, sparse = (Gemm(64, 64, 64, Dtype.FP16, sparsity=one) for one in ("dense", "2:4"))
    assert sparse.flops == dense.flops == 524288  # 2 x 64^3


@pytest.mark.parametrize(
    ("dtype", "accumulate"),
    [
        (Dtype.FP64, "fp64"),
        (Dtype.FP32, "fp32"),
        (Dtype.TF32, "fp32"),
        (Dtype.FP16, "fp32"),
        (Dtype.BF16, "fp32"),
        (Dtype.INT8, "int32"),
        (Dtype.INT4, "int32"),
        (Dtype.FP8, "fp32"),
    ],
)
def test_sums_are_kept_in_the_wider_type_unless_asked_otherwise(dtype: Dtype, accumulate: str) -> None:
    assert Gemm(8, 8, 8, dtype).accumulate == accumulate
    assert Gemm(8, 8, 8, dtype, accumulate="fp16").accumulate == "fp16"


def test_an_epilogue_may_write_another_type() -> None:
    assert Gemm(8, 8, 8, Dtype.INT8).output_bits == 32
    assert Gemm(8, 8, 8, Dtype.INT8, output="fp16").output_bits == 16
    with pytest.raises(ValueError, match=r"^output: expected one of fp64, .*, got 'fp12'$"):
        Gemm(8, 8, 8, Dtype.INT8, output="fp12")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_blas_layout_is_accepted(layout: str) -> None:
    assert Gemm(1, 1, 1, Dtype.FP32, layout=layout).layout == layout


@pytest.mark.parametrize("name", ["batch", "m", "n", "k"])
@pytest.mark.parametrize("size", [0, -4])
def test_a_size_below_one_is_refused_by_its_name(name: str, size: int) -> None:
    sizes = {"batch": 1, "m": 8, "n": 8, "k": 8, name: size}
    with pytest.raises(ValueError, match=f"^{name}: expected a positive integer, got {size}$"):
        Gemm(sizes["m"], sizes["n"], sizes["k"], Dtype.FP32, batch=sizes["batch"])


@pytest.mark.parametrize("name", ["batch", "m", "n", "k"])
def test_a_size_that_no_library_counts_to_is_refused_by_its_name(name: str) -> None:
    sizes = {"batch": 1, "m": 8, "n": 8, "k": 8, name: 2**63}
    with pytest.raises(ValueError, match=f"^{name}: more than 64 bits hold$"):
        Gemm(sizes["m"], sizes["n"], sizes["k"], Dtype.FP32, batch=sizes["batch"])


def test_words_that_mean_nothing_are_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"^layout: expected one of nn, nt, tn, tt, got 'row'$"):
        Gemm(1, 1, 1, Dtype.FP32, layout="row")
    with pytest.raises(ValueError, match=r"^sparsity: expected 'dense' or '2:4', got '1:2'$"):
        Gemm(1, 1, 1, Dtype.FP32, sparsity="1:2")
    with pytest.raises(ValueError, match=r"^order: expected 'row' or 'column', got 'diagonal'$"):
        Gemm(1, 1, 1, Dtype.FP32, order="diagonal")
