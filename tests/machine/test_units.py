"""Conversions: rounding is tight, and conversions to cycles can be inverted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.units import bytes_per_cycle, ceil_div, cycles_of_ns, us_of_cycles, whole_cycles

CLOCKS_MHZ = st.floats(min_value=100.0, max_value=3000.0)


@given(st.integers(min_value=0, max_value=10**12), st.integers(min_value=1, max_value=10**6))
def test_a_quotient_rounded_up_is_the_smallest_that_covers(numerator: int, denominator: int) -> None:
    quotient = ceil_div(numerator, denominator)
    assert quotient * denominator >= numerator
    assert (quotient - 1) * denominator < numerator


@given(st.floats(min_value=0.0, max_value=1e6), CLOCKS_MHZ)
def test_nanoseconds_to_cycles_and_back_is_the_same_time(duration_ns: float, clock_mhz: float) -> None:
    assert 1e3 * us_of_cycles(cycles_of_ns(duration_ns, clock_mhz), clock_mhz) == pytest.approx(duration_ns)


@given(st.floats(min_value=1.0, max_value=1e5), CLOCKS_MHZ)
def test_bytes_of_a_cycle_add_up_to_the_bandwidth(bandwidth_gb_per_s: float, clock_mhz: float) -> None:
    # GB/s = B/cycle x cycles/s / 1e9
    assert bytes_per_cycle(bandwidth_gb_per_s, clock_mhz) * clock_mhz * 1e6 / 1e9 == pytest.approx(bandwidth_gb_per_s)


def test_a_v100_moves_586_bytes_of_dram_a_cycle() -> None:
    assert bytes_per_cycle(897.0, 1530.0) == pytest.approx(586.27, abs=0.01)  # 897e9 / 1530e6


def test_a_time_is_rounded_up_to_a_whole_cycle_but_for_the_noise_of_sums() -> None:
    assert whole_cycles(7.0) == 7
    assert whole_cycles(7.0009) == 7  # below a thousandth of a cycle: noise
    assert whole_cycles(7.0011) == 8
