"""Generating text: the graph of one token, and the steps of a prompt and its tokens."""

from __future__ import annotations

import pytest

from gpusim.api import load_system
from gpusim.models.decoding import DecodingError, token_graph
from gpusim.models.graph import Graph
from gpusim.models.layers.attention import Attention
from gpusim.models.loading import load_model
from gpusim.models.policy import Policy
from gpusim.step.decoding import predict_generation
from gpusim.step.options import StepOptions

SIZES = {"batch": 2, "seq_len": 64}


def test_a_token_attends_to_all_that_are_kept() -> None:
    graph = token_graph(load_model("gpt2_large"), SIZES, kept=100)
    assert isinstance(graph, Graph)
    (shapes,) = {node.shapes for node in graph.nodes if isinstance(node.layer, Attention)}
    assert shapes == ((2, 1, 1280), (2, 101, 1280), (2, 101, 1280))


def test_a_token_multiplies_what_the_last_one_of_a_sequence_does() -> None:
    model = load_model("gpt2_large")
    longer, shorter = (model.graph({**SIZES, "seq_len": length}).flops for length in (101, 100))
    token = token_graph(model, SIZES, kept=100)
    scores = 2 * 2 * 36 * 1280 * 100 * 2  # of 100 earlier queries with the last key, which a causal mask hides
    assert longer - shorter == token.flops + scores


@pytest.mark.parametrize("name", ["opt_1.3b", "llama2_7b"])
def test_a_step_of_a_decoder_has_one_token(name: str) -> None:
    assert token_graph(load_model(name), {"batch": 1}, kept=10).sizes["seq_len"] == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [("bert_large", "attends to later tokens"), ("resnet50", "has no seq_len"), ("transformer_big", "has no seq_len")],
)
def test_other_models_than_decoders_do_not_generate(name: str, says: str) -> None:
    with pytest.raises(DecodingError, match=says):
        _ = token_graph(load_model(name), {"batch": 1}, kept=10)


def test_tokens_are_bound_by_weights_and_kept_keys_where_no_host_is_in_the_way() -> None:
    system, model = load_system("a100-sxm4-80gb"), load_model("gpt2_large")
    found = predict_generation(system, model, SIZES, 32, Policy("inference", "fp16"), StepOptions(graphs=True))
    first, _, last = found.tokens
    weights_ms = 2 * first.graph.parameters / (system.gpu.dram.peak_bandwidth_gb_per_s * 1e6)
    assert weights_ms < found.token_ms < 6 * weights_ms  # 1,300 small kernels take as long as the weights
    assert first.step.kernel_us < last.step.kernel_us
    assert found.total_ms == pytest.approx(found.prompt.step_ms + 31 * found.token_ms)
    assert found.as_dict()["tokens_per_s"] == pytest.approx(2 * 32 / found.total_ms * 1e3)
