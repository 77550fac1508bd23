"""Hardware counters of a suite's matrix multiplications through Nsight Compute, laid out as measured rows.

``ncu`` starts this module as a child; it runs each operator once, behind a marker kernel, and nothing else
under the profiler. Between two markers in ncu's list are the kernels of one operator. The clock is left as
it is (``--clock-control none``); ncu empties the caches before each kernel, so L2 is cold.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpusim
from gpusim.measure.device import Identity, NoDeviceError
from gpusim.measure.journal import SCHEMA_COLUMNS, RowFile
from gpusim.measure.suite import GemmWork, Item, Suite, load_suite

METRICS = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "lts__t_sector_hit_rate.pct",
    "lts__t_bytes.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__waves_per_multiprocessor",
    "launch__registers_per_thread",
    "launch__occupancy_limit_shared_mem",
)
"""Under their Nsight Compute names. One that a GPU lacks stays empty."""
SUMMED = ("gpu__time_duration.sum", "sm__cycles_elapsed.max")
"""Added up over the kernels of one operator, beside all that end in ``.sum``; others are of the longest kernel."""
MARKER = "spin_kernel"
"""The kernel of ``torch.cuda._sleep``."""
COUNTER_COLUMNS = (*SCHEMA_COLUMNS, *METRICS, "kernels", "gpu_name", "versions", "item")


def gemms_of(suite: Suite) -> tuple[Item, ...]:
    """The matrix multiplications of a suite, each once."""
    return tuple(item for item in suite.work() if isinstance(item, Item) and isinstance(item.work, GemmWork))


def count(suite: Suite, identity: Identity, out: Path) -> tuple[int, list[str]]:
    """Run a suite's matrix multiplications under ncu; the number of rows written and the items without kernels.

    Raises:
        NoDeviceError: no ncu, or one that may not read counters.
        MeasuredError: ``out`` is there and is no table of counters.
    """
    program = shutil.which("ncu")
    if program is None:
        raise NoDeviceError("ncu is not on the PATH; install Nsight Compute")
    rows = RowFile(out, COUNTER_COLUMNS)
    done = {row["item"] for row in rows.rows}
    items = gemms_of(suite)
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "ncu.csv"
        command = ncu_command(program, known_metrics(program), listing, str(suite.file.path))
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- a found program
        text = listing.read_text(encoding="utf-8", errors="replace") if listing.exists() else ""
    kernels = read_ncu(text)
    groups = operators_of(kernels)
    if not kernels:
        told = (text + ended.stdout + ended.stderr).strip().splitlines()
        reason = next((line for line in told if "ERR" in line or "rror" in line), told[-1] if told else "no output")
        raise NoDeviceError(f"ncu read no counters: {reason.removeprefix('==ERROR== ')}")
    written, without = 0, []
    for index, item in enumerate(items):
        group = groups[index] if index < len(groups) else []
        if not group:
            without.append(item.key)
        elif item.key not in done:
            rows.append(_row(item, group, identity, suite.name))
            written += 1
    return written, without


def ncu_command(program: str, metrics: Sequence[str], listing: Path, suite: str) -> list[str]:
    """The command line: what is counted, and that no clock is touched."""
    return [
        program,
        *("--clock-control", "none", "--profile-from-start", "off", "--print-units", "base"),
        *("--csv", "--page", "raw", "--log-file", str(listing), "--metrics", ",".join(metrics)),
        *(sys.executable, "-m", "gpusim.measure.counters", suite),
    ]


def known_metrics(program: str) -> tuple[str, ...]:
    """The metrics that this GPU has, as far as ncu tells; a name that it lacks would end the run."""
    asked = subprocess.run([program, "--query-metrics"], capture_output=True, text=True, check=False)  # noqa: S603
    listed = {line.split()[0] for line in asked.stdout.splitlines() if line.split()}
    if not any(name.startswith("dram__") for name in listed):
        return METRICS
    return tuple(name for name in METRICS if name.startswith("launch__") or name.partition(".")[0] in listed)


def read_ncu(text: str) -> list[dict[str, str]]:
    """Kernels of an ``ncu --csv --page raw`` listing: one row each, below a header and a line of units."""
    lines = text.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    table = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    return [row for row in table if (row.get("ID") or "").isdigit()]


def operators_of(kernels: Sequence[Mapping[str, str]]) -> list[list[Mapping[str, str]]]:
    """The kernels behind each marker."""
    groups: list[list[Mapping[str, str]]] = []
    for kernel in kernels:
        if MARKER in kernel["Kernel Name"]:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    return groups


def _row(item: Item, kernels: Sequence[Mapping[str, str]], identity: Identity, suite: str) -> dict[str, Any]:
    """One operator: sums over its kernels, the rest from the one that takes longest."""
    main = max(kernels, key=lambda kernel: _number(kernel, METRICS[0]) or 0.0)
    counted: dict[str, Any] = {}
    for name in METRICS:
        values = [value for kernel in kernels if (value := _number(kernel, name)) is not None]
        if values:
            total = name.endswith(".sum") or name in SUMMED
            counted[name] = sum(values) if total else _number(main, name)
    grid, block = (_sizes(main.get(name, "")) for name in ("Grid Size", "Block Size"))
    columns = {name: value for name, value in item.work.columns.items() if name in SCHEMA_COLUMNS}
    return {
        **columns,
        "gpu": identity.gpu,
        "time_us": counted[METRICS[0]] / 1e3,
        "method": "profiler",
        "l2": "cold",
        "kernel": main["Kernel Name"],
        "threads": block[0] * block[1] * block[2],
        **dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True)),
        "source": f"gpusim {gpusim.__version__} counters {suite}",
        **counted,
        "kernels": len(kernels),
        "gpu_name": identity.gpu_name,
        "versions": " ".join(f"{name}={version}" for name, version in identity.versions),
        "item": item.key,
    }


def _number(kernel: Mapping[str, str], name: str) -> float | None:
    """A metric in base units (ns, bytes, percent); None where it is missing."""
    try:
        return float((kernel.get(name) or "").replace(",", ""))
    except ValueError:
        return None


def _sizes(text: str) -> tuple[int, int, int]:
    """``(128, 1, 1)`` as ncu writes it."""
    numbers = [int(part) for part in text.strip("() ").split(",") if part.strip().isdigit()]
    x, y, z = (*numbers, 1, 1, 1)[:3]
    return x, y, z


def run_counted(suite: Suite) -> None:
    """The child: each operator once under the profiler, behind its marker."""
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
            with device.prepare(item.work) as prepared:
                torch.cuda.profiler.start()
                prepared.once()
                torch.cuda.profiler.stop()
        except UnavailableError as reason:
            print(f"{item.key}: {reason}", file=sys.stderr)  # noqa: T201 -- the child talks to its parent


if __name__ == "__main__":
    run_counted(load_suite(sys.argv[1]))
