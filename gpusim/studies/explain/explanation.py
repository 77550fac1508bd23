"""The explanation of a prediction: its parts, how it compares with another board, sensitivities, advice."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from gpusim.api import Arguments, case
from gpusim.confidence import Evidence, Ratio, ratio_of
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.prediction.results import Result, json_ready
from gpusim.progress import Progress, no_progress
from gpusim.report.formatting import gpu_text
from gpusim.studies.explain.advice import Advice, advice, proposals
from gpusim.studies.explain.parts import Part, parts_of
from gpusim.studies.explain.sensitivities import Sensitivity, improvements, sensitivities
from gpusim.studies.workload import (
    GpuVariant,
    Predicted,
    Workload,
    evidence_of,
    step_of,
    timed_case,
    total_us,
)
from gpusim.workloads.operators import Operator


@dataclass(frozen=True, slots=True)
class Explained:
    """A prediction with its parts."""

    result: Predicted
    parts: tuple[Part, ...]

    @property
    def arch(self) -> str:
        """Name of the board."""
        return self.result.arch if isinstance(self.result, Result) else self.result.step.arch

    @property
    def gpu(self) -> str:
        """Board with the values of its spec that were replaced."""
        return gpu_text(self.arch, self.result.overrides)

    @property
    def total_us(self) -> float:
        """Time of an operator with its launch, or of a step [us]."""
        return total_us(self.result)

    @property
    def interval(self) -> tuple[float | None, float | None, Evidence | None]:
        """Interval that eight in ten runs fall into [us], and the evidence of an operator."""
        timed = self.result.timed
        return timed.low_us, timed.high_us, evidence_of(self.result)

    def as_dict(self) -> dict[str, Any]:
        """Board, step of a model, time, interval and parts."""
        return {
            "arch": self.arch,
            "overrides": dict(self.result.overrides),
            "step": step_of(self.result),
            "total_us": self.total_us,
            **dict(zip(("total_us_p10", "total_us_p90", "evidence"), self.interval, strict=True)),
            "calibrated_on": self.result.calibrated_on,
            "parts": [asdict(part) for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """A part on two boards."""

    name: str
    us: float
    to_us: float
    difference_us: float
    """Time that the part takes less on the second GPU [us]."""
    share: float
    """Fraction of the time on the first GPU; all parts add up to what the second GPU saves of it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the time of a workload goes on a board, and what would change it: times in us, shares from 0 to 1."""

    of: Explained
    to: Explained | None = None
    """Explanation on another GPU."""
    sensitivities: tuple[Sensitivity, ...] = ()
    advice: tuple[Advice, ...] = ()

    @property
    def total_us(self) -> float:
        """Time of an operator with its launch, or of a step [us]."""
        return self.of.total_us

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of that time, the largest first; they add up to it."""
        return self.of.parts

    @property
    def speedup(self) -> Ratio:
        """Speedup of the second GPU over the first."""
        assert self.to is not None
        return ratio_of(self.of.result.timed, self.to.result.timed)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Each part on both boards, the largest gain first; they add up to the difference of the times."""
        if self.to is None:
            return ()
        before, after = ({part.name: part.us for part in one.parts} for one in (self.of, self.to))
        found = []
        for name in dict.fromkeys((*before, *after)):
            us, to_us = before.get(name, 0.0), after.get(name, 0.0)
            found.append(Difference(name, us, to_us, us - to_us, (us - to_us) / self.of.total_us))
        return tuple(sorted(found, key=lambda one: (-one.difference_us, one.name)))

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; floats to 12 significant digits."""
        found: dict[str, Any] = {
            **self.of.as_dict(),
            "sensitivities": [asdict(one) for one in self.sensitivities],
            "advice": [asdict(one) for one in self.advice],
        }
        if self.to is not None:
            found["to"] = {
                **self.to.as_dict(),
                **dict(zip(("speedup", "speedup_p10", "speedup_p90"), self.speedup, strict=True)),
                "differences": [asdict(one) for one in self.differences],
            }
        return {name: json_ready(value) for name, value in found.items()}


def explain_workload(
    workload: Workload,
    board: GpuVariant,
    to: GpuVariant | None = None,
    *,
    only_parts: bool = False,
    service: Service = Service(),
    progress: Progress = no_progress,
) -> Explanation:
    """Explain a workload on a board.

    Args:
        to: Another board to compare with.
        only_parts: Whether to leave out sensitivities and advice, which take some dozens of predictions.

    Raises:
        InputError: the workload cannot be predicted on a board.
    """
    boards = [board, *([to] if to else [])]
    explained = [_explained(one.or_raise()) for one in predict_all([one.case(workload) for one in boards], service)]
    first, second = explained[0], explained[1] if to else None
    if only_parts:
        return Explanation(first, second)
    improved = improvements(workload, board)
    proposed = proposals(workload, first.result, first.parts)
    cases = [timed_case(one.board, workload) for one in improved]
    cases += [timed_case(board, one.workload) for one in proposed]
    found = predict_all(cases, service, progress)
    return Explanation(
        first,
        second,
        sensitivities(improved, found[: len(improved)], board, first.total_us),
        advice(proposed, found[len(improved) :], first.total_us, fitting=first.result.fits),
    )


def _explained(result: Predicted) -> Explained:
    return Explained(result, parts_of(result))


def explain(
    arch: str | os.PathLike[str],
    operator: Operator | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    only_parts: bool = False,
    jobs: int = 1,
    **arguments: Unpack[Arguments],
) -> Explanation:
    """Where the time of one operator on one GPU goes, and what would change it, as ``gpusim explain`` does.

    >>> found = explain("t4", m=16, n=512, k=512, only_parts=True)
    >>> abs(sum(part.us for part in found.parts) / found.total_us - 1) < 1e-9
    True

    Args:
        arch: GPU by name, alias, nvidia-smi name or spec file.
        operator: As :func:`gpusim.predict` takes it.
        to: Another GPU to compare with; ``overrides`` are not for it.
        only_parts: Whether to leave out sensitivities and advice, which take some dozens of predictions.
        jobs: Worker processes.
        arguments: Those of :func:`gpusim.predict`.

    Returns:
        Parts of the time [us] that add up to it, sensitivities to each resource, and changes that save time.

    Raises:
        SpecError: No such GPU.
        ArgumentError: An argument is unknown, missing or invalid.
        InputError: The GPU cannot run this operator; the text names what it can.
    """
    workload = case(arch, operator, **arguments).workload
    board = GpuVariant(
        os.fspath(arch),
        arguments.get("overrides") or {},
        arguments.get("cuda"),
        tuple(map(Path, arguments.get("arch_path", ()))),
    )
    other = replace(board, arch=os.fspath(to), overrides={}) if to is not None else None
    return explain_workload(workload, board, other, only_parts=only_parts, service=Service(jobs))
