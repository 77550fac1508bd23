"""A recorded SM as a Chrome Trace Event file, which ui.perfetto.dev and chrome://tracing open.

A process is a kernel launch on the SM; its threads are the units of the SM and its warps. Viewers keep
whole nanoseconds and drop an event that overlaps the one before it on its thread, so starts and ends are
rounded to nanoseconds before a duration is taken; ``args`` hold the exact values in cycles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpusim.files.outputs import replacing
from gpusim.prediction.results import Result
from gpusim.report.formatting import gpu_text
from gpusim.sim.trace import LaunchTrace, Recorder, Span, Track
from gpusim.units import us_of_cycles
from gpusim.version import __version__

NS_PER_US = 1000
THREADS_PER_PROCESS = 1000
"""Thread ids reserved for one launch; an SM holds far fewer warps."""


def write_timeline(path: Path, result: Result, recorder: Recorder) -> None:
    """Write the recording of a prediction; the file is written completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path) as whole, whole.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(timeline(result, recorder))


def timeline(result: Result, recorder: Recorder) -> Iterator[str]:
    """The text of the file, one event per line."""
    processes = _processes(result, recorder)
    about = json.dumps(_about(result, recorder, processes), allow_nan=False)
    yield f'{{"displayTimeUnit": "ns",\n"otherData": {about},\n"traceEvents": [\n'
    events = [event for process in processes for event in process.metadata()]
    timed = [event for process in processes for event in process.events()]
    timed.sort(key=lambda event: (event[0], event[1]))
    lines = [json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events]
    yield ",\n".join(lines + [text for _, _, text in timed])
    yield "\n]}\n"


class _Process:
    """One launch on the time axis of the file."""

    def __init__(self, number: int, label: str, trace: LaunchTrace, clock_mhz: float, start_ns: int) -> None:
        self.pid = number
        self.label = label
        self.trace = trace
        self.clock_mhz = clock_mhz
        self.start_ns = start_ns
        self.tracks = [
            (number * THREADS_PER_PROCESS + order, track) for order, track in enumerate(trace.tracks) if track.spans
        ]

    def ns(self, cycles: float) -> int:
        """Time of a cycle of the launch in the file [ns]."""
        return self.start_ns + round(NS_PER_US * us_of_cycles(cycles, self.clock_mhz))

    def metadata(self) -> Iterator[dict[str, Any]]:
        """Names of tracks, and their order from top to bottom."""
        if not self.tracks:
            return
        for name, args in (("process_name", {"name": self.label}), ("process_sort_index", {"sort_index": self.pid})):
            yield {"ph": "M", "pid": self.pid, "name": name, "args": args}
        for tid, track in self.tracks:
            for name, args in (("thread_name", {"name": track.name}), ("thread_sort_index", {"sort_index": tid})):
                yield {"ph": "M", "pid": self.pid, "tid": tid, "name": name, "args": args}

    def events(self) -> Iterator[tuple[int, int, str]]:
        """(start in ns, thread, text) of each event, in order of time on each thread."""
        if not self.tracks:
            return
        first_tid = self.tracks[0][0]
        for jump in self.trace.jumps:
            if jump.at < self.trace.horizon:
                at = self.ns(jump.at)
                args = json.dumps({"skipped_cycles": jump.cycles, "at_cycle": jump.at}, separators=(",", ":"))
                yield (
                    at,
                    first_tid,
                    (
                        f'{{"ph":"i","s":"g","pid":{self.pid},"tid":{first_tid},"ts":{_us(at)},"cat":"extrapolation",'
                        f'"name":"{jump.cycles} cycles extrapolated, not simulated","args":{args}}}'
                    ),
                )
        for tid, track in self.tracks:
            head = f'{{"ph":"X","pid":{self.pid},"tid":{tid},"ts":'
            for span in track.spans:
                start, end = self.ns(span.start), self.ns(span.end)
                yield (
                    start,
                    tid,
                    (
                        f'{head}{_us(start)},"dur":{_us(end - start)},"cat":"{"unit" if track.unit else "warp"}",'
                        f'"name":"{span.name}","args":{{{_arguments(track, span)}}}}}'
                    ),
                )


def _processes(result: Result, recorder: Recorder) -> list[_Process]:
    """The launches in sequence, each after the shown part of the one before and the launch gap."""
    sm = f"{gpu_text(result.arch, result.overrides)} " + ("SM 0" if result.detail == "full" else "SM")
    start_ns = 0
    processes = []
    for number, trace in enumerate(recorder.launches, 1):
        process = _Process(number, f"{sm}: {trace.kernel}", trace, result.timing.clock_mhz, start_ns)
        processes.append(process)
        start_ns = process.ns(trace.shown_cycles) + round(NS_PER_US * result.timing.launch_overhead_us)
    return processes


def _us(ns: int) -> str:
    """Nanoseconds as microseconds without an exponent, which some readers do not parse.

    >>> _us(1234567), _us(50)
    ('1234.567', '0.050')
    """
    return f"{ns // NS_PER_US}.{ns % NS_PER_US:03d}"


def _arguments(track: Track, span: Span) -> str:
    """The content of an event's ``args``: times in cycles, amounts in their units."""
    text = f'"start_cycle":{_number(span.start)},"duration_cycles":{_number(span.end - span.start)}'
    if span.place is not None:
        return f'{text},"cta":{span.place.cta},"sub_partition":{span.place.sub_partition}'
    return f'{text},"{track.unit}":{_number(span.amount)}'


def _number(value: float) -> str:
    """A quantity to three decimals, without any where it is whole.

    >>> _number(128.0), _number(0.12345)
    ('128', '0.123')
    """
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _about(result: Result, recorder: Recorder, processes: list[_Process]) -> dict[str, Any]:
    """Metadata of the file."""
    launches = [
        {
            "kernel": process.trace.kernel,
            "pid": process.pid,
            "start_us": process.start_ns / NS_PER_US,
            "simulated_cycles": process.trace.simulated_cycles,
            "shown_cycles": process.trace.shown_cycles,
            "skipped_cycles": process.trace.skipped_cycles,
            "skipped": [{"at_cycle": jump.at, "cycles": jump.cycles} for jump in process.trace.jumps],
            "events": process.trace.kept,
            "dropped_events": process.trace.dropped,
        }
        for process in processes
    ]
    columns = ("batch", "m", "n", "k", "dtype", "sparsity", "layout")
    return {
        "program": f"gpusim {__version__}",
        "arch": result.arch,
        "overrides": result.overrides,
        "kernel": result.kernel,
        "split_k": result.launch.split_k,
        **{name: getattr(result.operator, name) for name in columns},
        **asdict(result.conditions),
        "detail": result.detail,
        "clock_mhz": result.timing.clock_mhz,
        "kernel_time_us": result.kernel_time_us,
        "predicted_cycles": result.timing.cycles,
        "events": recorder.kept,
        "dropped_events": recorder.dropped,
        "launches": launches,
    }
