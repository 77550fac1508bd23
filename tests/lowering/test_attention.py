"""Fused attention: kernels as data, lowered to programs, beside published figures."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.cli import run_cli
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.plan import attention_plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.attention_selection import planned_attention
from gpusim.prediction.options import Options
from gpusim.prediction.plans import bounds_of
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.program import Mma, executed
from gpusim.specs import load_spec
from gpusim.workloads.attention import Attention
from gpusim.workloads.operators import parse_operator

BOARDS = ("v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "rtx-3090", "h100-sxm")
BURST = Options(load="burst")


def _figure(seq_len: int, head_dim: int, op: str = "attention_fwd") -> Attention:
    """An operator of FlashAttention's benchmark: 16,384 tokens of 2,048 features."""
    return Attention(16_384 // seq_len, 2_048 // head_dim, seq_len, seq_len, head_dim, Dtype.FP16, op)


@given(
    sizes=st.tuples(*5 * (st.integers(1, 300),)),
    op=st.sampled_from(("attention_fwd", "attention_bwd")),
    chosen=st.tuples(*3 * (st.booleans(),)),
)
def test_attention_is_read_back_from_its_columns(
    sizes: tuple[int, int, int, int, int], op: str, chosen: tuple[bool, bool, bool]
) -> None:
    batch, heads, queries, keys, head_dim = sizes
    operator = Attention(batch, 2 * heads, queries, keys + queries, head_dim, Dtype.BF16, op, heads, *chosen)
    assert parse_operator(operator.columns) == operator


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"key_heads": 3}, "key_heads: 3 do not divide 8 heads evenly"),
        ({"causal": True, "keys": 4}, "causal: 128 queries see 4 keys; the first ones would see none"),
        ({"op": "attention"}, "op: expected one of attention_fwd, attention_bwd, got 'attention'"),
        ({"head_dim": 0}, "head_dim: expected a positive integer, got 0"),
    ],
)
def test_what_is_not_attention_is_refused_in_one_line(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        replace(Attention(2, 8, 128, 128, 64, Dtype.FP16), **changed)


@pytest.mark.parametrize("board", BOARDS)
@settings(max_examples=8)
@given(
    rows=st.tuples(st.integers(1, 700), st.integers(1, 700)),
    heads=st.integers(1, 40),
    head_dim=st.integers(1, 128),
    chosen=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from((Dtype.FP16, Dtype.FP32)),
    op=st.sampled_from(("attention_fwd", "attention_bwd")),
)
def test_no_time_is_below_its_bound(
    board: str,
    rows: tuple[int, int],
    heads: int,
    head_dim: int,
    chosen: tuple[bool, bool],
    dtype: Dtype,
    op: str,
) -> None:
    causal, dropout = chosen
    operator = Attention(1, heads, min(rows), max(rows), head_dim, dtype, op, causal=causal, dropout=dropout)
    result = predict(load_spec(board).system, operator, BURST)
    assert result.consistent
    assert result.kernel_time_us >= result.timing.bound_us


@pytest.mark.parametrize("op", ["attention_fwd", "attention_bwd"])
@pytest.mark.parametrize("causal", [False, True])
def test_multiply_adds_of_the_program_are_those_of_the_operator(op: str, causal: bool) -> None:
    system = load_spec("a100-sxm4-80gb").system
    operator = Attention(64, 16, 2048, 2048, 64, Dtype.FP16, op, causal=causal)
    planned = planned_attention(system, operator, warm=False)
    warps = planned.launch.grid.ctas * planned.kernel.warps
    multiplied = sum(
        warps * times * one.instructions * planned.instruction.fma
        for one, times in executed(planned.launch.roles[0].program)
        if isinstance(one, Mma)
    )
    # Tiles on the diagonal are computed whole; forward the mean CTA stands for the long ones in the end, too.
    diagonal = 1 + 128 / 2048 if causal else 1.0
    waiting = 1 + 216 / planned.launch.grid.ctas * (31 / 17 - 1) if causal and op == "attention_fwd" else 1.0
    assert multiplied == pytest.approx(operator.flops / 2 * diagonal * waiting, rel=0.002)


def test_the_framework_picks_kernels_by_type_mask_and_size() -> None:
    def name(board: str, operator: Attention) -> str:
        return planned_attention(load_spec(board).system, operator, warm=False).name

    half = Attention(8, 16, 512, 512, 64, Dtype.FP16)
    assert name("a100-sxm4-80gb", half) == "flash_fwd_kernel<64, 128, 128, 4>"
    assert name("a100-sxm4-80gb", replace(half, dropout=True)) == "flash_fwd_kernel<64, 128, 64, 4>"
    assert name("a100-sxm4-80gb", replace(half, mask=True)) == "fmha_cutlassF_f16_aligned_64x64_rf_sm80"
    assert name("rtx-3090", replace(half, head_dim=128, causal=True)) == "flash_fwd_kernel<128, 64, 64, 4>"
    assert name("t4", half) == "fmha_cutlassF_f16_aligned_64x64_rf_sm75"
    assert name("v100-sxm2-16gb", replace(half, dtype=Dtype.FP32)) == "fmha_cutlassF_f32_aligned_64x64_rf"
    single = replace(half, dtype=Dtype.FP32, op="attention_bwd")
    assert name("a100-sxm4-80gb", single) == "fmha_cutlassB_f32_aligned_64x64_k64_sm80"
    assert name("t4", replace(single, head_dim=80)) == "fmha_cutlassB_f32_aligned_64x64_k128"


def test_what_no_kernel_computes_is_refused_with_the_reason() -> None:
    system = load_spec("a100-sxm4-80gb").system
    with pytest.raises(UnsupportedError, match=r"attention_fwd on .*: head_dim must be at most 128, got 512"):
        planned_attention(system, Attention(8, 16, 512, 512, 512, Dtype.FP16), warm=False)
    with pytest.raises(UnsupportedError, match=r"no kernel for attention_fwd of int8 .*they take fp16, bf16, fp32"):
        planned_attention(system, Attention(8, 16, 512, 512, 64, Dtype.INT8), warm=False)


def test_a_causal_mask_halves_long_attention() -> None:
    system = load_spec("a100-sxm4-80gb").system
    whole = Attention(16, 16, 4096, 4096, 64, Dtype.FP16)
    times = [predict(system, one, BURST).kernel_time_us for one in (whole, replace(whole, causal=True))]
    assert times[1] == pytest.approx(times[0] / 2, rel=0.1)


@pytest.mark.parametrize(("op", "share"), [("attention_fwd", 0.73), ("attention_bwd", 0.63)])
def test_flash_attention_on_an_a100_reaches_the_published_share_of_the_peak(op: str, share: float) -> None:
    """Dao, FlashAttention-2 (arXiv:2307.08691): up to 73 % forward and 63 % backward, of 312 TFLOP/s."""
    best = predict(load_spec("a100-sxm4-80gb").system, _figure(4096, 128, op)).tflops
    assert best == pytest.approx(312 * share, rel=0.15)
    assert predict(load_spec("a100-sxm4-80gb").system, _figure(2048, 64, op)).tflops < best


def test_full_detail_agrees_with_sampled() -> None:
    system = load_spec("a100-sxm4-80gb").system
    operator = Attention(2, 8, 512, 512, 64, Dtype.FP16)
    sampled, full = (predict(system, operator, Options(detail=detail)).kernel_time_us for detail in ("sampled", "full"))
    assert sampled == pytest.approx(full, rel=0.05)


@pytest.mark.parametrize("board", BOARDS)
def test_kernels_fit_their_gpu_or_are_passed_over(board: str) -> None:
    system = load_spec(board).system
    for kernel in system.library.attention_kernels:
        operator = _operator_of(kernel)
        with suppress(DoesNotFitError):
            assert bounds_of(system.gpu, attention_plan(system.gpu, operator, kernel, warm=True), 1000.0, warm=True)
        assert planned_attention(system, operator, warm=True)


def test_the_command_predicts_every_size_on_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--batch", "2", "--heads", "4", "--queries", "256,512", "--head-dim", "64")
    assert (
        run_cli(["attention", "--arch", "t4", "--arch", "v100-sxm2-16gb", *sizes, "--causal", "--format", "json"]) == 0
    )
    cases = json.loads(capsys.readouterr().out)
    assert [(case["arch"], case["batch"], case["m"], case["n"]) for case in cases] == [
        (arch, 8, size, size) for size in (256, 512) for arch in ("T4", "V100-SXM2-16GB")
    ]
    assert {case["op"] for case in cases} == {"attention_fwd"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--queries", "x"), "--queries: expected a size or a 'start:end:step' range, got 'x'"),
        (("--queries", "64", "--key-heads", "3"), "key_heads: 3 do not divide 4 heads evenly"),
        (("--queries", "64", "--dtype", "int8"), "no kernel for attention_fwd of int8 in its kernel catalogues"),
    ],
)
def test_the_command_refuses_wrong_input_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    assert run_cli(["attention", "--arch", "t4", "--heads", "4", "--head-dim", "64", *arguments]) == 2
    message = capsys.readouterr().err
    assert problem in message
    assert message.count("\n") == 1


def _operator_of(kernel: AttentionKernel) -> Attention:
    tile, family = kernel.tile, kernel.family
    return Attention(
        4,
        8,
        256,
        256,
        tile.max_head_dim,
        family.dtypes[0],
        family.op,
        causal=bool(tile.causal),
        dropout=bool(tile.dropout),
        packed=bool(family.packed),
        page_tokens=64 if tile.pages or family.key_dtypes else None,
        implementation=kernel.implementation,
        kv_dtype=family.key_dtypes[0] if family.key_dtypes else None,
    )
