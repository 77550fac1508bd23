"""How a sweep scales over the workers of a Dask cluster on this machine; writes a section of docs/clusters.md.

    python benchmarks/cluster_speed.py [--shapes 1000000] [--workers 1 2 4 8]

Scheduler and workers are processes of their own. Estimates of random GEMMs are swept over each number of workers, then
again while a worker is killed, and tasks that do nothing show what a task costs. The times of all sweeps must be equal.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import operator
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
from distributed.deploy.subprocess import SubprocessCluster
from provenance import ROOT, commit, describe, machine
from sections import replaced, row

import gpusim
from gpusim.execution.column_sweep import ROWS_ON_CLUSTER
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.units import MIB

PAGE = ROOT / "docs" / "clusters.md"
SECTION = "scaling"
GPU = "A100-SXM4-80GB"
SMALLEST, LARGEST = 16, 16384
EMPTY_TASKS = 2_000
KILLED_AT = 0.4
"""Share of the time of an undisturbed sweep after which a worker is killed."""
MANY_WORKERS = 100


@dataclass(frozen=True, slots=True)
class Used:
    """What processes have used until now."""

    wall_s: float
    command_s: float
    """CPU time of this process [s]."""
    scheduler_s: float
    workers_s: float
    loopback_bytes: int

    def since(self, before: Used) -> Used:
        """What they used from another time on."""
        return Used(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))


class LocalProcesses:
    """A scheduler and workers as processes of this machine."""

    def __init__(self, cluster: Any) -> None:
        self.address: str = cluster.scheduler_address
        self._scheduler = psutil.Process(cluster.scheduler.process.pid)
        self._workers = [psutil.Process(one.process.pid) for one in cluster.workers.values()]

    def used(self) -> Used:
        """What they have used."""
        counters = psutil.net_io_counters(pernic=True)
        loopback = counters.get("lo") or counters["lo0"]
        workers = sum(_cpu_s(one) for one in self._workers if one.is_running())
        return Used(time.perf_counter(), time.process_time(), _cpu_s(self._scheduler), workers, loopback.bytes_sent)

    def kill_one(self) -> None:
        """End a worker at once."""
        self._workers[0].kill()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def processes(workers: int) -> Iterator[LocalProcesses]:
    """A scheduler and so many workers for the duration of a ``with`` block."""
    with SubprocessCluster(
        host="127.0.0.1",
        n_workers=workers,
        threads_per_worker=1,
        worker_class="distributed.Worker",
        dashboard_address=None,
        scheduler_kwargs={"dashboard": False},
        worker_kwargs={"dashboard": False, "memory_limit": 0},
    ) as cluster:
        yield LocalProcesses(cluster)


def random_sizes(count: int) -> dict[str, Any]:
    """Sizes of GEMMs, log-uniform; seven in ten are multiples of 8."""
    draw = np.random.default_rng(1)
    low, high = math.log(SMALLEST), math.log(LARGEST)
    aligned = draw.random(count) < 0.7
    sizes = {name: np.exp(draw.uniform(low, high, count)).astype(int) for name in "mnk"}
    return {name: np.where(aligned, size // 8 * 8, size) for name, size in sizes.items()}


def swept(sizes: Mapping[str, Any], address: str) -> str:
    """Sweep on a cluster; a hash of all times."""
    found = gpusim.sweep(sizes, arch=GPU, detail="estimate", cluster=address, progress=False)
    return hashlib.sha256(found["time_us"].tobytes()).hexdigest()


def cost_of_a_task(cluster: LocalProcesses) -> Used:
    """What tasks use that do nothing, all of them together."""
    service = Service(cluster=cluster.address)
    before = cluster.used()
    with service.executor((), EMPTY_TASKS) as executor:
        before = cluster.used()
        _ = list(executor.run(operator.is_, range(EMPTY_TASKS)))
        return cluster.used().since(before)


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description="How a sweep scales over the workers of a Dask cluster.")
    parser.add_argument("--shapes", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    asked = parser.parse_args()
    where = f"{describe(machine())}; {datetime.now(UTC):%Y-%m-%d}, {commit()}"
    sizes, few = random_sizes(asked.shapes), random_sizes(2 * ROWS_ON_CLUSTER)
    found: dict[int, Used] = {}
    hashes = set()
    for workers in asked.workers:
        with processes(workers) as cluster:
            _ = swept(few, cluster.address)  # imports, tables of kernels, machine code
            before = cluster.used()
            hashes.add(swept(sizes, cluster.address))
            found[workers] = cluster.used().since(before)
            print(f"{workers} workers: {found[workers]}", flush=True)
    with processes(2) as cluster:
        _ = swept(few, cluster.address)
        empty = cost_of_a_task(cluster)
        alone = found.get(2) or found[asked.workers[-1]]
        threading.Timer(KILLED_AT * alone.wall_s, cluster.kill_one).start()
        began = time.perf_counter()
        hashes.add(swept(sizes, cluster.address))
        lost_s = time.perf_counter() - began
    if len(hashes) > 1:
        raise SystemExit("cluster_speed: the sweeps differ")
    section = scaling(asked.shapes, found, empty, lost_s, where)
    print(section)
    PAGE.write_text(replaced(PAGE, {SECTION: section}), encoding="utf-8")


def scaling(shapes: int, found: Mapping[int, Used], empty: Used, lost_s: float, where: str) -> str:
    """The section: a table of what was measured, and what it says of many workers."""
    names = ("workers", "wall time", "shapes/s", "CPU: workers", "scheduler", "command", "moved")
    lines = [row(names), row(["---:"] * len(names))]
    for workers, used in found.items():
        seconds = (f"{one:.1f} s" for one in (used.workers_s, used.scheduler_s, used.command_s))
        moved = f"{used.loopback_bytes / MIB:,.0f} MiB"
        rate = f"{shapes / used.wall_s:,.0f}"
        lines.append(row([f"{workers}", f"{used.wall_s:.1f} s", rate, *seconds, moved]))
    tasks, first = -(-shapes // ROWS_ON_CLUSTER), found[min(found)]
    worker_s, command_s = first.workers_s / tasks, first.command_s
    wall_ms, scheduler_ms, command_ms = (
        1e3 * one / EMPTY_TASKS for one in (empty.wall_s, empty.scheduler_s, empty.command_s)
    )
    rounds, scheduler_s = -(-tasks // MANY_WORKERS), tasks * scheduler_ms / 1e3
    times = {"workers": rounds * worker_s, "scheduler": scheduler_s, "command": command_s}
    binds = max(times, key=times.__getitem__)
    enough = math.ceil(tasks * worker_s / max(command_s, scheduler_s))
    paragraphs = (
        (
            f"{shapes:,} random GEMMs on one {GPU}, detail `estimate`, in {tasks:,} tasks of {ROWS_ON_CLUSTER:,}. The"
            f" machine has {available_cores()} cores, which scheduler, workers and command share. The times of all"
            " sweeps are equal to the bit."
        ),
        (
            f"A task that does nothing takes {wall_ms:.2f} ms of wall time on two workers, {scheduler_ms:.2f} ms of the"
            f" scheduler's CPU and {command_ms:.2f} ms of the command's. A task of this sweep takes a worker"
            f" {1e3 * worker_s:.0f} ms. With one of two workers killed after {KILLED_AT:.0%} of the time the sweep took"
            f" {lost_s:.1f} s."
        ),
        (
            "A sweep takes the longest of three times: of the workers (tasks over workers, rounded up, times the time"
            " of a task), of the scheduler, and of the command, each of which handles all tasks one after the other."
            f" {MANY_WORKERS} workers would take {rounds} x {1e3 * worker_s:.0f} ms = {times['workers']:.1f} s, the"
            f" scheduler {scheduler_s:.1f} s and the command {command_s:.1f} s: {shapes / times[binds]:,.0f} shapes/s,"
            f" limited by the {binds}. From {enough} workers on, more do not help."
        ),
        f"Measured with `python benchmarks/cluster_speed.py` on {where}.",
    )
    return "\n".join([*lines, *(f"\n{paragraph}" for paragraph in paragraphs), ""])


if __name__ == "__main__":
    main()
