"""Attention to a cache whose keys and values have a type of their own: a byte an element."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpusim.cli import run_cli
from gpusim.launch import Launch
from gpusim.lowering.attention.append import append_plan
from gpusim.lowering.attention.plan import AttentionPlan
from gpusim.lowering.attention.splits import key_split_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.attention_selection import planned_attention
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.program import Alu, LoadShared, Repeat, Store, WarpgroupMma, executed
from gpusim.specs import load_spec
from gpusim.workloads.attention import Attention

A100, H100, L40S = "a100-sxm4-80gb", "h100_sxm", "l40s"
BOARDS = (A100, H100, L40S)
OPTIONS = Options(l2="cold", load="burst", limits=False)
KEPT = Attention(32, 32, 1, 8192, 128, Dtype.BF16, key_heads=8, packed=True, page_tokens=16)
"""A decoding step of Llama-3 8B for 32 sequences, its cache in 16 bits."""
BYTE = replace(KEPT, kv_dtype=Dtype.FP8)


def _planned(board: str, operator: Attention) -> AttentionPlan:
    return planned_attention(load_spec(board).system, operator, warm=False)


def _kernels(board: str, operator: Attention) -> list[str]:
    return [one.name for one in _planned(board, operator).launches]


def _predicted(board: str, operator: Attention) -> Result:
    return predict(load_spec(board).system, operator, OPTIONS)


# What is requested -----------------------------------------------------------------------------------


def test_keys_and_values_alone_take_a_byte() -> None:
    assert (BYTE.keys_bytes, BYTE.queries_bytes) == (KEPT.keys_bytes / 2, KEPT.queries_bytes)
    assert BYTE.flops == KEPT.flops
    assert replace(KEPT, kv_dtype=Dtype.BF16) == KEPT


def test_new_tokens_are_read_as_computed_and_kept_in_a_byte() -> None:
    wide, narrow = (replace(one, appends=True) for one in (KEPT, BYTE))
    assert narrow.new_bytes == wide.new_bytes == wide.appended_bytes == 2 * narrow.appended_bytes
    stored = []
    for operator in (wide, narrow):
        launch = append_plan(load_spec(H100).system.gpu, operator, warm=False).launch
        (role,) = launch.roles
        each = sum(times * op.size_bytes for op, times in executed(role.program) if isinstance(op, Store))
        stored.append(launch.ctas * role.warps * each)
    assert stored == pytest.approx([wide.appended_bytes, narrow.appended_bytes])


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"page_tokens": None}, "kv_dtype: only pages of a cache keep another type; give page_tokens, too"),
        ({"kv_dtype": "fp9"}, "fp9"),
    ],
)
def test_contradictions_are_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        replace(BYTE, **changed)


# Which kernels run -----------------------------------------------------------------------------------


def test_hopper_multiplies_in_fp8_and_converts_queries_before() -> None:
    assert _kernels(H100, BYTE) == [
        "scaled_fp8_quant_kernel_strided",
        "FlashAttnFwdSm90<e4m3, 128, 64, 96>",
        "FlashAttnFwdCombine",
    ]
    assert _kernels(H100, replace(BYTE, queries=2048, causal=True))[1] == "FlashAttnFwdSm90<e4m3, 128, 128, 160>"
    planned = _planned(H100, BYTE)
    (multiplied,) = {
        op.instruction
        for role in planned.launch.roles
        for op, _ in executed(role.program)
        if isinstance(op, WarpgroupMma)
    }
    assert multiplied == planned.kernel.family.instruction == "wgmma_32_fp8"


@pytest.mark.parametrize(("board", "keys"), [(A100, 256), (L40S, 128)])
def test_other_boards_take_the_tile_of_which_an_sm_holds_two(board: str, keys: int) -> None:
    """By hand: 16 queries of 128 in 16 bits and two tiles of 256 keys, 69,632 bytes, twice in 164 KiB, not in 100."""
    assert _kernels(board, BYTE) == [f"BatchPrefillWithPagedKVCacheKernel<e4m3, 128, 16, {keys}>"]
    for queries, tile in ((4, "16"), (16, "64"), (17, "128")):  # four heads share keys
        assert f"<e4m3, 128, {tile}, " in _kernels(board, replace(BYTE, queries=queries))[0]


def test_what_no_engine_has_is_refused() -> None:
    refused = "in pages with keys in int8 in its kernel catalogues; keys may be in fp8"
    with pytest.raises(UnsupportedError, match=refused):
        _planned(H100, replace(BYTE, kv_dtype=Dtype.INT8))
    for board in (A100, H100):
        with pytest.raises(UnsupportedError, match="with keys in fp8 by flash2"):
            _planned(board, replace(BYTE, implementation="flash2"))
    with pytest.raises(UnsupportedError, match="they have none for keys of another type"):
        _planned("t4", replace(BYTE, dtype=Dtype.FP16))


def test_flashinfer_divides_keys_into_the_smallest_chunks_that_fit() -> None:
    """Counted for 108 SMs of two CTAs: 216 // 8 heads are 27 chunks of one sequence, 13 of each of two."""
    for batch, keys, parts in ((1, 65536, 27), (2, 65536, 13), (1, 1024, 8), (27, 65536, 1), (64, 65536, 1)):
        operator = replace(BYTE, batch=batch, keys=keys)
        planned = _planned(A100, operator)
        assert key_split_of(operator, planned.kernel, 108).parts == planned.grid.splits == parts


# What they do ----------------------------------------------------------------------------------------


def _read_from_shared(launch: Launch, role: int) -> float:
    one = launch.roles[role]
    each = sum(times * op.size_bytes for op, times in executed(one.program) if isinstance(op, LoadShared))
    return launch.ctas * one.warps * each


def test_values_are_turned_once() -> None:
    """The producer alone reads shared memory to turn values: once each, as it brings them."""
    assert _read_from_shared(_planned(H100, BYTE).launch, 0) == pytest.approx(BYTE.keys_bytes, rel=0.01)
    assert _read_from_shared(_planned(H100, KEPT).launch, 0) == 0.0


@pytest.mark.parametrize(("queries", "warps"), [(1, 1), (2048, 4)])
def test_every_warp_along_the_queries_converts_all_it_multiplies(queries: int, warps: int) -> None:
    planned = _planned(A100, replace(BYTE, queries=queries))
    family, (role,) = planned.kernel.family, planned.launch.roles
    assert planned.kernel.tile.warps[0] == warps
    multiplications = sum(
        times * work["fma"]
        for op, times in executed(role.program)
        if isinstance(op, Alu)
        for work in [dict(op.work)]
        if work.keys() == {"fma", "alu"}
        and work["alu"] / work["fma"] == pytest.approx(family.convert.alu / family.convert.fma)
    )
    assert planned.grid.splits == 1
    converted = role.warps * multiplications / family.convert.fma * 32
    assert converted == pytest.approx(warps * 2 * BYTE.keys * BYTE.head_dim)


# Times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", BOARDS)
def test_long_contexts_read_half_the_bytes_in_little_more_than_half_the_time(board: str) -> None:
    wide, narrow = (_predicted(board, one) for one in (KEPT, BYTE))
    assert narrow.counters.dram_read_bytes / wide.counters.dram_read_bytes == pytest.approx(0.5, rel=0.02)
    assert narrow.timing.bound_us == pytest.approx(wide.timing.bound_us / 2, rel=0.01)
    assert narrow.timing.bound_us < narrow.kernel_time_us < 0.7 * wide.kernel_time_us


@pytest.mark.parametrize("board", BOARDS)
def test_no_time_is_below_its_bound(board: str) -> None:
    for head_dim in (64, 128, 256):
        for queries, keys, batch in ((1, 256, 1), (1, 4096, 64), (5, 2048, 3), (512, 1024, 2)):
            operator = replace(BYTE, head_dim=head_dim, queries=queries, keys=keys, batch=batch, causal=queries > 1)
            result = _predicted(board, operator)
            assert result.consistent
            assert result.kernel_time_us >= result.timing.bound_us


def test_a_cache_in_fp8_pays_beyond_some_thousand_tokens_on_hopper() -> None:
    """Published, and within the two: what a further token of the cache takes, over that in BF16, and where both meet.

    vLLM, "The State of FP8 KV-Cache and Attention Quantization" (2026), Llama-3.1 8B: 0.54 at best, 7,000 tokens.
    vllm-project/flash-attention pull request 96, whose tiles these are, Qwen3-Coder-30B: 1 / 1.39.
    """
    short, long = 1024, 65536
    wide, narrow = (
        [_predicted(H100, replace(one, batch=1, keys=keys)).kernel_time_us for keys in (short, long)]
        for one in (KEPT, BYTE)
    )
    slopes = [(times[1] - times[0]) / (long - short) for times in (wide, narrow)]
    assert 0.54 < slopes[1] / slopes[0] < 1 / 1.39
    even = short + (narrow[0] - wide[0]) / (slopes[0] - slopes[1])
    assert 7000 / 2 < even < 7000 * 2


@pytest.mark.parametrize(("head_dim", "heads"), [(64, 32), (128, 16)])
def test_prompts_gain_nothing_on_hopper(head_dim: int, heads: int) -> None:
    """vllm-project/flash-attention pull request 122, sums behind each tile: 1.36 to 1.56 times the time of BF16.

    Predictions are too fast.
    """
    prompt = {"batch": 8, "queries": 2048, "keys": 2048, "causal": True, "heads": heads, "key_heads": None}
    wide, narrow = (
        _predicted(H100, replace(one, head_dim=head_dim, **prompt))  # type: ignore[arg-type]
        for one in (KEPT, BYTE)
    )
    assert 1.0 < narrow.kernel_time_us / wide.kernel_time_us < 1.3


def test_multiplications_of_scores_wait_for_each_other() -> None:
    """By hand: heads of 128 are four instructions deep, and tiles of 160 keys five."""
    _, consumer = _planned(H100, replace(BYTE, queries=2048, causal=True)).launch.roles
    first, loop, last = (op for op in consumer.program if isinstance(op, Repeat))
    within = [op.times for op in loop.body if isinstance(op, Repeat)]
    assert [first.times, *within, last.times] == [4, 4, 5, 5]
    _, consumer = _planned(H100, KEPT).launch.roles
    assert len([op for op in consumer.program if isinstance(op, Repeat)]) == 1


@pytest.mark.parametrize("board", [A100, L40S])
def test_prompts_convert_in_every_tile_and_take_longer(board: str) -> None:
    """flashinfer-ai/flashinfer issue 3484 has 1.2 to 1.4 times the time of BF16, on another board."""
    prompt = {"batch": 1, "queries": 4096, "keys": 4096, "causal": True}
    wide, narrow = (_predicted(board, replace(one, **prompt)) for one in (KEPT, BYTE))  # type: ignore[arg-type]
    assert 1.1 < narrow.kernel_time_us / wide.kernel_time_us < 1.7


# The command -----------------------------------------------------------------------------------------


def test_the_command_takes_the_type(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["attention", "--arch", "h100-sxm", "--batch", "8", "--heads", "32", "--key-heads", "8", "--queries", "1"]
    asked += ["--keys", "4096", "--head-dim", "128", "--dtype", "bf16", "--packed", "--format", "json"]
    assert run_cli([*asked, "--page-tokens", "16", "--kv-dtype", "fp8"]) == 0
    said = json.loads(capsys.readouterr().out)
    (case,) = said if isinstance(said, list) else [said]
    assert case["kernel"] == "FlashAttnFwdSm90<e4m3, 128, 64, 96>"
    assert case["evidence"] == "extrapolated"
    assert run_cli([*asked, "--kv-dtype", "fp8"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "give page_tokens, too" in captured.err
