"""Shared fixtures: the program as a process or in this one, boards, measured tables."""

from __future__ import annotations

import csv
import gc
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from gpusim.__main__ import NEW_OBJECTS
from gpusim.cli import run_cli
from gpusim.experiment.definition import Experiment
from gpusim.experiment.loading import load_experiment
from gpusim.library.catalogue import Kernel
from gpusim.prediction.selection import considered, multiplies, refusals
from gpusim.sim.drivers.code_folder import is_kept
from gpusim.specs import Spec, load_spec
from gpusim.specs.registry import _said
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

pytest_plugins = ("browser_pages", "served")
TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parent
MEASURED_VARIABLE = "GPUSIM_MEASURED"
MACHINE_CODE = is_kept()
"""Whether `gpusim cache compile` came first, as in `make test`."""

MEASURED_HEADER = (
    "gpu,op,batch,m,n,k,dtype,acc_dtype,layout,sparsity,time_us,method,l2,"
    "kernel,threads,tile_m,tile_n,grid_x,grid_y,grid_z,source"
)

RunGpusim = Callable[..., subprocess.CompletedProcess[str]]
WriteRuns = Callable[[Sequence[str]], Path]
WriteExperiment = Callable[[str], str]
LoadExperiment = Callable[[str], Experiment]

# `nohup` and a shell's `&` leave these ignored, and children inherit that: with a handler, they get the default.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# One core for each process of pytest: commands start one of theirs per core, and several libraries a thread.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if _WORKER and hasattr(os, "sched_setaffinity"):
    _cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_cores[int(_WORKER.removeprefix("gw")) % len(_cores)]})

# Nothing that collection makes is garbage. The garbage collector starts after it, passes over all that there is then,
# and searches as seldom as in the program.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


# The same examples everywhere, however busy the machine; `make fuzz` draws others.
settings.register_profile("gpusim", derandomize=True, deadline=None)
settings.load_profile("gpusim")


def environment(*folders: Path) -> dict[str, str]:
    """The environment of a child process: this checkout, whatever is installed, and modules of these folders."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, *folders))),
        "COLUMNS": "200",
        "GPUSIM_PROGRESS": "off",
    }


@contextmanager
def process_group(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program in a process group of its own, as a terminal starts it; none of it outlives the ``with`` block."""
    with subprocess.Popen(
        [sys.executable, "-m", "gpusim", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _own_simulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with the compiled driver, which gives the outcomes of the reference driver to the bit, faster.

    ``tests/machine/test_drivers.py`` compares the two. Processes that a test starts choose for themselves; workers for
    the few small cases of ``tests/execution`` would take longer to load machine code.
    """
    compiled = MACHINE_CODE and request.path.parent != TESTS / "execution"
    monkeypatch.setattr("gpusim.sim.drivers.choice._Preference.compiled", compiled)
    monkeypatch.setattr("gpusim.sim.drivers.choice._Preference.reference_s", 0.0)


@pytest.fixture
def reference_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """For workers with a few small cases each, as in ``tests/execution``."""
    monkeypatch.setattr("gpusim.sim.drivers.choice._Preference.compiled", False)


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lines of progress, which come on a busy machine only; processes of their own print none either."""
    monkeypatch.setattr("gpusim.progress.LINE_EVERY_S", math.inf)


@pytest.fixture(autouse=True)
def _own_notes() -> None:
    """Each test reads which boards short names select, which a process says once."""
    _said.clear()


@pytest.fixture(scope="session", autouse=True)
def _defects_are_raised() -> Iterator[None]:
    """Let a defect of gpusim fail its test, in processes that are started too, where a user gets one line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUSIM_TRACEBACK", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _store_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remember simulated launches where no user's are, in one place for all processes of pytest."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if _WORKER else own) / "launches"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUSIM_CACHE", str(folder))
        yield


@pytest.fixture
def gpusim(tmp_path: Path) -> RunGpusim:
    """Run ``python -m gpusim`` in an empty folder."""

    def run(*arguments: str | Path, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command: Sequence[str] = [sys.executable, "-m", "gpusim", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(), check=False)

    return run


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunGpusim:
    """Run a command in this process, in an empty folder; for tests that do not need a process of their own."""

    def run(*arguments: str | Path, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        status = run_cli([*map(str, arguments)])
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, out, err)

    return run


@pytest.fixture
def write_runs(tmp_path: Path) -> WriteRuns:
    """Write a measured table of such lines as :func:`measured_line` gives."""

    def write(lines: Sequence[str]) -> Path:
        path = tmp_path / "runs.csv"
        path.write_text("\n".join([MEASURED_HEADER, *lines]) + "\n", encoding="utf-8")
        return path

    return write


def measured_line(shape: tuple[int, int, int], time_us: float, **other: str) -> str:
    """One line of a measured table: a T4's FP16, timed in a graph, unless values are given."""
    values = dict.fromkeys(MEASURED_HEADER.split(","), "")
    values |= {"gpu": "t4", "op": "linear", "batch": "1", "dtype": "fp16", "layout": "tn", "sparsity": "dense"}
    values |= {"method": "graph", "l2": "warm", "source": "made up", "time_us": repr(time_us)}
    values |= dict(zip("mnk", map(str, shape), strict=True)) | other
    return ",".join(values.values())


@cache
def shipped_spec(name: str) -> Spec:
    """A shipped board. Nothing in it can change: it is loaded once."""
    return load_spec(name)


@cache
def unfitted_spec(name: str) -> Spec:
    """A board with values of datasheets, microbenchmarks and assumptions, without the fit to timings."""
    fitted = [path for path in shipped_spec(name).files if path.stem.endswith("_fitted")]
    return load_spec(name, without=fitted[0] if fitted else None)


def unfitted(name: str) -> System:
    """The system of :func:`unfitted_spec`."""
    return unfitted_spec(name).system


def with_gpu(system: System, **parts: object) -> System:
    """A system with other parts of its GPU."""
    return replace(system, gpu=system.gpu.model_copy(update=parts))


def suited(arch: System, gemm: Gemm) -> tuple[Kernel, ...]:
    """A board's kernels that a library considers for a product; those for vectors among them."""
    known = arch.library.kernels
    multiplying = [one for one in known if multiplies(arch.gpu, gemm, one)]
    return considered([one for one in multiplying if not refusals(gemm, one)], multiplying)


def golden_rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of ``golden/``, without its comments."""
    lines = (TESTS / "golden" / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@pytest.fixture(scope="session")
def t4() -> System:
    """The shipped T4."""
    return load_spec("t4").system


@pytest.fixture
def write(tmp_path: Path) -> WriteExperiment:
    """Write the text of an experiment to a file, whose path is returned."""

    def written(text: str) -> str:
        path = tmp_path / "small.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


@pytest.fixture
def load(write: WriteExperiment) -> LoadExperiment:
    """Load an experiment by its text."""
    return lambda text: load_experiment(write(text))


@pytest.fixture(scope="session")
def measured_folder() -> Path:
    """The folder of measured tables (``validate/``, ``calibrate/``)."""
    folder = Path(os.environ.get(MEASURED_VARIABLE, REPOSITORY.parent / "shared" / "measured"))
    if not folder.is_dir():
        pytest.skip(f"no measured tables: {MEASURED_VARIABLE} names no folder and none lies beside the checkout")
    return folder


def complaints(process: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines on standard error that do not name a written file."""
    return [line for line in process.stderr.splitlines() if not line.startswith("gpusim: wrote ")]


def refused(process: subprocess.CompletedProcess[str]) -> str:
    """The one line with which the program refused wrong input."""
    assert process.returncode == 2, (process.stdout, process.stderr)
    assert process.stdout == ""
    assert "Traceback" not in process.stderr
    lines = process.stderr.splitlines()
    assert len(lines) == 1, process.stderr
    return lines[0]
