"""How far measured times of a step lie from the predicted one: errors of kernels, host, exchanges and description.

The errors of operators are independent but for what all of a family share on one source of runs. So those of many
operators average out, and what they share does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpusim.confidence import BETWEEN_SOURCES, FAMILIES, SIGMAS_OF_80_PERCENT, UNKNOWN, Family, family_of
from gpusim.record import record_key
from gpusim.step.results import Step, TimedTask
from gpusim.system import System
from gpusim.workloads.collective import Collective
from gpusim.workloads.operators import Operator

LAUNCHED_ERROR = 0.06
"""Standard deviation of the logarithm of the time of what a step launches and its description does not state. With it
eight in ten steps of even number of NVIDIA's containers are inside."""
HOST_ERROR = 0.1
"""Standard deviation of the logarithm of a host's time, where the host is fitted to its framework; from those steps, as
far as the GPU waits for the host in most of the time."""
UNKNOWN_HOST_ERROR = 0.3
"""That of another host or framework [assumed: processors differ by so much]."""
EXCHANGE_ERROR = 0.2
"""Standard deviation of the logarithm of the time of exchanges: nine in ten all-reduces above 1 MiB err by less than
21 % or 46 %, by source."""


def step_interval(system: System, step: Step, framework: str) -> tuple[float, float]:
    """The times that eight in ten measured runs of a step lie between [us].

    Args:
        framework: whose host times count; empty where it is not known.
    """
    share_of: dict[Family, float] = dict.fromkeys(FAMILIES, 0.0)
    variance = LAUNCHED_ERROR**2
    for family, share, sigma in _operators(system, step):
        share_of[family] += share
        variance += (share * sigma) ** 2
    variance += sum((share * BETWEEN_SOURCES[family]) ** 2 for family, share in share_of.items())
    known = record_key(framework) in system.host.framework_factors
    variance += (step.host_fraction * (HOST_ERROR if known else UNKNOWN_HOST_ERROR)) ** 2
    variance += (step.exposed_us / step.step_us * EXCHANGE_ERROR) ** 2
    if system.calibrated_on == "nothing":  # what is wrong with the board is wrong with all of its operators
        variance += (UNKNOWN / SIGMAS_OF_80_PERCENT) ** 2
    half = SIGMAS_OF_80_PERCENT * math.sqrt(variance)
    return step.step_us * math.exp(-half), step.step_us * math.exp(half)


def _operators(system: System, step: Step) -> Iterator[tuple[Family, float, float]]:
    """Each operator of a step: its family, its share of the step, the standard deviation of its error."""
    found: dict[Operator, list[TimedTask]] = {}
    by_identity: dict[int, list[TimedTask]] = {}  # to hash the operator of each task takes long
    for one in step.computed:
        operator = one.task.operator
        if not isinstance(operator, Collective):
            members = by_identity.get(id(operator))
            if members is None:
                members = by_identity[id(operator)] = found.setdefault(operator, [])
            members.append(one)
    confidence = system.confidence
    for operator, members in found.items():
        time_us = max(one.time_us for one in members)
        own = confidence.own_error(system.gpu.name, operator, time_us) if confidence else None
        half = UNKNOWN if own is None else sum(own) / 2
        share = sum(one.total_us for one in members) / step.step_us
        yield family_of(operator), share, half / SIGMAS_OF_80_PERCENT
