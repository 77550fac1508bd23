"""Copies, joins, paddings, gathers, sorts, pools and losses."""

import pytest
from aten_calls import call, channels_last, tasks, tensor

from gpusim.models.layers.searches import RADIX_PASSES
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction


def pointwise(task: Task) -> Pointwise:
    assert isinstance(task.operator, Pointwise)
    return task.operator


def test_a_cast_reads_one_type_and_writes_another() -> None:
    (task,) = tasks(call("_to_copy", [tensor((8, 64))], [tensor((8, 64), "float16")]))
    assert pointwise(task).size_bytes == 512 * 6
    assert task.call == "cast"


def test_a_copy_in_another_order_reads_in_pieces() -> None:
    """Heads that lie side by side, copied beside each other."""
    heads = tensor((2, 4, 16, 32), strides=(2048, 32, 128, 1))
    (task,) = tasks(call("clone", [heads], [tensor((2, 4, 16, 32))]))
    assert pointwise(task).reads[0].run == 32


def test_a_copy_into_a_tensor_does_not_read_it() -> None:
    target, source = tensor((8, 64)), tensor((8, 64))
    (task,) = tasks(call("copy_", [target, source], [target]))
    assert task.reads == (source.tensor,)


def test_tensors_are_joined_in_pieces() -> None:
    parts = (tensor((4, 8, 16)), tensor((4, 24, 16)))
    (task,) = tasks(call("cat", [parts], [tensor((4, 32, 16))], dim=1))
    assert [one.run for one in pointwise(task).reads] == [None, None]
    assert pointwise(task).writes[0].run == 8 * 16
    (task,) = tasks(call("stack", [(tensor((4, 16)), tensor((4, 16)))], [tensor((4, 2, 16))], dim=1))
    assert pointwise(task).writes[0].run == 16


def test_padding_fills_and_copies() -> None:
    x = tensor((2, 8, 7, 7))
    fill, copy = tasks(call("constant_pad_nd", [x], [tensor((2, 8, 9, 9))], pad=[1, 1, 1, 1]))
    assert (pointwise(fill).reads, pointwise(fill).elements) == ((), 2 * 8 * 81)
    assert pointwise(copy).writes[0] == Access(784, Dtype.FP32, 7)


def test_padding_by_nothing_is_a_copy() -> None:
    x = tensor((2, 8, 7, 7))
    (task,) = tasks(call("constant_pad_nd", [x], [tensor((2, 8, 7, 7))], pad=[0, 0]))
    assert pointwise(task).function == "copy"


@pytest.mark.parametrize(
    ("name", "gradient", "arguments", "run"),
    [
        ("slice_backward", (4, 2, 16), {"dim": 1, "start": 0, "end": 2, "step": 1}, 32),
        ("select_backward", (4, 16), {"dim": 1, "index": 3}, 16),
    ],
)
def test_the_gradient_of_a_part_is_copied_onto_zeros(
    name: str, gradient: tuple[int, ...], arguments: dict[str, int], run: int
) -> None:
    fill, copy = tasks(call(name, [tensor(gradient)], [tensor((4, 8, 16))], "backward", **arguments))
    assert pointwise(fill).elements == 512
    assert pointwise(copy).writes[0].run == run
    assert pointwise(copy).reads[0].run is None


def test_the_gradient_of_a_part_without_elements_is_zeros() -> None:
    (fill,) = tasks(call("slice_backward", [tensor((4, 0, 16))], [tensor((4, 8, 16))], "backward", dim=1))
    assert pointwise(fill).reads == ()


def test_each_dimension_is_rolled_by_a_kernel() -> None:
    x = tensor((2, 8, 8, 16))
    assert len(tasks(call("roll", [x], [tensor((2, 8, 8, 16))], shifts=[3, 3], dims=[1, 2]))) == 2


# Gathers ------------------------------------------------------------------------------------------


def test_an_embedding_reads_the_rows_that_are_named() -> None:
    weight, indices = tensor((1000, 64)), tensor((8, 16), "int64")
    (task,) = tasks(call("embedding", [weight, indices], [tensor((8, 16, 64))]))
    assert pointwise(task).reads == (Access(128, Dtype.FP64), Access(8192, Dtype.FP32, 64))
    assert task.call == "embedding"


def test_the_gradient_of_an_embedding_sorts_many_indices() -> None:
    def launched(count: int) -> int:
        operands = [tensor((count, 64)), tensor((count,), "int64")]
        return len(tasks(call("embedding_dense_backward", operands, [tensor((1000, 64))], "backward")))

    assert (launched(3072), launched(3073)) == (2, 2 + RADIX_PASSES)


def test_an_index_reads_places_for_each_element() -> None:
    table, places = tensor((169, 12)), tensor((2401,), "int64")
    (task,) = tasks(call("index", [table, (places,)], [tensor((2401, 12))]))
    assert pointwise(task).reads == (Access(28812, Dtype.FP64, None, 2401), Access(28812, Dtype.FP32, 12, 2028))


def test_values_that_are_added_by_index_are_sorted_first() -> None:
    table, places, values = tensor((169, 12)), tensor((2401,), "int64"), tensor((2401, 12))
    launched = tasks(call("index_put", [table, (places,), values], [tensor((169, 12))], "backward", accumulate=True))
    assert len(launched) == 3 + RADIX_PASSES
    assert pointwise(launched[-1]).elements == 28812


def test_the_largest_elements_read_a_row_once_for_each_digit() -> None:
    x, results = tensor((8, 1000)), [tensor((8, 10)), tensor((8, 10), "int64")]
    select, _ = tasks(call("topk", [x], results, k=10))
    assert isinstance(select.operator, RowReduction)
    assert select.operator.n == 1000 * (32 // 8 + 2)


# Images -------------------------------------------------------------------------------------------


def test_a_pool_reads_windows_and_keeps_places() -> None:
    images = channels_last((2, 8, 8, 8))
    results = [channels_last((2, 8, 4, 4)), channels_last((2, 8, 4, 4), "int64")]
    pool = call("max_pool2d_with_indices", [images], results, kernel_size=[3, 3], stride=[2, 2], padding=[1, 1])
    (task,) = tasks(pool)
    assert pointwise(task).reads == (Access(2 * 8 * 16 * 9, Dtype.FP16, None, 1024),)
    assert len(task.writes) == 2


def test_the_gradient_of_a_largest_element_is_put_onto_zeros() -> None:
    images, gradient, places = tensor((2, 8, 8, 8)), tensor((2, 8, 4, 4)), tensor((2, 8, 4, 4), "int64")
    back = call("max_pool2d_with_indices_backward", [gradient, images, places], [tensor((2, 8, 8, 8))], "backward")
    fill, spread = tasks(back)
    assert pointwise(fill).reads == ()
    assert pointwise(spread).reads[0] == Access(1024, Dtype.FP32, 16, 256)


def test_images_of_another_size_read_their_corners() -> None:
    images, result = tensor((2, 8, 4, 4)), tensor((2, 8, 8, 8))
    (task,) = tasks(call("upsample_bilinear2d", [images], [result], output_size=[8, 8]))
    assert pointwise(task).reads == (Access(4096, Dtype.FP32, None, 256),)
    assert pointwise(task).writes[0].run == 64  # a thread for each pixel of a plane, where channels lie apart


def test_windows_are_laid_out_image_by_image() -> None:
    images, columns = tensor((4, 8, 14, 14)), tensor((4, 72, 49))
    launched = tasks(call("im2col", [images], [columns], kernel_size=[3, 3], padding=[1, 1], stride=[2, 2]))
    assert [one.operator.extents for one in launched if isinstance(one.operator, Pointwise)] == [(72 * 49, 1)] * 4
    assert [one.call for one in launched] == ["unfold", "", "", ""]


# Losses -------------------------------------------------------------------------------------------


def test_a_loss_takes_one_element_of_each_row() -> None:
    scores, targets = tensor((64, 1000)), tensor((64,), "int64")
    (task,) = tasks(call("nll_loss_forward", [scores, targets, None], [tensor(()), tensor(())], reduction=1))
    assert task.operator.size_bytes == 64 * (8 + 4) + 4


def test_a_loss_of_every_element_is_summed() -> None:
    a, b = tensor((64, 10)), tensor((64, 10))
    each, total = tasks(call("mse_loss", [a, b], [tensor(())], reduction=1))
    assert pointwise(each).functions == ("sub", "mul")
    assert isinstance(total.operator, RowReduction)


def test_recurrent_layers_multiply_all_inputs_then_each_place() -> None:
    x, hidden = tensor((5, 2, 16)), tensor((1, 2, 32))
    weights = (tensor((128, 16)), tensor((128, 32)), tensor((128,)), tensor((128,)))
    rnn = call("_cudnn_rnn", [x, weights, None, hidden, hidden, None], [tensor((5, 2, 32))], mode=2, hidden_size=32)
    layer = call("lstm", [x, (hidden, hidden), weights], [tensor((5, 2, 32)), hidden, hidden], num_layers=1)
    for one in (rnn, layer):
        products = [task.operator for task in tasks(one) if isinstance(task.operator, Gemm)]
        assert [(product.m, product.n, product.k) for product in products] == [(10, 128, 16)] + [(2, 128, 32)] * 5
