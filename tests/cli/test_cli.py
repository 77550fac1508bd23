"""The command line as a user sees it: processes, their output, their exit status."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, RunGpusim, environment, process_group, refused

import gpusim as package

SMALL = ("-m", "512", "-n", "512", "-k", "256")


def object_of(process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON object that a command printed."""
    assert (process.returncode, process.stderr) == (0, "")
    value = json.loads(process.stdout)
    assert isinstance(value, dict)
    return value


def python(code: str) -> str:
    """What a fresh interpreter prints for some code."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout


# The program itself -----------------------------------------------------------------------------


def test_the_version_is_named(gpusim: RunGpusim) -> None:
    done = gpusim("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gpusim {package.__version__}\n", "")


def test_help_names_every_command(command: RunGpusim) -> None:
    done = command("--help")
    assert done.returncode == 0
    for name in ("archs", "gemm", "run", "validate"):
        assert name in done.stdout


def test_nothing_heavy_is_imported_before_a_command_runs() -> None:
    heavy = "{'numpy', 'simpy', 'matplotlib', 'yaml', 'gpusim.sim', 'gpusim.hardware.gpu'}"
    assert python(f"import sys, gpusim.cli; print(sorted({heavy} & set(sys.modules)))") == "[]\n"


def test_a_prediction_imports_nothing_that_it_does_not_need() -> None:
    heavy = "{'numba', 'scipy', 'matplotlib', 'ml_dtypes', 'gpusim.mathmode', 'gpusim.numerics', 'gpusim.studies.run'}"
    asked = f"['gemm', '--arch', 't4', *{list(SMALL)}]"
    code = f"""
import io, sys
from contextlib import redirect_stdout
from gpusim.cli import run_cli
with redirect_stdout(io.StringIO()):
    status = run_cli({asked})
print(status, sorted({heavy} & set(sys.modules)))
"""
    assert python(code) == "0 []\n"


def test_a_short_command_is_not_searched_for_garbage() -> None:
    code = f"""
import atexit, gc, sys
from gpusim.__main__ import main
before = sum(one["collections"] for one in gc.get_stats())
atexit.register(lambda: print(sum(one["collections"] for one in gc.get_stats()) - before, gc.get_freeze_count() > 0))
sys.argv = ["gpusim", "gemm", "--arch", "t4", *{list(SMALL)}]
main()
"""
    assert python(code).splitlines()[-1] == "0 True"


def test_a_usage_error_is_one_line(command: RunGpusim) -> None:
    assert "No such command 'predict'" in refused(command("predict"))
    assert "No such option" in refused(command("gemm", "--colour", "blue"))
    assert "Missing option" in refused(command("gemm", "--arch", "t4", "-m", "8", "-n", "8"))
    assert "Missing argument" in refused(command("validate"))
    assert "-m: expected a size" in refused(command("gemm", "--arch", "t4", "-m", "eight", "-n", "8", "-k", "8"))
    assert "'--detail'" in refused(command("gemm", "--arch", "t4", *SMALL, "--detail", "coarse"))
    assert "'--format'" in refused(command("gemm", "--arch", "t4", *SMALL, "--format", "yaml"))
    assert "name an experiment" in refused(command("run", "detail=full"))


# gemm -------------------------------------------------------------------------------------------


def test_a_prediction_is_one_object(command: RunGpusim) -> None:
    result = object_of(command("gemm", "--arch", "t4", *SMALL, "--dtype", "fp16", "--format", "json"))
    assert (result["arch"], result["detail"], result["m"], result["n"], result["k"]) == ("T4", "sampled", 512, 512, 256)
    assert sum(result["stall_cycles"].values()) == result["warp_cycles"]
    assert result["nsight"]["gpu__time_duration.sum"] == pytest.approx(1e3 * result["kernel_time_us"])


@pytest.mark.parametrize("detail", ["bound", "estimate", "sampled", "full"])
def test_the_same_question_gets_the_same_bytes(gpusim: RunGpusim, detail: str) -> None:
    question = ("gemm", "--arch", "a100-sxm4-40gb", *SMALL, "--detail", detail, "--format", "json")
    first, second = gpusim(*question), gpusim(*question)
    assert first.returncode == 0
    assert first.stdout == second.stdout


def test_options_reach_the_prediction(command: RunGpusim) -> None:
    options = ("--batch", "3", "--layout", "nn", "--l2", "warm", "--dtype", "bf16", "--detail", "bound")
    result = object_of(command("gemm", "--arch", "a100-sxm4-80gb", *SMALL, *options, "--format", "json"))
    asked = {"batch": 3, "layout": "nn", "l2": "warm", "dtype": "bf16", "detail": "bound"}
    assert {name: result[name] for name in asked} == asked


def test_a_kernel_can_be_pinned_by_the_name_that_explain_prints(command: RunGpusim) -> None:
    question = ("gemm", "--arch", "v100-sxm2-16gb", *SMALL)
    ranked = object_of(command(*question, "--format", "json"))["alternatives"]
    other = next(one["kernel"] for one in ranked if one["kernel"] != ranked[0]["kernel"])
    assert other in command(*question, "--explain").stdout
    assert object_of(command(*question, "--kernel", other, "--format", "json"))["kernel"] == other


def test_an_older_library_chooses_by_its_own_bias(command: RunGpusim, tmp_path: Path) -> None:
    spec = tmp_path / "biased.yaml"
    spec.write_text("extends: v100_sxm2_16gb\nlibrary: biased\n")
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "biased.yaml").write_text("extends: volta_fitted\nolder: [biased_10]\n")
    (tmp_path / "libraries" / "biased_10.yaml").write_text(
        "extends: volta_fitted\nlast_cuda: 10\n"
        "heuristic_bias: {mma: {tall_tile: {value: -5.0, kind: assumed, source: strong enough}}}\n"
    )
    found = {}
    for cuda in (10, 12):
        done = command("gemm", "--arch", spec, *SMALL, "--cuda", str(cuda), "--format", "json")
        found[cuda] = object_of(done)["kernel"]
    assert "256x64" in found[10]
    assert "256x64" not in found[12]
    experiment = tmp_path / "old.yaml"
    experiment.write_text(
        "title: Old\ncuda: 10\ngpus: [biased.yaml]\ndtypes: [fp16]\ngemms: [{m: 512, n: 512, k: 512}]\n"
    )
    done = command("run", experiment, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "256x64" in (tmp_path / "out" / "results.csv").read_text()


def test_a_value_of_the_spec_can_be_replaced(command: RunGpusim) -> None:
    question = ("gemm", "--arch", "t4", "-m", "4", "-n", "8192", "-k", "8192", "--format", "json")  # weights stream
    plain = object_of(command(*question))
    faster = object_of(command(*question, "--set", "dram.peak_bandwidth_gb_per_s=640"))
    assert plain["bottleneck"] == "dram"
    assert faster["time_us"] < plain["time_us"]


def test_a_pipe_gets_plain_text(command: RunGpusim) -> None:
    done = command("gemm", "--arch", "t4", *SMALL)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "bottleneck" in done.stdout
    assert "Warp cycles by cause" in done.stdout


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("-m", "0"), "-m: expected a positive integer, got 0"),
        (("-k", "-4"), "-k: expected a positive integer, got -4"),
        (("-n", "64:8"), "-n: a range needs 1 <= start <= end and a step >= 1, got '64:8'"),
        (("-n", "64,eight"), "-n: expected a size or a 'start:end:step' range, got 'eight'"),
        (("-n", "1:100000"), "100000 predictions, more than 10000"),
        (("--load", "9" * 5000), "99: expected sustained, burst, flushed or a number of calls back to back"),
        (("--batch", "0"), "batch: expected a positive integer, got 0"),
        (("--arch", "a100-sxm5-40gb"), "a100-sxm5-40gb: unknown GPU; did you mean A100-SXM"),
        (("--dtype", "bf61"), "unknown data type 'bf61'; nearest: bf16"),
        (("--dtype", "bf16"), "T4 (compute capability 7.5) has no bf16 multiplication"),
        (("--kernel", "turing_h1688gemm_128x129_tn"), "no kernel 'turing_h1688gemm_128x129_tn'"),
        (("--set", "dram.peak_bandwith_gb_per_s=640"), "did you mean dram.peak_bandwidth_gb_per_s?"),
        (("--set", "640"), "expected KEY.PATH=VALUE"),
        (("--set", "sm.count=-1"), "override: sm.count: "),
        (("--arch-path", "nowhere"), "nowhere: no such folder"),
        (("--arch", "nowhere.yaml"), "nowhere.yaml: cannot be read"),
    ],
)
def test_wrong_input_is_refused_in_one_line(command: RunGpusim, change: tuple[str, str], problem: str) -> None:
    question = {"--arch": "t4", "-m": "512", "-n": "512", "-k": "256", change[0]: change[1]}
    assert problem in refused(command("gemm", *(word for pair in question.items() for word in pair)))


def test_our_own_mistakes_are_one_line_and_not_said_to_be_wrong_input(
    command: RunGpusim, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("gpusim.specs.list_archs", broken)
    with pytest.raises(ValueError, match="a mistake of ours"):
        _ = command("archs", "list")
    monkeypatch.delenv("GPUSIM_TRACEBACK")
    done = command("archs", "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpusim: ValueError: a mistake of ours (a defect of gpusim); please report it")


# archs ------------------------------------------------------------------------------------------


def test_every_board_is_listed_with_its_peaks(command: RunGpusim) -> None:
    archs = {arch["name"]: arch for arch in object_of(command("archs", "list", "--format", "json"))["archs"]}
    assert set(archs) >= {"V100-SXM2-16GB", "T4", "A100-SXM4-80GB", "RTX-3090"}
    assert archs["A100-SXM4-80GB"]["peak_tflops"]["fp16 tensor"] == pytest.approx(312, rel=0.01)
    table = command("archs", "list").stdout
    assert all(name in table for name in archs)


def test_a_board_is_shown_with_the_origin_of_its_values(command: RunGpusim) -> None:
    shown = object_of(command("archs", "show", "NVIDIA Tesla T4", "--format", "json"))
    origin = shown["values"]["dram.peak_bandwidth_gb_per_s"]
    assert (origin["value"], origin["kind"]) == (320.0, "datasheet")
    assert origin["source"]
    assert origin["line"] > 0
    done = command("archs", "show", "t4")
    assert done.returncode == 0
    assert "Sources of the values" in done.stdout


def test_shipped_specs_are_fine_and_a_broken_one_is_named_with_its_line(command: RunGpusim, tmp_path: Path) -> None:
    good = REPOSITORY / "arch_specs" / "t4.yaml"
    done = command("archs", "check", good)
    assert (done.returncode, done.stderr) == (0, "")
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: Bad\nextends: turing\ncolour: green\n", encoding="utf-8")
    done = command("archs", "check", bad)
    problems = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert problems[0].startswith(f"gpusim: {bad}:3: colour: unknown key")
    assert len(problems) > 5
    assert all(re.match(r"gpusim: .*\.yaml:\d+: [a-z_.0-9]+: ", problem) for problem in problems)
    implausible = tmp_path / "implausible.yaml"
    text = good.read_text(encoding="utf-8")
    implausible.write_text(text.replace("value: 320.0", "value: 10080.0"), encoding="utf-8")
    done = command("archs", "check", implausible)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"implausible\.yaml:\d+: dram\.peak_bandwidth_gb_per_s: 10080 GB/s of GDDR6", done.stderr)
    both = command("archs", "check", good, bad)
    assert both.returncode == 2
    assert "fine: T4" in both.stdout


def test_a_users_folder_is_searched_by_option_and_by_variable(
    command: RunGpusim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (REPOSITORY / "arch_specs" / "t4.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text.replace("name: T4", "name: Mine"), encoding="utf-8")
    question = ("gemm", "--arch", "mine", *SMALL, "--format", "json")
    assert object_of(command(*question, "--arch-path", tmp_path))["arch"] == "Mine"
    monkeypatch.setenv("GPUSIM_ARCH_PATH", str(tmp_path))
    assert object_of(command(*question))["arch"] == "Mine"


def test_the_schema_for_editors_is_a_json_schema(command: RunGpusim) -> None:
    schema = object_of(command("archs", "schema"))
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "dram" in schema["properties"]


# Leaving ----------------------------------------------------------------------------------------


def test_a_reader_that_leaves_ends_the_program_quietly() -> None:
    command = [sys.executable, "-m", "gpusim", "archs", "show", "t4"]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    with subprocess.Popen(command, **pipe) as process:  # type: ignore[call-overload]
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@contextmanager
def long_run(folder: Path, jobs: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run of a whole process group, with some of its predictions made and many left."""
    experiment = folder / "long.yaml"
    experiment.write_text(
        "title: Long\ngpus: [A100-SXM4-40GB]\ndtypes: [fp16]\ndetail: full\ngemms: [{square: '512:2048:16'}]\n",
        encoding="utf-8",
    )
    journal = folder / "out" / "results.partial.jsonl"
    with process_group("run", str(experiment), "-o", str(folder / "out"), "--jobs", jobs) as process:
        deadline = time.monotonic() + 240
        while not (journal.is_file() and journal.stat().st_size):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process


def without_progress(errors: bytes) -> bytes:
    """Standard error without the lines of progress that a busy machine has time for."""
    return b"".join(line for line in errors.splitlines(keepends=True) if not line.endswith(b" left\n"))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_a_run_quietly_and_keeps_what_is_done(tmp_path: Path, jobs: str) -> None:
    with long_run(tmp_path, jobs) as process:
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, without_progress(errors)) == (130, b"", b"")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.partial.jsonl"]


def test_the_workers_of_a_killed_run_end_with_it(tmp_path: Path) -> None:
    with long_run(tmp_path, jobs="2") as process:
        process.kill()
        # Pipes that the workers inherited are closed once the last of them is gone.
        _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_worker_ends_a_run_in_one_line_and_keeps_what_is_done(tmp_path: Path) -> None:
    with long_run(tmp_path, jobs="2") as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        os.kill(int(children[-1]), signal.SIGKILL)  # the first child keeps track of resources
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, b"")
    errors = without_progress(errors)
    assert errors.decode().startswith("gpusim: a worker process was killed")
    assert errors.count(b"\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.partial.jsonl"]


# The documentation ------------------------------------------------------------------------------


def documented_commands() -> list[str]:
    """Every gpusim command line in a shell block of the README and the guide."""
    pages = (REPOSITORY / "README.md", REPOSITORY / "docs" / "guide.md")
    blocks = [block for page in pages for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [command for line in lines for command in line.split(" && ") if command.startswith("gpusim ")]


def needs_more_than_a_checkout(command: str) -> bool:
    """Whether a command needs a GPU, or files of the reader."""
    return ".csv" in command or "my-" in command


@pytest.mark.parametrize("line", [one for one in documented_commands() if needs_more_than_a_checkout(one)])
def test_a_documented_command_for_ones_own_card_is_understood(command: RunGpusim, line: str) -> None:
    done = command(*shlex.split(line)[1:], "--help")  # unknown commands and options are refused before any help
    assert (done.returncode, done.stderr) == (0, "")


LONG_COMMANDS = ("gpusim run tf32_paths sparse_2to4", "gpusim numerics --dtype tf32 -m 10240 -n 10240 -k 10240")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(one, marks=[pytest.mark.slow] if one in LONG_COMMANDS else [])
        for one in documented_commands()
        if not needs_more_than_a_checkout(one)
    ],
)
def test_a_documented_command_works(command: RunGpusim, tmp_path: Path, line: str) -> None:
    (tmp_path / "arch_specs").symlink_to(REPOSITORY / "arch_specs")
    done = command(*shlex.split(line)[1:])
    notes = "' is taken as |: wrote |cycles extrapolated"
    problems = [line for line in done.stderr.splitlines() if not re.search(notes, line)]
    assert (done.returncode, problems) == (0, [])
    assert done.stdout or ": wrote " in done.stderr


def test_a_2_4_product_says_what_it_executes(command: RunGpusim) -> None:
    arguments = "gemm --arch A100-SXM4-80GB -m 1024 -n 1024 -k 1024 --dtype int8 --sparsity 2:4"
    shown = command(*arguments.split()).stdout
    assert re.search(r"TOP/s \(dense equivalent; .* TOP/s executed\)", shown)
    record = json.loads(command(*arguments.split(), "--format", "json").stdout)
    assert record["executed_tflops"] == pytest.approx(record["tflops"] / 2)
    assert record["accumulate"] == "int32"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--arch t4 -k 64 --dtype tf32", "T4 (compute capability 7.5) has no tf32 multiplication"),
        (
            "--arch t4 -k 64 --dtype tf32",
            "fp16 (also in fp16), int4, int8 on Tensor Cores and fp16 (also in fp16), fp32, fp64, int8 on CUDA",
        ),
        ("--arch A100-SXM4-80GB -k 65 --dtype fp16 --sparsity 2:4", "k must be a multiple of 16, got 65; pad it to 80"),
        (
            "--arch A100-SXM4-80GB -k 64 --dtype fp64 --sparsity 2:4",
            "has no fp64 2:4 multiplication with fp64 accumulation",
        ),
        (
            "--arch A100-SXM4-80GB -k 64 --accumulate fp31",
            "accumulate: expected one of fp64, fp32, tf32, fp16, bf16, int32, got 'fp31'",
        ),
        ("--arch A100-SXM4-80GB -k 64 --dtype tf32 --unit cuda", "accumulation on CUDA cores"),
    ],
)
def test_a_path_that_is_not_there_is_refused_in_one_line(command: RunGpusim, arguments: str, text: str) -> None:
    assert text in refused(command("gemm", "-m", "64", "-n", "64", *arguments.split()))


def test_a_load_may_be_a_number_of_calls(command: RunGpusim) -> None:
    question = ("gemm", "--arch", "T4", "-m", "1024", "-n", "4096", "-k", "512", "--dtype", "fp32", "--format", "json")
    answers = [object_of(command(*question, "--load", load)) for load in ("burst", "60", "sustained")]
    clocks = [answer["clock_mhz"] for answer in answers]
    assert clocks == sorted(clocks, reverse=True)
    assert clocks[0] > clocks[2]
    for load in ("0", "short"):
        problem = refused(command(*question, "--load", load))
        assert f"load {load}: expected sustained, burst, flushed or a number" in problem


def test_a_few_bytes_of_output_take_less_time(command: RunGpusim) -> None:
    question = ("gemm", "--arch", "A100-SXM4-80GB", "-m", "8192", "-n", "8192", "-k", "128", "--dtype", "int8")
    wide, narrow = (
        json.loads(command(*question, "--format", "json", "--output-dtype", one).stdout) for one in ("int32", "fp16")
    )
    assert (wide["output_dtype"], narrow["output_dtype"]) == ("int32", "fp16")
    assert narrow["kernel_time_us"] < wide["kernel_time_us"]
    assert "output: expected one of" in refused(command(*question, "--output-dtype", "fp12"))


def test_a_trace_plays_the_chosen_unit(command: RunGpusim, tmp_path: Path) -> None:
    arguments = "trace --arch A100-SXM4-80GB -m 256 -n 256 -k 256 --dtype fp16 --accumulate fp16 --unit cuda -o t.json"
    done = command(*arguments.split())
    assert done.returncode == 0, done.stderr
    assert "FMA pipe" in (tmp_path / "t.json").read_text(encoding="utf-8")
