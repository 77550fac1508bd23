"""What the runner asks of a device: operators replayed, microbenchmarks, telemetry. Times in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gpusim.errors import InputError
from gpusim.evidence.boards import gpu_of_device
from gpusim.measure.suite import Microbenchmark, Operator

MAX_LAUNCHES = 500
"""Launches in one graph, at most."""
MARKER = "spin_kernel"
"""The kernel of ``torch.cuda._sleep``, which tells a profiler's reader where an operator begins."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)


def behind_markers(kernels: Iterable[NamedT]) -> list[list[NamedT]]:
    """The kernels behind each marker, in order; what stands before the first is left out."""
    groups: list[list[NamedT]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    return groups


class NoDeviceError(InputError):
    """There is nothing to measure on; the text says what to install or where to run."""


class UnavailableError(Exception):
    """This device or its software cannot run one item; the text is the reason for the log."""


class DeviceLostError(Exception):
    """The device answers nothing any more in this process; a new process may find it well."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What was measured, by which software. Names no individual card."""

    gpu_name: str
    """As nvidia-smi writes it."""
    l2_bytes: int
    versions: tuple[tuple[str, str], ...]
    """(``driver``, ``cuda``, ``torch`` …) and their versions."""
    facts: tuple[tuple[str, str], ...] = ()
    """For the log only: SM count, memory, limits, what is missing."""

    @property
    def gpu(self) -> str:
        """The name in the measured schema."""
        return gpu_of_device(self.gpu_name)


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """One kernel of an operator, as a profiler saw it."""

    name: str
    time_us: float
    grid: tuple[int, int, int]
    threads: int
    registers: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One sample of the card's own sensors."""

    at_s: float
    """``time.monotonic``."""
    clock_mhz: float
    """0 where the card does not tell, as of power and temperature."""
    power_w: float
    temperature_c: float
    throttle: frozenset[str]
    """Reasons for which the clock is held back, as NVML names them."""
    energy_mj: float | None
    """The card's energy counter; None where it has none."""


@dataclass(frozen=True, slots=True)
class MicroResult:
    """What one microbenchmark read, one value per repetition."""

    values: tuple[float, ...]
    unit: str
    note: str = ""


class Telemetry(Protocol):
    """Sensors read in the background while something runs."""

    def readings(self, since_s: float) -> Sequence[Reading]:
        """Samples taken since a ``time.monotonic``."""


class Prepared(Protocol):
    """An operator with its operands on the device, warmed up."""

    def once(self) -> None:
        """Run it once and wait for it."""

    def replay(self, launches: int, replays: int, *, cold: bool) -> Sequence[float]:
        """Replay a graph of ``launches`` back to back; the duration of each replay [us].

        Cold: operands rotate so that none is in L2 when it is read. Warm: the same ones each time.
        """

    def kernels(self) -> Sequence[ProfiledKernel]:
        """The kernels of one launch in order; empty where no profiler is there."""

    @property
    def algorithm(self) -> str:
        """What the library was told to use, where it was told."""


class Device(Protocol):
    """A GPU and the software on it."""

    @property
    def identity(self) -> Identity:
        """What is measured."""

    def prepare(self, work: Operator) -> AbstractContextManager[Prepared]:
        """Make an operator ready to be replayed.

        Raises:
            UnavailableError: it cannot run here.
            DeviceLostError: it took the device down.
        """

    def microbenchmark(self, work: Microbenchmark) -> MicroResult:
        """Run one microbenchmark; raises like :meth:`prepare`."""

    def telemetry(self) -> AbstractContextManager[Telemetry]:
        """Sensors, read while the context is open."""
