"""Measures how fast gpusim is, and compares it with the baseline.

    python benchmarks/bench.py [--shapes N] [--record] [MEASURED.csv]

Writes benchmarks/results/bench.json and prints each figure beside ``benchmarks/baseline.json``. Every part runs in a
process of its own, without and with the compiled simulator. A part in which something got slower is measured again;
exit status 1 if it is slower both times, or if a result depends on how it was computed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from calibration import loop_seconds, warm_up
from comparison import Figure, better_of, compared, comparison_table, costs
from provenance import BENCH_RESULTS, ROOT, commit, describe, machine, numba_version

HERE = ROOT / "benchmarks"
BASELINE = HERE / "baseline.json"
STARTS = 5
GEMM = ("gemm", "--arch", "A100-SXM4-80GB", "-m", "4096", "-n", "4096", "-k", "4096", "--dtype", "bf16")

Part = Callable[[], list[Figure]]


def main() -> int:
    """Measure, print, compare; exit status 1 for a regression."""
    asked = arguments()
    sweeps: list[dict[str, Any]] = []
    figures: list[Figure] = []
    baseline: dict[str, float] = json.loads(BASELINE.read_bytes())["costs"] if BASELINE.exists() else {}
    for part in parts(asked, sweeps):
        measured = part()
        if not asked.record and any(one.slower for one in compared(measured, baseline)):
            print("bench: slower than the baseline; measuring it again", file=sys.stderr)
            measured = better_of(measured, part())
        figures += measured
    report = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "machine": machine(),
        "compared": sum(sweep["compared"] for sweep in sweeps),
        "differing": sum(sweep["differing"] for sweep in sweeps),
        "figures": {one.name: {"value": one.value, "unit": one.unit, "cost": one.cost} for one in figures},
    }
    write(BENCH_RESULTS, report)
    comparisons = compared(figures, baseline)
    comparison_table(f"gpusim on {describe(report['machine'])}", comparisons).show()
    print(f"\n{report['compared']} results of the sweeps predicted one at a time, {report['differing']} differ")
    wrong = report["differing"] > 0 or len({sweep["sha256"] for sweep in sweeps}) > 1
    if wrong:
        print("bench: results depend on how they were computed", file=sys.stderr)
    if asked.record:
        write(BASELINE, {**{key: report[key] for key in ("date", "commit", "machine")}, "costs": costs(figures)})
        return int(wrong)
    return int(wrong or any(one.slower for one in comparisons))


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description="Measure how fast gpusim is, and compare it with the baseline.")
    parser.add_argument("measured", nargs="?", type=Path, help="measured CSV whose shapes to predict, too")
    parser.add_argument("--shapes", type=int, default=10_000, help="random shapes of the sweep")
    parser.add_argument("--record", action="store_true", help="write the baseline")
    return parser.parse_args()


def parts(asked: argparse.Namespace, sweeps: list[dict[str, Any]]) -> list[Part]:
    """What to measure, with the compiled simulator only where it is installed."""
    modes = {"": "0", "compiled: ": "1"} if numba_version() else {"": "0"}
    found: list[Part] = [cold_start]
    for prefix, compiled in modes.items():
        found.append(partial(one_process, prefix, compiled, [str(asked.measured)] if asked.measured else []))
        found.append(partial(one_sweep, prefix, compiled, asked.shapes, sweeps))
    return found


def one_process(prefix: str, compiled: str, tables: Sequence[str]) -> list[Figure]:
    """The figures of speed.py."""
    return [figure_of(prefix, one) for one in run("speed.py", compiled, tables)]


def one_sweep(prefix: str, compiled: str, shapes: int, sweeps: list[dict[str, Any]]) -> list[Figure]:
    """The figures of sweep_speed.py; what it says of its results goes to ``sweeps``."""
    sweep = run("sweep_speed.py", compiled, ["--shapes", str(shapes)])
    sweeps.append(sweep)
    return [figure_of(prefix, one) for one in sweep["figures"]]


def figure_of(prefix: str, record: dict[str, Any]) -> Figure:
    """A figure that a script has printed."""
    return Figure(prefix + record["name"], record["value"], record["unit"], record["cost"])


def run(script: str, compiled: str, options: Sequence[str]) -> Any:
    """What a script of this folder prints as JSON."""
    print(f"bench: {script}, GPUSIM_COMPILED={compiled}", file=sys.stderr)
    command = [sys.executable, str(HERE / script), *options]
    environment = {**os.environ, "GPUSIM_COMPILED": compiled, "GPUSIM_CACHE": "off"}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"bench: {script} ended with status {done.returncode}")
    return json.loads(done.stdout)


def cold_start() -> list[Figure]:
    """A prediction by a process that starts, with nothing stored by earlier ones."""
    warm_up()
    wall, cpu, loops = [], [], [loop_seconds()]
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GPUSIM_CACHE": folder}
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "gpusim", *GEMM]
            _ = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, cwd=ROOT, check=True)  # noqa: S603
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append(time.perf_counter() - began)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        loops.append(loop_seconds())
    used = statistics.median(cpu)
    return [
        Figure("start of gpusim gemm, wall time", 1e3 * statistics.median(wall), "ms"),
        Figure("start of gpusim gemm, CPU time", 1e3 * used, "ms", used / statistics.median(loops)),
    ]


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
