"""Short names that several boards share: the board that they select, and the note on standard error."""

import json
from pathlib import Path

import pytest
from conftest import WriteRuns, measured_line

from gpusim.cli import run_cli
from gpusim.files.yamlfile import SpecError
from gpusim.specs import ArchEntry, list_archs, load_spec

SELECTED = [
    ("a100", "A100-SXM4-80GB", {"A100-SXM4-40GB", "A100-PCIe-40GB", "A100-PCIe-80GB"}),
    ("A100-80GB", "A100-SXM4-80GB", {"A100-PCIe-80GB"}),
    ("nvidia a100 sxm4", "A100-SXM4-80GB", {"A100-SXM4-40GB"}),
    ("a100-40gb", "A100-SXM4-40GB", {"A100-PCIe-40GB"}),
    ("a100-pcie", "A100-PCIe-80GB", {"A100-PCIe-40GB"}),
    ("v100", "V100-SXM2-16GB", {"V100-SXM2-32GB", "V100-SXM3-32GB", "V100-PCIe-16GB", "V100-PCIe-32GB"}),
    ("Tesla V100 32GB", "V100-SXM2-32GB", {"V100-SXM3-32GB", "V100-PCIe-32GB"}),
    ("v100_pcie", "V100-PCIe-16GB", {"V100-PCIe-32GB"}),
    ("h100", "H100-SXM5-80GB", {"H100-PCIe-80GB"}),
]
NOTE = "gpusim: 'h100' is taken as H100-SXM5-80GB; others: H100-PCIe-80GB"
SHAPE = ("-m", "256", "-n", "256", "-k", "64")


@pytest.mark.parametrize(("name", "selected", "others"), SELECTED)
def test_a_short_name_selects_one_board_and_names_the_others(
    name: str, selected: str, others: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert load_spec(name).gpu.name == selected
    beginning = f"'{name}' is taken as {selected}; others: "
    assert [message[: len(beginning)] for message in caplog.messages] == [beginning]
    assert set(caplog.messages[0].removeprefix(beginning).split(", ")) == others


@pytest.mark.parametrize("entry", list_archs(), ids=lambda entry: entry.name)
def test_a_name_of_one_board_alone_is_taken_without_a_word(entry: ArchEntry, caplog: pytest.LogCaptureFixture) -> None:
    for name in (entry.name, entry.path.stem, *entry.aliases):
        assert load_spec(name).gpu.name == entry.name
    assert caplog.messages == []


def test_a_short_name_gives_way_to_a_board_of_that_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mine.yaml").write_text("name: V100\naliases: []\nextends: teaching\n", encoding="utf-8")
    assert load_spec("v100", [tmp_path]).gpu.name == "V100"
    assert caplog.messages == []


def test_short_names_that_are_not_a_list_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: Mine\nshort_names: V100\nextends: teaching\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"mine\.yaml:2: short_names: expected a list of texts; write \[A, B\]$"):
        load_spec("Mine", [tmp_path])


COMMANDS = [
    ("archs", "show", "h100"),
    ("gemm", "--arch", "h100", *SHAPE, "--detail", "bound"),
    ("trace", "--arch", "h100", *SHAPE, "-o", "t.json"),
    ("numerics", "--arch", "h100", *SHAPE, "--dtype", "fp16"),
    ("mathmode", "--framework", "pytorch", "--version", "2.1", "--arch", "h100"),
    ("run", "mine.yaml", "-o", "out", "--jobs", "1"),
    ("validate", "runs.csv", "--detail", "bound", "--jobs", "1"),
    ("validate", "runs.csv", "--detail", "bound", "--jobs", "1", "--pair", "t4", "h100"),
    ("counters", "counted.csv", "--detail", "bound"),
    ("calibrate", "--arch", "h100", "--measured", "runs.csv", "-o", "h100.yaml"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_says_once_which_board_a_short_name_selects(
    command: tuple[str, ...],
    tmp_path: Path,
    write_runs: WriteRuns,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    table = write_runs([measured_line((256 * size, 256, 64), 10.0, gpu="h100") for size in (1, 2)])
    with table.open("a", encoding="utf-8") as file:
        file.write(measured_line((256, 256, 64), 10.0) + "\n")
    header, *lines = table.read_text(encoding="utf-8").splitlines()
    counted = [f"{header},gpu__time_duration.sum", *(f"{line},1" for line in lines)]
    Path("counted.csv").write_text("\n".join(counted) + "\n", encoding="utf-8")
    experiment = {
        "title": "t",
        "gpus": ["h100", {"gpu": "h100", "label": "again"}],
        "gemms": [{"square": 256}],
        "dtypes": ["fp16"],
        "detail": "bound",
    }
    Path("mine.yaml").write_text(json.dumps(experiment), encoding="utf-8")
    run_cli(command)
    assert capsys.readouterr().err.splitlines().count(NOTE) == 1
