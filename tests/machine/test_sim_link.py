"""Links: first come first served at a fixed rate, with tight limits, and compared with a simulated queue."""

from collections.abc import Generator

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from gpusim.sim.link import book
from gpusim.sim.state import Link


def test_a_transfer_takes_its_amount_over_the_rate() -> None:
    assert book(Link(128.0), 10, 320) == 12.5  # 320 / 128


def test_a_booking_starts_when_the_link_falls_idle_and_not_a_cycle_earlier() -> None:
    for now, served_at in ((1, 3.0), (2, 3.0), (3, 4.0)):  # busy until 2
        port = Link(128.0)
        book(port, 0, 256)
        assert book(port, now, 128) == served_at


def test_an_idle_link_saves_nothing_for_later() -> None:
    port = Link(1.0)
    book(port, 0, 1)
    assert book(port, 100, 10) == 110


def test_fractions_of_a_cycle_add_up_without_rounding() -> None:
    port = Link(3.0)
    for _ in range(300):
        last = book(port, 0, 1)
    assert last == pytest.approx(100.0, abs=1e-9)  # 300 x 1/3, not 300 x 1


def test_nothing_takes_no_time_but_waits_its_turn() -> None:
    port = Link(128.0)
    book(port, 0, 256)
    assert book(port, 1, 0) == 2.0
    assert port.free_at == 2.0


def test_a_share_bursts_at_the_rate_of_the_whole_but_pays_for_it_afterwards() -> None:
    # a tenth of a link of 100 B/cycle: 100 B pass in one cycle, and the share is free again after ten
    share = Link(10.0, burst_rate=100.0)
    assert book(share, 0, 100) == 1.0
    assert book(share, 9, 100) == 11.0  # one cycle before: waits until 10
    assert share.free_at == 20.0
    assert book(share, 20, 100) == 21.0  # on the cycle: passes at once


def test_a_listener_hears_each_booking_that_moves_something() -> None:
    port = Link(2.0)
    heard: list[tuple[float, float, float]] = []
    port.traced, port.listener = True, lambda *booking: heard.append(booking)
    book(port, 0, 4)
    book(port, 1, 6)
    book(port, 1, 0)
    assert heard == [(0, 2.0, 4), (2.0, 5.0, 6)]


ARRIVALS = st.lists(
    st.tuples(st.integers(min_value=0, max_value=50), st.integers(min_value=1, max_value=2000)), min_size=1, max_size=40
)
"""Cycles since the last booking, and amount."""


def booked_in_order(gaps_and_amounts: list[tuple[int, int]], rate: float) -> list[float]:
    """When each transfer ends on a server that holds a queue of processes."""
    env = simpy.Environment()
    server = simpy.Resource(env)
    ended: list[float] = []

    def transfer(amount: int) -> Generator[simpy.Event, object, None]:
        with server.request() as turn:
            yield turn
            yield env.timeout(amount / rate)
        ended.append(env.now)

    def arrivals() -> Generator[simpy.Event, object, None]:
        for gap, amount in gaps_and_amounts:
            yield env.timeout(gap)
            env.process(transfer(amount))

    env.process(arrivals())
    env.run()
    return ended


@given(ARRIVALS, st.sampled_from([1.0, 3.0, 64.0, 128.0, 5.4]))
def test_bookings_end_when_a_queue_would_have_served_them(arrivals: list[tuple[int, int]], rate: float) -> None:
    link = Link(rate)
    now = 0
    booked = []
    for gap, amount in arrivals:
        now += gap
        booked.append(book(link, now, amount))
    assert booked == pytest.approx(booked_in_order(arrivals, rate))


@given(ARRIVALS, st.floats(min_value=0.1, max_value=1e3))
def test_a_link_serves_all_that_is_asked_and_never_above_its_rate(arrivals: list[tuple[int, int]], rate: float) -> None:
    link = Link(rate)
    now = 0
    for gap, amount in arrivals:
        now += gap
        book(link, now, amount)
    assert link.busy == pytest.approx(sum(amount for _, amount in arrivals) / rate)
    first = arrivals[0][0]
    assert link.free_at - first >= link.busy * (1 - 1e-12)


@given(ARRIVALS, st.floats(min_value=0.1, max_value=1e3), st.floats(min_value=1.0, max_value=10.0))
def test_a_faster_link_never_ends_a_transfer_later(arrivals: list[tuple[int, int]], rate: float, factor: float) -> None:
    slow, fast = Link(rate), Link(rate * factor)
    now = 0
    for gap, amount in arrivals:
        now += gap
        slow_end = book(slow, now, amount)
        assert book(fast, now, amount) <= slow_end * (1 + 1e-12)
