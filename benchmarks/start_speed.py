"""Times of commands as processes, with nothing stored by earlier ones; JSON on standard output."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from calibration import loop_seconds, warm_up
from comparison import Figure, Measured
from provenance import ROOT

GPUSIM = (sys.executable, "-m", "gpusim")
GEMM = ("gemm", "--arch", "A100-SXM4-80GB", "--dtype", "bf16", "-m", "4096", "-n", "4096", "-k", "4096")
STEP = ("model", "bert_large", "--arch", "A100-SXM4-80GB", "--precision", "amp-fp16", "--batch", "8")
COMMANDS = {"start of gpusim gemm": (GEMM, 5), "gpusim model bert_large": (STEP, 3)}
"""Name of the figures -> arguments, and how often they are run."""


def main() -> None:
    """Run each a few times, and print the figures."""
    warm_up()
    print(
        Measured(
            tuple(one for name, (arguments, runs) in COMMANDS.items() for one in timed(name, arguments, runs))
        ).json()
    )


def timed(name: str, arguments: Sequence[str], runs: int) -> tuple[Figure, Figure]:
    """Wall time and CPU time of a command: medians."""
    loops, wall, cpu = [loop_seconds()], [], []
    for _ in range(runs):
        began, before = time.perf_counter(), children_seconds()
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GPUSIM_CACHE": folder}
            command = [*GPUSIM, *arguments]
            _ = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, cwd=ROOT, check=True)  # noqa: S603
        wall.append(time.perf_counter() - began)
        cpu.append(children_seconds() - before)
        loops.append(loop_seconds())
    used = statistics.median(cpu)
    return (
        Figure(f"{name}, wall time", 1e3 * statistics.median(wall), "ms"),
        Figure(f"{name}, CPU time", 1e3 * used, "ms", used / statistics.median(loops)),
    )


def children_seconds() -> float:
    """CPU time of processes that have ended [s]."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
