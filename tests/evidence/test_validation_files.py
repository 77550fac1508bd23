"""Files of a validation: rows, report and plots, all or none; interrupted work is not repeated."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunGpusim, WriteRuns, refused
from conftest import measured_line as line
from matplotlib.axes import Axes
from text_of_figures import unreadable

from gpusim.execution.journal import JOURNAL, journal_in
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.studies.validation import plots
from gpusim.studies.validation.output import write_files
from gpusim.studies.validation.report import ValidationReport, validate
from gpusim.system import System
from gpusim.workloads.operators import Operator

SHAPES = ((8, 512, 512), (64, 512, 512), (512, 512, 512), (2048, 1024, 1024))
PNG = b"\x89PNG\r\n\x1a\n"
GPUS = ("t4", "v100-sxm2-16gb")


@pytest.fixture
def table(write_runs: WriteRuns) -> Path:
    runs = [line(shape, 10.0 * place, gpu=gpu) for gpu in GPUS for place, shape in enumerate(SHAPES, 1)]
    return write_runs([*runs, line(SHAPES[0], 10.0, op="conv_fwd")])


@pytest.fixture
def report(table: Path) -> ValidationReport:
    return validate([table], pair=GPUS)


def without_seconds(report: dict[str, Any]) -> dict[str, Any]:
    for metrics in (*report["tables"], report["overall"]):
        del metrics["seconds"]
    return report


def test_the_folder_has_every_row_the_report_and_the_pictures(command: RunGpusim, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command("validate", table, "--pair", *GPUS, "-o", out, "--format", "json")
    assert done.returncode == 1  # one row is skipped
    names = ["error_by_shape.png", "parity.png", "rows.csv", "speedup.png", "validation.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert [Path(text.rpartition(" ")[2]).name for text in done.stderr.splitlines()[: len(names)]] == names
    written = json.loads((out / "validation.json").read_text(encoding="utf-8"))
    assert sorted(written.pop("files")) == [name for name in names if name != "validation.json"]
    assert written == without_seconds(json.loads(done.stdout))
    assert all((out / name).read_bytes().startswith(PNG) for name in names if name.endswith(".png"))
    with (out / "rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["line"]) for row in rows) == list(range(2, 11))
    assert [row["skipped"] for row in rows if row["skipped"]] == ["operator 'conv_fwd' is not predicted"]
    assert all(float(row["predicted_us"]) > 0 for row in rows if not row["skipped"])


def test_the_same_rows_give_the_same_files(table: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        _ = write_files(validate([table], pair=GPUS), tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_picture_of_other_rows_does_not_stay(report: ValidationReport, table: Path, tmp_path: Path) -> None:
    assert "speedup.png" in {path.name for path in write_files(report, tmp_path)}
    (tmp_path / "mine.png").write_bytes(b"")
    written = write_files(validate([table]), tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "mine.png",
        *(path.name for path in written if path.suffix == ".png"),
    }


def test_a_table_of_nothing_but_skipped_rows_is_written_without_pictures(
    command: RunGpusim, write_runs: WriteRuns, tmp_path: Path
) -> None:
    done = command(
        "validate", write_runs([line(SHAPES[0], 10.0, op="conv_fwd")]), "-o", tmp_path / "out", "--strata", "--more"
    )
    assert done.returncode == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rows.csv", "validation.json"]


def test_an_interrupted_validation_goes_on_where_it_stopped(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def interrupt(done: int, _total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), journal_in(out) as journal:
        _ = validate([table], progress=interrupt, journal=journal)
    assert [path.name for path in out.iterdir()] == [JOURNAL]
    with journal_in(out) as journal:
        resumed = validate([table], journal=journal)
        assert journal.resumed == 5
    assert without_seconds(resumed.as_dict()) == without_seconds(validate([table]).as_dict())
    assert list(out.iterdir()) == []


def test_a_row_whose_prediction_meets_a_defect_is_counted_by_its_reason(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(system: System, operator: Operator, options: Options, **others: Any) -> Result:
        if operator.columns["m"] == SHAPES[1][0]:
            raise KeyError("tile")
        return predict(system, operator, options, **others)

    monkeypatch.setattr("gpusim.execution.cases.predict", defective)
    overall = validate([table]).as_dict()["overall"]
    assert overall["skip_reasons"]["KeyError: 'tile' (a defect of gpusim)"] == len(GPUS)
    assert overall["predicted"] == len(GPUS) * (len(SHAPES) - 1)


def test_wrong_input_leaves_what_an_interrupted_validation_has_left(
    command: RunGpusim, table: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "out" / JOURNAL
    kept.parent.mkdir()
    kept.write_text('{"key": "of an hour", "record": {}}\n', encoding="utf-8")
    assert "cannot be read" in refused(command("validate", table, tmp_path / "tpyo.csv", "-o", tmp_path / "out"))
    assert "of an hour" in kept.read_text(encoding="utf-8")


def test_times_of_another_unit_are_doubted(command: RunGpusim, write_runs: WriteRuns) -> None:
    in_ms = write_runs([line((2048, 1024, 1024), 0.1)])
    done = command("validate", in_ms)
    assert done.returncode == 0
    assert re.search(r"runs\.csv: predicted times are [\d,]+ times the measured; is time_us in us\?\n$", done.stderr)
    assert "time_us in us" not in command("validate", write_runs([line((2048, 1024, 1024), 100.0)])).stderr


def test_a_column_in_another_unit_is_named(command: RunGpusim, table: Path) -> None:
    table.write_text(table.read_text(encoding="utf-8").replace("time_us", "time_ms"), encoding="utf-8")
    assert "runs.csv:1: time_us: no such column in the header; is it 'time_ms'?" in refused(command("validate", table))


def test_a_row_larger_than_the_memory_of_its_gpu_is_skipped(command: RunGpusim, write_runs: WriteRuns) -> None:
    done = command("validate", write_runs([line((10**8, 512, 512), 1e6)]), "--format", "json")
    assert done.returncode == 1
    (reason,) = json.loads(done.stdout)["overall"]["skip_reasons"]
    assert reason.startswith("A, B and C do not fit into device memory: they take 190.7 GiB, T4 has ")


def test_wrong_input_leaves_no_folder(command: RunGpusim, table: Path, tmp_path: Path) -> None:
    assert "cannot be read" in refused(command("validate", tmp_path / "none.csv", "-o", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert "is a file" in refused(command("validate", table, "-o", table))


def test_files_that_no_validation_wrote_are_not_replaced(command: RunGpusim, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "rows.csv").write_text("of the user", encoding="utf-8")
    assert "rows.csv: exists and was not written by gpusim" in refused(command("validate", table, "-o", out))
    assert [path.name for path in out.iterdir()] == ["rows.csv"]
    assert (out / "rows.csv").read_text(encoding="utf-8") == "of the user"


def dots_of(ax: Axes) -> set[tuple[float, float]]:
    """The points of a panel that make no line."""
    dots = [line for line in ax.get_lines() if line.get_linestyle() == "None"]
    return {(x, y) for line in dots for x, y in np.asarray(line.get_xydata(), dtype=float).tolist()}


def test_parity_shows_each_row_where_it_was_measured_and_predicted(report: ValidationReport) -> None:
    panels = plots.parity(report).axes
    tables = [one for one in report.tables if one.scored]
    assert len(panels) == len(tables) == 2
    for ax, one in zip(panels, tables, strict=True):
        assert dots_of(ax) == {(item.row.time_us, item.predicted_us) for item in one.scored}
        assert one.gpu in ax.get_title(loc="left")


def test_the_error_by_shape_stands_above_m_with_the_median_of_each_range(report: ValidationReport) -> None:
    ax = plots.error_by_shape(report).axes[0]
    scored = report.tables[0].scored
    assert dots_of(ax) == {(item.row.m, item.predicted_us / item.row.time_us) for item in scored}
    bars = [line for line in ax.get_lines() if line.get_linewidth() > 2]
    assert len(bars) == 4  # one row in each range of m: its median is its ratio
    assert sorted(np.asarray(bar.get_ydata())[0] for bar in bars) == sorted(y for _, y in dots_of(ax))


def test_the_speedup_plot_shows_each_pair(report: ValidationReport) -> None:
    assert report.speedups is not None
    (ax,) = plots.speedup(report.speedups).axes
    assert dots_of(ax) == {(pair.measured, pair.predicted) for pair in report.speedups.pairs}
    assert "v100-sxm2-16gb over t4" in ax.get_xlabel()


def test_every_axis_says_what_it_shows(report: ValidationReport) -> None:
    assert report.speedups is not None
    for plot in (plots.parity(report), plots.error_by_shape(report), plots.speedup(report.speedups)):
        assert all(ax.get_xlabel() and ax.get_ylabel() for ax in plot.axes)
        assert plot.legends


def test_no_text_of_a_validations_pictures_is_cut_or_overlaps(report: ValidationReport) -> None:
    assert report.speedups is not None
    for plot in (plots.parity(report), plots.error_by_shape(report), plots.speedup(report.speedups)):
        assert unreadable(plot) == []
        assert any("simulated" in text.get_text() for text in plot.texts)


def test_every_kind_of_line_stands_in_the_legend(report: ValidationReport) -> None:
    plot = plots.error_by_shape(report)
    drawn = {line.get_linestyle() for ax in plot.axes for line in ax.get_lines()}
    assert drawn == {handle.get_linestyle() for handle in plot.legends[0].get_lines()}
