"""Models captured from PyTorch and ONNX are the shipped ones; what has no layer is listed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from conftest import RunGpusim, refused

from gpusim.capture.sketch import CaptureError, Share, Sketch, Unknown, by_batch, model_yaml, shares
from gpusim.models.graph import Graph
from gpusim.models.loading import Model, load_model
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Policy
from gpusim.models.task import Task
from gpusim.numbers.formats import Dtype
from gpusim.specs import load_spec
from gpusim.step.predict import predict_step
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution, ConvolutionShape
from gpusim.workloads.functions import FUNCTIONS

A100 = load_spec("a100-sxm4-80gb")
LSTM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = torch.nn.LSTM(64, 128, 2, batch_first=True, bidirectional=True, dropout=0.1)
        self.scores = torch.nn.Linear(128, 10)
    def forward(self, x): return self.scores(self.cells(x)[1][0][-1])
def model(): return Model()
def inputs(batch): return torch.empty(batch, 32, 64)
"""
ENCODER = """
import torch
def model(): return torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, batch_first=True), 2)
def inputs(batch): return torch.empty(batch, 32, 64)
"""
RESNET = """
import torch, torchvision
def model(): return torchvision.models.resnet50()
def inputs(batch): return torch.empty(batch, 3, 224, 224)
"""
BERT = """
import torch
from transformers import BertConfig, BertForPreTraining
def model(): return BertForPreTraining(BertConfig(attn_implementation="eager")).train()
def inputs(batch):
    tokens = torch.zeros(batch, 128, dtype=torch.long)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
"""


def linear_sketch(batch: int) -> Sketch:
    sketch = Sketch()
    tokens = sketch.add_input("tokens", (batch, 16))
    words = sketch.add("embedding", [tokens], (batch, 16, 8), name="words", entries=10, features=8)
    flat = sketch.add("reshape", [words], (16 * batch, 8), shape=[16 * batch, 8])
    sketch.add("reshape", [flat], (8 * batch, 16), shape=[8 * batch, 16])
    sketch.add("linear", [flat], (16 * batch, 10), name="scores", features=10, bias=False, shares="")
    sketch.prune()
    return sketch


def written(sketch: Sketch, path: Path) -> Graph:
    text = model_yaml(sketch, program=Path("captured.py"), item="seq", optimizer="adam", batch=4)
    path.write_text(text, "utf-8")
    return load_model(str(path)).graph()


# The model file -----------------------------------------------------------------------------------


def test_sizes_that_differ_between_two_batches_become_expressions_of_it(tmp_path: Path) -> None:
    sketch = by_batch(linear_sketch(2), linear_sketch(3), (2, 3))
    assert sketch.inputs == {"tokens": ["batch", 16]}
    graph = written(sketch, tmp_path / "captured.yaml")
    assert [node.layer.op for node in graph.nodes] == ["embedding", "reshape", "linear"]  # no view that nothing uses
    assert graph.nodes[-1].result == (64, 10)


def test_a_program_that_calls_other_layers_at_another_batch_is_refused() -> None:
    other = linear_sketch(3)
    other.add("relu", ["scores"], (48, 10))
    with pytest.raises(CaptureError, match="calls other layers at another batch"):
        by_batch(linear_sketch(2), other, (2, 3))


def test_a_layer_whose_shape_differs_from_the_programs_is_not_used() -> None:
    sketch = linear_sketch(2)
    with pytest.raises(ValueError, match="linear gives"):
        sketch.add("linear", ["words"], (2, 16, 9), features=8)


def test_calls_without_a_layer_are_listed_with_their_share() -> None:
    sketch = Sketch(size_bytes=400.0, flops=50.0)
    sketch.unknown += [
        Unknown("fft", 60.0, 0.0, "a.py:3"),
        Unknown("fft", 40.0, 5.0, "a.py:5"),
        Unknown("arange", 4.0, 0.0, "a.py"),
    ]
    assert shares(sketch) == [Share("arange", 1, 0.01, 0.0, "a.py"), Share("fft", 2, 0.25, 0.1, "a.py:3")]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("model.txt", "-o", "model.yaml"), "model.txt: expected a .py script or an .onnx file"),
        (("model.py", "-o", "model.txt"), "-o model.txt: expected a .yaml file"),
        (("model.py", "-o", "model.yaml", "--size", "a=1"), "--size: of an .onnx file; model.py states its sizes in"),
        (("a.onnx", "-o", "a.yaml", "--size", "a=-1"), "--size a: expected a positive integer, got '-1'"),
    ],
)
def test_what_cannot_be_captured_is_refused(command: RunGpusim, arguments: tuple[str, ...], problem: str) -> None:
    assert problem in refused(command("capture", *arguments))


# PyTorch ------------------------------------------------------------------------------------------


def kernels_of(graph: Graph) -> list[Task]:
    """Kernels of a step's two passes, without the loss, which a captured module lacks."""
    tasks = tasks_of(graph, Policy(), A100.gpu)
    passes = [task for task in tasks if task.phase in ("forward", "backward")]
    return [task for task in passes if not task.call.startswith(("nll", "log_softmax", "fill"))]


def by_phase(amounts: Iterable[tuple[Task, float]]) -> dict[str, float]:
    found = defaultdict[str, float](float)
    for task, amount in amounts:
        found[task.phase] += amount
    return dict(found)


def kernel_bytes(graph: Graph) -> dict[str, float]:
    return by_phase((task, task.operator.size_bytes) for task in kernels_of(graph))


def kernel_times_us(graph: Graph) -> dict[str, float]:
    step = predict_step(A100.system, kernels_of(graph))
    return by_phase((timed.task, timed.total_us) for timed in step.tasks)


@pytest.mark.parametrize(
    ("script", "shipped", "sizes", "requires"),
    [
        (RESNET, "resnet50", {"batch": 8}, "torchvision"),
        (BERT, "bert_base", {"batch": 8, "seq_len": 128}, "transformers"),
    ],
)
def test_a_captured_module_is_the_shipped_model(
    script: str, shipped: str, sizes: dict[str, int], requires: str, command: RunGpusim, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip(requires)
    (tmp_path / "script.py").write_text(script, "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert "captured.yaml: " in done.stderr
    for line in done.stderr.splitlines():
        assert "no layer for" not in line or "0.00 % of bytes, 0.00 % of operations" in line
    captured = load_model(str(tmp_path / "captured.yaml")).graph(sizes if shipped == "resnet50" else {"batch": 8})
    graph = load_model(shipped).graph(sizes)
    assert captured.parameters == graph.parameters
    assert captured.flops == graph.flops
    assert kernel_bytes(captured) == pytest.approx(kernel_bytes(graph), rel=0.01)
    assert kernel_times_us(captured) == pytest.approx(kernel_times_us(graph), rel=0.01)


def test_attention_within_one_function_of_pytorch_is_followed(command: RunGpusim, tmp_path: Path) -> None:
    """A vision transformer: torchvision states 86,567,656 parameters, class token and places among them, 17.56 GMAC."""
    pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    (tmp_path / "script.py").write_text(RESNET.replace("resnet50", "vit_b_16"), "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert (done.returncode, "no layer for" in done.stderr) == (0, False)
    graph = load_model(str(tmp_path / "captured.yaml")).graph({"batch": 1})
    assert graph.parameters == 86_567_656 - 198 * 768
    assert graph.flops == pytest.approx(2 * 17.564e9, rel=0.01)
    policy = Policy("inference", "fp16", version="2.2", attention="fused")
    tasks = tasks_of(graph, policy, load_spec("a100-sxm4-80gb").gpu)
    attended = [task.operator for task in tasks if isinstance(task.operator, Attention)]
    assert attended == 12 * [Attention(1, 12, 197, 197, 64, Dtype.FP16)]


def test_layers_of_an_lstm_are_layers_of_their_own(command: RunGpusim, tmp_path: Path) -> None:
    """Two bidirectional layers whose last state is used: the loss reaches the weights of both."""
    torch = pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(LSTM, "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert "no layer for lstm" not in done.stderr
    graph = load_model(str(tmp_path / "captured.yaml")).graph({"batch": 4})
    cells = torch.nn.LSTM(64, 128, 2, bidirectional=True)
    assert graph.parameters == sum(one.numel() for one in cells.parameters()) + 128 * 10 + 10
    backward = [task for task in tasks_of(graph, Policy(), A100.gpu) if task.call == "lstm_backward"]
    assert len(backward) == 2


def test_layers_that_a_module_copies_are_traced(command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(ENCODER, "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    # A layer: four square matrices of attention, two of 64 x 2048, their biases, two norms.
    assert load_model(str(tmp_path / "captured.yaml")).graph().parameters == 2 * (
        4 * (64 * 64 + 64) + 2 * 64 * 2048 + 2048 + 64 + 4 * 64
    )


def test_every_elementwise_function_of_pytorch_is_its_layer(command: RunGpusim, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    known = [(name, one.name) for one in FUNCTIONS.values() for name in one.torch if one.operands == 1]
    places = [f"torch.{name}" if hasattr(torch, name) else f"torch.nn.functional.{name}" for name, _ in known]
    lines = "; ".join(f"x = {place}(x)" for place in places)
    forward = f"def forward(self, x): x = super().forward(x); {lines}; return x"
    text = f"import torch\nclass Model(torch.nn.Linear):\n    {forward}\ndef model(): return Model(8, 8)\n"
    text += "def inputs(batch): return torch.empty(batch, 8)\n"
    (tmp_path / "script.py").write_text(text, "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert (done.returncode, "no layer" in done.stderr) == (0, False)
    nodes = load_model(str(tmp_path / "captured.yaml")).graph().nodes
    assert [node.layer.op for node in nodes] == ["linear", *(name for _, name in known)]


def captured(command: RunGpusim, folder: Path, text: str) -> Model:
    """The model captured from a script all of whose calls have layers."""
    pytest.importorskip("torch")
    (folder / "script.py").write_text(f"import torch\n{text}", "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert (done.returncode, "no layer" in done.stderr) == (0, False)
    return load_model(str(folder / "captured.yaml"))


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
        ("torch.zeros(3).repeat(10**10).shape[0] // 10**10", 3),  # which nothing allocates
    ],
)
def test_a_constructor_may_read_values_that_follow_from_numbers(
    width: str, is_read: int, command: RunGpusim, tmp_path: Path
) -> None:
    text = f"def model(): return torch.nn.Linear(8, int({width}))\ndef inputs(batch): return torch.empty(batch, 8)\n"
    assert captured(command, tmp_path, text).graph({"batch": 4}).nodes[-1].result == (4, is_read)


@pytest.mark.parametrize(
    "value",
    [
        "torch.rand(1)",
        "torch.nn.Linear(1, 1).weight",
        "torch.zeros(2).copy_(torch.rand(2)).sum()",
        "torch.zeros(2)[:1].fill_(torch.rand(())).sum()",
    ],
)
def test_a_script_that_reads_values_that_nothing_states_is_refused(
    value: str, command: RunGpusim, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    text = f"import torch\ndef model(): return torch.nn.Linear(int({value}), 1)\ndef inputs(batch): return 1\n"
    (tmp_path / "script.py").write_text(text, "utf-8")
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
    ],
)
def test_the_type_of_the_weights_is_the_precision_of_the_model(
    convert: str, precision: str, command: RunGpusim, tmp_path: Path
) -> None:
    """Two layers that share a weight share it after a conversion; statistics are no weights."""
    text = f"""class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = (torch.nn.Linear(8, 8, bias=False), torch.nn.BatchNorm1d(8),
            torch.nn.Linear(8, 8, bias=False))
        self.b.weight = self.a.weight
    def forward(self, x): return self.b(self.norm(self.a(x)))
def model(): return Model(){convert}
def inputs(batch):
    one = model().b.weight
    return torch.empty(batch, 8, dtype=one.dtype, device=one.device)
"""
    model = captured(command, tmp_path, text)
    assert model.content.precision == precision
    assert model.graph().parameters == 64 + 2 * 8
    result = command("model", "captured.yaml", "--arch", "T4", "--mode", "inference", "--format", "json")
    assert f'"precision": "{precision}"' in result.stdout
    result = command("explain", "captured.yaml", "--arch", "T4", "--parts-only", "--precision", "tf32")
    assert "tf32" in refused(result)  # a T4 has none: what a user says goes before the file


def test_weights_of_several_types_are_reported(command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(9, 9, bias=False).half(), torch.nn.Linear(9, 1, bias=False)
    def forward(self, x): return self.b(self.a(x).float())
def model(): return Model()
def inputs(batch): return torch.empty(batch, 9).half()
"""
    (tmp_path / "script.py").write_text(text, "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert "90 parameters, fp16 as 90.0 % of the weights" in done.stderr


def test_a_type_that_no_precision_has_is_refused(command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = "import torch\ndef model(): return torch.nn.Linear(3, 4).double()\n"
    text += "def inputs(batch): return torch.zeros(batch, 3).double()\n"
    (tmp_path / "script.py").write_text(text, "utf-8")
    problem = refused(command("capture", "script.py", "-o", "captured.yaml"))
    assert "script.py: float64 is not supported; convert the model to float32, float16 or bfloat16" in problem
    assert not (tmp_path / "captured.yaml").exists()


def test_convolutions_of_signals_are_those_of_images_of_one_row(command: RunGpusim, tmp_path: Path) -> None:
    """The front of a speech recogniser, by hand: two convolutions of three frames, the second one at every other."""
    text = """def model():
    return torch.nn.Sequential(
        torch.nn.Conv1d(80, 384, 3, padding="same"), torch.nn.GELU(), torch.nn.Conv1d(384, 384, 3, stride=2, padding=1)
    )
def inputs(batch): return torch.empty(batch, 80, 3000)
"""
    graph = captured(command, tmp_path, text).graph({"batch": 2})
    assert graph.parameters == 384 * 80 * 3 + 384 + 384 * 384 * 3 + 384
    assert graph.flops == 2 * 2 * (3000 * 384 * 80 * 3 + 1500 * 384 * 384 * 3)
    assert graph.nodes[-1].result == (2, 384, 1500)
    tasks = tasks_of(graph, Policy("inference"), A100.gpu)
    shapes = [task.operator.shape for task in tasks if isinstance(task.operator, Convolution)]
    assert shapes == [
        ConvolutionShape(2, 80, 1, 3000, 384, 1, 3, (0, 1), (1, 1), 1),
        ConvolutionShape(2, 384, 1, 3000, 384, 1, 3, (0, 1), (1, 2), 1),
    ]


def test_other_layers_of_signals_are_those_of_images(command: RunGpusim, tmp_path: Path) -> None:
    """Dilated, grouped and transposed; a signal whose frames are stored first is copied, as cuDNN wants it."""
    text = """def model():
    nn = torch.nn
    layers = nn.Conv1d(8, 16, 3, dilation=2, groups=4), nn.ConvTranspose1d(16, 8, 4, stride=2, padding=1)
    return nn.Sequential(*layers, nn.BatchNorm1d(8), nn.MaxPool1d(2), nn.AvgPool1d(3, 1, 1))
def inputs(batch): return torch.empty(batch, 64, 8).transpose(1, 2)
"""
    graph = captured(command, tmp_path, text).graph({"batch": 2})
    assert graph.parameters == 16 * 2 * 3 + 16 + 16 * 8 * 4 + 8 + 2 * 8
    assert [(node.layer.op, node.result) for node in graph.nodes if node.layer.op not in ("reshape", "batch_norm")] == [
        ("permute", (2, 8, 64)),
        ("conv2d", (2, 16, 1, 60)),
        ("conv_transpose2d", (2, 8, 1, 120)),
        ("max_pool2d", (2, 8, 1, 60)),
        ("avg_pool2d", (2, 8, 1, 60)),
    ]


UNSUPPORTED = """import torch
def model(): return torch.nn.AdaptiveMaxPool1d(4)
def inputs(batch): return torch.empty(batch, 8, 64)
"""
SOLIDS = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Conv3d(3, 8, 3), torch.nn.ReLU()
    def forward(self, x):
        x = self.a(x)
        return {}
def model(): return Model()
def inputs(batch): return torch.empty(batch, 3, 8, 8, 8)
"""


def test_a_call_without_a_layer_is_reported_at_its_line(command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(SOLIDS.format("self.b(x)"), "utf-8")
    done = command("capture", "script.py", "-o", "captured.yaml")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [
        "gpusim: script.py:7: no layer for conv3d (1 calls, 50.96 % of bytes, 100.00 % of operations)",
        "gpusim: the model lacks the time of calls without a layer; their results are its inputs",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SOLIDS.format("x"), "script.py:7: conv3d: not supported, and the model calls nothing else; capture a part"),
        (
            UNSUPPORTED,
            "script.py: adaptive_max_pool1d: not supported, and the model calls nothing else",
        ),
    ],
)
def test_a_model_without_any_layer_is_refused(text: str, problem: str, command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(text, "utf-8")
    assert problem in refused(command("capture", "script.py", "-o", "captured.yaml"))
    assert not (tmp_path / "captured.yaml").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import torch\n1 / 0\n", "script.py:2: ZeroDivisionError: division by zero"),
        ("def model(:\n", "script.py:1: SyntaxError: "),
        ("import sys\nsys.exit(7)\n", "script.py:2: SystemExit: 7"),
        (
            "def model(): return wrong\ndef inputs(batch): return 1\n",
            "script.py:1: model(): NameError: name 'wrong' is not defined",
        ),
        (
            "import torch\ndef model(): return torch.nn.Linear(3, 4)\ndef inputs(batch): return torch.ones(batch, 5)\n",
            "script.py: the module cannot be traced: RuntimeError: ",
        ),
    ],
)
def test_what_a_script_raises_is_one_line_at_its_place(
    command: RunGpusim, tmp_path: Path, text: str, problem: str
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(text, "utf-8")
    assert problem in refused(command("capture", "script.py", "-o", "captured.yaml"))
    assert not (tmp_path / "captured.yaml").exists()


def test_a_graph_of_one_batch_is_said_to_be_one(command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = "import torch\ndef model(): return torch.nn.Linear(3, 4)\ndef inputs(batch): return torch.zeros({}, 3)\n"
    for size, said in (("7", True), ("batch", False)):
        (tmp_path / "script.py").write_text(text.format(size), "utf-8")
        done = command("capture", "script.py", "-o", "captured.yaml")
        assert (done.returncode, "no input depends on the batch" in done.stderr) == (0, said)


def test_a_script_that_is_not_there_is_refused(command: RunGpusim) -> None:
    pytest.importorskip("torch")
    assert "none.py: cannot be read: " in refused(command("capture", "none.py", "-o", "captured.yaml"))


def test_a_script_without_its_two_functions_is_refused(command: RunGpusim, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text("def model(): return 1\n", "utf-8")
    assert "script.py: define inputs(batch), a function" in refused(
        command("capture", "script.py", "-o", "captured.yaml")
    )


# ONNX ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_a_file_that_is_no_onnx_graph_is_refused(command: RunGpusim, tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("onnx")
    (tmp_path / "graph.onnx").write_bytes(content)
    assert "graph.onnx: " in (problem := refused(command("capture", "graph.onnx", "-o", "captured.yaml")))
    assert "export it again" in problem


def test_an_onnx_graph_is_read_with_its_sizes_computed(command: RunGpusim, tmp_path: Path) -> None:
    """``Reshape`` to a shape that the graph computes from its input, a product with a bias, and an unknown node."""
    onnx = pytest.importorskip("onnx")
    make, number = onnx.helper, onnx.TensorProto
    nodes = [
        make.make_node("Shape", ["x"], ["shape"]),
        make.make_node("Gather", ["shape", "zero"], ["count"]),
        make.make_node("Unsqueeze", ["count", "axes"], ["rows"]),
        make.make_node("Concat", ["rows", "left"], ["target"], axis=0),
        make.make_node("Reshape", ["x", "target"], ["flat"]),
        make.make_node("MatMul", ["flat", "weight"], ["product"]),
        make.make_node("Add", ["bias", "product"], ["biased"]),
        make.make_node("Relu", ["biased"], ["active"]),
        make.make_node("Softsign", ["active"], ["y"]),
    ]
    weights = [
        make.make_tensor("zero", number.INT64, [], [0]),
        make.make_tensor("axes", number.INT64, [1], [0]),
        make.make_tensor("left", number.INT64, [1], [-1]),
        make.make_tensor("weight", number.FLOAT, [12, 5], [0.0] * 60),
        make.make_tensor("bias", number.FLOAT, [5], [0.0] * 5),
    ]
    given = make.make_tensor_value_info("x", number.FLOAT, ["N", 3, 4])  # N is the batch
    result = make.make_tensor_value_info("y", number.FLOAT, ["N", 5])
    graph = make.make_graph(nodes, "small", [given], [result], weights)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)]), str(tmp_path / "small.onnx"))
    done = command("capture", "small.onnx", "-o", "small.yaml", "--batch", "6")
    assert done.returncode == 1
    assert "no layer for Softsign (1 calls, " in done.stderr
    captured = load_model(str(tmp_path / "small.yaml")).graph()
    assert [node.layer.op for node in captured.nodes] == ["reshape", "linear", "relu"]
    assert captured.parameters == 65
    assert captured.nodes[-1].result == (6, 5)


def test_every_elementwise_node_of_onnx_is_its_layer(command: RunGpusim, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    make, number = onnx.helper, onnx.TensorProto
    known = [(node, one.name, one.operands) for one in FUNCTIONS.values() for node in one.onnx]
    nodes = [
        make.make_node(node, [f"y{at}", *["y0"] * (operands - 1)], [f"y{at + 1}"], name=f"n{at}")
        for at, (node, _, operands) in enumerate(known)
    ]
    given, result = (make.make_tensor_value_info(f"y{at}", number.FLOAT, ["N", 4]) for at in (0, len(known)))
    model = make.make_model(make.make_graph(nodes, "all", [given], [result]), opset_imports=[make.make_opsetid("", 20)])
    onnx.save(model, str(tmp_path / "all.onnx"))
    done = command("capture", "all.onnx", "-o", "all.yaml")
    assert (done.returncode, "no layer" in done.stderr) == (0, False)
    captured = load_model(str(tmp_path / "all.yaml")).graph().nodes
    assert [node.layer.op for node in captured] == [name for _, name, _ in known]


def test_an_onnx_lstm_and_weights_stored_once_are_layers(command: RunGpusim, tmp_path: Path) -> None:
    """Two layers of cells with equal weights, of which an exporter stores one, and activations of a mobile network."""
    onnx = pytest.importorskip("onnx")
    make, number = onnx.helper, onnx.TensorProto
    nodes = [
        make.make_node("Identity", ["w"], ["w2"]),
        make.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], name="first", hidden_size=8),
        make.make_node("Squeeze", ["y", "one"], ["seen"]),
        make.make_node("LSTM", ["seen", "w2", "r", "b"], ["y2", "h2", "c2"], name="second", hidden_size=8),
        make.make_node("Squeeze", ["h2", "zero"], ["state"]),
        make.make_node("HardSwish", ["state"], ["active"]),
        make.make_node("Clip", ["active"], ["clipped"]),
        make.make_node("Gemm", ["clipped", "v"], ["z"], name="scores"),
    ]
    weights = [
        make.make_tensor("zero", number.INT64, [1], [0]),
        make.make_tensor("one", number.INT64, [1], [1]),
        make.make_tensor("w", number.FLOAT, [1, 32, 8], [0.0] * 256),
        make.make_tensor("r", number.FLOAT, [1, 32, 8], [0.0] * 256),
        make.make_tensor("b", number.FLOAT, [1, 64], [0.0] * 64),
        make.make_tensor("v", number.FLOAT, [8, 5], [0.0] * 40),
    ]
    given = make.make_tensor_value_info("x", number.FLOAT, [7, "N", 8])
    result = make.make_tensor_value_info("z", number.FLOAT, ["N", 5])
    graph = make.make_graph(nodes, "cells", [given], [result], weights)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)]), str(tmp_path / "cells.onnx"))
    done = command("capture", "cells.onnx", "-o", "cells.yaml")
    assert (done.returncode, "no layer" in done.stderr) == (0, False)
    captured = load_model(str(tmp_path / "cells.yaml")).graph({"batch": 3})
    assert captured.parameters == 2 * (2 * 32 * 8 + 64) + 40
    assert captured.flops == 2 * (2 * 7 * 3 * 2 * 32 * 8 + 3 * 40)
    assert captured.nodes[-1].result == (3, 5)


def convolution_graph(path: Path, dims: list[int | str | None], *, dtype: str = "FLOAT") -> None:
    """A graph of a convolution whose input has these dimensions: numbers, names or none."""
    onnx = pytest.importorskip("onnx")
    make, kind = onnx.helper, getattr(onnx.TensorProto, dtype)
    weight = make.make_tensor("w", kind, [16, 3, *[3] * (len(dims) - 2)], [0.0] * (48 * 3 ** (len(dims) - 2)))
    around = [1] * (len(dims) - 2)
    nodes = [
        make.make_node("Conv", ["x", "w"], ["y"], pads=2 * around, strides=[2 * one for one in around]),
        make.make_node("Relu", ["y"], ["z"]),
    ]
    given, result = make.make_tensor_value_info("x", kind, dims), make.make_tensor_value_info("z", kind, None)
    graph = make.make_graph(nodes, "images", [given], [result], [weight])
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)]), str(path))


@pytest.mark.parametrize(
    ("dims", "sizes", "shape"),
    [
        (["batch", 3, "height", "width"], "height=64 width=96", ["batch", 3, 64, 96]),
        (["Batch_size", 3, "side", "side"], "side=64", ["batch", 3, 64, 64]),
        (["batch", 3, None, None], "x.2=64 x.3=96", ["batch", 3, 64, 96]),
        ([-1, 3, -1, -1], "x.0=batch x.2=64 x.3=96", ["batch", 3, 64, 96]),
        (["batch", 3, "height", 96], "batch=1 height=batch", [1, 3, "batch", 96]),
        (["N", 3, "frames"], "frames=96", ["batch", 3, 96]),
    ],
)
def test_open_dimensions_of_an_onnx_graph_have_the_sizes_that_are_stated(
    dims: list[int | str | None], sizes: str, shape: list[int | str], command: RunGpusim, tmp_path: Path
) -> None:
    convolution_graph(tmp_path / "graph.onnx", dims)
    options = [word for size in sizes.split() for word in ("--size", size)]
    done = command("capture", "graph.onnx", "-o", "graph.yaml", "--batch", "4", *options)
    assert (done.returncode, "no layer" in done.stderr) == (0, False)
    assert all(size.replace("=", " = ") in done.stderr for size in sizes.split())
    model = load_model(str(tmp_path / "graph.yaml"))
    assert model.content.inputs == {"x": shape}
    numbers = [4 if size == "batch" else size for size in shape]
    assert model.graph().nodes[-1].result == (numbers[0], 16, *[(int(side) + 1) // 2 for side in numbers[2:]])


@pytest.mark.parametrize(
    ("dims", "options", "problem"),
    [
        (
            ["batch", 3, "height", "width"],
            "",
            "leaves height, width open; add --size height=N --size width=N (N: a number",
        ),
        (["batch", 3, None, None], "--size x.2=64", "leaves x.3 open; add --size x.3=N"),
        ([-1, 3, 64, 64], "", "leaves x.0 open; add --size x.0=N (N: a number, or batch)"),
        (
            ["batch", 3, 64, 64],
            "--size height=64",
            "--size height: the graph has no such dimension; it leaves batch open",
        ),
        ([1, 3, 64, 64], "--size height=64", "--size height: the graph has no such dimension; it leaves none open"),
    ],
)
def test_an_open_dimension_without_a_size_is_refused(
    dims: list[int | str | None], options: str, problem: str, command: RunGpusim, tmp_path: Path
) -> None:
    convolution_graph(tmp_path / "graph.onnx", dims)
    line = refused(command("capture", "graph.onnx", "-o", "graph.yaml", *options.split()))
    assert line.startswith("gpusim: graph.onnx: ")
    assert problem in line
    assert not (tmp_path / "graph.yaml").exists()


@pytest.mark.parametrize(("dtype", "precision"), [("FLOAT", "fp32"), ("FLOAT16", "fp16"), ("BFLOAT16", "bf16")])
def test_the_type_of_the_weights_of_a_graph_is_the_precision_of_the_model(
    dtype: str, precision: str, command: RunGpusim, tmp_path: Path
) -> None:
    convolution_graph(tmp_path / "graph.onnx", ["N", 3, 8, 8], dtype=dtype)
    assert command("capture", "graph.onnx", "-o", "graph.yaml").returncode == 0
    assert load_model(str(tmp_path / "graph.yaml")).content.precision == precision
