"""Recorded calls of inference as an engine runs them."""

from __future__ import annotations

from typing import Any

from gpusim.models.aten.call import Call, TensorView, Trace
from gpusim.models.aten.engine import as_engine

CHANNELS = 64
IMAGE, WEIGHT, BIAS, SCALE = (TensorView(one, "float16", (CHANNELS,), (1,)) for one in (100, 101, 102, 103))


def tensor(storage: int) -> TensorView:
    return TensorView(storage, "float16", (8, CHANNELS), (CHANNELS, 1))


def call(name: str, reads: list[int], writes: int, *others: TensorView, **arguments: Any) -> Call:
    operands = (*map(tensor, reads), *others)
    return Call(f"{name}.default", name, "forward", operands, (tensor(writes),), arguments)


def engine(*calls: Call) -> list[tuple[str, list[int], int]]:
    """Calls that are left: their names, and the storages that they read and write."""
    found = as_engine(Trace(list(calls), {}, [()] * len(calls)))
    assert len(found.freed) == len(found.calls)
    return [(one.base, [view.storage for view in one.tensors], one.returned[0].storage) for one in found.calls]


def convolution(reads: int, writes: int) -> Call:
    return call("convolution", [reads], writes, WEIGHT, BIAS)


def norm(reads: int, writes: int) -> Call:
    return call("cudnn_batch_norm", [reads], writes, SCALE, BIAS)


def test_a_convolution_computes_its_bias_the_norm_and_one_activation() -> None:
    calls = [convolution(1, 2), norm(2, 3), call("relu_", [3], 3), call("sigmoid", [3], 4)]
    assert engine(*calls) == [("convolution", [1, 101], 3), ("sigmoid", [3], 4)]


def test_what_is_read_again_is_written_before_its_activation() -> None:
    calls = [convolution(1, 2), norm(2, 3), call("relu", [3], 4), call("add", [3, 4], 5)]
    assert [name for name, *_ in engine(*calls)] == ["convolution", "relu", "add"]


def test_a_result_in_place_may_be_read_often() -> None:
    calls = [convolution(1, 2), call("relu_", [2], 2), convolution(2, 3), convolution(2, 4)]
    assert engine(*calls) == [("convolution", [1, 101], 2), ("convolution", [2, 101], 3), ("convolution", [2, 101], 4)]


def test_a_norm_after_an_activation_or_without_a_product_stays() -> None:
    calls = [norm(1, 2), call("relu", [2], 3), convolution(3, 4), call("relu", [4], 5), norm(5, 6)]
    assert [name for name, *_ in engine(*calls)] == ["cudnn_batch_norm", "relu", "convolution", "cudnn_batch_norm"]


def test_the_bias_of_a_linear_layer_is_in_the_epilogue() -> None:
    product = Call("addmm.default", "", "forward", (BIAS, tensor(1), tensor(2)), (tensor(3),), {})
    assert engine(product, call("gelu", [3], 4)) == [("mm", [1, 2], 4)]


def test_a_matrix_that_is_added_to_a_product_stays() -> None:
    product = Call("addmm.default", "", "forward", (tensor(9), tensor(1), tensor(2)), (tensor(3),), {})
    assert engine(product) == [("addmm", [9, 1, 2], 3)]


def joined(parts: list[int], writes: int) -> Call:
    result = TensorView(writes, "float16", (8 * len(parts), CHANNELS), (CHANNELS, 1))
    return Call("cat.default", "", "forward", (tuple(map(tensor, parts)),), (result,), {})


def test_tensors_are_computed_into_their_concatenation() -> None:
    calls = [convolution(1, 2), convolution(1, 3), call("relu", [3], 4), joined([2, 4], 5), call("mean", [5], 6)]
    assert engine(*calls) == [("convolution", [1, 101], 5), ("convolution", [1, 101], 5), ("mean", [5], 6)]


def test_a_concatenation_copies_inputs_and_what_is_read_elsewhere() -> None:
    assert engine(joined([1, 2], 3)) == [("cat", [1, 2], 3)]
    again = [convolution(1, 2), convolution(1, 3), joined([2, 3], 4), call("mean", [3], 5)]
    assert [name for name, *_ in engine(*again)] == ["convolution", "convolution", "cat", "mean"]
