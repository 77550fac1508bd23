"""``archs new`` and ``archs schema``: a spec to begin with, refused until every source is filled in."""

import json
import re
from pathlib import Path

import pytest
import yaml
from conftest import RunGpusim, refused

from gpusim.specs import load_spec

SIZE = ("-m", "512", "-n", "512", "-k", "512", "--format", "json")


def test_a_starter_states_what_its_model_states_itself_and_is_refused_until_filled_in(
    command: RunGpusim, tmp_path: Path
) -> None:
    done = command("archs", "new", "RTX 3090 Ti", "--like", "rtx-3090")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "gpusim: wrote rtx_3090_ti.yaml\n")
    path = tmp_path / "rtx_3090_ti.yaml"
    text = path.read_text(encoding="utf-8")
    model = load_spec("rtx-3090")
    own = {key for key, origin in model.provenance.items() if origin.file == model.files[0]}
    left = command("archs", "check", path).stderr.splitlines()
    assert len(left) == len(own) > 10
    for key_path in own:
        pattern = rf"gpusim: {path}:\d+: {re.escape(key_path)}\.source: left to fill in; state the value, .*"
        assert any(re.fullmatch(pattern, line) for line in left), key_path
    path.write_text(re.sub(r"TODO \(RTX-3090: ", "as on the RTX 3090 (", text), encoding="utf-8")
    assert command("archs", "check", path).returncode == 0
    filled = load_spec(path)
    assert filled.gpu.name == "RTX 3090 Ti"
    assert filled.gpu.model_copy(update={"name": model.gpu.name, "aliases": model.gpu.aliases}) == model.gpu
    times = [json.loads(command("gemm", "--arch", arch, *SIZE).stdout)["time_us"] for arch in (str(path), "rtx-3090")]
    assert times[0] == times[1]


def test_a_starter_after_a_board_that_extends_nothing_states_all(command: RunGpusim, tmp_path: Path) -> None:
    assert command("archs", "new", "Mine", "--like", "teaching", "-o", "mine.yaml").returncode == 0
    document = yaml.safe_load((tmp_path / "mine.yaml").read_text(encoding="utf-8"))
    assert "extends" not in document
    assert (document["library"], document["host"], document["architecture"]) == ("teaching",) * 3
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8").replace("TODO", "as it was")
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    assert load_spec(tmp_path / "mine.yaml").gpu.sm == load_spec("teaching").gpu.sm


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("Mine", "--like", "rtx-3090", "-o", "there.yaml"), r"there\.yaml: exists; remove it, or name another file"),
        (("Mine", "--like", "rtx-309"), r"rtx-309: unknown GPU; did you mean .*RTX-3090"),
        (("Mine", "--like", "rtx-3090", "-o", "mine.txt"), r"-o mine\.txt: expected a \.yaml file"),
        (("Mine", "--like", "rtx-3090", "-o", "no/mine.yaml"), r"no/mine\.yaml: No such file or directory"),
        ((" ", "--like", "rtx-3090"), r"NAME: expected printable text"),
    ],
)
def test_what_cannot_be_written_is_refused(
    command: RunGpusim, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "there.yaml").write_text("mine", encoding="utf-8")
    assert re.search(problem, refused(command("archs", "new", *arguments)))
    assert [path.name for path in tmp_path.iterdir()] == ["there.yaml"]
    assert (tmp_path / "there.yaml").read_text(encoding="utf-8") == "mine"


def test_the_schema_of_each_record_is_printed(command: RunGpusim) -> None:
    for record, key in (("gpu", "library"), ("library", "heuristic_bias"), ("host", "graph_gap_us")):
        schema = json.loads(command("archs", "schema", record).stdout)
        assert {"extends", "sources", key} <= set(schema["properties"])
