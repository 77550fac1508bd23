"""Benchmarks: a slower program is reported, a slower machine is not."""

from __future__ import annotations

import doctest
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import accuracy_table
import bench
import calibration
import calibration_table
import claims_page
import comparison
import events_table
import generations
import published_table
import published_tokens
import pytest
import readme
import sections
import shapes
import shared_values
import slowest_tests
import summary
import traces_table
from comparison import Measured, Metric, Results, compared, costs

from gpusim.specs import load_spec
from gpusim.specs.overrides import values_of
from gpusim.studies.validation.report import ValidationReport, validate
from gpusim.studies.validation.step_report import EndToEndReport

LOOP_SECONDS = 0.02


class Machine:
    """A clock, and how many seconds pass for a second's work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slowness = 1.0

    def work(self, seconds: float) -> float:
        self.now += seconds * self.slowness
        return seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(calibration, "process_time", lambda: machine.now)
    monkeypatch.setattr(calibration, "calibration_loop", lambda _processes: machine.work(LOOP_SECONDS))
    return machine


def metric(machine: Machine, seconds: float) -> Metric:
    """The cost of a program that takes so long on a machine at full speed."""
    timing = calibration.timed(lambda _: machine.work(seconds))
    return Metric("a prediction", 1e3 * timing.seconds, "ms", timing.loops)


def slower(now: Metric, before: Metric) -> bool:
    (one,) = compared([now], costs([before]))
    return one.slower


def test_a_program_slower_than_the_tolerance_is_reported(machine: Machine) -> None:
    before = metric(machine, 0.005)
    assert slower(metric(machine, 0.005 * (1.01 + comparison.TOLERANCE)), before)
    assert not slower(metric(machine, 0.005 * (0.99 + comparison.TOLERANCE)), before)


def test_a_machine_half_as_fast_is_not_reported(machine: Machine) -> None:
    before = metric(machine, 0.005)
    machine.slowness = 2.0
    after = metric(machine, 0.005)
    assert after.value == pytest.approx(2 * before.value)
    assert not slower(after, before)


def test_a_machine_that_becomes_slower_while_it_measures_is_not_reported(machine: Machine) -> None:
    before = metric(machine, 0.005)

    def work(repeat: int) -> float:
        machine.slowness = 1.0 + repeat
        return machine.work(0.005)

    timing = calibration.timed(work)
    assert timing.loops == pytest.approx(before.cost, rel=comparison.TOLERANCE)


def test_figures_without_a_cost_or_a_baseline_are_shown_and_not_compared() -> None:
    rows = compared([Metric("rate", 250.0, "shapes/s"), Metric("new", 1.0, "ms", 9.0)], {"rate": 1.0, "gone": 1.0})
    assert [(one.change, one.slower) for one in rows] == [(None, False), (None, False)]
    assert [row[0] for row in comparison.comparison_table("", rows).rows] == ["rate", "new"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """A benchmark of one part, which costs as much as the next number says."""
    monkeypatch.setattr(bench, "BENCH_RESULTS", tmp_path / "results" / "bench.json")
    monkeypatch.setattr(bench, "BASELINE", tmp_path / "baseline.json")

    def main(*options: str, cost: tuple[float, ...], differing: int = 0, sha256: tuple[str, str] = ("a", "a")) -> int:
        cost_of = iter(cost)

        def measure(part: bench.Part, _cache: str) -> Measured:
            if part.script == "speed.py":
                return Measured((Metric("a prediction", 5.0, "ms", next(cost_of)),))
            return Measured((), Results(9, differing, sha256[part.compiled]))

        monkeypatch.setattr(sys, "argv", ["bench.py", *options])
        monkeypatch.setattr(bench.Part, "measure", measure)
        sweeps = [bench.Part("sweep_speed.py", compiled=compiled) for compiled in (False, True)]
        monkeypatch.setattr(bench, "parts", lambda _asked: [bench.Part("speed.py"), *sweeps])
        return bench.main()

    return main


def test_the_benchmark_ends_with_status_1_only_if_it_is_slower_twice(run: Callable[..., int]) -> None:
    assert run("--record", cost=(1.0,)) == 0
    assert run(cost=(1.1,)) == 0
    assert run(cost=(2.0, 1.1)) == 0
    assert run(cost=(2.0, 1.9)) == 1
    assert run("--record", cost=(2.0,)) == 0
    assert run(cost=(2.0,)) == 0


def test_the_benchmark_ends_with_status_1_if_results_differ(run: Callable[..., int]) -> None:
    assert run("--record", cost=(1.0,)) == 0
    assert run(cost=(1.0,), differing=1) == 1
    assert run(cost=(1.0,), sha256=("a", "b")) == 1


def test_random_shapes_are_unique_the_same_every_time_and_of_every_type() -> None:
    drawn = list(shapes.random_shapes(500))
    assert drawn == list(shapes.random_shapes(500))
    assert drawn[:100] == list(shapes.random_shapes(100))
    assert len(set(drawn)) == 500
    assert {(gpu, gemm.dtype) for gpu, gemm in drawn} == {
        (gpu, one) for gpu in shapes.DTYPES for one in shapes.DTYPES[gpu]
    }
    sizes = [size for _, gemm in drawn for size in (gemm.m, gemm.n, gemm.k)]
    assert (min(sizes), max(sizes)) > (shapes.SMALLEST - 1, 0.9 * shapes.LARGEST)
    assert {size % 8 for size in sizes} == set(range(8))


REPORT = {
    "date": "2026-11-22",
    "commit": "commit 123",
    "machine": {"processor": "A", "clock": "", "cores": 2, "load": "0.1", "python": "CPython 3.11.7", "numba": ""},
    "figures": {
        "one GEMM, median: language-model shapes": {"value": 9.0, "unit": "ms", "cost": 1.0},
        "one GEMM, median: a measured table": {"value": 5.0, "unit": "ms", "cost": 1.0},
        "compiled: one GEMM, median: a measured table": {"value": 2.0, "unit": "ms", "cost": 1.0},
    },
}


def test_the_page_of_speed_shows_the_figures_of_the_last_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, page = tmp_path / "results" / "bench.json", tmp_path / "speed.md"
    results.parent.mkdir()
    monkeypatch.setattr(readme, "BENCH_RESULTS", results)
    monkeypatch.setattr(readme, "CALIBRATIONS", tmp_path)
    monkeypatch.setattr(readme, "SPEED_PAGE", page)
    for other in ("README", "ACCURACY_PAGE"):
        monkeypatch.setattr(readme, other, tmp_path / "none.md")
    monkeypatch.setattr(sys, "argv", ["readme.py"])
    page.write_text("before\n<!-- speed:begin -->\nold\n<!-- speed:end -->\nafter\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="make bench"):
        readme.main()
    results.write_text(json.dumps(REPORT), encoding="utf-8")
    readme.main()
    written = page.read_text(encoding="utf-8")
    assert "| one GEMM on an A100 after imports, kernel chosen: median | 5 ms | 2 ms |" in written
    assert "Measured on 2026-11-22 at commit 123: A, 2 cores, CPython 3.11.7, load 0.1." in written
    assert (written.startswith("before\n"), written.endswith("after\n"), "old" in written) == (True, True, False)
    readme.main()
    assert page.read_text(encoding="utf-8") == written


def test_what_fits_leave_out_is_a_table_and_a_summary(tmp_path: Path) -> None:
    errors = {"held_out_mape": 7.25, "held_out_median_ape": 4.0, "held_out_bias": -0.5}
    without = {"kind": "source", "name": "lab", "rows": 30, "mape": 12.5, "median_ape": 9.0, "bias": 3.0}
    of_all = {**without, "name": "all", "mape": 11.5}
    untested = {"kind": "board", "name": "t4", "rows": 60, "mape": None, "median_ape": None, "bias": None}
    own = {"key_path": "sources.timing_us.lab", "own_us": 29.5, "neutral_us": 8.0}
    timing = {"source": "lab", "rows": 30, "values": [own], "share": 0.012, "mape_without": 14.0, "mape": 9.5}
    plain = {"source": "tracer", "rows": 30, "values": [], "share": 0.0, "mape_without": 7.0, "mape": 7.0}
    known = {
        "key_path": "l2.write_cost",
        "before": 2.0,
        "after": 2.4,
        "kind": "measured",
        "stated": "",
        "at_limit": True,
    }
    report = {
        "arch": "turing",
        "errors": [{"table": "all", "rows": 60, **errors}],
        "without": [without, of_all, untested],
        "own_timing": [timing, plain],
        "parameters": [{**known, "at_limit": True}, {**known, "key_path": "l2.usable_fraction", "at_limit": False}],
    }
    path = tmp_path / "turing.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    text = calibration_table.left_out_table([path])
    assert "| turing | a third of the rows, in turn | 60 | 7.2 % | 4.0 % | -0.5 % |" in text
    assert "| turing | the source lab | 30 | 12.5 % | 9.0 % | +3.0 % |" in text
    assert "| turing | the board t4 | 60 | not testable: nothing else was measured |  |  |" in text
    short = calibration_table.left_out_summary([path])
    assert "| turing | 7.2 % | 11.5 % |  |" in short
    assert "29.5 us in place of 8 changes predicted times by 1.2 % (median)" in text
    assert "the mean error from 14.0 to 9.5 %" in text
    assert "- No value of their own: tracer on turing." in text
    assert text.rstrip().endswith("`l2.write_cost` 2.4 on turing (runs; the spec had 2 (measured)).")
    assert "same split" not in short


def test_sources_that_are_boards_are_named_as_one_split(tmp_path: Path) -> None:
    found = {"rows": 30, "mape": 12.5}
    groups = [{"kind": kind, "name": name, **found} for kind in ("source", "board") for name in ("one", "two", "all")]
    report = {"arch": "volta", "errors": [{"table": "all", "held_out_mape": 7.0}], "without": groups}
    path = tmp_path / "volta.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    assert "On volta each source timed one board" in calibration_table.left_out_summary([path])


def test_what_several_fits_find_of_a_value_has_a_mean_and_a_spread(tmp_path: Path) -> None:
    known = {"key_path": "l2.write_cost", "reason": ""}
    files = []
    for arch, after in (("volta", 1.6), ("turing", 2.5)):
        alone = {"key_path": f"instructions.{arch}.sustained_fraction", "after": 0.9, "reason": ""}
        untold = {"key_path": "dram.activation_bytes", "after": 40.0, "reason": "not identifiable from this data"}
        report = {"arch": arch, "parameters": [{**known, "after": after}, alone, untold]}
        files.append(tmp_path / f"{arch}.json")
        files[-1].write_text(json.dumps(report), encoding="utf-8")
    rows = shared_values.shared_values(files).splitlines()[2:]
    assert rows == ["| `l2.write_cost` | volta 1.6, turing 2.5 | 2 | 0.32 |"]


def test_every_figure_of_a_claim_refers_to_its_source() -> None:
    claim = {
        "claim": "faster",
        "published": "1.5",
        "measured": "2",
        "predicted": 1.75,
        "unit": "",
        "tolerance_pct": 20.0,
    }
    claim |= {"source": "a page", "measured_source": "a table", "note": "", "meets": "both"}
    other = {**claim, "claim": "hotter", "published": "30", "unit": "%", "measured": "", "measured_source": ""}
    table, notes, sources = claims_page.paragraphs([claim, {**other, "note": "in the sun"}])
    assert table.splitlines()[2:] == [
        "| faster | 1.5 [1] | 2 [2] | 1.75 | 20 % | both |",
        "| hotter | 30 % [1] |  | 1.75 % | 20 % | both |",
    ]
    assert notes == "- *hotter*: in the sun."
    assert sources.endswith("1. a page\n2. a table")


def test_recorded_kernels_are_lines_by_operator_or_by_gpu(tmp_path: Path) -> None:
    products, others = tmp_path / "products.csv", tmp_path / "others.csv"
    columns = "gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2"
    products.write_text(f"{columns}\nt4,linear,1,512,512,512,fp16,dense,50,profiler,cold\n", encoding="utf-8")
    columns = "board,op,shapes,dtypes,numel_max,kernel,grid,block,time_us"
    kernel = "vectorized_elementwise_kernel<4>,2048x1x1,128x1x1"
    lines = [f"t4,add,1048576,f32,1048576,{kernel},40", "t4,index,7,f32,7,DeviceScanKernel,1x1x1,32x1x1,4"]
    others.write_text("\n".join([columns, *lines, ""]), encoding="utf-8")
    *_, product, kernels = traces_table.traces_table([products, others]).splitlines()
    assert product.startswith("| linear | t4 | fp16 | 1 |")
    assert product.endswith(" % |")
    assert kernels.startswith("| other kernels | t4 | all | 1 of 2 |")


def test_measured_tables_are_lines_by_gpu_then_by_source(tmp_path: Path) -> None:
    columns = "gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2"
    for name, op in (("a", "gemm"), ("b", "linear")):
        rows = [f"t4,{op},1,{m},512,512,fp16,dense,50,stream,warm" for m in (256, 512)]
        (tmp_path / f"{name}.csv").write_text("\n".join([columns, *rows, ""]), encoding="utf-8")
    report = validate([tmp_path / "a.csv", tmp_path / "b.csv"])
    summary = accuracy_table.accuracy_summary(report).splitlines()[2:]
    assert [line[: line.index(" %")].rsplit("|", 1)[0] for line in summary] == ["| GEMMs | t4 | fp16 | 4 "]
    whole = accuracy_table.accuracy_tables(report)
    assert ("| a (gemm) | t4 | fp16 | 2 |" in whole, "| b (linear) | t4 | fp16 | 2 |" in whole) == (True, True)


@pytest.fixture
def three_kinds(tmp_path: Path) -> ValidationReport:
    """Two GEMMs, a convolution and two softmaxes, which took as long as an A100 is predicted to take, or nearly."""
    images = "n_img,in_channels,height,width,out_channels,filter_h,filter_w,pad_h,pad_w,stride_h,stride_w"
    lines = [
        f"gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2,layout,{images}",
        *(f"a100-sxm4-80gb,gemm,1,{m},4096,4096,fp16,dense,{us},profiler,warm,tn{',' * 11}" for m, us in GEMM_US),
        "a100-sxm4-80gb,conv_fwd,32,25088,256,2304,fp16,dense,150,profiler,warm,nhwc,32,256,28,28,256,3,3,1,1,1,1",
        *(f"a100-sxm4-80gb,softmax,1,{m},1024,,fp32,dense,{us},profiler,warm,{',' * 11}" for m, us in SOFTMAX_US),
    ]
    (tmp_path / "runs.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return validate([tmp_path / "runs.csv"])


GEMM_US = ((16, 27.0), (4096, 600.0))
SOFTMAX_US = ((8192, 45.0), (65536, 330.0))


def test_closed_forms_are_near_the_simulation_and_rooflines_are_below(three_kinds: ValidationReport) -> None:
    simulated = [item.predicted_us for item in three_kinds.scored]
    closed = list(events_table.closed_form_readings_us(three_kinds.scored))
    assert closed == pytest.approx(simulated, rel=0.15)
    assert all(item.bound_us < us for item, us in zip(three_kinds.scored, closed, strict=True))
    lines = events_table.events_table(three_kinds).splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| GEMMs", "2"],
        ["| convolutions", "1"],
        ["| elementwise, softmax, layer norm", "2"],
    ]


def test_the_readme_has_a_line_for_each_kind_of_prediction(three_kinds: ValidationReport, tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for path, rows, mape in zip(files, (100, 300), (4.0, 8.0), strict=True):
        groups = [{"kind": kind, "name": "all", "rows": rows, "mape": mape} for kind in ("source", "board")]
        path.write_text(json.dumps({"without": groups}), encoding="utf-8")
    lines = summary.summary(three_kinds, [EndToEndReport((), (), {})], files).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines[:3]] == [
        "| GEMMs, 1 GPU",
        "| convolutions, 1 GPU",
        "| memory-bound operators, 1 GPU",
    ]
    assert lines[3] == "| GEMMs on a GPU that the fit left out | 400 | 7.0 % |  |  |"


def test_published_figures_are_a_table_and_a_sentence(tmp_path: Path) -> None:
    columns = "gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2"
    lines = [
        f"{gpu},gemm,1,1024,1024,1024,{dtype},{sparsity},50,stream,warm"
        for gpu, dtype, sparsity in (
            ("t4", "fp16", "dense"),
            ("a100-sxm4-80gb", "tf32", "dense"),
            ("a100-sxm4-80gb", "fp16", "2:4"),
            ("voodoo", "fp16", "dense"),
        )
    ]
    (tmp_path / "figures.csv").write_text("\n".join([columns, *lines, ""]), encoding="utf-8")
    report = published_table.validated_figures([tmp_path / "figures.csv"])
    sentence = published_table.published_summary(report)
    assert sentence.startswith("Mean and median error: 3 of 4 figures ")
    assert ("; 1 in TF32 " in sentence, "; 1 with 2:4 sparsity " in sentence) == (True, True)
    rows = published_table.published_table(report).splitlines()[2:5]
    assert [row.split(" | ")[:4] for row in rows] == [
        ["| a100-sxm4-80gb", "fp16 2:4", "gemm", "1"],
        ["| a100-sxm4-80gb", "tf32", "gemm", "1"],
        ["| t4", "fp16", "gemm", "1"],
    ]


def test_a_page_without_the_markers_of_a_section_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"page\.md needs a line <!-- speed:begin -->"):
        sections.replaced(page, {"speed": ""})


@pytest.mark.parametrize("module", [comparison, sections, shapes, slowest_tests])
def test_examples_of_the_benchmarks_hold(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_a_generation_before_its_fit_has_no_value_of_its_own_rows(tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    shutil.copytree(generations.SPECS, specs)
    (specs / "hopper_fitted.yaml").write_text("extends: hopper\n")
    found = generations.values_of_the_generation_before("hopper", specs)["dram"]
    ampere = values_of(load_spec("A100-SXM4-80GB"))
    # Read off rows of an H200 in hopper.yaml; the board's own bandwidth stays
    assert found["activation_bytes"]["value"] == ampere["dram.activation_bytes"]
    assert "peak_bandwidth_gb_per_s" not in found


def test_generations_count_rows_of_their_tables(tmp_path: Path) -> None:
    folder = tmp_path / calibration_table.GENERATIONS
    folder.mkdir()
    tables = [{"rows": 30, "mape": 10.0}, {"rows": 10, "mape": 30.0}]
    (folder / "ada.json").write_text(json.dumps({"tables": tables}))
    assert calibration_table.of_generation(tmp_path / "ada.json") == (40, 15.0)
    assert calibration_table.of_generation(tmp_path / "volta.json") is None


PAGES_OF_ENGINES = """
## Peak Throughput
### A100 GPUs (FP16)<sup>*</sup>

| Model     | Batch Size<sup>(1)</sup> | TP (1) | Input Length | Output Length | Throughput (out tok/s/GPU) |
| :-------- | :----------------------- | :----- | :----------- | :------------ | -------------------------: |
| GPT-J 6B  | 512                      | 1      | 128          | 128           |                      6,000 |
| LLaMA 70B | 1280                     | 4      | 128          | 2048          |                      1,670 |

### H100 GPUs (FP8)

| Model    | Batch Size | TP (1) | Input Length | 1st Token Latency (ms) |
| -------- | ---------- | ------ | ------------ | ---------------------- |
| LLaMA 7B | 1          | 1      | 2048         | 36                     |

# Benchmark on A100 (FP16)
### llama2-13b
| batch | tp | prompt_tokens | output_tokens | throughput(out tok/s) | mem(GB) |
| ----- | -- | ------------- | ------------- | --------------------- | ------- |
| 16    | 2  | 1             | 128           | 869.5                 | 74.87   |
"""


def test_figures_of_engines_are_read_with_their_conditions() -> None:
    text = published_tokens.Text
    assert list(published_tokens.figures_of(PAGES_OF_ENGINES)) == [
        (text("TensorRT-LLM", "70b", "a100-sxm4-80gb", 4, "fp16", 128, 2048), 1280, "of_gpu", 1670.0),
        (text("TensorRT-LLM", "7b", "h100-sxm", 1, "fp8", 2048, 1), 1, "first_ms", 36.0),
        (text("lmdeploy", "13b", "a100-sxm4-80gb", 2, "fp16", 1, 128), 16, "of_all", 869.5),
    ]


def test_errors_of_published_figures_are_those_of_times() -> None:
    slow = {"step_ms": 44.0, "tokens_per_s": 800.0, "tokens_per_s_of_gpu": 400.0}
    text = published_tokens.Text("lmdeploy", "7b", "a100-sxm4-80gb", 2, "fp16", 128, 128)
    figures = [
        published_tokens.Figure(text, 1, *one) for one in (("first_ms", 40.0), ("of_all", 880.0), ("of_gpu", 440.0))
    ]
    assert [published_tokens.error(one, slow) for one in figures] == pytest.approx([0.1, 0.1, 0.1])


def test_the_slowest_tests_are_listed_with_what_they_hold(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = [("tests.a.test_a", "test_one_is_two[1]", 1.5), ("tests.a.test_a", "test_one_is_two[2]", 2.5)]
    cases += [("gpusim.units", "gpusim.units.ceil_div", 1.0)]
    rows = (f'<testcase classname="{module}" name="{name}" time="{seconds}"/>' for module, name, seconds in cases)
    report.write_text(f"<testsuites><testsuite>{''.join(rows)}</testsuite></testsuites>", encoding="utf-8")
    assert slowest_tests.slowest_table(report).splitlines()[2:] == [
        "| 4.0 s | 2 | `tests/a/test_a.py` | one is two |",
        "| 1.0 s | 1 | `gpusim/units.py` | examples of `gpusim.units.ceil_div` |",
        "",
        "3 cases in 0.1 minutes, added up over processes; these take 100 %.",
    ]
