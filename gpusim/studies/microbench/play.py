"""A microbenchmark as a program on the simulated machine."""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.errors import excerpt
from gpusim.studies.microbench import bandwidth, latency
from gpusim.studies.microbench.parameters import Parameters, Reading, UnsupportedBenchmarkError
from gpusim.system import System

SUITES = {"latency": latency.PLAYERS, "bandwidth": bandwidth.PLAYERS}
"""Benchmarks and what plays them, by suite."""
_PLAYERS = {benchmark: player for players in SUITES.values() for benchmark, player in players.items()}


def play(system: System, benchmark: str, parameters: Mapping[str, str]) -> Reading:
    """What a benchmark would read on a system, with the parameters that its table states.

    Raises:
        UnsupportedBenchmarkError: no program plays it, or not with these parameters.
    """
    player = _PLAYERS.get(benchmark)
    if player is None:
        raise UnsupportedBenchmarkError(f"benchmark '{excerpt(benchmark)}': no program plays it")
    return player(system, Parameters(parameters))
