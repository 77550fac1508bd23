"""The values that a calibration may change, and their ranges: physical values that the spec marks as uncertain.

A value's kind says how well it is known before any timing is looked at. Datasheet values never move. A measured value
moves within its stated spread. The others have a log-normal prior around what stands in the spec, as wide as the spread
where one is stated, and a range that physics allows. What all architectures inherit from one base with a spread has one
prior: they agree unless runs insist.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

from gpusim.evidence.sources import SOURCES, MeasuredSystem
from gpusim.system import System, value_at

SPREAD: Mapping[str, float] = {"measured": 0.03, "fitted": 0.2, "assumed": 0.7}
"""Relative deviation of a value before the fit, where the spec states none: a microbenchmark repeats within a few
percent; an assumption may be off by a factor of two. A fit to other runs lies between: a few runs of the user's own
correct it without undoing it."""

AT_LIMIT = 0.01
"""Distance from a limit that counts as being at it."""

LIMITS: Mapping[str, tuple[float, float]] = {
    "load_store.staging_fma_slots": (0.1, 32.0),
    "shared_memory.broadcast_fraction": (0.5, 1.0),
    "shared_memory.sustained_fraction": (0.3, 1.0),
    "shared_memory.epilogue_pass_cycles": (20.0, 600.0),
    "l2.bandwidth_bytes_per_cycle": (100.0, 20000.0),
    "l2.usable_fraction": (0.1, 1.0),
    "l2.write_cost": (1.0, 3.0),  # writes pass no faster than reads; 1.65 on Hopper
    "dram.efficiency_fraction": (0.3, 0.98),  # DRAM has to refresh
    "dram.activation_bytes": (1.0, 500.0),
    "dram.tlb_miss_ns": (1.0, 3000.0),
    "sm.cta_launch_cycles": (1.0, 5000.0),
    "instructions.*.sustained_fraction": (0.3, 1.0),
    "power.cuda_pj_per_fma": (3.0, 60.0),  # half of what GH200 takes at 4N, twice of what V100 takes at 12FFN
    "power.tensor_pj_per_fma": (0.3, 10.0),
    "front_end.kernel_latency_us": (0.1, 10.0),
    "host.graph_gap_us": (0.01, 10.0),
    "host.stream_gap_us": (1.0, 5.0),  # from one small kernel of a stream to the next: 1.2 us on an A40
    "host.library_interval_us": (0.1, 50.0),
    "host.method_overhead_us.*": (0.1, 200.0),
    "sources.stall_us.*": (0.1, 15.0),  # 1.5 ms of a loop of 100 calls
}
"""What may move (``*`` stands for a name) and the range that physics allows."""

HOST = "host"
OF_SOURCE = f"{SOURCES}.timing_us."
"""Key paths of what the timing methods of sources add."""
STALL_OF_SOURCE = f"{SOURCES}.stall_us."
"""Key paths of what sources did beside their calls."""
OF_RUNS = (f"{HOST}.", f"{SOURCES}.")
"""How key paths begin that belong to machines of runs, not to the GPU."""

TIMING_LIMITS_US: Mapping[str, tuple[float, float]] = {
    "graph": (0.2, 2.0),  # the shortest kernels of a graph follow each other in 1.1 to 1.4 us, start and end included
    "stream": (1.5, 40.0),  # from a bare launch to a framework's call that a slow CPU makes
    "layer": (2.0, 15.0),
    "event": (10.0, 65.0),  # a framework's call by fast and by slow CPUs
    "host": (10.0, 60.0),
    "do_bench": (2.0, 10.0),  # two events and a launch
}
"""The range of a source's own way of timing, by timing method; a profiler reads the kernels alone."""

REACHED: Mapping[str, tuple[float, ...]] = {
    "*sustained_fraction": (1.0,),  # issue without a gap
    "shared_memory.broadcast_fraction": (0.5, 1.0),  # all neighbours share a read, or none
    "host.stream_gap_us": (5.0,),  # how a library's kernel begins is not simulated
}
"""Limits that a GPU may have exactly: a fit that ends there misses nothing."""


class SourceTiming(NamedTuple):
    """How a source of runs timed."""

    method: str
    shortest_us: float
    """Its shortest reading: neither the launch interval nor what is added is longer [us]."""


class Known(NamedTuple):
    """How well a value is known before the fit."""

    kind: str
    spread: float | None = None
    """Spread of the value, as the spec states it."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Value that may move; the search is in its logarithm."""

    key_path: str
    value: float
    """Before the fit to runs: in the spec, or by microbenchmarks."""
    kind: str
    prior_sd: float
    """Standard deviation of the logarithm before the fit."""
    low: float
    high: float
    stated: str = ""
    """The spec's value and its kind, where microbenchmarks gave another."""
    begins_high: bool = False
    """Whether the search begins at the upper limit: a launch interval below the time of all kernels has no slope."""

    def at(self, move: float) -> float:
        """The value after a move of its logarithm, within the limits, with the digits that a spec states."""
        return float(f"{min(max(self.value * math.exp(move), self.low), self.high):.6g}")

    def measured(self, move: float, spread: float) -> Parameter:
        """The value as microbenchmarks show it: runs may move it within the spread of these.

        Where they agree with the spec, its value stays.
        """
        agrees = abs(move) <= spread
        value = self.value if agrees else self.at(move)
        low, high = max(self.low, value * (1 - spread)), min(self.high, value * (1 + spread))
        stated = "" if agrees else f"{self.value:g} ({self.kind})"
        return Parameter(self.key_path, value, "measured", spread, low, high, stated)

    @property
    def origin(self) -> str:
        """The spec's value and its kind."""
        return self.stated or f"{self.value:g} ({self.kind})"

    @property
    def known_sd(self) -> float:
        """Standard deviation of the logarithm that the prior and the allowed range leave together.

        A value of which nothing is known but its range lies anywhere in it: a uniform distribution of width w has w
        over the root of 12.
        """
        return min(self.prior_sd, math.log(self.high / self.low) / math.sqrt(12))

    @property
    def low_move(self) -> float:
        """Logarithm of the lower limit over the value."""
        return math.log(self.low / self.value)

    @property
    def high_move(self) -> float:
        return math.log(self.high / self.value)

    def limit_at(self, value: float) -> float | None:
        """The end of the allowed range that a value is pressed against."""
        if value <= self.low * (1 + AT_LIMIT):
            return self.low
        return self.high if value >= self.high * (1 - AT_LIMIT) else None

    @property
    def reached(self) -> tuple[float, ...]:
        """Ends of the range that are not a sign of a mistake."""
        if self.kind == "measured" or self.key_path.startswith(OF_SOURCE):
            return self.low, self.high
        return next((ends for pattern, ends in REACHED.items() if fnmatchcase(self.key_path, pattern)), ())


@dataclass(frozen=True, slots=True)
class FittedBoard:
    """A board of a calibration, whose values are fitted or kept."""

    measured: MeasuredSystem
    known: Mapping[str, Known]
    """Values by key path that the board inherits from the spec that is fitted."""
    sha256: str
    """Hash of the files that the board was read from."""

    @property
    def system(self) -> System:
        return self.measured.system

    def with_overheads(self, overheads: Mapping[str, float]) -> FittedBoard:
        """The board in a machine with this host time, by timing method [us]; what is given is not fitted."""
        if not overheads:
            return self
        given = {f"host.method_overhead_us.{method}" for method in overheads}
        known = {key: one for key, one in self.known.items() if key not in given and not key.startswith(f"{SOURCES}.")}
        return FittedBoard(self.measured.with_overheads(overheads), known, f"{self.sha256} {sorted(overheads.items())}")

    def with_sources(self, sources: Mapping[str, SourceTiming]) -> FittedBoard:
        """The board in machines where each source of runs, by its key, may have timed in its own way."""
        host = self.system.host
        own = {source: host.timing_us(one.method) for source, one in sources.items() if one.method in TIMING_LIMITS_US}
        known = {f"{OF_SOURCE}{source}": Known("assumed") for source in own}
        overheads = self.measured.overheads
        overheads = overheads.model_copy(update={"timing_us": {**own, **overheads.timing_us}})
        return FittedBoard(replace(self.measured, overheads=overheads), {**known, **self.known}, self.sha256)

    def with_values(self, values: Iterable[tuple[str, float]]) -> MeasuredSystem:
        """The board with trial values in place, where it has none of its own."""
        return self.measured.with_values(item for item in values if item[0] in self.known)


def may_move(key_path: str) -> bool:
    """Whether a value is one of those that a calibration fits where they are uncertain."""
    return any(fnmatchcase(key_path, pattern) for pattern in LIMITS)


def parameters(
    boards: Collection[FittedBoard],
    instructions: Collection[str],
    methods: Collection[str],
    sources: Mapping[str, SourceTiming] = MappingProxyType({}),
) -> tuple[Parameter, ...]:
    """What may move in the spec that boards extend.

    Args:
        instructions: that the runs used.
        methods: timing methods of runs without a source, and ``stream`` where any run was timed so.
        sources: of the other runs, by key.
    """
    found: dict[str, Parameter] = {}
    for board in boards:
        numbers = board.measured.values()
        for key_path, known in sorted(board.known.items()):
            limits = _limits(key_path, sources)
            if (
                key_path in found
                or limits is None
                or known.kind == "datasheet"
                or not _used(key_path, instructions, methods)
            ):
                continue
            stated = float(value_at(numbers, key_path.split(".")))
            if stated != 0.0:  # what a GPU does not have has no logarithm to search in
                found[key_path] = _parameter(key_path, stated, known, limits)
    intervals = {f"{OF_SOURCE}{source}" for source, one in sources.items() if one.method == "stream"}
    return tuple(replace(one, begins_high=one.key_path in intervals) for one in found.values())


def _limits(key_path: str, sources: Mapping[str, SourceTiming]) -> tuple[float, float] | None:
    """The range that physics allows a value; None of one that does not move."""
    if key_path.startswith(OF_SOURCE):
        source = sources.get(key_path.removeprefix(OF_SOURCE))
        if source is None or source.method not in TIMING_LIMITS_US:
            return None
        low, high = TIMING_LIMITS_US[source.method]
        return (low, min(high, source.shortest_us)) if low < source.shortest_us else None
    return next((limits for pattern, limits in LIMITS.items() if fnmatchcase(key_path, pattern)), None)


def _parameter(key_path: str, stated: float, known: Known, limits: tuple[float, float]) -> Parameter:
    """A value that may move within what physics, and the spread of its measurement, allow."""
    spread = SPREAD[known.kind] if known.spread is None else known.spread
    low, high = limits
    value = min(max(stated, low), high)
    if known.kind == "measured":
        low, high = max(low, value * (1 - spread)), min(high, value * (1 + spread))
    return Parameter(key_path, value, known.kind, spread, low, high)


def _used(key_path: str, instructions: Collection[str], methods: Collection[str]) -> bool:
    """Whether any run depends on a value of an instruction or of a way of timing."""
    group, _, rest = key_path.partition(".")
    name = rest.partition(".")[0]
    if group == "instructions":
        return name in instructions
    if key_path.startswith("host.method_overhead_us."):
        return key_path.rpartition(".")[2] in methods
    if key_path == "host.graph_gap_us":
        return any(method in methods for method in ("graph", "event", "host"))
    return key_path not in ("host.stream_gap_us", "host.library_interval_us") or "stream" in methods
