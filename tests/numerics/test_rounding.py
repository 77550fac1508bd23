"""Number formats: what they can hold, how they round, and what is counted as lost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpusim.numbers.formats import FORMATS, Dtype
from gpusim.numerics.rounding import convert, round_to_fp16, round_to_tf32, storage

FP32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("name", "largest", "smallest"),
    [
        ("fp64", 1.7976931348623157e308, 5e-324),
        ("fp32", (2 - 2**-23) * 2.0**127, 2.0**-149),
        ("tf32", (2 - 2**-10) * 2.0**127, 2.0**-136),
        ("fp16", 65504.0, 2.0**-24),
        ("bf16", (2 - 2**-7) * 2.0**127, 2.0**-133),
        ("fp8", 448.0, 2.0**-9),
        ("fp8_e5m2", 57344.0, 2.0**-16),
        ("int8", 127.0, 1.0),
        ("int4", 7.0, 1.0),
    ],
)
def test_a_format_holds_its_extremes_and_nothing_beyond(name: str, largest: float, smallest: float) -> None:
    to = FORMATS[name]
    assert (to.largest, to.smallest) == (largest, smallest)
    kept = convert(np.array([largest, -largest, smallest, 0.0]), to)
    assert kept.values.tolist() == [largest, -largest, smallest, 0.0]
    assert (kept.overflow, kept.underflow) == (0, 0)
    if name == "fp64":
        return  # values are float64: none lies beyond
    lost = convert(np.array([1.1 * largest, smallest / 4]), to)
    assert lost.values.tolist() == [largest if to.saturates else math.inf, 0.0]
    assert (lost.overflow, lost.underflow) == (1, 1)


def test_every_data_type_has_an_input_and_an_output_of_the_bits_it_states() -> None:
    for dtype in Dtype:
        assert storage(FORMATS[dtype.default_output]).itemsize * 8 == max(8, dtype.output_bits)
        assert storage(dtype.format).itemsize * 8 == max(8, dtype.bits)


def test_given_infinities_do_not_count_as_overflow() -> None:
    assert convert(np.array([math.inf, -math.inf]), FORMATS["fp16"]).overflow == 0


@given(FP32)
def test_tf32_is_the_nearest_number_of_eleven_bits_with_ties_away_from_zero(value: float) -> None:
    mantissa, exponent = math.frexp(abs(value))
    bits = min(11, 11 + exponent - (-125))  # below 2^-126 numbers lie 2^-136 apart
    nearest = math.ldexp(math.floor(math.ldexp(mantissa, bits) + 0.5), exponent - bits)
    expected = math.copysign(nearest if nearest <= FORMATS["tf32"].largest else math.inf, value)
    with np.errstate(over="ignore"):
        assert round_to_tf32(np.array([value], np.float32))[0] == expected


@given(FP32)
def test_truncated_tf32_is_never_larger_and_less_than_one_unit_smaller(value: float) -> None:
    cut = float(round_to_tf32(np.array([value], np.float32), "truncate")[0])
    assert abs(cut) <= abs(value)
    assert abs(value) - abs(cut) < max(abs(value) * 2**-10, 2.0**-136)
    assert round_to_tf32(np.array([cut], np.float32))[0] == cut


def test_tf32_keeps_infinities_and_nan() -> None:
    kept = round_to_tf32(np.array([math.inf, -math.inf, math.nan], np.float32))
    assert kept[:2].tolist() == [math.inf, -math.inf]
    assert math.isnan(kept[2])


def test_the_fast_rounding_to_fp16_is_that_of_numpy() -> None:
    generator = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
        halves = np.sort(halves[np.isfinite(halves)])
        ties = (halves[:-1] + halves[1:]) / np.float32(2)
        near = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
        anything = generator.integers(0, 2**32, 1_000_000, dtype=np.uint32).view(np.float32)
        samples: list[NDArray[np.float32]] = [halves, ties, *near, anything]
        for values in samples:
            expected = values.astype(np.float16).astype(np.float32)
            rounded = round_to_fp16(values)
            same = (rounded == expected) & (np.signbit(rounded) == np.signbit(expected))
            assert (same | (np.isnan(rounded) & np.isnan(expected))).all()
