"""Captures of scripts, for tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from conftest import RunGpusim

from gpusim.models.aten.call import Trace
from gpusim.models.aten.file import CapturedModel, load_captured
from gpusim.models.policy import Policy

SMALL = ("--mode", "train", "--precision", "fp32")


def needs_cuda_build() -> None:
    """Skip a module where PyTorch is absent, or a build for CPUs alone, which cannot trace a backward pass of CUDA."""
    torch = pytest.importorskip("torch")
    if torch.version.cuda is None and torch.version.hip is None:
        pytest.skip("this build of PyTorch is for CPUs alone", allow_module_level=True)


def write_script(folder: Path, text: str) -> None:
    """Write ``script.py``, which imports PyTorch."""
    pytest.importorskip("torch")
    (folder / "script.py").write_text(f"import torch\n{text}", "utf-8")


def captured(command: RunGpusim, folder: Path, text: str, *options: str) -> CapturedModel:
    """The model captured from a script; training in FP32 unless options say otherwise."""
    write_script(folder, text)
    done = command("capture", "script.py", "-o", "captured.yaml", *(options or SMALL))
    assert done.returncode == 0, done.stderr
    return load_captured(folder / "captured.yaml")


def trace_of(model: CapturedModel, policy: Policy | None = None, **sizes: int) -> Trace:
    """Calls of a captured model; those of training in FP32 unless a policy says otherwise."""
    return model.graph(sizes).trace(policy or Policy("train", "fp32", layout="nchw"))


def names(trace: Trace, phase: str | None = None) -> Counter[str]:
    """How often each function is called."""
    return Counter(call.base for call in trace.calls if phase in (None, call.phase))
