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
from comparison import Measured, Metric
from provenance import ROOT

GPUSIM = (sys.executable, "-m", "gpusim")
GEMM = ("gemm", "--arch", "A100-SXM4-80GB", "--dtype", "bf16", "-m", "4096", "-n", "4096", "-k", "4096")
STEP = ("model", "bert_large", "--arch", "A100-SXM4-80GB", "--batch", "8", "--precision")
STEPS = {
    "gpusim model bert_large": ((*STEP, "amp-fp16"), 3),
    "gpusim model bert_large in TF32": ((*STEP, "tf32"), 3),
}
COMMANDS = {"start of gpusim gemm": (GEMM, 5), **STEPS}
"""Name of the metrics -> arguments, and how often they are run; a single product does not load compiled simulation."""


def main() -> None:
    """Run each a few times, and print the metrics."""
    warm_up()
    commands = STEPS if os.environ.get("GPUSIM_COMPILED") == "1" else COMMANDS
    metrics = [one for name, (arguments, runs) in commands.items() for one in timed(name, arguments, runs)]
    print(Measured(tuple(metrics)).json())


def timed(name: str, arguments: Sequence[str], runs: int) -> tuple[Metric, Metric]:
    """Wall time and CPU time of a command: medians, after a run that leaves byte code, as an installation does."""
    loops, wall, cpu = [loop_seconds()], [], []
    with tempfile.TemporaryDirectory() as byte_code:
        run(arguments, byte_code)
        for _ in range(runs):
            began, before = time.perf_counter(), children_seconds()
            run(arguments, byte_code)
            wall.append(time.perf_counter() - began)
            cpu.append(children_seconds() - before)
            loops.append(loop_seconds())
    used = statistics.median(cpu)
    return (
        Metric(f"{name}, wall time", 1e3 * statistics.median(wall), "ms"),
        Metric(f"{name}, CPU time", 1e3 * used, "ms", used / statistics.median(loops)),
    )


def run(arguments: Sequence[str], byte_code: str) -> None:
    """Run a command that knows no launch, with its byte code in a folder."""
    with tempfile.TemporaryDirectory() as store:
        environment = {**os.environ, "GPUSIM_CACHE": store, "PYTHONPYCACHEPREFIX": byte_code}
        _ = environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [*GPUSIM, *arguments]
        _ = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, cwd=ROOT, check=True)  # noqa: S603


def children_seconds() -> float:
    """CPU time of processes that have ended [s]."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
