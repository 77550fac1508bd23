"""Served text: what an engine launches, its memory, the mean over tokens, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.api import load_system
from gpusim.cli import run_cli
from gpusim.models.decoding import token_graph
from gpusim.models.loading import load_model
from gpusim.models.passes.footprint import memory_bytes
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Policy
from gpusim.step.decoding import generation_footprint, largest_batch, predict_generation
from gpusim.step.model import predict_model
from gpusim.step.options import StepOptions

SERVED = Policy("inference", "bf16", fusion="serving")
SIZES = {"batch": 2, "seq_len": 64}
ONE_LAYER = {"layers": 1, "vocabulary": 512}


def test_an_engine_launches_ten_kernels_for_a_layer() -> None:
    tasks = tasks_of(load_model("llama2_7b").graph(SIZES), SERVED, load_system("h100-sxm").gpu)
    layer = [task.name.removeprefix("decoder.7.") for task in tasks if task.name.startswith("decoder.7.")]
    # vLLM: fused_add_rms_norm, qkv_proj, rotary_embedding, reshape_and_cache, attention, o_proj, fused_add_rms_norm,
    # gate_up_proj, silu_and_mul, down_proj.
    assert layer == [
        "normed",
        "query_key_value",
        "turned_query",
        "attention.write",
        "attention",
        "projection",
        "normed_again",
        "gate_wide",
        "mul",
        "narrow",
    ]


def test_served_products_are_those_of_the_model() -> None:
    graph, gpu = load_model("llama2_7b").graph(SIZES), load_system("h100-sxm").gpu
    eager = tasks_of(graph, Policy("inference", "bf16", attention="fused"), gpu)
    products = [
        sum(task.operator.flops for task in tasks if task.operator.op == "linear" and task.name != "scores")
        for tasks in (eager, tasks_of(graph, SERVED, gpu))
    ]
    assert products[0] == products[1]


def test_a_prompt_computes_the_scores_of_last_tokens_alone_and_draws_one_of_each() -> None:
    tasks = tasks_of(load_model("llama2_7b").graph(SIZES), SERVED, load_system("h100-sxm").gpu)
    (scores,) = (task.operator for task in tasks if task.name == "scores")
    assert getattr(scores, "m", 0) == 2
    assert [task.call for task in tasks if task.name == "sample"][-1] == "arg_max"


@pytest.mark.parametrize("cache_type", ["", "fp8"])
def test_memory_holds_weights_and_the_keys_and_values_of_all_tokens(cache_type: Any) -> None:
    model, gpu = load_model("llama2_7b"), load_system("h100-sxm").gpu
    policy = Policy("inference", "bf16", fusion="serving", cache_type=cache_type)
    sizes = {"batch": 16, "seq_len": 1024}
    of_token = 32 * 2 * 4096 * (1 if cache_type else 2)
    graph = model.graph(sizes)
    held = 2 * graph.parameters + 16 * 1024 * of_token
    for steps, tokens in ((graph, 16 * 1024), (token_graph(model, sizes, 1023), 16)):
        activations = 2 * tokens * (3 * 11008 + 4 * 4096) + 16 * 32000 * 20  # of a layer, and of the sampling
        assert held < memory_bytes(tasks_of(steps, policy, gpu)) <= held + 1.02 * activations


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    system, model, sizes = load_system("h100-sxm"), load_model("llama2_7b"), {"seq_len": 2048}
    found = largest_batch(system, model, sizes, 256, SERVED)
    fits = [
        generation_footprint(system, model, {**sizes, "batch": batch}, 256, SERVED).fits for batch in (found, found + 1)
    ]
    assert fits == [True, False]


def test_no_batch_fits_where_the_weights_do_not() -> None:
    assert largest_batch(load_system("t4"), load_model("llama2_7b"), {"seq_len": 2048}, 16, Policy("inference")) == 0


@pytest.mark.parametrize(("arch", "batch", "prompt"), [("h100-sxm", 4, 200), ("a100-sxm4-80gb", 1, 1000)])
def test_three_tokens_stand_for_all(arch: str, batch: int, prompt: int) -> None:
    """Within 1 %, of a model that attention takes a notable part of."""
    count, system, model = 48, load_system(arch), load_model("llama2_7b")
    sizes = {"batch": batch, "seq_len": prompt, **ONE_LAYER}
    options = StepOptions(graphs=True, synchronised=True, limits=False)
    found = predict_generation(system, model, sizes, count, SERVED, options)
    every = [
        predict_model(system, token_graph(model, sizes, kept), SERVED, options).step_ms
        for kept in range(prompt, prompt + count - 1)
    ]
    assert found.token_ms == pytest.approx(sum(every) / len(every), rel=0.01)


ASKED = (
    "model",
    "llama2_7b",
    "--arch",
    "h100-sxm",
    "--mode",
    "inference",
    "--precision",
    "bf16",
    "--fusion",
    "serving",
)
SMALL = ("--size", "layers=1", "--prompt", "128", "--generate", "16", "--graphs", "--jobs", "1")


def test_batches_prices_and_a_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prices, plot = tmp_path / "prices.csv", tmp_path / "served.svg"
    _ = prices.write_text("gpu,per_hour\nh100-sxm,3.6\n")
    outputs = ("--prices", str(prices), "--plot", str(plot), "--format", "json")
    status = run_cli([*ASKED, *SMALL, "--batch", "1:4:*2", *outputs])
    rows = json.loads(capsys.readouterr().out)
    assert status == 0
    assert [row["batch"] for row in rows] == [1, 2, 4]
    for row in rows:
        assert row["dollars_per_million_tokens"] == pytest.approx(3.6 / 3600 / row["tokens_per_s"] * 1e6)
        assert row["time_to_first_token_ms"] == row["prompt_ms"]
        assert row["total_ms"] == pytest.approx(row["time_to_first_token_ms"] + 15 * row["time_per_output_token_ms"])
        assert row["time_per_output_token_ms_p10"] < row["time_per_output_token_ms"]
    front = [row for row in rows if row["pareto"]]
    assert max(rows, key=lambda row: row["tokens_per_s"])["pareto"]
    assert all(
        not (other["token_ms"] < row["token_ms"] and other["tokens_per_s"] > row["tokens_per_s"])
        for row in front
        for other in rows
    )
    assert "</svg>" in plot.read_text()


def test_a_table_of_batches(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([*ASKED, *SMALL, "--batch", "1,2"]) == 0
    assert "batches 1 to 2, 128 tokens, then 16 generated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--batch", "1:4:*1"), "expected a size or a 'start:end:step' range"),
        (("--plot", "served.txt"), "expected a name that ends in .png, .svg, .pdf"),
        (("--kv-dtype", "fp8", "--fusion", "none"), "a cache in fp8 is of serving engines"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], more: tuple[str, ...], says: str) -> None:
    status = run_cli([*ASKED, *SMALL, *more])
    captured = capsys.readouterr()
    assert (status, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert says in captured.err


def test_prices_to_buy_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    _ = prices.write_text("gpu,to_buy\nh100-sxm,30000\n")
    assert run_cli([*ASKED, *SMALL, "--prices", str(prices)]) == 2
    assert "per_hour" in capsys.readouterr().err


def test_compare_takes_one_batch(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["compare", "bert_base", "--archs", "t4", "--batch", "1,2"]) == 2
    assert "--batch 1,2: several are of 'gpusim model'" in capsys.readouterr().err
