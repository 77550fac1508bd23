"""A workload, an operator or a step of a model, predicted at once on several boards or on variants of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.errors import InputError, one_line
from gpusim.execution.service import Service
from gpusim.execution.store import shared_store
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.timing import Simulate
from gpusim.progress import Progress, no_progress
from gpusim.report.model_tables import step_of_each_title
from gpusim.sim.drivers.choice import compiling_pays, prefer_compiled
from gpusim.specs import load_spec, with_overrides
from gpusim.specs.folders import is_path
from gpusim.specs.load import Spec
from gpusim.step.model import ModelResult
from gpusim.studies.models import PROCESSES_S, ModelCase, predict_case
from gpusim.workloads.operators import Operator

OPERATOR_S = 0.03
"""What the processes take for an operator in ``sampled``, about [s]."""


@dataclass(frozen=True, slots=True)
class Board:
    """A board by name, with values replaced."""

    arch: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """By key path, as ``--set`` takes them."""
    cuda: int | None = None
    arch_path: tuple[Path, ...] = ()

    @property
    def spec(self) -> Spec:
        """Its spec.

        Raises:
            SpecError: no such board, or its values cannot be so.
        """
        shipped = _loaded(self.arch, self.arch_path, self.cuda)
        return with_overrides(shipped, self.overrides) if self.overrides else shipped

    def with_values(self, overrides: Mapping[str, Any]) -> Board:
        """The same with further values replaced."""
        return replace(self, overrides={**self.overrides, **overrides})

    def by_full_name(self) -> Board:
        """The same by the name of its spec, so that no process resolves a short name again, and says so."""
        if is_path(self.arch):
            return self
        return replace(self, arch=_loaded(self.arch, self.arch_path, self.cuda).gpu.name)


@dataclass(frozen=True, slots=True)
class OperatorWorkload:
    """One operator, again and again."""

    operator: Operator
    options: Options = Options()

    @property
    def seconds(self) -> float:
        """What a prediction takes about [s]."""
        return OPERATOR_S

    def predicted(self, board: Board, simulate: Simulate) -> Result:
        """On a board."""
        return predict(board.spec.system, self.operator, self.options, simulate=simulate)


@dataclass(frozen=True, slots=True)
class ModelWorkload:
    """A step of a model; the GPU that the case names is replaced."""

    case: ModelCase

    @property
    def seconds(self) -> float:
        """What a prediction takes about [s]."""
        return PROCESSES_S

    def predicted(self, board: Board, simulate: Simulate) -> ModelResult:
        """On a board, or on several like it."""
        case = replace(self.case, arch=board.arch)
        return predict_case(case, board.spec.system, simulate, board.arch_path)


Workload = OperatorWorkload | ModelWorkload
Predicted = Result | ModelResult


@dataclass(frozen=True, slots=True)
class Question:
    """A workload on a board."""

    workload: Workload
    board: Board


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction, or the reason that there is none."""

    result: Predicted | None
    reason: str = ""
    """One line."""

    def or_raise(self) -> Predicted:
        """The prediction.

        Raises:
            InputError: there is none.
        """
        if self.result is None:
            raise InputError(self.reason)
        return self.result


def total_us(result: Predicted) -> float:
    """Time of an operator with its launch, or of a step [us]."""
    return result.time_us if isinstance(result, Result) else result.step.step_us


def step_of(result: Predicted) -> str:
    """What is predicted of a model: its name, precision and sizes; empty of an operator."""
    return "" if isinstance(result, Result) else step_of_each_title(result)


def interval_of(result: Predicted) -> tuple[float | None, float | None, str | None]:
    """Interval that eight in ten runs fall into [us], and its evidence.

    None for a step: the errors of its kernels are not known to be independent.
    """
    if isinstance(result, Result):
        return result.time_us_p10, result.time_us_p90, result.evidence
    return None, None, None


def predict_questions(
    questions: Sequence[Question], service: Service = Service(), progress: Progress = no_progress
) -> list[Answer]:
    """The answer to each question, in the order of the questions."""
    found: dict[int, Answer] = {}
    questions = [replace(one, board=one.board.by_full_name()) for one in questions]
    seconds = sum(one.workload.seconds for one in questions)
    compiled = compiling_pays(seconds / max(1, min(service.jobs, len(questions))))
    with service.executor((compiled, service.cache), len(questions)) as executor:
        for index, answer in executor.run(_answer, questions):
            found[index] = answer
            progress(len(found), len(questions))
    return [found[index] for index in range(len(questions))]


def _answer(context: tuple[bool, bool], question: Question) -> Answer:
    compiled, cached = context
    if compiled:
        prefer_compiled()
    store = shared_store(disk=cached)
    try:
        result = question.workload.predicted(question.board, store.simulate)
    except InputError as error:
        return Answer(None, one_line(str(error)))
    store.flush()
    return Answer(result)


@cache
def _loaded(arch: str, arch_path: tuple[Path, ...], cuda: int | None) -> Spec:
    return load_spec(arch, arch_path, cuda=cuda)
