"""``gpusim compare``: a workload on several boards, and performance for the money."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from conftest import RunGpusim, refused

import gpusim
from gpusim.studies.compare import Compared, comparison_tables
from gpusim.studies.prices import read_prices

SMALL = ("compare", "gemm:64x128x256:fp16", "--detail", "bound", "--jobs", "1")
TWO = ("--archs", "t4,v100-sxm2-16gb")


def test_figures_are_those_of_predictions(command: RunGpusim) -> None:
    v100, t4 = json.loads(command(*SMALL, *TWO, "--format", "json").stdout)
    alone = gpusim.predict("v100-sxm2-16gb", m=64, n=128, k=256, dtype="fp16", detail="bound")
    assert (t4["arch"], v100["arch"], t4["speedup"]) == ("T4", "V100-SXM2-16GB", 1)
    assert v100["time_us"] == pytest.approx(alone.time_us, rel=1e-11)
    assert v100["speedup"] == pytest.approx(t4["time_us"] / v100["time_us"])
    assert (v100["bottleneck"], v100["fits"]) == (alone.bottleneck, True)
    assert v100["energy_mj"] == pytest.approx(alone.counters.energy_mj, rel=1e-11)
    assert t4["price"] is t4["runs_per_dollar"] is t4["relative_value"] is None


def test_all_boards_are_those_of_the_list_but_the_textbook(command: RunGpusim) -> None:
    found = {one["arch"]: one for one in json.loads(command(*SMALL, "--format", "json").stdout)}
    listed = json.loads(command("archs", "list", "--format", "json").stdout)
    text = json.dumps(listed)
    assert "teaching" not in found
    assert len(found) >= 20
    assert all(name in text for name in found)


def test_a_board_that_cannot_run_it_says_why(command: RunGpusim) -> None:
    done = command("compare", "gemm:64x64x64:tf32", *TWO, "--detail", "bound", "--jobs", "1")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "Cannot run it"
    done = command("compare", "gemm:64x64x64:bf16", "--archs", "v100-sxm2-16gb,a100-sxm4-80gb", "--jobs", "1")
    assert (done.returncode, done.stderr) == (1, "gpusim: 1 of 2 GPUs cannot run it\n")
    assert "Cannot run it" in done.stdout


def test_an_unknown_board_does_not_end_the_others(command: RunGpusim) -> None:
    done = command(*SMALL, "--archs", "t4,h999", "--format", "json")
    t4, unknown = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "gpusim: 1 of 2 GPUs cannot run it\n")
    assert (t4["arch"], t4["speedup"], unknown["arch"], unknown["time_us"]) == ("T4", 1, "h999", None)
    assert "h999: unknown GPU" in unknown["reason"]


def test_the_fastest_is_first_and_speedups_are_over_the_baseline(command: RunGpusim) -> None:
    asked = (*SMALL, "--archs", "t4,a100-sxm4-80gb,v100-sxm2-16gb")
    found = json.loads(command(*asked, "--baseline", "Tesla V100-SXM2-16GB", "--format", "json").stdout)
    times_us = [one["time_us"] for one in found]
    speedups = {one["arch"]: one["speedup"] for one in found}
    assert times_us == sorted(times_us)
    assert speedups["V100-SXM2-16GB"] == 1
    assert speedups["T4"] < 1 < speedups["A100-SXM4-80GB"]
    assert {one["baseline"] for one in found} == {"V100-SXM2-16GB"}
    added = json.loads(command(*SMALL, "--archs", "t4", "--baseline", "a10", "--format", "json").stdout)
    assert {one["arch"] for one in added} == {"T4", "A10"}
    assert "baseline T4: " in refused(
        command("compare", "gemm:64x64x64:bf16", "--archs", "a10", "--baseline", "t4", "--jobs", "1")
    )


def test_memory_decides_the_status_of_named_boards_only(command: RunGpusim) -> None:
    asked = ("compare", "gemm:100000x100000x8192:fp16", "--detail", "bound", "--jobs", "1")
    named = command(*asked, "--archs", "t4,a100-sxm4-80gb")
    said = "gpusim: the workload does not fit into the memory of T4; --allow-oom accepts that\n"
    assert (named.returncode, named.stderr) == (1, said)
    assert command(*asked, "--archs", "t4,a100-sxm4-80gb", "--allow-oom").returncode == 0
    everywhere = command(*asked)
    assert (everywhere.returncode, everywhere.stderr) == (0, "")
    rows = {
        line.split()[0]: line.split()[-1] for line in everywhere.stdout.splitlines() if line.startswith(("T4", "A100"))
    }
    assert (rows["T4"], rows["A100-SXM4-80GB"] == "no") == ("no", False)


def test_a_board_with_too_little_memory_has_no_value_for_the_money(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("gpu,per_hour\nt4,0.5\na100-sxm4-80gb,2\n", encoding="utf-8")
    asked = (
        "compare",
        "gemm:100000x100000x8192:fp16",
        "--detail",
        "bound",
        "--jobs",
        "1",
        "--archs",
        "t4,a100-sxm4-80gb",
    )
    priced = ("--prices", "prices.csv", "--format", "json", "--allow-oom")
    a100, t4 = json.loads(command(*asked, *priced).stdout)
    assert (a100["fits"], a100["relative_value"], a100["baseline"]) == (True, 1, "T4")
    assert (t4["fits"], t4["price"], t4["relative_value"], t4["runs_per_dollar"]) == (False, 0.5, None, None)


def test_each_board_keeps_a_row_on_a_terminal_of_100_characters() -> None:
    found = [
        Compared(
            arch, step="resnet50, training in amp-fp16", time_us=1e5, speedup=1.25, speedup_p10=1.02, speedup_p90=1.51,
            bottleneck="dram", as_graph_us=9e4, time_us_p10=9e4, time_us_p90=1.1e5, energy_mj=1.5e5, memory_gib=20.87,
            fits=False, price=11999.0, relative_value=1.25, baseline="A10",
        )
        for arch in ("A100-SXM4-80GB", "Quadro-RTX-8000", "V100S-PCIe-32GB")
    ]  # fmt: skip
    (table,) = comparison_tables(found, "resnet50")
    drawn = table.drawn(100)
    assert drawn.row_count == len(found)
    gpu = drawn.columns[0]
    assert gpu.width == len("Quadro-RTX-8000")
    assert "8 in 10 runs" in str(drawn.caption)


def test_results_name_the_values_that_were_replaced(command: RunGpusim) -> None:
    changed = ("--set", "sm.count=0.5x")
    found = json.loads(command(*SMALL, "--archs", "t4", *changed, "--format", "json").stdout)
    assert found[0]["overrides"] == {"sm.count": 20}
    assert "T4 (sm.count=20)" in command(*SMALL, "--archs", "t4", *changed).stdout


def test_csv_has_a_row_for_each_board(command: RunGpusim) -> None:
    asked = (*SMALL, "--archs", "t4,h999", "--set", "sm.count=20")
    t4, unknown = csv.DictReader(io.StringIO(command(*asked, "--format", "csv").stdout))
    (alone, _) = json.loads(command(*asked, "--format", "json").stdout)
    assert float(t4["time_us"]) == alone["time_us"]
    assert json.loads(t4["overrides"]) == alone["overrides"]
    assert "unknown GPU" in unknown["reason"]


def test_processes_do_not_repeat_what_a_short_name_stands_for(gpusim: RunGpusim) -> None:
    shown = gpusim(*SMALL[:-1], "2", "--archs", "v100,a100").stderr
    assert [shown.count(f"'{name}' is taken as") for name in ("v100", "a100")] == [1, 1]


def test_prices_by_the_hour_give_runs_per_dollar(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("gpu,per_hour\nt4,0.5\nTesla V100-SXM2-16GB,2\n", encoding="utf-8")
    v100, t4 = json.loads(command(*SMALL, *TWO, "--prices", "prices.csv", "--format", "json").stdout)
    assert t4["runs_per_dollar"] == pytest.approx(3600e6 / t4["time_us"] / 0.5)
    assert t4["relative_value"] == 1
    assert v100["relative_value"] == pytest.approx(v100["speedup"] / 4)


def test_prices_to_buy_of_some_boards(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("to_buy:\n  v100-sxm2-16gb: 8000\n", encoding="utf-8")
    v100, t4 = json.loads(command(*SMALL, *TWO, "--prices", "prices.yaml", "--format", "json").stdout)
    assert t4["relative_value"] is None
    assert (v100["price"], v100["relative_value"], v100["runs_per_dollar"]) == (8000, 1, None)
    assert read_prices(tmp_path / "prices.yaml").of("T4") is None


def test_a_model_is_compared_by_its_step(command: RunGpusim) -> None:
    sizes = ("--batch", "1", "--seq-len", "32")
    asked = ("bert_base", "--mode", "inference", "--precision", "fp16", *sizes, "--jobs", "1", "--format", "json")
    (found,) = json.loads(command("compare", *asked, "--archs", "t4").stdout)
    step = json.loads(command("model", *asked, "--arch", "t4").stdout)
    assert found["step"] == "bert_base, inference in fp16: batch 1, seq_len 32"
    assert found["time_us"] == pytest.approx(1e3 * step["step_ms"])
    assert found["memory_gib"] == pytest.approx(step["memory_gib"])
    assert found["bottleneck"] == step["bottleneck"] == "host"
    assert found["as_graph_us"] == pytest.approx(1e3 * step["as_graph_ms"])
    assert found["as_graph_us"] < found["time_us"]
    assert found["energy_mj"] == pytest.approx(1e3 * step["energy_j"])
    assert found["time_us_p10"] == pytest.approx(1e3 * step["step_ms_p10"])
    assert found["time_us_p10"] < found["time_us"] < found["time_us_p90"] == pytest.approx(1e3 * step["step_ms_p90"])
    assert found["evidence"] is None


def test_an_operator_has_the_interval_of_its_prediction(command: RunGpusim) -> None:
    asked = ("compare", "gemm:64x128x256:fp16", "--archs", "t4", "--jobs", "1")
    (found,) = json.loads(command(*asked, "--format", "json").stdout)
    alone = gpusim.predict("t4", m=64, n=128, k=256, dtype="fp16").timing
    assert (found["time_us_p10"], found["time_us_p90"]) == pytest.approx((alone.time_us_p10, alone.time_us_p90))
    assert f" us, {alone.evidence} " in command(*asked).stdout


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "gpu,price\nt4,1\n", "p.csv:1: no prices"),
        ("p.csv", "gpu,per_hour,to_buy\nt4,1,2\n", "p.csv:1: both per_hour and to_buy"),
        ("p.csv", "gpu,per_hour\nt5000,2\n", "p.csv:2: gpu: t5000: unknown GPU"),
        ("p.csv", "gpu,per_hour\nt4,cheap\n", "p.csv:2: per_hour: expected a number"),
        ("p.csv", "gpu,per_hour\nt4,0\n", "p.csv:2: per_hour: no price above 0"),
        ("p.csv", "gpu,per_hour\nt4,1\nTesla T4,2\n", "p.csv:3: gpu: T4 is given twice"),
        ("p.yaml", "t4: 1\n", "p.yaml:1: expected one key, per_hour or to_buy"),
        ("p.yaml", "per_hour:\n  t4: free\n", "p.yaml:2: per_hour.t4: expected a price above 0"),
        ("p.yaml", "per_hour:\n  t5000: 2\n", "p.yaml:2: per_hour.t5000"),
    ],
)
def test_wrong_prices_are_refused_at_their_line(
    command: RunGpusim, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert message in refused(command(*SMALL, *TWO, "--prices", name))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "gpu,per_hour\nt5000,1\nt4,2\n", "p.csv:2: gpu: t5000: unknown GPU"),
        ("p.csv", "gpu,per_hour\nv100-sxm2-16gb,0\nt4,2\n", "p.csv:2: per_hour: no price above 0"),
        ("p.yaml", "per_hour:\n  t5000: 1\n  t4: 2\n", "p.yaml:2: per_hour.t5000"),
    ],
)
def test_a_wrong_price_leaves_the_others(
    command: RunGpusim, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = command(*SMALL, *TWO, "--prices", name, "--format", "json")
    prices = {one["arch"]: one["price"] for one in json.loads(done.stdout)}
    assert prices == {"V100-SXM2-16GB": None, "T4": 2}
    assert message in done.stderr
    assert done.stderr.endswith("; this price is left out\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("gemm:64x64x64", "--archs", "t4,,v100"), "an empty name"),
        (("gemm:64x64x64", "--archs", "t44x"), "t44x"),
        (("gemm:64x64x64", "--archs", "t4", "--prices", "no.csv"), "no.csv"),
        (("gemm:64x64x64:fp61", "--archs", "t4"), "fp61"),
        (("resnet50", "--archs", "t4", "--seq-len", "8"), "resnet50 has no size 'seq_len'"),
    ],
)
def test_wrong_input_is_one_line(command: RunGpusim, arguments: tuple[str, ...], text: str) -> None:
    assert text in refused(command("compare", *arguments, "--jobs", "1"))
