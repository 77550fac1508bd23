"""The backward pass of FlashAttention-3: its kernels beside their source, its programs, and published figures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpusim.cli import run_cli
from gpusim.library.attention import AttentionKernel
from gpusim.library.main_loops import WARPGROUP_WARPS
from gpusim.lowering.attention.plan import AttentionPlan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.attention_selection import planned_attention
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.program import Store, WarpgroupMma, executed
from gpusim.specs import load_spec
from gpusim.units import ceil_div
from gpusim.workloads.attention import Attention

H100 = "h100-sxm"
HEADS = (64, 96, 128, 192, 256)
BACKWARD = Attention(2, 8, 1000, 1100, 128, Dtype.BF16, "attention_bwd", implementation="flash3")


def _plan(operator: Attention, board: str = H100) -> AttentionPlan:
    return planned_attention(load_spec(board).system, operator, warm=True)


def _kernels() -> tuple[AttentionKernel, ...]:
    return tuple(
        one
        for one in load_spec(H100).system.library.attention_kernels
        if one.implementation == "flash3" and one.family.op == "attention_bwd"
    )


def _stored(planned: AttentionPlan, tensor: str) -> float:
    """What all CTAs store, or add, of a tensor [B]."""
    return sum(
        planned.launch.ctas * role.warps * times * one.size_bytes
        for role in planned.launch.roles
        for one, times in executed(role.program)
        if isinstance(one, Store) and one.tensor == tensor
    )


# Kernels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"head_dim": 40}, "FlashAttnBwdSm90<64, 128, 128>"),
        ({"head_dim": 72}, "FlashAttnBwdSm90<96, 64, 128>"),
        ({}, "FlashAttnBwdSm90<128, 80, 128>"),
        ({"causal": True}, "FlashAttnBwdSm90<128, 64, 128>"),
        ({"head_dim": 160}, "FlashAttnBwdSm90<192, 64, 96>"),
        ({"head_dim": 256, "causal": True}, "FlashAttnBwdSm90<256, 64, 80>"),
    ],
)
def test_the_kernel_follows_heads_and_mask(changed: dict[str, Any], name: str) -> None:
    assert _plan(replace(BACKWARD, **changed)).name == name


def test_it_is_launched_where_it_is_named() -> None:
    assert not _plan(replace(BACKWARD, implementation="")).name.startswith("FlashAttn")


@pytest.mark.parametrize("kernel", _kernels(), ids=lambda one: one.printed_name)
def test_shared_memory_is_that_of_the_arrays_of_the_source(kernel: AttentionKernel) -> None:
    """``TensorStorage`` of the main loop, and barriers behind it, in steps of what its arrays are aligned to."""
    tile, gradients = kernel.tile, kernel.tile.gradients
    assert gradients is not None
    head, staged = tile.max_head_dim, kernel.family.stages if gradients.stages > 1 else 1
    halves = 2 * tile.keys * head + (kernel.family.stages + gradients.stages) * tile.queries * head
    halves += (staged if tile.weights_in_registers else 2) * tile.queries * tile.keys
    words = gradients.adds_in_bulk * tile.queries * head
    statistics = 2 * kernel.family.stages * tile.queries
    arrays = 2 * halves + 4 * (words + statistics)
    assert arrays < tile.shared_bytes <= arrays + 2048


@pytest.mark.parametrize(
    ("board", "changed", "says"),
    [
        (H100, {"dtype": Dtype.FP32}, "no kernel for attention_bwd of fp32 by flash3 .*; they take fp16, bf16$"),
        (H100, {"mask": True}, "no kernel for attention_bwd of bf16 with a mask by flash3"),
        (H100, {"dropout": True}, "no kernel for attention_bwd of bf16 with dropout by flash3"),
        (H100, {"head_dim": 264}, "head_dim must be at most 256, got 264"),
        ("a100-sxm4-80gb", {}, "no kernel for attention_bwd of bf16 by flash3 .*; they have none$"),
    ],
)
def test_what_has_no_kernel_is_refused(board: str, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        _plan(replace(BACKWARD, **changed), board)


# Programs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", HEADS)
def test_warpgroups_multiply_every_score_five_times(head_dim: int) -> None:
    operator = replace(BACKWARD, head_dim=head_dim)
    planned = _plan(operator)
    consumer, tile = planned.launch.roles[-1], planned.kernel.tile
    multiplied = sum(
        planned.launch.ctas * consumer.warps * times * one.instructions * planned.instruction.fma
        for one, times in executed(consumer.program)
        if isinstance(one, WarpgroupMma)
    )
    rows = ceil_div(operator.queries, tile.queries) * tile.queries
    columns = ceil_div(operator.keys, tile.keys) * tile.keys
    padded = rows * columns / operator.queries / operator.keys
    assert multiplied == pytest.approx(operator.flops / 2 * padded, rel=1e-6)
    assert consumer.warps % WARPGROUP_WARPS == 0


@pytest.mark.parametrize("head_dim", HEADS)
def test_gradients_of_queries_are_added_for_every_tile_of_keys(head_dim: int) -> None:
    operator = replace(BACKWARD, head_dim=head_dim, queries=1280)
    planned = _plan(operator)
    passes = ceil_div(operator.keys, planned.kernel.tile.keys)
    assert _stored(planned, "sums") == pytest.approx(passes * 4 * operator.queries_elements)
    assert _stored(planned, "result") == pytest.approx(2 * operator.keys_bytes)
    # A warp of its own, except for heads of 256, which have no room for it in shared memory.
    adds = [
        any(isinstance(one, Store) and one.tensor == "sums" for one, _ in executed(role.program))
        for role in planned.launch.roles
    ]
    assert adds == ([False, True] if head_dim == 256 else [False, True, False])


def test_a_causal_mask_halves_what_is_met() -> None:
    whole, causal = (
        _plan(replace(BACKWARD, head_dim=64, queries=8192, keys=8192, causal=causal)) for causal in (False, True)
    )
    assert _stored(causal, "sums") / _stored(whole, "sums") == pytest.approx(0.5, abs=0.02)


def test_heads_that_share_keys_add_their_gradients_up() -> None:
    shared, own = replace(BACKWARD, heads=32, key_heads=8, keys=1024), replace(BACKWARD, heads=32, keys=1024)
    planned, alone = _plan(shared), _plan(own)
    assert _stored(planned, "result_sums") == 4 * 2 * (2 * shared.keys_bytes)
    assert not _stored(planned, "result")
    assert not _stored(alone, "result_sums")
    # Both gradients begin with zeros, and are converted in the end.
    assert len(planned.before) - len(alone.before) == len(planned.after) - len(alone.after) == 2


# Times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 64), (100, 300, 96), (700, 700, 128), (64, 2000, 192), (2000, 2000, 256)])
def test_no_time_is_below_its_bound(sizes: tuple[int, int, int], causal: bool) -> None:
    queries, keys, head_dim = sizes
    operator = replace(BACKWARD, queries=queries, keys=keys, head_dim=head_dim, causal=causal)
    result = predict(load_spec(H100).system, operator, Options(load="burst"))
    assert result.consistent
    assert result.kernel_time_us >= result.timing.bound_us


PUBLISHED_TFLOPS = {(512, 64): 272, (2048, 64): 422, (512, 128): 316, (2048, 128): 501, (16384, 128): 561}
"""Shah et al., FlashAttention-3 (arXiv:2407.08608), figure 6: the backward pass on an H100 SXM5 in FP16, without a
causal mask, by tokens of a sequence and elements of a head: 16,384 tokens of 2,048 features."""


@pytest.mark.parametrize(("size", "tflops"), PUBLISHED_TFLOPS.items())
def test_its_rate_is_near_published_ones(size: tuple[int, int], tflops: float) -> None:
    tokens, head_dim = size
    operator = Attention(16384 // tokens, 2048 // head_dim, tokens, tokens, head_dim, Dtype.FP16, "attention_bwd")
    operator = replace(operator, implementation="flash3")
    predicted = predict(load_spec(H100).system, operator, Options(l2="warm", load="sustained")).tflops
    assert predicted == pytest.approx(tflops, rel=0.2)


def test_a_model_trains_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["model", "llama2_7b", "--arch", H100, "--batch", "1", "--seq-len", "512", "--precision", "bf16"]
    asked += ["--attention", "flash3", "--version", "2.7", "--format", "json", "--jobs", "1", "--allow-oom"]
    assert run_cli(asked) == 0
    case = json.loads(capsys.readouterr().out)
    kernels = {one["op"]: one["kernel"] for one in case["operators"] if one["op"].startswith("attention")}
    assert kernels == {
        "attention_fwd": "FlashAttnFwdSm90<128, 128, 128>",
        "attention_bwd": "FlashAttnBwdSm90<128, 64, 128>",
    }
    assert not case["notes"]
