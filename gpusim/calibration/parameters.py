"""What a calibration may move, and how far: physical values whose spec admits that they are uncertain.

A value's kind says how well it is known before any timing is looked at. Datasheet values never move; the others have
a log-normal prior around what stands in the spec, and a range that physics allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gpusim.arch import GpuArch
from gpusim.specfile import Spec

PRIOR_SD: Mapping[str, float] = {"measured": 0.1, "fitted": 0.7, "assumed": 0.7}
"""Standard deviation of the logarithm of a value before the fit: microbenchmarks of one board, read by others, agree
within some 10 %; an assumption may be off by a factor of two."""

AT_LIMIT = 0.01
"""Distance from a limit that counts as being at it."""

LIMITS: Mapping[str, tuple[float, float]] = {
    "load_store.fill_pipe_instructions": (0.1, 32.0),
    "shared_memory.turned_fill_ways": (1.0, 32.0),
    "shared_memory.sustained_fraction": (0.3, 1.0),
    "l2.bandwidth_bytes_per_cycle": (100.0, 20000.0),
    "dram.tiled_fraction": (0.3, 1.0),
    "dram.tlb_miss_ns": (1.0, 3000.0),
    "sm.cta_launch_cycles": (1.0, 5000.0),
    "instructions.*.sustained_fraction": (0.3, 1.0),
    "instructions.*.energy_pj_per_fma": (0.02, 200.0),
    "power.active_static_w": (0.5, 300.0),
    "power.instruction_pj_per_lane": (0.5, 200.0),
    "power.l2_pj_per_byte": (0.5, 300.0),
    "power.dram_pj_per_byte": (5.0, 1000.0),
    "launch.kernel_latency_us": (0.1, 10.0),
    "launch.graph_gap_us": (0.01, 10.0),
    "launch.stream_gap_us": (0.01, 10.0),
    "launch.library_interval_us": (0.1, 50.0),
    "launch.method_overhead_us.*": (0.1, 200.0),
}
"""What may move (``*`` stands for a name) and the range that physics allows."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that may move; the search is in its logarithm."""

    key_path: str
    value: float
    """In the spec, before the fit."""
    kind: str
    low: float
    high: float

    @property
    def prior_sd(self) -> float:
        return PRIOR_SD[self.kind]

    def touches_limit(self, value: float) -> bool:
        """Whether a value is pressed against the range that physics allows."""
        return value <= self.low * (1 + AT_LIMIT) or value >= self.high * (1 - AT_LIMIT)


def parameters(spec: Spec, instructions: Iterable[str], methods: Collection[str]) -> tuple[Parameter, ...]:
    """What may move in a spec, given the instructions and the ways of timing that the runs used."""
    numbers = spec.arch.model_dump()
    of_streams = {"launch.stream_gap_us", "launch.library_interval_us"}
    named = {"instructions": set(instructions), "launch.method_overhead_us": set(methods)}
    found = []
    for pattern, (low, high) in LIMITS.items():
        for key_path, origin in spec.provenance.items():
            parent, _, _ = key_path.partition("*")[0].rpartition(".")
            if not fnmatchcase(key_path, pattern) or origin.kind == "datasheet":
                continue
            if key_path in of_streams and "stream" not in methods:
                continue
            group = "instructions" if parent.startswith("instructions.") else parent
            name = key_path.split(".")[1] if group == "instructions" else key_path.rpartition(".")[2]
            if group in named and name not in named[group]:
                continue
            value = min(max(float(value_at(numbers, key_path)), low), high)
            found.append(Parameter(key_path, value, origin.kind, low, high))
    return tuple(found)


def value_at(numbers: Mapping[str, Any], key_path: str) -> Any:
    """The value at a key path of nested mappings."""
    part: Any = numbers
    for key in key_path.split("."):
        part = part[key]
    return part


def with_values(arch: GpuArch, values: Sequence[tuple[str, float]]) -> GpuArch:
    """A board with trial values in place; keys of mappings may be new."""
    numbers = arch.model_dump()
    for key_path, value in values:
        *parents, last = key_path.split(".")
        value_at(numbers, ".".join(parents))[last] = value
    return GpuArch.model_validate(numbers)
