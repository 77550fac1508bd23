"""Measuring: the content of suites, their runs on a device, and that a killed run loses at most one item."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest
from conftest import TESTS, RunGpusim, environment, refused
from simulated_gpu import SimulatedGpu

from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.measured import read_measured
from gpusim.files.yamlfile import SpecError
from gpusim.measure import telemetry
from gpusim.measure.device import DeviceLostError, Identity, SensorReading
from gpusim.measure.instructions import INSTRUCTIONS, benchmark
from gpusim.measure.profiler_trace import kernels_of_trace
from gpusim.measure.row_files import RowFile
from gpusim.measure.runner import SuiteSummary, _sensor_columns, estimate_s, plan_of, run_suite
from gpusim.measure.session import measure_suite
from gpusim.measure.suite import Item, Suite, load_suite, shipped_suites
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm

SMALL = """\
title: Small
gemms:
  - {op: linear, dtypes: [bf16, fp8], m: [1, 16], layers: [64, 128], l2: [cold, warm]}
  - {op: gemm, order: column, dtypes: bf16, square: 256, sparsity: [dense, "2:4"], sustained: true}
vectors:
  - {ops: [softmax, add], dtypes: fp32, m: 8, n: 128}
convolutions:
  - {ops: conv_fwd, dtypes: fp16, n_img: 2, in_channels: 8, height: 14, width: 14, out_channels: 16, filter: [3, 3]}
microbenchmarks:
  - {benchmark: launch, variants: graph_gap}
  - {benchmark: pointer_chase, footprint_kib: [4, 16]}
"""
SMALL_ROWS = 2 * 2 + 2 * 2 + 2 + 1
"""Operator rows without the FP8 ones, which the simulated GPU refuses."""
SMALL_MICROBENCHMARKS = 1 + 2 * 2


def suite_of(folder: Path, text: str = SMALL) -> Suite:
    path = folder / "suite.yaml"
    path.write_text(text, encoding="utf-8")
    return load_suite(str(path))


def measured(folder: Path, gpu: SimulatedGpu | None = None, text: str = SMALL) -> SuiteSummary:
    return run_suite(suite_of(folder, text), gpu or SimulatedGpu(), folder / "out.csv")


def log_of(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "out.log.jsonl").read_text(encoding="utf-8").splitlines()]


# Suites -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(shipped_suites()))
def test_every_shipped_suite_loads_and_asks_for_nothing_twice(name: str) -> None:
    works = load_suite(name).items()
    assert len({work.key for work in works}) == len(works) > 0


def test_the_suites_together_take_about_twenty_minutes() -> None:
    minutes = sum(
        estimate_s(work) for name in ("gemm", "operators", "microbenchmarks") for work in load_suite(name).items()
    )
    assert 10 < minutes / 60 < 30


def test_the_counter_suite_has_about_fifty_multiplications() -> None:
    assert 40 <= len(load_suite("counters").items()) <= 60


def test_the_multiplications_cover_every_type_and_token_counts_from_one_to_many() -> None:
    works = [item.operator for item in load_suite("gemm").items() if isinstance(item, Item)]
    gemms = [work for work in works if isinstance(work, Gemm)]
    wanted = {Dtype.FP64, Dtype.FP32, Dtype.TF32, Dtype.FP16, Dtype.BF16, Dtype.INT8, Dtype.FP8}
    assert {work.dtype for work in gemms} == wanted
    assert {2**i for i in range(15)} <= {work.m for work in gemms if work.op == "linear"}
    sparse = {(work.dtype, work.m, work.n, work.k) for work in gemms if work.sparsity == "2:4"}
    assert sparse <= {(work.dtype, work.m, work.n, work.k) for work in gemms if work.sparsity == "dense"}


def test_sections_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    *_, gemm = suite_of(
        tmp_path, "title: t\nmicrobenchmarks: [{benchmark: shared}]\ngemms: [{dtypes: bf16, square: 64}]\n"
    ).items()
    assert isinstance(gemm, Item)


def test_an_entry_that_stands_twice_adds_its_states_to_the_first(tmp_path: Path) -> None:
    text = "title: t\ngemms:\n- {dtypes: bf16, square: 64}\n- {dtypes: bf16, square: 64, l2: warm, sustained: true}\n"
    (item,) = suite_of(tmp_path, text).items()
    assert isinstance(item, Item)
    assert [(state.l2, state.load) for state in item.states] == [
        ("cold", "burst"),
        ("warm", "burst"),
        ("warm", "sustained"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("m: [1, 16], ", "", ":3: gemms.0: give 'square', or 'm' with 'layers'"),
        ("dtypes: [bf16, fp8]", "dtypes: [bf61]", ":3: gemms.0.dtypes.0: "),
        ("op: linear", "op: linaer", ":3: gemms.0.op: "),
        ("square: 256", "squares: 256", ":4: gemms.1.squares: unknown key; did you mean square?"),
        ('sparsity: [dense, "2:4"]', 'sparsity: "2:4", layout: nn', ":4: gemms.1: 2:4 is measured as 'op: gemm'"),
        ("filter: [3, 3]", "filter: [30, 3]", ":8: convolutions.0: the filter is larger than the padded image"),
        ("variants: graph_gap", "variants: gap", ":10: microbenchmarks.0: launch has no variant 'gap'"),
        ("footprint_kib: [4, 16]", "variants: l1", ":11: microbenchmarks.1: pointer_chase and stream take footprint"),
        ("title: Small\n", "", ":1: title: missing; add it"),
    ],
)
def test_a_wrong_suite_is_refused_at_its_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in SMALL
    with pytest.raises(SpecError) as error:
        suite_of(tmp_path, SMALL.replace(old, new))
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nothing to measure"):
        suite_of(tmp_path, "title: nothing\n")


# A run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "major"), [("12.4", "12"), ("None", "")])
def test_a_row_states_the_major_version_of_cuda(version: str, major: str) -> None:
    assert Identity("NVIDIA T4", 2**22, (("driver", "550.54"), ("cuda", version))).cuda == major
    assert Identity("NVIDIA T4", 2**22, (("driver", "550.54"),)).cuda == ""


def test_a_run_gives_a_table_in_the_measured_schema(tmp_path: Path) -> None:
    outcome = measured(tmp_path)
    rows = read_measured(tmp_path / "out.csv")
    assert outcome.measured == len(rows) + SMALL_MICROBENCHMARKS
    assert len(rows) == SMALL_ROWS
    assert {row.gpu for row in rows} == {"simulated-x1"}
    assert {row.op for row in rows} == {"linear", "gemm", "softmax", "add", "conv_fwd"}
    first = rows[0]
    gemm = first.operator
    assert isinstance(gemm, Gemm)
    assert (gemm.m, gemm.n, gemm.k, gemm.layout, gemm.order) == (1, 64, 128, "tn", "row")
    assert (first.kernel, first.threads, first.grid) == ("simulated_gemm<128, 64>", 256, (4, 2, 1))
    assert first.extra["kernel_time_us"] == "2"
    assert first.extra["throttle"] == "sw_power_cap"
    assert first.extra["versions"] == "driver=1.0 torch=0.0"


def test_each_row_says_under_which_load_it_was_taken(tmp_path: Path) -> None:
    measured(tmp_path)
    rows = read_measured(tmp_path / "out.csv")
    assert ("gemm", "burst", "cold", "") in [(row.op, row.load, row.l2, row.extra["energy_mj"]) for row in rows]
    sustained = [row for row in rows if row.load == "sustained"]
    assert sustained
    for row in sustained:
        assert float(row.extra["energy_mj"]) == pytest.approx(300.0 * row.time_us / 1e3)


def test_a_time_is_that_of_one_launch_and_the_median_of_the_replays(tmp_path: Path) -> None:
    measured(tmp_path)
    warm = next(row for row in read_measured(tmp_path / "out.csv") if row.l2 == "warm")
    assert warm.time_us == pytest.approx(2.0 + 2 * 1 * 64 * 128 / 1e8)
    assert float(warm.extra["p10_us"]) <= warm.time_us <= float(warm.extra["p90_us"])
    assert int(warm.extra["launches"]) == pytest.approx(1000 / warm.time_us, rel=0.01)


def test_what_cannot_run_is_skipped_with_its_reason_and_the_rest_goes_on(tmp_path: Path) -> None:
    outcome = measured(tmp_path)
    assert {reason for _, reason in outcome.skipped} == {"RuntimeError: no FP8 on this GPU"}
    assert [item for item, _ in outcome.skipped] == [
        entry["item"] for entry in log_of(tmp_path) if entry["event"] == "skip"
    ]
    assert not outcome.complete


def test_microbenchmarks_have_a_table_of_their_own(tmp_path: Path) -> None:
    measured(tmp_path)
    with (tmp_path / "out.microbenchmarks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["benchmark"], row["variant"], row["footprint_bytes"]) for row in rows] == [
        ("launch", "graph_gap", ""),
        *(("pointer_chase", level, str(1024 * kib)) for level in ("l1", "l2") for kib in (4, 16)),
    ]
    assert {(row["value"], row["p10"], row["p90"], row["unit"]) for row in rows} == {("3", "1.4", "4.6", "cycles")}


def test_a_second_run_measures_nothing_again(tmp_path: Path) -> None:
    first = measured(tmp_path)
    before = (tmp_path / "out.csv").read_bytes()
    gpu = SimulatedGpu()
    second = measured(tmp_path, gpu)
    assert (second.measured, second.resumed) == (0, first.measured)
    assert (tmp_path / "out.csv").read_bytes() == before
    assert gpu.prepared == ["linear", "linear"]  # those that were skipped are tried again


def test_another_driver_is_another_measurement_in_the_same_table(tmp_path: Path) -> None:
    first = measured(tmp_path)
    second = measured(tmp_path, SimulatedGpu(driver="2.0"))
    assert second.measured == first.measured
    assert len(read_measured(tmp_path / "out.csv")) == 2 * SMALL_ROWS


def test_a_longer_suite_goes_on_with_the_rows_of_a_shorter_one(tmp_path: Path) -> None:
    short = measured(tmp_path, text=SMALL.replace(", l2: [cold, warm]", ""))
    whole = measured(tmp_path)
    assert whole.resumed == short.measured
    assert whole.measured == 2


def test_nothing_is_begun_that_would_end_after_the_limit(tmp_path: Path) -> None:
    outcome = run_suite(suite_of(tmp_path), SimulatedGpu(), tmp_path / "out.csv", limit_s=0.0)
    assert (outcome.measured, outcome.remaining) == (0, len(suite_of(tmp_path).items()))
    assert not (tmp_path / "out.csv").exists()


def test_a_line_that_was_cut_off_is_taken_away_and_measured_again(tmp_path: Path) -> None:
    measured(tmp_path)
    path = tmp_path / "out.csv"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert measured(tmp_path).measured == 1
    assert len(read_measured(path)) == SMALL_ROWS
    path.write_bytes(whole[:30])  # within the header
    assert measured(tmp_path).measured == SMALL_ROWS


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "\xff\xfe\n", "a line without its break"])
def test_another_programs_file_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(MeasuredError, match="choose another file with -o"):
        measured(tmp_path)
    assert (tmp_path / "out.csv").read_bytes() == text.encode("latin-1")


def test_an_item_that_takes_the_device_down_is_not_tried_again(tmp_path: Path) -> None:
    gpu = SimulatedGpu(deadly=("gemm",))
    with pytest.raises(DeviceLostError):
        measured(tmp_path, gpu)
    with pytest.raises(DeviceLostError):  # the other gemm, after all the rest
        measured(tmp_path, gpu)
    last = measured(tmp_path, gpu)
    assert sorted(reason for _, reason in last.skipped) == [
        *["RuntimeError: no FP8 on this GPU"] * 2,
        *["it ended earlier runs; see the log"] * 2,
    ]
    assert len(read_measured(tmp_path / "out.csv")) == SMALL_ROWS - 4


def test_a_lost_device_starts_the_command_again_with_the_time_that_is_left(tmp_path: Path) -> None:
    class StartedAgainError(Exception): ...

    def restart(arguments: Sequence[str]) -> NoReturn:
        raise StartedAgainError(arguments)

    arguments = ["measure", "suite.yaml", "-o", "out.csv"]
    with pytest.raises(StartedAgainError) as again:
        _ = measure_suite(
            suite_of(tmp_path),
            SimulatedGpu(deadly=("gemm",)),
            tmp_path / "out.csv",
            arguments=arguments,
            limit_s=600.0,
            restart=restart,
        )
    *same, flag, left_s = again.value.args[0]
    assert (same, flag) == (arguments, "--limit-s")
    assert 500 < float(left_s) <= 600


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_file_that_a_kill_left_empty_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.touch()
    file = RowFile(path, ("item", "value"))
    assert file.rows == ()
    file.append({"item": "a", "value": 1.5})
    assert path.read_text(encoding="utf-8") == "item,value\na,1.5\n"


def test_a_killed_process_goes_on_where_it_stopped(tmp_path: Path) -> None:
    suite_of(tmp_path)
    command = [sys.executable, TESTS / "support" / "simulated_gpu.py", tmp_path / "suite.yaml", tmp_path / "out.csv"]
    process = subprocess.Popen([*map(str, command), "0.3"], env=environment())
    deadline = time.monotonic() + 30
    while lines_of(tmp_path / "out.csv") < 2 and time.monotonic() < deadline:  # the header and a row
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = len(read_measured(tmp_path / "out.csv"))
    assert 0 < kept < SMALL_ROWS
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment(), check=True)
    new, resumed, skipped, remaining = map(int, done.stdout.split())
    assert (resumed, skipped, remaining) == (kept, 2, 0)
    assert new + resumed == SMALL_ROWS + SMALL_MICROBENCHMARKS
    rows = read_measured(tmp_path / "out.csv")
    assert len({(row.extra["item"], row.l2, row.load) for row in rows}) == len(rows) == SMALL_ROWS


# Readings of a GPU ------------------------------------------------------------------------------


def test_a_gpu_is_called_by_its_name_without_the_brand() -> None:
    assert Identity("NVIDIA A100-SXM4-40GB", 1, ()).gpu == "a100-sxm4-40gb"
    assert Identity("Tesla T4", 1, ()).gpu == "t4"


def test_kernels_of_a_profile_are_those_of_one_call_without_the_first(tmp_path: Path) -> None:
    def event(name: str, at: int, time_us: float) -> dict[str, object]:
        arguments = {"grid": [8, 2, 1], "block": [128, 2, 1], "registers per thread": 96, "shared memory": 1024}
        return {"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": time_us, "args": arguments}

    times_us = (95.0, 5.0, 5.0)
    calls = [event("void at::spin_kernel(long)", 10 * call, 1.0) for call in range(len(times_us))]
    calls += [event("a", 10 * call + 1, time_us) for call, time_us in enumerate(times_us)]
    calls += [event("b", 10 * call + 2, 1.0) for call in range(len(times_us))]
    other = {"ph": "X", "cat": "gpu_memset", "name": "Memset", "ts": 3, "dur": 1}
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [other, *reversed(calls)]}), encoding="utf-8")
    first, second = kernels_of_trace(trace)
    assert (first.name, first.time_us, first.grid, first.threads) == ("a", 5.0, (8, 2, 1), 256)
    assert (second.name, second.registers, second.shared_bytes) == ("b", 96, 1024)
    # The profiler lost the beginning of the trace: it starts within the first call, or has the last one's alone.
    for kept in ([*calls[1:3], *calls[4:]], [calls[2], calls[5], calls[8]]):
        trace.write_text(json.dumps({"traceEvents": kept}), encoding="utf-8")
        assert [kernel.name for kernel in kernels_of_trace(trace)] == ["a", "b"]
    trace.write_text(json.dumps({"traceEvents": [other, *calls[3:]]}), encoding="utf-8")
    assert kernels_of_trace(trace) == ()


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("latency", [True, False])
def test_an_instructions_program_names_its_registers_and_counts_its_turns(name: str, latency: bool) -> None:
    instruction = INSTRUCTIONS[name]
    program = benchmark(instruction, latency=latency)
    issued = program.source.count(f"{instruction.opcode} ")
    registers = instruction.result[1] + sum(number for _, number in instruction.operands)
    assert f"%{registers - 1}" in program.source
    per_sub_partition = 1 if latency else program.threads // (128 if instruction.warpgroup else 32 * 4)
    assert program.instructions_per_round == 8 * issued * max(1, per_sub_partition)


def test_hopper_has_no_fp8_product_of_a_single_warp() -> None:
    fp8 = INSTRUCTIONS["mma_fp8_m16n8k32"]
    assert [fp8.runs_on(*capability) for capability in ((8, 6), (8, 9), (9, 0))] == [False, True, False]


class Nvml:
    """Two or more cards, or one that CUDA calls otherwise."""

    class NVMLError(Exception): ...

    def __init__(self, cards: int) -> None:
        self.cards = cards

    def nvmlInit(self) -> None: ...  # noqa: N802 -- as NVML calls it

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 -- the same
        return self.cards

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 -- the same
        raise self.NVMLError(f"no {uuid}")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 -- the same
        return index


@pytest.mark.parametrize(("cards", "missing"), [(1, ""), (2, "NVML reports no GPU-7")])
def test_a_card_that_nvml_calls_otherwise_is_taken_if_it_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, cards: int, missing: str
) -> None:
    monkeypatch.setattr(telemetry, "pynvml", Nvml(cards))
    assert telemetry.Sensors("GPU-7").missing.endswith(missing)
    assert (telemetry.Sensors("GPU-7").missing == "") == (cards == 1)


def test_columns_that_the_card_does_not_report_stay_empty() -> None:
    reading = SensorReading(0.0, 0.0, 300.0, 0.0, frozenset(), None)
    columns = _sensor_columns([reading])
    assert (columns["clock_mhz"], columns["power_w"], columns["temperature_c"]) == ("", 300.0, "")


# The command ------------------------------------------------------------------------------------


def test_a_plan_needs_no_gpu_and_counts_what_a_run_would_do(command: RunGpusim, tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    done = command("measure", "suite.yaml", "--plan", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = json.loads(done.stdout)["lines"]
    assert lines == plan_of(suite)
    assert sum(line["rows"] for line in lines) == SMALL_ROWS + SMALL_MICROBENCHMARKS + 4
    assert "gemm 2:4" in command("measure", "suite.yaml", "--plan").stdout


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_remedy_is_named(command: RunGpusim, tmp_path: Path) -> None:
    assert "pip install 'gpusim[measure]'" in refused(command("measure", "quick", "-o", "runs.csv"))
    assert "pip install 'gpusim[measure]'" in refused(command("measure", "quick", "--counters", "-o", "runs.csv"))
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_refused(command: RunGpusim) -> None:
    assert "did you mean quick?" in refused(command("measure", "quik", "-o", "runs.csv"))
    assert "name the table to write" in refused(command("measure", "quick"))
    assert "no folder" in refused(command("measure", "quick", "-o", "none/runs.csv"))
    assert "ending in .csv" in refused(command("measure", "quick", "-o", "runs"))
    assert "in one run" in refused(command("measure", "quick", "--counters", "--limit-s", "9", "-o", "runs.csv"))
