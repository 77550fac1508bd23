"""The closed-form estimates by which kernels are ranked, against the simulation of the same launches."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator

import pytest

from gpusim.hardware.machine import Machine
from gpusim.lowering.gemm.lower import lower
from gpusim.numbers.formats import Dtype
from gpusim.prediction.choose import GemmCandidate, rankings
from gpusim.prediction.selection import usable_kernels
from gpusim.prediction.timing import kernel_time_us
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec
from gpusim.system import System
from gpusim.workloads.gemm import Gemm

BOARDS = ("V100-SXM2-16GB", "T4", "A100-SXM4-80GB", "RTX-3090", "H200-SXM-141GB")
BEST = 8
"""Candidates of a product that are simulated."""


def products(count: int) -> Iterator[tuple[System, Gemm, bool]]:
    """Random products, alone or in batches, of operands that L2 holds or does not."""
    draw = random.Random(5)
    for number in range(count):
        m, n, k = (8 * max(1, round(2 ** draw.uniform(0, 9))) for _ in range(3))
        dtype, batch = draw.choice([Dtype.FP16, Dtype.FP32]), draw.choice([1, 1, 1, 6])
        layout = draw.choice(["nn", "nt", "tn"])
        system = load_spec(BOARDS[number % len(BOARDS)]).system
        yield system, Gemm(m, n, k, dtype, batch, layout), draw.random() < 0.3


def simulated_us(system: System, candidate: GemmCandidate, clock_mhz: float) -> float:
    machine = Machine.of(system.gpu, clock_mhz)
    outcomes = [simulate(machine, launch) for launch in lower(candidate.plan)]
    return kernel_time_us(system, candidate.plan, outcomes, clock_mhz)


@pytest.fixture(scope="module")
def ratios() -> list[list[float]]:
    """Simulated over estimated time of the candidates of products, the shortest estimates first."""
    found = []
    for system, gemm, warm in products(100):
        clock_mhz = system.gpu.clock.boost_mhz
        ranking = rankings(system, [gemm], usable_kernels(system, gemm), warm=warm, clock_mhz=clock_mhz)[0]
        best = sorted(ranking, key=lambda one: one.estimate_us)[:BEST]
        found.append([simulated_us(system, one, clock_mhz) / one.estimate_us for one in best])
    return found


def test_candidates_of_a_product_are_estimated_as_they_are_simulated(ratios: list[list[float]]) -> None:
    logarithms = [[math.log(one) for one in of_product] for of_product in ratios]
    within = [one - statistics.fmean(of_product) for of_product in logarithms for one in of_product]
    assert statistics.pstdev(within) < 0.05


def test_estimates_are_neither_too_short_nor_too_long(ratios: list[list[float]]) -> None:
    assert abs(statistics.fmean(math.log(one) for of_product in ratios for one in of_product)) < 0.03
