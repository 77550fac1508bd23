"""Predictions state an interval: quantiles of what fits left out, and whether measured products surround a shape."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import gpusim
from gpusim.confidence import (
    BETWEEN_SOURCES,
    BEYOND,
    LEAST_ROWS,
    RATIO_LEAST,
    SIGMAS_OF_80_PERCENT,
    VARIANT,
    Confidence,
    ErrorRange,
    LeftOutBoard,
    MeasuredRange,
    PredictionInterval,
    Timed,
    ratio_of,
)
from gpusim.evidence.boards import board_of
from gpusim.evidence.measured import MeasuredRow
from gpusim.files.yamlfile import SpecError
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.report.prediction_tables import predictions_tables
from gpusim.specs import load_spec
from gpusim.studies.calibration.assessment import LeftOut
from gpusim.studies.calibration.fit import Calibration
from gpusim.studies.calibration.left_out import LEAST_GROUP_ROWS, confidence_of
from gpusim.studies.calibration.observations import Observation
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.vector import LayerNorm, Softmax

ROOT = Path(__file__).parents[2]
ARCH_SPECS, CALIBRATIONS = ROOT / "arch_specs", ROOT / "experiments" / "calibration"
CUBE = Gemm(512, 512, 512, Dtype.FP16)
ROWS = (
    ErrorRange(family="product", rows=300, low=-0.3, high=0.4),
    ErrorRange(family="product", kind="product", dtype="fp16", rows=200, low=-0.15, high=0.2),
    ErrorRange(family="product", kind="product", dtype="fp16", duration="short", rows=100, low=-0.2, high=0.3),
    ErrorRange(family="product", kind="product", board="A", dtype="fp16", rows=100, low=-0.1, high=0.12),
    ErrorRange(family="vector", kind="softmax", dtype="fp32", rows=50, low=-0.02, high=0.04),
)
SHARED = SIGMAS_OF_80_PERCENT * BETWEEN_SOURCES["product"]

SPAN = MeasuredRange(
    board="A",
    kind="product",
    dtype="fp16",
    batched=False,
    smaller_extent=1024,
    rows=LEAST_ROWS,
    sources=("lab_1",),
    flops=(CUBE.flops / 2, CUBE.flops * 2.0),
    bytes=(CUBE.size_bytes / 2, CUBE.size_bytes * 2),
)
"""Products on either side of the cube."""


def measured(**other: object) -> MeasuredRange:
    """:data:`SPAN` with other values."""
    return SPAN.model_copy(update=other)


def confidence(*ranges: MeasuredRange) -> Confidence:
    return Confidence(fit="by hand", errors=ROWS, measured=ranges)


def logs(found: PredictionInterval | None) -> tuple[float, float]:
    assert found is not None
    return math.log(found.low), math.log(found.high)


@pytest.mark.parametrize(
    ("board", "gemm", "evidence"),
    [
        ("A", CUBE, "validated"),
        ("A", replace(CUBE, order="column", op="gemm"), "validated"),  # the same product, by BLAS
        ("B", CUBE, "interpolated"),  # another board of the architecture
        ("A", replace(CUBE, dtype=Dtype.BF16, output="bf16"), "interpolated"),  # at the same rate
        ("A", replace(CUBE, batch=2, m=256), "interpolated"),  # batched ones are of another kind
        ("A", Gemm(8, 32768, 512, Dtype.FP16), "extrapolated"),  # more bytes than any
        ("A", replace(CUBE, k=2048), "extrapolated"),  # more operations than any
        ("A", replace(CUBE, dtype=Dtype.FP32, output="fp32", accumulate="fp32"), "extrapolated"),
        ("A", replace(CUBE, sparsity="2:4"), "extrapolated"),
    ],
)
def test_evidence_is_what_surrounds_a_shape(board: str, gemm: Gemm, evidence: str) -> None:
    assert confidence(measured()).evidence(board, gemm, "lab-1") == evidence


def test_another_source_validates_nothing() -> None:
    known = confidence(measured())
    assert [known.evidence("A", CUBE, source) for source in ("lab 1", "lab-2", "")] == [
        "validated",
        "interpolated",
        "interpolated",
    ]


def test_a_range_ends_at_its_last_product() -> None:
    assert confidence(measured(flops=(1.0, float(CUBE.flops)))).evidence("A", CUBE, "lab-1") == "validated"
    assert confidence(measured(flops=(1.0, CUBE.flops - 1.0))).evidence("A", CUBE, "lab-1") == "extrapolated"


def test_few_products_of_a_kind_validate_nothing() -> None:
    assert confidence(measured(rows=LEAST_ROWS - 1)).evidence("A", CUBE, "lab-1") == "interpolated"


def test_ranges_of_two_kinds_surround_what_lies_between_them() -> None:
    below = measured(smaller_extent=128, flops=(1.0, CUBE.flops / 4), bytes=(1.0, CUBE.size_bytes / 4))
    above = measured(smaller_extent=0, flops=(CUBE.flops * 4, 1e12), bytes=(CUBE.size_bytes * 4, 1e9))
    assert confidence(below, above).evidence("A", CUBE) == "interpolated"
    assert confidence(below).evidence("A", CUBE) == "extrapolated"


def test_the_interval_is_that_of_the_most_alike_group() -> None:
    known = confidence(measured())
    assert logs(known.interval("A", CUBE, 300.0, "lab-1")) == pytest.approx((-0.1, 0.12))
    assert known.own_error("B", CUBE, 300.0) == (0.15, 0.2)  # another board of the architecture
    assert known.own_error("B", CUBE, 10.0) == (0.2, 0.3)  # short
    assert known.own_error("B", replace(CUBE, dtype=Dtype.BF16, output="bf16"), 10.0) == (0.2, 0.3)  # of its rate
    int8 = replace(CUBE, dtype=Dtype.INT8, output="int32", accumulate="int32")
    assert known.own_error("B", int8, 10.0) == (0.3, 0.4)  # all products
    assert known.own_error("A", Softmax(64, 64, Dtype.FP32), 10.0) == (0.02, 0.04)
    assert known.own_error("A", LayerNorm(64, 64, Dtype.FP32), 10.0) is None  # nobody measured one


def test_what_a_source_shares_adds_as_a_root_of_squares_and_widens_beyond_what_was_measured() -> None:
    known = confidence(measured())
    assert logs(known.interval("A", CUBE, 300.0)) == pytest.approx((-math.hypot(0.1, SHARED), math.hypot(0.12, SHARED)))
    far = logs(known.interval("A", replace(CUBE, k=4096), 300.0))
    assert far == pytest.approx((-BEYOND * math.hypot(0.1, SHARED), BEYOND * math.hypot(0.12, SHARED)))
    changed = known.model_copy(update={"variant": True}).interval("A", CUBE, 300.0)
    assert changed is not None
    assert changed.evidence == "extrapolated"
    assert logs(changed)[1] == pytest.approx(math.hypot(0.12, SHARED, SIGMAS_OF_80_PERCENT * VARIANT))


def test_an_interval_holds_its_prediction_even_where_all_rows_took_longer() -> None:
    slow = tuple(one.model_copy(update={"low": 0.05}) for one in ROWS)
    known = confidence(measured()).model_copy(update={"errors": slow})
    assert logs(known.interval("A", CUBE, 300.0, "lab-1"))[0] == 0.0


# Ratios -----------------------------------------------------------------------------------------


def test_errors_on_two_boards_add_and_on_two_variants_cancel() -> None:
    slow, fast = Timed("A", 10.0, 8.0, 12.5), Timed("B", 5.0, 4.0, 6.25)
    ratio = ratio_of(slow, fast)
    assert ratio.low is not None
    assert math.log(ratio.value / ratio.low) == pytest.approx(math.sqrt(2) * math.log(1.25))
    variant = ratio_of(slow, fast._replace(board="A"))
    assert variant.low is not None
    assert 2.0 > variant.low > ratio.low
    unchanged = ratio_of(slow, slow._replace(low_us=7.0))
    assert unchanged.low == pytest.approx(math.exp(-RATIO_LEAST))
    assert ratio_of(slow, slow) == (1.0, 1.0, 1.0)
    assert ratio_of(slow, fast._replace(low_us=None)) == (2.0, None, None)


def test_a_replaced_value_leaves_the_ratio_firmer_than_the_time() -> None:
    wider = gpusim.predict("t4", m=1024, n=1024, k=1024, overrides={"dram.peak_bandwidth_gb_per_s": "2x"})
    shipped = gpusim.predict("t4", m=1024, n=1024, k=1024)
    ratio = ratio_of(shipped.timed, wider.timed)
    assert ratio.low is not None
    assert wider.timed.low_us is not None
    assert ratio.value / ratio.low < wider.time_us / wider.timed.low_us


# From a calibration -----------------------------------------------------------------------------


def observation(number: int, source: str) -> Observation:
    row = MeasuredRow(
        file="runs.csv", line=number, gpu="t4", op="gemm", batch=1, m=64 + number, n=4096, k=4096, dtype=Dtype.FP16,
        accumulate="", layout="nn", sparsity="dense", time_us=300.0, method="event", l2="warm", source=source,
    )  # fmt: skip
    assert isinstance(row.operator, Gemm)
    return Observation(row, row.operator, Options())


def calibration(held_out: NDArray[np.float64], kernel_us: float) -> Calibration:
    count = len(held_out)
    same = np.zeros(count)
    return Calibration((), {}, {None: {}}, same, same, held_out, np.full(count, math.log(kernel_us)))


def test_a_calibration_writes_quantiles_of_measured_over_predicted() -> None:
    rows = [observation(number, "lab 1") for number in range(99)]
    found = confidence_of({"t4": "T4"}, rows, calibration(np.linspace(-0.98, 0.0, 99), 290.0), (), "fit")
    # predicted too short by up to a factor of e; the tails begin at the 10th row of 99, from either end
    assert {(one.rows, one.low, one.high) for one in found.errors} == {(99, 0.09, 0.89)}
    groups = {(one.kind, one.board, one.dtype, one.duration) for one in found.errors}
    assert {("product", "T4", "fp16", "long"), ("product", "", "fp16", ""), ("", "", "", "")} <= groups
    spans = [(one.board, one.dtype, one.smaller_extent, one.rows, one.sources) for one in found.measured]
    assert spans == [("T4", "fp16", 128, 65, ("lab_1",)), ("T4", "fp16", 1024, 34, ("lab_1",))]
    assert found.measured[0].flops == (2 * 64 * 4096**2, 2 * 128 * 4096**2)


def test_readings_that_are_mostly_host_time_are_passed_over() -> None:
    rows = [observation(number, "one") for number in range(LEAST_GROUP_ROWS)]
    found = confidence_of({"t4": "T4"}, rows, calibration(np.zeros(len(rows)), 140.0), (), "fit")
    assert not found.errors
    assert found.measured


def test_few_products_of_a_kind_span_no_range_and_have_no_quantiles() -> None:
    rows = [observation(number, "one") for number in range(LEAST_ROWS - 1)]
    found = confidence_of({"t4": "T4"}, rows, calibration(np.zeros(len(rows)), 290.0), (), "fit")
    assert not found.measured
    assert not found.errors


# In predictions ---------------------------------------------------------------------------------


def test_a_prediction_lies_in_its_interval_and_a_bound_has_none() -> None:
    found = gpusim.predict("t4", m=512, n=512, k=512)
    assert found.timing.time_us_p10 is not None
    assert found.timing.time_us_p90 is not None
    assert found.timing.time_us_p10 <= found.time_us <= found.timing.time_us_p90
    assert {"time_us_p10", "time_us_p90", "evidence"} <= found.as_dict().keys()
    bound = gpusim.predict("t4", m=512, n=512, k=512, detail="bound")
    assert (bound.timing.time_us_p10, bound.timing.time_us_p90) == (None, None)


def test_what_no_fit_has_tested_is_extrapolated() -> None:
    sums = gpusim.predict("h200", op="softmax", m=512, n=512, dtype="fp32")
    teaching = gpusim.predict("teaching", m=64, n=64, k=64, dtype="fp32")
    faster = gpusim.predict("t4", m=512, n=512, k=512, overrides={"l2.capacity_mib": 8.0})
    assert {one.timing.evidence for one in (sums, teaching, faster)} == {"extrapolated"}


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text("name: Mine\nextends: t4\n", encoding="utf-8")
    (tmp_path / "confidence").mkdir()
    damaged = tmp_path / "confidence" / "mine.json"
    damaged.write_text(json.dumps({"fit": "by hand", "errors": []}), encoding="utf-8")
    with pytest.raises(SpecError, match=r"mine\.json:1: measured: Field required; run the calibration again"):
        load_spec(spec)


@pytest.mark.parametrize("arch", ["v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "a40", "h200-sxm-141gb"])
def test_shipped_fits_know_their_errors_and_no_row(arch: str) -> None:
    confidence = load_spec(arch).system.confidence
    assert confidence is not None
    assert any(one.family == "product" and one.low < 0 < one.high for one in confidence.errors)
    assert all(one.rows >= LEAST_ROWS for one in confidence.measured)


# Whose runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("name: T4\nextends: turing_fitted\n", "board"),
        ("name: Mine\nextends: t4\n", "architecture"),
        ('name: Mine\nextends: t4\narchitecture: turing\ncompute_capability: "7.5"\n', "architecture"),
        ('name: Mine\nextends: t4\narchitecture: ada\ncompute_capability: "8.9"\n', "nothing"),
        ('name: Mine\nextends: t4\ncompute_capability: "7.2"\n', "nothing"),
        ("name: Mine\nextends: teaching\n", "nothing"),
    ],
)
def test_a_board_is_calibrated_on_its_own_runs_or_those_of_its_architecture(
    tmp_path: Path, text: str, runs: str
) -> None:
    spec = tmp_path / "mine.yaml"
    own = Path(load_spec("t4").files[0]).read_text(encoding="utf-8") if "extends: turing_fitted" in text else text
    spec.write_text(own, encoding="utf-8")
    found = gpusim.predict(spec, m=512, n=512, k=512)
    assert (found.calibrated_on, found.as_dict()["calibrated_on"]) == (runs, runs)
    assert (found.timing.evidence == "extrapolated") == (runs == "nothing")
    shown = "\n".join(table.plain() for table in predictions_tables([found], [{}]))
    assert ("is not calibrated" in shown) == (runs == "nothing")


def test_a_fit_of_several_compute_capabilities_speaks_for_the_boards_of_each(tmp_path: Path) -> None:
    shipped = Path(load_spec("t4").files[0]).parent
    for name in ("turing_tu1xx", "turing", "turing_fitted"):
        text = (shipped / f"{name}.yaml").read_text(encoding="utf-8").replace('compute_capability: "7.5"\n', "")
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "confidence").mkdir()
    (tmp_path / "confidence" / "turing_fitted.json").write_bytes(
        (shipped / "confidence" / "turing_fitted.json").read_bytes()
    )
    text = (shipped / "t4.yaml").read_text(encoding="utf-8").replace("name: T4", "name: Mine")
    (tmp_path / "mine.yaml").write_text(f'{text}\ncompute_capability: "7.4"\n', encoding="utf-8")
    assert load_spec(tmp_path / "mine.yaml").system.calibrated_on == "architecture"


def test_a_calibration_writes_how_far_it_is_off_on_boards_that_it_left_out() -> None:
    rows = [observation(number, "one") for number in range(LEAST_ROWS)]
    known = replace(
        calibration(np.zeros(len(rows)), 290.0),
        left_out=(
            LeftOut("source", "one", 5, np.log([2.0] * 5)),
            LeftOut("board", "t4", 5, np.log([1.1, 0.9, 1.1, 0.9, 1.0])),
            LeftOut("board", "a40", 3, None),
        ),
    )
    found = confidence_of({"t4": "T4", "a40": "A40"}, rows, known, (), "fit")
    assert found.left_out == (LeftOutBoard(board="T4", rows=5, mape=8.0),)


@pytest.mark.parametrize("file", sorted((ARCH_SPECS / "confidence").glob("*.json")), ids=lambda path: path.stem)
def test_shipped_fits_state_the_errors_on_boards_left_out_that_their_reports_have(file: Path) -> None:
    confidence = Confidence.model_validate_json(file.read_bytes())
    report = CALIBRATIONS / f"{file.stem.removesuffix('_fitted')}.json"
    reported = {
        board_of(one["name"]).gpu.name: (one["rows"], round(one["mape"], 2))
        for one in json.loads(report.read_bytes())["without"]
        if one["kind"] == "board" and one["name"] != "all" and one["mape"] is not None
    }
    assert {one.board: (one.rows, one.mape) for one in confidence.left_out} == reported
