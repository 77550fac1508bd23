"""A hundred clients at once."""

from __future__ import annotations

import asyncio
import statistics
import time

import httpx2
import pytest
from served import SOME_S, Served

pytestmark = pytest.mark.slow
CLIENTS, REQUESTS = 100, 4


def test_a_hundred_clients_are_all_answered(server: Served) -> None:
    times_s: list[float] = []

    async def reader(number: int) -> None:
        async with httpx2.AsyncClient(base_url=server.url, timeout=SOME_S) as client:
            for at in range(REQUESTS):
                asked = {"workload": "gemm:512x512x512:fp16", "gpu": "t4", "knobs": {"power": 40 + number + at / 8}}
                began = time.perf_counter()
                answer = await client.post("api/predict", json=asked)
                assert answer.status_code == 200, answer.text
                times_s.append(time.perf_counter() - began)

    async def run() -> None:
        _ = await asyncio.gather(*(reader(number) for number in range(CLIENTS)))

    asyncio.run(run())
    quantiles_ms = [1e3 * one for one in statistics.quantiles(times_s, n=100)]
    print(f"{len(times_s)} answers: p50 {quantiles_ms[49]:.0f} ms, p95 {quantiles_ms[94]:.0f} ms, no error")
    assert len(times_s) == CLIENTS * REQUESTS
