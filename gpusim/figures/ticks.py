"""Ticks: round numbers with their units, as many as fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from matplotlib.axis import Axis
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullFormatter, NullLocator

from gpusim.figures.style import text_width

STEPS = ((1.0, 2.0, 5.0), (1.0,))
"""Mantissas of labelled values on a logarithmic axis, finest first."""
TICK_GAP_IN = 0.1
MOST_SIZES = 7
"""Labelled sizes on the axis of a sweep."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """At least two round values from ``low`` to ``high``, and at most ``most``.

    >>> log_ticks(8.0, 3e4), log_ticks(7.0, 110.0), log_ticks(21.0, 24.0)
    ([10.0, 100.0, 1000.0, 10000.0], [10.0, 20.0, 50.0, 100.0], [21.0, 22.0, 23.0, 24.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for stride in range(1, last - first + 2):
        for steps in STEPS if stride == 1 else STEPS[-1:]:
            powers = range(first - first % stride, last + 1, stride)
            ticks = [float(f"{step}e{power}") for power in powers for step in steps]
            ticks = [tick for tick in ticks if low <= tick <= high]
            if 2 <= len(ticks) <= most:
                return ticks
    return even_ticks(low, high, 4) or [low, high]


def even_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values from ``low`` to ``high`` in even steps, about ``most`` of them."""
    ticks = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in ticks if low <= tick <= high]


def set_log_ticks(
    axis: Axis, low: float, high: float, text: Callable[[float], str], most: int = 7, width_in: float = math.inf
) -> None:
    """Label a logarithmic axis at ``most`` values, or as few as fit side by side into ``width_in`` [inch]."""
    ticks = log_ticks(low, high, most)
    while len(ticks) > 1 and not _fit(ticks, [text_width(text(tick), 9.0) for tick in ticks], low, high, width_in):
        fewer = log_ticks(low, high, len(ticks) - 1) if len(ticks) > 2 else ticks[:1]
        ticks = fewer if len(fewer) < len(ticks) else ticks[::2]  # even ticks are as many whatever is asked for
    set_ticks(axis, ticks, text)


def _fit(ticks: Sequence[float], widths: Sequence[float], low: float, high: float, width_in: float) -> bool:
    """Whether labels of these widths leave a gap between each other."""
    per_factor = width_in / math.log(high / low)
    return all(
        math.log(after / before) * per_factor >= (width + next_width) / 2 + TICK_GAP_IN
        for (before, after), (width, next_width) in zip(pairwise(ticks), pairwise(widths), strict=True)
    )


def set_ticks(axis: Axis, ticks: Sequence[float], text: Callable[[float], str]) -> None:
    """Label an axis at these values and nowhere else."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([text(tick) for tick in ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def set_linear_ticks(axis: Axis, low: float, high: float, most: int = 6) -> None:
    """Label a linear axis."""
    set_ticks(axis, even_ticks(low, high, most), number)


def power_of_two_ticks(low: float, high: float, most: int = 7) -> list[int]:
    """Powers of two from ``low`` to ``high``, about ``most`` of them, in even steps.

    >>> power_of_two_ticks(0.7, 20.0), power_of_two_ticks(1, 1000, most=5)
    ([1, 2, 4, 8, 16], [1, 4, 16, 64, 256])
    """
    powers = [power for power in range(64) if low <= 2**power <= high]
    stride = max(1, math.ceil(len(powers) / most))
    return [2**power for power in powers if power % stride == 0]


def number(value: float) -> str:
    """A number in its shortest form.

    >>> number(20000.0), number(0.25), number(1e7)
    ('20000', '0.25', '1e+07')
    """
    return f"{value:.7g}" if abs(value) < 1e6 else f"{value:g}"


def rounded(values: Sequence[float]) -> list[str]:
    """Values with three digits, or as many as tell them apart.

    >>> rounded([892.92, 3571.68]), rounded([2039.0, 3058.5]), rounded([1000.0, 1001.0])
    (['893', '3570'], ['2040', '3060'], ['1000', '1001'])
    """
    for digits in range(3, 17):
        shown = [number(float(f"{value:.{digits}g}")) for value in values]
        if len(set(shown)) == len(set(values)):
            break
    return shown


def bytes_of_kib(kib: float) -> str:
    """A power of two of bytes in the unit that keeps it short.

    >>> bytes_of_kib(0.5), bytes_of_kib(64.0), bytes_of_kib(2.0**18)
    ('512 B', '64 KiB', '256 MiB')
    """
    for unit, size_kib in (("GiB", 2.0**20), ("MiB", 2.0**10), ("KiB", 1.0)):
        if kib >= size_kib:
            return f"{kib / size_kib:g} {unit}"
    return f"{kib * 2**10:g} B"


def count(value: float) -> str:
    """A large integer with a suffix.

    >>> count(300.0), count(20000.0), count(1e7)
    ('300', '20k', '10M')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def time(time_us: float) -> str:
    """A time in its shortest form, in a suitable unit.

    >>> time(0.5), time(30.0), time(1e4), time(2e6)
    ('500 ns', '30 µs', '10 ms', '2 s')
    """
    for unit, us in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if time_us >= us:
            return f"{time_us / us:g} {unit}"
    return f"{time_us * 1e3:g} ns"


def three_digits(value: float) -> str:
    """A value with three digits, for a label beside a bar.

    >>> three_digits(2.3), three_digits(0.98765), three_digits(420.0), three_digits(1234.5)
    ('2.30', '0.988', '420', '1234')
    """
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def time_of_three_digits(time_us: float) -> str:
    """A time with three digits, for a label beside a bar.

    >>> time_of_three_digits(2300.0), time_of_three_digits(0.5)
    ('2.30 ms', '500 ns')
    """
    for unit, us in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if time_us >= us:
            return f"{three_digits(time_us / us)} {unit}"
    return f"{three_digits(time_us * 1e3)} ns"


def power_of_two(value: float) -> str:
    """A power of two as such.

    >>> power_of_two(65536.0)
    '2¹⁶'
    """
    return "2" + f"{math.log2(value):.0f}".translate(SUPERSCRIPTS)


def apart(sizes: Sequence[float], width_in: float, font_size: float) -> list[float]:
    """The first size and those after it whose labels do not touch on a logarithmic axis of ``width_in`` [inch]."""
    span = math.log(sizes[-1] / sizes[0]) or 1.0
    kept: list[float] = []
    free_from = -math.inf
    for size in sizes:
        middle = math.log(size / sizes[0]) / span * width_in
        half = text_width(number(size), font_size) / 2
        if middle - half >= free_from:
            kept.append(size)
            free_from = max(middle + half + TICK_GAP_IN, middle - half + width_in / MOST_SIZES)
    return kept


def every_nth(count: int, length_in: float, label_in: float) -> int:
    """The smallest n for which every nth of ``count`` evenly spaced labels fits on an axis."""
    return max(1, math.ceil((label_in + TICK_GAP_IN) * count / length_in))
