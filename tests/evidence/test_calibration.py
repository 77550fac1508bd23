"""Calibration: values that made the runs are found again, unknown ones stay, and nothing is half-written."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import (
    MEASURED_HEADER,
    REPOSITORY,
    RunGpusim,
    WriteRuns,
    measured_line,
    process_group,
    refused,
    unfitted,
)
from numpy.typing import NDArray

from gpusim.evidence.measured import MeasuredRow, read_measured
from gpusim.evidence.sources import MeasuredSystem, stated_overheads
from gpusim.execution.service import Service
from gpusim.host.timing_methods import observed_time_us
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options as PredictOptions
from gpusim.prediction.plans import ranked_gemms
from gpusim.prediction.predict import predict
from gpusim.specs import Spec, load_spec
from gpusim.specs.load import Names
from gpusim.studies.calibration.boards import fitted_board
from gpusim.studies.calibration.fit import NOTHING_GAINED, Calibration, FittedValue, mean_error
from gpusim.studies.calibration.heuristic_bias import (
    RankedKernels,
    fit_bias,
    posterior,
    probabilities,
    time_likelihoods,
)
from gpusim.studies.calibration.observations import observations, sample_rows, timing_of_sources
from gpusim.studies.calibration.parameters import (
    LIMITS,
    TIMING_LIMITS_US,
    FittedBoard,
    Known,
    Parameter,
    SourceTiming,
    parameters,
)
from gpusim.studies.calibration.physics import beyond_physics
from gpusim.studies.calibration.report import CalibrationReport, CalibrationSetting
from gpusim.studies.calibration.row_candidates import candidates_of, records
from gpusim.studies.calibration.search import search
from gpusim.studies.calibration.session import calibrate, write_fitted
from gpusim.studies.calibration.spec_writer import spec_texts, write_spec
from gpusim.workloads.gemm import Gemm

STREAMS = [(16, n, k) for n, k in ((2048, 9216), (4096, 8704), (8192, 8192), (4096, 8192), (6144, 8192))]
SMALL = [(64, 64, 64), (128, 64, 128), (64, 128, 256), (256, 256, 64)]
LARGE = [(1024, 1024, 1024), (2048, 1024, 512), (1536, 1536, 768)]
TRUTH = (("dram.activation_bytes", 90.0), ("host.method_overhead_us.event", 20.0))


def made_up_line(shape: tuple[int, int, int], truth: Sequence[tuple[str, float]]) -> str:
    """What a T4 with other values than its spec would have taken; small products are timed by events.

    The kernels of streams are recorded, as other ones with other values would explain the times nearly as well.
    """
    arch = unfitted("t4").with_values(truth)
    result = predict(arch, Gemm(*shape, Dtype.FP16), PredictOptions(l2="cold"))
    method = "event" if shape in SMALL else "profiler"
    time_us = observed_time_us(result.kernel_time_us, method, arch.host)
    grid = dict(zip(("grid_x", "grid_y", "grid_z"), map(str, result.launch.grid), strict=True))
    recorded = {"kernel": result.kernel, **grid} if shape in STREAMS else {}
    return measured_line(shape, time_us, method=method, l2="cold", **recorded)


@pytest.fixture(scope="module")
def made_up() -> list[str]:
    return [made_up_line(shape, TRUTH) for shape in STREAMS + SMALL + LARGE[:1]]


@pytest.fixture(scope="module")
def report(made_up: list[str], tmp_path_factory: pytest.TempPathFactory) -> CalibrationReport:
    folder = tmp_path_factory.mktemp("calibration")
    table = folder / "runs.csv"
    table.write_text("\n".join([MEASURED_HEADER, *made_up]) + "\n", encoding="utf-8")
    return calibrate("t4", [table], folder / "mine.yaml", service=Service(), arch_path=[specs(folder)])


def specs(folder: Path) -> Path:
    """A folder that holds the T4 as it is before any fit."""
    own = folder / "specs"
    own.mkdir(exist_ok=True)
    board = (REPOSITORY / "arch_specs" / "t4.yaml").read_text(encoding="utf-8")
    (own / "t4.yaml").write_text(board.replace("extends: turing_fitted", "extends: turing"), encoding="utf-8")
    return own


def by_key(report: CalibrationReport) -> dict[str, Any]:
    return {one.parameter.key_path: one for one in report.calibration.fitted}


def test_the_values_that_made_the_runs_are_found_again(report: CalibrationReport) -> None:
    found = by_key(report)
    for key_path, value in TRUTH:
        low, high = found[key_path].interval
        assert low <= found[key_path].value <= high
        # latencies and DRAM's efficiency take a little of it
        assert found[key_path].value == pytest.approx(value, rel=0.08)
    outcome = report.calibration
    assert np.abs(np.expm1(outcome.after)).mean() < 0.02 < np.abs(np.expm1(outcome.before)).mean()
    assert np.abs(np.expm1(outcome.held_out)).mean() < np.abs(np.expm1(outcome.before)).mean()


def test_a_fit_that_only_serves_its_own_rows_is_not_kept(tmp_path: Path) -> None:
    """Two thirds of the rows agree with each other and not with the last third."""
    lines = [made_up_line(shape, TRUTH) for shape in STREAMS * 3]
    place = MEASURED_HEADER.split(",").index("time_us")
    table, out = tmp_path / "runs.csv", tmp_path / "mine.yaml"
    for number, line in enumerate(lines):
        fields = line.split(",")
        fields[place] = f"{float(fields[place]) * (1.0, 1.0, 0.5)[number % 3]:.3f}"
        lines[number] = ",".join(fields)
    table.write_text("\n".join([MEASURED_HEADER, *lines]) + "\n", encoding="utf-8")
    found = calibrate("t4", [table], out, arch_path=[specs(tmp_path)])
    outcome = found.calibration
    assert outcome.discarded is not None
    assert mean_error(outcome.discarded) > mean_error(outcome.before)
    assert list(outcome.before) == list(outcome.after) == list(outcome.held_out)
    assert NOTHING_GAINED in {one.reason for one in outcome.fitted}
    assert any("the fit is not kept" in text for text in found.warnings)
    assert not any("kind: fitted" in text for text in spec_texts(found, out, "2026-01-01").values())


def test_a_fit_that_gains_on_rows_held_out_is_kept(report: CalibrationReport) -> None:
    assert report.calibration.discarded is None
    assert not any("not kept" in text for text in report.warnings)


def test_what_the_runs_say_nothing_about_is_left_alone(report: CalibrationReport) -> None:
    fills = by_key(report)["load_store.staging_fma_slots"]  # of kernels for CUDA cores
    assert not fills.identified
    assert fills.value == pytest.approx(fills.parameter.value, rel=1e-5)
    assert "staging_fma_slots" not in "".join(spec_texts(report, Path("mine.yaml"), "2026-01-01").values())


def test_a_fit_that_moves_nothing_is_said(report: CalibrationReport) -> None:
    assert not any("no physical value moved" in text for text in report.warnings)
    unmoved = tuple(replace(one, reason="not identifiable from this data") for one in report.calibration.fitted)
    still = replace(report, calibration=replace(report.calibration, fitted=unmoved))
    assert any(text.startswith("no physical value moved") for text in still.warnings)


def test_a_table_that_a_fit_makes_worse_is_named(report: CalibrationReport) -> None:
    assert not any("before this fit" in text for text in report.warnings)
    outcome = replace(report.calibration, replaced=report.calibration.after / 2)
    worse = replace(outcome, after=outcome.after + 0.05)
    (named,) = (text for text in replace(report, calibration=worse).warnings if "before this fit" in text)
    assert named.startswith("runs, linear in fp16 on t4: mean error ")


def test_a_large_error_on_rows_left_out_is_said(report: CalibrationReport) -> None:
    assert not any("that the fit left out" in text for text in report.warnings)
    off = replace(report.calibration, held_out=np.full_like(report.calibration.held_out, math.log(1.27)))
    (said,) = (text for text in replace(report, calibration=off).warnings if "that the fit left out" in text)
    assert said.startswith("mean error 27 % on rows that the fit left out: check the columns order, layout, load, l2")


NO_BIAS = {"mma.tile_area": 0.0, "mma.split_k": 0.0}
SHARE = Parameter("shared_memory.broadcast_fraction", 0.75, "assumed", 0.7, 0.5, 1.0)
USABLE = Parameter("l2.usable_fraction", 0.67, "assumed", 0.7, 0.2, 1.0)
MEASURED = Parameter("dram.efficiency_fraction", 0.9, "measured", 0.02, 0.882, 0.918)
OPENED = Parameter("dram.activation_bytes", 20.0, "assumed", 0.7, 1.0, 500.0)


@pytest.mark.parametrize(
    ("parameter", "value", "at_limit", "driven"),
    [
        (SHARE, 1.0, True, False),  # a GPU may have it
        (SHARE, 0.5, True, False),
        (SHARE, 0.95, False, False),
        (OPENED, 500.0, True, True),  # 25 times what was assumed
        (replace(OPENED, value=400.0), 500.0, True, False),
        (USABLE, 0.2, True, True),  # the range is narrower than the prior, and no GPU has its end
        (MEASURED, 0.918, True, False),  # at the end of what was measured
    ],
)
def test_a_fit_at_a_limit_is_reported_however_narrow_the_range(
    parameter: Parameter, value: float, at_limit: bool, driven: bool
) -> None:
    one = FittedValue(parameter, value, (value, value))
    assert (one.at_limit, one.driven_to_limit) == (at_limit, driven)
    outcome = Calibration((one,), NO_BIAS, {None: NO_BIAS}, np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
    ended = CalibrationReport(
        CalibrationSetting(Path("t4.yaml"), (), 1, 0, Names(None, None, frozenset())), outcome, (), (), 1, {}, {}, 0, {}
    )
    assert bool(ended.refusals) == driven
    assert any("ended at its limit" in text for text in ended.warnings) == (at_limit and not driven)


def test_what_microbenchmarks_move_to_a_limit_is_reported_whatever_runs_tell() -> None:
    launch = Parameter("sm.cta_launch_cycles", 290.0, "measured", 0.1, 261.0, 319.0)
    for move, at_limit in ((0.2, True), (0.07, False)):
        found = launch.measured(move, 0.05)
        one = FittedValue(found, found.value, (found.low, found.high), "not identifiable from this data")
        assert (one.at_limit, one.driven_to_limit) == (at_limit, False)
    assert FittedValue(launch, 319.0, (261.0, 319.0), "not identifiable from this data").at_limit is False


def test_what_no_board_could_draw_refuses_a_fit() -> None:
    t4 = unfitted("t4")
    assert not list(beyond_physics(t4.gpu))
    hungry = t4.with_values([("power.l2_pj_per_byte", 127.0)]).gpu
    text = next(beyond_physics(hungry))
    assert re.fullmatch(r"T4: L2 at full bandwidth at 1590 MHz draws 1\d\d W of 70 W", text)
    outcome = Calibration(
        (), NO_BIAS, {None: NO_BIAS}, np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), beyond_physics=(text,)
    )
    setting = CalibrationSetting(Path("t4.yaml"), (), 1, 0, Names(None, None, frozenset()))
    assert CalibrationReport(setting, outcome, (), (), 1, {}, {}, 0, {}).refusals == [f"beyond physics: {text}"]


def test_the_prior_of_a_value_stays_within_its_range() -> None:
    assert SHARE.known_sd == pytest.approx(math.log(2) / math.sqrt(12))  # a uniform distribution
    assert OPENED.known_sd == OPENED.prior_sd


def test_a_value_whose_interval_fills_its_range_is_not_identified(report: CalibrationReport) -> None:
    for one in report.calibration.fitted:
        low, high = one.interval
        assert not one.identified or low > one.parameter.low or high < one.parameter.high


def board_of(spec: Spec) -> FittedBoard:
    """A board whose values, and those of sources on it, may all move."""
    of_sources = stated_overheads(spec.files)
    origins = {**spec.provenance, **(of_sources.provenance("sources") if of_sources else {})}
    files = {origin.file.resolve() for origin in origins.values() if origin.file}
    return fitted_board(spec, files)


def test_a_measured_value_moves_within_its_spread_only() -> None:
    spec = load_spec("t4")
    known = {
        "dram.efficiency_fraction": Known("measured", 0.1),
        "l2.bandwidth_bytes_per_cycle": Known("measured"),
        "l2.usable_fraction": Known("assumed", 0.2),
    }
    moving = {one.key_path: one for one in parameters([FittedBoard(MeasuredSystem(spec.system), known, "")], (), ())}
    efficiency, bandwidth, usable = (moving[key] for key in known)
    assert (efficiency.low, efficiency.high) == pytest.approx((0.9 * efficiency.value, 0.98))  # DRAM has to refresh
    assert (bandwidth.low, bandwidth.high) == pytest.approx((0.97 * bandwidth.value, 1.03 * bandwidth.value))
    assert (usable.low, usable.high, usable.prior_sd) == (*LIMITS["l2.usable_fraction"], 0.2)


def test_a_users_host_is_given_and_not_fitted() -> None:
    spec = load_spec("t4")
    board = board_of(spec)
    mine = board.with_overheads({"event": 12.5})
    assert mine.system.host.method_overhead_us["event"] == 12.5
    assert "host.method_overhead_us.event" not in {one.key_path for one in parameters([mine], (), ("event",))}
    assert "host.method_overhead_us.event" in {one.key_path for one in parameters([board], (), ("event",))}
    assert mine.sha256 != board.sha256  # timings kept in a journal are of one host


def test_each_source_of_runs_has_one_way_of_timing_within_bounds(write_runs: WriteRuns) -> None:
    lines = [
        measured_line((64, 64, 64), 450.0, method="event", source="lab-1"),
        measured_line((64, 64, 64), 9.0, method="profiler", source="tracer"),
        measured_line((64, 64, 64), 9.0, method="graph", source="both"),
        measured_line((64, 64, 64), 9.0, method="event", source="both"),
    ]
    sources = timing_of_sources(read_measured(write_runs(lines)))
    assert sources == {"lab_1": SourceTiming("event", 450.0), "tracer": SourceTiming("profiler", 9.0)}
    spec = load_spec("t4")
    board = FittedBoard(MeasuredSystem(spec.system), {}, "").with_sources(sources)
    (own,) = parameters([board], (), ("graph", "event"), sources)
    assert own.key_path == "sources.timing_us.lab_1"
    assert (own.low, own.high) == TIMING_LIMITS_US["event"]
    assert own.value == spec.system.host.method_overhead_us["event"]
    assert not parameters([board.with_overheads({"event": 12.5})], (), (), sources)


def test_rows_are_drawn_from_every_magnitude_of_time(write_runs: WriteRuns) -> None:
    times_us = [10.0 + at / 100 for at in range(90)] + [100.0, 101.0, 102.0, 103.0, 5000.0]
    rows = read_measured(write_runs([measured_line((64, 64, 64 + at), time) for at, time in enumerate(times_us)]))
    arch = load_spec("t4").system
    found, _ = observations(rows, {"t4": FittedBoard(MeasuredSystem(arch), {}, "")})
    kept = [found[place].row.time_us for place in sample_rows(found, 20, seed=1)]
    assert len(kept) == 20
    assert kept.count(5000.0) == 1
    # the root of 90 rows is 9.5, of 4 it is 2, of 1 it is 1: 20 x 2 / 12.5 = 3.2
    assert sum(time in (100.0, 101.0, 102.0, 103.0) for time in kept) == 3
    assert sample_rows(found, 20, seed=1) == sample_rows(found, 20, seed=1) != sample_rows(found, 20, seed=2)
    assert sample_rows(found, 1000, seed=1) == list(range(len(rows)))


def test_no_datasheet_value_may_move_and_every_pattern_meets_a_value() -> None:
    spec = load_spec("v100-pcie-16gb")
    board = board_of(spec)
    moving = parameters([board], spec.gpu.instructions, ("event", "host", "layer", "stream"))
    assert all(board.known[one.key_path].kind != "datasheet" for one in moving)
    assert all(one.low <= one.value <= one.high for one in moving)
    patterns = {pattern.replace("*", "x") for pattern in LIMITS}
    met = {next(key for key in patterns if _alike(one.key_path, key)) for one in moving}
    assert met == patterns


def test_what_a_gpu_does_not_have_stays_away() -> None:
    spec = load_spec("A100-SXM4-80GB")
    assert spec.gpu.dram.tlb_miss_ns == 0.0
    board = board_of(spec)
    moving = parameters([board], spec.gpu.instructions, ("event", "layer", "stream"))
    assert "dram.tlb_miss_ns" not in {one.key_path for one in moving}


def test_a_value_that_a_board_states_itself_stays_its_own() -> None:
    spec = load_spec("t4")
    board = FittedBoard(MeasuredSystem(spec.system), {"dram.activation_bytes": Known("assumed")}, spec.sha256)
    trial = board.with_values((("clock.max_mhz", 1000.0), ("dram.activation_bytes", 5.0)))
    assert trial.system.gpu.clock.max_mhz == spec.gpu.clock.max_mhz
    assert trial.system.gpu.dram.activation_bytes == 5.0


def _alike(key_path: str, pattern: str) -> bool:
    ours, theirs = key_path.split("."), pattern.split(".")
    return len(ours) == len(theirs) and all(b in (a, "x") for a, b in zip(ours, theirs, strict=True))


def test_the_written_spec_extends_the_original_and_predicts_the_runs(
    command: RunGpusim, write_runs: WriteRuns, made_up: list[str], tmp_path: Path
) -> None:
    table, out = write_runs(made_up[: len(STREAMS)]), tmp_path / "mine.yaml"
    fit = ("calibrate", "--arch", "t4", "--measured", table, "-o", out, "--date", "2026-01-01", "--rows", "3",
           "--arch-path", specs(tmp_path))  # fmt: skip
    done = command(*fit, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    first = out.read_bytes()
    document = yaml.safe_load(first)
    assert (document["name"], document["extends"]) == ("T4", "t4")
    leaf = document["dram"]["activation_bytes"]
    assert leaf["kind"] == "fitted"
    assert leaf["source"].startswith("[fit]: was ")
    assert document["sources"]["fit"].startswith("gpusim calibrate, 2026-01-01, data sha256 ")
    assert command("archs", "check", str(out)).returncode == 0
    assert not list(tmp_path.glob("*.journal"))
    confidence = load_spec(out).system.confidence
    assert confidence is not None
    assert (sum(one.rows for one in confidence.measured), confidence.measured[0].board) == (len(STREAMS), "T4")
    earlier = [tmp_path / folder / "mine.yaml" for folder in ("hosts", "sources")]
    for file, text in zip(earlier, ("extends: turing\n", "timing_us: {}\n"), strict=True):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert command(*fit, "--jobs", "1").returncode == 0
    assert out.read_bytes() == first  # its own values do not feed back, whatever processes work
    assert not any(file.exists() for file in earlier)  # of a host and of sources whose values no run tells


def recorded_line(shape: tuple[int, int, int], label: str, gpu: str = "t4") -> str:
    """A product on a kernel of a label, as a profiler recorded it."""
    arch, gemm = unfitted(gpu), Gemm(*shape, Dtype.FP16)
    found = next(
        one.plan for one in ranked_gemms(arch, gemm) if one.plan.kernel.label == label and one.plan.split_k == 1
    )
    time_us = predict(arch, gemm, PredictOptions(kernel=found.name)).kernel_time_us
    grid = dict(zip(("grid_x", "grid_y", "grid_z"), map(str, found.main.grid.extents), strict=True))
    return measured_line(shape, time_us, gpu=gpu, method="profiler", l2="cold", kernel=found.name, **grid)


def test_libraries_of_different_versions_of_cuda_have_biases_of_their_own(
    tmp_path: Path,
) -> None:
    of_cuda = {10: "hmma_1688_f32_64x128x64_sliced1x2", 12: "hmma_1688_f32_128x128x64"}
    shapes = [*LARGE, (2048, 2048, 512), (1024, 2048, 1024)]
    lines = [f"{recorded_line(shape, label)},{cuda}" for shape in shapes for cuda, label in of_cuda.items()]
    table = tmp_path / "runs.csv"
    table.write_text("\n".join([f"{MEASURED_HEADER},cuda", *4 * lines]) + "\n", encoding="utf-8")
    report = calibrate(
        "t4", [table], tmp_path / "mine.yaml", rows_per_table=1, service=Service(), arch_path=[specs(tmp_path)]
    )
    write_spec(report, tmp_path / "mine.yaml", "2026-01-01")
    folder = tmp_path / "libraries"
    newest, older = (yaml.safe_load((folder / f"{stem}.yaml").read_text()) for stem in ("mine", "mine_cuda_10"))
    assert (newest["older"], older["last_cuda"]) == (["mine_cuda_10"], 10)
    for library in (newest, older):  # none of the runs is of a vector, or on CUDA cores
        assert set(library["heuristic_bias"]) == {"mma"}
        assert {one["kind"] for one in library["heuristic_bias"]["mma"].values()} == {"fitted"}
    gemm = Gemm(1536, 1024, 1024, Dtype.FP16)
    systems = {cuda: load_spec(tmp_path / "mine.yaml", cuda=cuda).system for cuda in (10, 12, None)}
    chosen = {cuda: ranked_gemms(system, gemm)[0].plan.kernel.label for cuda, system in systems.items()}
    assert chosen == of_cuda | {None: of_cuda[12]}
    score = report.as_dict()["choices"]
    assert score["rows"] == len(4 * lines)
    assert score["log_loss"] < math.log(8)  # no better than chance among as many tiles


def test_values_that_a_spec_between_has_of_its_own_are_reported(write_runs: WriteRuns, tmp_path: Path) -> None:
    logged: list[str] = []
    table = write_runs([measured_line((64, 64, 64), 9.0, method="profiler", l2="cold")])
    calibrate("turing", [table], tmp_path / "mine.yaml", service=Service(1), log=logged.append)
    assert re.fullmatch(r"\d+ values that could move stand in turing_fitted.yaml and stay; fit them with .*", logged[0])
    assert logged[0].endswith("--arch turing_fitted")
    logged.clear()
    calibrate("turing_fitted", [table], tmp_path / "mine.yaml", service=Service(1), log=logged.append)
    assert not any("stand in" in text for text in logged)


def test_a_few_runs_of_ones_own_do_not_undo_an_earlier_fit(write_runs: WriteRuns, tmp_path: Path) -> None:
    spec = load_spec("t4")
    known = spec.system.library.heuristic_bias.mma
    lines = []
    for shape in LARGE[:2]:
        time_us = predict(spec.system, Gemm(*shape, Dtype.FP16)).kernel_time_us
        lines.append(measured_line(shape, time_us, method="profiler", l2="cold"))
    report = calibrate("t4", [write_runs(lines)], tmp_path / "mine.yaml", service=Service())
    found = report.calibration.bias[None]
    assert known
    assert all(found[f"mma.{feature}"] == pytest.approx(weight, abs=0.05) for feature, weight in known.items())
    assert all(one.parameter.prior_sd <= 0.2 for one in report.calibration.fitted if one.parameter.kind == "fitted")
    assert np.abs(np.expm1(report.calibration.after)).max() < 0.02


def test_a_killed_calibration_takes_up_where_it_stopped(
    write_runs: WriteRuns, made_up: list[str], tmp_path: Path
) -> None:
    table, out = write_runs(made_up[:3]), tmp_path / "mine.yaml"
    command = ["calibrate", "--arch", "t4", "--measured", str(table), "-o", str(out), "--date", "2026-01-01",
               "--jobs", "1", "--arch-path", str(specs(tmp_path))]  # fmt: skip
    journal = tmp_path / "mine.yaml.journal"
    with process_group(*command):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (journal.exists() and journal.read_text().count("\n") >= 3):
            time.sleep(0.05)
    assert journal.exists()
    assert not out.exists()
    kept = journal.read_text().count("\n")
    report = calibrate("t4", [table], out, service=Service(1), arch_path=[specs(tmp_path)])
    assert report.resumed >= kept - 1  # the last line may be cut off
    assert write_fitted(report, out, "2026-01-01")
    assert not journal.exists()


def test_a_fit_against_a_physical_limit_is_refused(command: RunGpusim, write_runs: WriteRuns, tmp_path: Path) -> None:
    slow = [made_up_line(shape, (("dram.activation_bytes", 5000.0),)) for shape in STREAMS]
    out = tmp_path / "mine.yaml"
    done = command("calibrate", "--arch", "t4", "--measured", str(write_runs(slow)), "-o", str(out),
                  "--arch-path", str(specs(tmp_path)))  # fmt: skip
    assert done.returncode == 1
    assert "dram.activation_bytes is driven to its limit" in done.stderr
    assert not list(tmp_path.glob("mine.yaml*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arch", "t5"), "t5"),
        (("--arch", "a100-sxm4-80gb"), "none of the rows ran on it"),
        (("--arch", "t4", "-o", "nowhere/mine.yaml"), "expected a .yaml file"),
        (("--arch", "t4", "-o", "folder.yaml"), "expected a .yaml file"),
        (("--arch", "t4", "--measured", "missing.csv"), "missing.csv"),
        (("--arch", "t4", "--measured", "runs.csv"), "runs.csv: named twice"),
        (("--arch", "t4", "--measured", "other/runs.csv"), "two tables have the same file name"),
        (("--arch", "turing", "--arch-path", "wrong"), "t4.yaml:3: nonsense"),
        (("--arch", "t4", "--date", "tomorrow"), "--date tomorrow: expected a date such as 2026-01-31"),
    ],
)
def test_wrong_input_is_one_line(
    command: RunGpusim,
    write_runs: WriteRuns,
    made_up: list[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    table = write_runs(made_up[:2])
    for folder in ("other", "wrong", "folder.yaml"):
        (tmp_path / folder).mkdir()
    (tmp_path / "other" / "runs.csv").write_bytes(table.read_bytes())
    (tmp_path / "wrong" / "t4.yaml").write_text("name: T4\nextends: turing\nnonsense: 1\n", encoding="utf-8")
    done = command("calibrate", "--measured", str(table), "-o", str(tmp_path / "mine.yaml"), *arguments)
    assert message in refused(done)


def test_a_place_that_cannot_be_written_to_is_refused(
    command: RunGpusim, write_runs: WriteRuns, made_up: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml.journal").mkdir()  # no user may write to it as a file, not even root
    table = write_runs(made_up[:2])
    done = command("calibrate", "--arch", "t4", "--measured", str(table), "-o", str(tmp_path / "mine.yaml"))
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("gpusim: ")
    assert "Traceback" not in done.stderr


# The search, by hand


def test_values_that_start_at_a_limit_do_not_block_the_search_for_others() -> None:
    mixing = np.array([[1.0, 0.9, 0.2], [0.9, 1.0, 0.1], [0.3, 0.2, 2.0], [0.1, 1.0, 1.0]])
    truth = np.array([0.7, 0.4, 0.2])

    def residuals(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([20 * mixing @ (np.exp(at) - np.exp(truth)), at / 5])

    def derivatives(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.vstack([20 * mixing * np.exp(at), np.eye(3) / 5])

    low, high = np.array([-1.0, -1.0, 0.0]), np.array([1.0, 1.0, 1.0])
    assert search(residuals, derivatives, np.zeros(3), low, high, robust=4).at == pytest.approx(truth, abs=0.01)
    high[1] = 0.0  # it would go on where it may not
    found = search(residuals, derivatives, np.zeros(3), low, high, robust=4).at
    assert found[1] == pytest.approx(0.0, abs=1e-9)
    for place in (0, 2):
        for side in (-0.02, 0.02):
            aside = found.copy()
            aside[place] += side
            losses = [np.sqrt(1 + residuals(at)[:4] ** 2).sum() for at in (found, aside)]
            assert losses[0] < losses[1]


# The conditional logit, by hand


def option(recorded: int, estimates: Sequence[float]) -> RankedKernels:
    """A row of kernels whose tiles double in area, one of them recorded."""
    count = len(estimates)
    return RankedKernels(np.log(estimates), doubling(count), np.eye(count)[recorded])


def doubling(count: int) -> dict[str, NDArray[np.float64]]:
    return {"mma.tile_area": np.arange(count, dtype=np.float64) * math.log(2), "mma.split_k": np.zeros(count)}


def test_a_feature_of_kernels_that_are_recorded_in_spite_of_longer_estimates_gets_a_bonus() -> None:
    found = fit_bias([option(1, (1.0, 1.1))] * 30, NO_BIAS)
    assert -found["mma.tile_area"] * math.log(2) > math.log(1.1)
    assert probabilities(option(1, (1.0, 1.1)), found)[1] > 0.5


def test_a_weight_on_which_no_row_depends_stays_as_it_is() -> None:
    even = RankedKernels(np.zeros(2), dict.fromkeys(NO_BIAS, np.ones(2)), np.ones(2))
    start = {"mma.tile_area": 0.1, "mma.split_k": 0.02}
    assert fit_bias([even], start) == start


def test_a_weight_that_a_few_rows_would_move_stays_as_it_is() -> None:
    start = {"mma.tile_area": 0.1, "mma.split_k": 0.02}
    assert fit_bias([option(1, (1.0, 1.05))], start) == start


def test_the_time_tells_which_kernel_ran() -> None:
    row = RankedKernels(np.zeros(2), doubling(2), np.array([1.0, 1e-6]))
    assert posterior(row, NO_BIAS)[0] > 0.99


def test_a_kernel_that_was_not_timed_did_not_run_however_well_it_is_liked() -> None:
    errors = np.array([-0.5, np.inf])
    row = RankedKernels(np.zeros(2), doubling(2), time_likelihoods(errors), errors)
    assert posterior(row, {"mma.tile_area": -1.5}).tolist() == [1.0, 0.0]


def test_where_there_is_a_time_alone_the_kernel_that_is_predicted_well_gets_a_bonus() -> None:
    errors = np.array([-0.3, 0.02])
    row = RankedKernels(np.log([1.0, 1.1]), doubling(2), time_likelihoods(errors), errors)
    found = fit_bias([row] * 30, NO_BIAS)
    assert probabilities(row, NO_BIAS)[1] < 0.2
    assert probabilities(row, found)[1] > 0.5


def timed(errors: Sequence[float], estimates: Sequence[float], source: str = "") -> RankedKernels:
    """A row with a time, of kernels whose tiles double in area."""
    found = np.array(errors)
    return RankedKernels(np.log(estimates), doubling(len(errors)), time_likelihoods(found), found, source=source)


def test_the_kernel_that_misses_all_times_of_a_source_alike_gets_a_bonus_over_one_that_is_right_at_times() -> None:
    rows = [timed((-0.2 + step, -0.2), (1.0, 1.03)) for step in (-0.2, -0.1, 0.0, 0.1, 0.2)] * 6
    found = fit_bias(rows, NO_BIAS)
    assert probabilities(rows[0], NO_BIAS)[1] < 0.5
    assert probabilities(rows[0], found)[1] > 0.8


def test_names_that_libraries_print_otherwise_teach_a_choice() -> None:
    name = "turing_fp16_s1688gemm_fp16_128x64_sliced1x2_relu_f2f_tn"
    row = MeasuredRow("", 1, "t4", "linear", 1, 512, 512, 512, Dtype.FP16, "fp32", "tn", "dense", 20.0, "profiler",
                      "cold", name, grid=(4, 8, 3))  # fmt: skip
    other = replace(row, kernel="volta_sgemm_128x64_tn")
    spec = load_spec("t4")
    found, left_out = records([row, other], {"t4": board_of(spec)})
    assert [item.row for item in found] == [row]
    assert left_out == {"kernel that is not a candidate of the library, or none recorded": 1}
    one = candidates_of(found[0], spec.system)
    assert one.recorded is not None
    assert one.items[one.recorded].kernel.label.startswith("hmma_1688_f32_128x64")
    assert one.runs[one.recorded].split_k == 3


def test_a_row_counts_as_many_times_as_it_weighs() -> None:
    errors = np.array([-0.3, 0.02])
    slow = RankedKernels(np.log([1.0, 1.1]), doubling(2), time_likelihoods(errors), errors)
    fast = option(0, (1.0, 1.02))
    repeated = fit_bias([slow] * 24 + [fast] * 16, NO_BIAS)
    weighed = fit_bias([replace(slow, weight=2.0)] * 12 + [replace(fast, weight=0.5)] * 32, NO_BIAS)
    assert weighed == pytest.approx(repeated, abs=0.002)


def test_a_kernel_that_is_not_worth_timing_gets_no_bonus() -> None:
    # The third is the second kernel in a far slower way: a bonus of the one must not bring the other to the top.
    errors = np.array([-0.3, 0.02, np.inf])
    charges = {"mma.tile_area": np.array([0.0, 1.0, 1.0]), "mma.split_k": np.array([0.0, 0.0, 1.0])}
    row = RankedKernels(np.log([1.0, 1.1, 3.0]), charges, time_likelihoods(errors), errors)
    assert time_likelihoods(errors)[2] == 0.0
    start = {"mma.tile_area": 0.0, "mma.split_k": -1.1}
    found = fit_bias([row] * 30, start)
    assert np.argmax(probabilities(row, start)) != 1
    assert np.argmax(probabilities(row, found)) == 1
    assert math.isfinite(sum(found.values()))


def test_one_command_writes_the_weights_that_libraries_of_several_architectures_share(
    command: RunGpusim, tmp_path: Path
) -> None:
    # Tensor Core kernels with tall tiles, on boards of two architectures; the teaching machine has another library.
    tall = {"t4": "hmma_1688_f32_256x128x64", "v100-sxm2-16gb": "hmma_884_f32_256x128x32"}
    lines = [recorded_line(shape, label, gpu) for shape in LARGE for gpu, label in tall.items()]
    (tmp_path / "kernels.csv").write_text("\n".join([MEASURED_HEADER, *4 * lines]) + "\n", encoding="utf-8")
    timed = measured_line(LARGE[0], 1000.0, method="profiler")
    other = measured_line(LARGE[0], 1000.0, gpu="teaching")
    (tmp_path / "times.csv").write_text(f"{MEASURED_HEADER}\n{timed}\n{other}\n", encoding="utf-8")
    tables = ("--measured", "times.csv", "--recorded", "kernels.csv")
    fit = ("calibrate", "--library", "nvidia", *tables, "-o", "shared.yaml")
    done = command(*fit, "--date", "2026-01-01", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["bias"]["mma.tall_tile"] < 0
    assert {(one["table"], one["gpu"], one["timed"] > 0) for one in report["scores"]} == {
        ("kernels", "t4", False), ("kernels", "v100-sxm2-16gb", False), ("times", "t4", True)
    }  # fmt: skip
    assert report["left_out"] == {"of another GPU (teaching)": 1}
    written = (tmp_path / "shared.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(written)
    assert document["extends"] == "nvidia"
    assert document["sources"]["fit"].startswith("gpusim calibrate --library nvidia, 2026-01-01, data sha256 ")
    assert document["heuristic_bias"]["mma"]["tall_tile"]["kind"] == "fitted"
    assert "# kernels: sha256 " in written


def test_a_fit_is_of_gpus_or_of_what_libraries_share(command: RunGpusim, write_runs: WriteRuns) -> None:
    table = write_runs([measured_line(LARGE[0], 1000.0)])
    for given in ((), ("--arch", "t4", "--library", "nvidia")):
        assert "give --arch GPU, or --library NAME" in refused(
            command("calibrate", *given, "--measured", table, "-o", "x.yaml")
        )
    problem = refused(command("calibrate", "--library", "nvidia", "--measured", table, "-o", "nvidia.yaml"))
    assert "of another name than the base" in problem
    assert "no GPU of the rows has it" in refused(
        command("calibrate", "--library", "nvida", "--measured", table, "-o", "x.yaml")
    )
