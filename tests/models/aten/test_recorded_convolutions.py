"""Convolutions: sizes, layouts, biases, transposed ones, gradients."""

from typing import Any

from aten_calls import call, channels_last, launch, tasks, tensor

from gpusim.models.aten.call import Call, TensorView
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.workloads.convolution import Convolution, ConvolutionShape
from gpusim.workloads.memory_bound import ColumnReduction, Pointwise


def convolution(task: Task) -> Convolution:
    assert isinstance(task.operator, Convolution)
    return task.operator


def convolved(
    images: TensorView, weight: TensorView, result: TensorView, bias: TensorView | None = None, **arguments: Any
) -> Call:
    stated: dict[str, Any] = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False, "groups": 1}
    return call("convolution", [images, weight, bias], [result], **{**stated, **arguments})


def test_a_convolution_states_its_sizes() -> None:
    images, weight = tensor((2, 8, 14, 14)), tensor((16, 8, 3, 3))
    (task,) = tasks(convolved(images, weight, tensor((2, 16, 7, 7)), stride=[2, 2]))
    shape = ConvolutionShape(2, 8, 14, 14, 16, 3, 3, (1, 1), (2, 2))
    assert convolution(task) == Convolution(shape, Dtype.FP32, "conv_fwd", "nchw")
    assert task.call == "conv2d"


def test_the_bias_is_added_by_another_kernel() -> None:
    images, weight = tensor((2, 8, 14, 14)), tensor((16, 8, 3, 3))
    _, bias = tasks(convolved(images, weight, tensor((2, 16, 14, 14)), tensor((16,))))
    assert isinstance(bias.operator, Pointwise)
    assert bias.operator.function == "add"
    assert bias.operator.reads[1].distinct == 16
    assert bias.call == ""


def test_a_depthwise_kernel_of_pytorch_adds_its_own_bias() -> None:
    images, weight = tensor((2, 8, 14, 14)), tensor((8, 1, 3, 3))
    (task,) = tasks(convolved(images, weight, tensor((2, 8, 14, 14)), tensor((8,)), groups=8))
    assert convolution(task).shape.groups == 8


def test_images_are_copied_into_the_layout_of_the_weight() -> None:
    images, weight = tensor((2, 8, 14, 14), "float16"), channels_last((16, 8, 3, 3))
    copy, task = tasks(convolved(images, weight, channels_last((2, 16, 14, 14))), precision="fp16")
    assert isinstance(copy.operator, Pointwise)
    assert convolution(task).layout == "nhwc"


def test_a_signal_is_an_image_of_one_row() -> None:
    signal, weight = tensor((2, 8, 100)), tensor((16, 8, 5))
    one = convolved(signal, weight, tensor((2, 16, 50)), stride=[2], padding=[2], dilation=[1])
    (task,) = tasks(one)
    assert convolution(task).shape == ConvolutionShape(2, 8, 1, 100, 16, 1, 5, (0, 2), (1, 2))


def test_a_volume_multiplies_as_often_as_its_slices() -> None:
    volume, weight = tensor((2, 8, 4, 14, 14)), tensor((16, 8, 3, 3, 3))
    every: dict[str, Any] = {"stride": [1, 1, 1], "padding": [1, 1, 1], "dilation": [1, 1, 1]}
    (task,) = tasks(convolved(volume, weight, tensor((2, 16, 4, 14, 14)), **every))
    assert convolution(task).flops == 2 * 2 * 16 * 4 * 14 * 14 * 8 * 27


def test_a_filter_with_gaps_has_as_many_results() -> None:
    images, weight = tensor((2, 8, 14, 14)), tensor((16, 8, 3, 3))
    one = convolved(images, weight, tensor((2, 16, 14, 14)), padding=[2, 2], dilation=[2, 2])
    (task,) = tasks(one)
    assert convolution(task).shape.output == (14, 14)
    cropped = convolved(images, weight, tensor((2, 16, 6, 6)), padding=[0, 0], dilation=[4, 4])
    (task,) = tasks(cropped)
    assert convolution(task).shape.output == (6, 6)


def test_a_transposed_convolution_is_the_gradient_of_one() -> None:
    images, weight = tensor((2, 16, 7, 7)), tensor((16, 8, 2, 2))
    one = convolved(images, weight, tensor((2, 8, 14, 14)), stride=[2, 2], padding=[0, 0], transposed=True)
    (task,) = tasks(one)
    shape = ConvolutionShape(2, 8, 14, 14, 16, 2, 2, (0, 0), (2, 2))
    assert convolution(task) == Convolution(shape, Dtype.FP32, "conv_bwd_inputs", "nchw")


def test_gradients_are_those_that_are_asked_for() -> None:
    gradient, images, weight = tensor((2, 16, 14, 14)), tensor((2, 8, 14, 14)), tensor((16, 8, 3, 3))
    results = [None, tensor((16, 8, 3, 3)), tensor((16,))]
    arguments = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1], "output_mask": [False, True, True]}
    one = call("convolution_backward", [gradient, images, weight], results, "backward", **arguments)
    of_weight, of_bias = tasks(one)
    assert convolution(of_weight).op == "conv_bwd_weights"
    assert isinstance(of_bias.operator, ColumnReduction)
    assert of_bias.operator.extents == (2 * 14 * 14, 16)


def test_a_strange_convolution_is_a_copy_that_is_counted() -> None:
    """A filter larger than its image, which no kernel takes."""
    images, weight = tensor((2, 8, 2, 2)), tensor((16, 8, 3, 3))
    result = launch(convolved(images, weight, tensor((2, 16, 1, 1)), padding=[0, 0]))
    assert result.unknown["convolution.default"].count == 1
    assert len(result.tasks) == 1
