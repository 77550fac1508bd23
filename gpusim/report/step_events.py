"""A step as a Chrome Trace Event file, which ui.perfetto.dev opens: calls of the host, kernels of each stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpusim.files.outputs import replacing
from gpusim.report.formatting import gpu_text
from gpusim.step.model import ModelResult
from gpusim.version import __version__

HOST = "host"


def write_step_timeline(path: Path, result: ModelResult) -> None:
    """Write the kernels of a step; the file is written completely or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path) as whole, whole.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(step_timeline(result))


def step_timeline(result: ModelResult) -> Iterator[str]:
    """The text of the file, one event per line."""
    about = {
        "program": f"gpusim {__version__}",
        "model": result.graph.name,
        "arch": result.step.arch,
        "overrides": dict(result.overrides),
    }
    yield f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(about)},\n"traceEvents": [\n'
    lines = [json.dumps(event, separators=(",", ":"), allow_nan=False) for event in _events(result)]
    yield ",\n".join(lines)
    yield "\n]}\n"


def _events(result: ModelResult) -> Iterator[dict[str, Any]]:
    """Names of the threads, then what ran on each."""
    spans = result.step.run.spans
    # Where the host ran ahead, it launched the first kernels before the step before had ended.
    zero_us = min((min(span.launched_us, span.start_us) for span in spans), default=0.0)
    threads = {name: number for number, name in enumerate((HOST, *dict.fromkeys(span.stream for span in spans)))}
    yield {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": gpu_text(result.step.arch, result.overrides)}}
    for name, tid in threads.items():
        yield {"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": name}}
    for span in spans:
        timed = result.step.tasks[span.launch]
        name, at = timed.task.name, {"layer": timed.task.name, "phase": timed.task.phase, "op": timed.op}
        yield _event("i", threads[HOST], name, span.launched_us - zero_us) | {"s": "t"}
        kernel = _event("X", threads[span.stream], timed.kernel, span.start_us - zero_us)
        yield kernel | {"dur": round(span.end_us - span.start_us, 3), "cat": timed.task.phase, "args": at}


def _event(phase: str, tid: int, name: str, at_us: float) -> dict[str, Any]:
    return {"ph": phase, "pid": 0, "tid": tid, "name": name, "ts": round(at_us, 3)}
