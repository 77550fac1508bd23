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
from gpusim.lowering.attention.plan import AttentionPlan, attention_plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.attention_selection import planned_attention
from gpusim.prediction.options import Options
from gpusim.prediction.plans import bounds_of
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.program import Load, Mma, Store, executed
from gpusim.specs import load_spec
from gpusim.workloads.attention import Attention
from gpusim.workloads.operators import parse_operator

A100 = "a100-sxm4-80gb"
BOARDS = ("v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "rtx-3090", "h100-sxm")
BURST = Options(load="burst", limits=False)


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
    operator = replace(operator, mask_by="hq" if operator.mask else "", alibi=operator.causal)
    assert parse_operator(operator.columns) == operator


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"key_heads": 3}, "key_heads: 3 do not divide 8 heads evenly"),
        ({"causal": True, "keys": 4}, "causal: 128 queries see 4 keys; the first ones would see none"),
        ({"op": "attention"}, "op: expected one of attention_fwd, attention_bwd, got 'attention'"),
        ({"head_dim": 0}, "head_dim: expected a positive integer, got 0"),
        ({"mask_by": "hq"}, "mask_by: says by what a mask differs; give mask, too"),
        ({"mask": True, "mask_by": "hk"}, "mask_by: expected some of b, h, q, got 'hk'"),
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


# Masks and biases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("board", [A100, "l40s", "h100-sxm"])
@pytest.mark.parametrize(
    "operator",
    [
        Attention(4, 16, 1024, 1024, 64, Dtype.BF16, causal=True),
        Attention(4, 16, 1024, 1024, 64, Dtype.BF16),
        Attention(4, 16, 1024, 1024, 64, Dtype.BF16, "attention_bwd", causal=True),
        Attention(4, 16, 1, 1024, 64, Dtype.BF16, causal=True, packed=True, page_tokens=16, implementation="flash2"),
    ],
    ids=["causal", "both sides", "backward", "token"],
)
def test_a_bias_by_distance_costs_instructions_and_reads_nothing(board: str, operator: Attention) -> None:
    system = load_spec(board).system
    plain, lowered = (predict(system, one) for one in (operator, replace(operator, alibi=True)))
    assert lowered.kernel == plain.kernel
    assert lowered.counters.dram_bytes == pytest.approx(plain.counters.dram_bytes)
    assert 0.999 < lowered.kernel_time_us / plain.kernel_time_us < 1.15
    counts = [
        planned_attention(system, of, warm=False).main_totals.other_instructions
        for of in (operator, replace(operator, alibi=True))
    ]
    assert counts[0] < counts[1]


@pytest.mark.parametrize(
    ("board", "implementation", "remedy"),
    [
        ("t4", "", "give mask, with mask_by hq, as PyTorch does"),
        ("h100-sxm", "flash3", "flash2 has it"),
        (A100, "memory_efficient", "flash2 has it"),
    ],
)
def test_kernels_that_have_no_bias_by_distance_are_refused(board: str, implementation: str, remedy: str) -> None:
    operator = Attention(1, 8, 128, 128, 64, Dtype.FP16, alibi=True, implementation=implementation)
    by = f" by {implementation}" if implementation else ""
    asked = f"no kernel for attention_fwd of fp16 with ALiBi{by} in its kernel catalogues; {remedy}$"
    with pytest.raises(UnsupportedError, match=asked):
        _ = predict(load_spec(board).system, operator)


BIASED = Attention(8, 12, 512, 512, 64, Dtype.FP16, mask=True)


def _mask_bytes(operator: Attention) -> float:
    """What all CTAs request of the mask."""
    planned = planned_attention(load_spec(A100).system, operator, warm=False)
    ops = [
        (one, planned.launch.ctas * planned.kernel.warps * times)
        for one, times in executed(planned.launch.roles[0].program)
    ]
    return sum(
        times * read.l2_bytes
        for one, times in ops
        if isinstance(one, Load)
        for read in one.reads
        if read.tensor == "mask"
    )


@pytest.mark.parametrize("op", ["attention_fwd", "attention_bwd"])
def test_a_bias_by_query_is_read_once_for_every_score(op: str) -> None:
    biased = replace(BIASED, op=op, mask_by="hq")
    assert _mask_bytes(biased) == pytest.approx(8 * 12 * 512 * 512 * 2)
    assert _mask_bytes(replace(biased, mask_by="bhq")) == pytest.approx(8 * 12 * 512 * 512 * 2)
    # One row of keys serves a tile of 64 queries.
    assert _mask_bytes(replace(biased, mask_by="b")) == pytest.approx(8 * 12 * 8 * 512 * 2)
    assert _mask_bytes(replace(biased, mask=False, mask_by="")) == 0.0


def test_a_bias_that_l2_holds_comes_from_dram_once() -> None:
    """12 heads of 512 x 512 are 6 MiB, those of 8 sequences 48 MiB."""
    system = load_spec(A100).system

    def read_bytes(by: str) -> float:
        planned = planned_attention(system, replace(BIASED, mask_by=by), warm=False)
        return planned.main_totals.traffic.dram_read_bytes

    assert read_bytes("hq") - read_bytes("") == pytest.approx(12 * 512 * 512 * 2, rel=0.05)
    assert read_bytes("bhq") - read_bytes("") == pytest.approx(8 * 12 * 512 * 512 * 2, rel=0.05)


def test_a_bias_takes_longer_the_more_of_it_differs() -> None:
    times = [
        predict(load_spec("rtx-3090").system, one, BURST).kernel_time_us
        for one in (
            replace(BIASED, mask=False, implementation="memory_efficient"),
            BIASED,
            replace(BIASED, mask_by="bhq"),
        )
    ]
    assert times == sorted(times)
    assert times[2] > 1.1 * times[0]


# FlashAttention-1 ------------------------------------------------------------------------------------


def _looped(board: str, operator: Attention) -> AttentionPlan:
    return planned_attention(load_spec(board).system, replace(operator, implementation="flash1"), warm=False)


def test_flash_attention_1_takes_tiles_by_heads_and_keys() -> None:
    short = Attention(8, 16, 128, 128, 64, Dtype.FP16)
    names = [
        _looped(A100, one).name
        for one in (
            short,
            replace(short, keys=129),
            replace(short, head_dim=72, keys=1024),
            replace(short, head_dim=16),
        )
    ]
    traits = ("128, 64", "256, 64", "128, 128", "128, 32")
    assert names == [f"fmha_fwd_loop_kernel<FMHA_kernel_traits<{one}, 16, 1, 4>>" for one in traits]
    wide = replace(short, op="attention_bwd", head_dim=128)
    assert _looped(A100, wide).name.startswith("fmha_bwd_dq_dk_dv_loop_kernel<FMHA_kernel_traits<128, 128,")
    with pytest.raises(UnsupportedError, match="head_dim must be at most 64, got 128"):
        _looped("rtx-3090", wide)  # "TODO: eventually we should support SM86"


def test_flash_attention_1_splits_queries_until_waves_are_nearly_full() -> None:
    """The heuristic of fmha_fwd_launch_template.h by hand: 108 SMs of two CTAs, waves of 216."""
    many = Attention(8, 6, 2048, 2048, 64, Dtype.FP16)
    # 48 heads: 9 parts are two waves exactly, and 0.89 of a wave with 4 is less than 0.95 of that.
    assert _looped(A100, many).grid.x == 9
    assert _looped(A100, replace(many, heads=27)).grid.x == 1


@pytest.mark.parametrize(("heads", "tiles"), [(108, 1), (40, 16)])
def test_gradients_of_flash_attention_1_have_a_cta_for_each_tile_of_keys_where_heads_are_few(
    heads: int, tiles: int
) -> None:
    """108 SMs of one CTA: 108 heads fill a wave, 40 leave two of three SMs idle."""
    planned = _looped(A100, Attention(1, heads, 4096, 4096, 64, Dtype.FP16, "attention_bwd"))
    assert planned.grid.x == tiles
    assert len(planned.launches) == (1 if tiles == 1 else 4)  # dot products, zeros, and what converts the sums


@pytest.mark.parametrize("op", ["attention_fwd", "attention_bwd"])
@pytest.mark.parametrize("keys", [128, 1024])
def test_flash_attention_1_multiplies_every_score_once_a_product(op: str, keys: int) -> None:
    operator = Attention(18, 12, 1024, keys, 64, Dtype.FP16, op)
    assert _looped(A100, operator).useful_fraction == pytest.approx(1.0, rel=0.07)  # 64 steps of 9 parts


def test_results_of_flash_attention_1_pass_through_memory_between_tiles_of_keys() -> None:
    def bytes_of(tensor: str, keys: int) -> tuple[float, float]:
        planned = _looped(A100, Attention(8, 27, 1024, keys, 64, Dtype.FP16))
        (role,) = planned.launch.roles
        ops = [(one, planned.launch.ctas * role.warps * times) for one, times in executed(role.program)]
        loads = sum(
            times * read.l2_bytes
            for one, times in ops
            if isinstance(one, Load)
            for read in one.reads
            if read.tensor == tensor
        )
        return loads, sum(
            times * one.size_bytes for one, times in ops if isinstance(one, Store) and one.tensor == tensor
        )

    in_fp32 = 8 * 27 * 1024 * 64 * 4
    assert bytes_of("partials", 256) == (0.0, 0.0)
    assert bytes_of("partials", 1024) == pytest.approx((3 * in_fp32, 3 * in_fp32))


@pytest.mark.parametrize(("head_dim", "least", "most"), [(64, 0.3, 0.5), (128, 0.3, 0.5)])
def test_flash_attention_1_on_an_a100_reaches_the_published_share_of_the_peak(
    head_dim: int, least: float, most: float
) -> None:
    """Dao, FlashAttention-2 (arXiv:2307.08691), section 1: FlashAttention reaches 30 to 50 % of 312 TFLOP/s forward."""
    operator = replace(_figure(2048, head_dim), implementation="flash1")
    assert least < predict(load_spec(A100).system, operator, BURST).tflops / 312 < most


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
    sampled, full = (
        predict(system, operator, Options(detail=detail, limits=False)).kernel_time_us for detail in ("sampled", "full")
    )
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
