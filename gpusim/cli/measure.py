"""Timings of the NVIDIA GPU that is present."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit, emit_json, emit_tables, progress_bar, refuse
from gpusim.cli.options import Format, FormatOption

if TYPE_CHECKING:
    from gpusim.measure.runner import SuiteSummary
    from gpusim.measure.suite import Suite


def measure(
    suite_name: Annotated[str, typer.Argument(help="A shipped suite by name, or a file.", metavar="SUITE")],
    out: Annotated[
        Path | None, typer.Option("-o", help="Table to write or to go on with.", metavar="MEASURED.csv")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would be measured and how long it takes; needs no GPU.")
    ] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="Hardware counters of the suite's multiplications, through ncu.")
    ] = False,
    limit_s: Annotated[
        float | None, typer.Option("--limit-s", min=0, help="Begin nothing that would end after so many seconds.")
    ] = None,
    profiler: Annotated[bool, typer.Option(help="Record kernel names and grids, with PyTorch's profiler.")] = True,
    output: FormatOption = "table",
) -> None:
    """Measure operators on the NVIDIA GPU that is present, through PyTorch; run again, it goes on where it stopped."""
    from gpusim.measure.suite import load_suite

    suite = load_suite(suite_name)
    if plan:
        _measurement_plan(suite, output)
        return
    if out is None:
        refuse("name the table to write: -o MEASURED.csv (or ask for --plan)")
    if not out.parent.is_dir():
        refuse(f"-o {out}: no folder {out.parent}")
    if out.suffix != ".csv" or out.is_dir():
        refuse(f"-o {out}: expected a file ending in .csv")
    if counters and limit_s is not None:
        refuse("--limit-s: ncu counts a suite in one go; ask for fewer items, or without --counters")
    try:
        complete = _count(suite, out) if counters else _measure(suite, suite_name, out, limit_s, profiler)
    except OSError as error:
        refuse(f"{error.filename or out}: {error.strerror or error}")
    if not complete:
        raise typer.Exit(1)


def _measure(suite: Suite, suite_name: str, out: Path, limit_s: float | None, profiler: bool) -> bool:
    """Measure a suite; an item that takes the device down is logged and a fresh process goes on behind it."""
    from gpusim.measure.device import DeviceLostError, NoDeviceError
    from gpusim.measure.runner import run_suite

    began_s = time.monotonic()
    limit = math.inf if limit_s is None else limit_s
    command = ["measure", suite_name, "-o", str(out), *([] if profiler else ["--no-profiler"])]
    try:
        _require_torch()
        from gpusim.measure.torch_device import TorchDevice

        device = TorchDevice(profile=profiler)
    except NoDeviceError as error:
        refuse(str(error))
    try:
        with progress_bar(suite.name) as progress:
            summary = run_suite(suite, device, out, limit_s=limit, command=["gpusim", *command], progress=progress)
    except DeviceLostError as error:
        print(f"gpusim: the device was lost ({error}); starting again behind that item", file=sys.stderr)
        if limit_s is not None:
            command += ["--limit-s", f"{max(0.0, limit_s - (time.monotonic() - began_s)):.0f}"]
        os.execv(sys.executable, [sys.executable, "-m", "gpusim", *command])  # noqa: S606 -- ourselves again
    _say_what_became(summary)
    return summary.complete


def _require_torch() -> None:
    """Refuse, with the remedy, where PyTorch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        refuse("PyTorch is not installed; pip install 'gpusim[measure]', or torch and nvidia-ml-py")


def _count(suite: Suite, out: Path) -> bool:
    """Hardware counters of a suite."""
    from gpusim.measure import nsight_compute
    from gpusim.measure.device import NoDeviceError

    _require_torch()
    from gpusim.measure.torch_device import TorchDevice

    try:
        rows, without = nsight_compute.count(suite, TorchDevice(profile=False).identity, out)
    except NoDeviceError as error:
        refuse(str(error))
    for item in without:
        print(f"gpusim: no counters of {item}", file=sys.stderr)
    emit(lambda: print(f"wrote {out}: {rows} rows"))
    return not without


def _say_what_became(summary: SuiteSummary) -> None:
    """Reasons to standard error, files to standard output."""
    from collections import Counter

    if summary.resumed:
        print(f"gpusim: {summary.resumed} rows taken from an earlier run", file=sys.stderr)
    for reason, count in Counter(reason for _, reason in summary.skipped).most_common():
        print(f"gpusim: skipped {count}: {reason}", file=sys.stderr)
    if summary.remaining:
        print(f"gpusim: {summary.remaining} items left by the time limit; run it again to go on", file=sys.stderr)
    emit(lambda: print("\n".join([f"{summary.measured} rows measured", *(f"wrote {path}" for path in summary.files)])))


def _measurement_plan(suite: Suite, output: Format) -> None:
    """What a suite asks for."""
    from gpusim.measure.runner import plan_of
    from gpusim.report.formatting import time_text
    from gpusim.report.text_table import TextTable

    planned = plan_of(suite)
    if output == "json":
        emit_json({"suite": suite.name, "title": suite.content.title, "lines": planned})
        return
    rows = [
        (line["what"], line["dtype"], str(line["items"]), str(line["rows"]), time_text(1e6 * line["seconds"]))
        for line in planned
    ]
    items, count = (str(sum(line[name] for line in planned)) for name in ("items", "rows"))
    rows.append(("total", "", items, count, time_text(1e6 * sum(line["seconds"] for line in planned))))
    emit_tables([TextTable(suite.content.title, ("what", "type", ">items", ">rows", ">about"), tuple(rows))])
