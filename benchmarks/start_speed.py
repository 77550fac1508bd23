"""Time of `gpusim gemm` as a process, with nothing stored by earlier ones; JSON on standard output."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from calibration import loop_seconds, warm_up
from comparison import Figure, Measured
from provenance import ROOT

STARTS = 5
COMMAND = (sys.executable, "-m", "gpusim", "gemm", "--arch", "A100-SXM4-80GB", "--dtype", "bf16")
SIZES = ("-m", "4096", "-n", "4096", "-k", "4096")


def main() -> None:
    """Start it a few times, and print the figures."""
    warm_up()
    loops, wall, cpu = [loop_seconds()], [], []
    for _ in range(STARTS):
        began, before = time.perf_counter(), children_seconds()
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GPUSIM_CACHE": folder}
            command = [*COMMAND, *SIZES]
            _ = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, cwd=ROOT, check=True)  # noqa: S603
        wall.append(time.perf_counter() - began)
        cpu.append(children_seconds() - before)
        loops.append(loop_seconds())
    used = statistics.median(cpu)
    figures = (
        Figure("start of gpusim gemm, wall time", 1e3 * statistics.median(wall), "ms"),
        Figure("start of gpusim gemm, CPU time", 1e3 * used, "ms", used / statistics.median(loops)),
    )
    print(Measured(figures).json())


def children_seconds() -> float:
    """CPU time of processes that have ended [s]."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
