"""Validation: metrics by hand, no row dropped, and results independent of the number of processes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import RunGpusim, WriteRuns, refused
from conftest import measured_line as line

import gpusim
from gpusim.execution.service import Service
from gpusim.files.outputs import write_csv
from gpusim.host.timing_methods import METHODS, observed_time_us
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.specs import load_spec
from gpusim.studies.validation.kernel_choice import tile_of
from gpusim.studies.validation.prediction import Scored
from gpusim.studies.validation.report import ValidationReport, validate
from gpusim.workloads.gemm import LAYOUTS, Gemm

SHAPES = ((64, 512, 512), (512, 512, 512), (1024, 1024, 256), (2048, 1024, 1024))
CONTRACT = ("file", "gpu", "dtype", "sparsity", "op", "rows", "predicted", "skipped", "mape", "median_ape", "p90_ape",
            "bias", "spearman", "bound_mape", "seconds")  # fmt: skip


def predicted_us(shape: tuple[int, int, int], method: str = "graph", kernel: str | None = None) -> float:
    """The program's own prediction for the T4, as a timing method reads it."""
    arch = load_spec("t4").system
    load = "burst" if method == "graph" else "sustained"
    result = predict(arch, Gemm(*shape, Dtype.FP16), Options(l2="warm", kernel=kernel, load=load))
    return observed_time_us(result.kernel_time_us, method, arch.host)


def one_table(path: Path, **options: Any) -> dict[str, Any]:
    (table,) = validate([path], **options).as_dict()["tables"]
    assert isinstance(table, dict)
    return table


@pytest.mark.parametrize("method", ["graph", "stream", "profiler", "event", "host"])
def test_a_run_that_took_what_was_predicted_has_no_error_whatever_timed_it(write_runs: WriteRuns, method: str) -> None:
    table = one_table(write_runs([line(shape, predicted_us(shape, method), method=method) for shape in SHAPES]))
    assert (table["rows"], table["predicted"], table["skipped"]) == (4, 4, 0)
    for metric in ("mape", "median_ape", "p90_ape", "bias", "median_bias"):
        assert table[metric] == pytest.approx(0.0, abs=1e-9)
    assert table["geomean_ratio"] == pytest.approx(1.0)
    assert table["spearman"] == 1.0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [{"op": "gemm"}, {"op": "gemm", "order": "column"}, {"op": "linear"}, {"op": "bmm"}])
def test_a_table_that_was_predicted_has_no_error(tmp_path: Path, kind: dict[str, str], layout: str) -> None:
    sizes = {"m": [64, 1000, 2048], "n": [512, 96, 128], "k": [512, 256, 1001]}
    same: dict[str, Any] = {"arch": "t4", "dtype": "fp16", "layout": layout, "batch": 4 if kind["op"] == "bmm" else 1}
    predicted = gpusim.sweep(sizes, **same | kind)
    rows = [dict(zip(predicted, values, strict=True)) for values in zip(*predicted.values(), strict=True)]
    assert {row["order"] for row in rows} == {kind.get("order", "row")}
    write_csv(tmp_path / "runs.csv", [{**row, "method": "graph"} for row in rows])
    table = one_table(tmp_path / "runs.csv")
    assert (table["op"], table["predicted"], table["mape"]) == (kind["op"], 3, pytest.approx(0.0, abs=1e-6))


def test_a_transposed_table_is_doubted(tmp_path: Path) -> None:
    sizes = {"m": [256 * one for one in range(1, 13)], "n": [4095] * 12, "k": [1024] * 12}  # n is misaligned
    predicted = gpusim.sweep(sizes, arch="t4", dtype="fp16", layout="nn")
    names = ("op", "batch", "m", "n", "k", "dtype", "layout", "sparsity", "load", "l2")
    rows = [
        {"gpu": "t4", "method": "graph", "time_us": time_us, **{name: predicted[name][at] for name in names}}
        for at, time_us in enumerate(predicted["time_us"])
    ]
    write_csv(tmp_path / "right.csv", rows)
    write_csv(tmp_path / "wrong.csv", [{**row, "m": row["n"], "n": row["m"]} for row in rows])
    write_csv(tmp_path / "loads.csv", [{**row, "load": "burst"} for row in rows])
    write_csv(tmp_path / "blank.csv", [{**row, "load": "", "layout": ""} for row in rows])
    assert validate([tmp_path / "right.csv"]).remarks == ()
    (transposed,) = validate([tmp_path / "wrong.csv"]).remarks
    assert ": gemm: with m and n exchanged the error falls from" in transposed
    assert transposed.endswith("to 0 %; state the column order, or exchange m and n")
    assert "gemm: with load sustained the error falls" in validate([tmp_path / "loads.csv"]).remarks[0]
    assert validate([tmp_path / "blank.csv"]).remarks[0] == (
        "not stated: load of 12 rows (taken as burst), layout of 12 rows (taken as tn); "
        "the columns load and layout state them"
    )


def test_figures_are_those_worked_out_by_hand(write_runs: WriteRuns) -> None:
    # Measured at 1/2, 4/5, 1 and 2 times the prediction: errors +100 %, +25 %, 0 and -50 %.
    factors = (0.5, 0.8, 1.0, 2.0)
    runs = [line(shape, predicted_us(shape) * factor) for shape, factor in zip(SHAPES, factors, strict=True)]
    table = one_table(write_runs(runs))
    assert table["mape"] == pytest.approx((100 + 25 + 0 + 50) / 4)
    assert table["median_ape"] == pytest.approx((25 + 50) / 2)
    assert table["bias"] == pytest.approx((100 + 25 + 0 - 50) / 4)
    assert table["median_bias"] == pytest.approx((25 + 0) / 2)
    assert table["p90_ape"] == pytest.approx(50 + 0.7 * (100 - 50))  # place 0.9 * 3 = 2.7 of 0, 25, 50, 100
    assert table["geomean_ratio"] == pytest.approx((2 * 1.25 * 1 * 0.5) ** 0.25)
    assert [row["line"] for row in table["worst"]] == [2, 5, 3, 4]


def test_every_row_belongs_to_one_stratum(write_runs: WriteRuns) -> None:
    sizes = (1, 16, 17, 128, 129, 1024, 1025)
    runs = [line((m, n, 512), 10.0) for m in sizes for n in (64, 8192)]
    table = one_table(write_runs(runs))
    strata = table["strata"]
    assert sum(stratum["rows"] for stratum in strata) == table["predicted"] == len(runs)
    ranges = list(dict.fromkeys(stratum["m"] for stratum in strata))
    assert ranges == ["m <= 16", "16 < m <= 128", "128 < m <= 1024", "m > 1024"]
    counts = [sum(stratum["rows"] for stratum in strata if stratum["m"] == name) for name in ranges]
    assert counts == [4, 4, 4, 2]
    weighted = sum(stratum["rows"] * stratum["mape"] for stratum in strata) / len(runs)
    assert weighted == pytest.approx(table["mape"], abs=1e-5)


def test_a_vector_is_bound_by_memory_and_a_large_product_by_compute(write_runs: WriteRuns) -> None:
    # Cold: 8 MiB of weights for one row, and 4096 operations for each of the bytes of a large product.
    shapes = ((1, 2048, 2048), (4096, 4096, 4096))
    table = one_table(write_runs([line(shape, 10.0, l2="cold") for shape in shapes]))
    assert [(stratum["m"], stratum["bound_by"]) for stratum in table["strata"]] == [
        ("m <= 16", "memory"),
        ("m > 1024", "compute"),
    ]


def test_the_worst_rows_say_why_they_take_so_long(write_runs: WriteRuns) -> None:
    large = (8192, 8192, 8192)
    (worst,) = one_table(write_runs([line(large, 1.0, method="profiler")]))["worst"]
    result = predict(load_spec("t4").system, Gemm(*large, Dtype.FP16), Options(l2="warm"))
    assert worst["power_limited"]  # 70 W do not carry the boost clock
    assert worst["clock_mhz"] == result.timing.clock_mhz < load_spec("t4").gpu.clock.max_mhz
    assert (worst["bottleneck"], worst["kernel"]) == (result.bottleneck, result.kernel)
    assert worst["waves"] == pytest.approx(result.launch.waves)
    assert worst["dominant_stall"] in result.counters.stall_cycles


def test_the_rank_correlation_turns_with_the_order(write_runs: WriteRuns) -> None:
    shapes = sorted(SHAPES, key=predicted_us)
    table = one_table(write_runs([line(shape, 100.0 - place) for place, shape in enumerate(shapes)]))
    assert table["spearman"] == -1.0


def test_the_bound_is_never_slower_than_the_prediction(write_runs: WriteRuns) -> None:
    # Measured as predicted, the bound's error is what it leaves out; it can only be too fast.
    table = one_table(write_runs([line(shape, predicted_us(shape)) for shape in SHAPES]))
    assert 0 < table["bound_mape"] < 100
    bound = one_table(write_runs([line(shape, predicted_us(shape)) for shape in SHAPES]), detail="bound")
    assert bound["mape"] == pytest.approx(table["bound_mape"], rel=0.5)


def test_the_share_of_readings_in_their_intervals_is_counted(write_runs: WriteRuns) -> None:
    of_time = [predict(load_spec("t4").system, Gemm(*shape, Dtype.FP16), Options(l2="warm")) for shape in SHAPES[:2]]
    ends = [(found.timing.time_us_p10 or 0.0) / found.time_us for found in of_time]
    within, without = (predicted_us(shape) * end for shape, end in zip(SHAPES, ends, strict=False))
    path = write_runs([line(SHAPES[0], within * 1.001), line(SHAPES[1], without * 0.999)])
    assert one_table(path)["inside_pct"] == 50.0
    assert one_table(path, detail="bound")["inside_pct"] is None


def test_no_row_is_lost(write_runs: WriteRuns) -> None:
    path = write_runs(
        [
            line(SHAPES[0], 10.0),
            line(SHAPES[1], 10.0, gpu="voodoo-2"),
            line(SHAPES[2], 10.0, op="conv_fwd"),
            line(SHAPES[3], 10.0, dtype="fp8"),
        ]
    )
    report = validate([path])
    tables = report.as_dict()["tables"]
    assert [(table["rows"], table["predicted"], table["skipped"]) for table in tables] == [
        (1, 1, 0),
        (1, 0, 1),
        (1, 0, 1),
        (1, 0, 1),
    ]
    reasons = [next(iter(table["skip_reasons"])) for table in tables[1:]]
    assert "voodoo-2: unknown GPU" in reasons[0]
    assert reasons[1] == "operator 'conv_fwd' is not predicted"
    assert "has no fp8" in reasons[2]
    assert tables[1]["mape"] is None
    overall = report.as_dict()["overall"]
    assert (overall["rows"], overall["predicted"], overall["skipped"]) == (4, 1, 3)
    assert report.reasons


def test_tables_are_kept_apart_by_gpu_type_and_operator_in_the_order_of_the_file(write_runs: WriteRuns) -> None:
    lines = [line(SHAPES[0], 10.0, gpu="v100-sxm2-16gb"), line(SHAPES[1], 10.0), line(SHAPES[1], 10.0, dtype="fp32")]
    lines += [line(SHAPES[2], 10.0, op="gemm"), line(SHAPES[2], 11.0)]
    tables = validate([write_runs(lines)]).as_dict()["tables"]
    assert [(table["gpu"], table["dtype"], table["op"], table["rows"]) for table in tables] == [
        ("v100-sxm2-16gb", "fp16", "linear", 1),
        ("t4", "fp16", "linear", 2),
        ("t4", "fp32", "linear", 1),
        ("t4", "fp16", "gemm", 1),
    ]


@pytest.mark.usefixtures("reference_driver")
def test_processes_change_nothing_but_the_time_it_takes(write_runs: WriteRuns) -> None:
    shapes = [(64 * place, 256, 128) for place in range(1, 25)]
    path = write_runs([line(shape, 10.0) for shape in shapes])
    alone, shared = (validate([path], service=Service(jobs)).as_dict() for jobs in (1, 2))
    for report in (alone, shared):
        for table in (*report["tables"], report["overall"]):
            del table["seconds"]
    assert alone == shared


def test_the_kernel_choice_is_scored_against_recorded_kernels(write_runs: WriteRuns) -> None:
    arch = load_spec("t4").system
    shape = SHAPES[3]
    ranked = predict(arch, Gemm(*shape, Dtype.FP16), Options(l2="warm")).alternatives
    best, other = (
        ranked[0].kernel,
        next(one.kernel for one in ranked if tile_of(one.kernel) != tile_of(ranked[0].kernel)),
    )
    runs = []
    for kernel in (best, other):
        tile_m, tile_n = tile_of(kernel) or (0, 0)
        time_us = predicted_us(shape, kernel=kernel)
        runs.append(line(shape, time_us, kernel=kernel, tile_m=str(tile_m), tile_n=str(tile_n)))
    runs.append(line(shape, 10.0, kernel="unheard_of_kernel_7x7", tile_m="7", tile_n="7"))
    choice = one_table(write_runs(runs))["kernel_choice"]
    assert (choice["recorded"], choice["same_tile"], choice["pinned"]) == (3, 1, 2)
    assert choice["pinned_mape"] == pytest.approx(0.0, abs=1e-9)
    chosen_us, other_us = predicted_us(shape), predicted_us(shape, kernel=other)
    assert choice["time_pct"] == pytest.approx(100 * (2 * chosen_us / (chosen_us + other_us) - 1), abs=1e-4)


def test_a_recorded_kernel_is_known_by_another_spelling_of_its_name(write_runs: WriteRuns) -> None:
    shape = SHAPES[3]
    ranked = predict(load_spec("t4").system, Gemm(*shape, Dtype.FP16), Options(l2="warm")).alternatives
    other = next(one.kernel for one in ranked if tile_of(one.kernel) != tile_of(ranked[0].kernel))
    tile_m, tile_n = tile_of(other) or (0, 0)
    name = f"void {other.replace('_f2f_', '_relu_f2f_')}(Params)"  # with an epilogue, as a profiler prints it
    run = line(shape, predicted_us(shape, kernel=other), kernel=name, tile_m=str(tile_m), tile_n=str(tile_n))
    choice = one_table(write_runs([run]))["kernel_choice"]
    assert (name != other, choice["pinned"], choice["pinned_mape"]) == (True, 1, pytest.approx(0.0, abs=1e-9))


def test_the_grids_depth_beyond_the_batch_is_the_recorded_split(write_runs: WriteRuns) -> None:
    shape = SHAPES[0]
    result = predict(load_spec("t4").system, Gemm(*shape, Dtype.FP16, batch=3), Options(l2="warm"))
    tile_m, tile_n = tile_of(result.kernel) or (0, 0)
    recorded = {"kernel": result.kernel, "tile_m": str(tile_m), "tile_n": str(tile_n), "grid_x": "1", "grid_y": "1"}
    depths = (3, 6, 4)  # as predicted, split in two, and a depth that is not a multiple of the batch
    runs = [line(shape, 10.0, batch="3", grid_z=str(depth), **recorded) for depth in depths]
    choice = one_table(write_runs(runs))["kernel_choice"]
    assert result.launch.split_k == 1
    assert (choice["recorded"], choice["same_tile"]) == (3, 3)
    assert (choice["split_recorded"], choice["same_split"], choice["same_tile_and_split"]) == (2, 1, 1)
    tile = f"{tile_m}x{tile_n}"
    assert choice["confusion"] == [{"recorded": tile, "chosen": tile, "rows": 3, "time_pct": 0.0}]


def test_the_kernel_choice_is_scored_by_gpu_and_operator(write_runs: WriteRuns) -> None:
    recorded = {"kernel": "unheard_of_kernel_7x7", "tile_m": "7", "tile_n": "7"}
    runs = [line(SHAPES[0], 10.0, op=op, **recorded) for op in ("linear", "bmm", "linear")]
    runs.append(line(SHAPES[0], 10.0, gpu="v100-sxm2-16gb"))
    scores = validate([write_runs(runs)]).as_dict()["kernel_choice"]
    assert [(score["gpu"], score["op"], score["recorded"]) for score in scores] == [
        ("t4", "linear", 2),
        ("t4", "bmm", 1),
    ]


def test_a_table_without_recorded_kernels_has_no_score(write_runs: WriteRuns) -> None:
    assert one_table(write_runs([line(SHAPES[0], 10.0)]))["kernel_choice"] is None


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn", (128, 64)),
        ("ampere_sgemm_32x32_sliced1x4_nn", (32, 32)),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_tn_align8", (256, 128)),
        ("ampere_sgemm_128x64", (128, 64)),
        ("gemv2T", None),
    ],
)
def test_the_tile_is_read_from_a_kernels_name(name: str, tile: tuple[int, int] | None) -> None:
    assert tile_of(name) == tile


def test_the_command_prints_the_contracts_object(command: RunGpusim, write_runs: WriteRuns) -> None:
    done = command("validate", write_runs([line(shape, 10.0) for shape in SHAPES]), "--format", "json")
    said = "gpusim: not stated: load of 4 rows (taken as burst); the columns load and layout state them\n"
    assert (done.returncode, done.stderr) == (0, said)
    report = json.loads(done.stdout)
    assert tuple(name for name in report["tables"][0] if name in CONTRACT) == CONTRACT
    assert set(report["overall"]) >= set(CONTRACT) - {"file", "gpu", "dtype", "sparsity", "op"}


def test_the_help_states_every_timing_method_and_every_optional_column_of_a_run(command: RunGpusim) -> None:
    words = {line.split()[0] for line in command("validate", "--help").stdout.splitlines() if line.split()}
    assert words >= {*METHODS, "load", "cuda", "out_dtype", "padded_to", "timer_us", "repeat_p90", "operands"}


def test_a_skipped_row_is_named_and_makes_the_status_1(command: RunGpusim, write_runs: WriteRuns) -> None:
    done = command("validate", write_runs([line(SHAPES[0], 10.0), line(SHAPES[0], 10.0, op="conv_fwd")]))
    assert done.returncode == 1
    assert "operator 'conv_fwd' is not predicted" in done.stdout


def test_more_lists_the_rows_furthest_off(command: RunGpusim, write_runs: WriteRuns) -> None:
    path = write_runs([line(shape, 10.0) for shape in SHAPES])
    assert "Largest errors in" not in command("validate", path).stdout
    assert "Largest errors in runs t4 fp16 linear" in command("validate", path, "--more").stdout


def test_strata_are_printed_when_asked_for(command: RunGpusim, write_runs: WriteRuns) -> None:
    path = write_runs([line(shape, 10.0) for shape in SHAPES])
    assert "128 < m <= 1024" not in command("validate", path).stdout
    assert "128 < m <= 1024" in command("validate", path, "--strata").stdout


def test_a_broken_file_is_refused_in_one_line(command: RunGpusim, write_runs: WriteRuns, tmp_path: Path) -> None:
    path = write_runs([line(SHAPES[0], 10.0), line(SHAPES[1], -1.0)])
    assert f"{path}:3: time_us: expected a positive time, got '-1.0'" in refused(command("validate", path))
    assert "cannot be read" in refused(command("validate", tmp_path / "none.csv"))
    assert f"{path}: named twice" in refused(command("validate", path, path))
    assert f"{path}: named twice" in refused(command("validate", "runs.csv", path))


def test_a_wrong_spec_is_refused_and_makes_no_skipped_rows(
    command: RunGpusim, write_runs: WriteRuns, tmp_path: Path
) -> None:
    path = write_runs([line(SHAPES[0], 10.0)])
    assert "no such folder" in refused(command("validate", path, "--arch-path", tmp_path / "nowhere"))
    (tmp_path / "t4.yaml").write_text("name: T4\nextends: turing\nnonsense: 1\n", encoding="utf-8")
    assert "t4.yaml:3: nonsense" in refused(command("validate", path, "--arch-path", tmp_path))


def test_skipped_rows_are_listed_by_type_and_operator(command: RunGpusim, write_runs: WriteRuns) -> None:
    lines = [line(SHAPES[0], 10.0, op="conv_fwd", dtype=dtype) for dtype in ("fp16", "fp32")]
    shown = command("validate", write_runs(lines)).stdout.partition("Skipped rows")[2]
    assert [row.split()[2:4] for row in shown.splitlines() if "not predicted" in row] == [
        ["fp16", "conv_fwd"],
        ["fp32", "conv_fwd"],
    ]


# Table and GPU; what a model with nothing fitted to timings has to reach is 18 % mean and 12 % median.
TABLES = [
    ("deepbench_v100_fp16", "v100-sxm2-16gb"),
    ("deepbench_v100_fp32", "v100-sxm2-16gb"),
    ("deepbench_t4_fp16", "t4"),
    ("deepbench_t4_fp32", "t4"),
    ("aiconfigurator_a100_bf16", "a100-sxm4-80gb"),
    ("neusight_linear_fp32", "a100-pcie-40gb"),
    ("neusight_linear_fp32", "t4"),
    ("neusight_linear_fp32", "v100-pcie-32gb"),
    ("llmservingsim_rtx3090_bf16", "rtx-3090"),
]


@pytest.fixture(scope="module")
def measured_tables(measured_folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    names = sorted({name for name, _ in TABLES})
    report = validate([measured_folder / "validate" / f"{name}.csv" for name in names], service=Service())
    assert not report.reasons
    return {(Path(table["file"]).stem, table["gpu"]): table for table in report.as_dict()["tables"]}


@pytest.mark.slow
@pytest.mark.parametrize("key", TABLES, ids="-".join)
def test_measured_runs_are_predicted_closer_than_by_their_bound(
    measured_tables: dict[tuple[str, str], dict[str, Any]], key: tuple[str, str]
) -> None:
    table = measured_tables[key]
    print(f"{key}: MAPE {table['mape']:.1f} %, median {table['median_ape']:.1f} %, bound {table['bound_mape']:.1f} %")
    assert table["skipped"] == 0
    assert table["mape"] < table["bound_mape"]
    assert table["mape"] <= 18.0


@pytest.mark.slow
@pytest.mark.parametrize("key", TABLES, ids=["-".join(key) for key in TABLES])
def test_half_of_the_measured_runs_are_predicted_within_12_percent(
    measured_tables: dict[tuple[str, str], dict[str, Any]], key: tuple[str, str]
) -> None:
    assert measured_tables[key]["median_ape"] <= 12.0


# Single published metrics, some of boards without a spec or of training steps


@pytest.fixture(scope="module")
def published(measured_folder: Path) -> ValidationReport:
    return validate([measured_folder / "published.csv"])


def published_rows(report: ValidationReport) -> list[Scored]:
    return [item for table in report.tables for item in table.scored]


def mape(items: Sequence[Scored]) -> float:
    assert items
    return 100 * sum(abs(item.error_fraction) for item in items) / len(items)


def test_a_table_of_published_figures_is_read_and_what_is_left_out_has_its_reason(published: ValidationReport) -> None:
    overall = published.as_dict()["overall"]
    assert overall["predicted"] + overall["skipped"] == overall["rows"]
    assert published.reasons
    assert all(re.search("unknown GPU|is not predicted", reason) for reason in overall["skip_reasons"])


def tf32(report: ValidationReport) -> list[Scored]:
    return [item for item in published_rows(report) if item.row.dtype is Dtype.TF32]


def test_published_tf32_runs_are_predicted_within_25_percent_where_timing_adds_little(
    published: ValidationReport,
) -> None:
    # the tables' own notes: events take in 30 to 65 us of host dispatch, little of runs above 300 us
    long = [item for item in tf32(published) if item.row.time_us > 300]
    assert {item.row.gpu for item in long} == {"a100-pcie-40gb", "a100-sxm4-80gb", "a40", "rtx-3080", "h100-sxm5-80gb"}
    assert mape(long) <= 25.0


def test_all_published_tf32_runs_are_predicted_within_25_percent(published: ValidationReport) -> None:
    assert mape(tf32(published)) <= 25.0


def pairs(report: ValidationReport) -> list[tuple[Scored, Scored]]:
    """2:4 runs, each with the dense run of its shape."""
    dense = {
        (item.row.gpu, item.row.dtype, item.row.m, item.row.n, item.row.k): item
        for item in published_rows(report)
        if item.row.sparsity == "dense"
    }
    sparse = [item for item in published_rows(report) if item.row.sparsity == "2:4"]
    keys = [(item.row.gpu, item.row.dtype, item.row.m, item.row.n, item.row.k) for item in sparse]
    return [(item, dense[key]) for item, key in zip(sparse, keys, strict=True) if key in dense]


def ratio_error(sparse: Scored, dense: Scored) -> float:
    measured = dense.row.time_us / sparse.row.time_us
    return dense.predicted_us / sparse.predicted_us / measured - 1


def test_published_2_4_runs_are_predicted_within_25_percent(published: ValidationReport) -> None:
    # one is marked as an outlier of an old compiler
    found = [item for item, _ in pairs(published) if "outlier" not in item.row.extra["note"]]
    assert len(found) == 14
    assert mape(found) <= 25.0


def test_2_4_over_dense_is_predicted_within_16_percent_on_ga10x(published: ValidationReport) -> None:
    found = [pair for pair in pairs(published) if pair[0].row.gpu == "rtx-3060"]
    assert len(found) == 12
    assert max(abs(ratio_error(*pair)) for pair in found) <= 0.16


# Its sparse time is one reading of an event (533 ticks of 1.024 us) of cuSPARSELt's example, its dense time a mean of
# the CUTLASS profiler: two programs, two timing methods.
@pytest.mark.xfail(strict=True, reason="1.11 of cuSPARSELt at 4096: about 1.5 comes out")
def test_2_4_over_dense_is_predicted_within_15_percent_on_the_a100(published: ValidationReport) -> None:
    found = [pair for pair in pairs(published) if pair[0].row.gpu == "a100-sxm4-80gb"]
    assert max(abs(ratio_error(*pair)) for pair in found if "outlier" not in pair[0].row.extra["note"]) <= 0.15


def test_int8_runs_are_predicted_within_25_percent_and_half_within_15(measured_folder: Path) -> None:
    table = one_table(measured_folder / "calibrate" / "aiconfigurator_a100_int8.csv")
    assert table["skipped"] == 0
    assert table["mape"] <= 25.0
    assert table["median_ape"] <= 15.0


def test_what_the_timing_method_adds_is_reported_and_a_users_value_takes_its_place(
    command: RunGpusim, write_runs: WriteRuns, tmp_path: Path
) -> None:
    methods = ("event", "profiler")
    table = write_runs([line(shape, 50.0, method=method) for shape in SHAPES[:2] for method in methods])
    host = load_spec("t4").system.host
    of_spec, of_user = host.method_overhead_us["event"], 12.5
    for added_us, options in ((of_spec, ()), (of_user, ("--overhead", f"event={of_user}"))):
        done = command("validate", table, "--format", "json", *options, "-o", "out")
        report = json.loads(done.stdout)
        added = {one["method"]: one for one in report["tables"][0]["method_overheads"]}
        assert added["event"]["median_us"] == pytest.approx(added_us + host.graph_gap_us)
        assert (added["event"]["rows"], added["profiler"]["median_us"]) == (2, 0.0)
        with (tmp_path / "out" / "rows.csv").open(encoding="utf-8") as file:
            rows = [float(row["method_overhead_us"]) for row in csv.DictReader(file)]
        assert sorted(rows) == pytest.approx([0.0, 0.0, added_us + host.graph_gap_us, added_us + host.graph_gap_us])
    assert report["overheads_us"] == {"event": 12.5}
    shown = command("validate", table, "--overhead", "event=12.5").stdout
    assert re.search(r"event +\d+\.\d+ us +\d+\.\d +--overhead", shown)


def test_help_explains_every_method(command: RunGpusim) -> None:
    lines = [shown.split() for shown in command("validate", "--help").stdout.splitlines()]
    for method in METHODS:
        assert any(words[:1] == [method] and len(words) > 4 for words in lines), method
