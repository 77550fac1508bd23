"""Captured programs: their files, their sizes, and the traces that a policy asks for."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import RunGpusim

from gpusim.errors import InputError
from gpusim.files.yamlfile import SpecError
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.file import CapturedModel, ProgramFile, captured_text, is_captured, load_captured
from gpusim.models.aten.program import multiply_adds
from gpusim.models.loading import load_model, open_model
from gpusim.models.policy import Policy, PolicyError

X, WEIGHT, Y = 0, 1, 2
TRACE: dict[str, Any] = {
    "mode": "inference",
    "precision": "amp-fp16",
    "layout": "nchw",
    "attention": "fused",
    "storages": {"1": "256 * batch", "2": 8192, "3": "64 * batch * seq_len"},
    "tensors": [
        [1, "float16", ["batch * seq_len", 64], [64, 1]],
        [2, "float16", [64, 32], [1, 64]],
        [3, "float16", ["batch * seq_len", 32], [32, 1]],
    ],
    "backward": 1,
    "gradients": {},
    "calls": [["mm.default", "layers.0", [X, WEIGHT], [Y], {"size": {"size": "batch + 1"}}, [1]]],
}
CONTENT: dict[str, Any] = {
    "format": "gpusim captured model 1",
    "title": "a product",
    "source": "captured by hand",
    "item": "seq",
    "optimizer": "adam",
    "precision": "amp-fp16",
    "sizes": {"batch": 8, "seq_len": 16},
    "images": False,
    "attends": False,
    "parameters": {"layers.0.weight": {"shape": [32, 64], "dtype": "float32"}},
    "resident_bytes": "8192 + 256 * batch",
    "traces": [TRACE],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "product.yaml"
    _ = path.write_text(captured_text(ProgramFile.model_validate(CONTENT | changes)), encoding="utf-8")
    return path


def opened(folder: Path, **changes: Any) -> CapturedModel:
    model = open_model(str(written(folder, **changes)))
    assert isinstance(model, CapturedModel)
    return model


def test_sizes_follow_from_the_named_ones(tmp_path: Path) -> None:
    program = opened(tmp_path).graph({"batch": 2})
    (trace,) = (one() for one in program.traces.values())
    (call,) = trace.calls
    assert (program.items, program.sizes, program.parameters) == (2, {"batch": 2, "seq_len": 16}, 2048)
    assert [one.shape for one in call.tensors] == [(32, 64), (64, 32)]
    assert call.arguments == {"size": 3}
    assert trace.storage_bytes == {1: 512, 2: 8192, 3: 2048}
    assert program.flops == 2 * 32 * 64 * 32


def test_a_file_is_written_as_it_is_read_plain_or_compressed(tmp_path: Path) -> None:
    path = written(tmp_path)
    packed = tmp_path / "product.yaml.gz"
    _ = packed.write_bytes(gzip.compress(path.read_bytes()))
    assert is_captured(path)
    assert is_captured(packed)
    assert load_captured(path).content == load_captured(packed).content == ProgramFile.model_validate(CONTENT)
    assert captured_text(load_captured(path).content) == path.read_text(encoding="utf-8")


def test_a_file_has_a_line_for_each_call(tmp_path: Path) -> None:
    lines = written(tmp_path).read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if "mm.default" in line]
    assert json.loads(line)[:2] == ["mm.default", "layers.0"]


def test_a_policy_chooses_its_trace(tmp_path: Path) -> None:
    program = opened(tmp_path).graph()
    trace = program.trace(Policy(mode="inference", precision="amp-fp16", layout="nhwc", version="1.12"))
    assert [one.dtype_name for one in trace.calls[0].tensors] == ["float16", "float16"]
    swapped = program.trace(Policy(mode="inference", precision="amp-bf16"))
    assert [one.dtype_name for one in swapped.calls[0].tensors] == ["bfloat16", "bfloat16"]


def test_a_way_that_was_not_traced_is_refused_with_the_options_that_trace_it(tmp_path: Path) -> None:
    program = opened(tmp_path).graph()
    options = r"--mode train --precision fp32 --layout nchw --attention fused"
    with pytest.raises(PolicyError, match=f"product: has no trace of train, fp32.*{options}"):
        _ = program.trace(Policy(precision="tf32"))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"image_size": 224}, "product has no size 'image_size'; it has batch, seq_len"),
        ({"seq_len": 32}, "size seq_len was captured at 16 alone; capture it again with --size seq_len=32"),
        ({"batch": 0}, "size batch: expected a positive integer, got 0"),
    ],
)
def test_sizes_that_a_model_does_not_have_are_refused(tmp_path: Path, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        _ = opened(tmp_path, fixed=["seq_len"]).graph(sizes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"traces": []}, "no captured model: traces"),
        (
            {"traces": [TRACE | {"calls": [["mm.default", "", [9], [Y], {}, []]]}]},
            r"call 0 \(mm.default\): names a tensor",
        ),
        ({"traces": [TRACE | {"tensors": [[1, "float12", [1], [1]]] * 3}]}, "unknown type 'float12'"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "product.yaml"
    _ = path.write_text(json.dumps(CONTENT | changes), encoding="utf-8")
    with pytest.raises(InputError, match=message) as found:
        _ = load_captured(path)
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)


def test_a_captured_model_is_none_of_layers(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a captured model, whose layers are not written as data"):
        _ = load_model(str(written(tmp_path)))


def test_calls_outside_of_modules_have_a_name_in_the_tables(tmp_path: Path, command: RunGpusim) -> None:
    outside = [["mm.default", "", [X, WEIGHT], [Y], {}, [1]]]
    path = written(tmp_path, traces=[TRACE | {"calls": outside}])
    done = command("model", path, "--arch", "t4", "--mode", "inference", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^layers  +\(no layer\) \d+ %$", done.stdout, re.MULTILINE)
    assert re.search(r"^\(no layer\) +\w+ +128x32x64", done.stdout, re.MULTILINE)


def test_multiply_adds_are_those_of_products_and_convolutions() -> None:
    images, filters = (
        TensorView(1, "float16", (2, 8, 10, 10), (800, 100, 10, 1)),
        TensorView(2, "float16", (16, 4, 3, 3), (36, 9, 3, 1)),
    )
    result = TensorView(3, "float16", (2, 16, 8, 8), (1024, 64, 8, 1))
    convolution = Call("convolution.default", "", "forward", (images, filters, None), (result,), {"groups": 2})
    assert multiply_adds(convolution) == 2 * 16 * 64 * 4 * 9
    assert multiply_adds(Call("relu.default", "", "forward", (images,), (images,))) == 0
