"""Speed of a sweep over random shapes on worker processes; JSON on standard output.

    python benchmarks/sweep_speed.py --shapes 10000 --jobs 2

Detail ``sampled`` gives a result for each shape, ``estimate`` columns, as :func:`gpusim.sweep` does.
The results of a sample are compared byte for byte with those of one prediction at a time in this process, and a hash
of the times of all shapes is printed, for comparison with another run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibration import loop_seconds, warm_up
from comparison import Measured, Metric, Results
from shapes import DTYPES, random_shapes

import gpusim
from gpusim.execution.cases import Case, OperatorCase, OperatorWorkload
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_one, sweep
from gpusim.prediction.options import Options
from gpusim.prediction.results import Result, field_kinds, values_of
from gpusim.specs import load_spec
from gpusim.units import MIB
from gpusim.workloads.gemm import Gemm

LOOPS = 5
GIVEN = ("arch", "m", "n", "k", "dtype")
FIGURES = [name for name, kind in field_kinds().items() if kind in (int, float, bool, str) and name not in GIVEN]
"""Columns that a sweep adds to those given."""
PROCESSES = {"parent": resource.RUSAGE_SELF, "largest worker": resource.RUSAGE_CHILDREN}
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ``ru_maxrss``."""


@dataclass(frozen=True, slots=True)
class Swept:
    """A sweep: what it took, and what remains of its results."""

    wall_seconds: float
    cpu_seconds: float
    """CPU time of this process and its workers [s]."""
    kernel_times_us: tuple[float, ...]
    """Times of all cases, in their order [µs]."""
    sample: dict[int, bytes]
    """Whole results, by the number of the case."""


def main() -> None:
    """Sweep, compare, and print the metrics."""
    parser = argparse.ArgumentParser(description="How fast a sweep is.")
    parser.add_argument("--shapes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--detail", choices=("estimate", "sampled"), default="sampled")
    parser.add_argument("--sample", type=int, default=500, help="shapes to predict one at a time, too")
    asked = parser.parse_args()
    systems = {gpu: load_spec(gpu).system for gpu in DTYPES}
    options = Options(asked.detail)
    shapes = list(random_shapes(asked.shapes, asked.seed))
    cases = [Case(systems[gpu], OperatorWorkload(gemm, options)) for gpu, gemm in shapes]
    sampled = range(0, len(cases), max(1, len(cases) // asked.sample))
    warm_up()
    loops = [loop_seconds() for _ in range(LOOPS)]
    if asked.detail == "estimate":
        swept = run_in_columns(shapes, asked.jobs, sampled)
    else:
        swept = run(cases, Service(asked.jobs), sampled)
    memory = {who: resource.getrusage(of).ru_maxrss * MAXRSS_BYTES for who, of in PROCESSES.items()}
    loops += [loop_seconds() for _ in range(LOOPS)]
    of = figures if asked.detail == "estimate" else whole
    differing = sum(swept.sample[number] != of(predict_one(cases[number])) for number in sampled)
    sha256 = hashlib.sha256(json.dumps(swept.kernel_times_us).encode()).hexdigest()
    metrics = metrics_of(swept, statistics.median(loops), memory, asked.jobs)
    if asked.detail != "sampled":
        metrics = tuple(replace(one, name=f"{asked.detail}: {one.name}") for one in metrics)
    print(Measured(metrics, Results(len(sampled), differing, sha256, asked.detail)).json())


def run(cases: Sequence[OperatorCase], service: Service, sampled: Sequence[int]) -> Swept:
    """Predict all cases; keep whole results of the sampled ones only."""
    times = [0.0] * len(cases)
    sample = {}
    wall, cpu = time.perf_counter(), cpu_seconds_of_all()
    for number, case_result in sweep(cases, service):
        if case_result.result is None:
            sys.exit(f"sweep_speed: {cases[number]}: {case_result.reason}")
        times[number] = case_result.result.kernel_time_us
        if number in sampled:
            sample[number] = whole(case_result.result)
    return Swept(time.perf_counter() - wall, cpu_seconds_of_all() - cpu, tuple(times), sample)


def run_in_columns(shapes: Sequence[tuple[str, Gemm]], jobs: int, sampled: Sequence[int]) -> Swept:
    """Estimate all shapes; keep the figures of the sampled ones only."""
    columns: dict[str, Any] = {name: [getattr(gemm, name) for _, gemm in shapes] for name in GIVEN[1:]}
    columns["arch"] = [gpu for gpu, _ in shapes]
    wall, cpu = time.perf_counter(), cpu_seconds_of_all()
    found = gpusim.sweep(columns, detail="estimate", jobs=jobs, progress=False)
    taken = time.perf_counter() - wall, cpu_seconds_of_all() - cpu
    rows = {number: {name: found[name][number].item() for name in FIGURES} for number in sampled}
    sample = {number: json.dumps(row).encode() for number, row in rows.items()}
    return Swept(*taken, tuple(found["kernel_time_us"].tolist()), sample)


def figures(result: Result) -> bytes:
    """The figures and texts of a result."""
    values = values_of(result)
    return json.dumps({name: values[name] for name in FIGURES}).encode()


def cpu_seconds_of_all() -> float:
    """CPU time of this process and of its children that have ended [s]."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def whole(result: Result | None) -> bytes:
    """All fields of a result."""
    return b"" if result is None else json.dumps(result.as_dict()).encode()


def metrics_of(swept: Swept, loop: float, memory: Mapping[str, int], jobs: int) -> tuple[Metric, ...]:
    """Rate, CPU time a shape, and memory."""
    shapes = len(swept.kernel_times_us)
    of = f"{shapes:,} shapes"
    each = swept.cpu_seconds / shapes
    return (
        Metric(f"sweep, {jobs} workers: {of}", shapes / swept.wall_seconds, "shapes/s"),
        Metric(f"sweep, CPU time of a shape: {of}", 1e3 * each, "ms", each / loop),
        *(
            Metric(f"sweep, peak memory of the {who}: {of}", size / MIB, "MiB", size / MIB)
            for who, size in memory.items()
        ),
    )


if __name__ == "__main__":
    main()
