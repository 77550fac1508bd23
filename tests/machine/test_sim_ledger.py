"""The ledger: every cycle goes to one cause, to the cycle, whenever one looks."""

import math
from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from gpusim.sim.causes import CAUSES, Cause
from gpusim.sim.ledger import expect, settle
from gpusim.sim.state import EXPECTED_CAUSES, RUNNING, UNBOOKED_CYCLES, Run, State, Warp


class Ledger:
    """A warp of which nothing but the ledger is used."""

    def __init__(self, since: int) -> None:
        self.warp = Warp(since=since)
        self.run = Run()

    def expect(self, cause: Cause, until: float) -> None:
        expect(self.warp, cause.index, until)

    def settle(self, now: int) -> None:
        settle(cast(State, SimpleNamespace(run=self.run)), self.warp, now)

    @property
    def booked(self) -> list[int]:
        return self.warp.booked


def booked(ledger: Ledger) -> dict[Cause, int]:
    return {cause: cycles for cause, cycles in zip(CAUSES, ledger.booked, strict=True) if cycles}


def test_a_wait_goes_to_the_cause_that_was_announced() -> None:
    ledger = Ledger(100)
    ledger.expect(Cause.LONG_SCOREBOARD, 400)
    ledger.settle(400)
    assert booked(ledger) == {Cause.LONG_SCOREBOARD: 300}


def test_causes_follow_each_other_in_the_order_of_their_announcement() -> None:
    ledger = Ledger(0)
    ledger.expect(Cause.MATH_PIPE_THROTTLE, 3)
    ledger.expect(Cause.MATH, 11)
    ledger.expect(Cause.WAIT, 15)
    ledger.settle(15)
    assert booked(ledger) == {Cause.MATH_PIPE_THROTTLE: 3, Cause.MATH: 8, Cause.WAIT: 4}


def test_a_cause_that_ends_before_its_turn_gets_nothing() -> None:
    ledger = Ledger(0)
    ledger.expect(Cause.MATH, 10)
    ledger.expect(Cause.ISSUE, 7)
    ledger.expect(Cause.WAIT, 12)
    ledger.settle(12)
    assert booked(ledger) == {Cause.MATH: 10, Cause.WAIT: 2}


def test_a_look_in_the_middle_of_a_wait_counts_what_has_passed_and_no_more() -> None:
    ledger = Ledger(0)
    ledger.expect(Cause.MIO_THROTTLE, 10)
    ledger.expect(Cause.SHORT_SCOREBOARD, 30)
    ledger.settle(4)
    assert booked(ledger) == {Cause.MIO_THROTTLE: 4}
    ledger.settle(4)  # looking again changes nothing
    assert booked(ledger) == {Cause.MIO_THROTTLE: 4}
    ledger.settle(10)
    assert booked(ledger) == {Cause.MIO_THROTTLE: 10}
    ledger.settle(11)
    assert booked(ledger) == {Cause.MIO_THROTTLE: 10, Cause.SHORT_SCOREBOARD: 1}
    ledger.settle(30)
    assert booked(ledger) == {Cause.MIO_THROTTLE: 10, Cause.SHORT_SCOREBOARD: 20}
    assert ledger.warp.expected == 0


def test_a_wait_without_known_end_is_booked_as_far_as_it_went() -> None:
    ledger = Ledger(0)
    ledger.expect(Cause.BARRIER, math.inf)
    ledger.settle(17)
    assert booked(ledger) == {Cause.BARRIER: 17}


def test_fractions_round_up_and_the_next_cause_starts_there() -> None:
    ledger = Ledger(0)
    ledger.expect(Cause.MATH, 2.25)
    ledger.expect(Cause.WAIT, 5)
    ledger.settle(5)
    assert booked(ledger) == {Cause.MATH: 3, Cause.WAIT: 2}


def test_a_cycle_without_a_cause_is_an_error_and_the_one_before_is_not() -> None:
    ledger = Ledger(0)
    ledger.expect(Cause.MATH, 9)
    ledger.settle(9)
    assert ledger.run.status == RUNNING
    ledger.settle(10)
    assert ledger.run.status == UNBOOKED_CYCLES


def test_a_listener_hears_stretches_that_touch() -> None:
    ledger = Ledger(5)
    heard: list[tuple[int, int, int]] = []
    ledger.warp.traced, ledger.warp.listener = True, lambda *stretch: heard.append(stretch)
    ledger.expect(Cause.MATH, 8)
    ledger.expect(Cause.WAIT, 12)
    ledger.settle(6)
    ledger.settle(12)
    assert heard == [(Cause.MATH.index, 5, 6), (Cause.MATH.index, 6, 8), (Cause.WAIT.index, 8, 12)]


WAIT = st.tuples(st.sampled_from(CAUSES), st.floats(min_value=0.0, max_value=50.0))
WAITS = st.lists(WAIT, min_size=1, max_size=EXPECTED_CAUSES - 2)
"""Causes, and how many cycles after the one before each ends."""


def announced(start: int, waits: list[tuple[Cause, float]]) -> tuple[Ledger, int]:
    """A ledger that expects all the waits, and the cycle at which they are over."""
    ledger = Ledger(start)
    end = float(start)
    for cause, duration in waits:
        end += duration
        ledger.expect(cause, end)
    return ledger, math.ceil(end)


@given(st.integers(min_value=0, max_value=10**6), WAITS, st.lists(st.integers(min_value=0, max_value=1500)))
def test_looks_on_the_way_change_nothing_and_every_cycle_is_booked(
    start: int, waits: list[tuple[Cause, float]], looks: list[int]
) -> None:
    at_once, end = announced(start, waits)
    # `end` may lie a fraction of a cycle above the last announcement, which is not without a cause
    at_once.expect(Cause.WAIT, end)
    at_once.settle(end)
    watched, _ = announced(start, waits)
    watched.expect(Cause.WAIT, end)
    for look in sorted(looks):
        if start + look < end:
            watched.settle(start + look)
            assert sum(watched.booked) == look
    watched.settle(end)
    assert at_once.booked == watched.booked
    assert sum(at_once.booked) == sum(watched.booked) == end - start


@given(WAITS)
def test_no_cause_gets_more_than_its_share_rounded_up(waits: list[tuple[Cause, float]]) -> None:
    ledger, end = announced(0, waits)
    ledger.expect(Cause.WAIT, end)
    ledger.settle(end)
    shares: dict[Cause, int] = {}
    for cause, duration in [*waits, (Cause.WAIT, 0.0)]:
        shares[cause] = shares.get(cause, 0) + math.ceil(duration) + 1
    for cause, cycles in booked(ledger).items():
        assert cycles <= shares[cause]


def test_a_cause_for_which_there_is_no_place_is_noticed() -> None:
    ledger = Ledger(0)
    for number in range(1, EXPECTED_CAUSES + 1):
        ledger.expect(CAUSES[number % 2], number)
    ledger.settle(EXPECTED_CAUSES)
    assert ledger.run.status == UNBOOKED_CYCLES
