"""Sizes of several traces as expressions of named ones."""

from __future__ import annotations

import pytest

from gpusim.capture.open_sizes import OpenSizes, size_name
from gpusim.capture.sizes import Expressions, SizeError, merged
from gpusim.expression import evaluate

POINTS = [
    {"batch": 8, "length": 128},
    {"batch": 10, "length": 128},
    {"batch": 8, "length": 160},
    {"batch": 16, "length": 256},
]


@pytest.mark.parametrize(
    "expression", ["batch", "batch * length", "3 * length + 1", "batch * length * length", "batch * (length // 2)", "7"]
)
def test_a_size_is_found_as_an_expression_that_holds_elsewhere(expression: str) -> None:
    found = Expressions(POINTS).of([evaluate(expression, point) for point in POINTS])
    elsewhere = {"batch": 3, "length": 96}
    assert (found if isinstance(found, int) else evaluate(found, elsewhere)) == evaluate(expression, elsewhere)


def test_a_size_without_an_expression_is_refused() -> None:
    with pytest.raises(SizeError, match=r"a size is 2 at batch=8 length=128, .*: no polynomial of them"):
        Expressions(POINTS).of([2, 4, 8, 32])


def test_values_that_differ_in_more_than_numbers_are_refused() -> None:
    with pytest.raises(SizeError, match="'a' at one size is 'b' at another"):
        merged([["a"], ["b"]], Expressions(POINTS[:2]))


def test_open_sizes_are_named_and_stated() -> None:
    assert size_name("input.ids.0") == "input_ids_0"
    sizes = OpenSizes([["N", 3, "side", "side"], ["N"]], {"side": 64, "batch": 4}, "graph")
    assert sizes.sizes == {"batch": 4, "side": 64}
    assert sizes.at({"batch": 2, "side": 32}) == [(2, 3, 32, 32), (2,)]
    assert sizes.assumptions == ["N = batch"]
