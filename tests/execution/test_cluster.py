"""Predictions on a Dask cluster: the same bytes as without one, and one clear line where it fails."""

from __future__ import annotations

import gc
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import interrupts
import kills
import pytest
from cluster_processes import FOLDERS, START_S, Processes, processes
from conftest import REPOSITORY, RunGpusim, WriteRuns, environment, measured_line, process_group, refused
from worker_tasks import divide, end, length, sleep

from gpusim import execution
from gpusim.execution.service import Service
from gpusim.execution.workers import WorkerLostError
from gpusim.experiment.loading import open_experiment
from gpusim.studies import experiments
from gpusim.studies.columns import sweep

pytest.importorskip("distributed")
from dask import config
from distributed import Client, Security

from gpusim.execution import cluster as dask

EXPERIMENT = """\
title: On a cluster
gpus: [T4, A100-SXM4-40GB]
dtypes: [fp16]
gemms: [{square: '64:4096:64'}]
detail: bound
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A scheduler with two workers."""
    with processes(tmp_path_factory.mktemp("dask"), workers=2) as started:
        yield started


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Processes]:
    """A scheduler for a test to end, or to give workers to."""
    with processes(tmp_path / "dask", 0, {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}) as started:
        yield started


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


def run(experiment: Path, out: Path, service: Service, then: Callable[[], None] = lambda: None, after: int = 1) -> Any:
    """Run an experiment; call a function once there are so many results."""
    steps = [then]

    def progress(done: int, _total: int) -> None:
        if done >= after and steps:
            steps.pop()()

    return experiments.run(open_experiment(str(experiment), [], ()), out, service=service, progress=progress)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_writes_the_same_bytes_though_a_worker_is_killed(
    mortal: Processes, experiment: Path, tmp_path: Path
) -> None:
    mortal.start_worker()
    mortal.start_worker()
    mortal.wait_for_workers(2)
    _ = run(experiment, tmp_path / "cluster", Service(cluster=mortal.address), mortal.workers[0].kill)
    _ = run(experiment, tmp_path / "inline", Service())
    assert mortal.workers[0].wait(10) == -signal.SIGKILL
    assert files_in(tmp_path / "cluster") == files_in(tmp_path / "inline")


def test_what_was_finished_before_the_scheduler_was_killed_is_kept(
    mortal: Processes, experiment: Path, tmp_path: Path
) -> None:
    mortal.start_worker()
    assert mortal.scheduler
    with pytest.raises(WorkerLostError, match=f"^{mortal.address}: the connection to the scheduler was lost; run it"):
        run(experiment, tmp_path / "out", Service(cluster=mortal.address), mortal.scheduler.kill)
    finished = run(experiment, tmp_path / "out", Service())
    assert finished.resumed >= 1
    _ = run(experiment, tmp_path / "inline", Service())
    assert files_in(tmp_path / "out") == files_in(tmp_path / "inline")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_scheduler_that_ends_is_an_error_at_once(mortal: Processes, number: signal.Signals) -> None:
    mortal.start_worker()
    assert mortal.scheduler
    with on(mortal) as executor:
        answers = executor.run(sleep, [0.01] * 1000)
        assert next(answers)
        mortal.scheduler.send_signal(number)
        with pytest.raises(WorkerLostError, match="connection to the scheduler was lost"):
            _ = list(answers)


def on(started: Processes, context: Any = None) -> Any:
    return Service(cluster=started.address).executor(context, tasks=1)


def test_tasks_are_answered_once_each_with_the_context_whatever_their_size(running: Processes) -> None:
    with on(running, b"x" * 2**21) as executor:
        tasks = [b"y" * size for size in (0, 500, 10_000, 2**20)]
        assert dict(executor.run(length, tasks)) == {index: 2**21 + len(task) for index, task in enumerate(tasks)}
        assert list(executor.run(length, [])) == []


def test_an_error_of_a_task_is_raised_here_with_its_traceback_and_the_rest_is_cancelled(running: Processes) -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught, on(running, 1) as executor:
        _ = list(executor.run(divide, [1, 0, *range(1, 300)]))
    assert "return number / by" in "".join(caught.value.__notes__)
    assert tasks_of(running) == 0


def tasks_of(started: Processes) -> int:
    """Tasks that a scheduler knows, as soon as those that are running have ended."""

    def count(dask_scheduler: Any) -> int:
        return len(dask_scheduler.tasks)

    deadline = time.monotonic() + 10
    with Client(started.address, set_as_default=False) as client:
        while (left := client.run_on_scheduler(count)) and time.monotonic() < deadline:
            time.sleep(0.1)
    return int(left)


def test_tasks_are_drawn_only_so_far_ahead_of_their_answers(
    running: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "AHEAD", 16)
    tasks = itertools.count(1)
    with on(running, 1) as executor:
        for answered, _ in enumerate(itertools.islice(executor.run(divide, tasks), 100)):
            assert next(copy(tasks)) <= answered + 17


def test_fewer_tasks_are_sent_when_workers_have_gone(running: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "AHEAD", 1)
    with on(running, 1) as executor:
        executor._threads = 25
        answers = executor.run(divide, [1] * 200)
        assert next(answers)
        executor._threads = 1
        assert len(list(answers)) == 199


def test_a_task_that_ends_every_worker_is_one_error(mortal: Processes) -> None:
    mortal.start_worker()
    mortal.start_worker()
    with on(mortal) as executor, pytest.raises(WorkerLostError, match="a task ended 2 workers, the last on 127"):
        _ = list(executor.run(end, [1]))


def test_workers_may_come_later_and_all_go_and_come_again(mortal: Processes) -> None:
    threading.Timer(1.0, mortal.start_worker).start()
    with on(mortal, 12) as executor:
        assert list(executor.run(divide, [3])) == [(0, 4.0)]
        mortal.workers[0].kill()
        _ = mortal.workers[0].wait()
        mortal.start_worker()
        assert list(executor.run(divide, [3])) == [(0, 4.0)]  # the context is made again


def test_a_cluster_without_workers_is_refused_after_a_stated_time(
    mortal: Processes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dask, "WORKERS_S", 1.0)
    monkeypatch.setattr(dask, "LOOK_S", 0.1)
    with pytest.raises(dask.ClusterError, match="no worker has connected to the scheduler within 1 s; start"):
        on(mortal).__enter__()
    assert caplog.messages == [f"{mortal.address}: no workers yet; waiting up to 1 s"]


def test_a_run_ends_when_all_workers_have_ended_and_none_comes(
    mortal: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "LOOK_S", 0.2)
    mortal.start_worker()
    with on(mortal) as executor:
        executor._within_s = 1.0
        answers = executor.run(sleep, [0.01] * 100)
        assert next(answers)
        mortal.workers[0].kill()
        with pytest.raises(WorkerLostError, match="all workers have ended, and none joined for 1 s"):
            _ = list(answers)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("scheduler", "cluster 'scheduler': expected tcp://HOST:PORT of a Dask scheduler, or local"),
        ("scheduler:8786", "cluster 'scheduler:8786': expected tcp"),
        ("http://127.0.0.1:8787", "expected tcp"),
        ("tcp://127.0.0.1:99999", "Port out of range"),
        ("tcp://127.0.0.1:1", "no Dask scheduler can be reached (Connection refused); check its host, port and TLS"),
        ("tcp://no-such-host.invalid:8786", "tcp://no-such-host.invalid:8786: no Dask scheduler can be reached ("),
        ("tls://127.0.0.1:1", "no Dask scheduler can be reached ("),
    ],
)
def test_a_wrong_address_is_refused_in_one_line(
    address: str, reason: str, command: RunGpusim, experiment: Path, tmp_path: Path
) -> None:
    assert reason in refused(command("run", experiment, "--cluster", address, "-o", "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("greeting", "reason"), [(b"", "timed out"), (b"SSH-2.0-OpenSSH_9.6\r\n", "another service")])
def test_a_server_that_is_not_a_scheduler_is_refused(
    greeting: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            connection.sendall(greeting)
            with connection, suppress(OSError):
                _ = connection.recv(1)

        threading.Thread(target=greet).start()
        with pytest.raises(dask.ClusterError, match=reason):
            Service(cluster=f"tcp://127.0.0.1:{server.getsockname()[1]}").executor(None, 1).__enter__()


def test_a_worker_in_place_of_the_scheduler_is_refused(running: Processes) -> None:
    running.wait_for_workers(1)
    worker = re.findall(r"Start worker at: +(\S+)", running.log())[0]
    with pytest.raises(dask.ClusterError, match="no Dask scheduler can be reached"):
        Service(cluster=worker).executor(None, 1).__enter__()


def test_a_scheduler_with_tls_is_used_and_its_address_without_tls_is_refused(
    mortal: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Security.temporary().get_tls_config_for_role("client")
    for name in ("ca_file", "cert", "key"):
        (tmp_path / name).write_text(made[name], encoding="utf-8")
    keys = {"distributed.comm.tls.ca-file": str(tmp_path / "ca_file")}
    for role, what in itertools.product(("scheduler", "worker", "client"), ("cert", "key")):
        keys[f"distributed.comm.tls.{role}.{what}"] = str(tmp_path / what)
    variables = {f"DASK_{key.replace('.', '__').replace('-', '_').upper()}": path for key, path in keys.items()}
    mortal.kill()
    mortal.start_scheduler({**variables, "DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": "tls"})
    assert mortal.address.startswith("tls://")
    mortal.start_worker(variables)
    with config.set(keys), on(mortal, 12) as executor:
        assert list(executor.run(divide, [3])) == [(0, 4.0)]
    with pytest.raises(dask.ClusterError, match=r"no Dask scheduler can be reached .*; check its host, port and TLS"):
        on(mortal).__enter__()
    monkeypatch.setattr(dask, "CONNECT_S", 0.5)
    mortal.address = mortal.address.replace("tls", "tcp")
    with pytest.raises(dask.ClusterError, match=r"no Dask scheduler can be reached .*; check its host, port and TLS"):
        on(mortal).__enter__()


def test_a_client_that_cannot_start_or_close_leaves_nothing_to_the_garbage_collector(
    mortal: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "CLOSE_S", 0.5)
    assert mortal.scheduler
    gc.collect()
    gc.disable()
    try:
        known = {id(client) for client in _clients()}
        tls = f"tls://{mortal.address.removeprefix('tcp://')}"
        with pytest.raises(dask.ClusterError, match="no Dask scheduler can be reached"):
            Service(cluster=tls).executor(None, tasks=1).__enter__()
        mortal.start_worker()
        with on(mortal):
            mortal.scheduler.send_signal(signal.SIGSTOP)
        left = [client.status for client in _clients() if id(client) not in known]
        assert left
        assert set(left) == {"closed"}
    finally:
        gc.enable()


def _clients() -> list[Client]:
    return [one for one in gc.get_objects() if issubclass(type(one), Client)]


def test_a_worker_that_answers_nothing_is_one_error_after_a_stated_time(
    mortal: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "ANSWER_S", 0.5)
    mortal.start_worker()
    mortal.wait_for_workers(1)
    mortal.workers[0].send_signal(signal.SIGSTOP)
    with pytest.raises(WorkerLostError, match=r"no answer within 0.5 s; look into the logs of the scheduler and its"):
        on(mortal).__enter__()


@pytest.fixture
def without_gpusim(tmp_path: Path) -> dict[str, str]:
    """Variables of a process that has no gpusim."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys; sys.modules['gpusim'] = None", encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def with_another(tmp_path: Path) -> dict[str, str]:
    """Variables of a process that has a gpusim with another model."""
    package = tmp_path / "another" / "gpusim"
    package.mkdir(parents=True)
    for path in (REPOSITORY / "gpusim").iterdir():
        (package / path.name).symlink_to(path)
    (package / "version.py").unlink()
    (package / "version.py").write_text("__version__, MODEL_VERSION = '0.0.9', 0", encoding="utf-8")
    (package.parent / "arch_specs").symlink_to(REPOSITORY / "arch_specs")
    return {"PYTHONPATH": os.pathsep.join(map(str, (package.parent, *FOLDERS)))}


def test_workers_with_other_versions_are_refused_before_the_first_task(
    mortal: Processes, with_another: dict[str, str], without_gpusim: dict[str, str]
) -> None:
    mortal.start_worker(with_another)
    mortal.start_worker(without_gpusim)
    mortal.wait_for_workers(2)
    with pytest.raises(dask.ClusterError) as refusal:
        on(mortal).__enter__()
    assert re.fullmatch(
        f"{mortal.address}: gpusim 0.0.9, model version 0 on 127.0.0.1; no gpusim, no model version on 127.0.0.1; "
        r"install gpusim \S+, model version \d+, Python 3.\d+, distributed \S+",
        str(refusal.value),
    )


def test_a_scheduler_without_the_program_is_refused(mortal: Processes, without_gpusim: dict[str, str]) -> None:
    mortal.kill()
    mortal.start_scheduler(without_gpusim)
    with pytest.raises(dask.ClusterError, match="no gpusim, no model version on the scheduler; install"):
        on(mortal).__enter__()


def test_a_worker_with_other_versions_that_comes_later_answers_nothing(
    mortal: Processes, with_another: dict[str, str]
) -> None:
    mortal.start_worker()
    with on(mortal) as executor:
        mortal.start_worker(with_another)
        with pytest.raises(WorkerLostError, match=r"^gpusim 0\.0\.9, model version 0, .* on .*; install gpusim"):
            _ = list(executor.run(sleep, [0.05] * 2000))


def test_a_validation_on_a_cluster_reports_the_same(
    running: Processes, command: RunGpusim, write_runs: WriteRuns
) -> None:
    table = write_runs([measured_line((m, 512, 1024), m / 8) for m in range(64, 2048, 64)])
    reports = []
    for where in (["--cluster", running.address], ["--jobs", "1"]):
        done = command("validate", table, "--format", "json", *where)
        assert done.returncode == 0
        assert done.stderr.startswith("gpusim: not stated: load of 31 rows (taken as burst)")
        reports.append((done.stderr, re.sub(r'"seconds": [\d.e-]+', "", done.stdout)))
    assert reports[0] == reports[1]


def test_a_local_cluster_listens_only_on_the_loopback_interface_and_shows_no_page() -> None:
    psutil = pytest.importorskip("psutil")
    others = psutil.Process().children(recursive=True)
    with Service(jobs=1, cluster="local").executor(12, 1) as executor:
        assert list(executor.run(divide, [3])) == [(0, 4.0)]
        family = {psutil.Process(), *psutil.Process().children(recursive=True)}.difference(others)
        listening = [
            connection.laddr
            for process in family
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert {place.ip for place in listening} == {"127.0.0.1"}
        for place in listening:
            with socket.create_connection(place, timeout=5) as connection:
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                with suppress(OSError):  # a port with TLS hangs up
                    assert connection.recv(100)[:12] in (b"HTTP/1.1 404", b"")


def test_columns_predicted_on_a_local_cluster_are_the_same() -> None:
    columns = {"m": [64, 256, 4096], "n": [512, 512, 512]}
    there = sweep(columns, arch="t4", k=1024, cluster="local")
    here = sweep(columns, arch="t4", k=1024)
    assert all((there[name] == here[name]).all() for name in ("time_us", "cycles", "kernel"))


@pytest.mark.parametrize("local", [True, False])
def test_ctrl_c_ends_a_run_on_a_cluster_without_a_word(local: bool, running: Processes, tmp_path: Path) -> None:
    experiment = tmp_path / "long.yaml"
    experiment.write_text(EXPERIMENT.replace("4096", "65536"), encoding="utf-8")
    arguments = ["run", str(experiment), "-o", str(tmp_path / "out"), "--jobs", "2"]
    with process_group(*arguments, "--cluster", "local" if local else running.address) as process:
        wait_for_records(tmp_path / "out")
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, b"", b"")
    assert time.monotonic() - began < 30
    assert tasks_of(running) == 0
    assert interrupts.all_gone(process.pid)


def wait_for_records(out: Path) -> None:
    """Wait for the journal of a run."""
    deadline = time.monotonic() + 4 * START_S
    while not any(path.stat().st_size for path in out.glob("*.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_without_dask_the_option_names_what_to_install(
    command: RunGpusim, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(execution, "cluster")
    monkeypatch.delitem(sys.modules, "gpusim.execution.cluster")
    monkeypatch.setitem(sys.modules, "distributed", None)
    line = refused(command("run", experiment, "--cluster", "local", "-o", "out"))
    assert line == "gpusim: a cluster needs distributed; pip install 'gpusim[cluster]'"


def test_without_the_option_dask_is_not_imported() -> None:
    predict = "import sys, gpusim; gpusim.sweep({'m': [1]}, arch='t4', n=64, k=64)"
    script = f"{predict}; print({{'dask', 'distributed'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment(), check=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_ten_thousand_cases_are_the_same_though_a_worker_is_killed_and_another_one_comes(
    mortal: Processes, tmp_path: Path
) -> None:
    experiment = kills.experiment_in(tmp_path, 10_000, random.Random(1))

    def lose_one_and_get_another() -> None:
        mortal.workers[0].kill()
        mortal.start_worker()

    mortal.start_worker()
    mortal.start_worker()
    mortal.wait_for_workers(2)
    _ = run(experiment, tmp_path / "cluster", Service(cluster=mortal.address), lose_one_and_get_another, after=3_000)
    assert mortal.workers[0].poll() == -signal.SIGKILL
    _ = run(experiment, tmp_path / "inline", Service())
    assert files_in(tmp_path / "cluster") == files_in(tmp_path / "inline")
