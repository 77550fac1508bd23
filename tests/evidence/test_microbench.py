"""Microbenchmarks as programs: latencies of levels, bandwidth that saturates, units, and points that are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from text_of_figures import unreadable

from gpusim.cli import run_cli
from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.published_benchmarks import read_published
from gpusim.evidence.sources import Overheads
from gpusim.figures.microbench_plots import curves_figure
from gpusim.specs import load_spec
from gpusim.studies.microbench import Reading, UnsupportedBenchmarkError, curves, reading_of
from gpusim.studies.microbench.benchmarks import BENCHMARKS, SUITES
from gpusim.studies.microbench.suite import simulate_defaults, simulate_published, summary
from gpusim.system import System
from gpusim.units import MIB

BOARDS = ("v100-pcie-16gb", "t4", "a100-sxm4-80gb", "a40", "h200")


@pytest.fixture(scope="module", params=BOARDS)
def system(request: pytest.FixtureRequest) -> System:
    return load_spec(str(request.param)).system


def hop_cycles(system: System, footprint_kb: float) -> float:
    return reading_of(system, "mem_latency_pchase_random", {"footprint_kb": str(footprint_kb)}).value


def test_a_chase_in_l1_takes_the_latency_of_l1(system: System) -> None:
    assert hop_cycles(system, 16) == pytest.approx(system.gpu.load_store.l1_latency_cycles, abs=2)


def test_a_chase_in_l2_takes_a_latency_of_l2(system: System) -> None:
    l2 = system.gpu.l2
    within = hop_cycles(system, 2048)
    assert l2.latency_cycles - 1 <= within <= max(l2.latency_cycles, l2.far_latency_cycles) + 3


def test_a_chase_far_beyond_l2_takes_the_latency_of_dram(system: System) -> None:
    gpu = system.gpu
    expected = max(gpu.l2.latency_cycles, gpu.dram.latency_ns * gpu.clock.max_mhz / 1e3)
    assert hop_cycles(system, 1e6) == pytest.approx(expected, rel=0.02)


def test_a_chase_takes_longer_the_larger_its_footprint(system: System) -> None:
    readings = [hop_cycles(system, 2.0**power) for power in range(2, 22)]
    assert readings == sorted(readings)


def test_a_stream_saturates_below_the_peak_of_dram(system: System) -> None:
    readings = [
        reading_of(system, "dram_stream_bw", {"kernel": "triad", "cta": str(threads), "ctas_per_sm": "2"}).value
        for threads in (8, 32, 512)
    ]
    assert readings == sorted(readings)
    assert readings[0] < 0.7 * readings[-1]
    assert 0.7 < readings[-1] / system.gpu.dram.peak_bandwidth_gb_per_s < 1.0


def test_reads_slow_down_level_by_level(system: System) -> None:
    gpu = system.gpu
    sizes_kb = (16, gpu.l2.capacity_mib / 4 * 1024)
    l1, l2 = (reading_of(system, "cache_read_bw_private", {"footprint_kb": str(size)}).value for size in sizes_kb)
    dram = reading_of(system, "l2_read_bw", {"footprint_kb": str(64 * gpu.l2.capacity_bytes / MIB * 1024)}).value
    assert l1 > 1.5 * l2 > 1.5 * dram


def test_what_no_program_simulates_is_refused_with_its_reason() -> None:
    system = load_spec("t4").system
    for benchmark, parameters, reason in (
        ("tea_brewing", {}, "tea_brewing"),
        ("mem_latency_pchase_random", {}, "footprint_kb: missing"),
        ("mem_latency_pchase_random", {"footprint_kb": "many"}, "footprint_kb: expected a number, got 'many'"),
        ("dram_stream_bw", {"kernel": "knead"}, "kernel"),
        ("dram_stream_bw", {"cta": "0.5"}, "cta: expected a whole number"),
        ("dram_stream_bw", {"ecc": "maybe"}, "ecc: expected on or off, got 'maybe'"),
        ("dram_stream_bw", {"cta": "9000"}, "threads a CTA"),
        ("l2_read_bw", {"footprint_kb": "0"}, "footprint_kb: expected a number above 0"),
        ("small_kernel_chain_bw", {"elements_f64": "64", "cta": "16xmany"}, "cta: expected a number, got 'many'"),
        ("small_kernel_chain_bw", {"elements_f64": "64", "mode": "pt"}, "a barrier of the whole grid"),
        ("babelstream_bw_clock_powercap", {"clock_mhz_set": "1", "power_limit_w": "100"}, "no GPU has these"),
        ("roofline_bw", {"fma_iters": "8", "flop_per_byte": "7"}, "fits neither"),
        ("copy_bw_1gb", {"vec": "float0"}, "vec: 'float0' is none of float1"),
        ("alu_reciprocal_throughput", {"op": "DFMA", "warps_per_sm": "48"}, "no 48 warps"),
        ("instr_latency", {"op": "TEA"}, "op: 'TEA' compiles"),
        ("torch_gemm_tflops", {"type": "fp4"}, "type: 'fp4' is none of"),
    ):
        with pytest.raises(UnsupportedBenchmarkError, match=reason):
            reading_of(system, benchmark, parameters)


def test_products_by_a_library_read_what_the_calls_of_their_program_take() -> None:
    h100 = load_spec("h100-sxm").system
    host = h100.host
    small, large = {"m": "512"}, {"m": "4096"}
    sgemm = {"kernel": "cublas"}  # its handle is created and destroyed with each call
    for size in (small, large):
        without = h100.with_values([("host.library_handle_us", 0.0)])
        handle_ms = (
            reading_of(h100, "gemm_time", size | sgemm).value - reading_of(without, "gemm_time", size | sgemm).value
        )
        assert handle_ms == pytest.approx(host.library_handle_us / 1e3)
    read_ms = reading_of(h100, "gemm_time", small | {"kernel": "cublas_tc"}).value
    assert read_ms == pytest.approx(host.library_interval_us / 1e3, rel=0.1)  # the calls, and the last kernel
    slow = h100.with_values([("host.library_interval_us", 16.0)])
    longer_ms = reading_of(slow, "gemm_time", large).value - reading_of(h100, "gemm_time", large).value
    assert longer_ms == pytest.approx((16.0 - host.library_interval_us) / 1e3 / 10)  # the first of ten calls
    rate = reading_of(h100, "gemm_throughput", large).value
    assert rate == pytest.approx(2 * 4096**3 / reading_of(h100, "gemm_time", large).value / 1e9)


def test_a_librarys_kernels_on_h100_follow_each_other_by_streams_as_published() -> None:
    # waynehacking8/blackwell-tensorcore-kernels@c289bde: ten calls, and kernels in a profile, 4096 in FP16 and TF32
    h100 = load_spec("h100-sxm").system
    host = h100.host
    gap_us = host.stream_gap_us + host.library_gap_us
    assert gap_us == pytest.approx(5.2, abs=0.1)
    for kernel_us, calls_us in ((182.25, 187.61), (182.25 * 1.008, 189.21), (336.09 * 1.008, 344.15)):
        assert host.library_interval_us / 10 + kernel_us + 0.9 * gap_us == pytest.approx(calls_us, abs=0.3)
    without = h100.with_values([("host.library_gap_us", 0.0)])
    tensor_cores = {"m": "4096", "kernel": "cublas_tc"}
    longer_ms = reading_of(h100, "gemm_time", tensor_cores).value - reading_of(without, "gemm_time", tensor_cores).value
    assert longer_ms == pytest.approx(0.9 * host.library_gap_us / 1e3)
    for benchmark, given in (
        ("small_kernel_chain_bw", {"elements_f64": "131072", "mode": "stream"}),
        ("back_to_back_kernel_time", {"ctas": "16"}),
    ):
        assert reading_of(h100, benchmark, given) == reading_of(without, benchmark, given)


def test_products_by_a_framework_read_what_its_wall_clock_does() -> None:
    v100 = load_spec("v100-sxm2-16gb").system
    host = v100.host

    def call_us(system: System) -> float:
        return 2 * 4096**3 / reading_of(system, "torch_gemm_tflops", {"n": "4096", "type": "fp16"}).value / 1e6

    wider = v100.with_values([("host.stream_gap_us", host.stream_gap_us + 30.0)])
    assert call_us(wider) - call_us(v100) == pytest.approx(29.0)  # between thirty
    longer = v100.with_values([("host.method_overhead_us.host", host.method_overhead_us["host"] + 30.0)])
    assert call_us(longer) - call_us(v100) == pytest.approx(1.0)
    slow = v100.with_values([("host.library_interval_us", 10_000.0)])
    assert call_us(slow) == pytest.approx(10_000.0, rel=0.1)


def test_a_chain_of_indices_reads_in_ns() -> None:
    reading = reading_of(
        load_spec("rtx-3090").system, "mem_latency_pchase_random", {"footprint_b": "4096", "hint": "ca"}
    )
    assert reading.unit == "ns"
    assert 15 < reading.value < 40


def test_every_benchmark_belongs_to_one_suite() -> None:
    assert len(BENCHMARKS) == sum(len(suite) for suite in SUITES.values())


@pytest.mark.parametrize("board", ["v100-sxm2-16gb", "t4", "a100-pcie-80gb", "rtx-3090", "h100-sxm"])
@pytest.mark.parametrize("suite", SUITES)
def test_each_suite_has_a_reading_on_each_architecture(suite: str, board: str) -> None:
    points = simulate_defaults(suite, board)
    assert {one.benchmark for one in points} == set(SUITES[suite])
    for one in points:
        assert (one.value or 0.0) > 0, (one.benchmark, one.reason)
        assert one.unit
        assert one.published is None


def test_dependent_instructions_take_their_latency_and_many_warps_the_peak(system: System) -> None:
    fma = system.gpu.instructions["ffma"]
    assert reading_of(system, "instr_latency", {"op": "FMA"}).value == pytest.approx(fma.latency_cycles, rel=0.02)
    peak = 32 * system.gpu.sm.sub_partitions * fma.sustained_fraction / fma.issue_interval_cycles
    assert reading_of(system, "instr_throughput", {"op": "FMA", "ilp": "4"}).value == pytest.approx(peak, rel=0.02)


def test_arithmetic_intensity_leads_from_the_bandwidth_to_the_peak(system: System) -> None:
    gpu = system.gpu
    low, high = (reading_of(system, "roofline_bw", {"fma_iters": count}).value for count in ("0", "512"))
    assert 0.75 < low / gpu.dram.peak_bandwidth_gb_per_s <= 1.0
    assert high < 0.5 * low
    fma = gpu.instructions["ffma"]
    rate = reading_of(system, "roofline_fp32_gflops", {"fma_iters": "512"}).value
    clock = reading_of(system, "roofline_sm_clock", {"fma_iters": "512"}).value
    assert 0.85 < rate / (1e3 * gpu.peak_tflops(fma, clock) * fma.sustained_fraction) <= 1.0


def test_a_chain_of_kernels_in_a_graph_is_no_slower_than_in_a_stream(system: System) -> None:
    stream, graph = (
        reading_of(system, "small_kernel_chain_bw", {"elements_f64": "4096", "cta": "256", "mode": mode}).value
        for mode in ("stream", "graph")
    )
    assert graph >= stream


TABLE = """gpu,benchmark,parameters,value,unit,source,note
t4,mem_latency_pchase_random,footprint_kb=16,33,cycles,somebody,
Tesla T4,dram_stream_bw,kernel=triad;cta=512;ctas_per_sm=2,240,GB/s,somebody,triad counts 4 streams
t4,roofline_temp,fma_iters=8,60,C,somebody,
t4,babelstream_copy,,240000,MB/s,somebody,
voodoo-2,babelstream_copy,,1,GB/s,somebody,
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "published.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_published_points_are_played_and_the_others_named_with_a_reason(table: Path) -> None:
    points = simulate_published("all", table)
    assert [one.value is not None for one in points] == [True, True, False, False, False]
    assert [one.published for one in points] == [33, 240, 60, 240000, 1]
    assert "temperature" in points[2].reason
    assert "MB/s" in points[3].reason
    assert "no spec" in points[4].reason
    assert points[1].parameters["streams"] == "4"


def test_only_the_boards_and_benchmarks_asked_for_are_simulated(table: Path) -> None:
    assert len(simulate_published("latency", table)) == 1
    assert len(simulate_published("all", table, ["t4"])) == 4
    with pytest.raises(MeasuredError, match=r"published.csv: no point of suite 'all' of a40"):
        simulate_published("all", table, ["a40"])


def test_errors_are_those_of_the_points_simulated(table: Path) -> None:
    points = simulate_published("all", table, ["t4"])
    whole = next(one for one in summary(points) if one["benchmark"] == "all")
    errors = [100 * abs(one.error) for one in points if one.error is not None]
    assert (whole["points"], whole["simulated"]) == (4, 2)
    assert whole["median_ape"] == pytest.approx(sum(errors) / 2, abs=1e-5)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("t4,babelstream_copy,,many,GB/s,me,", "value: expected a number, got 'many'"),
        ("t4,babelstream_copy,footprint,1,GB/s,me,", "parameters: expected KEY=VALUE, got 'footprint'"),
        ("t4,babelstream_copy,a=1;a=2,1,GB/s,me,", "parameters: a is given twice"),
        ("t4,,,1,GB/s,me,", "benchmark: empty"),
        ("t4,babelstream_copy,,1", "columns, the header names 7"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "published.csv"
    path.write_text(TABLE + line + "\n", encoding="utf-8")
    with pytest.raises(MeasuredError, match=r"published\.csv:7: ") as caught:
        read_published(path)
    assert complaint in str(caught.value)


def test_the_command_prints_what_the_contract_says(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    assert run_cli(["microbench", "latency", "--arch", "t4", "--measured", str(table), "--format", "json"]) == 0
    (point,) = json.loads(capsys.readouterr().out)
    assert set(point) >= {"benchmark", "parameters", "value", "unit", "published", "source"}
    assert point["published"] == 33
    assert run_cli(["microbench", "instructions", "--arch", "t4", "--format", "json"]) == 0
    assert {one["published"] for one in json.loads(capsys.readouterr().out)} == {None}


def test_the_command_ends_with_1_where_a_point_is_not_simulated(
    capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    assert run_cli(["microbench", "all", "--measured", str(table)]) == 1
    printed = capsys.readouterr().out
    assert "Predicted against published readings" in printed
    assert "temperature is not simulated" in printed


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tea", "--arch", "t4"], "suite: 'tea' is none of latency"),
        (["latency"], "--arch: name one GPU"),
        (["latency", "--arch", "t4", "--plot", "curves.gif"], "ends in .png, .svg, .pdf"),
        (["latency", "--arch", "voodoo-2"], "unknown GPU"),
        (["latency", "--measured", "nowhere.csv"], "nowhere.csv: cannot be read"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str) -> None:
    assert run_cli(["microbench", *arguments]) == 2
    printed = capsys.readouterr().err
    assert complaint in printed
    assert printed.count("\n") == 1


def test_every_curve_has_a_title_an_axis_and_a_quantity_in_words() -> None:
    with_axis = {name for name, benchmark in BENCHMARKS.items() if benchmark.x}
    assert set(curves.TITLES) == with_axis
    assert {BENCHMARKS[name].x for name in with_axis} == set(curves.AXES)
    assert {series for name in with_axis for series in BENCHMARKS[name].series} == set(curves.SERIES)


def test_curves_of_one_quantity_have_one_scale_with_published_points_and_the_limits_of_the_spec() -> None:
    points = [
        replace(one, published=1.1 * one.value if one.value else None)
        for one in simulate_defaults("bandwidth", "t4")
        if one.benchmark in ("dram_stream_bw", "cache_read_bw_private", "l2_read_bw")
    ]
    figure = curves_figure(curves.panels_of(points), "t")
    assert unreadable(figure) == []
    stream, private, shared = figure.axes
    assert "_" not in "".join(text.get_text() for text in figure.findobj(Text) if isinstance(text, Text))
    assert {axes.get_ylabel() for axes in figure.axes} == {"bandwidth [GB/s]"}
    assert len({(axes.get_yscale(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert private.get_xlim() == shared.get_xlim()
    assert [label.get_text() for label in private.get_xticklabels()][:2] == ["8 KiB", "64 KiB"]
    peak = load_spec("t4").gpu.dram.peak_bandwidth_gb_per_s
    assert np.asarray(stream.get_lines()[0].get_ydata()).tolist() == [peak, peak]
    hollow = [line for line in stream.get_lines() if line.get_markerfacecolor() == "none"]
    assert [np.size(np.asarray(line.get_xdata())) for line in hollow] == [9]
    legend = [text.get_text() for of_figure in figure.legends for text in of_figure.get_texts()]
    assert legend == ["predicted", "measured, published by others", f"DRAM peak, {peak:,.0f} GB/s", *legend[3:]]


def test_curves_are_drawn_the_same_each_time(tmp_path: Path, table: Path) -> None:
    paths = [tmp_path / name for name in ("one.svg", "two.svg")]
    for path in paths:
        assert run_cli(["microbench", "latency", "--arch", "t4", "--plot", str(path)]) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert run_cli(["microbench", "latency", "--measured", str(table), "--plot", str(paths[0])]) == 2  # one point


def test_a_product_between_two_readings_of_the_hosts_clock_is_rated_by_its_bytes() -> None:
    board = load_spec("gh200").system
    point = {"type": "double", "memory": "hbm", "bytes": str(8 * 2047**2)}
    rate = reading_of(board, "cublas_gemm", point).value
    assert rate == pytest.approx(57_874, rel=0.1)  # ntua-el20062/grace-hopper-benchmark@505e82c, order 2040
    assert reading_of(board, "cublas_gemm", point | {"bytes": str(8 * 2040**2)}).value == rate  # a multiple of eight
    work = 2040**2 * (2 * 2040 + 3)
    added_us = board.host.method_overhead_us["host"]
    slow = Overheads(timing_us={"grace_hopper_benchmark": added_us + 100.0})
    later = reading_of(board, "cublas_gemm", point, slow).value
    assert work / later - work / rate == pytest.approx(100e3)  # [FLOP / GFLOP/s]
    for wrong, message in (
        ({"memory": "ddr"}, "memory: only"),
        ({"bytes": "400"}, "bytes: too few"),
        ({"type": "fp4"}, "type: "),
    ):
        with pytest.raises(UnsupportedBenchmarkError, match=message):
            reading_of(board, "cublas_gemm", point | wrong)


@pytest.mark.parametrize(
    ("op", "ctas", "published", "within"),
    # ntua-el20062/grace-hopper-benchmark@505e82c: 16 KiB of a CTA are on their way from DRAM; writes pass its port
    [("read", 1, 41.3, 0.05), ("read", 16, 658, 0.05), ("read", 264, 3790, 0.05), ("write", 2, 126, 0.05)],
)
def test_ctas_that_go_through_an_array_share_its_bandwidth(op: str, ctas: int, published: float, within: float) -> None:
    point = {"memory": "hbm", "op": op, "ctas": str(ctas), "threads": "1024"}
    assert reading_of(load_spec("gh200").system, "dram_bw_vs_ctas", point).value == pytest.approx(published, rel=within)


def test_memory_of_the_host_and_loops_that_are_not_known_are_refused() -> None:
    for wrong, message in (({"memory": "ddr"}, "memory: only"), ({"op": "copy"}, "op: 'copy': only")):
        with pytest.raises(UnsupportedBenchmarkError, match=message):
            reading_of(load_spec("gh200").system, "dram_bw_vs_ctas", wrong)


def test_a_board_streams_faster_where_ecc_is_off() -> None:
    board = load_spec("a40").system
    stream = {"kernel": "init", "cta": "384", "threads": "64512", "ctas_per_sm": "2", "occ": "50.0"}
    on, off = (reading_of(board, "dram_stream_bw", stream | {"ecc": ecc}).value for ecc in ("on", "off"))
    assert off == pytest.approx(680, rel=0.04)  # RRZE-HPC/gpu-benches@1038c5d gpu-stream
    assert on / off == pytest.approx(0.85, abs=0.02)  # support.chaos.com: ECC costs an A40 15 %
    assert reading_of(board, "dram_stream_bw", stream).value == on


HELD_TO = {
    "A100-PCIe-80GB": (7, 20),
    "A100-SXM4-40GB": (7, 20),
    "A100-SXM4-80GB": (7, 20),
    "H100-PCIe-80GB": (7, 20),
    "H200-SXM-141GB": (7, 20),
    "RTX-2070": (7, 20),
    "RTX-3090": (7, 20),
    "V100-SXM2-16GB": (7, 20),
    "A40": (7, 40),
    "GH200-480GB": (8, 45),  # calibration/deviations.md: writes of many CTAs, multiply-adds of gpu-roofline
    "V100-PCIe-16GB": (7, 40),
}
"""Median and 90th percentile of the errors that boards with many published readings stay within [%]."""


@pytest.mark.slow
def test_published_curves_are_met(measured_folder: Path) -> None:
    table = measured_folder.parent / "facts" / "microbenchmarks.csv"
    if not table.exists():
        pytest.skip("no table of published microbenchmarks beside the measured tables")
    whole = {one["gpu"]: one for one in summary(simulate_published("all", table)) if one["benchmark"] == "all"}
    reached = {gpu: (whole[gpu]["median_ape"], whole[gpu]["p90_ape"]) for gpu in HELD_TO}
    assert {gpu: of for gpu, of in reached.items() if of[0] > HELD_TO[gpu][0] or of[1] > HELD_TO[gpu][1]} == {}


def test_a_reading_is_a_value_with_a_unit() -> None:
    reading = reading_of(load_spec("t4").system, "babelstream_copy", {})
    assert isinstance(reading, Reading)
    assert reading.unit == "GB/s"


def test_empty_kernels_of_turing_do_not_wait_for_the_code_of_a_library() -> None:
    # TapiocaFox/GPU-Project@8c5fe621e2ec, RTX 2080 Ti: 2.23 to 2.36 us from one to the next with up to 256 CTAs
    found = reading_of(load_spec("rtx-2080-ti").system, "back_to_back_kernel_time", {"ctas": "16", "cta": "256"})
    assert found.value == pytest.approx(2.25, rel=0.1)
