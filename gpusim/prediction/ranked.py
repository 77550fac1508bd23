"""Ranked plans of operators: of one operator, or of many at once, which costs each of them less."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpusim.later import Later, known
from gpusim.lowering.gemm.problem import problem_of
from gpusim.prediction.choose import Candidate, GemmCandidate, rankings
from gpusim.prediction.convolution_selection import ConvolutionRequest, convolutions_ranked_together
from gpusim.prediction.estimated_together import PlannedTogether, settle_together
from gpusim.prediction.options import Options
from gpusim.prediction.plans import Plan, ranked_plans
from gpusim.prediction.selection import UnsupportedError, usable_kernels
from gpusim.prediction.timing import PlanTimer
from gpusim.system import System
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

RankRequest = tuple[System, Operator, Options]
"""A system, an operator and the options of its prediction."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The plans that an operator may run on."""

    candidates: Sequence[Candidate[Plan]]
    """Ways to run the operator; the candidate that the library launches comes first."""
    later: Later[Candidate[Plan] | None]
    """What :attr:`retuned` gives: a second ranking, which the time alone does not need."""
    timer: PlanTimer | None = None
    """Estimate of the first candidate, where it was made together with others."""

    @property
    def retuned(self) -> Candidate[Plan] | None:
        """What a library that was tuned for the GPU would launch, where this one was tuned for another; else none.

        None too where there is nothing to choose: of operators that are not GEMMs.
        """
        return self.later.value


def rank(system: System, operator: Operator, options: Options) -> Ranked:
    """The ranked plans of an operator.

    Raises:
        UnsupportedError: the GPU has no path for the operator, or the pinned kernel does not fit.
    """
    found = ranked_plans(system, operator, options)
    tuned = _tuned(system) if isinstance(operator, Gemm | Convolution) else None
    return Ranked(found, Later(lambda: ranked_plans(tuned, operator, options)[0]) if tuned else known(None))


def rank_together(requests: Sequence[RankRequest]) -> list[Ranked | None]:
    """The plans of many requests; GEMMs that differ in nothing but their sizes are ranked at once, convolutions too.

    None where a request has nothing in common with others, or no plan: then :func:`rank` answers. Those that ask for
    detail ``estimate`` are estimated at once, too.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, (system, operator, options) in enumerate(requests):
        if isinstance(operator, Gemm) and not operator.quantise and operator.b_dtype is None:
            with suppress(UnsupportedError):
                kernels = usable_kernels(system, operator, options.kernel, options.unit)
                problem = problem_of(operator)
                key = (id(system), tuple(map(id, kernels)), options.l2, problem.types, problem.is_large)
                alike.setdefault(key, []).append(number)
    answers = _ranked_convolutions(requests)
    for numbers in alike.values():
        if len(numbers) > 1:
            for number, ranked in zip(numbers, _ranked([requests[number] for number in numbers]), strict=True):
                answers[number] = ranked
    return _estimated_together(requests, answers)


def _estimated_together(requests: Sequence[RankRequest], answers: Sequence[Ranked | None]) -> list[Ranked | None]:
    """Ranked plans with the timers of those GEMMs whose estimates are asked for."""
    found = list(answers)
    alike: dict[int, list[tuple[int, Ranked, GemmCandidate]]] = {}
    for number, ((_, _, options), ranked) in enumerate(zip(requests, answers, strict=True)):
        if options.detail == "estimate" and ranked and isinstance(first := ranked.candidates[0], GemmCandidate):
            alike.setdefault(id(first.plans), []).append((number, ranked, first))
    for those in alike.values():
        plans, rows = those[0][2].plans, [first.row for _, _, first in those]
        timers = [
            PlanTimer(requests[number][0], planned, requests[number][2])
            for (number, *_), planned in zip(
                those, plans.plans_of_rows([first.operator for _, _, first in those], rows), strict=True
            )
        ]
        for (number, ranked, _), timer in zip(those, timers, strict=True):
            found[number] = replace(ranked, timer=timer)
        settle_together(PlannedTogether(plans, rows, timers))
    return found


def _ranked(requests: Sequence[RankRequest]) -> list[Ranked | None]:
    """The plans of requests with the same system, kernels, types and state of L2."""
    system, _, options = requests[0]
    gemms = [operator for _, operator, _ in requests if isinstance(operator, Gemm)]
    kernels = usable_kernels(system, gemms[0], options.kernel, options.unit)
    warm, clock_mhz = options.l2 == "warm", system.gpu.clock.boost_mhz
    found = rankings(system, gemms, kernels, warm=warm, clock_mhz=clock_mhz)
    tuned = _tuned(system)
    if not tuned:
        return [Ranked(ranking, known(None)) if ranking else None for ranking in found]
    retuned = Later(lambda: rankings(tuned, gemms, kernels, warm=warm, clock_mhz=clock_mhz))
    # Kernels of the first ranking fit the GPU, so that the second one has some, too.
    return [Ranked(one, Later(partial(_first, retuned, number))) if one else None for number, one in enumerate(found)]


def _first(rankings_together: Later[list[Any]], number: int) -> Candidate[Plan]:
    """The first candidate of one of the rankings that are made together."""
    first: Candidate[Plan] = rankings_together.value[number][0]
    return first


def _ranked_convolutions(requests: Sequence[RankRequest]) -> list[Ranked | None]:
    """The plans of those requests that are convolutions, where there are several."""
    answers: list[Ranked | None] = [None] * len(requests)
    numbers = [number for number, (_, operator, _) in enumerate(requests) if isinstance(operator, Convolution)]
    if len(numbers) < 2:
        return answers
    asked = [_convolution_request(*requests[number]) for number in numbers]
    # One record for each system: rankings go by its identity.
    tuned_systems = {id(one[0]): _tuned(one[0]) for one in asked}
    tuned = [(of, *one[1:]) for one in asked if (of := tuned_systems[id(one[0])])]
    retuned = Later(lambda: convolutions_ranked_together(tuned))
    places = iter(range(len(tuned)))
    for number, one, found in zip(numbers, asked, convolutions_ranked_together(asked), strict=True):
        place = next(places) if tuned_systems[id(one[0])] else None
        if found:
            answers[number] = Ranked(found, known(None) if place is None else Later(partial(_first, retuned, place)))
    return answers


def _convolution_request(system: System, operator: Operator, options: Options) -> ConvolutionRequest:
    assert isinstance(operator, Convolution)
    return system, operator, options.kernel, options.unit, options.torch, options.l2 == "warm"


def _tuned(system: System) -> System | None:
    """A system with a library that was tuned for its GPU, where its own was tuned for another."""
    if system.library.tuned_for is None:
        return None
    return replace(system, library=replace(system.library, tuned_for=None))
