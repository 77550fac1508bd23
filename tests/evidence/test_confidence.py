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
from gpusim.confidence import BEYOND, LEAST_ROWS, UNTESTED, Confidence, ErrorRange, MeasuredRange
from gpusim.evidence.measured import MeasuredRow
from gpusim.files.yamlfile import SpecError
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.specs import load_spec
from gpusim.studies.calibration.assessment import LeftOut
from gpusim.studies.calibration.fit import Calibration
from gpusim.studies.calibration.left_out import PRIOR_ROWS, confidence_of
from gpusim.studies.calibration.observations import Observation
from gpusim.workloads.gemm import Gemm

CUBE = Gemm(512, 512, 512, Dtype.FP16)
ROWS = (
    ErrorRange(cores="cuda", duration="long", rows=100, low=-0.02, high=0.04),
    ErrorRange(cores="tensor", duration="short", rows=100, low=-0.2, high=0.3),
    ErrorRange(cores="tensor", duration="long", rows=100, low=-0.1, high=0.1),
)
GROUPS = (ErrorRange(cores="tensor", duration="long", rows=100, low=-0.15, high=0.05),)


SPAN = MeasuredRange(
    board="A",
    dtype="fp16",
    batched=False,
    smaller_extent=1024,
    rows=LEAST_ROWS,
    flops=(CUBE.flops / 2, CUBE.flops * 2.0),
    bytes=(CUBE.size_bytes / 2, CUBE.size_bytes * 2),
)
"""Products on either side of the cube."""


def measured(**other: object) -> MeasuredRange:
    """:data:`SPAN` with other values."""
    return SPAN.model_copy(update=other)


def confidence(*ranges: MeasuredRange, groups: tuple[ErrorRange, ...] = GROUPS) -> Confidence:
    return Confidence(fit="by hand", rows_left_out=ROWS, groups_left_out=groups, measured=ranges)


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
    assert confidence(measured()).evidence(board, gemm) == evidence


def test_a_range_ends_at_its_last_product() -> None:
    assert confidence(measured(flops=(1.0, float(CUBE.flops)))).evidence("A", CUBE) == "validated"
    assert confidence(measured(flops=(1.0, CUBE.flops - 1.0))).evidence("A", CUBE) == "extrapolated"


def test_few_products_of_a_kind_validate_nothing() -> None:
    assert confidence(measured(rows=LEAST_ROWS - 1)).evidence("A", CUBE) == "interpolated"


def test_ranges_of_two_kinds_surround_what_lies_between_them() -> None:
    below = measured(smaller_extent=128, flops=(1.0, CUBE.flops / 4), bytes=(1.0, CUBE.size_bytes / 4))
    above = measured(smaller_extent=0, flops=(CUBE.flops * 4, 1e12), bytes=(CUBE.size_bytes * 4, 1e9))
    assert confidence(below, above).evidence("A", CUBE) == "interpolated"
    assert confidence(below).evidence("A", CUBE) == "extrapolated"


def test_the_interval_is_that_of_the_rows_left_out_and_widens_with_less_evidence() -> None:
    known = confidence(measured())
    ratios = {
        board: tuple(map(math.log, known.interval(board, gemm, 300.0)[1:]))
        for board, gemm in (("A", CUBE), ("B", CUBE), ("beyond", replace(CUBE, k=4096)))
    }
    assert ratios["A"] == pytest.approx((-0.1, 0.1))
    assert ratios["B"] == pytest.approx((-0.15, 0.1))  # of groups left out, but never narrower than of rows
    assert ratios["beyond"] == pytest.approx((BEYOND * -0.15, BEYOND * 0.1))
    assert known.interval("A", CUBE, 10.0)[1:] == pytest.approx((math.exp(-0.2), math.exp(0.3)))
    untested = confidence(measured(), groups=()).interval("B", CUBE, 300.0)
    assert untested[1:] == pytest.approx((math.exp(-0.1 * UNTESTED), math.exp(0.1 * UNTESTED)))


def test_an_interval_holds_its_prediction_even_where_all_rows_took_longer() -> None:
    slow = tuple(one.model_copy(update={"low": 0.05}) for one in ROWS)
    known = confidence(measured()).model_copy(update={"rows_left_out": slow})
    assert known.interval("A", CUBE, 300.0).low == 1.0


# From a calibration -----------------------------------------------------------------------------


def observation(number: int, source: str) -> Observation:
    row = MeasuredRow(
        file="runs.csv", line=number, gpu="t4", op="gemm", batch=1, m=64 + number, n=4096, k=4096, dtype=Dtype.FP16,
        accumulate="", layout="nn", sparsity="dense", time_us=300.0, method="event", l2="warm", source=source,
    )  # fmt: skip
    assert isinstance(row.operator, Gemm)
    return Observation(row, row.operator, Options())


def calibration(held_out: NDArray[np.float64], kernel_us: float, *left: LeftOut) -> Calibration:
    count = len(held_out)
    same = np.zeros(count)
    return Calibration((), {}, {None: {}}, same, same, held_out, np.full(count, math.log(kernel_us)), left)


def test_a_calibration_writes_quantiles_of_measured_over_predicted() -> None:
    rows = [observation(number, "one") for number in range(101)]
    found = confidence_of({"t4": "T4"}, rows, calibration(np.linspace(-1.0, 0.0, 101), 290.0), "fit")
    (group,) = found.rows_left_out
    # predicted too short by up to a factor of e; one group is the whole
    assert (group.cores, group.duration, group.rows) == ("tensor", "long", 101)
    assert (group.low, group.high) == pytest.approx((0.1, 0.9))
    spans = [(one.board, one.dtype, one.smaller_extent, one.rows) for one in found.measured]
    assert spans == [("T4", "fp16", 128, 65), ("T4", "fp16", 1024, 36)]
    assert found.measured[0].flops == (2 * 64 * 4096**2, 2 * 128 * 4096**2)


def test_readings_that_are_mostly_host_time_are_passed_over() -> None:
    rows = [observation(number, "one") for number in range(10)]
    found = confidence_of({"t4": "T4"}, rows, calibration(np.zeros(10), 140.0), "fit")
    assert not found.rows_left_out
    assert found.measured


def test_few_products_of_a_kind_span_no_range() -> None:
    rows = [observation(number, "one") for number in range(LEAST_ROWS - 1)]
    assert not confidence_of({"t4": "T4"}, rows, calibration(np.zeros(len(rows)), 290.0), "fit").measured


def test_errors_of_groups_left_out_belong_to_their_own_rows() -> None:
    rows = [observation(number, "one" if number % 2 else "two") for number in range(20)]
    left = LeftOut("source", "one", 10, np.full(10, -0.5)), LeftOut("source", "two", 10, None)
    found = confidence_of({"t4": "T4"}, rows, calibration(np.zeros(20), 290.0, *left), "fit")
    (group,) = found.groups_left_out
    assert (group.rows, group.low, group.high) == (10, 0.5, 0.5)


def test_a_small_group_is_drawn_towards_the_whole() -> None:
    rows = [observation(number, "one") for number in range(100)]
    held_out = np.where(np.arange(100) < PRIOR_ROWS, -1.0, 0.0)
    outcome = calibration(held_out, 290.0)
    kernels = np.where(np.arange(100) < PRIOR_ROWS, math.log(49.0), math.log(290.0))
    rows = [replace(one, row=replace(one.row, time_us=49.0)) if n < PRIOR_ROWS else one for n, one in enumerate(rows)]
    short, long = confidence_of({"t4": "T4"}, rows, replace(outcome, kernel_log_times=kernels), "fit").rows_left_out
    # of the whole the upper tail is 1, the lower 0
    assert [short.duration, short.low, short.high] == ["short", pytest.approx(0.5), pytest.approx(1.0)]
    assert [long.duration, long.low] == ["long", pytest.approx(0.0)]
    assert long.high == pytest.approx(20 / 100)


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
    softmax = gpusim.predict("t4", op="softmax", m=512, n=512, dtype="fp32")
    teaching = gpusim.predict("teaching", m=64, n=64, k=64, dtype="fp32")
    faster = gpusim.predict("t4", m=512, n=512, k=512, overrides={"l2.capacity_mib": 8.0})
    assert {one.timing.evidence for one in (softmax, teaching, faster)} == {"extrapolated"}


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text("name: Mine\nextends: t4\n", encoding="utf-8")
    (tmp_path / "confidence").mkdir()
    damaged = tmp_path / "confidence" / "mine.json"
    damaged.write_text(json.dumps({"fit": "by hand", "rows_left_out": [], "measured": []}), encoding="utf-8")
    with pytest.raises(SpecError, match=r"mine\.json:1: groups_left_out: Field required; run the calibration again"):
        load_spec(spec)


@pytest.mark.parametrize("arch", ["v100-sxm2-16gb", "t4", "a100-sxm4-80gb", "a40", "h200-sxm-141gb"])
def test_shipped_fits_know_their_errors_and_no_row(arch: str) -> None:
    confidence = load_spec(arch).system.confidence
    assert confidence is not None
    assert all(one.low < 0 < one.high for one in confidence.rows_left_out)
    assert all(one.rows >= LEAST_ROWS for one in confidence.measured)
