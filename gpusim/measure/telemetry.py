"""The card's sensors through NVML, sampled in a thread. Read only: no setting of the card is changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from gpusim.measure.device import SensorReading

try:
    import pynvml
except ImportError:
    pynvml = None

INTERVAL_S = 0.01
THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of ``nvmlClocksEventReasons`` (NVML API reference)."""
POWER_INSTANT_FIELD = 186
"""``NVML_FI_DEV_POWER_INSTANT``: newer cards return a one-second average for the older query."""


class Sensors:
    """One card in NVML. A query that the card or driver does not support returns None."""

    def __init__(self, uuid: str) -> None:
        self.missing = ""
        self._handle: Any = None
        if pynvml is None:
            self.missing = "no clocks, power or temperature: nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            self._handle = _handle_of(uuid)
        except pynvml.NVMLError as error:
            self.missing = f"no clocks, power or temperature: NVML reports {error}"

    @property
    def driver(self) -> str:
        """Version of the driver; empty if unknown."""
        if pynvml is None:
            return ""
        version = self._asked(pynvml.nvmlSystemGetDriverVersion)
        return version.decode() if isinstance(version, bytes) else str(version or "")

    def facts(self) -> dict[str, str]:
        """Current limits and settings."""
        if self._handle is None:
            return {"sensors": self.missing}
        limit_mw = self._asked(pynvml.nvmlDeviceGetEnforcedPowerLimit, self._handle)
        sm_mhz = self._asked(pynvml.nvmlDeviceGetMaxClockInfo, self._handle, pynvml.NVML_CLOCK_SM)
        memory_mhz = self._asked(pynvml.nvmlDeviceGetMaxClockInfo, self._handle, pynvml.NVML_CLOCK_MEM)
        return {
            "power_limit_w": str(limit_mw / 1e3 if limit_mw else "unknown"),
            "max_sm_clock_mhz": str(sm_mhz or "unknown"),
            "max_memory_clock_mhz": str(memory_mhz or "unknown"),
        }

    def read(self) -> SensorReading | None:
        """Sample of clock, power and temperature; None without sensors."""
        if self._handle is None:
            return None
        clock = self._asked(pynvml.nvmlDeviceGetClockInfo, self._handle, pynvml.NVML_CLOCK_SM)
        temperature = self._asked(pynvml.nvmlDeviceGetTemperature, self._handle, pynvml.NVML_TEMPERATURE_GPU)
        energy = self._asked(pynvml.nvmlDeviceGetTotalEnergyConsumption, self._handle)
        return SensorReading(
            at_s=time.monotonic(),
            clock_mhz=float(clock or 0),
            power_w=self._power_w(),
            temperature_c=float(temperature or 0),
            throttle=self._throttle(),
            energy_mj=None if energy is None else float(energy),
        )

    def _power_w(self) -> float:
        try:
            (field,) = pynvml.nvmlDeviceGetFieldValues(self._handle, [POWER_INSTANT_FIELD])
            if field.nvmlReturn == pynvml.NVML_SUCCESS and field.value.uiVal:
                return float(field.value.uiVal) / 1e3
        except (pynvml.NVMLError, AttributeError, TypeError, ValueError):
            pass  # older drivers and bindings support only the older query
        return float(self._asked(pynvml.nvmlDeviceGetPowerUsage, self._handle) or 0) / 1e3

    def _throttle(self) -> frozenset[str]:
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            query = getattr(pynvml, name, None)
            mask = None if query is None else self._asked(query, self._handle)
            if mask is not None:
                return frozenset(reason for bit, reason in THROTTLE_REASONS.items() if mask & bit)
        return frozenset()

    @staticmethod
    def _asked(query: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return query(*arguments)
        except pynvml.NVMLError:
            return None


def _handle_of(uuid: str) -> Any:
    """The card with this UUID; the only card where NVML and CUDA identify it differently, as on virtual machines."""
    if uuid:
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            if pynvml.nvmlDeviceGetCount() != 1:
                raise
    return pynvml.nvmlDeviceGetHandleByIndex(0)


class SensorRecorder:
    """Samples of the sensors, taken in a thread while the context is open."""

    def __init__(self, read: Callable[[], SensorReading | None]) -> None:
        self._read = read
        self._samples: list[SensorReading] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def readings(self, since_s: float) -> Sequence[SensorReading]:
        """Samples taken since a ``time.monotonic``; older ones are dropped."""
        kept = [sample for sample in list(self._samples) if sample.at_s >= since_s]
        del self._samples[: max(0, len(self._samples) - len(kept) - 1)]
        return kept

    def _sample(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            sample = self._read()
            if sample is None:
                return
            self._samples.append(sample)
