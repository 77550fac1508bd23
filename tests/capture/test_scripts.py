"""What a script may do is captured as PyTorch runs it; what needs values is one line at its place."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from captures import captured, names, needs_cuda_build, trace_of, write_script
from conftest import REPOSITORY, RunGpusim, refused

from gpusim.models.policy import Policy

needs_cuda_build()
LINEAR = "def model(): return torch.nn.Linear(8, 8)\ndef inputs(batch): return torch.empty(batch, 8)\n"


def module(body: str, *, init: str = "self.a = torch.nn.Linear(8, 8)", inputs: str = "torch.empty(batch, 8)") -> str:
    """A script with a module of a line that makes it and lines that run it."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"""
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
{lines}
def model(): return Model()
def inputs(batch): return {inputs}
"""


def test_the_script_of_the_tutorial_is_captured_and_predicted(command: RunGpusim, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "tutorials" / "ml_engineer.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    _ = (tmp_path / "my_network.py").write_text(script, encoding="utf-8")
    assert command("capture", "my_network.py", "-o", "my_network.yaml").returncode == 0
    done = command("model", "my_network.yaml", "--arch", "t4", "--batch", "64", "--precision", "amp-fp16")
    assert done.returncode == 0, done.stderr
    (layers,) = re.findall(r"^layers +(.*)$", done.stdout, re.MULTILINE)
    assert all(f"{name} " in layers for name in ("stem", "attention", "(no layer)"))
    assert " img/s" in done.stdout


def test_a_linear_layer_is_recorded_with_the_dimensions_of_its_input(command: RunGpusim, tmp_path: Path) -> None:
    body = "return self.a(self.a(x.reshape(-1, 2, 2, 8)).mean((1, 2)))"
    trace = trace_of(captured(command, tmp_path, module(body, inputs="torch.empty(batch, 4, 8)")), batch=4)
    found = [call.arguments["input_dims"] for call in trace.calls if call.base == "addmm"]
    assert found == [4, 2]


# Constructors and types ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "is_read"),
    [
        ("sum(x.item() for x in torch.linspace(0, 6, 4))", 12),
        ("sum(torch.linspace(0, 6, 4).tolist())", 12),
        ("torch.arange(4).cumsum(0)[-1]", 6),
        ("torch.zeros(4).add_(2)[1:].sum()", 6),
        ("torch.tensor([3, 4]).prod()", 12),
        ("torch.arange(4)[torch.arange(4) > 1].sum()", 5),
        ("(torch.ones(4).half() / 2).sum() * 3", 6),
    ],
)
def test_a_constructor_may_read_values_that_follow_from_numbers(
    width: str, is_read: int, command: RunGpusim, tmp_path: Path
) -> None:
    text = f"def model(): return torch.nn.Linear(8, int({width}))\ndef inputs(batch): return torch.empty(batch, 8)\n"
    trace = trace_of(captured(command, tmp_path, text), batch=4)
    assert trace.calls[0].returned[0].shape == (4, is_read)


@pytest.mark.parametrize(
    "value", ["torch.rand(1)", "torch.nn.Linear(1, 1).weight", "torch.zeros(1).copy_(torch.rand(1))"]
)
def test_a_constructor_that_reads_values_that_nothing_states_is_refused(
    value: str, command: RunGpusim, tmp_path: Path
) -> None:
    write_script(tmp_path, f"def model(): return torch.nn.Linear(int({value}), 1)\ndef inputs(batch): return 1\n")
    problem = refused(command("capture", "script.py", "-o", "captured.yaml"))
    assert "script.py:2: model(): it reads the value of a weight, an input or a random tensor" in problem


@pytest.mark.parametrize(
    ("convert", "precision"),
    [
        ("", "fp32"),
        (".half()", "fp16"),
        (".bfloat16()", "bf16"),
        (".half().float()", "fp32"),
        ('.to("cuda", torch.bfloat16)', "bf16"),
        (".cuda()", "fp32"),
    ],
)
def test_the_type_of_the_weights_is_the_precision_of_the_model(
    convert: str, precision: str, command: RunGpusim, tmp_path: Path
) -> None:
    """Two layers that share a weight share it after a conversion; statistics are no weights."""
    init = """self.a, self.norm, self.b = (torch.nn.Linear(8, 8, bias=False), torch.nn.BatchNorm1d(8),
            torch.nn.Linear(8, 8, bias=False))
        self.b.weight = self.a.weight"""
    text = module("return self.b(self.norm(self.a(x)))", init=init).replace(
        "return Model()", f"return Model(){convert}"
    )
    text = text.replace("return torch.empty(batch, 8)", "return torch.empty(batch, 8, dtype=model().b.weight.dtype)")
    model = captured(command, tmp_path, text, "--mode", "inference")
    assert model.content.precision == precision
    assert model.graph().parameters == 64 + 2 * 8


def test_a_type_that_no_precision_has_is_refused(command: RunGpusim, tmp_path: Path) -> None:
    write_script(tmp_path, LINEAR.replace("Linear(8, 8)", "Linear(8, 8).double()"))
    problem = refused(command("capture", "script.py", "-o", "captured.yaml"))
    assert "script.py: float64 is not supported; convert the model to fp32, fp16 or bf16" in problem


def test_autocast_casts_as_pytorch_does(command: RunGpusim, tmp_path: Path) -> None:
    """A product in FP16, its weight cast once for two calls, and a softmax in FP32."""
    text = module("return torch.softmax(self.a(self.a(x)), -1)")
    model = captured(command, tmp_path, text, "--mode", "inference", "--precision", "amp-fp16")
    trace = trace_of(model, Policy("inference", "amp-fp16"))
    of = [(call.base, call.returned[0].dtype_name) for call in trace.calls]
    casts = [one for one in of if one == ("_to_copy", "float16")]
    assert len(casts) == 3  # the input, the weight and the bias
    assert of[-1] == ("_softmax", "float32")


def test_autocast_of_the_module_itself_is_followed(command: RunGpusim, tmp_path: Path) -> None:
    body = """with torch.autocast("cuda", dtype=torch.bfloat16):
    return self.a(x)"""
    trace = trace_of(captured(command, tmp_path, module(body)))
    assert [call.returned[0].dtype_name for call in trace.calls if call.base == "addmm"] == ["bfloat16"]


def test_a_model_in_half_keeps_its_images_channels_last(command: RunGpusim, tmp_path: Path) -> None:
    text = """def model(): return torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.BatchNorm2d(16)).half()
def inputs(batch): return torch.empty(batch, 8, 16, 16).half()
"""
    model = captured(command, tmp_path, text, "--mode", "train")
    trace = trace_of(model, Policy("train", "fp16", layout="nhwc"))
    made = [
        call.returned[0]
        for call in trace.calls
        if call.base in ("convolution", "cudnn_batch_norm", "native_batch_norm")
    ]
    assert len(made) == 2
    assert all(one.channels_last for one in made)


def test_a_mask_of_attention_is_no_image(command: RunGpusim, tmp_path: Path) -> None:
    text = module("return self.a(x.softmax(-1))", inputs="torch.empty(batch, 4, 8, 8)")
    model = captured(command, tmp_path, text, "--mode", "inference", "--precision", "fp16")
    assert [variant.layout for variant in model.graph({}).traces] == ["nchw"]


# Layers -------------------------------------------------------------------------------------------


def test_convolutions_of_signals_and_solids_keep_their_work(command: RunGpusim, tmp_path: Path) -> None:
    """The front of a speech recogniser by hand: two convolutions of three frames, the second at every other frame."""
    text = """def model():
    return torch.nn.Sequential(
        torch.nn.Conv1d(80, 384, 3, padding="same"), torch.nn.GELU(), torch.nn.Conv1d(384, 384, 3, stride=2, padding=1)
    )
def inputs(batch): return torch.empty(batch, 80, 3000)
"""
    program = captured(command, tmp_path, text).graph({"batch": 2})
    assert program.parameters == 384 * 80 * 3 + 384 + 384 * 384 * 3 + 384
    assert program.flops == 2 * 2 * (3000 * 384 * 80 * 3 + 1500 * 384 * 384 * 3)
    text = "def model(): return torch.nn.Conv3d(3, 8, 3)\ndef inputs(batch): return torch.empty(batch, 3, 8, 8, 8)\n"
    assert captured(command, tmp_path, text).graph({"batch": 2}).flops == 2 * 2 * 6**3 * 8 * 3 * 27


def test_a_weight_that_is_computed_is_used_by_its_convolution(command: RunGpusim, tmp_path: Path) -> None:
    """Weight standardisation, as NFNet's: the gradient goes through it to the weight."""
    body = """w = self.a.weight
w = (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)
return torch.nn.functional.conv2d(x, w)"""
    text = module(body, init="self.a = torch.nn.Conv2d(8, 8, 3, bias=False)", inputs="torch.empty(batch, 8, 6, 6)")
    model = captured(command, tmp_path, text)
    trace = trace_of(model)
    assert model.graph().flops == 2 * 8 * 16 * 8 * 8 * 9
    assert set(trace.gradients) == {"a.weight"}
    assert names(trace, "backward")["convolution_backward"] == 1


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_parametrisations_are_computed_in_every_step(kind: str, command: RunGpusim, tmp_path: Path) -> None:
    text = f"""from torch.nn.utils.parametrizations import {kind}
def model(): return {kind}(torch.nn.Linear(8, 8))
def inputs(batch): return torch.empty(batch, 8)
"""
    trace = trace_of(captured(command, tmp_path, text))
    assert len(trace.gradients) == (3 if kind == "weight_norm" else 2)


def test_shared_weights_count_once(command: RunGpusim, tmp_path: Path) -> None:
    init = """self.words = torch.nn.Embedding(100, 16)
        self.scores = torch.nn.Linear(16, 100, bias=False)
        self.scores.weight = self.words.weight"""
    text = module("return self.scores(self.words(x))", init=init, inputs="torch.zeros(batch, 5, dtype=torch.long)")
    model = captured(command, tmp_path, text)
    assert model.graph().parameters == 1600
    assert list(trace_of(model).gradients) == ["words.weight"]


def test_recurrent_layers_are_one_call_with_their_work(command: RunGpusim, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    init = "self.a = torch.nn.LSTM(64, 128, 2, batch_first=True, bidirectional=True, dropout=0.1)"
    text = module("return self.a(x)[0]", init=init, inputs="torch.empty(batch, 32, 64)")
    model = captured(command, tmp_path, text)
    cells = torch.nn.LSTM(64, 128, 2, bidirectional=True)
    assert model.graph().parameters == sum(one.numel() for one in cells.parameters())
    matrices = sum(one.numel() for one in cells.parameters() if one.dim() == 2)
    assert model.graph({"batch": 3}).flops == 2 * 3 * 32 * matrices
    found = names(trace_of(model))
    assert (found["_cudnn_rnn"], found["_cudnn_rnn_backward"]) == (1, 1)
    assert len(trace_of(model).gradients) == len(list(cells.parameters()))


def test_attention_within_functions_of_pytorch_is_one_call(command: RunGpusim, tmp_path: Path) -> None:
    text = """layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True)
def model(): return torch.nn.TransformerEncoder(layer, 2)
def inputs(batch): return torch.empty(batch, 32, 64)
"""
    model = captured(command, tmp_path, text, "--attention", "fused", "--attention", "eager", "--precision", "fp32")
    fused = trace_of(model, Policy("train", "fp32", attention="fused"))
    eager = trace_of(model, Policy("train", "fp32", attention="eager"))
    assert (names(fused)["attention"], names(fused)["attention_backward"], names(fused)["bmm"]) == (2, 2, 0)
    assert (names(eager)["attention"], names(eager, "forward")["bmm"]) == (0, 4)
    # A layer: four square matrices of attention, two of 64 x 2048, their biases, two norms.
    assert model.graph().parameters == 2 * (4 * (64 * 64 + 64) + 2 * 64 * 2048 + 2048 + 64 + 4 * 64)


# Control ------------------------------------------------------------------------------------------


def test_control_by_shapes_is_followed_and_verified_at_other_sizes(command: RunGpusim, tmp_path: Path) -> None:
    """What depends on a size in more than numbers fixes the size, and says so."""
    body = """for _ in range(x.shape[1] // 8):
    x = self.a(x)
return x"""
    text = module(body, inputs="torch.empty(batch, seq_len, 8)").replace("(batch)", "(batch, seq_len=16)")
    model = captured(command, tmp_path, text)
    assert model.content.fixed == ["seq_len"]
    assert names(trace_of(model, batch=5), "forward")["addmm"] == 2
    body = "return self.a(x) if x.shape[1] > 2 else x"
    text = module(body, inputs="torch.empty(batch, seq_len, 8)").replace("(batch)", "(batch, seq_len=16)")
    assert captured(command, tmp_path, text).content.fixed == []


def test_a_function_with_a_gradient_of_its_own_runs_it(command: RunGpusim, tmp_path: Path) -> None:
    text = """class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, number, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)
    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return None, gradient * torch.tanh(x)
"""
    trace = trace_of(captured(command, tmp_path, text + module("return Swish.apply(3, self.a(x))")))
    assert names(trace, "backward")["tanh"] == 1
    assert set(trace.gradients) == {"a.weight", "a.bias"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_runs_its_part_again_once(reentrant: bool, command: RunGpusim, tmp_path: Path) -> None:
    init = """gelu = torch.nn.GELU()
        self.a = torch.nn.Linear(8, 8)
        self.b = torch.nn.Sequential(torch.nn.Linear(8, 32), gelu, torch.nn.Linear(32, 8), gelu)"""
    body = f"return torch.utils.checkpoint.checkpoint(self.b, self.a(x), use_reentrant={reentrant})"
    trace = trace_of(captured(command, tmp_path, "import torch.utils.checkpoint\n" + module(body, init=init)))
    again = names(trace, "backward")
    assert again["addmm"] == 2
    assert again["gelu"] == (2 if reentrant else 1)  # one stops when it has what was saved
    assert len(trace.gradients) == 6


@pytest.mark.parametrize(
    "result",
    ['{"y": y, "others": [y.relu(), None]}', "Result(y)", "(y, (y.relu(),))", '{"loss": y.mean(), "y": y}'],
)
def test_results_may_be_of_any_kind(result: str, command: RunGpusim, tmp_path: Path) -> None:
    text = """import dataclasses
@dataclasses.dataclass
class Result:
    y: object
    count: int = 3
"""
    trace = trace_of(captured(command, tmp_path, text + module(f"y = self.a(x)\nreturn {result}")))
    assert set(trace.gradients) == {"a.weight", "a.bias"}


def test_a_loss_of_the_script_is_what_training_differentiates(command: RunGpusim, tmp_path: Path) -> None:
    text = LINEAR + "def loss(output): return output.square().mean()\n"
    found = names(trace_of(captured(command, tmp_path, text)))
    assert (found["pow"], found["mean"]) == (2, 1)  # the gradient of a square is a power, too


def test_inputs_may_be_a_mapping_or_a_tuple(command: RunGpusim, tmp_path: Path) -> None:
    for inputs in ('{"x": torch.empty(batch, 8)}', "(torch.empty(batch, 8),)"):
        assert trace_of(captured(command, tmp_path, module("return self.a(x)", inputs=inputs))).gradients


def test_a_check_whether_any_value_is_infinite_is_answered_and_said(command: RunGpusim, tmp_path: Path) -> None:
    write_script(tmp_path, module("y = self.a(x)\nif torch.isinf(y).any():\n    y = y.clamp(-1, 1)\nreturn y"))
    done = command("capture", "script.py", "-o", "captured.yaml", "--mode", "inference")
    assert done.returncode == 0, done.stderr
    assert "assumed: script.py:9: any() is false" in done.stderr


def test_modules_beside_a_script_are_found_and_named(
    command: RunGpusim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "beside_a_script.py").write_text(
        "import torch\nclass Net(torch.nn.Linear):\n    def forward(self, x): return x * x.sum().item()\n", "utf-8"
    )
    write_script(
        tmp_path,
        "from beside_a_script import Net\n" + LINEAR.replace("torch.nn.Linear(8, 8)", "Net(8, 8)"),
    )
    problem = refused(command("capture", "script.py", "-o", "captured.yaml"))
    assert "beside_a_script.py:3: the module decides by a value of a tensor" in problem


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 / 0\n", "script.py:2: ZeroDivisionError: division by zero"),
        ("def model(:\n", "script.py:2: SyntaxError: "),
        ("import sys\nsys.exit(7)\n", "script.py:3: SystemExit: 7"),
        (
            "def model(): return wrong\ndef inputs(batch): return 1\n",
            "script.py:2: model(): NameError: name 'wrong' is not defined",
        ),
        ("def model(): return 1\n", "script.py: define inputs(batch), a function"),
        (LINEAR.replace("empty(batch, 8)", "empty(batch, 5)"), "script.py: RuntimeError: "),
        (
            LINEAR.replace("torch.nn.Linear(8, 8)", "lambda x: x"),
            "script.py: model() returns a function; return a torch.nn.Module",
        ),
        (
            module("y = self.a(x)\nreturn y * float(y.sum())"),
            "script.py:9: the module decides by a value of a tensor, which has none here; state the value as a number",
        ),
        (
            module("y = self.a(x)\nreturn y[y > 0]"),
            "script.py:9: the shape of what nonzero.default gives depends on values",
        ),
    ],
)
def test_what_a_script_raises_is_one_line_at_its_place(
    command: RunGpusim, tmp_path: Path, text: str, problem: str
) -> None:
    write_script(tmp_path, text)
    assert problem in refused(command("capture", "script.py", "-o", "captured.yaml"))
    assert not (tmp_path / "captured.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("model.txt", "-o", "a.yaml"), "model.txt: expected a .py script, an .onnx file, an exported program (.pt2)"),
        (("model.py", "-o", "model.txt"), "-o model.txt: expected a .yaml file"),
        (("none.py", "-o", "model.yaml"), "none.py: cannot be read: "),
        (("a.py", "-o", "a.yaml", "--size", "a=-1"), "--size a: expected a positive integer, got '-1'"),
        (("a.py", "-o", "a.yaml", "--size", "a=batch"), "--size a=batch: of an .onnx file or an exported program"),
        (("timm:resnt50", "-o", "a.yaml"), "did you mean resnet50"),
        (("timm:resnet18", "-o", "a.yaml", "--size", "seq_len=3"), "timm:resnet18: has no size seq_len; it has batch"),
        (("torchvision:resnt50", "-o", "a.yaml"), "torchvision:resnt50: torchvision "),
        (("hf:none", "-o", "a.yaml"), "hf:none: cannot be read: "),
        (("timm:resnet18", "-o", "a.yaml", "--mode", "token"), "--mode token: of causal models of transformers"),
    ],
)
def test_what_cannot_be_captured_is_refused(command: RunGpusim, arguments: tuple[str, ...], problem: str) -> None:
    if ":" in arguments[0]:
        pytest.importorskip({"hf": "transformers"}.get(kind := arguments[0].partition(":")[0], kind))
    assert problem in refused(command("capture", *arguments))


def test_a_module_without_weights_is_captured_for_inference(command: RunGpusim, tmp_path: Path) -> None:
    text = "def model(): return torch.nn.AdaptiveMaxPool1d(4)\ndef inputs(batch): return torch.empty(batch, 8, 64)\n"
    write_script(tmp_path, text)
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert (done.returncode, "traced inference" in done.stderr, "traced train" in done.stderr) == (0, True, False)
    problem = refused(command("capture", "script.py", "-o", "captured.yaml", "--mode", "train"))
    assert "nothing that it returns depends on a weight; capture it with --mode inference" in problem


def test_inputs_of_one_batch_are_said_to_be_so(command: RunGpusim, tmp_path: Path) -> None:
    for size, said in (("7", True), ("batch", False)):
        write_script(tmp_path, LINEAR.replace("empty(batch", f"empty({size}"))
        done = command("capture", "script.py", "-o", "captured.yaml", "--mode", "inference")
        assert (done.returncode, "no input depends on batch" in done.stderr) == (0, said)
