"""How soon the server answers: one reader who turns a knob, and a hundred at once."""

from __future__ import annotations

import asyncio
import statistics
import time

import httpx
import pytest
from served import SOME_S, Served

from gpusim.execution.cases import OperatorWorkload
from gpusim.sim.drivers.choice import prefer_compiled
from gpusim.sim.simulate import simulate
from gpusim.studies.what_if import predict_on
from gpusim.studies.workload import GpuVariant
from gpusim.workloads.short_form import operator_of

pytestmark = pytest.mark.slow
WORKLOAD = "gemm:4096x4096x4096:bf16"
TURNS = 60
CLIENTS, REQUESTS = 100, 4
MOST_RATIO = 2.5
"""Of the answer to a turned knob to the prediction in a process that does nothing else."""


def quantiles(times_s: list[float]) -> tuple[float, float]:
    """Median and 95th percentile [s]."""
    ordered = statistics.quantiles(times_s, n=100)
    return ordered[49], ordered[94]


def test_a_turned_knob_is_answered_about_as_soon_as_it_is_predicted(server: Served) -> None:
    """Both in turns, since other programs may use the machine."""
    prefer_compiled()
    workload = OperatorWorkload(operator_of(WORKLOAD))
    _ = predict_on(workload, GpuVariant("A100-SXM4-80GB"), simulate)
    _ = server.predict(workload=WORKLOAD, gpu="a100")
    answered, predicted = [], []
    for turn in range(TURNS):
        began = time.perf_counter()
        _ = server.predict(workload=WORKLOAD, gpu="a100", knobs={"l2_size": 20 + turn / 4})
        answered.append(time.perf_counter() - began)
        began = time.perf_counter()
        _ = predict_on(workload, GpuVariant("A100-SXM4-80GB", {"l2.capacity_mib": 60 + turn / 4}), simulate)
        predicted.append(time.perf_counter() - began)
    (half, most), (alone, alone_most) = quantiles(answered), quantiles(predicted)
    print(f"answered: p50 {1e3 * half:.0f} ms, p95 {1e3 * most:.0f} ms; predicted alone: p50 {1e3 * alone:.0f} ms,")
    print(f"p95 {1e3 * alone_most:.0f} ms; ratio of the medians {half / alone:.2f}")
    assert half / alone < MOST_RATIO


def test_a_hundred_clients_are_all_answered(server: Served) -> None:
    times_s: list[float] = []

    async def reader(number: int) -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=SOME_S) as client:
            for at in range(REQUESTS):
                asked = {"workload": "gemm:512x512x512:fp16", "gpu": "t4", "knobs": {"power": 40 + number + at / 8}}
                began = time.perf_counter()
                answer = await client.post("api/predict", json=asked)
                assert answer.status_code == 200, answer.text
                times_s.append(time.perf_counter() - began)

    async def run() -> None:
        _ = await asyncio.gather(*(reader(number) for number in range(CLIENTS)))

    asyncio.run(run())
    half, most = quantiles(times_s)
    print(f"{CLIENTS} clients, {len(times_s)} answers: p50 {1e3 * half:.0f} ms, p95 {1e3 * most:.0f} ms, no error")
    assert len(times_s) == CLIENTS * REQUESTS
    assert most < SOME_S / 2
