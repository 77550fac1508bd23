"""Numbers as text for tables and plots: human units, fixed digits. Full precision is in JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.experiment.key_units import short_text


def time_text(time_us: float) -> str:
    """A duration with four digits in the unit that suits it.

    >>> time_text(12.3456), time_text(1234.5), time_text(2_500_000.0)
    ('12.35 us', '1.234 ms', '2.500 s')
    """
    if time_us < 1e3:
        return f"{four_digits(time_us)} us"
    if time_us < 1e6:
        return f"{four_digits(time_us / 1e3)} ms"
    return f"{four_digits(time_us / 1e6)} s"


def energy_text(energy_mj: float) -> str:
    """An energy with four digits in the unit that suits it.

    >>> energy_text(238.6), energy_text(15720.0)
    ('238.6 mJ', '15.72 J')
    """
    return f"{four_digits(energy_mj)} mJ" if energy_mj < 1e3 else f"{four_digits(energy_mj / 1e3)} J"


def interval_text(low_us: float | None, high_us: float | None, evidence: str | None) -> str:
    """The interval of a prediction with its evidence; empty where none is stated.

    >>> interval_text(9.5, 12.0, "validated"), interval_text(9.5, 12.0, None), interval_text(None, None, None)
    ('9.500 us to 12.00 us, validated', '9.500 us to 12.00 us', '')
    """
    if low_us is None or high_us is None:
        return ""
    return f"{time_text(low_us)} to {time_text(high_us)}" + (f", {evidence}" if evidence else "")


def ratio_text(ratio: float, low: float | None, high: float | None) -> str:
    """A ratio with its interval, where one is stated.

    >>> ratio_text(2.04, 1.81, 2.3), ratio_text(2.04, None, None), ratio_text(1.0, 1.0, 1.0)
    ('2.04 (1.81 to 2.30)', '2.04', '1.00')
    """
    if low is None or high is None or low == high:
        return f"{ratio:.2f}"
    return f"{ratio:.2f} ({low:.2f} to {high:.2f})"


def gpu_text(arch: str, overrides: Mapping[str, Any]) -> str:
    """A GPU by name, with the values of its spec that were replaced.

    >>> gpu_text("T4", {"sm.count": 80, "l2.capacity_mib": 8.0}), gpu_text("T4", {})
    ('T4 (sm.count=80, l2.capacity_mib=8)', 'T4')
    """
    values = ", ".join(f"{key_path}={short_text(value)}" for key_path, value in overrides.items())
    return f"{arch} ({values})" if values else arch


def bytes_text(size_bytes: float) -> str:
    """A size in binary units.

    >>> bytes_text(0), bytes_text(3 * 2**20)
    ('0 B', '3.000 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{four_digits(size_bytes)} {unit}"
        size_bytes /= 1024
    return f"{four_digits(size_bytes)} TiB"


def shape_text(row: Mapping[str, Any]) -> str:
    """``m x n x k``, with the batch in front where there is one; vectors have no k.

    >>> shape_text({"batch": 8, "m": 1, "n": 2, "k": 3})
    '8 x 1x2x3'
    """
    size = "x".join(str(row[name]) for name in "mnk" if row[name] is not None)
    return size if row["batch"] == 1 else f"{row['batch']} x {size}"


def shares_text(shares: Mapping[str, float], least: float = 0.005) -> str:
    """Names with their percentages, the largest first, as far as they do not round to nothing.

    >>> shares_text({"issue": 0.001, "dram": 0.934, "l2": 0.2})
    'dram 93 %, l2 20 %'
    """
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ordered if share >= least)


def four_digits(value: float) -> str:
    """A value from 1 to 1000 with four digits, more before the point.

    >>> four_digits(9.87654), four_digits(1023.4)
    ('9.877', '1023.4')
    """
    decimals = 3 if value < 10 else 2 if value < 100 else 1
    return f"{value:.{decimals}f}"


def number_text(value: float | None) -> str:
    """A value with four significant digits, a dash for none."""
    return "-" if value is None else f"{value:.4g}"


def grid_text(grid: Sequence[int]) -> str:
    """Extents of a grid or tile.

    >>> grid_text((32, 8, 1))
    '32x8x1'
    """
    return "x".join(map(str, grid))
