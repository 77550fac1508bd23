"""Kernels that TorchInductor makes of a module."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from captures import write_script
from conftest import RunGpusim, refused

from gpusim.models.aten.call import Trace
from gpusim.models.loading import open_model
from gpusim.models.policy import Policy, PolicyError

pytest.importorskip("torch")
pytest.importorskip("triton", reason="Inductor schedules kernels of a GPU where Triton is installed")

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


def test_training_is_not_compiled(command: RunGpusim, tmp_path: Path) -> None:
    write_script(tmp_path, SCRIPT)
    problem = refused(command("capture", "script.py", "-o", "captured.yaml", "--mode", "train", "--compile"))
    assert "--compile: of inference; add --mode inference" in problem
