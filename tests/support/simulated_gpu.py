"""A simulated device for the measurement runner: deterministic times, no GPU, no PyTorch.

python tests/support/simulated_gpu.py SUITE.yaml MEASURED.csv [SECONDS_PER_ITEM]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpusim.measure.device import (
    DeviceLostError,
    Identity,
    MicroResult,
    Prepared,
    ProfiledKernel,
    SensorReading,
    Telemetry,
    UnavailableError,
)
from gpusim.measure.runner import run_suite
from gpusim.measure.suite import Microbenchmark, load_suite
from gpusim.numbers.formats import Dtype
from gpusim.workloads.operators import Operator

LAUNCH_US = 2.0
FLOP_PER_US = 1e8
BYTES_PER_US = 1e6


class SimulatedGpu:
    """Times follow from bytes and operations; it has no FP8, and items named in ``deadly`` make it fail."""

    def __init__(self, driver: str = "1.0", deadly: tuple[str, ...] = (), seconds_per_item: float = 0.0) -> None:
        self.driver = driver
        self.deadly = deadly
        self.seconds_per_item = seconds_per_item
        self.prepared: list[str] = []

    @property
    def identity(self) -> Identity:
        return Identity("NVIDIA Simulated X1", 2**20, (("driver", self.driver), ("torch", "0.0")))

    @contextmanager
    def prepare(self, operator: Operator) -> Iterator[Prepared]:
        self.prepared.append(operator.op)
        time.sleep(self.seconds_per_item)
        if operator.op in self.deadly:
            raise DeviceLostError("an illegal address")
        if operator.dtype is Dtype.FP8:
            raise UnavailableError("RuntimeError: no FP8\n  on this GPU")
        yield SimulatedOperator(operator)

    def microbenchmark(self, item: Microbenchmark) -> MicroResult:
        if item.variant in self.deadly:
            raise DeviceLostError("an illegal instruction")
        return MicroResult((1.0, 2.0, 3.0, 4.0, 5.0), "cycles", "made up")

    @contextmanager
    def telemetry(self) -> Iterator[Telemetry]:
        yield SimulatedSensors()


class SimulatedOperator:
    """Cold operands take their bytes' time on top, a long load a tenth more."""

    algorithm = ""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def once(self) -> None:
        """Nothing to do."""

    def replay(self, launches: int, replays: int, *, cold: bool) -> Sequence[float]:
        launch_us = LAUNCH_US + self.operator.flops / FLOP_PER_US + cold * self.operator.size_bytes / BYTES_PER_US
        slow = [launches * launch_us] * replays
        return [0.5 * slow[0], *slow[1:]] if replays > 3 else slow

    def kernels(self) -> Sequence[ProfiledKernel]:
        main = ProfiledKernel("simulated_gemm<128,\n 64>", 1.5, (4, 2, 1), 256, 128, 49152)
        return main, ProfiledKernel("simulated_reduce", 0.5, (8, 1, 1), 64, 16, 0)


class SimulatedSensors:
    """Sensors with constant readings."""

    def readings(self, since_s: float) -> Sequence[SensorReading]:
        throttle = frozenset({"sw_power_cap"})
        return [SensorReading(since_s + i, 1500.0, 300.0, 50.0, throttle, 3e5 * i) for i in range(3)]


if __name__ == "__main__":
    suite_name, out, *seconds = sys.argv[1:]
    gpu = SimulatedGpu(seconds_per_item=float(seconds[0]) if seconds else 0.0)
    done = run_suite(load_suite(suite_name), gpu, Path(out))
    print(done.measured, done.resumed, len(done.skipped), done.remaining)
