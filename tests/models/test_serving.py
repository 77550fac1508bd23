"""Serving on several GPUs, mixed steps, narrow types, a text as one step, and what a served step takes besides."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpusim.api import load_system
from gpusim.cli import run_cli
from gpusim.errors import InputError
from gpusim.execution.models import ModelWorkload, model_step
from gpusim.models.decoding import DecodingError, cache_bytes, mixed_graph, token_graph
from gpusim.models.graph import Graph
from gpusim.models.loading import load_model
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Policy, PolicyError
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.parallel.expert import expert_parallel
from gpusim.parallel.tensor import tensor_parallel, with_collectives
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.units import bytes_per_us
from gpusim.workloads.attention import Attention
from gpusim.workloads.collective import Collective
from gpusim.workloads.gemm import Gemm

SERVED = Policy("inference", "bf16", fusion="serving")
SIZES = {"batch": 8, "seq_len": 1024}


def gpu(name: str = "h100-sxm") -> Any:
    return load_system(name).gpu


def collectives(tasks: Any) -> list[Collective]:
    return [task.operator for task in tasks if isinstance(task.operator, Collective)]


def shared(name: str, ranks: int) -> tuple[Task, ...]:
    """The tasks of one GPU for a token, tensor parallel."""
    graph = token_graph(load_model(name), SIZES, 1024)
    assert isinstance(graph, Graph)
    split = tensor_parallel(graph, ranks)
    return with_collectives(split, tasks_of(split.graph, SERVED, gpu()))


@pytest.mark.parametrize("name", ["llama3_8b", "qwen3_8b", "mixtral_8x7b"])
def test_a_layer_of_a_token_has_two_sums_and_its_scores_are_gathered(name: str) -> None:
    layers = load_model(name).graph().sizes["layers"]
    found = collectives(shared(name, 4))
    assert [one.op for one in found] == ["all_reduce"] * (2 * layers) + ["all_gather"]
    assert {one.size_bytes for one in found[:-1]} == {8 * 4096 * 2}  # tokens, hidden, BF16
    assert found[-1].size_bytes == 8 * load_model(name).graph().sizes["vocabulary"] * 2


def test_each_gpu_keeps_the_keys_of_its_heads_and_all_latent_vectors() -> None:
    for name, share in (("llama3_8b", 1 / 4), ("deepseek_v2_lite", 1.0)):
        graph = token_graph(load_model(name), SIZES, 1024)
        assert isinstance(graph, Graph)
        part = tensor_parallel(graph, 4).graph
        assert cache_bytes(part, SERVED, gpu()) == share * cache_bytes(graph, SERVED, gpu())


def test_gpus_send_tokens_to_their_experts_and_back() -> None:
    graph = expert_parallel(load_model("mixtral_8x7b").graph({"batch": 2, "seq_len": 512}), 8)
    tasks = tasks_of(graph, SERVED, gpu())
    found = collectives(tasks)
    assert [one.op for one in found] == ["all_to_all"] * 64
    assert {one.size_bytes for one in found} == {1024 * 2 * 4096 * 2}  # tokens, experts of each, hidden, BF16
    assert sum(task.call == "gather" for task in tasks) == 32  # each layer copies what it sends
    products = [task.operator for task in tasks if task.call == "grouped_gemm"]
    # One expert a GPU, which takes an eighth of what eight GPUs send.
    assert {(getattr(one, "counts", None), getattr(one, "m", 0)) for one in products} == {((), 2048)}


def test_models_without_experts_are_not_spread() -> None:
    with pytest.raises(InputError, match="has no experts to spread"):
        _ = expert_parallel(load_model("llama3_8b").graph({"seq_len": 8}), 2)
    with pytest.raises(InputError, match="8 experts do not divide among 3 GPUs"):
        _ = expert_parallel(load_model("mixtral_8x7b").graph({"seq_len": 8}), 3)


# Mixed steps --------------------------------------------------------------------------------------


def test_a_mixed_step_multiplies_all_its_tokens_at_once_and_attends_apart() -> None:
    tasks = tasks_of(mixed_graph(load_model("llama3_8b"), SIZES, 256), SERVED, gpu())
    (rows,) = {getattr(task.operator, "m", 0) for task in tasks if task.call == "linear" and "decoder" in task.name}
    assert rows == 256 + 8
    attended = [task.operator for task in tasks if isinstance(task.operator, Attention)][:2]
    assert [(one.batch, one.queries, one.keys) for one in attended] == [(1, 256, 1024), (8, 1, 1025)]
    (scores,) = [task.operator for task in tasks if task.name == "scores"]
    assert getattr(scores, "m", 0) == 9


def test_a_chunk_beyond_its_prompt_is_refused() -> None:
    with pytest.raises(DecodingError, match="a chunk of 2048 tokens is longer than its prompt of 1024"):
        _ = mixed_graph(load_model("llama3_8b"), SIZES, 2048)
    with pytest.raises(DecodingError, match="keeps latent vectors"):
        _ = mixed_graph(load_model("deepseek_v2_lite"), SIZES, 128)


def test_a_mixed_step_takes_less_than_its_parts_apart() -> None:
    system = load_system("h100-sxm")
    few = {"layers": 2, "vocabulary": 1024, "seq_len": 512}
    step = model_step("llama3_8b", mode="inference", graphs=True)

    def time_ms(batch: int, chunk: int) -> float:
        workload = ModelWorkload("llama3_8b", step.policy, step.options, {**few, "batch": batch}, chunk=chunk)
        return workload.predict(system).step_ms

    mixed, chunk_alone, tokens_alone = time_ms(32, 256), time_ms(1, 256), time_ms(32, 1)
    assert max(chunk_alone, tokens_alone) < mixed < chunk_alone + tokens_alone


def test_a_serving_engine_attends_as_it_is_told() -> None:
    calls: dict[str | None, set[str]] = {}
    for attention in (None, "fused", "eager"):
        policy = Policy("inference", "bf16", fusion="serving", attention=attention)
        tasks = tasks_of(token_graph(load_model("llama3_8b"), SIZES, 1024), policy, gpu())
        calls[attention] = {task.call for task in tasks}
    assert calls[None] == calls["fused"]
    assert "attention" in calls["fused"]
    assert "attention" not in calls["eager"]
    assert {"matmul", "softmax"} <= calls["eager"]


# Types --------------------------------------------------------------------------------------------


def test_fp8_quantises_the_rows_that_linear_layers_take_but_for_the_vocabulary() -> None:
    policy = Policy("inference", "fp8", fusion="serving")
    tasks = tasks_of(token_graph(load_model("llama3_8b"), SIZES, 1024), policy, gpu())
    assert sum(task.call == "quantise" for task in tasks) == 4 * 32
    products = [(task.name, task.operator) for task in tasks if isinstance(task.operator, Gemm)]
    types = {name.partition(".")[0]: operator.dtype.value for name, operator in products}
    assert types == {"decoder": "fp8", "scores": "bf16"}


@pytest.mark.parametrize(("precision", "b_dtype", "group"), [("w4a16", "int4", 128), ("w8a16", "int8", None)])
def test_narrow_weights_are_those_of_linear_layers_but_for_the_vocabulary(
    precision: Any, b_dtype: str, group: int | None
) -> None:
    policy = Policy("inference", precision, fusion="serving")
    tasks = tasks_of(token_graph(load_model("llama3_8b"), SIZES, 1024), policy, gpu())
    products = [(task.name, task.operator) for task in tasks if isinstance(task.operator, Gemm)]
    types = {
        (name.partition(".")[0], one.dtype.value, one.b_dtype and one.b_dtype.value, one.group)
        for name, one in products
    }
    assert types == {("decoder", "fp16", b_dtype, group), ("scores", "fp16", None, None)}
    assert all(task.call != "quantise" for task in tasks)


def test_attention_of_a_cache_reads_pages() -> None:
    policy = Policy("inference", "bf16", fusion="serving")
    for tokens in (1, 2048):
        graph = (
            token_graph(load_model("llama3_8b"), SIZES, 1024) if tokens == 1 else load_model("llama3_8b").graph(SIZES)
        )
        attended = [one.operator for one in tasks_of(graph, policy, gpu()) if isinstance(one.operator, Attention)]
        assert len(attended) == 32
        assert {(one.packed, one.page_tokens, one.key_heads) for one in attended} == {(True, 16, 8)}
    # Turing's kernels find no pages.
    older = tasks_of(
        token_graph(load_model("llama3_8b"), SIZES, 1024), Policy("inference", "fp16", fusion="serving"), gpu("t4")
    )
    assert {one.operator.page_tokens for one in older if isinstance(one.operator, Attention)} == {None}


@pytest.mark.parametrize(("precision", "bits"), [("bf16", 16), ("fp8", 8), ("w8a16", 8), ("w4a16", 4 + 16 / 128)])
def test_weights_of_experts_are_as_narrow_as_those_of_other_layers(precision: Any, bits: float) -> None:
    policy = Policy("inference", precision, fusion="serving")
    tasks = tasks_of(token_graph(load_model("mixtral_8x7b"), SIZES, 64), policy, gpu())
    (weights,) = {getattr(task.operator, "weight_bits", 0.0) for task in tasks if task.call == "grouped_gemm"}
    assert weights == bits
    routers = {task.operator.weight_bits for task in tasks if isinstance(task.operator, Gemm) and task.operator.n == 8}
    assert routers == {16}


def test_experts_in_int8_are_refused() -> None:
    with pytest.raises(PolicyError, match="grouped products have no kernels in int8 here; choose bf16 or fp8"):
        _ = tasks_of(load_model("mixtral_8x7b").graph({"seq_len": 8}), Policy("inference", "int8"), gpu())


@pytest.mark.parametrize("board", ["h100-sxm", "l40s"])
def test_experts_in_fp8_quantise_each_token_once_and_what_each_expert_computed(board: str) -> None:
    policy = Policy("inference", "fp8", fusion="serving")
    graph = token_graph(load_model("qwen3_30b_a3b"), {"layers": 1, "batch": 4, "seq_len": 64}, 64)
    of_experts = [task for task in tasks_of(graph, policy, gpu(board)) if task.name.endswith("experts")]
    products = [one.operator for one in of_experts if isinstance(one.operator, Gemm)]
    assert [(one.dtype.value, one.scales) for one in products] == [("bf16", ""), ("fp8", "row"), ("fp8", "row")]
    quantised = [getattr(one.operator, "m", 0) for one in of_experts if one.call == "quantise"]
    assert quantised == [4, 4 * 8]
    assert all(one.call != "gather" for one in of_experts)
    system = load_system(board)
    fastest = bytes_per_us(system.gpu.dram.peak_bandwidth_gb_per_s)
    for product in products[1:]:
        assert predict(system, product, Options(limits=False)).kernel_time_us > product.operand_bytes / fastest


@pytest.mark.parametrize("graph", ["prompt", "token", "mixed"])
def test_attention_reads_the_cache_in_the_type_that_is_stated(graph: str) -> None:
    model = load_model("llama3_8b")
    graphs = {
        "prompt": model.graph(SIZES),
        "token": token_graph(model, SIZES, 1024),
        "mixed": mixed_graph(model, SIZES, 256),
    }
    for board in ("h100-sxm", "a100-sxm4-80gb"):
        tasks = tasks_of(graphs[graph], replace(SERVED, cache_type="fp8"), gpu(board))
        attended = [one.operator for one in tasks if isinstance(one.operator, Attention)]
        assert {(one.dtype, one.kv_dtype, one.page_tokens) for one in attended} == {(Dtype.BF16, Dtype.FP8, 16)}
        # Queries stay as they are: what converts them, if anything, belongs to the kernel.
        assert not [one for one in tasks if one.call == "cast" and "attention" in one.name]


@pytest.mark.parametrize(
    ("name", "board", "problem"),
    [
        ("llama3_8b", "t4", "kv-dtype: no kernel attends in fp16 with a cache in fp8 on T4; leave --kv-dtype out"),
        ("deepseek_v2_lite", "h100-sxm", "kv-dtype: latent attention reads a cache of 16 bits; leave --kv-dtype out"),
    ],
)
def test_caches_that_no_kernel_reads_are_refused(name: str, board: str, problem: str) -> None:
    policy = Policy("inference", "fp16", fusion="serving", cache_type="fp8")
    with pytest.raises(PolicyError, match=problem):
        _ = tasks_of(token_graph(load_model(name), SIZES, 1024), policy, gpu(board))


def test_a_cache_in_fp8_makes_tokens_faster(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--size", "layers=2", "--size", "vocabulary=1024", "--batch", "32", "--prompt", "4096", "--generate", "16")
    for board in ("h100-sxm", "a100-sxm4-80gb", "l40s"):
        text = ("model", "llama3_8b", "--arch", board, "--mode", "inference", *asked, "--graphs", "--format", "json")
        wide, narrow = (read(capsys, *text, "--jobs", "1", *more) for more in ((), ("--kv-dtype", "fp8")))
        assert narrow["cache_gib"] == pytest.approx(wide["cache_gib"] / 2)
        assert 0.5 < narrow["time_per_output_token_ms"] / wide["time_per_output_token_ms"] < 0.9


# A text as one step -------------------------------------------------------------------------------

ONE = ("--mode", "inference", "--size", "layers=2", "--size", "vocabulary=1024", "--batch", "2", "--prompt", "128")
TEXT = (*ONE, "--generate", "16", "--graphs", "--format", "json", "--jobs", "1")


def read(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run_cli(list(arguments)) == 0
    return json.loads(capsys.readouterr().out)


def test_compare_and_explain_take_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = read(capsys, "model", "llama3_8b", "--arch", "h100-sxm", *TEXT)
    compared = read(capsys, "compare", "llama3_8b", "--archs", "h100-sxm,a100-sxm4-80gb", *TEXT)
    explained = read(capsys, "explain", "llama3_8b", "--arch", "h100-sxm", *TEXT, "--parts-only")
    total_us = pytest.approx(1e3 * text["total_ms"])
    assert compared[0]["time_us"] == total_us
    assert compared[0]["arch"] == "H100-SXM5-80GB"
    assert compared[0]["energy_mj"] == pytest.approx(1e3 * 2 * 16 * text["energy_per_token_j"])
    assert explained["total_us"] == total_us
    assert sum(part["us"] for part in explained["parts"]) == total_us


def test_a_served_step_takes_what_its_host_states(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("model", "llama3_8b", "--arch", "h100-sxm", *TEXT, "--set", "host.serving_step_us=700")
    plain, served = (read(capsys, *asked, *more) for more in ((), ("--serving-overhead",)))
    assert served["token_ms"] - plain["token_ms"] == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--chunk", "16", "--generate", "4"), "--chunk: a step of inference with a part of a prompt"),
        (("--chunk", "16", "--fusion", "none"), "--chunk: a step of an engine that serves language models"),
        (("--gpus", "3", "--parallel", "tensor"), "do not divide among 3 GPUs"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], more: tuple[str, ...], says: str) -> None:
    status = run_cli(["model", "llama3_8b", "--arch", "h100-sxm", *ONE, *more])
    captured = capsys.readouterr()
    assert (status, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert says in captured.err


# An implementation that is named ------------------------------------------------------------------


def test_a_named_implementation_is_launched(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = {}
    for name in ("fused", "flash2", "flash3", "memory_efficient"):
        read_out = read(
            capsys,
            "model",
            "llama3_8b",
            "--arch",
            "h100-sxm",
            *ONE,
            "--attention",
            name,
            "--fusion",
            "none",
            "--version",
            "2.7",
            "--format",
            "json",
            "--jobs",
            "1",
        )
        (case,) = read_out if isinstance(read_out, list) else [read_out]
        (kernels[name],) = {one["kernel"] for one in case["operators"] if one["op"] == "attention_fwd"}
    assert kernels == {
        "fused": "flash_fwd_kernel<128, 128, 64, 4>",
        "flash2": "flash_fwd_kernel<128, 128, 64, 4>",
        "flash3": "FlashAttnFwdSm90<128, 128, 128>",
        "memory_efficient": "fmha_cutlassF_f16_aligned_64x128_rf_sm80",
    }


def test_an_implementation_without_kernels_on_the_board_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["model", "llama3_8b", "--arch", "a100-sxm4-80gb", *ONE, "--attention", "flash3"]
    assert run_cli(asked) == 2
    assert "no kernel for attention_fwd of bf16 in pages by flash3" in capsys.readouterr().err
