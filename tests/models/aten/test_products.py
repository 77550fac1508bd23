"""Products: layouts as matrices lie, biases by version, copies of what lies otherwise."""

import pytest
from aten_calls import V100, call, tasks, tensor

from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Pointwise


def gemm(task: Task) -> Gemm:
    assert isinstance(task.operator, Gemm)
    return task.operator


@pytest.mark.parametrize(
    ("a_strides", "b_strides", "layout"),
    [((16, 1), (8, 1), "nn"), ((16, 1), (1, 16), "tn"), ((1, 32), (8, 1), "nt"), ((1, 32), (1, 16), "tt")],
)
def test_a_layout_follows_from_strides(a_strides: tuple[int, int], b_strides: tuple[int, int], layout: str) -> None:
    a, b = tensor((32, 16), strides=a_strides), tensor((16, 8), strides=b_strides)
    (task,) = tasks(call("mm", [a, b], [tensor((32, 8))]))
    assert gemm(task) == Gemm(32, 8, 16, Dtype.FP32, layout=layout, op="linear")
    assert task.call == "linear"


def test_a_matrix_without_neighbours_is_copied_first() -> None:
    """Neither of the strides is 1."""
    a, b = tensor((32, 16), strides=(512, 32)), tensor((16, 8))
    copy, product = tasks(call("mm", [a, b], [tensor((32, 8))]))
    assert isinstance(copy.operator, Pointwise)
    assert copy.operator.reads[0].run == 1
    assert product.reads[0] == copy.writes[0]
    assert (copy.call, product.call) == ("linear", "")


def test_a_gradient_is_called_as_one() -> None:
    (task,) = tasks(call("mm", [tensor((4, 8)), tensor((8, 4))], [tensor((4, 4))], "backward"))
    assert task.call == "linear_backward"


@pytest.mark.parametrize(
    ("version", "dims", "fused"), [("1.11", 3, False), ("1.12", 3, True), ("2.1", 4, False), ("2.2", 4, True)]
)
def test_a_bias_is_added_in_the_epilogue_by_version_and_dimensions(version: str, dims: int, fused: bool) -> None:
    x, weight = tensor((32, 16)), tensor((16, 8), strides=(1, 16))
    addmm = call("addmm", [tensor((8,)), x, weight], [tensor((32, 8))], input_dims=dims)
    launched = tasks(addmm, version=version)
    assert gemm(launched[0]).bias is fused
    assert len(launched) == 2 - fused


def test_the_dimensions_of_an_input_are_those_of_what_made_it() -> None:
    """A layer norm of four dimensions, of which the linear layer sees a matrix."""
    x = tensor((2, 4, 4, 16))
    rows = tensor((2, 4, 4, 1))
    norm = call("native_layer_norm", [x, None, None], [x, rows, rows], normalized_shape=[16])
    flat = type(x)(x.storage, "float32", (32, 16), (16, 1))
    addmm = call("addmm", [tensor((8,)), flat, tensor((16, 8))], [tensor((32, 8))])
    *_, product, bias = tasks(norm, addmm, version="2.1")
    assert not gemm(product).bias
    assert isinstance(bias.operator, Pointwise)
    assert bias.call == "add"


def test_what_a_product_is_added_to_is_copied_into_its_result() -> None:
    added, a, b = tensor((2, 4, 4)), tensor((2, 4, 8)), tensor((2, 8, 4))
    copy, product = tasks(call("baddbmm", [added, a, b], [tensor((2, 4, 4))]))
    assert isinstance(copy.operator, Pointwise)
    assert gemm(product) == Gemm(4, 4, 8, Dtype.FP32, batch=2, layout="nn", op="bmm", beta=1.0)


def test_a_factor_of_zero_leaves_it_out() -> None:
    added, a, b = tensor((2, 4, 4)), tensor((2, 4, 8)), tensor((2, 8, 4))
    (product,) = tasks(call("baddbmm", [added, a, b], [tensor((2, 4, 4))], beta=0))
    assert gemm(product).beta == 0.0


def test_products_of_tensors_in_fp32_stay_there_under_autocast() -> None:
    """A gradient that autocast does not cast; TF32 is not allowed for products by default."""
    product = call("mm", [tensor((32, 16)), tensor((16, 8))], [tensor((32, 8))])
    (task,) = tasks(product, precision="amp-fp16")
    assert gemm(task).dtype.value == "fp32"
    (task,) = tasks(product, precision="tf32")
    assert gemm(task).dtype.value == "tf32"


def test_products_of_half_precision_are_in_it() -> None:
    a, b = tensor((32, 16), "float16"), tensor((16, 8), "float16")
    (task,) = tasks(call("mm", [a, b], [tensor((32, 8), "float16")]), gpu=V100)
    assert gemm(task).dtype.value == "fp16"


def test_a_matrix_times_a_vector_has_one_column() -> None:
    (task,) = tasks(call("mv", [tensor((32, 16)), tensor((16,))], [tensor((32,))]))
    assert (gemm(task).m, gemm(task).n, gemm(task).k) == (32, 1, 16)
