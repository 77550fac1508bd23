"""The schedule of a step: the launches of two steps in a row, simulated, and what one step takes in the long run.

The first step starts with an idle GPU, the second one as all further ones do: its interval is the time of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpusim.host.host import Host
from gpusim.host.timing_methods import LIBRARY_KINDS, dispatched_as
from gpusim.models.task import Task
from gpusim.step.cuda_streams import TaskLaunch, TaskSpan, simulate_streams
from gpusim.step.options import StepOptions
from gpusim.workloads.collective import Collective

COMPUTE, COMMUNICATION = "compute", "communication"
"""Streams."""
ONCE = ("communication", "update")
"""Phases that a step has once, unless gradients are summed after each pass."""
READ_BACK = ("nonzero", "item", "unscale", "read_norm")
"""Calls whose result the framework reads on the host: how many rows a mask picks, a value, whether a gradient
overflowed, by how much gradients are clipped."""
STEPS = 2
MOST_PASSES = 2
"""Forward and backward passes of a step that are simulated; of more, each takes as long as the last of these."""


@dataclass(frozen=True, slots=True)
class StepTiming:
    """A step among others like it [us]."""

    step_us: float
    pass_us: float
    """Part of ``step_us`` that one forward and backward pass takes."""
    slowed_us: float
    """Time that exchanges add to the kernels beside them."""
    spans: tuple[TaskSpan, ...]
    """When each task ran, from the end of the step before; ``launch`` is the task's index."""


def run(
    host: Host,
    tasks: Sequence[Task],
    durations_us: Sequence[float],
    options: StepOptions,
    overlapped_us: Sequence[float] | None = None,
) -> StepTiming:
    """Simulate a step.

    Args:
        durations_us: of the kernels of each task.
        overlapped_us: durations of the same kernels while GPUs exchange data; None: as alone.
    """
    if not any(task.phase == "communication" for task in tasks):
        overlapped_us = None
    order = list(_order(tasks, options))
    launches = _launches(host, tasks, durations_us, overlapped_us, order, options)
    ends = [0.0] * len(order)
    spans = simulate_streams(launches, host.graph_gap_us if options.graphs else host.stream_gap_us)
    for span in spans:
        ends[span.launch] = span.end_us
    length = len(order) // STEPS
    began_us, ended_us = max(ends[:length]), max(ends)
    passes = min(options.accumulation, MOST_PASSES)
    pass_us = _pass_us(ends[length:], tasks, once(options), passes, began_us)
    shown = tuple(span.moved(order[span.launch], -began_us) for span in spans if span.launch >= length)
    computed = [span for span in shown if span.stream == COMPUTE]
    slowed_us = 0.0
    if overlapped_us:
        slowed_us = sum(span.end_us - span.start_us - durations_us[span.launch] for span in computed)
    return StepTiming(ended_us - began_us + (options.accumulation - passes) * pass_us, pass_us, slowed_us, shown)


def once(options: StepOptions) -> tuple[str, ...]:
    """Phases that a step has once, after or with its last pass, however many passes it has."""
    return ONCE[1:] if options.allreduce_per_microbatch else ONCE


def _order(tasks: Sequence[Task], options: StepOptions) -> Iterator[int]:
    """Places of the tasks of all steps, as they are launched; gradients are exchanged in the last pass, or in each."""
    last = [place for place, task in enumerate(tasks) if task.phase != "update"]
    others = [place for place in last if tasks[place].phase not in once(options)]
    updates = [place for place, task in enumerate(tasks) if task.phase == "update"]
    for _ in range(STEPS):
        for _ in range(min(options.accumulation, MOST_PASSES) - 1):
            yield from others
        yield from last
        yield from updates


def _launches(
    host: Host,
    tasks: Sequence[Task],
    durations_us: Sequence[float],
    overlapped_us: Sequence[float] | None,
    order: Sequence[int],
    options: StepOptions,
) -> list[TaskLaunch]:
    """One launch for each task: the host time of its call, its duration, and what it waits for on another stream."""
    last_of_step = {len(order) * step // STEPS - 1 for step in range(1, STEPS + 1)} if options.synchronised else set()
    calls_us: dict[tuple[str, bool], float] = {}
    alone = []
    for place, task in enumerate(tasks):
        of_gpus = isinstance(task.operator, Collective)
        of_library = isinstance(task.operator, Collective) or dispatched_as(task.operator) in LIBRARY_KINDS
        call = task.call, of_library
        if call not in calls_us:
            calls_us[call] = _host_us(host, *call, options)
        exchanges = task.phase == "communication"
        stream = COMMUNICATION if exchanges else COMPUTE
        read_back = task.call in READ_BACK and not options.graphs
        slower_us = overlapped_us[place] if overlapped_us and not exchanges else None
        gap_us = host.library_gap_us if of_library and not (of_gpus or options.graphs) else 0.0
        alone.append(
            TaskLaunch(calls_us[call], durations_us[place], stream, (), read_back, exchanges, slower_us, gap_us)
        )
    waits = _waits(tasks, alone, order)
    found = []
    for number, place in enumerate(order):
        launch = alone[place]
        if place == 0 or number in waits or number in last_of_step:
            launch = replace(
                launch,
                call_us=launch.call_us + (options.host_us if place == 0 else 0.0),
                after=waits.get(number, ()),
                read_back=launch.read_back or number in last_of_step,
            )
        found.append(launch)
    return found


def _waits(tasks: Sequence[Task], launches: Sequence[TaskLaunch], order: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Launches that wait for others on another stream, and which, all by their numbers; none where there is one."""
    if len({launch.stream for launch in launches}) == 1:
        return {}
    found: dict[int, tuple[int, ...]] = {}
    written: dict[str, tuple[int, str]] = {}
    last_exchange: int | None = None
    for number, place in enumerate(order):
        task, stream = tasks[place], launches[place].stream
        writers = {written[tensor.name] for tensor in task.reads if tensor.name in written}
        waits = {other for other, elsewhere in writers if elsewhere != stream}
        if place == 0 and last_exchange is not None:  # the pass before ends with its sums
            waits.add(last_exchange)
        last_exchange = number if stream == COMMUNICATION else last_exchange
        if waits:
            found[number] = tuple(sorted(waits))
        written |= {tensor.name: (number, stream) for tensor in task.writes}
    return found


def _host_us(host: Host, call: str, of_library: bool, options: StepOptions) -> float:
    """Host time of a call, or of a further launch of the call before; none of what a graph holds.

    A compiled program launches its own kernels, and calls libraries for products, convolutions and collectives.
    """
    if options.graphs:
        return 0.0
    if options.compiled_host:
        return max(host.stream_interval_us, host.library_interval_us if of_library else 0.0)
    of_a_call = bool(call) and not options.listed
    return host.call_us(call, options.framework) if of_a_call else host.stream_interval_us


def _pass_us(
    ends: Sequence[float], tasks: Sequence[Task], in_last: Sequence[str], passes: int, began_us: float
) -> float:
    """Time of a pass: of the last one of a step, or of the one before it where the last one alone exchanges gradients.

    Args:
        in_last: phases that the last pass alone has.
    """
    length, length_of_last = (sum(task.phase not in left_out for task in tasks) for left_out in (in_last, ("update",)))
    exchanges = length < length_of_last
    first_us = max(ends[:length], default=began_us)
    if passes == 1:
        return max(ends[:length_of_last], default=began_us) - began_us
    return first_us - began_us if exchanges else max(ends[length : 2 * length], default=first_us) - first_us
