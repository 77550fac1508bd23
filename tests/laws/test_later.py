"""Values that are computed when they are first asked for."""

from __future__ import annotations

import pickle

import pytest

from gpusim.later import Later, known


def test_a_value_is_computed_once_when_it_is_first_asked_for() -> None:
    calls: list[int] = []

    def compute() -> str:
        calls.append(1)
        return "value"

    later = Later(compute)
    assert not calls
    assert (later.value, later.value, repr(later), len(calls)) == ("value", "value", "'value'", 1)
    assert later == known("value") != known("other")
    assert hash(later) == hash(known("value"))


def test_an_error_is_raised_each_time_that_the_value_is_asked_for() -> None:
    later = Later(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            _ = later.value


def test_a_pickle_holds_the_value() -> None:
    assert pickle.loads(pickle.dumps(Later(lambda: [1, 2]))).value == [1, 2]  # noqa: S301 -- made here
