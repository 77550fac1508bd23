"""GPUs of a file that no spec describes: what the file says of them, and the spec that is nearest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.errors import excerpt
from gpusim.evidence.boards import board_of
from gpusim.hardware.gpu import Gpu
from gpusim.specs import UnknownGpuError, list_archs, load_spec
from gpusim.units import GIB

WARP_THREADS = 32
"""Threads of a warp on every NVIDIA GPU; those of other makers have 64."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as a profiler describes it; None where it does not say."""

    name: str
    capability: tuple[int, int] | None = None
    sms: int | None = None
    memory_gib: float | None = None
    warp_threads: int | None = None

    @classmethod
    def of_properties(cls, properties: Mapping[str, Any]) -> Device:
        """A GPU by the entry of ``deviceProperties`` in a trace of Kineto.

        >>> Device.of_properties({"name": "NVIDIA A100-PG509-200", "computeMajor": 8, "computeMinor": 0, "numSms": 108})
        Device(name='NVIDIA A100-PG509-200', capability=(8, 0), sms=108, memory_gib=None, warp_threads=None)
        """
        numbers = {key: value for key, value in properties.items() if type(value) is int and 0 <= value < 2**63}
        major, minor = numbers.get("computeMajor"), numbers.get("computeMinor")
        memory_bytes = numbers.get("totalGlobalMem")
        return cls(
            str(properties.get("name", "")),
            None if major is None or minor is None else (major, minor),
            numbers.get("numSms") or None,
            memory_bytes / GIB if memory_bytes else None,
            numbers.get("warpSize"),
        )

    @property
    def described(self) -> str:
        """What is known beside the name; empty where that is nothing."""
        parts = (
            f"compute capability {self.capability[0]}.{self.capability[1]}" if self.capability else "",
            f"{self.sms} SMs" if self.sms else "",
            f"{self.memory_gib:.0f} GiB" if self.memory_gib else "",
        )
        return ", ".join(part for part in parts if part)

    @property
    def is_nvidia(self) -> bool:
        """Whether nothing says that another maker built it."""
        words = self.name.lower().split()
        return self.warp_threads in (None, WARP_THREADS) and not {"amd", "intel", "radeon", "instinct"} & {*words}


def without_spec(gpu: str, device: Device) -> str:
    """What to know of a GPU of a measured table: empty where a spec describes it, else the nearest and the remedy."""
    try:
        board_of(gpu)
    except UnknownGpuError:
        pass
    else:
        return ""
    known = f" ({device.described})" if device.described else ""
    problem = f"{excerpt(gpu)}: no spec describes this GPU{known}, so validate and calibrate skip its rows"
    if not device.is_nvidia:
        return f"{problem}; it is not an NVIDIA GPU, and none of the specs is near"
    nearest = _nearest(device)
    if not nearest:
        return f"{problem}; write one with gpusim archs new, or name the GPU with --gpu"
    return (
        f"{problem}; nearest: {' or '.join(nearest)}; import with --gpu {nearest[0]} to take it for that one,"
        f" or describe it: gpusim archs new {excerpt(gpu)} --like {nearest[0]}"
    )


def _nearest(device: Device) -> list[str]:
    """Boards nearest to a device: by generation, then by SMs and memory; several where nothing tells them apart."""
    if device.capability is None:
        return []
    capability = device.capability
    boards = [load_spec(entry.path).gpu for entry in list_archs()]

    def distance(gpu: Gpu) -> tuple[int, int, float]:
        sizes = ((device.sms, gpu.sm.count), (device.memory_gib, gpu.dram.capacity_gb))
        ratios = [abs(math.log(one / other)) for one, other in sizes if one]
        return (
            abs(gpu.capability[0] - capability[0]),
            abs(gpu.capability[1] - capability[1]),
            round(math.fsum(ratios), 3),
        )

    least = min(map(distance, boards))
    return [gpu.name for gpu in boards if distance(gpu) == least]
