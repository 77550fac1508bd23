"""Functions of every element, reductions, fills and updates."""

from typing import Any

import pytest
from aten_calls import call, channels_last, launch, tasks, tensor

from gpusim.models.aten.lowering import LOWERINGS
from gpusim.models.aten.updates import FUSED_ELEMENTS
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.workloads.functions import FUNCTIONS
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction


def pointwise(task: Task) -> Pointwise:
    assert isinstance(task.operator, Pointwise)
    return task.operator


def test_every_function_and_its_gradient_has_a_call() -> None:
    for function in FUNCTIONS.values():
        for name in (*function.torch, *function.aten_gradients):
            assert name in LOWERINGS, name


@pytest.mark.parametrize(
    ("name", "arguments", "functions"),
    [
        ("relu_", {}, ("relu",)),
        ("gelu", {}, ("gelu",)),
        ("gelu", {"approximate": "tanh"}, FUNCTIONS["gelu_tanh"].functions),
        ("threshold_backward", {}, ("relu_backward",)),
        ("silu_backward", {}, ("silu_backward",)),
        ("hardtanh_backward", {}, ("mask", "mask")),
        ("pow", {"exponent": 2}, ("mul",)),
        ("pow", {"exponent": 0.5}, ("sqrt",)),
        ("pow", {"exponent": 1.7}, ("power",)),
        ("mul", {"other": 2}, ("scale",)),
        ("add", {"alpha": 2}, ("add_scaled",)),
        ("gt", {"other": 0}, ("mask",)),
    ],
)
def test_a_function_is_known_by_its_name(name: str, arguments: dict[str, Any], functions: tuple[str, ...]) -> None:
    x = tensor((8, 64))
    (task,) = tasks(call(name, [x], [x], **arguments))
    assert pointwise(task).functions == functions


def test_operands_are_broadcast_and_promoted() -> None:
    x, bias = tensor((8, 64), "float16"), tensor((64,))
    (task,) = tasks(call("add", [x, bias], [tensor((8, 64))]))
    assert pointwise(task).reads == (Access(512, Dtype.FP16), Access(512, Dtype.FP32, None, 64))
    assert pointwise(task).writes == (Access(512, Dtype.FP32),)


def test_an_operand_that_is_given_twice_is_read_once() -> None:
    x = tensor((8, 64))
    (task,) = tasks(call("mul", [x, x], [tensor((8, 64))]))
    assert len(task.reads) == 1


def test_layouts_that_differ_are_read_in_pieces() -> None:
    gradient, images = tensor((2, 8, 7, 7), "float16"), channels_last((2, 8, 7, 7))
    (task,) = tasks(call("threshold_backward", [gradient, images], [channels_last((2, 8, 7, 7))]))
    assert [one.run for one in pointwise(task).reads] == [1, None]


def test_dropout_keeps_a_mask() -> None:
    x = tensor((8, 64))
    (task,) = tasks(call("native_dropout", [x], [tensor((8, 64)), tensor((8, 64), "bool")], p=0.1, train=True))
    assert [one.dtype.value for one in pointwise(task).writes] == ["fp32", "int8"]


def test_a_fill_reads_nothing() -> None:
    (task,) = tasks(call("new_zeros", [tensor((4,))], [tensor((8, 64))], size=[8, 64]))
    assert (pointwise(task).reads, task.reads, task.call) == ((), (), "fill")


def test_tensors_without_elements_launch_nothing() -> None:
    assert not launch(call("add", [tensor((0, 4))], [tensor((0, 4))])).tasks


def test_changes_of_a_view_launch_nothing() -> None:
    x = tensor((8, 64))
    assert not launch(call("as_strided_", [x], [x])).tasks


def test_what_is_not_known_is_copied_and_counted() -> None:
    x = tensor((8, 64))
    result = launch(call("of_tomorrow", [x], [tensor((8, 64))]), call("relu", [x], [tensor((8, 64))]))
    assert result.unknown["of_tomorrow.default"].count == 1
    assert result.known_fraction == 0.5
    assert [pointwise(one).function for one in result.tasks] == ["copy", "relu"]


# Reductions ---------------------------------------------------------------------------------------


def test_a_mean_over_pixels_is_of_rows_or_of_columns() -> None:
    apart = call("mean", [tensor((2, 8, 7, 7))], [tensor((2, 8))], dim=[2, 3])
    beside = call("mean", [channels_last((2, 8, 7, 7))], [tensor((2, 8), "float16")], dim=[2, 3])
    rows, columns = tasks(apart, beside)
    assert isinstance(rows.operator, RowReduction)
    assert isinstance(columns.operator, ColumnReduction)
    assert columns.operator.extents == (49, 16)


def test_a_sum_without_dimensions_is_of_all() -> None:
    (task,) = tasks(call("sum", [tensor((8, 64))], [tensor(())]))
    assert isinstance(task.operator, RowReduction)
    assert task.operator.extents == (1, 512)


def test_a_variance_reads_once_and_gives_two() -> None:
    results = [tensor((8, 1)), tensor((8, 1))]
    (task,) = tasks(call("var_mean", [tensor((8, 64))], results, dim=[1]))
    assert isinstance(task.operator, RowReduction)
    assert (task.operator.function, len(task.writes)) == ("norm", 2)


def test_a_logarithm_of_a_sum_is_several_calls() -> None:
    launched = tasks(call("logsumexp", [tensor((8, 64))], [tensor((8,))], dim=[1]))
    assert [one.call for one in launched] == ["logsumexp", "sub", "exp", "sum", "log", "add"]


# Updates ------------------------------------------------------------------------------------------


def test_parameters_are_updated_together_as_many_as_one_launch_takes() -> None:
    large = tuple(tensor((FUSED_ELEMENTS // 2 + 1,)) for _ in range(3))
    step = call("_fused_adam_", [large, large, large, large], large[:1], "update")
    launched = tasks(step)
    assert [pointwise(one).function for one in launched] == ["adam"] * 3
    assert {one.call for one in launched} == {"optimizer"}
    assert len(launched[0].reads) == 4


def test_a_function_of_each_parameter_is_one_launch() -> None:
    values = (tensor((8,)), tensor((16,)))
    (task,) = tasks(call("_foreach_add_", [values, values], values[:1], "update", alpha=2))
    assert pointwise(task).functions == ("add_scaled",)
    assert pointwise(task).elements == 24
