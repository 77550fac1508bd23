"""Measures how fast gpusim is, and compares it with the baseline.

    python benchmarks/bench.py [--shapes N] [--record] [MEASURED.csv]

Writes benchmarks/results/bench.json and prints each metric beside ``benchmarks/baseline.json``. Every part is a script
and runs in a process of its own, without and with the compiled simulator. A part in which something got slower is
measured again; exit status 1 if it is slower both times, or if a result depends on how it was computed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from comparison import Measured, Results, better_of, compared, comparison_table, costs
from provenance import BENCH_RESULTS, ROOT, commit, describe, machine, numba_version

HERE = ROOT / "benchmarks"
BASELINE = HERE / "baseline.json"


@dataclass(frozen=True, slots=True)
class Part:
    """A script of the benchmark and its options."""

    script: str
    options: tuple[str, ...] = ()
    compiled: bool = False

    def measure(self, cache: str) -> Measured:
        """Run the script; its metrics, named after the simulator.

        Args:
            cache: Folder for the machine code of the compiled simulator.
        """
        print(f"bench: {self.script}{', compiled' if self.compiled else ''}", file=sys.stderr)
        command = [sys.executable, str(HERE / self.script), *self.options]
        environment = {**os.environ, "GPUSIM_COMPILED": str(int(self.compiled)), "GPUSIM_CACHE": cache}
        done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)  # noqa: S603
        if done.returncode:
            sys.exit(f"bench: {self.script} ended with status {done.returncode}")
        measured = Measured.of_json(done.stdout)
        prefix = "compiled: " if self.compiled else ""
        return replace(measured, metrics=tuple(replace(one, name=prefix + one.name) for one in measured.metrics))


def main() -> int:
    """Measure, print, compare; exit status 1 for a regression."""
    asked = arguments()
    # Before it measures, which is a load of its own.
    where: dict[str, Any] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit(), "machine": machine()}
    baseline: dict[str, float] = json.loads(BASELINE.read_bytes())["costs"] if BASELINE.exists() else {}
    with tempfile.TemporaryDirectory() as cache:
        measured = [measure(part, cache, {} if asked.record else baseline) for part in parts(asked)]
    metrics = [metric for one in measured for metric in one.metrics]
    sweeps = [one.results for one in measured if one.results is not None]
    record = {one.name: {"value": one.value, "unit": one.unit, "cost": one.cost} for one in metrics}
    write(BENCH_RESULTS, {**where, "sweeps": [asdict(one) for one in sweeps], "figures": record})
    comparisons = compared(metrics, baseline)
    comparison_table(f"gpusim on {describe(where['machine'])}", comparisons).show()
    wrong = differ(sweeps)
    if asked.record:
        write(BASELINE, {**where, "costs": costs(metrics)})
    return int(wrong or (not asked.record and any(one.slower for one in comparisons)))


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure how fast gpusim is, and compare it with the baseline.")
    parser.add_argument("measured", nargs="?", type=Path, help="measured CSV whose shapes to predict, too")
    parser.add_argument("--shapes", type=int, default=10_000, help="random shapes of the sweep")
    parser.add_argument("--record", action="store_true", help="write the baseline")
    return parser.parse_args()


def parts(asked: argparse.Namespace) -> list[Part]:
    """What to measure, with the compiled simulator where it is installed."""
    tables = (str(asked.measured),) if asked.measured else ()
    found = []
    for compiled in (False, True) if numba_version() else (False,):
        found.append(Part("start_speed.py", compiled=compiled))
        found.append(Part("speed.py", tables, compiled))
        sweep = ("--shapes", str(asked.shapes))
        found.append(Part("sweep_speed.py", sweep, compiled))
        found.append(Part("sweep_speed.py", (*sweep, "--detail", "estimate"), compiled))
    return found


def measure(part: Part, cache: str, baseline: Mapping[str, float]) -> Measured:
    """Measure a part, once more if something got slower."""
    measured = part.measure(cache)
    if not any(one.slower for one in compared(measured.metrics, baseline)):
        return measured
    print("bench: slower than the baseline; measuring it again", file=sys.stderr)
    return replace(measured, metrics=better_of(measured.metrics, part.measure(cache).metrics))


def differ(sweeps: list[Results]) -> bool:
    """Whether results depend on how they were computed; prints how many were compared."""
    differing = sum(one.differing for one in sweeps)
    print(f"\n{sum(one.compared for one in sweeps)} results of sweeps predicted one at a time, too; {differing} differ")
    details = {one.detail for one in sweeps}
    wrong = differing > 0 or len({one.sha256 for one in sweeps}) > len(details)
    if wrong:
        print("bench: results depend on how they were computed", file=sys.stderr)
    return wrong


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
