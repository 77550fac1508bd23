"""Knobs of a board: a few values of its spec that a reader turns, each with the values that go with it.

A knob shows one value, and scales others in proportion: the SM clock is that of the boost clock too, and the rate of
the Tensor Cores is that of every instruction of theirs. What it stands for is a set of replaced values, as ``--set``
takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.errors import InputError, did_you_mean
from gpusim.experiment.key_units import name_and_unit
from gpusim.specs import Spec
from gpusim.specs.overrides import number_like, values_of
from gpusim.studies.explain.sensitivities import Resource, overrides_of

SPAN = 4.0
"""A knob goes from the shipped value over this factor to the shipped value times it."""


@dataclass(frozen=True, slots=True)
class KnobValue:
    """A value of the spec that a knob replaces."""

    key_path: str
    value: Any
    unit: str
    kind: str
    """Whether a datasheet states it, it was measured, fitted or assumed."""
    source: str


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob of a board as shipped."""

    name: str
    label: str
    unit: str
    """Unit of its value; ``×`` where the value is a multiple of what ships."""
    shipped: float
    least: float
    most: float
    step: float
    """Values are multiples of it; 0 where they are any number."""
    values: tuple[KnobValue, ...]
    """Values of the spec that it replaces, the one that it shows first."""


@dataclass(frozen=True, slots=True)
class _Definition:
    """A knob of every board."""

    label: str
    lead: str = ""
    """Key path of the value that it shows; empty of a knob that shows a multiple."""
    scaled: Resource | None = None
    """Values that it scales beside the one that it shows."""
    together: Callable[[Spec, float], dict[str, Any]] | None = None
    """Further values by the factor, of those that may not contradict each other."""


def _shared_memory(spec: Spec, factor: float) -> dict[str, Any]:
    """Sizes that can be carved out, and what a CTA may have, which stays as much below the largest of them."""
    shared = spec.gpu.shared_memory
    largest, reserve_kib = max(shared.carveouts_kib), max(shared.carveouts_kib) - shared.max_kib_per_cta
    return {
        "shared_memory.carveouts_kib": [number_like(one, one * factor) for one in shared.carveouts_kib],
        "shared_memory.max_kib_per_cta": number_like(largest, largest * factor - reserve_kib),
    }


def _clocks(spec: Spec, factor: float) -> dict[str, Any]:
    """The base clock, and the lowest one where it would lie above it."""
    clock = spec.gpu.clock
    base_mhz = number_like(clock.base_mhz, clock.base_mhz * factor)
    return {"clock.base_mhz": base_mhz, **({"clock.min_mhz": base_mhz} if base_mhz < clock.min_mhz else {})}


_KNOBS: Mapping[str, _Definition] = {
    "sms": _Definition("SMs", "sm.count"),
    "tensor_rate": _Definition(
        "Tensor Core rate",
        scaled=Resource("Tensor Core rate", less=r"instructions\..*\.issue_interval_cycles", unit="tensor"),
    ),
    "clock": _Definition(
        "SM clock", "clock.max_mhz", Resource("SM clock", more=r"clock\.(boost|tensor_boost)_mhz"), _clocks
    ),
    "power": _Definition("Power limit", "power.board_limit_w"),
    "l2_size": _Definition("L2 size", "l2.capacity_mib"),
    "l2_bandwidth": _Definition("L2 bandwidth", "l2.bandwidth_bytes_per_cycle"),
    "dram_bandwidth": _Definition("DRAM bandwidth", "dram.peak_bandwidth_gb_per_s"),
    "dram_latency": _Definition("DRAM latency", "dram.latency_ns"),
    "shared_memory": _Definition("L1 and shared memory", "shared_memory.unified_l1_kib", together=_shared_memory),
    "shared_bandwidth": _Definition("Shared memory bandwidth", "shared_memory.bandwidth_bytes_per_cycle"),
    "registers": _Definition("Registers of an SM", "sm.registers"),
}


def knobs_of(spec: Spec) -> tuple[Knob, ...]:
    """The knobs of a board, in the order in which they are shown; those that it has no values for are left out."""
    values = values_of(spec)
    found = []
    for name, definition in _KNOBS.items():
        replaced = _replaced(spec, definition, values, 1.0)
        if not replaced:
            continue
        shipped = float(values[definition.lead]) if definition.lead else 1.0
        step = _step(spec, definition, values)
        found.append(
            Knob(
                name,
                definition.label,
                name_and_unit(definition.lead)[1] if definition.lead else "×",
                shipped,
                _snapped(shipped / SPAN, step),
                _snapped(shipped * SPAN, step),
                step,
                tuple(_value(spec, key_path, values[key_path]) for key_path in replaced),
            )
        )
    return tuple(found)


def overrides_of_knobs(spec: Spec, turned: Mapping[str, float]) -> dict[str, Any]:
    """The values of a board that turned knobs replace, by key path; a knob at its shipped value replaces none.

    Args:
        turned: values of knobs by name.

    Raises:
        InputError: there is no such knob, or a value is not between its ends.
    """
    if not turned:
        return {}
    values, knobs = values_of(spec), {knob.name: knob for knob in knobs_of(spec)}
    found: dict[str, Any] = {}
    for name, value in turned.items():
        if name not in knobs:
            raise InputError(f"knobs.{name}: {spec.gpu.name} has no such knob{did_you_mean(name, knobs)}")
        knob = knobs[name]
        # What a link holds has fewer digits.
        if not 0.999 * knob.least <= value <= 1.001 * knob.most:
            unit = knob.unit and f" {knob.unit}"
            raise InputError(f"knobs.{name}: expected {knob.least:g} to {knob.most:g}{unit}, got {value:g}")
        if knob.step and not math.isclose(value, round(value / knob.step) * knob.step):
            raise InputError(f"knobs.{name}: expected a multiple of {knob.step:g}, got {value:g}")
        if value != knob.shipped:
            found |= _replaced(spec, _KNOBS[name], values, value / knob.shipped, value)
    return found


def _replaced(
    spec: Spec, definition: _Definition, values: Mapping[str, Any], factor: float, value: float | None = None
) -> dict[str, Any]:
    """The values that a knob replaces; the one that it shows first, as it is shown.

    Args:
        values: those of the board, by key path.
    """
    found: dict[str, Any] = {}
    if definition.lead:
        shipped = values[definition.lead]
        found[definition.lead] = number_like(shipped, shipped * factor if value is None else value)
    if definition.scaled:
        found |= overrides_of(definition.scaled, factor, spec)
    if definition.together:
        found |= definition.together(spec, factor)
    return found


def _step(spec: Spec, definition: _Definition, values: Mapping[str, Any]) -> float:
    if definition.lead == "sm.registers":
        return spec.gpu.sm.register_allocation_unit
    return 1.0 if definition.lead and isinstance(values[definition.lead], int) else 0.0


def _snapped(value: float, step: float) -> float:
    return math.ceil(value / step) * step if step else float(f"{value:.6g}")


def _value(spec: Spec, key_path: str, value: Any) -> KnobValue:
    origin = spec.provenance[key_path]
    return KnobValue(key_path, value, name_and_unit(key_path)[1], origin.kind, origin.source)
