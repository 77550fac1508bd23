"""Hardware counters: lists of ncu become measured rows, which are compared with the simulation."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import RunGpusim, refused

from gpusim.evidence.importers.ncu import METRICS
from gpusim.evidence.measured import read_measured
from gpusim.measure.device import Identity, NoDeviceError
from gpusim.measure.nsight_compute import count, gemms_of
from gpusim.measure.suite import load_suite

SUITE = (
    "title: t\ngemms:\n- {op: linear, dtypes: [bf16, fp8], m: 64, layers: [256, 512]}\n- {dtypes: bf16, square: 512}\n"
)
HEADER = ("ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC", *METRICS[:6])
UNITS = ("", "", "", "", "", "", "ns", "cycle", "%", "byte", "byte", "byte")
SPIN = ("0", "7", "void at::spin_kernel(long)", "(1, 1, 1)", "(1, 1, 1)", "8.0", *["1"] * 6)
GEMM = (
    "1",
    "7",
    "ampere_bf16_s16816gemm<1, 2>",
    "(128, 2, 1)",
    "(4, 1, 2)",
    "8.0",
    "5000",
    "7,000",
    "50",
    "4096",
    "2048",
    "64",
)
REDUCE = ("2", "7", "splitKreduce", "(64, 1, 1)", "(9, 1, 1)", "8.0", "1000", "1,400", "90", "512", "256", "32")
IDENTITY = Identity("NVIDIA A100-SXM4-40GB", 40 * 2**20, (("driver", "1"),))

NCU = """#!{python}
import sys
if "--query-metrics" in sys.argv:
    print("dram__bytes_read  Bytes read\\nlts__t_bytes  Bytes")
    sys.exit()
open({called!r}, "w").write("\\n".join(sys.argv))
open(sys.argv[sys.argv.index("--log-file") + 1], "w").write({listing!r})
sys.exit(0)
"""


def listing(*kernels: tuple[str, ...]) -> str:
    """What ``ncu --csv --page raw`` writes: talk, header, units, one quoted line a kernel."""
    lines = [",".join(f'"{cell}"' for cell in line) for line in (HEADER, UNITS, *kernels)]
    return "\n".join(["==PROF== Connected to process 7", *lines, "==PROF== Disconnected", ""])


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name on the PATH which writes ``listing.txt``; ``called.txt`` has its arguments."""

    def write(text: str) -> None:
        program = tmp_path / "bin" / "ncu"
        program.parent.mkdir(exist_ok=True)
        source = NCU.format(python=sys.executable, called=str(tmp_path / "called.txt"), listing=text)
        program.write_text(source, encoding="utf-8")
        program.chmod(0o755)

    write(listing(SPIN, GEMM, REDUCE, SPIN, SPIN, GEMM))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "suite.yaml").write_text(SUITE, encoding="utf-8")
    return tmp_path


def test_the_kernels_between_two_markers_are_one_operator(ncu: Path) -> None:
    suite = load_suite(str(ncu / "suite.yaml"))
    rows, without = count(suite, IDENTITY, ncu / "counters.csv")
    assert rows == 2
    assert without == [gemms_of(suite)[1].key]  # FP8, which printed no kernel
    first, second = read_measured(ncu / "counters.csv")
    assert (first.time_us, second.time_us) == (6.0, 5.0)
    assert (first.method, first.l2, first.load) == ("profiler", "cold", "sustained")
    assert (first.kernel, first.threads, first.grid) == ("ampere_bf16_s16816gemm<1, 2>", 256, (4, 1, 2))
    assert float(first.extra["dram__bytes_read.sum"]) == 2048 + 256
    assert float(first.extra["lts__t_sector_hit_rate.pct"]) == 50.0


def test_no_clock_is_touched_and_only_metrics_that_the_gpu_has_are_asked_for(ncu: Path) -> None:
    count(load_suite(str(ncu / "suite.yaml")), IDENTITY, ncu / "counters.csv")
    called = (ncu / "called.txt").read_text(encoding="utf-8").splitlines()
    assert called[called.index("--clock-control") + 1] == "none"
    asked = called[called.index("--metrics") + 1].split(",")
    assert "gpu__time_duration.sum" in asked
    assert "dram__bytes_read.sum" in asked
    assert "dram__bytes_write.sum" not in asked
    assert "launch__waves_per_multiprocessor" in asked


def test_what_could_not_run_under_ncu_is_named_with_its_reason(ncu: Path) -> None:
    suite = load_suite(str(ncu / "suite.yaml"))
    refused_item = gemms_of(suite)[1].key
    program = ncu / "bin" / "ncu"
    failing = f'print({refused_item!r} + ": RuntimeError: no FP8", file=sys.stderr)\nsys.exit(0)'
    program.write_text(program.read_text(encoding="utf-8").replace("sys.exit(0)", failing), encoding="utf-8")
    assert count(suite, IDENTITY, ncu / "counters.csv")[1] == [f"{refused_item}: RuntimeError: no FP8"]


def test_a_second_run_adds_nothing(ncu: Path) -> None:
    suite = load_suite(str(ncu / "suite.yaml"))
    count(suite, IDENTITY, ncu / "counters.csv")
    before = (ncu / "counters.csv").read_bytes()
    assert count(suite, IDENTITY, ncu / "counters.csv")[0] == 0
    assert (ncu / "counters.csv").read_bytes() == before


def test_another_gpu_is_counted_beside_the_first(ncu: Path) -> None:
    suite = load_suite(str(ncu / "suite.yaml"))
    first = count(suite, IDENTITY, ncu / "counters.csv")[0]
    other = Identity("NVIDIA H200", 141 * 2**30, IDENTITY.versions)
    assert count(suite, other, ncu / "counters.csv")[0] == first
    assert len({row.gpu for row in read_measured(ncu / "counters.csv")}) == 2


def test_missing_permission_to_read_counters_is_reported(ncu: Path) -> None:
    program = ncu / "bin" / "ncu"
    error = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    source = NCU.format(python=sys.executable, called=str(ncu / "called.txt"), listing=error)
    program.write_text(source, encoding="utf-8")
    with pytest.raises(NoDeviceError, match="read no counters: ERR_NVGPUCTRPERM"):
        count(load_suite(str(ncu / "suite.yaml")), IDENTITY, ncu / "counters.csv")
    assert not (ncu / "counters.csv").exists()


def test_a_missing_ncu_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoDeviceError, match="ncu is not on the PATH"):
        count(load_suite("counters"), IDENTITY, tmp_path / "counters.csv")


@pytest.mark.parametrize(
    ("text", "reason"), [("==PROF== Connected\n", r"ncu\.csv:1"), (listing(), "no kernel was profiled")]
)
def test_a_listing_without_kernels_is_reported(ncu: Path, text: str, reason: str) -> None:
    source = NCU.format(python=sys.executable, called=str(ncu / "called.txt"), listing=text)
    (ncu / "bin" / "ncu").write_text(source, encoding="utf-8")
    with pytest.raises(NoDeviceError, match=f"read no counters: .*{reason}"):
        count(load_suite(str(ncu / "suite.yaml")), IDENTITY, ncu / "counters.csv")
    assert not (ncu / "counters.csv").exists()


def test_measured_counters_stand_beside_simulated_ones(ncu: Path, command: RunGpusim) -> None:
    count(load_suite(str(ncu / "suite.yaml")), IDENTITY, ncu / "counters.csv")
    done = command("counters", ncu / "counters.csv", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    row = json.loads(done.stdout)["rows"][0]
    assert row["measured"]["gpu__time_duration.sum"] == 6000.0
    assert row["simulated"]["gpu__time_duration.sum"] > 0
    assert set(row["measured"]) <= set(row["simulated"])
    table = command("counters", ncu / "counters.csv", "--arch", "a100-sxm4-80gb").stdout
    assert "64x256x512" in table
    assert "6.000 us / " in table


def with_counters(folder: Path, *lines: str) -> Path:
    """A table of a T4's operators with one counter each."""
    path = folder / "counted.csv"
    head = "gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2,lts__t_sector_hit_rate.pct"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def test_a_ratio_to_nothing_is_not_a_counter(tmp_path: Path, command: RunGpusim) -> None:
    path = with_counters(tmp_path, "t4,gemm,1,64,64,64,fp16,dense,5,profiler,cold,nan")
    done = command("counters", path, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"][0]["measured"] == {}


def test_what_is_skipped_stands_in_a_table_of_its_own(tmp_path: Path, command: RunGpusim) -> None:
    lines = ("t4,gemm,1,64,64,64,fp16,dense,5,profiler,cold,50", "t4,conv_fwd,1,64,32,8,fp16,dense,5,profiler,cold,50")
    done = command("counters", with_counters(tmp_path, *lines))
    assert (done.returncode, done.stderr) == (1, "")
    compared, _, skipped = done.stdout.partition("Skipped rows")
    assert "64x64x64" in compared
    assert skipped.splitlines()[-1].split(maxsplit=3) == [
        "t4",
        "64x32x8",
        "fp16",
        "operator 'conv_fwd' is not predicted",
    ]


def test_a_table_without_counters_is_refused(tmp_path: Path, command: RunGpusim) -> None:
    path = with_counters(tmp_path, "t4,gemm,1,64,64,64,fp16,dense,5,profiler,cold,50")
    path.write_text(path.read_text(encoding="utf-8").replace("lts__t", "own"), encoding="utf-8")
    assert f"{path}:1: no counters" in refused(command("counters", path))


def test_counters_of_a_gpu_without_a_spec_are_refused(ncu: Path, command: RunGpusim) -> None:
    count(load_suite(str(ncu / "suite.yaml")), Identity("NVIDIA Unheard Of", 1, ()), ncu / "counters.csv")
    line = refused(command("counters", ncu / "counters.csv"))
    assert f"{ncu / 'counters.csv'}:2: gpu: unheard-of: unknown GPU; " in line
    assert "--arch" in line
