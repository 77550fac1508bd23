"""Attention as serving engines launch it: split keys, heads packed into a tile, pages, windows, warp roles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Launch
from gpusim.lowering.attention.splits import key_split_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.attention_selection import planned_attention
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.program import Load, LoadBulk, WarpgroupMma, executed
from gpusim.specs import load_spec
from gpusim.workloads.attention import Attention

A100, H100, L40S = "a100-sxm4-80gb", "h100_sxm", "l40s"
WARM = Options(l2="warm", load="burst", limits=False)
LLAMA = Attention(8, 32, 1, 4096, 128, Dtype.BF16, key_heads=8, packed=True, page_tokens=64, appends=True)
"""A decoding step of Llama-3 8B: one query a sequence, 4,096 tokens kept."""


def _kernels(board: str, operator: Attention) -> list[str]:
    return [one.name for one in planned_attention(load_spec(board).system, operator, warm=True).launches]


def _read_bytes(launch: Launch, tensor: str) -> float:
    return sum(
        launch.ctas * role.warps * times * read.l2_bytes
        for role in launch.roles
        for op, times in executed(role.program)
        if isinstance(op, Load | LoadBulk)
        for read in op.reads
        if read.tensor == tensor
    )


def _gpu(board: str) -> Gpu:
    return load_spec(board).system.gpu


# What is requested -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "keys", "window"), [(1, 1, 1), (1, 9, 4), (5, 9, 3), (7, 7, 2), (6, 20, 19), (9, 9, 9)]
)
def test_scores_of_a_window_are_those_of_every_query(queries: int, keys: int, window: int) -> None:
    operator = Attention(2, 3, queries, keys, 64, Dtype.FP16, causal=True, window=window)
    seen = [min(window, keys - queries + query + 1) for query in range(queries)]
    assert operator.scores == 2 * 3 * sum(seen)


def test_a_window_that_hides_nothing_is_none() -> None:
    plain = Attention(2, 3, 8, 8, 64, Dtype.FP16, causal=True)
    assert replace(plain, window=8) == plain


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"window": 3}, "window: only causal attention has one; give causal, too"),
        ({"appends": True}, "appends: tokens are appended to pages; give page_tokens, too"),
        (
            {"implementation": "flash9"},
            "implementation: expected one of flash1, flash2, flash3, flashinfer, cudnn, memory_efficient, got 'flash9'",
        ),
        ({"page_tokens": 0}, "page_tokens"),
        ({"op": "attention_bwd", "page_tokens": 64}, "page_tokens: the backward pass has no pages"),
    ],
)
def test_contradictions_are_refused(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        replace(Attention(2, 4, 16, 16, 64, Dtype.FP16), **changed)  # type: ignore[arg-type]


def test_columns_give_the_operator_back() -> None:
    from gpusim.workloads.operators import parse_operator

    windowed = replace(LLAMA, queries=32, causal=True, window=1024, implementation="flash3")
    for operator in (LLAMA, windowed, replace(LLAMA, kv_dtype=Dtype.FP8)):
        assert parse_operator({name: value for name, value in operator.columns.items() if value != ""}) == operator


# Which kernels run -----------------------------------------------------------------------------------


def test_engines_take_the_version_of_the_board() -> None:
    assert "FlashAttnFwdSm90<128, 64, 128>" in _kernels(H100, LLAMA)
    assert "flash_fwd_splitkv_kernel<128, 64, 128, 4>" in _kernels(A100, LLAMA)
    assert "flash_fwd_splitkv_kernel<128, 64, 128, 4>" in _kernels(H100, replace(LLAMA, implementation="flash2"))
    with pytest.raises(UnsupportedError, match=r"no kernel for attention_fwd of bf16 in pages by flash3"):
        _kernels(A100, replace(LLAMA, implementation="flash3"))
    with pytest.raises(UnsupportedError, match=r"no kernel for attention_fwd of fp16 in pages"):
        _kernels("t4", replace(LLAMA, dtype=Dtype.FP16))


def test_without_pages_pytorch_takes_flash_attention_2_on_hopper() -> None:
    prompt = Attention(8, 32, 2048, 2048, 128, Dtype.BF16, causal=True)
    assert _kernels(H100, prompt) == ["flash_fwd_kernel<128, 128, 64, 4>"]
    assert _kernels(H100, replace(prompt, implementation="flash3")) == ["FlashAttnFwdSm90<128, 128, 128>"]


def test_new_tokens_are_written_before_and_parts_are_added_up_after() -> None:
    one = replace(LLAMA, batch=1)
    assert _kernels(H100, one) == [
        "reshape_and_cache_flash_kernel",
        "FlashAttnFwdSm90<128, 64, 128>",
        "FlashAttnFwdCombine",
    ]
    # Queries of one sequence lie as they should; the result is copied back.
    first, main, last, copied = _kernels(A100, one)
    assert (first, main, last) == (
        "reshape_and_cache_flash_kernel",
        "flash_fwd_splitkv_kernel<128, 64, 128, 4>",
        "flash_fwd_splitkv_combine_kernel",
    )
    assert "copy" in copied
    assert len(_kernels(A100, replace(one, batch=2))) == 5


# Splits ----------------------------------------------------------------------------------------------


def _parts(board: str, operator: Attention) -> int:
    system = load_spec(board).system
    planned = planned_attention(system, operator, warm=True)
    split = key_split_of(operator, planned.kernel, system.gpu.sm.count)
    assert planned.grid.splits == split.parts == planned.split_k
    return split.parts


def test_flash_attention_2_splits_until_its_last_wave_is_nearly_full() -> None:
    """The rule of flash_api.cpp by hand: 108 SMs of two CTAs, waves of 216; 64 tiles of 128 keys."""
    plain = Attention(1, 8, 1, 8192, 128, Dtype.FP16, key_heads=1)
    # 64 CTAs of one part each are 0.30 of a wave, the best there is; 0.85 of it is 0.252, from 55 on. A number counts
    # where it leaves a part fewer tiles: 64 alone leaves one, and 32 two, half as many CTAs.
    assert _parts(A100, plain) == 64
    # 48 heads: four parts fill 0.89 of a wave, and five would need another.
    assert _parts(A100, replace(plain, heads=48, key_heads=None)) == 4
    # 173 of 216 are nearly all.
    assert _parts(A100, replace(plain, batch=173)) == 1


def test_flash_attention_3_gives_every_sm_its_share_of_tiles() -> None:
    """The rule of flash_prepare_scheduler.cu by hand: 8 heads and 32 tiles of 128 keys on 132 SMs."""
    # One sequence may have up to 16 parts (16 x 8 = 128 of 132). Of 8 such, an SM has 17.1 tiles, so that two parts do.
    assert _parts(H100, LLAMA) == 2
    assert _parts(H100, replace(LLAMA, batch=1)) == 11
    assert _parts(H100, replace(LLAMA, batch=64)) == 1
    assert _parts(H100, replace(LLAMA, keys=512)) == 1


def test_a_kernel_of_larger_heads_is_not_taken_to_split() -> None:
    """Heads of 128 have one tile of 128 keys here, and those of 192 would have two of 64."""
    short = Attention(1, 8, 64, 128, 128, Dtype.FP16)
    assert _kernels(A100, short) == ["flash_fwd_kernel<128, 128, 64, 4>"]


def test_parts_cover_the_keys_once() -> None:
    for board in (A100, H100, L40S):
        for batch in (1, 4, 16):
            operator = replace(LLAMA, batch=batch, keys=8192, appends=False)
            planned = planned_attention(load_spec(board).system, operator, warm=True)
            (main,) = (one for one in planned.launches if one.name == planned.kernel.printed_name)
            # Where all CTAs are in flight, the mean one stands for the longest part.
            assert 0.999 < _read_bytes(main, "keys") / operator.keys_bytes < 1.1
            assert 0.999 < _read_bytes(main, "values") / operator.keys_bytes < 1.1


def test_packed_heads_read_their_keys_once() -> None:
    shared, apart = (replace(LLAMA, heads=heads, appends=False) for heads in (8, 64))
    read = []
    for operator in (shared, apart):
        planned = planned_attention(load_spec(A100).system, operator, warm=True)
        read.append(_read_bytes(planned.launches[1 if operator.sharing_heads > 1 else 0], "keys"))
    assert read[0] == pytest.approx(read[1], rel=0.1)


# Implementations without kernels ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("board", "changed", "stands"),
    [
        (H100, {}, "flash3"),
        (H100, {"op": "attention_bwd"}, "flash3"),
        (H100, {"dropout": True}, "flash2"),
        (H100, {"op": "attention_bwd", "dropout": True}, "flash2"),
        (H100, {"mask": True}, "memory_efficient"),
        (A100, {}, "flash2"),
    ],
)
def test_the_nearest_kernel_stands_for_one_without_a_model(board: str, changed: dict[str, Any], stands: str) -> None:
    operator = replace(Attention(8, 16, 1024, 1024, 64, Dtype.FP16, implementation="cudnn"), **changed)
    system = load_spec(board).system
    assert _kernels(board, operator) == _kernels(board, replace(operator, implementation=stands))
    assert predict(system, operator, WARM).notes[0].endswith(f"{stands} stands for it")
    assert not predict(system, replace(operator, implementation=stands), WARM).notes


# Warp roles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [128, 1024, 4096])
def test_warpgroups_multiply_every_score_twice(keys: int) -> None:
    operator = Attention(4, 32, keys, keys, 128, Dtype.BF16, implementation="flash3", packed=True)
    planned = planned_attention(load_spec(H100).system, operator, warm=True)
    producer, consumer = planned.launch.roles
    fma = planned.instruction.fma
    multiplied = sum(
        planned.launch.ctas * consumer.warps * times * one.instructions * fma
        for one, times in executed(consumer.program)
        if isinstance(one, WarpgroupMma)
    )
    rows = -(-keys // planned.kernel.tile.queries) * planned.kernel.tile.queries
    columns = -(-keys // planned.kernel.tile.keys) * planned.kernel.tile.keys
    assert multiplied == pytest.approx(operator.flops / 2 * rows * columns / keys**2, rel=1e-6)
    assert producer.warps == 1
    assert planned.launch.persistent


# Times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", [A100, H100, L40S])
def test_decoding_streams_the_cache(board: str) -> None:
    """Many long sequences take the time of reading the cache; the peak is that of DRAM."""
    operator = replace(LLAMA, batch=64, keys=8192)
    result = predict(load_spec(board).system, operator, replace(WARM, l2="cold"))
    rate = 2 * operator.keys_bytes / result.kernel_time_us / 1e3
    assert 0.6 < rate / _gpu(board).dram.peak_bandwidth_gb_per_s < 0.97


@pytest.mark.parametrize("board", [A100, H100])
def test_longer_windows_more_keys_and_more_sequences_take_longer(board: str) -> None:
    system = load_spec(board).system

    def time_us(operator: Attention) -> float:
        return predict(system, operator, WARM).kernel_time_us

    keys = [time_us(replace(LLAMA, keys=keys)) for keys in (1024, 8192, 65536)]
    assert keys == sorted(keys)
    batches = [time_us(replace(LLAMA, batch=batch)) for batch in (8, 64, 512)]
    assert batches == sorted(batches)
    prompt = replace(LLAMA, queries=4096, causal=True)
    windows = [time_us(replace(prompt, window=window)) for window in (256, 1024, None)]
    assert windows == sorted(windows)


def test_flash_attention_3_reaches_its_published_rate() -> None:
    """Shah et al., FlashAttention-3 (arXiv:2407.08608), figure 5: some 650 TFLOP/s, FP16, heads of 128, 16k tokens."""
    operator = Attention(1, 16, 16384, 16384, 128, Dtype.FP16, implementation="flash3", packed=True)
    assert predict(load_spec(H100).system, operator, replace(WARM, load="sustained")).tflops == pytest.approx(
        650, rel=0.15
    )
