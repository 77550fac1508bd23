"""Interface of a device under measurement: replayed operators, microbenchmarks, telemetry. Times in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gpusim.errors import InputError
from gpusim.evidence.boards import gpu_of_device
from gpusim.measure.suite import Microbenchmark
from gpusim.workloads.operators import Operator

MAX_LAUNCHES = 500
"""Most launches in one graph."""
MARKER = "spin_kernel"
"""The kernel of ``torch.cuda._sleep``, which marks the start of an operator in a profile."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)


def behind_markers(kernels: Iterable[NamedT]) -> list[list[NamedT]]:
    """The kernels after each marker, in order; those before the first marker are dropped."""
    groups: list[list[NamedT]] = []
    for kernel in kernels:
        if MARKER in kernel.name:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    return groups


class NoDeviceError(InputError):
    """No device to measure; the text says what to install or where to run."""


class UnavailableError(Exception):
    """This device or its software cannot run one item; the text is the reason to log."""


class DeviceLostError(Exception):
    """The device no longer responds in this process; a new process may recover it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The measured GPU and its software. Identifies no individual card."""

    gpu_name: str
    """Name reported by nvidia-smi."""
    l2_bytes: int
    versions: tuple[tuple[str, str], ...]
    """(``driver``, ``cuda``, ``torch`` …) and their versions."""
    facts: tuple[tuple[str, str], ...] = ()
    """For the log only: SM count, memory, limits, what is missing."""

    @property
    def gpu(self) -> str:
        """The name in the measured schema."""
        return gpu_of_device(self.gpu_name)

    @property
    def cuda(self) -> str:
        """The major version of CUDA for the measured schema; empty if it is unknown."""
        major = dict(self.versions).get("cuda", "").partition(".")[0]
        return major if major.isdecimal() else ""


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """One kernel of an operator, from a profiler."""

    name: str
    time_us: float
    grid: tuple[int, int, int]
    threads: int
    registers: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class SensorReading:
    """One sample of the card's sensors."""

    at_s: float
    """``time.monotonic``."""
    clock_mhz: float
    """0 where the card does not report it; likewise power and temperature."""
    power_w: float
    temperature_c: float
    throttle: frozenset[str]
    """Clock throttle reasons, by their NVML names."""
    energy_mj: float | None
    """The card's energy counter; None without one."""


@dataclass(frozen=True, slots=True)
class MicroResult:
    """Readings of one microbenchmark, one value per repetition."""

    values: tuple[float, ...]
    unit: str
    note: str = ""


class Telemetry(Protocol):
    """Sensors sampled in the background during a run."""

    def readings(self, since_s: float) -> Sequence[SensorReading]:
        """Samples taken since a ``time.monotonic``."""


class Prepared(Protocol):
    """An operator with its operands on the device, warmed up."""

    def once(self) -> None:
        """Run once and synchronise."""

    def replay(self, launches: int, replays: int, *, cold: bool) -> Sequence[float]:
        """Replay a graph of ``launches`` back to back; the duration of each replay [us].

        Cold: operands rotate so that none is in L2 when it is read. Warm: the same operands each time.
        """

    def kernels(self) -> Sequence[ProfiledKernel]:
        """The kernels of one launch in order; empty without a profiler."""

    @property
    def algorithm(self) -> str:
        """The algorithm that was requested from the library, if any."""


class Device(Protocol):
    """A GPU and the software on it."""

    @property
    def identity(self) -> Identity:
        """What is measured."""

    def prepare(self, operator: Operator) -> AbstractContextManager[Prepared]:
        """Make an operator ready to be replayed.

        Raises:
            UnavailableError: it cannot run on this device.
            DeviceLostError: it made the device fail.
        """

    def microbenchmark(self, item: Microbenchmark) -> MicroResult:
        """Run one microbenchmark; raises like :meth:`prepare`."""

    def telemetry(self) -> AbstractContextManager[Telemetry]:
        """Sensors, sampled while the context is open."""
