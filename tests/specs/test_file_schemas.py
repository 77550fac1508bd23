"""JSON Schemas of files: current, shipped, named by the shipped files, and as strict as the records that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import REPOSITORY, RunGpusim
from jsonschema import Draft202012Validator

import schemas
from gpusim.cli.options import FileKind
from gpusim.files.yamlfile import read_yaml
from gpusim.specs.writing import schema_line
from gpusim.studies.file_schemas import TITLES, schema_of

NOT_A_USERS = {"gpusim/mathmode", "gpusim/models", "benchmarks"}
"""Folders of YAML files that only this repository has."""


@cache
def validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(kind))


def problems(kind: str, data: object) -> list[str]:
    return [f"{list(one.absolute_path)}: {one.message[:200]}" for one in validator(kind).iter_errors(data)]


def shipped(path: str) -> dict[str, Any]:
    data = read_yaml(REPOSITORY / path).data
    assert isinstance(data, dict)
    return data


def test_every_kind_has_a_command_and_a_schema_that_ships(gpusim: RunGpusim) -> None:
    assert get_args(FileKind) == tuple(TITLES)
    assert {path.stem for path in (REPOSITORY / "schemas").iterdir()} == set(TITLES)
    for kind in ("experiment", "node"):
        done = gpusim("schema", kind)
        assert (done.returncode, json.loads(done.stdout)) == (0, schema_of(kind))
    assert gpusim("archs", "schema").stdout == gpusim("schema", "gpu").stdout


@pytest.mark.parametrize("kind", TITLES)
def test_a_shipped_schema_is_that_of_the_code(kind: str) -> None:
    Draft202012Validator.check_schema(schema_of(kind))
    text = (REPOSITORY / "schemas" / f"{kind}.json").read_text(encoding="utf-8")
    assert text == schemas.schema_text(kind), "run make schemas"


def undescribed(part: object, path: str = "") -> Iterator[str]:
    """Keys of a schema whose description is missing; those of a condition are described where it chooses."""
    if isinstance(part, list):
        for item in part:
            yield from undescribed(item, path)
    elif isinstance(part, dict):
        for name, key in part.get("properties", {}).items():
            if not key.get("description", "").strip():
                yield f"{path}.{name}"
        for name, held in part.items():
            if name in ("properties", "$defs"):
                for key, below in held.items():
                    yield from undescribed(below, f"{path}.{key}")
            elif name != "if":
                yield from undescribed(held, path)


@pytest.mark.parametrize("kind", TITLES)
def test_every_key_of_a_shipped_schema_has_a_description(kind: str) -> None:
    schema = json.loads((REPOSITORY / "schemas" / f"{kind}.json").read_text(encoding="utf-8"))
    assert [*undescribed(schema)] == []


@pytest.mark.parametrize(
    ("path", "kind"), [*schemas.shipped_files()], ids=lambda one: str(one) if isinstance(one, str) else one.stem
)
def test_a_shipped_file_names_its_schema_and_follows_it(path: Path, kind: str) -> None:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first == schema_line(kind, path.parent)
    assert (path.parent / first.partition("$schema=")[2]).resolve() == REPOSITORY / "schemas" / f"{kind}.json"
    assert problems(kind, read_yaml(path).data) == []


def test_every_shipped_yaml_file_has_a_kind() -> None:
    known = {path for path, _ in schemas.shipped_files()}
    folders = [REPOSITORY / name for name in ("arch_specs", "experiments", "gpusim", "benchmarks")]
    others = {path for folder in folders for path in folder.rglob("*.yaml")} - known
    assert {path.parent.relative_to(REPOSITORY).as_posix() for path in others} == NOT_A_USERS


def changed(data: Mapping[str, Any], key_path: str, value: object) -> dict[str, Any]:
    """A document with another value at a place."""
    copy: dict[str, Any] = json.loads(json.dumps(data))
    *parents, last = key_path.split(".")
    part: Any = copy
    for key in parents:
        part = part[int(key)] if isinstance(part, list) else part[key]
    part[int(last) if isinstance(part, list) else last] = value
    return copy


@pytest.mark.parametrize(
    ("kind", "path", "key_path", "value"),
    [
        ("gpu", "arch_specs/t4.yaml", "dram.peak_bandwidth_gbps", 1),
        ("gpu", "arch_specs/t4.yaml", "dram.peak_bandwidth_gb_per_s", 320),
        ("library", "arch_specs/libraries/turing.yaml", "kernels", []),
        ("host", "arch_specs/hosts/turing.yaml", "graph_gap_us.kind", "guessed"),
        ("sources", "arch_specs/sources/volta.yaml", "timing_us.neusight.source", ""),
        ("node", "arch_specs/nodes/dgx_2.yaml", "board", "V100"),
        ("collectives", "arch_specs/collectives/nccl.yaml", "pcie_fraction.value", 2.0),
        ("catalogue", "arch_specs/kernels/tensor_turing.yaml", "families.0.split_k", ["serial"]),
        ("catalogue", "arch_specs/kernels/tensor_turing.yaml", "families.0.main_loop.kind", "mmma"),
        ("experiment", "experiments/tf32_paths.yaml", "gpu", "T4"),
        ("experiment", "experiments/tf32_paths.yaml", "dtypes", ["fp17"]),
        ("experiment", "experiments/tf32_paths.yaml", "plots.0.kind", "pie"),
        ("experiment", "experiments/mixed_precision_numerics.yaml", "training.layers", 4),
        ("experiment", "experiments/claims.yaml", "claims.0.claimed", 1),
        ("experiment", "experiments/a100_vs_v100_models.yaml", "models.0.sizes.batch", 0),
        ("model", "experiments/models/resnet50.yaml", "item", "image"),
        ("model", "experiments/models/resnet50.yaml", "layers.0", {"op": "conv3d", "filters": 8}),
        ("model", "experiments/models/bert_base.yaml", "layer", []),
        ("model", "experiments/models/bert_large.yaml", "layers.0", {"op": "relu", "slope": 1}),
        ("suite", "experiments/measure/quick.yaml", "gemms.0.l2", "hot"),
    ],
)
def test_a_mistake_is_refused(kind: str, path: str, key_path: str, value: object) -> None:
    assert problems(kind, changed(shipped(path), key_path, value))


@pytest.mark.parametrize(
    ("key_path", "value"),
    [
        ("gpus", ["T4", {"gpu": "V100-SXM2-16GB", "overrides": {"l2.capacity_mib": [1, "2x"]}}]),
        ("dtypes", "fp16"),
        ("gemms", [{"square": "256:1024:256"}, {"m": [1, "16:64"], "n": 8, "k": 8}]),
        ("plots", ["stalls", {"kind": "speedup", "baseline": "T4", "lines": [{"label": "peaks", "value": "3/2"}]}]),
        ("load", 36),
        ("mathmode", {"framework": "pytorch", "version": "2.1"}),
    ],
)
def test_a_short_form_is_accepted(key_path: str, value: object) -> None:
    assert problems("experiment", changed(shipped("experiments/tf32_paths.yaml"), key_path, value)) == []


def test_the_new_spec_of_a_board_names_the_schema(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert command("archs", "new", "T4x", "--like", "t4", "-o", "mine/t4x.yaml").returncode == 0
    first = (tmp_path / "mine" / "t4x.yaml").read_text(encoding="utf-8").partition("\n")[0]
    named = tmp_path / "mine" / first.removeprefix("# yaml-language-server: $schema=")
    assert named.resolve() == REPOSITORY / "schemas" / "gpu.json"
