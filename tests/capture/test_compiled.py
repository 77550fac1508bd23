"""Kernels that TorchInductor makes of a module."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from captures import write_script
from conftest import RunGpusim, refused

from gpusim.errors import InputError
from gpusim.models.aten.call import Trace
from gpusim.models.aten.program import Program, Variant, multiply_adds
from gpusim.models.loading import open_model
from gpusim.models.policy import Policy, PolicyError

pytest.importorskip("torch")
pytest.importorskip("triton", reason="Inductor schedules kernels of a GPU where Triton is installed")
zoo = pytest.importorskip("zoo")

SCRIPT = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = torch.nn.LayerNorm(64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)
    def forward(self, x):
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm(x))))
def model(): return Block()
def inputs(batch, seq_len=128): return torch.empty(batch, seq_len, 64)
"""
OPTIONS = ("--mode", "inference", "--compile")


def compiled(command: RunGpusim, folder: Path, text: str, *options: str, **sizes: int) -> Trace:
    write_script(folder, text)
    done = command("capture", "script.py", "-o", "captured.yaml", *OPTIONS, *options)
    assert done.returncode == 0, done.stderr
    precision = options[-1] if options else "fp32"
    policy = Policy(mode="inference", precision=precision, fusion="inductor")  # type: ignore[arg-type]
    model = open_model(str(folder / "captured.yaml"))
    return model.graph(sizes).trace(policy)  # type: ignore[union-attr]


def test_pointwise_functions_and_norms_are_fused_and_products_left_to_the_library(
    command: RunGpusim, tmp_path: Path
) -> None:
    trace = compiled(command, tmp_path, SCRIPT, "--precision", "fp32", batch=4, seq_len=32)
    assert Counter(call.base for call in trace.calls) == {"mm": 2, "inductor_kernel": 3}
    norm, gelu, residual = (call for call in trace.calls if call.base == "inductor_kernel")
    assert (norm.arguments["rows"], norm.arguments["columns"], norm.arguments["reductions"] > 0) == (128, 64, True)
    assert ["erf", 1] in gelu.arguments["functions"]
    assert gelu.arguments["rows"] == 4 * 32 * 256
    assert {one.elements for one in residual.tensors} == {4 * 32 * 64}
    assert [call.layer for call in trace.calls if call.base == "mm"] == ["wide", "narrow"]


def test_casts_of_autocast_are_kernels_of_their_own_for_weights(command: RunGpusim, tmp_path: Path) -> None:
    trace = compiled(command, tmp_path, SCRIPT, "--precision", "amp-fp16")
    casts = [call for call in trace.calls if call.base == "inductor_kernel" and not call.arguments.get("functions")]
    assert {one.elements for call in casts for one in call.returned} >= {64 * 256}
    assert all(one.dtype_name == "float16" for call in casts for one in call.returned)


def test_what_is_last_used_is_freed(command: RunGpusim, tmp_path: Path) -> None:
    trace = compiled(command, tmp_path, SCRIPT, "--precision", "fp32")
    result = trace.calls[-1].returned[0].storage
    made = {one.storage for call in trace.calls for one in call.returned}
    assert {storage for freed in trace.freed for storage in freed} == made - {result}


def test_a_model_that_was_not_compiled_is_refused_with_the_option(command: RunGpusim, tmp_path: Path) -> None:
    write_script(tmp_path, SCRIPT)
    assert command("capture", "script.py", "-o", "captured.yaml", "--mode", "inference").returncode == 0
    program = open_model(str(tmp_path / "captured.yaml")).graph()
    with pytest.raises(PolicyError, match="--attention fused --compile"):
        _ = program.trace(Policy(mode="inference", fusion="inductor"))  # type: ignore[union-attr]


def compiled_training(command: RunGpusim, folder: Path, text: str, *options: str) -> tuple[Trace, Trace]:
    """Traces of a step in FP32 by eager calls and compiled."""
    write_script(folder, text)
    done = command("capture", "script.py", "-o", "captured.yaml", "--mode", "train", "--compile", *options)
    assert done.returncode == 0, done.stderr
    program = open_model(str(folder / "captured.yaml")).graph()
    assert isinstance(program, Program)
    return program.trace(Policy()), program.trace(Policy(fusion="inductor"))


def test_training_has_the_products_and_gradients_of_eager_calls(command: RunGpusim, tmp_path: Path) -> None:
    eager, fused = compiled_training(command, tmp_path, SCRIPT, "--precision", "fp32")
    for phase in ("forward", "backward"):
        flops = [sum(multiply_adds(call) for call in one.calls if call.phase == phase) for one in (eager, fused)]
        assert flops[0] == flops[1] > 0
    shapes = [{name: view.shape for name, view in one.gradients.items()} for one in (eager, fused)]
    assert shapes[0] == shapes[1]
    sizes = [
        sum(view.size_bytes for call in one.calls for view in (*call.tensors, *call.returned)) for one in (eager, fused)
    ]
    assert sizes[1] < 0.95 * sizes[0]
    backward = [call for call in fused.calls if call.phase == "backward"]
    assert {call.layer for call in backward} == {"norm", "wide", "narrow"}
    kept = {one.storage for call in fused.calls if call.phase == "forward" for one in call.returned}
    assert kept & {one.storage for call in backward for one in call.tensors}  # what the passes share


def test_weights_that_two_layers_share_have_one_gradient(command: RunGpusim, tmp_path: Path) -> None:
    shared = """
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)
        self.last.weight = self.first.weight
    def forward(self, x): return self.last(torch.relu(self.first(x)))
def model(): return Tied()
def inputs(batch): return torch.empty(batch, 64)
"""
    eager, fused = compiled_training(command, tmp_path, shared, "--precision", "fp32")
    products = [sum(call.base in ("mm", "addmm") for call in one.calls) for one in (eager, fused)]
    assert products == [5, 5]  # none gives the gradient of the input
    assert list(fused.gradients) == ["first.weight"]


def test_a_compiled_step_is_of_the_sizes_that_decide_how_reductions_are_split(
    command: RunGpusim, tmp_path: Path
) -> None:
    write_script(tmp_path, SCRIPT)
    half = ("--mode", "train", "--precision", "amp-fp16")
    done = command("capture", "script.py", "-o", "captured.yaml", "--compile", *half)
    assert done.returncode == 0, done.stderr
    model = ("model", "captured.yaml", "--arch", "a100-sxm4-80gb", *half, "--size", "seq_len=96")
    assert command(*model).returncode == 0
    problem = refused(command(*model, "--fusion", "inductor"))
    assert problem.endswith("was captured at seq_len 128 alone; capture it again with --size seq_len=96")


def test_steps_of_one_token_are_not_compiled(command: RunGpusim, tmp_path: Path) -> None:
    write_script(tmp_path, SCRIPT)
    problem = refused(command("capture", "script.py", "-o", "captured.yaml", "--mode", "token", "--compile"))
    assert "token" in problem


TABLE = """\
id,gpu,model,framework,mode,precision,image_size,batch_per_gpu,layout,torch,compiled
1,rtx-4090,resnet18,timm,inference,amp-fp16,224,1024,nchw,2.4,0
2,rtx-4090,resnet18,timm,inference,amp-fp16,224,256,nchw,2.4,1
"""


def test_compiled_rows_of_a_table_are_captured_at_their_batch(tmp_path: Path) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(TABLE)
    eager = Variant("inference", "amp-fp16", "nchw", "fused")
    assert zoo.wanted([table], "*") == {("timm", "resnet18", 224, None): {eager}}
    compiled = {("timm", "resnet18", 224, 256): {eager, replace(eager, compiled=True)}}
    assert zoo.wanted([table], "*", compiled=True) == compiled
    table.write_text(f"{TABLE}3,rtx-4090,resnet18,timm,inference,amp-fp16,224,128,nchw,2.4,1\n")
    with pytest.raises(InputError, match="resnet18: compiled at several batches"):
        zoo.wanted([table], "*", compiled=True)


@pytest.mark.parametrize("batch", [256, 8])
def test_a_compiled_network_is_predicted_at_the_batch_of_its_row_alone(tmp_path: Path, batch: int) -> None:
    pytest.importorskip("timm")
    table = tmp_path / "steps.csv"
    table.write_text(TABLE)
    (((library, *_, captured_at), variants),) = zoo.wanted([table], "*", compiled=True).items()
    zoo.capture(library, "test_resnet", 64, captured_at, list(variants), tmp_path / "network.yaml.gz")
    model = open_model(str(tmp_path / "network.yaml.gz"))
    policy = Policy(mode="inference", precision="amp-fp16", layout="nchw", fusion="inductor", version="2.4")
    if batch == captured_at:
        assert model.graph({"batch": batch}).trace(policy).calls  # type: ignore[union-attr]
    else:
        with pytest.raises(InputError, match="batch"):
            model.graph({"batch": batch}).trace(policy)  # type: ignore[union-attr]
