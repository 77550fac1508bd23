"""The values that a calibration may change, and their ranges: physical values that the spec marks as uncertain.

A value's kind says how well it is known before any timing is looked at. Datasheet values never move; the others have
a log-normal prior around what stands in the spec, and a range that physics allows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from gpusim.system import System, value_at

PRIOR_SD: Mapping[str, float] = {"measured": 0.1, "fitted": 0.2, "assumed": 0.7}
"""Standard deviation of the logarithm of a value before the fit: microbenchmarks of one board, read by others, agree
within about 10 %; an assumption may be off by a factor of two. A fit to other runs lies between: a few runs of the
user's own correct it without undoing it."""

SETTLED_WHEN_MEASURED = ("clock.max_mhz",)
"""Values read from a sensor: they change only where they were assumed."""

AT_LIMIT = 0.01
"""Distance from a limit that counts as being at it."""

LIMITS: Mapping[str, tuple[float, float]] = {
    "clock.max_mhz": (300.0, 3000.0),
    "load_store.staging_fma_slots": (0.1, 32.0),
    "load_store.tlb_miss_cycles": (1.0, 200.0),
    "shared_memory.broadcast_fraction": (0.5, 1.0),
    "shared_memory.transposed_store_conflict_degree": (1.0, 32.0),
    "shared_memory.sustained_fraction": (0.3, 1.0),
    "shared_memory.epilogue_pass_cycles": (20.0, 600.0),
    "l2.bandwidth_bytes_per_cycle": (100.0, 20000.0),
    "l2.usable_fraction": (0.2, 1.0),
    "l2.merged_store_fraction": (0.01, 0.99),
    "dram.efficiency_fraction": (0.3, 0.98),  # DRAM has to refresh
    "dram.activation_bytes": (1.0, 500.0),
    "dram.tlb_miss_ns": (1.0, 3000.0),
    "sm.cta_launch_cycles": (1.0, 5000.0),
    "instructions.*.sustained_fraction": (0.3, 1.0),
    "instructions.*.energy_pj_per_fma": (0.02, 200.0),
    "power.averaging_ms": (0.1, 1000.0),
    "power.active_static_w": (0.5, 300.0),
    "power.instruction_pj_per_lane": (0.5, 200.0),
    "power.l2_pj_per_byte": (0.5, 300.0),
    "power.dram_pj_per_byte": (5.0, 1000.0),
    "front_end.kernel_latency_us": (0.1, 10.0),
    "host.graph_gap_us": (0.01, 10.0),
    "host.stream_gap_us": (0.01, 10.0),
    "host.library_interval_us": (0.1, 50.0),
    "host.method_overhead_us.*": (0.1, 200.0),
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

    @property
    def known_sd(self) -> float:
        """Standard deviation of the logarithm that the prior and the allowed range leave together.

        A value of which nothing is known but its range lies anywhere in it: a uniform distribution of width w has w
        over the root of 12.
        """
        return min(self.prior_sd, math.log(self.high / self.low) / math.sqrt(12))

    def touches_limit(self, value: float) -> bool:
        """Whether a value is pressed against the range that physics allows."""
        return value <= self.low * (1 + AT_LIMIT) or value >= self.high * (1 - AT_LIMIT)


@dataclass(frozen=True, slots=True)
class Board:
    """A board that takes part."""

    system: System
    kinds: Mapping[str, str]
    """Kind of each value that is not the board's own but of the spec that is fitted."""
    sha256: str
    """Of the files it was read from."""

    def with_overheads(self, overheads: Mapping[str, float]) -> Board:
        """The board in a machine with this host time, by timing method [us]; what is given is not fitted."""
        if not overheads:
            return self
        given = {f"host.method_overhead_us.{method}" for method in overheads}
        kinds = {key: kind for key, kind in self.kinds.items() if key not in given}
        system = replace(self.system, host=self.system.host.with_overheads(overheads))
        return Board(system, kinds, f"{self.sha256} {sorted(overheads.items())}")

    def with_values(self, values: Iterable[tuple[str, float]]) -> System:
        """The system with trial values in place, where it has none of its own."""
        taken = [item for item in values if item[0] in self.kinds]
        return self.system.with_values(taken)


def may_move(key_path: str) -> bool:
    """Whether a value is one of those that a calibration fits where they are uncertain."""
    return any(fnmatchcase(key_path, pattern) for pattern in LIMITS)


def parameters(
    boards: Collection[Board], instructions: Collection[str], methods: Collection[str]
) -> tuple[Parameter, ...]:
    """What may move in the spec that boards extend, given the instructions and ways of timing that the runs used."""
    found: dict[str, Parameter] = {}
    for board in boards:
        numbers = board.system.values()
        for key_path, kind in sorted(board.kinds.items()):
            limits = [limit for pattern, limit in LIMITS.items() if fnmatchcase(key_path, pattern)]
            settled = kind == "datasheet" or (kind == "measured" and key_path in SETTLED_WHEN_MEASURED)
            if key_path in found or settled or not limits or not _used(key_path, instructions, methods):
                continue
            stated = float(value_at(numbers, key_path.split(".")))
            if stated == 0.0:
                # What a GPU does not have has no logarithm to search in.
                continue
            low, high = limits[0]
            value = min(max(stated, low), high)
            found[key_path] = Parameter(key_path, value, kind, low, high)
    return tuple(found.values())


def _used(key_path: str, instructions: Collection[str], methods: Collection[str]) -> bool:
    """Whether any run depends on a value of an instruction or of a way of timing."""
    group, _, rest = key_path.partition(".")
    name = rest.partition(".")[0]
    if group == "instructions":
        return name in instructions
    if key_path.startswith("host.method_overhead_us."):
        return key_path.rpartition(".")[2] in methods
    return key_path not in ("host.stream_gap_us", "host.library_interval_us") or "stream" in methods
