"""``archs new``, ``diff`` and ``schema``: a spec to begin with, refused until every source is filled in."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import RunGpusim, refused

import gpusim
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
        (("Mine", "--like", "rtx-3090", "-o", "no/mine.yaml"), r"no/mine\.yaml: no folder no; make it first"),
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


STATED = (
    *("--compute-capability", "8.6", "--sms", "28", "--base-mhz", "1320", "--boost-mhz", "1777", "--l2-mib", "2"),
    *("--dram", "GDDR6", "--gb", "8", "--watts", "170", "--source", "GA106 datasheet"),
)
BUS = ("--bus-bits", "128", "--gbit-per-s", "15")


def test_a_datasheet_gives_a_whole_spec(command: RunGpusim, tmp_path: Path) -> None:
    done = command("archs", "new", "RTX 3060 8GB", *STATED, *BUS, "--fp16-tflops", "25.5")
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(
        r"wrote rtx_3060_8gb\.yaml: 8 values of the datasheet, \d derived from RTX-3060, the rest of its base\n$",
        done.stderr,
    )
    assert command("archs", "check", tmp_path / "rtx_3060_8gb.yaml").returncode == 0
    spec = load_spec(tmp_path / "rtx_3060_8gb.yaml")
    assert (spec.gpu.name, spec.gpu.sm.count, spec.gpu.dram.peak_bandwidth_gb_per_s) == ("RTX 3060 8GB", 28, 240.0)
    bandwidth = spec.provenance["dram.peak_bandwidth_gb_per_s"]
    assert (bandwidth.kind, bandwidth.source) == ("datasheet", "GA106 datasheet: 128 bit / 8 x 15 Gbit/s")
    assert command("gemm", "--arch", "rtx_3060_8gb.yaml", *SIZE).returncode == 0
    other = command("archs", "new", "Other", *STATED, "--gb-per-s", "448", "--like", "rtx-3090")
    assert "derived from RTX-3090" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "--sms, --base-mhz, --boost-mhz, --l2-mib, --dram, --gb, --gb-per-s, --watts: missing; state what the"),
        (
            ("--sms", "3", "--like", "t4"),
            "--base-mhz, --boost-mhz, --l2-mib, --dram, --gb, --gb-per-s, --watts: missing",
        ),
        (STATED, "--gb-per-s: missing"),
        ((*STATED, "--bus-bits", "256"), "--bus-bits and --gbit-per-s: need each other"),
        ((*STATED, *BUS, "--gb-per-s", "448"), "--gb-per-s: states again what --bus-bits and --gbit-per-s give"),
        ((*STATED, *BUS, "--base-mhz", "1810"), "clock.boost_mhz: min 210 <= base 1810 <= boost 1777"),
        ((*STATED, *BUS, "--sms", "0"), "--sms"),
        ((*STATED, *BUS, "--fp16-tflops", "99"), "99 TFLOP/s of FP16: with 28 SMs at 1777 MHz a board of"),
        ((*STATED, *BUS, "--compute-capability", "3.5"), "3.5: no board to derive the rest from"),
        ((*STATED, *BUS, "--like", "rtx-309"), "rtx-309: unknown GPU"),
        ((*STATED, *BUS, "-o", "no/mine.yaml"), "no/mine.yaml: no folder no; make it first"),
    ],
)
def test_a_datasheet_that_gives_no_spec_is_refused(
    command: RunGpusim, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in refused(command("archs", "new", "Mine", *arguments))
    assert not list(tmp_path.iterdir())


def test_a_terminal_is_asked_for_what_is_missing(tmp_path: Path) -> None:
    terminal, program = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path(gpusim.__file__).parents[1]), "NO_COLOR": "1"}
    arguments = ("archs", "new", "Mine", "--dram", "GDDR6", "--gb", "8", *BUS)
    with subprocess.Popen(
        (sys.executable, "-m", "gpusim", *arguments),
        stdin=program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, text=True,
    ) as running:  # fmt: skip
        os.close(program)
        os.write(terminal, b"8.6\n28\n1320\nmany\n1777\n2\n170\n0\n0\n25.5\n")
        out, said = running.communicate(timeout=120)
    os.close(terminal)
    assert (running.returncode, out.strip()) == (0, "")
    questions = [
        "capability",
        "Streaming",
        "Base clock",
        "Boost clock",
        "L2",
        "Power limit",
        "Highest",
        "NVLinks",
        "FP16",
    ]
    places = [said.index(question) for question in questions]
    assert places == sorted(places)
    assert said.count("Error: ") == said.count("Boost clock") - 1 == 1  # asked again
    assert "derived from RTX-3060" in said
    assert load_spec(tmp_path / "mine.yaml").gpu.sm.count == 28


def test_the_values_in_which_two_boards_differ_are_listed_with_their_ratio(command: RunGpusim) -> None:
    done = command("archs", "diff", "v100-sxm2-16gb", "a100-sxm4-40gb", "--format", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["a"], found["b"]) == (0, "V100-SXM2-16GB", "A100-SXM4-40GB")
    values = found["values"]
    assert values["sm.count"] == {"unit": "", "a": 80, "b": 108, "ratio": 1.35}
    assert values["l2.capacity_mib"] == {"unit": "MiB", "a": 6.0, "b": 40.0, "ratio": pytest.approx(40 / 6)}
    assert values["stated_peaks.hmma_16816_f32"] == {"unit": "TFLOP/s", "a": None, "b": 312.0, "ratio": None}
    assert "sm.warp_size" not in values  # 32 on both
    shown = [json.loads(command("archs", "show", found[side], "--format", "json").stdout)["values"] for side in "ab"]
    every = {key: tuple(one.get(key, {}).get("value") for one in shown) for key in (*shown[0], *shown[1])}
    assert {key: (row["a"], row["b"]) for key, row in values.items()} == {
        key: pair for key, pair in every.items() if pair[0] != pair[1]
    }
    turned = json.loads(command("archs", "diff", found["b"], found["a"], "--format", "json").stdout)["values"]
    assert turned.keys() == values.keys()
    assert turned["sm.count"]["ratio"] == pytest.approx(80 / 108)


def test_the_difference_of_two_boards_is_a_table_that_covers_library_and_host(command: RunGpusim) -> None:
    done = command("archs", "diff", "t4", "a100-sxm4-40gb")
    title, headings, *lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert title == f"{len(lines)} values differ between T4 and A100-SXM4-40GB"
    assert headings.split() == ["key", "unit", "T4", "A100-SXM4-40GB", "ratio"]
    assert ["l2.capacity_mib", "MiB", "4", "40", "10"] in [line.split() for line in lines]
    assert {line.partition(".")[0] for line in lines} >= {"sm", "dram", "library", "host"}
    assert command("archs", "diff", "t4", "t4").stdout.startswith("0 values differ between T4 and T4\n")


def test_a_difference_to_an_unknown_board_is_refused_as_it_is_shown(command: RunGpusim) -> None:
    assert refused(command("archs", "diff", "t4", "a11")) == refused(command("archs", "show", "a11"))
    assert refused(command("archs", "diff", "rtx-309", "t4")) == refused(command("archs", "show", "rtx-309"))


def test_the_schema_of_each_record_is_printed(command: RunGpusim) -> None:
    for record, key in (("gpu", "library"), ("library", "heuristic_bias"), ("host", "graph_gap_us")):
        schema = json.loads(command("archs", "schema", record).stdout)
        assert {"extends", "sources", key} <= set(schema["properties"])


def test_boards_are_listed_by_architecture_with_what_stands_behind_them(command: RunGpusim) -> None:
    found = json.loads(command("archs", "list", "--format", "json").stdout)["archs"]
    boards = {one["name"]: one for one in found}
    assert list(boards) == sorted(boards, key=str.lower)
    keys = ("calibrated_on", "measured_by", "left_out_rows", "left_out_mape")
    assert [boards["A40"][key] for key in keys] == ["board", ["vidur"], 150, 7.54]
    assert [boards["T4"][key] for key in keys] == ["board", ["deepbench", "neusight"], 0, None]
    assert [boards["RTX-2070"][key] for key in keys] == ["architecture", [], 0, None]
    assert [boards["teaching"][key] for key in keys] == ["nothing", [], 0, None]
    assert boards["RTX-3070"]["calibration_boards"] == ["A40", "RTX-3090"]
    for one in found:
        own = one["name"] in one["calibration_boards"]
        expected = "board" if own else "architecture" if one["calibration_boards"] else "nothing"
        assert (one["calibrated_on"], one["measured_rows"] > 0) == (expected, own)

    listed = command("archs", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert max(map(len, listed.stdout.splitlines())) <= 100
    *groups, measured = listed.stdout.strip().split("\n\n")
    heads = [re.match(r"(\w+), compute capability (\d+)\.(\d)", group.splitlines()[0]) for group in groups]
    places = [(int(head[2]), int(head[3])) for head in heads if head]
    assert len(places) == len(groups)
    assert places == sorted(places)
    names = [line.split()[0] for group in groups for line in group.splitlines()[2:]]
    assert sorted(names, key=str.lower) == list(boards)
    a40 = next(line for group in groups for line in group.splitlines() if line.startswith("A40 "))
    assert a40.split()[-3:] == ["board", str(boards["A40"]["measured_rows"]), "7.5"]
    assert [line.split()[0] for line in measured.splitlines()[2:]] == [
        name for name in names if boards[name]["measured_rows"]
    ]


def test_results_say_that_a_board_is_calibrated_on_nothing(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        'name: Mine\nextends: rtx_3070\narchitecture: blackwell\ncompute_capability: "12.0"\n', encoding="utf-8"
    )
    sentence = "Mine is not calibrated: "
    gemm = "gemm:512x512x512:fp16"
    for arguments in (
        ("gemm", "--arch", "mine.yaml", "-m", "512", "-n", "512", "-k", "512"),
        ("gemm", "--arch", "mine.yaml", "--arch", "t4", "-m", "512,1024", "-n", "512", "-k", "512"),
        ("compare", gemm, "--archs", "mine.yaml,t4", "--jobs", "1"),
        ("explain", gemm, "--arch", "t4", "--to", "mine.yaml"),
        ("model", "bert_base", "--arch", "mine.yaml", "--batch", "1", "--mode", "inference", "--jobs", "1"),
        ("archs", "show", "mine.yaml"),
    ):
        assert command(*arguments).stdout.count(sentence) == 1, arguments
    found = json.loads(command("compare", gemm, "--archs", "mine.yaml,t4", "--jobs", "1", "--format", "json").stdout)
    assert {one["arch"]: one["calibrated_on"] for one in found} == {"Mine": "nothing", "T4": "board"}
    explained = json.loads(command("explain", gemm, "--arch", "t4", "--to", "mine.yaml", "--format", "json").stdout)
    assert (explained["calibrated_on"], explained["to"]["calibrated_on"]) == ("board", "nothing")
    step = ("model", "bert_base", "--arch", "mine.yaml", "--batch", "1", "--mode", "inference", "--format", "json")
    assert json.loads(command(*step).stdout)["calibrated_on"] == "nothing"
