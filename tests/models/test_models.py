"""Shipped models have the parameters and operations that others publish; wrong model files are refused with a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import REPOSITORY, RunGpusim, refused

from gpusim.expression import evaluate
from gpusim.files.yamlfile import SpecError
from gpusim.models.layers.registry import LAYERS
from gpusim.models.loading import load_model, shipped_models

MODELS = sorted(shipped_models())


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_published(name: str) -> None:
    model = load_model(name)
    if "parameters" not in model.published:
        pytest.skip("its source states none")
    published = model.published["parameters"]
    assert model.graph(published.sizes).parameters == pytest.approx(published.value, rel=published.tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_operations_of_the_forward_pass_are_those_published(name: str) -> None:
    model = load_model(name)
    if "forward_flops_per_item" not in model.published:
        pytest.skip("its source states none")
    published = model.published["forward_flops_per_item"]
    graph = model.graph({"batch": 1, **published.sizes})
    assert graph.flops == pytest.approx(published.value, rel=published.tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_operations_are_proportional_to_the_batch(name: str) -> None:
    model = load_model(name)
    assert model.graph({"batch": 6}).flops == 3 * model.graph({"batch": 2}).flops


def test_a_larger_image_takes_more_operations_and_no_more_parameters() -> None:
    small, large = (load_model("resnet50").graph({"batch": 1, "image_size": size}) for size in (224, 448))
    assert large.parameters == small.parameters
    assert large.flops == pytest.approx(4 * small.flops, rel=0.01)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("[{op: linaer, features: 8}]", "unknown layer 'linaer'; did you mean linear"),
        ("[{op: linear, features: 8, biass: true}]", "biass"),
        ("[{op: linear, features: hiden}]", "unknown size 'hiden'; did you mean hidden?"),
        ("[{op: linear, features: 2 ** 9}]", "use + - * // % and"),
        ("[{op: conv2d, filters: 8, kernel: 3}]", "conv2d: images are images x channels x height x width, got 4x16"),
        ("[{op: add, inputs: [x, y]}]", "no layer 'y' above this one"),
        ("[{op: linear, features: 8, frozen: maybe}]", "expected true or false, got 'maybe'"),
        ("[{use: encoder}]", "no block 'encoder'; known are none"),
        ("[{op: relu, repeat: 99999999999}]", "repeat: expected 0 to 100,000 repeats, got 99999999999"),
        ("[{op: relu, repeat: hidden - 17}]", "repeat: expected 0 to 100,000 repeats, got -1"),
        ("[{op: matmul, inputs: [x, x]}]", "cannot multiply 4x16 by 4x16"),
    ],
)
def test_a_wrong_layer_is_refused_with_its_line(tmp_path: Path, layers: str, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    sizes = "sizes: {hidden: 16}\ninputs: {x: [4, hidden]}\n"
    path.write_text(f"title: wrong\nsource: none\nitem: seq\noptimizer: adam\n{sizes}layers: {layers}\n")
    with pytest.raises(SpecError) as caught:
        load_model(str(path)).graph()
    assert message in str(caught.value)
    assert f"{path}:7: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", ["-1", "0", "batch - 4"])
def test_an_input_without_elements_is_refused_with_its_line(tmp_path: Path, size: str) -> None:
    path = tmp_path / "wrong.yaml"
    head = "title: wrong\nsource: none\nitem: img\noptimizer: adam\nsizes: {batch: 3}\n"
    path.write_text(f"{head}inputs:\n  x: [{size}, 3, 8, 8]\nlayers: [{{op: relu}}]\n")
    with pytest.raises(SpecError, match=rf"{path}:7: inputs.x.0: expected a positive integer, got (-1|0)$"):
        load_model(str(path)).graph()


def test_a_size_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(SpecError, match="resnet50 has no size 'seq_len'; it has batch"):
        load_model("resnet50").graph({"seq_len": 128})


def test_a_sequence_is_no_longer_than_the_positions_that_were_trained() -> None:
    with pytest.raises(SpecError, match=r"opt_1.3b: size seq_len: at most 2048 \(positions - 2\), got 2049"):
        load_model("opt_1.3b").graph({"seq_len": 2049})
    assert load_model("opt_1.3b").graph({"seq_len": 2049, "positions": 2051}).sizes["seq_len"] == 2049


def test_an_expression_computes_on_named_integers_only() -> None:
    assert evaluate("-(3 - hidden) * 2 % 7", {"hidden": 10}) == 0
    for text in ("__import__('os')", "1.5 * 2", "hidden.real", "[1]", "2 ** 64", "1 //"):
        with pytest.raises(ValueError, match=r"is not understood|is not an expression|unknown size"):
            evaluate(text, {"hidden": 1})
    with pytest.raises(ValueError, match="divides by zero"):
        evaluate("1 // 0", {})


def test_every_shipped_model_is_listed(command: RunGpusim) -> None:
    listed = json.loads(command("models", "list", "--format", "json").stdout)["models"]
    assert [one["name"] for one in listed] == MODELS
    table = command("models", "list").stdout
    assert all(name in table for name in MODELS)


def test_a_model_is_shown_at_given_sizes_layer_by_layer(command: RunGpusim) -> None:
    shown = json.loads(command("models", "show", "bert_large", "--set", "seq_len=128", "--format", "json").stdout)
    assert shown["sizes"]["seq_len"] == 128
    assert shown["parameters"] == sum(node["parameters"] for node in shown["nodes"])
    assert shown["forward_flops"] == sum(node["flops"] for node in shown["nodes"])
    table = command("models", "show", "resnet50").stdout
    assert "25,557,032" in table
    assert "arXiv:1512.03385" in table


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("resnet5",), "resnet5: unknown model; did you mean resnet50"),
        (("resnet50", "--set", "batch=none"), "--set batch: expected a positive integer, got 'none'"),
        (("resnet50", "--set", "batch=0"), "--set batch: expected a positive integer, got '0'"),
        (("resnet50", "--set", "seq_len=1"), "resnet50 has no size 'seq_len'"),
    ],
)
def test_a_wrong_model_or_size_is_refused(command: RunGpusim, arguments: tuple[str, ...], problem: str) -> None:
    assert problem in refused(command("models", "show", *arguments))


def test_the_page_of_models_names_every_layer_and_its_example_loads(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "models.md").read_text("utf-8")
    assert [op for op in LAYERS if f"`{op}`" not in page] == []
    path = tmp_path / "small.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0], "utf-8")
    assert load_model(str(path)).graph().parameters == 1000 * 257 + 2 * (3 * 257 * 256 + 2 * 256)
