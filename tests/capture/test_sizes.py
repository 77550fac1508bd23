"""Sizes of traces as expressions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpusim.capture.open_sizes import OpenSizes, size_name
from gpusim.capture.sizes import Expressions, Point, SizeError, merged
from gpusim.expression import evaluate

POINTS: list[Point] = [
    {"batch": 8, "seq_len": 128},
    {"batch": 10, "seq_len": 128},
    {"batch": 8, "seq_len": 160},
    {"batch": 16, "seq_len": 256},
]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (lambda batch, _: batch, "batch"),
        (lambda *_: 768, 768),
        (lambda batch, length: batch * length * 64, "64 * batch * seq_len"),
        (lambda batch, length: batch * length**2, "batch * seq_len * seq_len"),
        (lambda _, length: length - 1, "seq_len - 1"),
        (lambda batch, _: 3 * batch + 5, "3 * batch + 5"),
        (lambda _, length: length // 2, "(seq_len) // 2"),
        (lambda batch, length: batch * length + batch, "batch + batch * seq_len"),
    ],
)
def test_numbers_become_the_simplest_expression(number: Callable[[int, int], int], text: int | str) -> None:
    found = Expressions(POINTS).of([number(*point.values()) for point in POINTS])
    assert found == text
    other = {"batch": 32, "seq_len": 512}
    assert (evaluate(found, other) if isinstance(found, str) else found) == number(32, 512)


def test_what_is_no_polynomial_of_the_sizes_is_refused() -> None:
    with pytest.raises(SizeError, match="a size is 7 at batch=8 seq_len=128, 11 at batch=10"):
        _ = Expressions(POINTS).of([7, 11, 13, 5])


def test_structures_are_merged_number_by_number() -> None:
    found = merged(
        [[point["batch"], {"size": [3, point["seq_len"]]}, "mean", None] for point in POINTS], Expressions(POINTS)
    )
    assert found == ["batch", {"size": [3, "seq_len"]}, "mean", None]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1], [1, 2], [1], [1]], "another length"),
        (["mean", "sum", "mean", "mean"], "'mean' at one size is 'sum'"),
        ([{"a": 1}, {"b": 1}, {"a": 1}, {"a": 1}], "other arguments"),
    ],
)
def test_structures_that_differ_are_refused(values: list[object], message: str) -> None:
    with pytest.raises(SizeError, match=message):
        _ = merged(values, Expressions(POINTS))


def test_open_sizes_are_named_and_stated() -> None:
    assert size_name("input.ids.0") == "input_ids_0"
    sizes = OpenSizes([["N", 3, "side", "side"], ["N"]], {"side": 64, "batch": 4}, "graph")
    assert sizes.sizes == {"batch": 4, "side": 64}
    assert sizes.at({"batch": 2, "side": 32}) == [(2, 3, 32, 32), (2,)]
    assert sizes.assumptions == ["N = batch"]
