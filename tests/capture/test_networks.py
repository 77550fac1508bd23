"""Networks of many families are captured with the work and the parameters that others publish."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from captures import names, needs_cuda_build, trace_of
from conftest import RunGpusim, refused

from gpusim.models.aten.file import load_captured
from gpusim.models.loading import load_model
from gpusim.models.policy import Policy

needs_cuda_build()
torch = pytest.importorskip("torch")

TIMM = [
    # Image size, multiply-adds [G], parameters [M]: timm, results/model_metadata-in1k.csv and benchmark-infer-*.csv.
    # Counts by fvcore, which has a few of norms and poolings, too.
    ("botnet50ts_256", 256, 5.54, 22.74),
    ("cait_xxs24_224", 224, 2.53, 11.96),
    ("coat_lite_tiny", 224, 1.6, 5.72),
    ("convnextv2_atto", 224, 0.55, 3.71),
    ("crossvit_15_240", 240, 5.81, 27.53),
    ("dla34", 224, 3.07, 15.74),
    ("dm_nfnet_f1", 224, 17.87, 132.63),
    ("dpn68", 224, 2.35, 12.61),
    ("eca_halonext26ts", 256, 2.44, 10.76),
    ("edgenext_base", 256, 3.85, 18.51),
    ("efficientformer_l1", 224, 1.3, 12.29),
    ("gcvit_tiny", 224, 4.79, 28.22),
    ("gernet_m", 224, 3.02, 21.14),
    ("hrnet_w18", 224, 4.32, 21.3),
    ("levit_256", 224, 1.13, 18.86),
    ("maxvit_tiny_tf_224", 224, 5.6, 30.92),
    ("mixer_s32_224", 224, 1.0, 19.1),
    ("mobilenetv3_small_100", 224, 0.06, 2.54),
    ("mobilevit_xxs", 256, 0.42, 1.27),
    ("vit_base_patch16_224", 224, 17.58, 86.57),
    ("volo_d1_224", 224, 6.94, 26.63),
    ("xcit_tiny_12_p16_224", 224, 1.24, 6.72),
]

_PLAIN = frozenset({"dla34", "gernet_m", "mobilenetv3_small_100"})
"""Networks that run each of their modules once."""
_OF_MANY_CALLS = frozenset(
    {
        "cait_xxs24_224",
        "crossvit_15_240",
        "dm_nfnet_f1",
        "edgenext_base",
        "gcvit_tiny",
        "hrnet_w18",
        "maxvit_tiny_tf_224",
    }
)
"""Networks of thousands of calls, whose capture takes seconds."""


@pytest.mark.parametrize(
    ("name", "image_size", "giga_multiply_adds", "million_parameters"),
    [pytest.param(*one, marks=[pytest.mark.slow] if one[0] in _OF_MANY_CALLS else []) for one in TIMM],
)
def test_a_network_has_the_work_that_is_published(
    name: str, image_size: int, giga_multiply_adds: float, million_parameters: float
) -> None:
    """Each convolution and each norm that the module runs is a call, and each weight that it uses gets a gradient."""
    pytest.importorskip("timm")
    from gpusim.capture.sources import source_of
    from gpusim.capture.tracing import traced
    from gpusim.models.aten.program import Variant, multiply_adds

    source = source_of(f"timm:{name}", {"batch": 2, "image_size": image_size})
    one = traced(source, Variant("train", "amp-fp16", "nhwc", "fused"), source.sizes)
    work = sum(multiply_adds(call) for call in one.trace.calls if call.phase == "forward")
    parameters = sum(torch.Size(shape).numel() for shape, _, _ in one.parameters.values())
    assert work / 2e9 == pytest.approx(giga_multiply_adds, rel=0.03, abs=0.015)
    assert parameters / 1e6 == pytest.approx(million_parameters, rel=0.002, abs=0.006)
    found = names(one.trace, "forward")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = [type(part).__name__ for part in source.model(False).modules()] if name in _PLAIN else []
    if kinds:
        assert found["convolution"] == sum("Conv2d" in kind for kind in kinds)
    unused = [path for path, (_, _, trained) in one.parameters.items() if trained and path not in one.trace.gradients]
    assert unused == []


@pytest.mark.parametrize(
    ("name", "giga_multiply_adds", "parameters"),
    [
        # Weights' metadata of torchvision 0.29 (``GFLOPS``, ``num_params``).
        ("resnet50", 4.09, 25_557_032),
        ("vit_b_16", 17.56, 86_567_656),
        ("swin_t", 4.49, 28_288_354),
        ("convnext_tiny", 4.46, 28_589_128),
        ("regnet_y_400mf", 0.4, 4_344_144),
    ],
)
def test_torchvisions_networks_are_as_they_are_published(
    name: str, giga_multiply_adds: float, parameters: int, command: RunGpusim, tmp_path: Path
) -> None:
    pytest.importorskip("torchvision")
    options = ("--mode", "inference", "--precision", "fp32", "--batch", "2")
    done = command("capture", f"torchvision:{name}", "-o", "captured.yaml", *options)
    assert done.returncode == 0, done.stderr
    model = load_captured(tmp_path / "captured.yaml")
    assert model.graph().parameters == parameters
    assert model.graph().flops / 4e9 == pytest.approx(giga_multiply_adds, abs=0.006)
    assert model.graph({"batch": 1}).flops == model.graph().flops / 2
    free = name not in ("swin_t", "vit_b_16")  # one pads to its windows, one takes a single size
    assert model.content.fixed == ([] if free else ["image_size"])
    if free:
        assert model.graph({"image_size": 256, "batch": 1}).flops > model.graph({"batch": 1}).flops


def test_a_captured_resnet_has_the_work_of_the_shipped_one(command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("timm")
    options = ("--mode", "train", "--precision", "fp32", "--layout", "nchw")
    assert command("capture", "timm:resnet50", "-o", "captured.yaml", *options).returncode == 0
    program, graph = (
        load_captured(tmp_path / "captured.yaml").graph({"batch": 3}),
        load_model("resnet50").graph({"batch": 3}),
    )
    assert (program.parameters, program.flops) == (graph.parameters, graph.flops)
    found = names(program.trace(Policy("train", "fp32", layout="nchw")))
    norms = found["native_batch_norm"] + found["cudnn_batch_norm"]  # as PyTorch was built
    assert (found["convolution"], found["convolution_backward"], norms) == (53, 53, 53)


# transformers -------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
}
ONE_HEAD = {**SMALL, "num_key_value_heads": 1, "head_dim": 16}
CONFIGURATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("bert", "BertForPreTraining", SMALL),
    ("bert", "BertForQuestionAnswering", SMALL),
    ("bert", "BertForSequenceClassification", SMALL),
    ("deberta-v2", "DebertaV2ForMaskedLM", SMALL),
    ("gpt2", "GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000}),
    ("llama", "LlamaForCausalLM", {**SMALL, "num_key_value_heads": 2}),
    ("mistral", "MistralForCausalLM", {**SMALL, "num_key_value_heads": 2, "sliding_window": 64}),
    ("qwen2", "Qwen2ForCausalLM", {**SMALL, "num_key_value_heads": 2}),
    ("gemma2", "Gemma2ForCausalLM", ONE_HEAD),
    ("mixtral", "MixtralForCausalLM", {**SMALL, "num_key_value_heads": 2, "num_local_experts": 4}),
    ("t5", "T5ForConditionalGeneration", {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16}),
    ("vit", "ViTForImageClassification", {key: SMALL[key] for key in SMALL if key != "vocab_size"}),
    (
        "whisper",
        "WhisperForConditionalGeneration",
        {
            "d_model": 64,
            **{
                f"{part}_{name}": value
                for part in ("encoder", "decoder")
                for name, value in (("layers", 1), ("ffn_dim", 64))
            },
            **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
        },
    ),
]


def configuration(folder: Path, kind: str, architecture: str, values: dict[str, Any]) -> Path:
    pytest.importorskip("transformers")
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, "architectures": [architecture], **values}), "utf-8")
    return path


@pytest.mark.parametrize(("kind", "architecture", "values"), CONFIGURATIONS)
def test_a_configuration_of_transformers_is_captured_without_weights(
    kind: str, architecture: str, values: dict[str, Any], tmp_path: Path
) -> None:
    """Training computes the loss of labels; inference does not."""
    path = configuration(tmp_path, kind, architecture, values)
    from gpusim.capture.sources import source_of
    from gpusim.capture.tracing import traced
    from gpusim.models.aten.program import Variant

    source = source_of(f"hf:{path}", {"batch": 2})
    train = traced(source, Variant("train", "amp-fp16", "nchw", "fused"), source.sizes)
    inference = traced(source, Variant("inference", "bf16", "nchw", "fused"), source.sizes)
    assert names(train.trace)["nll_loss_forward"] >= 1
    assert names(inference.trace)["nll_loss_forward"] == 0
    if kind not in ("deberta-v2", "gemma2"):  # which transformers runs eagerly
        assert names(inference.trace)["attention"] >= 2
    trained = {name for name, (_, _, of) in train.parameters.items() if of}
    assert {name for name in trained - set(train.trace.gradients) if "pooler" not in name} == set()


def test_a_captured_bert_has_the_work_of_the_shipped_one(command: RunGpusim, tmp_path: Path) -> None:
    configuration(tmp_path, "bert", "BertForPreTraining", {})
    options = ("--mode", "inference", "--precision", "fp32", "--batch", "1")
    assert command("capture", "hf:config.json", "-o", "captured.yaml", *options).returncode == 0
    sizes = {"batch": 4, "seq_len": 128}
    program, graph = load_captured(tmp_path / "captured.yaml").graph(sizes), load_model("bert_base").graph(sizes)
    assert program.parameters == graph.parameters
    assert program.flops == pytest.approx(graph.flops, rel=1e-3)


def test_a_causal_model_writes_one_token_after_the_other(command: RunGpusim, tmp_path: Path) -> None:
    """A token attends to those before, which are in a cache, and this grows by a copy; then all is predicted."""
    configuration(tmp_path, "llama", "LlamaForCausalLM", {**SMALL, "num_key_value_heads": 2})
    done = command("capture", "hf:config.json", "-o", "llama.yaml", "--precision", "fp16")
    assert done.returncode == 0, done.stderr
    assert "traced token, fp16" in done.stderr
    model = load_captured(tmp_path / "llama.yaml")
    from gpusim.models.aten.file import token_program

    trace = token_program(model, {"batch": 3}, 40).trace(Policy("inference", "fp16"))
    attended = [call for call in trace.calls if call.base == "attention"]
    assert [[one.shape for one in call.tensors[:2]] for call in attended] == [[(3, 4, 1, 16), (3, 2, 41, 16)]] * 2
    joined = [
        call.returned[0].shape for call in trace.calls if call.base == "cat" and call.returned[0].shape[2:] == (41, 16)
    ]
    assert joined == [(3, 2, 41, 16)] * 4
    options = ("--mode", "inference", "--precision", "fp16", "--arch", "t4", "--generate", "8", "--format", "json")
    done = command("model", "llama.yaml", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["generated"] == 8


def test_a_model_without_tokens_does_not_generate(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\ndef model(): return torch.nn.Linear(8, 8)\ndef inputs(batch): return torch.empty(batch, 8)\n",
        "utf-8",
    )
    assert command("capture", "script.py", "-o", "captured.yaml", "--mode", "inference").returncode == 0
    problem = refused(command("model", "captured.yaml", "--arch", "t4", "--mode", "inference", "--generate", "8"))
    assert "captured: has no trace of one token; capture a causal model of transformers with --mode token" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON: "),
        ('{"model_type": "unheard"}', "model_type 'unheard': "),
        ('{"hidden_size": 3}', "model_type None: "),
    ],
)
def test_a_configuration_that_transformers_does_not_know_is_refused(
    text: str, problem: str, command: RunGpusim, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(text, "utf-8")
    assert f"hf:config.json: {problem}" in refused(command("capture", "hf:config.json", "-o", "captured.yaml"))


# Exported programs --------------------------------------------------------------------------------


def test_an_exported_program_is_captured(command: RunGpusim, tmp_path: Path) -> None:
    """Open dimensions are asked for by input and place; attention is one call; layers keep their names."""

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]  # PyTorch is not checked
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(8, 16)
            self.second = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)

        def forward(self, x: Any, *, scale: Any) -> Any:
            return {"y": self.second(self.first(x)) * scale}

    batch, length = torch.export.Dim("items", min=2, max=256), torch.export.Dim("length", min=2, max=512)
    arguments = (torch.zeros(4, 12, 8),), {"scale": torch.ones(4, 1, 1)}
    shapes = {"x": {0: batch, 1: length}, "scale": {0: batch}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, to itself
        torch.export.save(torch.export.export(Model(), *arguments, dynamic_shapes=shapes), tmp_path / "program.pt2")
    problem = refused(command("capture", "program.pt2", "-o", "captured.yaml"))
    assert "program.pt2: the program leaves x_0, x_1 open; add --size x_0=N --size x_1=N" in problem
    options = ("--size", "x_0=batch", "--size", "x_1=32", "--precision", "fp32")
    done = command("capture", "program.pt2", "-o", "captured.yaml", *options)
    assert (done.returncode, "assumed: x_0 = batch" in done.stderr) == (0, True), done.stderr
    trace = trace_of(load_captured(tmp_path / "captured.yaml"), batch=3, x_1=64)
    [attended] = [call for call in trace.calls if call.base == "attention"]
    assert attended.operand(0).shape == (3, 2, 64, 8)
    assert {call.layer for call in trace.calls if call.base in ("addmm", "linear")} >= {"first", "second.linear1"}
    assert "second.linear1.weight" in trace.gradients
    assert len(trace.gradients) == 14


def test_a_file_that_is_no_program_is_refused(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "program.pt2").write_text("nothing", "utf-8")
    assert "program.pt2: no exported program of PyTorch " in refused(
        command("capture", "program.pt2", "-o", "captured.yaml")
    )
    assert "none.pt2: cannot be read: " in refused(command("capture", "none.pt2", "-o", "captured.yaml"))
