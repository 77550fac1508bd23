"""The union of operators: what each counts, and how it is read from named values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.numbers.formats import Dtype
from gpusim.workloads.convolution import CONVOLUTION_OPS, Convolution, ConvolutionShape
from gpusim.workloads.functions import COLUMN_REDUCTIONS, POINTWISE, REDUCTIONS, ROW_REDUCTIONS, SCHEMA_FUNCTIONS
from gpusim.workloads.gemm import GEMM_OPS, LAYOUTS, Gemm
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction
from gpusim.workloads.operators import OPS, Operator, operator_key, parse_operator
from gpusim.workloads.vector import Elementwise, LayerNorm, Reduction, Softmax

sizes = st.integers(1, 10**6)
dtypes = st.sampled_from(Dtype)


def convolution(images: int, op: str, dtype: Dtype, layout: str) -> Convolution:
    return Convolution(ConvolutionShape(images, 3, 224, 220, 64, 7, 5, (3, 0), (2, 1)), dtype, op, layout)


gemms = st.builds(
    Gemm,
    *(sizes, sizes, sizes, dtypes),
    batch=st.integers(1, 9),
    layout=st.sampled_from(LAYOUTS),
    sparsity=st.sampled_from(["dense", "2:4"]),
    accumulate=st.sampled_from(["", "fp16", "int32"]),
    output=st.sampled_from(["", "fp16", "int8"]),
    op=st.sampled_from(GEMM_OPS),
    b_dtype=st.none() | dtypes,
    beta=st.sampled_from([0.0, 1.0, -0.5, 2.0**-149]),
) | st.builds(Gemm, sizes, sizes, sizes, dtypes, op=st.just("linear"), bias=st.booleans())
functions = st.lists(st.sampled_from([name for name in POINTWISE if name != "copy"]), min_size=1, max_size=3).map(tuple)
accesses = st.builds(Access, sizes, dtypes, st.none() | sizes, st.none() | sizes)
tensors, results = (st.lists(accesses, min_size=least, max_size=3).map(tuple) for least in (0, 1))
operators = st.one_of(
    gemms,
    st.builds(
        convolution, st.integers(1, 9), st.sampled_from(CONVOLUTION_OPS), dtypes, st.sampled_from(["nchw", "nhwc"])
    ),
    st.builds(Softmax, sizes, sizes, dtypes),
    st.builds(LayerNorm, sizes, sizes, dtypes),
    st.builds(Elementwise, sizes, sizes, dtypes, st.sampled_from(list(SCHEMA_FUNCTIONS))),
    st.builds(Reduction, sizes, sizes, dtypes, st.sampled_from(list(REDUCTIONS))),
    st.builds(Pointwise, functions, sizes, tensors, results),
    st.builds(
        RowReduction, st.sampled_from(list(ROW_REDUCTIONS)), sizes, sizes, tensors, results, st.just(()) | functions
    ),
    st.builds(ColumnReduction, st.sampled_from(list(COLUMN_REDUCTIONS)), sizes, sizes, tensors, results),
)


@given(operators)
def test_the_columns_of_an_operator_give_it_back(operator: Operator) -> None:
    assert parse_operator(operator.columns) == operator
    assert parse_operator({name: str(value) for name, value in operator.columns.items()}) == operator


@given(operators, operators)
def test_operators_have_the_same_key_only_if_they_are_the_same(one: Operator, other: Operator) -> None:
    assert (operator_key(one) == operator_key(other)) == (one == other)


@given(operators)
def test_an_operator_names_itself_and_counts_at_least_a_byte_and_an_operation(operator: Operator) -> None:
    assert operator.op in OPS
    assert operator.flops >= 1
    assert operator.size_bytes > 0


@pytest.mark.parametrize(
    ("operator", "tensors"),
    [
        (Elementwise(128, 1000, Dtype.FP16, "add"), 3),
        (Elementwise(128, 1000, Dtype.FP16, "mul"), 3),
        (Elementwise(128, 1000, Dtype.FP16, "relu"), 2),
        (Elementwise(128, 1000, Dtype.FP16, "gelu"), 2),
        (Elementwise(128, 1000, Dtype.FP16, "tanh"), 2),
        (Softmax(128, 1000, Dtype.FP16), 2),
        (LayerNorm(128, 1000, Dtype.FP16), 2 + 2 / 128),  # a weight and a bias per column
        (Reduction(128, 1000, Dtype.FP16), 1 + 1 / 1000),
    ],
)
def test_an_operator_on_rows_reads_and_writes_each_tensor_once(operator: Operator, tensors: float) -> None:
    assert operator.size_bytes == pytest.approx(tensors * 128 * 1000 * 2)


def test_what_is_broadcast_is_read_once() -> None:
    x, bias = Access(64 * 1024, Dtype.FP16), Access(64 * 1024, Dtype.FP16, distinct=1024)
    chain = Pointwise(("add", "gelu"), 64 * 1024, (x, bias), (x,))
    assert chain.operand_bytes == 2 * (64 * 1024 + 1024)
    assert chain.result_bytes == 2 * 64 * 1024
    assert chain.flops == 64 * 1024 * (1 + Elementwise(1, 1, Dtype.FP16, "gelu").flops)


def test_a_move_has_bytes_and_no_arithmetic() -> None:
    cast = Pointwise(("copy",), 100, (Access(100, Dtype.FP32),), (Access(100, Dtype.FP16),))
    assert (cast.flops, cast.size_bytes, cast.dtype) == (0, 600, Dtype.FP16)


def test_a_convolution_counts_the_operations_of_its_implicit_multiplication() -> None:
    shape = ConvolutionShape(4, 1, 161, 700, 32, 5, 20, (0, 0), (2, 2))
    assert shape.output == (79, 341)
    assert shape.gemm == (4, 4 * 79 * 341, 32, 100)
    assert Convolution(shape, Dtype.FP16).flops == 2 * 4 * 79 * 341 * 32 * 100


def test_c_is_row_major_unless_the_order_says_otherwise() -> None:
    orders = {op: parse_operator({"op": op, "m": 8, "n": 8, "k": 8, "dtype": "fp16"}).columns["op"] for op in GEMM_OPS}
    assert orders == {op: op for op in GEMM_OPS}
    assert [Gemm(8, 8, 8, Dtype.FP16, op=op).order for op in GEMM_OPS] == ["row", "row", "row"]
    assert "order" not in Gemm(8, 8, 8, Dtype.FP16).columns
    assert Gemm(8, 8, 8, Dtype.FP16, order="column").columns["order"] == "column"
    assert parse_operator({"m": 8, "n": 8, "k": 8, "dtype": "half"}) == Gemm(8, 8, 8, Dtype.FP16)


def test_operands_of_two_types_count_the_bytes_of_each() -> None:
    mixed = Gemm(64, 128, 256, Dtype.FP8, b_dtype=Dtype.INT4)
    assert mixed.operand_bytes == 64 * 256 + 128 * 256 / 2
    assert Gemm(8, 8, 8, Dtype.FP16, b_dtype=Dtype.FP16) == Gemm(8, 8, 8, Dtype.FP16)


POINTWISE_ROW = {
    "op": "pointwise",
    "function": "add",
    "m": 4096,
    "n": 1,
    "dtype": "fp16",
    "reads": "4096 fp16",
    "writes": "4096 fp16",
}
CONVOLUTION = {
    "op": "conv_fwd",
    "n_img": 1,
    "in_channels": 3,
    "height": 8,
    "width": 8,
    "out_channels": 4,
    "filter_h": 3,
    "filter_w": 3,
    "dtype": "fp16",
}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"op": "softmux", "m": 1, "n": 1, "dtype": "fp16"}, "op: unknown 'softmux'; nearest: softmax, softplus"),
        ({"op": "softmax", "m": 1, "dtype": "fp16"}, "n: missing; softmax requires it"),
        ({"m": 1, "n": 1, "dtype": "fp16"}, "k: missing; gemm requires it"),
        ({"op": "add", "m": 1, "n": "1_0", "dtype": "fp16"}, "n: expected a positive integer, got '1_0'"),
        ({"op": "relu", "m": 1, "n": 1, "dtype": "bf61"}, "unknown data type 'bf61'; nearest: bf16, fp64, fp16"),
        ({"op": "relu", "m": 1, "n": 1, "dtype": "fp16", "sparsity": "2:4"}, "sparsity: relu is dense, got '2:4'"),
        (
            {"op": "bmm", "m": 1, "n": 1, "k": 1, "dtyp": "fp16"},
            "dtyp: not an argument of bmm; nearest: dtype, b_dtype, out_dtype",
        ),
        (
            {"op": "bmm", "m": 1, "n": 1, "k": 1, "dtype": "fp16", "bias": "yes"},
            "bias: only op linear adds one, got op 'bmm'",
        ),
        (
            {"op": "bmm", "m": 1, "n": 1, "k": 1, "dtype": "fp16", "order": "column"},
            "order: C of bmm is row-major, got 'column'; write op gemm",
        ),
        ({**CONVOLUTION, "filter_h": 9}, "filter_h, filter_w: the filter is larger than the padded image"),
        ({**CONVOLUTION, "stride_h": 0}, "stride_h: expected a positive integer, got 0"),
        ({**POINTWISE_ROW, "function": "addd"}, "functions: unknown 'addd'; nearest: add, add_scaled, adam"),
        (
            {**POINTWISE_ROW, "reads": "4096 fp16 run"},
            "expected an access such as '4096 fp16 run 8 distinct 64', got '4096 fp16 run'",
        ),
        ({**POINTWISE_ROW, "writes": "0 fp16"}, "elements: expected a positive integer, got '0'"),
        ({**CONVOLUTION, "layout": "nhcw"}, "layout: expected 'nchw' or 'nhwc', got 'nhcw'"),
    ],
)
def test_values_that_describe_no_operator_are_refused_by_their_name(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        _ = parse_operator(values)
    assert str(error.value) == problem
