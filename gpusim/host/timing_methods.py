"""Timing methods: the reading of each for kernels of a known duration.

A timing method is how a run was timed; its values stand in the record of the host. Where more is known of the program
that timed, its harness has values of its own in their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.errors import InputError, excerpt
from gpusim.host.host import Host
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import VectorOperator

METHODS = ("graph", "stream", "profiler", "layer", "event", "host", "do_bench")
HOST_METHODS = ("layer", "event", "host", "do_bench")
"""Methods that add a time of their own (``host.method_overhead_us``), most of it of the host's CPU and software."""

LIBRARY_KINDS = (None, "convolution")
"""Kinds of operators (:func:`dispatched_as`) whose kernels a library launches: GEMMs and convolutions."""

MAX_OVERHEAD_US = 1e6
"""A second: more than any host takes to launch a kernel."""
DECIMAL = re.compile(r"\d{1,20}(?:\.\d{0,20})?(?:[eE][+-]?\d{1,3})?", re.ASCII)


class TimingError(InputError):
    """A timing method or an overhead that is none; the text is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Harness:
    """What a program that timed runs added to its readings, and cut off them."""

    added_us: float | None = None
    """What its timing method added, or its launch interval [us]; None where the host's value holds."""
    stall_us: float = 0.0
    """What it added to each call of a stream, by what it did beside them [us]."""
    replay_us: float = 0.0
    """What it added to each call of attention, a graph of which it replayed [us]."""


ORDINARY = Harness()


def observed_time_us(
    kernel_time_us: float,
    method: str,
    host: Host,
    operator: str | None = None,
    harness: Harness = ORDINARY,
    call: str = "",
) -> float:
    """What ``method`` reads for kernels that take ``kernel_time_us`` [us].

    profiler: the kernels alone. graph: the kernels and the gap between two of them, as a graph replays them back to
    back. stream: the kernels and such a gap, or the interval between
    launches or calls where that is longer. layer: the kernels and what TensorRT's layer profiler adds. event and host:
    kernels, gap and host time. do_bench: the kernels, and what two events take in on a GPU that is busy before the
    first.

    Args:
        operator: kind of a framework's own operator, whose call selects no library kernel; None for a library's.
        harness: of the program that timed.
        call: the operator, as measured tables name it.

    Raises:
        TimingError: there is no such method.
    """
    if method not in METHODS:
        raise TimingError(f"method: expected one of {', '.join(METHODS)}, got '{method}'")
    added_us = host.timing_us(method) if harness.added_us is None else harness.added_us
    match method:
        case "stream":
            gap_us = host.stream_gap_us + (host.library_gap_us if operator in LIBRARY_KINDS else 0.0)
            return max(kernel_time_us + gap_us + harness.stall_us, added_us, host.call_interval_us.get(call, 0.0))
        case "event" if operator in host.operator_dispatch_us:
            return kernel_time_us + host.graph_gap_us + host.operator_dispatch_us[operator]
        case "event" | "host":
            return kernel_time_us + host.graph_gap_us + added_us
        case "graph" if operator == "attention":
            return kernel_time_us + added_us + harness.replay_us
    return kernel_time_us + added_us


def dispatched_as(operator: Operator) -> str | None:
    """The kind of a framework's own operator, ``convolution`` or ``attention``; None of a library's."""
    if isinstance(operator, Convolution):
        return "convolution"
    if isinstance(operator, Attention):
        return "attention"
    return operator.kind if isinstance(operator, VectorOperator) else None


def parse_overheads(texts: Sequence[str]) -> dict[str, float]:
    """What timing methods add on the user's machine [us], from texts ``METHOD=US``.

    Raises:
        TimingError: a method that adds no time of its own, a value that is not a time, or a method given twice.

    >>> parse_overheads(["event=12.5"])
    {'event': 12.5}
    """
    overheads: dict[str, float] = {}
    for text in texts:
        method, _, value = text.partition("=")
        where = f"--overhead {excerpt(text)}"
        if method not in HOST_METHODS:
            raise TimingError(f"{where}: expected METHOD=US, with METHOD one of {', '.join(HOST_METHODS)}")
        if not DECIMAL.fullmatch(value) or not 0 <= float(value) <= MAX_OVERHEAD_US:
            raise TimingError(f"{where}: expected 0 to {MAX_OVERHEAD_US:g} us")
        if method in overheads:
            raise TimingError(f"{where}: {method} is given twice; keep one")
        overheads[method] = float(value)
    return overheads
