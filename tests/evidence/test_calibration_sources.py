"""Sources of runs beside each other: what each adds is its own, and how a fit without one predicts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import MEASURED_HEADER, WriteRuns, measured_line, unfitted
from test_calibration import LARGE, SMALL, STREAMS, by_key, specs

from gpusim.evidence.measured import read_measured
from gpusim.evidence.published_benchmarks import PublishedPoint
from gpusim.evidence.sources import MeasuredSystem
from gpusim.execution.executor import Inline
from gpusim.execution.journal import Journal
from gpusim.execution.service import Service
from gpusim.host.timing_methods import observed_time_us
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.studies.calibration.assessment import own_timings
from gpusim.studies.calibration.fit import moves_to
from gpusim.studies.calibration.fit_tables import calibration_tables
from gpusim.studies.calibration.identification import Identification, contradicted, identify
from gpusim.studies.calibration.linear_model import LinearModel
from gpusim.studies.calibration.microbenchmarks import Curves, fixed_by_microbenchmarks
from gpusim.studies.calibration.observations import observations
from gpusim.studies.calibration.parameters import OF_SOURCE, STALL_OF_SOURCE, FittedBoard, Known, Parameter, parameters
from gpusim.studies.calibration.report import CalibrationReport
from gpusim.studies.calibration.row_kernels import RowKernels
from gpusim.studies.calibration.session import calibrate
from gpusim.studies.calibration.spec_writer import spec_texts
from gpusim.studies.calibration.timer import FittedBoards, Timer
from gpusim.studies.microbench import reading_of
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

LAB_US = 60.0
"""What the calls of one source take beside their kernels."""
SLOWER = 1.6
"""Times of another source, over those of all others."""


def line(source: str, method: str, shape: tuple[int, int, int], slower: float = 1.0) -> str:
    """What a source would have read on a T4."""
    arch = unfitted("t4").with_values([("host.method_overhead_us.event", LAB_US)])
    result = predict(arch, Gemm(*shape, Dtype.FP16), Options(l2="cold"))
    time_us = slower * observed_time_us(result.kernel_time_us, method, arch.host)
    grid = dict(zip(("grid_x", "grid_y", "grid_z"), map(str, result.launch.grid), strict=True))
    return measured_line(shape, time_us, method=method, l2="cold", source=source, kernel=result.kernel, **grid)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> CalibrationReport:
    folder = tmp_path_factory.mktemp("sources")
    lines = [line("tracer", "profiler", shape) for shape in STREAMS + LARGE[:2]]
    lines += [line("lab", "event", shape) for shape in (*SMALL, *STREAMS[:2])]
    lines += [line("slow", "profiler", shape, SLOWER) for shape in LARGE[1:]]
    table = folder / "runs.csv"
    table.write_text("\n".join([MEASURED_HEADER, *lines]) + "\n", encoding="utf-8")
    return calibrate("t4", [table], folder / "mine.yaml", service=Service(), arch_path=[specs(folder)])


def test_what_a_source_adds_goes_to_its_way_of_timing_and_not_to_the_gpu(report: CalibrationReport) -> None:
    found = by_key(report)
    own = found[f"{OF_SOURCE}lab"]
    assert own.identified
    assert own.value == pytest.approx(LAB_US, rel=0.05)
    latency = found["front_end.kernel_latency_us"]
    assert latency.value == pytest.approx(latency.parameter.value, rel=0.3)
    assert f"{OF_SOURCE}tracer" not in found  # a profiler adds nothing
    carried = {one["source"]: one for one in report.as_dict()["own_timing"]}
    assert [one["key_path"] for one in carried["lab"]["values"]] == [f"{OF_SOURCE}lab"]
    assert carried["lab"]["share"] > 0.1
    assert carried["lab"]["mape_without"] > 3 * carried["lab"]["mape"]
    assert not carried["tracer"]["values"]
    assert carried["tracer"]["mape_without"] == carried["tracer"]["mape"]
    texts = spec_texts(report, Path("mine.yaml"), "2026-01-01")
    written = yaml.safe_load(texts[Path("sources/mine.yaml")])
    assert written["timing_us"] == {"lab": {**written["timing_us"]["lab"], "value": own.value, "kind": "fitted"}}


def test_a_source_that_differs_shows_where_it_is_left_out(report: CalibrationReport) -> None:
    without = {(one["kind"], one["name"]): one for one in report.as_dict()["without"]}
    slow = without["source", "slow"]
    assert slow["bias"] == pytest.approx(100 * (1 / SLOWER - 1), abs=5)  # the others say what they say
    assert without["source", "tracer"]["mape"] < slow["mape"]
    assert without["source", "all"]["rows"] == len(report.observed)
    assert without["board", "t4"]["mape"] is None  # no other board remains
    assert "not testable" in "\n".join(map(str, calibration_tables(report.as_dict())))


def test_each_value_of_a_sources_own_says_what_it_carries(write_runs: WriteRuns, tmp_path: Path) -> None:
    stall_us, interval_us = 12.0, 30.0
    own = [(f"{STALL_OF_SOURCE}lab", stall_us), (f"{OF_SOURCE}lab", interval_us)]
    measured = MeasuredSystem(unfitted("v100-pcie-16gb")).with_values(own)
    system = measured.system
    gap_us, common_us = system.host.stream_gap_us, system.host.timing_us("stream")
    short, long = (64, 64, 64), (4096, 4096, 512)
    kernel_us = predict(system, Gemm(*long, Dtype.FP16), Options(l2="warm")).kernel_time_us
    lines = [
        measured_line(shape, time_us, method="stream", source="lab", gpu="v100-pcie-16gb")
        for shape, time_us in ((short, interval_us), (long, kernel_us + gap_us + stall_us))
    ]
    boards = {"v100-pcie-16gb": FittedBoard(measured, {key: Known("assumed") for key, _ in own}, "")}
    found, _ = observations(read_measured(write_runs(lines)), boards)
    moving = tuple(Parameter(key, value, "assumed", 0.7, 0.1, 100.0) for key, value in own)
    journal = Journal(tmp_path / "times.journal")
    timer = Timer(boards, Inline(FittedBoards(boards)), journal, lambda _done, _of: None)
    kernels = RowKernels(boards, found, moving, timer)
    timing, stall, both = own_timings(kernels, np.zeros(2), {None: kernels.start})
    (one,) = stall.values
    assert (one.key_path, one.own_us, one.neutral_us) == (f"{STALL_OF_SOURCE}lab", stall_us, 0.0)
    assert [of.neutral_us for of in timing.values] == [common_us]
    assert both.values == (*timing.values, one)
    whole_us = kernel_us + gap_us + stall_us
    assert stall.errors == pytest.approx([0.0, 0.0], abs=1e-3)
    assert np.exp(stall.without) == pytest.approx([1.0, (whole_us - stall_us) / whole_us], rel=1e-3)
    assert np.exp(timing.without) == pytest.approx([(stall_us + 3.0) / interval_us, 1.0], rel=0.2)
    assert both.without[0] < timing.without[0]
    assert both.without[1] == stall.without[1]


# What runs tell, by hand


def value(key_path: str, prior_sd: float = 0.7) -> Parameter:
    return Parameter(key_path, 1.0, "assumed", prior_sd, 0.1, 10.0)


def model(moving: Sequence[Parameter], slopes: Sequence[Sequence[float]]) -> LinearModel:
    """Rows that a fit predicts."""
    matrix = np.array(slopes)
    return LinearModel(moving, np.zeros(len(moving)), np.zeros(len(matrix)), matrix, np.ones(len(matrix)))


def test_of_two_values_seen_as_a_sum_one_stays_as_assumed() -> None:
    latency, gap = value("front_end.kernel_latency_us"), value(f"{OF_SOURCE}lab")
    alike = [[0.3, 0.3], [0.1, 0.1], [0.2, 0.2], [0.4, 0.4]]
    for moving in ([latency, gap], [gap, latency]):
        found = identify(model(moving, alike), Identification.of(moving))
        assert found.reasons == {latency.key_path: f"the runs show it only together with {gap.key_path}"}
        assert dict(zip((one.key_path for one in moving), found.values, strict=True))[gap.key_path]
    apart = [[0.3, 0.0], [0.1, 0.0], [0.0, 0.2], [0.0, 0.4]]
    assert not identify(model([latency, gap], apart), Identification.of([latency, gap])).reasons


def test_a_value_known_within_more_than_a_factor_of_four_stays_as_assumed() -> None:
    moving = [value("sm.cta_launch_cycles"), value("dram.activation_bytes")]
    found = identify(model(moving, [[0.08, 0.0], [0.0, 0.5]]), Identification.of(moving))
    assert found.values.tolist() == [False, True]
    assert found.reasons["sm.cta_launch_cycles"].startswith("known within a factor of")


def test_an_interval_is_as_wide_as_physics_allows() -> None:
    timing = Parameter(f"{OF_SOURCE}lab", 0.5, "assumed", 0.7, 0.2, 2.0)
    moving, slopes = [timing], np.array([[0.115]])

    def known(us: float) -> Identification:
        move = np.array([np.log(us / timing.value)])
        return identify(LinearModel(moving, move, np.zeros(1), slopes, np.ones(1)), Identification.of(moving))

    # The deviation is the same: a factor of two on either side of 0.5, none below 0.2 and two above it.
    assert known(0.5).reasons[timing.key_path].startswith("known within a factor of")
    assert known(0.2).values.all()


def test_a_fit_to_be_replaced_is_read_from_boards_that_state_no_value_of_their_own() -> None:
    moving = [
        Parameter("dram.efficiency_fraction", 0.9, "assumed", 0.7, 0.3, 0.98),
        Parameter(f"{OF_SOURCE}lab", 0.5, "assumed", 0.7, 0.2, 2.0),
    ]
    earlier = {
        name: MeasuredSystem(unfitted("t4")).with_values([("dram.efficiency_fraction", share)])
        for name, share in (("own", 0.5), ("fitted", 0.8))
    }
    shared = {one.key_path: Known("assumed") for one in moving}
    boards = {"own": FittedBoard(earlier["own"], {}, ""), "fitted": FittedBoard(earlier["fitted"], shared, "")}
    moves = moves_to(earlier, boards, moving)
    assert np.exp(moves) * [one.value for one in moving] == pytest.approx([0.8, 0.5])


def test_a_value_that_the_runs_agree_with_stays_as_in_the_spec() -> None:
    moving = [value("dram.activation_bytes"), value("sm.cta_launch_cycles")]
    slopes = np.array([[1.0, 0.0]] * 8 + [[0.0, 1.0]] * 8)
    errors = np.array([-0.3] * 8 + [0.01] * 8)
    fitted = LinearModel(moving, np.zeros(2), errors, slopes, np.ones(16))
    found = contradicted(fitted, Identification.of(moving))
    assert found.values.tolist() == [True, False]
    assert found.reasons == {"sm.cta_launch_cycles": "the runs agree with it"}


def test_a_refit_without_rows_keeps_what_the_others_say_and_goes_back_where_they_say_nothing() -> None:
    moving = [value("dram.activation_bytes"), value("sm.cta_launch_cycles")]
    slopes = np.array([[1.0, 0.0]] * 8 + [[0.0, 1.0]] * 8)
    at = np.array([0.3, -0.2])
    found = LinearModel(moving, at, np.zeros(16), slopes, np.ones(16))
    everything, both = np.ones(16, dtype=np.bool_), np.ones(2, dtype=np.bool_)
    assert found.solved(everything, both) == pytest.approx(at, abs=0.005)
    assert found.solved(np.arange(16) < 8, both) == pytest.approx([0.3, 0.0], abs=0.005)


def test_an_outlier_moves_a_refit_little() -> None:
    moving = [value("dram.activation_bytes")]
    errors = np.array([0.0] * 9 + [2.0])
    found = LinearModel(moving, np.zeros(1), errors, np.ones((10, 1)), np.ones(10))
    assert abs(found.solved(np.ones(10, dtype=np.bool_), np.ones(1, dtype=np.bool_))[0]) < 0.02


def point(system: System, given: dict[str, str]) -> PublishedPoint:
    """What a stream reads on a T4."""
    read = reading_of(system, "dram_stream_bw", given)
    return PublishedPoint("table.csv", 2, "t4", "dram_stream_bw", given, read.value, read.unit, "made up")


def test_microbenchmarks_give_a_value_that_they_contradict_and_leave_one_that_they_confirm() -> None:
    t4 = unfitted("t4")
    known = {"dram.efficiency_fraction": Known("assumed"), "shared_memory.epilogue_pass_cycles": Known("assumed")}
    board = FittedBoard(MeasuredSystem(t4), known, "")
    moving = parameters([board], (), ())
    for planted, moves in ((0.6, True), (t4.gpu.dram.efficiency_fraction, False)):
        true = t4.with_values([("dram.efficiency_fraction", planted)])
        points = [point(true, {"kernel": "triad", "cta": cta, "ctas_per_sm": "2"}) for cta in ("256", "512", "1024")]
        executor = Inline(FittedBoards({"t4": board}))
        found = fixed_by_microbenchmarks(moving, Curves.of(points, {"t4": board}), executor, lambda _text: None)
        efficiency, epilogue = found
        assert efficiency.value == pytest.approx(planted, rel=0.02)
        assert efficiency.kind == "measured"
        assert bool(efficiency.stated) == moves
        assert efficiency.high < 1.2 * planted
        assert epilogue == moving[1]  # a stream has none
