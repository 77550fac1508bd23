"""Hardware counters of a suite's matrix multiplications from Nsight Compute, as measured rows.

``ncu`` starts this module as a child process; it runs each operator once, after a marker kernel, and profiles nothing
else. The kernels between two markers in ncu's list belong to one operator. Clocks are not locked (``--clock-control
none``); ncu flushes the caches before each kernel, so L2 is cold.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.importers.launches import joined
from gpusim.evidence.importers.ncu import METRICS, TIME, launches_of
from gpusim.evidence.importers.rows import RecordedKernel
from gpusim.measure.device import Identity, NoDeviceError, behind_markers
from gpusim.measure.row_files import SCHEMA_COLUMNS, RowFile, versions_text
from gpusim.measure.suite import Item, Suite, load_suite
from gpusim.version import __version__
from gpusim.workloads.gemm import Gemm

COUNTER_COLUMNS = (*SCHEMA_COLUMNS, *METRICS, "kernels", "gpu_name", "versions", "item")


def gemms_of(suite: Suite) -> tuple[Item, ...]:
    """The matrix multiplications of a suite, each once."""
    return tuple(item for item in suite.items() if isinstance(item, Item) and isinstance(item.operator, Gemm))


def count(suite: Suite, identity: Identity, out: Path) -> tuple[int, list[str]]:
    """Run a suite's matrix multiplications under ncu: the number of rows written, the items without counters.

    Raises:
        NoDeviceError: ncu is missing, or has no permission to read counters.
        MeasuredError: ``out`` exists and is not a table of counters.
    """
    program = shutil.which("ncu")
    if program is None:
        raise NoDeviceError("ncu is not on the PATH; install Nsight Compute")
    rows = RowFile(out, COUNTER_COLUMNS)
    mine = (identity.gpu_name, versions_text(identity))
    done = {row["item"] for row in rows.rows if (row["gpu_name"], row["versions"]) == mine}
    items = gemms_of(suite)
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "ncu.csv"
        command = ncu_command(program, known_metrics(program), listing, str(suite.file.path))
        plain = {**os.environ, "LC_ALL": "C"}  # numbers with a decimal point
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=plain)  # noqa: S603 -- found
        groups = behind_markers(_read(listing, ended))
    reasons = dict(line.split(": ", 1) for line in ended.stderr.splitlines() if ": " in line)
    written, without = 0, []
    for index, item in enumerate(items):
        group = groups[index] if index < len(groups) else []
        if not group:
            without.append(f"{item.key}: {reasons[item.key]}" if item.key in reasons else item.key)
        elif item.key not in done:
            rows.append(_row(item, group, identity, suite.name))
            written += 1
    return written, without


def ncu_command(program: str, metrics: Sequence[str], listing: Path, suite: str) -> list[str]:
    """The command line of ncu: metrics, and no clock control."""
    return [
        program,
        *("--clock-control", "none", "--profile-from-start", "off", "--print-units", "base"),
        *("--csv", "--page", "raw", "--log-file", str(listing), "--metrics", ",".join(metrics)),
        *(sys.executable, "-m", "gpusim.measure.nsight_compute", suite),
    ]


def known_metrics(program: str) -> tuple[str, ...]:
    """The metrics that ncu reports for this GPU; an unknown name would end the run."""
    asked = subprocess.run([program, "--query-metrics"], capture_output=True, text=True, check=False)  # noqa: S603
    listed = {line.split()[0] for line in asked.stdout.splitlines() if line.split()}
    if not any(name.startswith("dram__") for name in listed):
        return METRICS
    always = (TIME, *(name for name in METRICS if name.startswith("launch__")))  # listed elsewhere, or not at all
    return tuple(name for name in METRICS if name in always or name.partition(".")[0] in listed)


def _read(listing: Path, ended: subprocess.CompletedProcess[str]) -> list[RecordedKernel]:
    """The kernels that ncu listed; raises with its error message if there are none."""
    try:
        if kernels := [launch.kernel for launch in launches_of(listing, "point")]:
            return kernels
        problem = "no kernel was profiled"
    except MeasuredError as error:
        problem = str(error)
    listed = listing.read_text(encoding="utf-8", errors="replace") if listing.exists() else ""
    lines = (listed + ended.stdout + ended.stderr).splitlines()
    reason = next((line for line in lines if "ERR" in line or "rror" in line), problem)
    raise NoDeviceError(f"ncu read no counters: {reason.strip().removeprefix('==ERROR== ')}")


def _row(item: Item, kernels: Sequence[RecordedKernel], identity: Identity, suite: str) -> dict[str, Any]:
    """Row of one operator: sums over its kernels, other values from the longest one."""
    whole = joined(kernels, max(kernels, key=lambda kernel: kernel.time_us))
    columns = {name: value for name, value in item.operator.columns.items() if name in SCHEMA_COLUMNS}
    return {
        **columns,
        "gpu": identity.gpu,
        "time_us": whole.time_us,
        "method": "profiler",
        "l2": "cold",
        "cuda": identity.cuda,
        "kernel": whole.name,
        "threads": whole.threads,
        **dict(zip(("grid_x", "grid_y", "grid_z"), whole.grid or ("", "", ""), strict=True)),
        "source": f"gpusim {__version__} counters {suite}",
        **whole.extra,
        "kernels": len(kernels),
        "gpu_name": identity.gpu_name,
        "versions": versions_text(identity),
        "item": item.key,
    }


def run_counted(suite: Suite) -> None:
    """In the child process: run each operator once under the profiler, after its marker."""
    import torch  # noqa: PLC0415 -- ncu's reader needs no PyTorch

    from gpusim.measure.device import UnavailableError  # noqa: PLC0415 -- the same
    from gpusim.measure.torch_device import TorchDevice  # noqa: PLC0415 -- the same

    device = TorchDevice(profile=False)
    for item in gemms_of(suite):
        torch.cuda.profiler.start()
        torch.cuda._sleep(1000)  # noqa: SLF001 -- the marker; PyTorch has no public name for it
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        try:
            with device.prepare(item.operator) as prepared:
                torch.cuda.profiler.start()
                prepared.once()
                torch.cuda.profiler.stop()
        except UnavailableError as reason:
            print(f"{item.key}: {reason}", file=sys.stderr)  # noqa: T201 -- the child talks to its parent


if __name__ == "__main__":
    run_counted(load_suite(sys.argv[1]))
