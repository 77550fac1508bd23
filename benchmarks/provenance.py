"""What a figure was measured on: commit, processor, cores, clock, Python."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from gpusim.execution.workers import available_cores

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SPEED_PAGE = ROOT / "docs" / "speed.md"
ACCURACY_PAGE = ROOT / "docs" / "accuracy.md"
MODEL_PAGE = ROOT / "docs" / "model.md"
PARITY_PICTURE = ROOT / "docs" / "predicted_against_measured.png"
BENCH_RESULTS = ROOT / "benchmarks" / "results" / "bench.json"
"""What `make bench` writes."""
CALIBRATIONS = ROOT / "experiments" / "calibration"
"""Where `make calibrate` writes its reports."""
CPUINFO = Path("/proc/cpuinfo")


def commit() -> str:
    """The commit that is checked out, and whether files without generated tables were changed since."""
    short = git("rev-parse", "--short=12", "HEAD").strip()
    generated = (
        f":!{page.relative_to(ROOT)}" for page in (README, ACCURACY_PAGE, MODEL_PAGE, SPEED_PAGE, PARITY_PICTURE)
    )
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *generated)
    return f"commit {short}" + (" with uncommitted changes" if changed else "")


def git(*arguments: str) -> str:
    """What a git command prints about this repository."""
    program = shutil.which("git")
    if program is None:
        sys.exit("git is not installed; it names the commit")
    done = subprocess.run([program, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        sys.exit(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def machine() -> dict[str, str | int]:
    """The machine as its operating system describes it."""
    processor, mhz = (_cpuinfo(key) for key in ("model name", "cpu MHz"))
    return {
        "processor": processor or platform.processor() or platform.machine(),
        "clock": f"{float(mhz):.0f} MHz" if mhz else "",
        "cores": available_cores(),
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numba": numba_version(),
    }


def describe(machine: Mapping[str, str | int]) -> str:
    """A machine in a line."""
    clock = f" at {machine['clock']}" if machine["clock"] else ""
    numba = f", numba {machine['numba']}" if machine["numba"] else ""
    return (
        f"{machine['processor']}{clock}, {machine['cores']} cores, {machine['python']}{numba}, load {machine['load']}"
    )


def numba_version() -> str:
    """Empty where it is not installed."""
    try:
        return metadata.version("numba")
    except metadata.PackageNotFoundError:
        return ""


def _cpuinfo(key: str) -> str:
    """A value of Linux's /proc/cpuinfo; empty elsewhere."""
    if not CPUINFO.exists():
        return ""
    lines = (line.partition(":") for line in CPUINFO.read_text(encoding="utf-8").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")
