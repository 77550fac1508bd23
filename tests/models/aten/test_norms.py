"""Norms and softmax: rows, channels in either layout, and their gradients."""

from dataclasses import replace

import pytest
from aten_calls import call, channels_last, tasks, tensor

from gpusim.models.aten.call import TensorView
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction


def channel_values(count: int, channels: int = 8) -> list[TensorView]:
    return [tensor((channels,)) for _ in range(count)]


def test_a_norm_of_rows_keeps_statistics() -> None:
    x, rows = tensor((4, 32, 64)), tensor((4, 32, 1))
    norm = call(
        "native_layer_norm", [x, tensor((64,)), tensor((64,))], [tensor((4, 32, 64)), rows, rows], normalized_shape=[64]
    )
    (task,) = tasks(norm)
    assert isinstance(task.operator, RowReduction)
    assert task.operator.extents == (128, 64)
    assert task.operator.reads[1] == Access(8192, Dtype.FP32, None, 64)
    assert task.call == "layer_norm"


def test_rows_that_lie_otherwise_are_copied_first() -> None:
    """Channels of an image, moved to the end by a view."""
    x, rows = tensor((2, 14, 14, 8), strides=(1568, 14, 1, 196)), tensor((2, 14, 14, 1))
    norm = call("native_layer_norm", [x, None, None], [tensor((2, 14, 14, 8)), rows, rows], normalized_shape=[8])
    copy, _ = tasks(norm)
    assert isinstance(copy.operator, Pointwise)
    assert copy.operator.reads[0].run == 1


def test_gradients_of_a_norm_of_rows_are_two_kernels() -> None:
    x, rows, weight = tensor((64, 64)), tensor((64, 1)), tensor((64,))
    results = [tensor((64, 64)), tensor((64,)), tensor((64,))]
    operands = [tensor((64, 64)), x, rows, rows, weight, weight]
    first, second = tasks(call("native_layer_norm_backward", operands, results, "backward", normalized_shape=[64]))
    assert isinstance(first.operator, RowReduction)
    assert first.reads[-1] == weight.tensor
    assert isinstance(second.operator, ColumnReduction)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_channels_are_normalised_by_statistics_of_the_batch(layout: str) -> None:
    images = channels_last((2, 8, 7, 7)) if layout == "nhwc" else tensor((2, 8, 7, 7), "float16")
    result = TensorView(-5, "float16", images.shape, images.strides)
    operands = [images, *channel_values(4)]
    norm = call("cudnn_batch_norm", operands, [result, *channel_values(2), tensor((0,), "uint8")], training=True)
    statistics, normalised = tasks(norm, precision="amp-fp16")
    run = None if layout == "nhwc" else 49
    assert isinstance(statistics.operator, ColumnReduction)
    assert statistics.operator.reads == (Access(784, Dtype.FP16, run),)
    assert isinstance(normalised.operator, Pointwise)
    assert [one.distinct for one in normalised.operator.reads] == [None, 8, 8, 16]
    assert (statistics.call, normalised.call) == ("batch_norm", "")


@pytest.mark.parametrize(
    ("operator", "images", "function"),
    [
        ("cudnn_batch_norm", tensor((2, 8, 7, 7)), "normalise_inference"),
        ("native_batch_norm", tensor((2, 8, 7, 7)), "normalise"),  # where PyTorch leaves cuDNN out, as of FP16 weights
        ("cudnn_batch_norm", channels_last((2, 8, 7, 7)), "normalise"),
        ("cudnn_batch_norm", tensor((1024, 128, 128, 128)), "normalise"),  # 2^31 elements
    ],
)
def test_channels_are_normalised_by_known_statistics_in_one_kernel(
    operator: str, images: TensorView, function: str
) -> None:
    norm = call(operator, [images, *channel_values(4, images.shape[1])], [replace(images, storage=-9)], training=False)
    (task,) = tasks(norm, mode="inference")
    assert isinstance(task.operator, Pointwise)
    assert task.operator.function == function


def test_the_gradient_of_a_norm_of_channels_sums_first() -> None:
    images, gradient = tensor((2, 8, 7, 7)), tensor((2, 8, 7, 7))
    operands = [images, gradient, *channel_values(5)]
    results = [tensor((2, 8, 7, 7)), *channel_values(2)]
    sums, given = tasks(call("cudnn_batch_norm_backward", operands, results, "backward"))
    assert sums.reads == (gradient.tensor, images.tensor)
    assert isinstance(given.operator, Pointwise)
    assert given.operator.function == "normalise_backward"


def extents(task: Task) -> tuple[int, int]:
    """Rows and columns of the elements that a task computes with."""
    assert isinstance(task.operator, ColumnReduction | Pointwise | RowReduction)
    return task.operator.extents


def test_groups_of_channels_have_a_cta_each_for_their_statistics() -> None:
    images, rows = tensor((2, 8, 7, 7)), [tensor((2, 4)), tensor((2, 4))]
    norm = call("native_group_norm", [images, *channel_values(2)], [tensor((2, 8, 7, 7)), *rows], group=4)
    statistics, factors, normalised = tasks(norm)
    assert isinstance(statistics.operator, ColumnReduction)
    assert statistics.operator.reads == (Access(784, Dtype.FP32, 98),)
    assert extents(factors) == (16, 1)
    assert isinstance(normalised.operator, Pointwise)
    assert [one.distinct for one in normalised.operator.reads] == [None, 16, 16]


def test_gradients_of_groups_follow_from_sums_over_pixels() -> None:
    images, rows = tensor((2, 8, 7, 7)), [tensor((2, 4)), tensor((2, 4))]
    operands = [tensor((2, 8, 7, 7)), images, *rows, *channel_values(1)]
    results = [tensor((2, 8, 7, 7)), *channel_values(2)]
    launched = tasks(call("native_group_norm_backward", operands, results, "backward", group=4))
    assert [extents(one) for one in launched] == [(49, 16), (16, 1), (16, 1), (784, 1), (2, 8), (2, 8)]


@pytest.mark.parametrize(("dim", "extents"), [(-1, (32, 64)), (0, (256, 8))])
def test_softmax_is_of_rows_along_a_dimension(dim: int, extents: tuple[int, int]) -> None:
    x = tensor((8, 4, 64))
    (task,) = tasks(call("_softmax", [x], [tensor((8, 4, 64))], dim=dim, half_to_float=False))
    assert isinstance(task.operator, RowReduction)
    assert task.operator.extents == extents
    assert task.call == "softmax"


def test_the_gradient_of_softmax_is_multiplied_with_its_result_first() -> None:
    x = tensor((8, 64), "float16")
    product, rows = tasks(call("_softmax_backward_data", [x, tensor((8, 64), "float16")], [x], "backward", dim=-1))
    assert isinstance(product.operator, Pointwise)
    assert product.operator.function == "mul"
    assert isinstance(rows.operator, RowReduction)
    assert rows.reads[0] == product.writes[0]
    assert (product.call, rows.call) == ("softmax_backward", "")


def test_a_norm_of_weights_is_of_each_filter() -> None:
    weight, size = tensor((16, 8, 3)), tensor((16, 1, 1))
    norm, scaled = tasks(call("_weight_norm_interface", [weight, size], [tensor((16, 8, 3)), tensor((16, 1, 1))]))
    assert isinstance(norm.operator, RowReduction)
    assert norm.operator.extents == (16, 24)
    assert isinstance(scaled.operator, Pointwise)
    assert [one.distinct for one in scaled.operator.reads] == [None, 16, 16]
