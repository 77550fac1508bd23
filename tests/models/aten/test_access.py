"""What kernels touch of tensors with strides: runs, broadcasts, and the order of memory."""

from aten_calls import channels_last, tensor

from gpusim.models.aten.access import memory_order, order_of, reduction, suggests_channels_last, touched, whole
from gpusim.models.aten.call import TensorView
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Access, ColumnReduction, RowReduction


def test_contiguous_tensors_are_touched_in_one_run() -> None:
    assert whole(tensor((8, 4, 16))) == Access(512, Dtype.FP32)
    assert whole(channels_last((2, 8, 3, 3))) == Access(144, Dtype.FP16)


def test_a_slice_is_touched_in_pieces() -> None:
    """64 columns of 768."""
    assert whole(tensor((8, 64), strides=(768, 1))) == Access(512, Dtype.FP32, 64)


def test_a_transposed_operand_is_touched_one_by_one() -> None:
    result, operand = tensor((32, 64)), tensor((32, 64), strides=(1, 32))
    order = order_of(result.shape, result, operand)
    assert touched(operand, result.shape, order).run == 1
    assert touched(result, result.shape, order).run is None


def test_elements_few_places_apart_share_their_sectors() -> None:
    """Two elements of 2 B lie in each sector of 32 B: 8 sectors where one would do."""
    result, operand = tensor((8, 64), "float16"), tensor((8, 64), "float16", (1, 8))
    access = touched(operand, result.shape, order_of(result.shape, result, operand))
    assert access.run == 2


def test_two_tensors_of_one_order_are_touched_in_that_order() -> None:
    result, operand = channels_last((2, 8, 3, 3)), channels_last((2, 8, 3, 3))
    order = order_of(result.shape, result, operand)
    assert touched(operand, result.shape, order) == Access(144, Dtype.FP16)


def test_a_broadcast_tensor_has_fewer_distinct_elements() -> None:
    result, bias = tensor((8, 64)), tensor((64,))
    order = order_of(result.shape, result, bias)
    assert touched(bias, result.shape, order) == Access(512, Dtype.FP32, None, 64)


def test_windows_that_overlap_share_their_elements() -> None:
    """Windows of 4 with a step of 2 in 10 elements."""
    assert tensor((4, 4), strides=(2, 1)).distinct == 10


def test_dimensions_are_ordered_as_tensor_iterator_orders_them() -> None:
    """Where strides do not tell, the last dimension is the innermost."""
    assert memory_order((4, 8, 2), ((0, 0, 0),)) == (2, 1, 0)
    assert memory_order((4, 8, 2), ((1, 4, 32),)) == (0, 1, 2)


def test_a_pixel_of_many_channels_is_taken_for_channels_last_by_its_strides() -> None:
    assert not suggests_channels_last(tensor((2, 8, 1, 1)))
    assert suggests_channels_last(tensor((2, 8, 1, 1), strides=(8, 1, 8, 8)))
    assert suggests_channels_last(channels_last((2, 8, 3, 3)))
    assert not suggests_channels_last(tensor((8, 3, 3)))


def test_a_reduction_of_the_innermost_dimensions_is_of_rows() -> None:
    images, channels = tensor((2, 8, 3, 3)), tensor((2, 8))
    assert reduction("sum", images, [channels], (2, 3)) == RowReduction(
        "sum", 16, 9, (Access(144, Dtype.FP32),), (Access(16, Dtype.FP32),)
    )


def test_a_reduction_of_others_is_of_columns() -> None:
    rows, columns = tensor((32, 64)), tensor((64,))
    assert reduction("sum", rows, [columns], (0,)) == ColumnReduction(
        "sum", 32, 64, (Access(2048, Dtype.FP32),), (Access(64, Dtype.FP32),)
    )


def test_the_order_of_memory_decides_which() -> None:
    """Pixels are the innermost dimensions in NCHW, channels in NHWC."""
    channels = tensor((8,), "float16")
    apart = reduction("sum", tensor((2, 8, 3, 3), "float16"), [channels], (0, 2, 3))
    beside = reduction("sum", channels_last((2, 8, 3, 3)), [channels], (0, 2, 3))
    assert isinstance(apart, ColumnReduction)
    assert isinstance(beside, ColumnReduction)
    assert (apart.reads[0].run, beside.reads[0].run) == (9, None)
    pooled = reduction("sum", channels_last((2, 8, 3, 3)), [tensor((2, 8), "float16")], (2, 3))
    assert isinstance(pooled, ColumnReduction)
    assert (pooled.m, pooled.n) == (9, 16)


def test_all_of_a_tensor_is_one_row() -> None:
    assert reduction("sum", tensor((4, 8)), [tensor(())], range(2)).extents == (1, 32)
    assert reduction("sum", TensorView(0, "float32", (), ()), [tensor(())], ()).extents == (1, 1)
