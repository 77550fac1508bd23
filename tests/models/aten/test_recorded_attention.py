"""Attention: one kernel where the version and the GPU have one, else products around a softmax."""

from dataclasses import replace
from typing import Any

import pytest
from aten_calls import V100, call, tasks, tensor
from packaging.version import Version

from gpusim.models.aten.call import Call, TensorView
from gpusim.models.sdpa import Called, choice
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.workloads.attention import Attention
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Pointwise, RowReduction

HEADS, LENGTH, FEATURES = 4, 128, 64


def heads(dtype_name: str = "float16", held: int = HEADS, features: int = FEATURES) -> TensorView:
    """Heads side by side, as a linear layer leaves them."""
    row = held * features
    return tensor((2, held, LENGTH, features), dtype_name, (LENGTH * row, features, row, 1))


def attended(query: TensorView, key: TensorView, mask: TensorView | None = None, **arguments: Any) -> Call:
    sums = tensor(query.shape[:-1])
    result = heads(query.dtype_name, query.shape[1], query.shape[-1])
    return call("attention", [query, key, key, mask], [result, sums], dropout=0.0, causal=False, **arguments)


def kinds(launched: tuple[Task, ...]) -> list[str]:
    return [type(task.operator).__name__ for task in launched]


def test_one_kernel_takes_heads_as_they_lie() -> None:
    (task,) = tasks(attended(heads(), heads()), precision="fp16")
    assert isinstance(task.operator, Attention)
    assert replace(task.operator, implementation="") == Attention(2, HEADS, LENGTH, LENGTH, FEATURES, Dtype.FP16)
    assert task.call == "attention"


@pytest.mark.parametrize(
    ("version", "gpu", "dtype_name", "fused"),
    [
        ("1.13", "a100-sxm4-80gb", "float16", False),
        ("2.0", "a100-sxm4-80gb", "float16", True),
        ("2.0", "a100-sxm4-80gb", "float32", True),
        ("2.0", V100, "float16", True),
        ("2.0", V100, "bfloat16", False),
    ],
)
def test_versions_and_gpus_have_kernels(version: str, gpu: str, dtype_name: str, fused: bool) -> None:
    launched = tasks(attended(heads(dtype_name), heads(dtype_name)), version=version, gpu=gpu)
    assert (kinds(launched) == ["Attention"]) is fused


def test_a_mask_has_a_fused_kernel_since_2_1() -> None:
    mask = tensor((1, HEADS, LENGTH, LENGTH), "float16")
    (task,) = tasks(attended(heads(), heads(), mask), version="2.1", precision="fp16")
    assert isinstance(task.operator, Attention)
    assert (task.operator.mask, task.operator.mask_by) == (True, "hq")
    assert "Attention" not in kinds(tasks(attended(heads(), heads(), mask), version="2.0", precision="fp16"))


def test_a_mask_whose_rows_begin_anywhere_is_padded() -> None:
    mask = tensor((1, HEADS, LENGTH, LENGTH), "float16", (LENGTH * 129 * HEADS, LENGTH * 129, 129, 1))
    fill, copy, _ = tasks(attended(heads(), heads(), mask), precision="fp16")
    assert [one.operator.function for one in (fill, copy) if isinstance(one.operator, Pointwise)] == ["copy", "copy"]


@pytest.mark.parametrize(("version", "rows", "differs"), [("2.1.0", 2 * HEADS, "bhq"), ("2.1.2", HEADS, "hq")])
def test_a_mask_is_padded_for_every_sequence_before_2_1_2(version: str, rows: int, differs: str) -> None:
    """100 keys are padded to 112, or to 104."""
    row = HEADS * FEATURES
    key = tensor((2, HEADS, 100, FEATURES), "float16", (100 * row, FEATURES, row, 1))
    mask = tensor((1, HEADS, LENGTH, 100), "float16")
    fill, copy, attention = tasks(attended(heads(), key, mask), version=version, precision="fp16")
    assert isinstance(fill.operator, Pointwise)
    assert isinstance(copy.operator, Pointwise)
    assert copy.operator.elements == rows * LENGTH * 100
    assert fill.operator.elements == rows * LENGTH * (112 if rows > HEADS else 104)
    assert isinstance(attention.operator, Attention)
    assert attention.operator.mask_by == differs


def test_heads_of_an_odd_size_have_no_memory_efficient_kernel() -> None:
    query = heads("float32", features=50)
    assert "Attention" not in kinds(tasks(attended(query, query)))


def test_products_around_a_softmax_multiply_as_often() -> None:
    launched = tasks(attended(heads(), heads()), version="1.13", precision="fp16")
    flops = sum(one.operator.flops for one in launched if isinstance(one.operator, Gemm))
    assert flops == Attention(2, HEADS, LENGTH, LENGTH, FEATURES, Dtype.FP16).flops
    softmax = [one.operator for one in launched if isinstance(one.operator, RowReduction)]
    assert [one.extents for one in softmax] == [(2 * HEADS * LENGTH, LENGTH)]


def test_autocast_computes_a_softmax_that_is_spelled_out_in_fp32() -> None:
    launched = tasks(attended(heads(), heads()), version="1.13", precision="amp-fp16")
    (softmax,) = [one.operator for one in launched if isinstance(one.operator, RowReduction)]
    assert softmax.dtype.value == "fp32"


def test_heads_that_share_keys_are_repeated_for_products() -> None:
    query, key = heads(), heads(held=1)
    launched = tasks(attended(query, key), version="1.13", precision="fp16")
    assert [one.call for one in launched].count("repeat") == 2
    (task,) = tasks(attended(query, key), version="2.5", precision="fp16")
    assert isinstance(task.operator, Attention)
    assert task.operator.held_heads == 1


def test_gradients_of_three_inputs_come_from_one_kernel() -> None:
    query, sums = heads(), tensor((2, HEADS, LENGTH))
    operands = [heads(), query, query, query, heads(), sums, None]
    given = [heads(), heads(), heads(), tensor((0,), "float16")]
    backward = call("attention_backward", operands, given, "backward", dropout=0.0, causal=True, of_mask=False)
    (task,) = tasks(backward, precision="fp16")
    expected = Attention(2, HEADS, LENGTH, LENGTH, FEATURES, Dtype.FP16, "attention_bwd", causal=True)
    assert isinstance(task.operator, Attention)
    assert replace(task.operator, implementation="") == expected
    launched = tasks(backward, version="1.13", precision="fp16")
    products = [one.operator for one in launched if isinstance(one.operator, Gemm)]
    assert len(products) == 4
    assert {one.layout for one in products} == {"tn", "nt", "nn"}


# The implementation that a version takes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "gpu", "arguments", "chosen"),
    [
        # 8 heads of all sequences are few for FlashAttention-1 in inference.
        ("2.1", "a100-sxm4-80gb", {"mode": "inference"}, "memory_efficient"),
        ("2.1", "a100-sxm4-80gb", {}, "flash1"),
        ("2.2", "a100-sxm4-80gb", {}, "flash2"),
        ("2.2", "t4", {}, "memory_efficient"),
        ("2.5.0", "h100-sxm", {}, "cudnn"),
        ("2.5.1", "h100-sxm", {}, "flash2"),
        ("2.9.1", "h100-sxm", {}, "cudnn"),
        ("2.9.1", "a100-sxm4-80gb", {}, "flash2"),
        ("2.10", "h100-sxm", {}, "flash2"),
    ],
)
def test_a_version_names_its_implementation(version: str, gpu: str, arguments: dict[str, Any], chosen: str) -> None:
    (task,) = tasks(attended(heads(), heads()), version=version, gpu=gpu, precision="fp16", **arguments)
    assert isinstance(task.operator, Attention)
    assert task.operator.implementation == chosen


def test_a_mask_takes_the_memory_efficient_kernel_or_cudnns() -> None:
    mask = tensor((1, HEADS, LENGTH, LENGTH), "float16")
    for version, chosen in (("2.1", "memory_efficient"), ("2.7", "memory_efficient"), ("2.9", "cudnn")):
        (task,) = tasks(attended(heads(), heads(), mask), version=version, gpu="h100-sxm", precision="fp16")
        assert isinstance(task.operator, Attention)
        assert task.operator.implementation == chosen


@pytest.mark.parametrize(
    ("shape", "strides", "differs"),
    [
        ((2, 1, 1, LENGTH), None, "b"),
        ((LENGTH, LENGTH), None, "q"),
        ((2, HEADS, LENGTH, LENGTH), (0, LENGTH * LENGTH, LENGTH, 1), "hq"),
        ((2, HEADS, LENGTH, LENGTH), None, "bhq"),
        ((1, HEADS, 1, LENGTH), None, "h"),
    ],
)
def test_a_mask_differs_by_dimensions_that_are_not_broadcast(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, differs: str
) -> None:
    mask = tensor(shape, "float16", strides) if strides else tensor(shape, "float16")
    (task,) = tasks(attended(heads(), heads(), mask), precision="fp16")
    assert isinstance(task.operator, Attention)
    assert task.operator.mask_by == differs


MANY = Called(8, 12, 1024, 1024, 64, 64, Dtype.FP16, 12, trains=False)


@pytest.mark.parametrize(
    ("version", "capability", "changed", "chosen"),
    [
        ("2.0", (8, 0), {}, "flash1"),
        ("2.0", (8, 0), {"batch": 4}, "memory_efficient"),
        ("2.0", (8, 0), {"batch": 4, "queries": 127}, "flash1"),
        ("2.0", (8, 0), {"head_dim": 128, "value_dim": 128}, "memory_efficient"),
        ("2.0", (8, 0), {"head_dim": 128, "value_dim": 128, "dropout": 0.1}, "flash1"),
        ("2.0", (8, 6), {"head_dim": 128, "value_dim": 128}, "flash1"),
        ("2.0", (8, 0), {"mask": True}, "math"),
        ("2.0", (9, 0), {}, "memory_efficient"),
        ("2.1", (9, 0), {}, "flash1"),
        ("2.1", (7, 5), {}, "flash1"),
        ("2.1", (7, 5), {"dtype": Dtype.BF16}, "math"),
        ("2.1", (8, 0), {"trains": True, "batch": 14}, "flash1"),
        ("2.1", (8, 0), {"trains": True, "batch": 15}, "memory_efficient"),
        ("2.2", (8, 9), {"trains": True, "head_dim": 256, "value_dim": 256}, "memory_efficient"),
        ("2.2", (8, 0), {"causal": True, "keys": 2048}, "memory_efficient"),
        ("2.4", (8, 0), {"key_heads": 4}, "math"),
        ("2.5", (8, 0), {"key_heads": 4}, "flash2"),
        ("2.5", (8, 0), {"key_heads": 4, "mask": True}, "math"),
        ("2.9", (9, 0), {"dropout": 0.1}, "flash2"),
        ("2.9", (9, 0), {"dropout": 0.125}, "cudnn"),
        ("2.9", (9, 0), {"queries": 1}, "flash2"),
        ("2.9", (9, 0), {"dtype": Dtype.FP32}, "memory_efficient"),
    ],
)
def test_the_choice_follows_sizes_types_and_passes(
    version: str, capability: tuple[int, int], changed: dict[str, Any], chosen: str
) -> None:
    assert choice(Version(version), capability, replace(MANY, **changed)) == chosen
