"""Traces of the PyTorch profiler: ``profile(record_shapes=True)``, then ``export_chrome_trace("trace.json")``.

A kernel names the CUDA call that launched it by its correlation, and by its external id the operator. The operator,
or the nearest known one around it, gives shapes and types, its kernels the time. The correlation counts first: PyTorch
2.1 writes it in place of the external id.
Format: https://github.com/pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpusim.cuda_version import CudaVersion
from gpusim.errors import excerpt
from gpusim.evidence.importers.devices import Device
from gpusim.evidence.importers.nesting import parents
from gpusim.evidence.importers.rows import Import, ImportOptions, RecordedKernel, SourceError, Timing
from gpusim.evidence.importers.torch_ops import COPIES, KNOWN, Call, add_call, shapes_of
from gpusim.files.inputs import parsed_json, read_bytes, unpacked
from gpusim.units import LARGEST_SIZE, us_of_duration

OPERATORS = ("cpu_op", "operator")
KERNELS = ("kernel",)
CUDA_CALLS = ("cuda_runtime", "cuda_driver", "runtime")
GZIP_MAGIC = b"\x1f\x8b"
WHOLE_US_ERROR_US = 0.5
"""Mean deviation of a kernel's time where times are cut off to whole microseconds, as Kineto wrote them until 2024
(https://github.com/pytorch/kineto/pull/890)."""
CUDA_VERSION_PER_MAJOR = 1000
CUDA_VERSION_PER_MINOR = 10
"""``cuda_runtime_version`` 12040 is CUDA 12.4 (CUDART_VERSION)."""
LATEST_US = 1e18
"""A time stamp counts from 1970, or from the start of the machine."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """Event of the trace and its place in the file's list."""

    index: int
    content: Mapping[str, Any]

    def arg(self, *names: str) -> Any:
        """The first of these arguments that is there."""
        arguments = self.content.get("args")
        if not isinstance(arguments, dict):
            return None
        return next((arguments[name] for name in names if name in arguments), None)

    def key(self, *names: str) -> int | str | None:
        """A number or name by which events refer to each other."""
        value = self.arg(*names)
        return value if isinstance(value, int | str) else None

    def listed(self, *names: str) -> tuple[str, ...]:
        """A list of texts; what is neither text nor number is empty."""
        value = self.arg(*names)
        if not isinstance(value, list):
            return ()
        return tuple(str(one) if isinstance(one, str | int | float) else "" for one in value)

    @property
    def external_id(self) -> int | str | None:
        """The operator, or whose kernel it is."""
        return self.key("External id", "external id")

    @property
    def correlation(self) -> int | str | None:
        """The CUDA call, or what it launched."""
        return self.key("correlation")

    @property
    def name(self) -> str:
        return self.text("name")

    def text(self, key: str) -> str:
        """A text of the event; empty where there is none."""
        value = self.content.get(key)
        return value if isinstance(value, str) else ""


def read(path: Path, options: ImportOptions) -> Import:
    """The operators of a trace, in the order of its events."""
    document = load_trace(path)
    timing = Timing("profiler", "cold", "pytorch-profiler", cuda=_cuda(document))
    found = Import(str(path), options, timing)
    operators, calls, kernels = (events_of(document, categories) for categories in (OPERATORS, CUDA_CALLS, KERNELS))
    if not operators or not kernels:
        raise SourceError(
            f"{path}: no {'operators' if kernels else 'GPU kernels'} in the trace;"
            " profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    above = _above(path, operators + calls)
    launchers = _launchers(operators, calls)
    launched: dict[Event, list[Event]] = defaultdict(list)
    for kernel in kernels:
        launcher = launchers.get(("call", kernel.correlation)) or launchers.get(("operator", kernel.external_id))
        operator = _known(launcher, above)
        if operator is not None:
            launched[operator].append(kernel)
        else:
            found.skip(_reason(launcher, above), time_us=kernel_of(path, kernel).time_us)
    devices = _devices(document)
    found.devices.update({device.name: device for device in devices.values()})
    error_us = WHOLE_US_ERROR_US if all(number_of(path, one, "dur") % 1 == 0 for one in kernels) else None
    around = {outer for operator in launched for outer in _around(operator, above)}
    for operator in sorted(around & launched.keys(), key=lambda event: event.index):
        beside = launched.pop(operator)
        time_us = sum(kernel_of(path, kernel).time_us for kernel in beside)
        found.skip(f"kernel of {operator.name} beside another operator within it", len(beside), time_us)
    for operator in sorted(launched, key=lambda event: event.index):
        where = f"{path}: traceEvents[{operator.index}]"
        device = devices.get(launched[operator][0].key("device"), Device("")).name
        made = [kernel_of(path, kernel) for kernel in launched[operator]]
        of_call = replace(timing, timer_us=len(made) * error_us if error_us else None)
        add_call(found, where, operator.index, _call(operator, above), made, device, of_call)
    return found


def _cuda(document: Mapping[str, Any]) -> CudaVersion | None:
    """The version of the CUDA runtime, where the trace says."""
    version = document.get("cuda_runtime_version")
    if not isinstance(version, int) or version < CUDA_VERSION_PER_MAJOR:
        return None
    major, rest = divmod(version, CUDA_VERSION_PER_MAJOR)
    return CudaVersion(major, rest // CUDA_VERSION_PER_MINOR)


def events_of(document: Mapping[str, Any], categories: Sequence[str]) -> list[Event]:
    """The events of some categories that last a time."""
    events = (
        Event(index, content) for index, content in enumerate(document["traceEvents"]) if isinstance(content, dict)
    )
    return [
        event for event in events if event.content.get("ph", "X") == "X" and event.text("cat").lower() in categories
    ]


def _launchers(operators: Sequence[Event], calls: Sequence[Event]) -> dict[tuple[str, int | str | None], Event]:
    """Operators by external id and CUDA calls by correlation: what kernels refer to."""
    by_id = {("operator", event.external_id): event for event in operators}
    by_id |= {("call", event.correlation): event for event in calls}
    return {(kind, key): event for (kind, key), event in by_id.items() if key is not None}


def load_trace(path: Path) -> dict[str, Any]:
    """The JSON object of a trace, packed or not; its events under ``traceEvents``.

    Raises:
        SourceError: the file cannot be read or is not a trace.
    """
    try:
        content = read_bytes(path)
        document = parsed_json(unpacked(content) if content.startswith(GZIP_MAGIC) else content)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise SourceError(f"{path}: the gzip stream is broken; copy the file again") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}; check the file") from None
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}:{error.lineno}: column {error.colno}: {error.msg}; export the trace again") from None
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: byte {error.start} is not UTF-8 text; export the trace again") from None
    except ValueError as error:
        raise SourceError(f"{path}: JSON that cannot be read: {error}; export the trace again") from None
    if isinstance(document, list):
        document = {"traceEvents": document}
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise SourceError(f"{path}:1: no list traceEvents; write the trace with export_chrome_trace")
    return document


def _above(path: Path, host: list[Event]) -> dict[int, Event | None]:
    """For every host event the one that it was made within, by place in the file."""
    threads: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in host:
        thread = (event.content.get(key) for key in ("pid", "tid"))
        threads[tuple(one if isinstance(one, int | str) else None for one in thread)].append(event)
    above: dict[int, Event | None] = {}
    for calls in threads.values():
        spans = [(start := number_of(path, event, "ts"), start + number_of(path, event, "dur")) for event in calls]
        for event, parent in zip(calls, parents(str(path), spans), strict=True):
            above[event.index] = None if parent is None else calls[parent]
    return above


def number_of(path: Path, event: Event, key: str) -> float:
    """A time in an event [us]."""
    value = event.content.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST_US:
        raise SourceError(f"{path}: traceEvents[{event.index}].{key}: expected a time in us; export again")
    return value


def _known(event: Event | None, above: Mapping[int, Event | None]) -> Event | None:
    """The nearest operator around an event that the schema has, itself included; none around a copy."""
    while event is not None and event.name not in KNOWN:
        event = None if event.name in COPIES else above[event.index]
    return event


def _reason(launcher: Event | None, above: Mapping[int, Event | None]) -> str:
    """Why a kernel belongs to no operator of the schema."""
    if launcher is None:
        return "kernel that no recorded operator launched (a CUDA graph?)"
    operators = [event for event in (launcher, *_around(launcher, above)) if event.text("cat").lower() in OPERATORS]
    if not operators:
        return "kernel that no recorded operator launched"
    return f"operator {excerpt(operators[0].name)} is outside the schema"


def _around(event: Event, above: Mapping[int, Event | None]) -> Iterator[Event]:
    """The host events that an event was made within, from the innermost."""
    while (outer := above[event.index]) is not None:
        yield outer
        event = outer


def _call(event: Event, above: Mapping[int, Event | None]) -> Call:
    """An operator's recorded inputs."""
    return Call(
        event.name,
        tuple(outer.name for outer in _around(event, above)),
        shapes_of(event.arg("Input Dims", "Input dims")),
        event.listed("Input type"),
        shapes_of(event.arg("Input Strides")),
        event.listed("Concrete Inputs"),
    )


def kernel_of(path: Path, event: Event) -> RecordedKernel:
    """A kernel's name, time, grid and threads.

    Raises:
        SourceError: it has no time.
    """
    duration_us = us_of_duration(repr(number_of(path, event, "dur")), "us")
    grid, block = (_extent(event.arg(name)) for name in ("grid", "block"))
    threads = block[0] * block[1] * block[2] if block else None
    return RecordedKernel(event.name, duration_us, grid, threads)


def _extent(value: Any) -> tuple[int, int, int] | None:
    """Three positive whole numbers, or None."""
    match value:
        case [int(x), int(y), int(z)] if min(x, y, z) > 0 and max(x, y, z) <= LARGEST_SIZE:
            return int(x), int(y), int(z)  # true is a whole number to Python
    return None


def _devices(document: Mapping[str, Any]) -> dict[int | str | None, Device]:
    """The GPUs by number."""
    properties = document.get("deviceProperties")
    return {
        device["id"]: Device.of_properties(device)
        for device in (properties if isinstance(properties, list) else ())
        if isinstance(device, dict) and isinstance(device.get("id"), int) and isinstance(device.get("name"), str)
    }
