"""A suite measured on the GPU that is present, in fresh processes where an item takes the device down."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from gpusim.errors import InputError
from gpusim.measure import nsight_compute
from gpusim.measure.device import Device, DeviceLostError, NoDeviceError
from gpusim.measure.runner import SuiteSummary, run_suite
from gpusim.measure.suite import Suite
from gpusim.progress import Progress, no_progress

_LOG = logging.getLogger(__name__)


def torch_device(*, profiler: bool) -> Device:
    """The NVIDIA GPU that PyTorch sees.

    Args:
        profiler: Record kernel names and grids.

    Raises:
        NoDeviceError: There is no PyTorch, or no GPU.
    """
    if find_spec("torch") is None:
        raise NoDeviceError("PyTorch is not installed; pip install 'gpusim[measure]', or torch and nvidia-ml-py")
    from gpusim.measure.torch_device import TorchDevice  # noqa: PLC0415 -- imports PyTorch

    return TorchDevice(profile=profiler)


def check_table(out: Path) -> None:
    """Refuse a path that no table can be written to.

    Raises:
        InputError: It has no folder, or does not end in .csv.
    """
    if not out.parent.is_dir():
        raise InputError(f"-o {out}: no folder {out.parent}")
    if out.suffix != ".csv" or out.is_dir():
        raise InputError(f"-o {out}: expected a file ending in .csv")


def run_again(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by another run of the program: a CUDA context that is lost stays lost."""
    os.execv(sys.executable, [sys.executable, "-m", "gpusim", *arguments])  # noqa: S606 -- this program


def measure_suite(
    suite: Suite,
    device: Device,
    out: Path,
    *,
    arguments: Sequence[str] = (),
    limit_s: float | None = None,
    progress: Progress = no_progress,
    restart: Callable[[Sequence[str]], NoReturn] = run_again,
) -> SuiteSummary:
    """Measure what ``out`` does not have yet.

    Args:
        arguments: The command line of this run without the time limit. Where an item takes the device down, ``restart``
            is called with them and the time that is left; the next run skips that item.
        limit_s: Start no item that would end later than this many seconds from now.

    Raises:
        MeasuredError: ``out`` exists and is not a measurement of this program.
    """
    began_s = time.monotonic()
    limit = math.inf if limit_s is None else limit_s
    try:
        return run_suite(suite, device, out, limit_s=limit, command=["gpusim", *arguments], progress=progress)
    except DeviceLostError as error:
        _LOG.warning("the device was lost (%s); starting again after that item", error)
        left_s = max(0.0, limit - (time.monotonic() - began_s))
        restart([*arguments, *([] if limit_s is None else ["--limit-s", f"{left_s:.0f}"])])


def count_suite(suite: Suite, out: Path) -> tuple[int, list[str]]:
    """Hardware counters of a suite's matrix multiplications: the number of rows written, the items without.

    Raises:
        NoDeviceError: There is no PyTorch, GPU or ncu.
        MeasuredError: ``out`` exists and is not a table of counters.
    """
    return nsight_compute.count(suite, torch_device(profiler=False).identity, out)
