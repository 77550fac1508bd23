"""A workload on boards, or on variants of one, and what its prediction says whether it is an operator or a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from gpusim.confidence import Evidence
from gpusim.cuda_version import CudaVersion
from gpusim.execution.cases import Case, OperatorWorkload, Predictable, case_with
from gpusim.hardware.gpu import NO_LIMIT
from gpusim.prediction.own_kernel import AS_SHIPPED, KernelShape
from gpusim.prediction.results import Result
from gpusim.specs import list_archs, load_spec, with_overrides
from gpusim.specs.load import Spec

if TYPE_CHECKING:  # operators need no models, whose import takes a tenth of a second
    from gpusim.execution.models import ModelWorkload
    from gpusim.step.model import ModelResult, StepSummary

Workload: TypeAlias = "OperatorWorkload | ModelWorkload"
Predicted: TypeAlias = "Result | ModelResult"


@dataclass(frozen=True, slots=True)
class GpuVariant:
    """A GPU by name, with values of its spec replaced."""

    arch: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Replaced values by key path, as ``--set`` takes them."""
    cuda: CudaVersion | str | int | None = None
    arch_path: tuple[Path, ...] = ()
    own_kernel: KernelShape = AS_SHIPPED
    """How the kernel of an operator differs from the one that the library would launch."""

    @property
    def spec(self) -> Spec:
        """Spec with the values replaced.

        Raises:
            SpecError: no such GPU, or its values cannot be so.
        """
        shipped = _loaded(self.arch, self.arch_path, None if self.cuda is None else CudaVersion.of(self.cuda))
        return with_overrides(shipped, self.overrides) if self.overrides else shipped

    def with_values(self, overrides: Mapping[str, Any]) -> GpuVariant:
        """This GPU with further values replaced."""
        return replace(self, overrides={**self.overrides, **overrides})

    def case(self, workload: Workload) -> Case[Predictable[Predicted]]:
        """The prediction of a workload on this GPU.

        Raises:
            SpecError: as ``spec``.
        """
        if not isinstance(workload, OperatorWorkload):
            workload = replace(workload, arch_path=self.arch_path)
            return Case(self.spec.system, workload)
        return case_with(self.own_kernel, Case(self.spec.system, workload))


def powered_boards(arch_path: Iterable[Path] = ()) -> list[str]:
    """Names of the boards that draw power, which a textbook's does not: all that are worth comparing."""
    folders = tuple(arch_path)
    names = [entry.name for entry in list_archs(folders)]
    return [name for name in names if load_spec(name, folders).gpu.power.board_limit_w < NO_LIMIT]


def timed_case(board: GpuVariant, workload: Workload) -> Case[Predictable[Result | StepSummary]]:
    """A case of which the time alone is wanted, and whether it fits: of a step its summary, which is quickly sent."""
    case = board.case(without_limits(workload))
    if isinstance(case.workload, OperatorWorkload):
        return cast("Case[Predictable[Result | StepSummary]]", case)
    from gpusim.execution.models import SummaryWorkload  # noqa: PLC0415 -- of models alone

    return Case(case.system, SummaryWorkload(cast("ModelWorkload", case.workload)))


def without_limits(workload: Workload) -> Workload:
    """A workload whose time alone is asked for: what would help it is not found."""
    if isinstance(workload, OperatorWorkload):
        return replace(workload, options=replace(workload.options, limits=False))
    return replace(workload, options=replace(workload.options, limits=False))


def total_us(result: Predicted | StepSummary) -> float:
    """Time of an operator with its launch, or of a step [us]."""
    return result.timed.time_us


def step_of(result: Predicted) -> str:
    """What is predicted of a model: its name, precision and sizes; empty of an operator."""
    if isinstance(result, Result):
        return ""
    from gpusim.report.model_tables import step_of_each_title  # noqa: PLC0415 -- of models alone

    return step_of_each_title(result)


def evidence_of(result: Predicted) -> Evidence | None:
    """What surrounds an operator; None of a step."""
    return result.timing.evidence if isinstance(result, Result) else None


@cache
def _loaded(arch: str, arch_path: tuple[Path, ...], cuda: CudaVersion | None) -> Spec:
    return load_spec(arch, arch_path, cuda=cuda)
