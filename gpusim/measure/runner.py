"""Runs a suite on a device: each item is warmed up, replayed as often as its duration requires, and recorded at once.

Two loads. ``burst``: some tens of milliseconds, shorter than the power limit's reaction. ``sustained``: about a
second, of which the last part counts, at the clock that the board sustains. An item that cannot run is logged with its
reason and the suite continues.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.measure.device import (
    MAX_LAUNCHES,
    Device,
    DeviceLostError,
    Prepared,
    ProfiledKernel,
    SensorReading,
    Telemetry,
    UnavailableError,
)
from gpusim.measure.row_files import GIVEN_UP_AFTER, MeasurementFiles
from gpusim.measure.suite import Item, Microbenchmark, State, Suite
from gpusim.numbers.formats import Dtype
from gpusim.progress import Progress, no_progress
from gpusim.version import __version__
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

GRAPH_US = 1000.0
"""Shortest duration of a graph, so that the overhead of the two events around it is negligible."""
SHORTEST_US = 0.5
"""Lower bound for a kernel's time; event timestamps may suggest less."""
PILOT_LAUNCHES = 4
PILOT_REPLAYS = 3
BURST_US = 60_000.0
MIN_REPLAYS = 7
MAX_REPLAYS = 100
SUSTAINED_S = 1.2
SETTLING_S = 0.5
"""The first part of a sustained load does not count: the governor has not settled."""

SETUP_S = 0.5
"""For plans: time to allocate, fill, warm up, capture and profile one operator."""
MICROBENCHMARK_S = 0.5
"""For plans: time to compile and repeat one microbenchmark."""
PLAN_FLOP_PER_S = {Dtype.FP64: 30e12, Dtype.FP32: 30e12, Dtype.TF32: 200e12}
PLAN_OTHER_FLOP_PER_S = 400e12
PLAN_BYTES_PER_S = 2e12
"""For plans: rates of a recent data-centre GPU. Only the estimated duration of a run depends on these."""


@dataclass(slots=True)
class SuiteSummary:
    """Summary of a run."""

    measured: int = 0
    """Rows written by this run."""
    resumed: int = 0
    """Rows of earlier runs."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """(item, reason)."""
    remaining: int = 0
    """Items left out by the time limit."""
    files: tuple[Path, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every requested row exists."""
        return not self.skipped and not self.remaining


@dataclass(frozen=True, slots=True)
class _Sample:
    """Durations of the counted replays [us per launch], and the sensor readings during them."""

    times_us: Sequence[float]
    launches: int
    readings: Sequence[SensorReading]


def estimate_s(item: Item | Microbenchmark) -> float:
    """Rough duration of an item [s], for plans and time limits."""
    if isinstance(item, Microbenchmark):
        return MICROBENCHMARK_S
    launch_s = _launch_s(item.operator)
    seconds = SETUP_S + 5 * launch_s
    for state in item.states:
        wanted = SUSTAINED_S if state.load == "sustained" else BURST_US / 1e6
        seconds += max(wanted, MIN_REPLAYS * launch_s) + PILOT_REPLAYS * PILOT_LAUNCHES * launch_s
    return seconds


def _launch_s(operator: Operator) -> float:
    rate = PLAN_FLOP_PER_S.get(operator.dtype, PLAN_OTHER_FLOP_PER_S)
    return max(operator.flops / rate, operator.size_bytes / PLAN_BYTES_PER_S)


def plan_of(suite: Suite) -> list[dict[str, Any]]:
    """Content of a suite: items, rows and rough seconds by operator and data type, in order."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for item in suite.items():
        what, dtype = (item.benchmark, "") if isinstance(item, Microbenchmark) else _described(item.operator)
        line = lines.setdefault((what, dtype), {"what": what, "dtype": dtype, "items": 0, "rows": 0, "seconds": 0.0})
        line["items"] += 1
        line["rows"] += len(_requested(item))
        line["seconds"] += estimate_s(item)
    return list(lines.values())


def _described(operator: Operator) -> tuple[str, str]:
    sparsity = operator.sparsity if isinstance(operator, Gemm) else "dense"
    return (operator.op if sparsity == "dense" else f"{operator.op} {sparsity}"), operator.dtype.value


def run_suite(
    suite: Suite,
    device: Device,
    out: Path,
    *,
    limit_s: float = math.inf,
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> SuiteSummary:
    """Measure everything that ``out`` does not contain yet.

    Raises:
        MeasuredError: ``out`` exists and was not written by this program.
        DeviceLostError: an item made the device fail; it is logged and will not be tried again.
    """
    deadline = time.monotonic() + limit_s
    files = MeasurementFiles(out, device.identity)
    items = suite.items()
    summary = SuiteSummary(resumed=sum(len(_requested(item)) - len(_missing(item, files)) for item in items))
    files.begin_run(suite=suite.name, suite_sha256=suite.file.sha256, command=list(command), items=len(items))
    todo = [item for item in items if _missing(item, files)]
    # Items that ended earlier runs come last, so that the others are measured first.
    todo.sort(key=lambda item: files.interruptions(item.key))
    with device.telemetry() as sensors:
        for done, item in enumerate(todo):
            progress(len(items) - len(todo) + done, len(items))
            if time.monotonic() + estimate_s(item) > deadline:
                summary.remaining = len(todo) - done
                break
            if files.interruptions(item.key) >= GIVEN_UP_AFTER:
                summary.skipped.append((item.key, "it ended earlier runs; see the log"))
                continue
            _one(_Bench(device, sensors, files, f"gpusim {__version__} measure {suite.name}"), item, summary)
    files.log("finish", measured=summary.measured, skipped=len(summary.skipped), remaining=summary.remaining)
    summary.files = files.paths
    return summary


def _requested(item: Item | Microbenchmark) -> tuple[tuple[str, str], ...]:
    """(l2, load) of each requested row."""
    if isinstance(item, Microbenchmark):
        return (("", ""),)
    return tuple((state.l2, state.load) for state in item.states)


def _missing(item: Item | Microbenchmark, files: MeasurementFiles) -> tuple[tuple[str, str], ...]:
    return tuple(state for state in _requested(item) if (item.key, *state) not in files.done)


@dataclass(frozen=True, slots=True)
class _Bench:
    """Everything needed to measure one item."""

    device: Device
    sensors: Telemetry
    files: MeasurementFiles
    source: str

    def rows(self, item: Item | Microbenchmark) -> Iterator[None]:
        """Measure an item and write its missing rows; yields after each."""
        if isinstance(item, Microbenchmark):
            self._microbenchmark(item)
            yield
            return
        missing = _missing(item, self.files)
        with self.device.prepare(item.operator) as prepared:
            kernels = prepared.kernels()
            if not kernels:
                self.files.log("note", item=item.key, reason="no profiler reported its kernels")
            for state in item.states:
                if (state.l2, state.load) in missing:
                    sample = _replayed(prepared, state, self.sensors)
                    self.files.operators.append(self._row(item, state, sample, prepared.algorithm, kernels))
                    yield

    def _microbenchmark(self, item: Microbenchmark) -> None:
        began_s = time.monotonic()
        result = self.device.microbenchmark(item)
        p10, median, p90 = _percentiles(result.values)
        self.files.microbenchmarks.append(
            {
                **self.files.stamp(),
                "benchmark": item.benchmark,
                "variant": item.variant,
                "footprint_bytes": item.footprint_bytes or "",
                "value": median,
                "p10": p10,
                "p90": p90,
                "unit": result.unit,
                "repetitions": len(result.values),
                "note": result.note,
                **_picked(_sensor_columns(self.sensors.readings(began_s)), ("clock_mhz", "temperature_c")),
                "source": self.source,
                "item": item.key,
            }
        )

    def _row(
        self, item: Item, state: State, sample: _Sample, algorithm: str, kernels: Sequence[ProfiledKernel]
    ) -> dict[str, Any]:
        p10, median, p90 = _percentiles(sample.times_us)
        return {
            **self.files.stamp(),
            **item.operator.columns,
            "time_us": median,
            "method": "graph",
            "l2": state.l2,
            "load": state.load,
            "cuda": self.files.identity.cuda,
            "p10_us": p10,
            "p90_us": p90,
            "replays": len(sample.times_us),
            "launches": sample.launches,
            "algo": algorithm,
            **_kernel_columns(kernels),
            **_sensor_columns(sample.readings),
            "energy_mj": _energy_mj(sample.readings, median) if state.load == "sustained" else "",
            "source": self.source,
            "item": item.key,
        }


def _one(bench: _Bench, item: Item | Microbenchmark, summary: SuiteSummary) -> None:
    """Measure one item; log it if it cannot run."""
    bench.files.log("begin", item=item.key)
    try:
        for _ in bench.rows(item):
            summary.measured += 1
    except UnavailableError as reason:
        text = " ".join(str(reason).split())
        bench.files.log("skip", item=item.key, reason=text)
        summary.skipped.append((item.key, text))
    except DeviceLostError as reason:
        bench.files.log("lost", item=item.key, reason=" ".join(str(reason).split()))
        raise
    else:
        bench.files.log("end", item=item.key)


def _replayed(prepared: Prepared, state: State, sensors: Telemetry) -> _Sample:
    """Replay long enough for the requested load."""
    cold = state.l2 == "cold"
    pilot = prepared.replay(PILOT_LAUNCHES, PILOT_REPLAYS, cold=cold)
    launch_us = max(float(np.median(pilot)) / PILOT_LAUNCHES, SHORTEST_US)
    launches = min(max(math.ceil(GRAPH_US / launch_us), 1), MAX_LAUNCHES)
    graph_us = launches * launch_us
    began_s = time.monotonic()
    if state.load == "burst":
        replays = min(max(math.ceil(BURST_US / graph_us), MIN_REPLAYS), MAX_REPLAYS)
        totals = prepared.replay(launches, replays, cold=cold)
        return _Sample([total / launches for total in totals], launches, sensors.readings(began_s))
    replays = max(math.ceil(SUSTAINED_S * 1e6 / graph_us), MIN_REPLAYS)
    totals = prepared.replay(launches, replays, cold=cold)
    settling_us = min(SETTLING_S * 1e6, sum(totals) / 2)
    settled = [total for total, after in zip(totals, np.cumsum(totals), strict=True) if after > settling_us]
    return _Sample([total / launches for total in settled], launches, sensors.readings(began_s + settling_us / 1e6))


def _percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """10th percentile, median, 90th percentile."""
    p10, median, p90 = np.percentile(values, (10, 50, 90))
    return float(p10), float(median), float(p90)


def _kernel_columns(kernels: Sequence[ProfiledKernel]) -> dict[str, Any]:
    """Columns of the longest kernel, and the names of all in order."""
    if not kernels:
        return {}
    main = max(kernels, key=lambda kernel: kernel.time_us)
    return {
        "kernel": main.name,
        "threads": main.threads,
        **dict(zip(("grid_x", "grid_y", "grid_z"), main.grid, strict=True)),
        "kernel_time_us": sum(kernel.time_us for kernel in kernels),
        "kernels": json.dumps([kernel.name for kernel in kernels]) if len(kernels) > 1 else "",
        "registers": main.registers,
        "shared_bytes": main.shared_bytes,
    }


def _sensor_columns(readings: Sequence[SensorReading]) -> dict[str, Any]:
    """Medians of clock, power and temperature, and all clock throttle reasons."""
    if not readings:
        return {}
    return {
        "clock_mhz": float(np.median([reading.clock_mhz for reading in readings])) or "",
        "power_w": float(np.median([reading.power_w for reading in readings])) or "",
        "temperature_c": float(np.median([reading.temperature_c for reading in readings])) or "",
        "throttle": " ".join(sorted(frozenset().union(*(reading.throttle for reading in readings)))),
    }


def _energy_mj(readings: Sequence[SensorReading], time_us: float) -> float | str:
    """Energy of one launch [mJ]: the increment of the card's counter, divided by time."""
    counted = [reading for reading in readings if reading.energy_mj is not None]
    if len(counted) < 2 or counted[-1].at_s <= counted[0].at_s:
        return ""
    first, last = counted[0], counted[-1]
    assert first.energy_mj is not None
    assert last.energy_mj is not None
    return (last.energy_mj - first.energy_mj) / (last.at_s - first.at_s) * time_us / 1e6


def _picked(columns: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: columns[name] for name in names if name in columns}
