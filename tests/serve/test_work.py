"""Lanes of worker processes: what is bounded, and how tasks end that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from lane_tasks import dies, fails, process_of, reports, sleeps

from gpusim.execution.workers import WorkerLostError
from gpusim.serve import work
from gpusim.serve.work import Lane, OverloadError

LONG_S = 60.0


def in_lane(test: Callable[[Lane], Awaitable[None]], waiting: int = 4) -> None:
    """Run a test with a lane of one process."""

    async def run() -> None:
        lane = Lane(1, waiting, LONG_S)
        lane.start(process_of, None)
        try:
            await test(lane)
        finally:
            await lane.stop()

    asyncio.run(run())


def test_a_task_that_nobody_waits_for_ends_at_its_next_report() -> None:
    async def test(lane: Lane) -> None:
        process, heard = await lane.run(process_of, None), asyncio.Event()
        abandoned = asyncio.ensure_future(lane.run(reports, LONG_S, lambda _: heard.set()))
        await heard.wait()
        abandoned.cancel()
        assert await lane.run(process_of, None) == process

    in_lane(test)


def test_a_task_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "GRACE_S", 0.1)

    async def test(lane: Lane) -> None:
        process = await lane.run(process_of, None)
        abandoned = asyncio.ensure_future(lane.run(sleeps, LONG_S))
        await asyncio.sleep(0.1)
        abandoned.cancel()
        assert await lane.run(process_of, None) != process

    in_lane(test)


def test_a_deadline_ends_a_task_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "GRACE_S", 0.1)

    async def test(lane: Lane) -> None:
        process = await lane.run(process_of, None)
        lane._deadline_s = 0.5
        with pytest.raises(OverloadError, match=r"no answer within 0.5 s; ask for less"):
            await lane.run(sleeps, LONG_S)
        lane._deadline_s = LONG_S
        assert await lane.run(process_of, None) != process

    in_lane(test)


def test_more_tasks_than_may_wait_are_refused_at_once() -> None:
    async def test(lane: Lane) -> None:
        running = [asyncio.ensure_future(lane.run(sleeps, 0.1)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadError, match="3 requests wait already"):
            await lane.run(process_of, None)
        await asyncio.gather(*running)

    in_lane(test, waiting=3)


def test_a_lost_process_is_replaced() -> None:
    async def test(lane: Lane) -> None:
        with pytest.raises(WorkerLostError, match="was killed"):
            await lane.run(dies, None)
        assert await lane.run(process_of, None)

    in_lane(test)


def test_an_error_of_a_task_is_raised_and_the_process_goes_on() -> None:
    async def test(lane: Lane) -> None:
        process = await lane.run(process_of, None)
        with pytest.raises(ValueError, match="no such thing"):
            await lane.run(fails, "no such thing")
        assert await lane.run(process_of, None) == process

    in_lane(test)
