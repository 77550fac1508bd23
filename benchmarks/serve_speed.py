"""How soon `gpusim serve` answers a turned knob, beside the same prediction in this process; prints both.

python benchmarks/serve_speed.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import httpx2

from gpusim.execution.cases import OperatorWorkload
from gpusim.sim.drivers.choice import prefer_compiled
from gpusim.sim.simulate import simulate
from gpusim.studies.what_if import predict_on
from gpusim.studies.workload import GpuVariant
from gpusim.workloads.short_form import operator_of

WORKLOAD, BOARD = "gemm:4096x4096x4096:bf16", "A100-SXM4-80GB"
TURNS = 60
WAIT_S = 300


def main() -> None:
    """Start a server, and ask it and this process in turns, since other programs may use the machine."""
    prefer_compiled()
    command = [sys.executable, "-m", "gpusim", "serve", "--port", "0", "--no-open", "--no-cache"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 -- this program
        assert server.stdout is not None
        try:
            with httpx2.Client(base_url=server.stdout.readline().strip(), timeout=WAIT_S) as client:
                answered, predicted = _measured(client)
        finally:
            server.terminate()
    for name, times_s in (("a turned knob", answered), ("the prediction alone", predicted)):
        quantiles_ms = [1e3 * one for one in statistics.quantiles(times_s, n=100)]
        print(f"{name}: p50 {quantiles_ms[49]:.0f} ms, p95 {quantiles_ms[94]:.0f} ms")
    print(f"ratio of the medians: {statistics.median(answered) / statistics.median(predicted):.2f}")


def _measured(client: httpx2.Client) -> tuple[list[float], list[float]]:
    """Times of answers and of predictions; every value is new to both [s]."""
    workload = OperatorWorkload(operator_of(WORKLOAD))
    answered, predicted = [], []
    for turn in range(-1, TURNS):
        began = time.perf_counter()
        asked = {"workload": WORKLOAD, "gpu": BOARD, "knobs": {"l2_size": 20 + turn / 4}}
        _ = client.post("api/predict", json=asked).raise_for_status()
        between = time.perf_counter()
        _ = predict_on(workload, GpuVariant(BOARD, {"l2.capacity_mib": 60 + turn / 4}), simulate)
        if turn >= 0:  # the first of each loads what it needs
            answered.append(between - began)
            predicted.append(time.perf_counter() - between)
    return answered, predicted


if __name__ == "__main__":
    main()
