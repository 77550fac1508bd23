"""Models made of configurations: the parameters and operations that others count, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.api import load_system
from gpusim.cli import run_cli
from gpusim.models.configs.making import model_text
from gpusim.models.configs.reading import ConfigError
from gpusim.models.decoding import token_graph
from gpusim.models.layers.attention import Attention
from gpusim.models.layers.experts import Experts
from gpusim.models.loading import Model, load_model, shipped_models
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Policy, PolicyError

CONFIGS = {path.stem: path for path in sorted((Path(__file__).parent / "configs").glob("*.json"))}
# Parameters, and FLOP of 1024 tokens (512 of encoders), as transformers 5.24 builds the model on meta tensors and
# torch.utils.flop_counter counts it; they are those of the model pages. Grouped products of experts are not counted.
PUBLISHED: dict[str, tuple[int, int | None]] = {
    "bert_base_uncased": (109482240, 96637943808),
    "deepseek_v2_lite": (15706484224, None),
    "deepseek_v3": (671026404352, None),
    "gemma2_9b": (9241705984, 19647327895552),
    "gemma3_1b": (999885952, 2159160590336),
    "gemma_7b": (8537680896, None),
    "gpt2": (124439808, 291648307200),
    "llama2_7b": (6738415616, None),
    "llama3.2_1b": (1235814400, None),
    "llama3_70b": (70553706496, 145088290226176),
    "llama3_8b": (8030261248, 15919296282624),
    "mistral_7b": (7241732096, 15111842430976),
    "mixtral_8x7b": (46702792704, None),
    "phi2": (2779683840, 5765993594880),
    "phi3_mini": (3821079552, 8035749593088),
    "qwen2.5_7b": (7615616512, 14900852162560),
    "qwen3_30b_a3b": (30532122624, None),
    "qwen3_8b": (8190735360, 16117938520064),
    "roberta_base": (124645632, 96637943808),
}
SERVED = Policy("inference", "bf16", fusion="serving")


def made(name: str, folder: Path, **changes: Any) -> Model:
    """A model of a configuration, with some of its keys changed."""
    config = folder / "config.json"
    _ = config.write_text(json.dumps({**json.loads(CONFIGS[name].read_text()), **changes}))
    path = folder / f"{name}.yaml"
    _ = path.write_text(model_text(config, name))
    return load_model(str(path))


def test_every_configuration_has_published_counts() -> None:
    assert CONFIGS.keys() == PUBLISHED.keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_and_operations_are_those_published(name: str, tmp_path: Path) -> None:
    parameters, flops = PUBLISHED[name]
    model = made(name, tmp_path)
    assert model.graph().parameters == pytest.approx(parameters, rel=0.005)
    if flops is not None:
        length = 512 if "bert" in name else 1024
        assert model.graph({"seq_len": length}).flops == pytest.approx(flops, rel=0.005)


@pytest.mark.parametrize(
    ("name", "active"),
    # Jiang et al., arXiv:2401.04088, section 1: 13B; DeepSeek-AI, arXiv:2412.19437, abstract: 37B, with embeddings;
    # Qwen3 technical report, arXiv:2505.09388, table 2: 3.3B (with embeddings).
    [("mixtral_8x7b", 13e9), ("deepseek_v3", 37e9), ("qwen3_30b_a3b", 3.3e9)],
)
def test_a_token_multiplies_the_active_parameters(name: str, active: float, tmp_path: Path) -> None:
    model = made(name, tmp_path)
    graph = model.graph({"seq_len": 1})
    words = next(node for node in graph.nodes if node.name == "words").result[-1] * graph.sizes["vocabulary"]
    attended = sum(node.multiply_adds for node in graph.nodes if isinstance(node.layer, Attention))
    assert graph.flops / 2 - attended + words == pytest.approx(active, rel=0.03)  # as rounded there


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() & shipped_models().keys() - {"llama2_7b"}))
def test_a_shipped_model_is_what_the_command_makes(name: str) -> None:
    text = shipped_models()[name].read_text(encoding="utf-8").partition("published:")[0]
    head = {line.partition(": ")[0]: line.partition(": ")[2].strip('"') for line in text.splitlines()[:3]}
    assert text == model_text(CONFIGS[name], head["title"], head["source"].partition(";")[0])


@pytest.mark.parametrize("name", [name for name in CONFIGS if "bert" not in name])
def test_decoders_generate(name: str, tmp_path: Path) -> None:
    model, gpu = made(name, tmp_path), load_system("h200-sxm").gpu
    tasks = tasks_of(token_graph(model, {"batch": 4}, 300), SERVED, gpu)
    assert [task.call for task in tasks][-1] == "arg_max"
    assert any(task.name.endswith(".write") for task in tasks)


def test_a_window_bounds_the_keys_of_its_layers(tmp_path: Path) -> None:
    graph = token_graph(made("gemma3_1b", tmp_path), {"batch": 1}, 2000)
    keys = [node.shapes[1][1] for node in getattr(graph, "nodes", ()) if isinstance(node.layer, Attention)]
    assert keys[:6] == [512] * 5 + [2001]
    assert len(keys) == 26


def test_few_tokens_read_the_weights_of_few_experts() -> None:
    layer = Experts(op="experts", experts=64, top_k=6, ffn=1408)
    assert [layer.busy(tokens) for tokens in (1, 4, 1024)] == [6, 21, 64]


def test_experts_multiply_each_token_as_often_as_it_is_sent() -> None:
    tasks = tasks_of(load_model("mixtral_8x7b").graph({"seq_len": 256}), SERVED, load_system("h200-sxm").gpu)
    grouped = [task.operator for task in tasks if task.call == "grouped_gemm"][:2]
    assert [getattr(one, "counts", None) for one in grouped] == [(64,) * 8] * 2
    assert [getattr(one, "m", 0) for one in grouped] == [512] * 2


@pytest.mark.parametrize(("tokens", "read"), [(1, 2), (2, 4), (64, 8)])
def test_a_token_reads_the_weights_of_its_experts_alone(tokens: int, read: int) -> None:
    graph = token_graph(load_model("mixtral_8x7b"), {"batch": tokens}, 16)
    products = [task for task in tasks_of(graph, SERVED, load_system("h200-sxm").gpu) if task.call == "grouped_gemm"]
    hidden, ffn, rows = 4096, 14336, tokens * 2
    for task, weights, taken in ((products[0], 2 * ffn * hidden, hidden), (products[1], hidden * ffn, ffn)):
        assert getattr(task.operator, "operand_bytes", 0) == 2 * (read * weights + rows * taken)
        assert task.reads[-1].size_bytes == 2 * read * weights


def test_training_of_experts_is_refused() -> None:
    with pytest.raises(PolicyError, match="training of experts is not modelled; give --mode inference"):
        _ = tasks_of(load_model("mixtral_8x7b").graph({"seq_len": 64}), Policy("train"), load_system("h100-sxm").gpu)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "mistrall"}, "model_type: no layers are known of 'mistrall'; nearest are mistral"),
        ({"model_type": None, "architectures": []}, "model_type: is missing; add it: one of"),
        ({"hidden_size": None}, "hidden_size: is missing; add it as the model's publication states it"),
        ({"num_hidden_layers": "32"}, 'num_hidden_layers: expected a positive integer, got "32"'),
        ({"hidden_act": "mish"}, "hidden_act: no layer computes 'mish'; known are"),
        ({"num_key_value_heads": 5}, "num_key_value_heads: 5 do not divide 32 heads"),
    ],
)
def test_a_wrong_configuration_is_one_line(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _ = made("llama3_8b", tmp_path, **changes)
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: ")


def test_the_command_writes_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    assert run_cli(["models", "new", "--from", str(CONFIGS["llama3.2_1b"]), "-o", str(path), "--title", "Small"]) == 0
    assert "1,235,814,400 parameters" in capsys.readouterr().err
    assert load_model(str(path)).content.title == "Small"


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not JSON: "), ("[]", "expected an object"), ('{"model_type": "llama"}', "num_hidden_layers: is missing")],
)
def test_the_command_refuses_in_one_line(
    text: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    _ = config.write_text(text)
    assert run_cli(["models", "new", "--from", str(config), "-o", str(tmp_path / "new.yaml")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err
    assert not (tmp_path / "new.yaml").exists()
