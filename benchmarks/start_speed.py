"""Times of commands as processes, with nothing stored by earlier ones, and after one of them; JSON on standard output.

Machine code is kept from before, as `gpusim cache compile` leaves it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from calibration import loop_seconds, warm_up
from comparison import Measured, Metric
from provenance import ROOT

GPUSIM = (sys.executable, "-m", "gpusim")
GEMM = ("gemm", "--arch", "A100-SXM4-80GB", "--dtype", "bf16", "-m", "4096", "-n", "4096", "-k", "4096")
STEP = ("model", "bert_large", "--arch", "A100-SXM4-80GB", "--batch", "8", "--precision")
BOARDS = ("--arch", "V100-SXM2-16GB", "--arch", "A100-SXM4-80GB")
STEPS = {
    "gpusim model bert_large": ((*STEP, "amp-fp16"), 3),
    "gpusim model bert_large in TF32": ((*STEP, "tf32"), 3),
}
LONG = {
    "gpusim model resnet50 on two boards": (("model", "resnet50", *BOARDS, "--allow-oom"), 3),
    "gpusim explain of a GEMM": (("explain", "gemm:4096x4096x4096:fp16", *BOARDS[2:]), 3),
    "gpusim explain of BERT large": (("explain", "bert_large", *BOARDS[2:]), 1),
}
COMMANDS = {"start of gpusim gemm": (GEMM, 5), **STEPS}
"""Name of the metrics -> arguments, and how often they are run; a single product does not load compiled simulation, and
the long ones are for it alone."""
KEPT = ("outcomes.sqlite", "board-*.pickle")
"""Files of the cache folder that commands write themselves."""


def main() -> None:
    """Run each a few times, and print the metrics."""
    warm_up()
    commands = {**STEPS, **LONG} if os.environ.get("GPUSIM_COMPILED") == "1" else COMMANDS
    metrics = [one for name, (arguments, runs) in commands.items() for one in timed(name, arguments, runs)]
    print(Measured(tuple(metrics)).json())


def timed(name: str, arguments: Sequence[str], runs: int) -> Iterator[Metric]:
    """Wall time and CPU time of a command: medians, after a run that leaves byte code, as an installation does."""
    with tempfile.TemporaryDirectory() as byte_code, tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        if os.environ.get("GPUSIM_COMPILED") == "1":
            run(("cache", "compile"), byte_code, store)
        run(arguments, byte_code, store)
        for known in (False, True):
            loops, wall, cpu = [loop_seconds()], [], []
            for _ in range(runs):
                if not known:
                    forget(store)
                began, before = time.perf_counter(), children_seconds()
                run(arguments, byte_code, store)
                wall.append(time.perf_counter() - began)
                cpu.append(children_seconds() - before)
                loops.append(loop_seconds())
            used, again = statistics.median(cpu), ", again" if known else ""
            yield Metric(f"{name}{again}, wall time", 1e3 * statistics.median(wall), "ms")
            yield Metric(f"{name}{again}, CPU time", 1e3 * used, "ms", used / statistics.median(loops))


def forget(store: Path) -> None:
    """Remove what earlier commands have kept, but for machine code."""
    for pattern in KEPT:
        for path in store.glob(pattern):
            path.unlink()


def run(arguments: Sequence[str], byte_code: str, store: Path) -> None:
    """Run a command with its byte code and what it keeps in folders."""
    environment = {**os.environ, "GPUSIM_CACHE": str(store), "PYTHONPYCACHEPREFIX": byte_code}
    _ = environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if environment.get("GPUSIM_COMPILED") == "1":
        del environment["GPUSIM_COMPILED"]  # the command loads machine code where that pays
    command = [*GPUSIM, *arguments]
    _ = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, cwd=ROOT, check=True)  # noqa: S603


def children_seconds() -> float:
    """CPU time of processes that have ended [s]."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
