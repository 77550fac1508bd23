"""Tables on terminals of any width: figures whole, no empty columns."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from conftest import WriteRuns, measured_line
from rich.console import Console

from gpusim.cli import run_cli
from gpusim.report.experiment_tables import training_table
from gpusim.report.text_table import NOT_SHOWN, TextTable
from gpusim.studies.calibration.fit_tables import calibration_tables

SMALL = ("-m", "512", "-n", "512", "-k", "256")
SPEEDUPS = """
title: Four boards in one table
gpus: [V100-SXM2-16GB, T4, RTX-3090, A100-SXM4-80GB]
dtypes: [fp16]
gemms: [{m: 4096, n: 11008, k: 4096}, {square: 512}]
tables: [speedup, results, ledger]
plots: [{kind: speedup, baseline: V100-SXM2-16GB}]
"""
WIDTHS = (60, 80, 120)


def drawn(table: TextTable, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table.drawn(width))
    return stream.getvalue()


def assert_readable(table: TextTable, width: int) -> None:
    """No line is longer than the terminal, nothing is cut, and every figure is on one line, or its column is named."""
    text = drawn(table, width)
    assert "…" not in text
    left_out = text.partition(NOT_SHOWN)[2]
    assert max(map(len, text.splitlines())) <= width
    for row in table.rows:
        for heading, cell in zip(table.headings, row, strict=True):
            figures = heading.startswith(">") and not (heading in table.optional and heading[1:] in left_out)
            assert not figures or cell in text, (heading, cell, text)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[TextTable]:
    """The tables that commands print, which work in an empty folder."""
    found: list[TextTable] = []

    def keep(table: TextTable) -> None:
        found.append(table)

    monkeypatch.setattr(TextTable, "show", keep)
    monkeypatch.chdir(tmp_path)
    return found


COMMANDS = {
    "prediction": ("gemm", "--arch", "t4", *SMALL, "--explain"),
    "comparison": ("gemm", "--arch", "t4", "--arch", "a100-sxm4-80gb", "-m", "16,4096", *SMALL[2:], "--explain"),
    "boards": ("archs", "list"),
    "board": ("archs", "show", "a100-sxm4-80gb"),
    "mathmode": (
        *("mathmode", "--framework", "pytorch", "--version", "1.13", "--arch", "a100-sxm4-80gb"),
        *("--set", "torch.backends.cuda.matmul.allow_tf32=true", "--env", "NVIDIA_TF32_OVERRIDE=0"),
    ),
    "numerics": ("numerics", "--dtype", "fp16", "-m", "64", "-n", "64", "-k", "64"),
    "measurement": ("measure", "gemm", "--plan"),
    "speedups": ("run", "speedups.yaml", "-o", "out"),
    "validation": ("validate", "runs.csv", "--strata", "--more", "--pair", "t4", "a100-sxm4-80gb"),
    "counters": ("counters", "counted.csv"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_of_any_width_shows_every_figure_whole(
    shown: list[TextTable], tmp_path: Path, write_runs: WriteRuns, command: str
) -> None:
    (tmp_path / "speedups.yaml").write_text(SPEEDUPS, encoding="utf-8")
    shapes = ((16, 4096, 4096), (512, 512, 512), (4096, 4096, 1024))
    both = [measured_line(shape, 50.0, gpu=gpu) for shape in shapes for gpu in ("t4", "a100-sxm4-80gb")]
    written = write_runs(both)
    header, *lines = written.read_text(encoding="utf-8").splitlines()
    counted = [f"{header},dram__bytes_read.sum", *(f"{line},1048576" for line in lines)]
    (tmp_path / "counted.csv").write_text("\n".join(counted) + "\n", encoding="utf-8")
    assert run_cli(COMMANDS[command]) == 0
    assert shown
    for table in shown:
        for width in WIDTHS:
            assert_readable(table, width)


def test_the_tables_of_a_fit_and_of_a_training_are_readable_too() -> None:
    errors = {
        f"{when}_{figure}": 12.34 for when in ("before", "after", "held_out") for figure in ("mape", "median_ape")
    }
    value = {
        "key_path": "dram.efficiency_fraction",
        "before": 0.91,
        "kind": "fitted",
        "after": 0.9375,
        "low": 0.9,
        "high": 0.95,
    }
    bias = {"mma.split_k": 0.0625, "simt.waves": 0.25, "simt.padding": 0.0}
    report = {
        "arch": "T4",
        "sampled_rows": 100,
        "rows": 470,
        "parameters": [{**value, "at_limit": True, "identified": True, "stated": "", "reason": ""}],
        "bias": bias,
        "older": {"cuda_10": bias},
        "errors": [{"table": "deepbench_t4_fp16", "gpu": "t4", "dtype": "fp16", "op": "gemm", "rows": 47, **errors}],
        "without": [],
        "own_timing": [],
        "choices": {"rows": 12, "log_loss": 1.25, "same_kernel_pct": 62.5},
        "left_out": {"operator 'conv' is not predicted": 12},
    }
    row = {
        "run": "FP16, dynamic scale",
        "dtype": "fp16",
        "weights": "fp32",
        "step": 5999,
        "loss": 0.01234,
        "loss_scale": 65536.0,
        "skipped_steps": 12,
        "vanished_fraction": 0.5,
        "lost_update_fraction": 0.25,
    }
    for table in (*calibration_tables(report), training_table("Mixed precision", [row])):
        for width in WIDTHS:
            assert_readable(table, width)


def test_figures_that_do_not_fit_side_by_side_are_listed_row_by_row() -> None:
    table = TextTable("Boards", ("GPU", *(f">figure {at}" for at in range(9))), (("T4", *["1234.5678"] * 9),))
    assert_readable(table, 60)
    assert "figure 8" in drawn(table, 60)
    assert drawn(table, 60).count("1234.5678") == 9


def test_a_narrow_terminal_says_which_columns_it_leaves_out() -> None:
    table = TextTable("", ("GPU", ">time", "kernel"), (("T4", "1 us", "k" * 60),), optional=("kernel",))
    assert "k" * 60 in drawn(table, 80)
    assert "Not shown" not in drawn(table, 40)
    assert "Not shown at this width: kernel" in " ".join(drawn(table, 20).split())


@pytest.mark.parametrize("width", [20, 80])
def test_brackets_in_titles_headings_and_cells_are_text(width: int) -> None:
    table = TextTable("[red]t", ("[b]x", ">[i]y", ">time"), (("[u]z", "12345678", "1234567"),))
    assert all(text in drawn(table, width) for text in ("[red]t", "[b]x", "[i]y", "[u]z"))


def test_a_column_that_is_empty_in_every_row_is_not_shown() -> None:
    table = TextTable("", ("GPU", "what", ">time"), (("T4", "", "1 us"), ("A100", "", "2 us")))
    assert table.plain() == "GPU   time\nT4    1 us\nA100  2 us"
    assert "what" not in drawn(table, 80)
    assert "what" in TextTable("", ("GPU", "what"), ()).plain()
