"""Conversions between human units and SM cycles. The only module with a power of ten or two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, overload

MEGA = 1e6
GIGA = 1e9
TERA = 1e12
MIB = 2**20
GIB = 2**30

LARGEST_SIZE = 2**63 - 1
"""Largest batch, m, n or k that any library takes."""

US_PER_UNIT: Mapping[str, Fraction] = {
    unit: Fraction(us)
    for us, names in (
        ("1/1000", "ns nsec nsecond nanosecond nanoseconds"),
        ("1", "us µs μs usec usecond microsecond microseconds"),
        ("1000", "ms msec msecond millisecond milliseconds"),
        ("1000000", "s sec second seconds"),
    )
    for unit in names.split()
}
"""Microseconds in a unit of time, under the names that benchmarks and profilers write."""


@overload
def ceil_div(numerator: int, denominator: int) -> int: ...
@overload
def ceil_div(numerator: Any, denominator: Any) -> Any: ...
def ceil_div(numerator: Any, denominator: Any) -> Any:
    """Quotient rounded up: the smallest ``q`` with ``q * denominator >= numerator``. Of arrays, element by element.

    >>> ceil_div(129, 128)
    2
    """
    return -(-numerator // denominator)


def bytes_per_cycle(bandwidth_gb_per_s: float, clock_mhz: float) -> float:
    """Bytes that arrive in one SM cycle [B/cycle].

    >>> bytes_per_cycle(1410.0, 1410.0)
    1000.0
    """
    return bandwidth_gb_per_s * GIGA / (clock_mhz * MEGA)


def gb_per_s(bandwidth_bytes_per_cycle: float, clock_mhz: float) -> float:
    """Bandwidth of so many bytes in an SM cycle [GB/s].

    >>> gb_per_s(1000.0, 1410.0)
    1410.0
    """
    return bandwidth_bytes_per_cycle * clock_mhz * MEGA / GIGA


def bytes_per_us(bandwidth_gb_per_s: float) -> float:
    """Bandwidth in bytes per microsecond.

    >>> bytes_per_us(900)
    900000.0
    """
    return bandwidth_gb_per_s * GIGA / MEGA


def cycles_of_ns(duration_ns: float, clock_mhz: float) -> float:
    """SM cycles in a duration [cycles].

    >>> cycles_of_ns(1000.0, 1410.0)
    1410.0
    """
    return duration_ns * clock_mhz / 1e3


def us_of_cycles(cycles: float, clock_mhz: float) -> float:
    """Duration of SM cycles [us].

    >>> us_of_cycles(1410.0, 1410.0)
    1.0
    """
    return cycles / clock_mhz


BOOKING_ROUNDING_CYCLES = 1e-3
"""What sums of bookings may be off."""


@overload
def whole_cycles(time_cycles: float) -> int: ...
@overload
def whole_cycles(time_cycles: Any) -> Any: ...
def whole_cycles(time_cycles: Any) -> Any:
    """The first whole cycle at or after a time [cycles]. Of an array, element by element.

    Events happen in whole cycles, rounded up.

    >>> whole_cycles(199.0002), whole_cycles(199.5), whole_cycles(200.0)
    (199, 200, 200)
    """
    begun = time_cycles - BOOKING_ROUNDING_CYCLES
    return math.ceil(begun) if isinstance(begun, float | int) else ceil_div(begun, 1).astype(int)


def us_of_duration(text: str, unit: str) -> float:
    """A decimal number of ``unit`` (a key of ``US_PER_UNIT``) as microseconds, rounded once [us].

    >>> us_of_duration("0.0282", "ms"), us_of_duration("1238540", "ns")
    (28.2, 1238.54)
    """
    try:
        return float(Fraction(text.strip()) * US_PER_UNIT[unit])
    except OverflowError:
        return math.inf
