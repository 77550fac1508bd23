"""What a step comes to: its time, its parts by operator, phase, layer and bottleneck, Tensor Core activity, energy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpusim.models.task import Task
from gpusim.prediction.results import Result
from gpusim.step.schedule import Run
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm

Key = TypeVar("Key", bound=Hashable)


MATRIX_OPERATORS = (Gemm, Convolution)
"""Operators whose multiply-adds count as the FLOPs of a model."""


@dataclass(frozen=True, slots=True)
class TimedTask:
    """A task with its prediction."""

    task: Task
    count: int
    """Times that a step runs it."""
    time_us: float
    """Kernel time of one run [us]."""
    result: Result

    @property
    def total_us(self) -> float:
        """Of all its runs in a step [us]."""
        return self.count * self.time_us


@dataclass(frozen=True, slots=True)
class OperatorShare:
    """What one operator takes of a step, wherever it stands in the model."""

    name: str
    """The first layer that runs it."""
    op: str
    shape: str
    """Its sizes."""
    count: int
    time_us: float
    """Of all its runs."""
    share: float
    """Of the time of the step."""
    bottleneck: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Step:
    """The prediction of a step on one GPU."""

    arch: str
    tasks: tuple[TimedTask, ...]
    clock_mhz: float
    """Of all kernels, from the power governor."""
    power_w: float
    """Mean."""
    run: Run

    @property
    def step_us(self) -> float:
        """Time of a step [us]."""
        return self.run.step_us

    @property
    def kernel_us(self) -> float:
        """Sum of the times of its kernels [us]."""
        return sum(task.total_us for task in self.tasks)

    @property
    def kernels(self) -> int:
        """Tasks that a step runs."""
        return sum(task.count for task in self.tasks)

    @property
    def flops(self) -> int:
        """Of its matrix multiplications and convolutions: those of the backward pass and of recomputation, too."""
        return sum(
            one.count * one.task.operator.flops for one in self.tasks if isinstance(one.task.operator, MATRIX_OPERATORS)
        )

    @property
    def tflops(self) -> float:
        """Their rate [TFLOP/s]."""
        return self.flops / self.step_us / 1e6

    @property
    def tensor_active_fraction(self) -> float:
        """Share of the cycles of a step in which the Tensor Core pipes work, averaged over all SMs."""
        return sum(one.total_us * one.result.tensor_active_fraction for one in self.tasks) / self.step_us

    @property
    def energy_j(self) -> float:
        """Of the board, for one step [J]."""
        return self.power_w * self.step_us * 1e-6

    @property
    def idle_fraction(self) -> float:
        """Share of a step in which no kernel runs: the GPU waits for the host, or starts the next kernel."""
        return max(0.0, 1 - self.kernel_us / self.step_us)

    def time_shares(self) -> dict[str, float]:
        """Shares of the step by what limits its kernels, ``idle`` for none; the largest first, one together."""
        found = {"idle": self.idle_fraction}
        for one in self.tasks:
            for name, share in one.result.time_shares.items():
                found[name] = found.get(name, 0.0) + share * one.total_us / self.step_us
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def operators(self) -> list[OperatorShare]:
        """Its operators, the one that takes most time first."""
        found: dict[Hashable, list[TimedTask]] = {}
        for one in self.tasks:
            found.setdefault(one.task.operator, []).append(one)
        shares = [self._share(members) for members in found.values()]
        return sorted(shares, key=lambda one: (-one.time_us, one.name))

    def _share(self, members: list[TimedTask]) -> OperatorShare:
        first, time_us = members[0], sum(one.total_us for one in members)
        return OperatorShare(
            first.task.name,
            first.result.op,
            _shape(first.result),
            sum(one.count for one in members),
            time_us,
            time_us / self.step_us,
            first.result.bottleneck,
            first.result.kernel,
        )

    def times_by(self, key: Callable[[TimedTask], Key]) -> Mapping[Key, float]:
        """Kernel time of the tasks with a key [us], the largest first."""
        found: dict[Key, float] = {}
        for one in self.tasks:
            found[key(one)] = found.get(key(one), 0.0) + one.total_us
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def _shape(result: Result) -> str:
    """Batch, m, n and k as far as there are any."""
    size = f"{result.m}x{result.n}x{result.k}" if result.k else f"{result.m}x{result.n}"
    return size if result.batch == 1 else f"{result.batch} x {size}"
