"""What a step comes to: its time, its parts by operator, phase, layer and bottleneck, Tensor Core activity, energy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gpusim.collectives.timing import CollectiveTime
from gpusim.later import Later
from gpusim.models.task import Task
from gpusim.prediction.results import Result
from gpusim.step.cuda_streams import TaskSpan
from gpusim.step.schedule import StepTiming
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm

Key = TypeVar("Key", bound=Hashable)


MATRIX_OPERATORS = (Gemm, Convolution, Attention)
"""Operators whose multiply-adds count as the FLOPs of a model."""


HOST_BOUND_FRACTION = 0.1
"""Share of a step that the GPU waits for the host, from which on the step is called host-bound."""


@dataclass(frozen=True, slots=True)
class TimedTask:
    """A task with its prediction."""

    task: Task
    count: float
    """Times that a step runs it, in the mean of many steps."""
    time_us: float
    """Kernel time of one run [us]."""
    later: Later[Result]
    """What :attr:`result` gives: where the time alone is wanted, nobody asks."""
    finds_limits: bool = True
    """Whether it was wanted what would help."""

    @property
    def result(self) -> Result:
        """The prediction of its operator, with L2 in the state that is nearer."""
        return self.later.value

    @property
    def savings(self) -> Mapping[str, float]:
        """Share of its time that each resource saves if it is twice as good, as far as that was found."""
        return self.result.utilization.savings if self.finds_limits else {}

    @property
    def total_us(self) -> float:
        """Time of all its runs in a step [us]."""
        return self.count * self.time_us

    @property
    def op(self) -> str:
        return self.result.operator.op

    @property
    def kernel(self) -> str:
        return self.result.kernel


@dataclass(frozen=True, slots=True)
class TimedCollective:
    """A collective of a step with its time."""

    task: Task
    count: float
    """Times that a step does it."""
    time: CollectiveTime

    @property
    def time_us(self) -> float:
        """Time of one run [us]."""
        return self.time.time_us

    @property
    def total_us(self) -> float:
        """Time of all its runs in a step [us]."""
        return self.count * self.time_us

    @property
    def op(self) -> str:
        return self.time.collective.op

    @property
    def kernel(self) -> str:
        """The algorithm and protocol of the library."""
        return f"nccl {self.time.plan.algorithm} {self.time.plan.protocol}"


@dataclass(frozen=True, slots=True)
class OperatorShare:
    """What one operator takes of a step, wherever it stands in the model."""

    name: str
    """The first layer that runs it."""
    op: str
    shape: str
    """Sizes of the operator."""
    count: float
    time_us: float
    """Time of all its runs [us]."""
    share: float
    """Fraction of the time of the step."""
    bottleneck: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Step:
    """The prediction of a step on one GPU, alone or among others."""

    arch: str
    tasks: tuple[TimedTask | TimedCollective, ...]
    clock_mhz: float
    """Mean over time, from the power governor."""
    power_w: float
    """Mean."""
    run: StepTiming
    messages_us: float = 0.0
    """Sum of the times of messages between the stages of a pipeline [us]."""
    awaited_us: float = 0.0
    """Time that messages add to the step [us]."""

    @property
    def computed(self) -> tuple[TimedTask, ...]:
        """Tasks that compute."""
        return tuple(one for one in self.tasks if isinstance(one, TimedTask))

    @property
    def step_us(self) -> float:
        """Time of a step [us]."""
        return self.run.step_us

    @property
    def communication_us(self) -> float:
        """Sum of the times in which GPUs exchange data [us]."""
        return self.messages_us + sum(one.total_us for one in self.tasks if isinstance(one, TimedCollective))

    @property
    def exposed_us(self) -> float:
        """Time of exchanges in which no kernel computes, or by which a pipeline takes longer for them [us]."""
        exchanged = {place for place, one in enumerate(self.tasks) if isinstance(one, TimedCollective)}
        if not exchanged:
            return self.awaited_us
        spans = self.run.spans
        exchanges = [span for span in spans if span.launch in exchanged]
        exposed = exposed_us(exchanges, [span for span in spans if span.launch not in exchanged])
        collectives_us = self.communication_us - self.messages_us
        return self.awaited_us + collectives_us * exposed / sum(span.end_us - span.start_us for span in exchanges)

    @property
    def kernel_us(self) -> float:
        """Sum of the times of the kernels that compute [us]."""
        return sum(one.total_us for one in self.computed)

    @property
    def kernels(self) -> float:
        """Tasks that a step runs."""
        return sum(task.count for task in self.tasks)

    @property
    def flops(self) -> float:
        """FLOP of matrix multiplications and convolutions in all passes, recomputation included."""
        return sum(
            one.count * one.task.operator.flops
            for one in self.computed
            if isinstance(one.task.operator, MATRIX_OPERATORS)
        )

    @property
    def tflops(self) -> float:
        """Rate of the FLOP of its matrix operators over the whole step [TFLOP/s]."""
        return self.flops / self.step_us / 1e6

    @property
    def tensor_active_fraction(self) -> float:
        """Share of the cycles of a step in which the Tensor Core pipes work, averaged over all SMs."""
        return sum(one.total_us * one.result.counters.tensor_active_fraction for one in self.computed) / self.step_us

    @property
    def energy_j(self) -> float:
        """Energy that the GPU takes in a step [J]."""
        return self.power_w * self.step_us * 1e-6

    @property
    def idle_fraction(self) -> float:
        """Share of a step in which no kernel runs: the GPU waits for the host, or starts the next kernel."""
        return max(0.0, 1 - (self.kernel_us + self.exposed_us + self.run.slowed_us) / self.step_us)

    @property
    def waiting_fraction(self) -> float:
        """Fraction of the time without a running kernel in which the next kernel is not launched yet."""
        waited_us = idle_us = end_us = 0.0
        for span in sorted(self.run.spans, key=lambda one: one.start_us):
            if span.start_us > end_us:
                idle_us += span.start_us - end_us
                waited_us += min(max(0.0, span.launched_us - end_us), span.start_us - end_us)
            end_us = max(end_us, span.end_us)
        return waited_us / idle_us if idle_us else 0.0

    @property
    def host_fraction(self) -> float:
        """Share of a step in which the GPU waits for the host."""
        return self.waiting_fraction * self.idle_fraction

    @property
    def is_host_bound(self) -> bool:
        """The GPU waits for the host for :data:`HOST_BOUND_FRACTION` of the step or more."""
        return self.host_fraction >= HOST_BOUND_FRACTION

    def savings(self) -> dict[str, float]:
        """Share of the step that each resource saves if it is twice as good, at this clock, the largest first.

        Of kernels, as far as their limits were found; of the ``host``, half of what the GPU waits for it.
        """
        found = {"host": self.host_fraction / 2, "communication": self.exposed_us / self.step_us / 2}
        for one in self.computed:
            for name, saved in one.savings.items():
                found[name] = found.get(name, 0.0) + max(0.0, saved) * one.total_us / self.step_us
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def bottleneck(self) -> str:
        """What saves most: ``host``, ``communication`` or a resource as of operators."""
        return next(iter(self.savings()))

    def time_shares(self) -> dict[str, float]:
        """Shares of the step by what limits its kernels; the largest first, one together.

        ``idle``: nothing runs; ``communication``: GPUs exchange data and compute nothing, or slower for it.
        """
        found = {"idle": self.idle_fraction}
        if exposed := self.exposed_us + self.run.slowed_us:
            found["communication"] = exposed / self.step_us
        for one in self.computed:
            for name, share in one.result.utilization.time_shares.items():
                found[name] = found.get(name, 0.0) + share * one.total_us / self.step_us
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def operators(self) -> list[OperatorShare]:
        """Operators of the step, in descending order of time."""
        found: dict[Hashable, list[TimedTask]] = {}
        for one in self.computed:
            found.setdefault(one.task.operator, []).append(one)
        shares = [self._share(members) for members in found.values()]
        return sorted(shares, key=lambda one: (-one.time_us, one.name))

    def _share(self, members: list[TimedTask]) -> OperatorShare:
        first, time_us = members[0], sum(one.total_us for one in members)
        return OperatorShare(
            first.task.name,
            first.result.operator.op,
            first.result.operator.shape,
            sum(one.count for one in members),
            time_us,
            time_us / self.step_us,
            first.result.bottleneck,
            first.result.kernel,
        )

    def times_by(self, key: Callable[[TimedTask | TimedCollective], Key]) -> Mapping[Key, float]:
        """Kernel time of the tasks with a key [us], the largest first."""
        found: dict[Key, float] = {}
        for one in self.tasks:
            found[key(one)] = found.get(key(one), 0.0) + one.total_us
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def added(steps: Sequence[tuple[float, Step]]) -> Step:
    """Steps, each so many times, as one; clock and power are those of the mean."""
    total_us = sum(times * step.step_us for times, step in steps)
    tasks = tuple(replace(task, count=times * task.count) for times, step in steps for task in step.tasks)
    clock_mhz = sum(times * step.step_us * step.clock_mhz for times, step in steps) / total_us
    power_w = sum(times * step.step_us * step.power_w for times, step in steps) / total_us
    return Step(steps[0][1].arch, tasks, clock_mhz, power_w, StepTiming(total_us, total_us, 0.0, ()))


def exposed_us(exchanges: Sequence[TaskSpan], kernels: Sequence[TaskSpan]) -> float:
    """Time in which exchanges run and no kernel does [us]; the spans of each follow one another."""
    busy = iter(sorted(kernels, key=lambda span: span.start_us))
    kernel = next(busy, None)
    total = 0.0
    for span in sorted(exchanges, key=lambda one: one.start_us):
        at = span.start_us
        while kernel and kernel.end_us <= at:
            kernel = next(busy, None)
        while kernel and kernel.start_us < span.end_us:
            total += max(0.0, kernel.start_us - at)
            at = min(kernel.end_us, span.end_us)
            if kernel.end_us > span.end_us:
                break
            kernel = next(busy, None)
        total += span.end_us - at
    return total
