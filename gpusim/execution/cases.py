"""Cases: a workload on a system, and what is known of it after its prediction.

A workload is an operator (:class:`OperatorWorkload`) or, of :mod:`gpusim.execution.models`, a step of a model or a text
that it generates. :mod:`gpusim.execution.sweep` predicts cases, one or many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from gpusim.errors import DefectError, InputError
from gpusim.prediction.assembly import operator_columns
from gpusim.prediction.options import Options
from gpusim.prediction.own_kernel import KernelShape, with_own_kernel
from gpusim.prediction.predict import Prepared, predict, prepare
from gpusim.prediction.ranked import Ranked
from gpusim.prediction.results import Result
from gpusim.prediction.timing import Simulate
from gpusim.progress import Progress
from gpusim.sim.drivers.choice import LIMITS_S, SAMPLED_S
from gpusim.system import System
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator

Kept = TypeVar("Kept")
Predicted_co = TypeVar("Predicted_co", covariant=True)


QUICK_S: Mapping[str, float] = {"bound": 1e-3, "estimate": 2e-4, "sampled": 3e-3}
"""CPU time of a prediction by its detail, ranked with others, on cores of 2020 to 2024."""
LIMITS_FACTOR = 3
"""How much longer one takes that finds what would help."""


class Predictable(Protocol[Predicted_co]):
    """What can be predicted on a system; its text names it in messages."""

    repeats_launches: ClassVar[bool]
    """Whether one prediction simulates many launches, equal ones among them."""

    @property
    def is_quick(self) -> bool:
        """Whether a prediction takes milliseconds, not seconds or minutes."""

    @property
    def flops(self) -> float:
        """Operations of a workload that is not quick, by which the longest ones are predicted first; 0 if unknown."""

    @property
    def reference_s(self) -> float:
        """Time that its launches take the reference driver, in the mean [s]; 0 where each launch chooses its driver."""

    @property
    def seconds(self) -> float:
        """CPU time of a prediction, roughly; infinite where it may be minutes."""

    def predict(
        self, system: System, simulate: Simulate, ranked: Ranked | None = None, progress: Progress | None = None, /
    ) -> Predicted_co:
        """Predict it on a system.

        Args:
            ranked: Plans of an operator, where they are known.
            progress: Called now and then during a long simulation.

        Raises:
            InputError: the system cannot run it, or its description is wrong.
        """


@dataclass(frozen=True, slots=True)
class OperatorWorkload:
    """One operator, repeated as its options say."""

    operator: Operator
    options: Options = Options()

    repeats_launches: ClassVar[bool] = False

    @property
    def is_quick(self) -> bool:
        return self.options.detail != "full"

    @property
    def flops(self) -> float:
        return self.operator.flops

    @property
    def reference_s(self) -> float:
        simulated = self.options.detail == "sampled" or (
            self.options.detail == "estimate" and not isinstance(self.operator, Gemm)
        )
        return (SAMPLED_S if simulated else 0.0) + (LIMITS_S if simulated and self.options.finds_limits else 0.0)

    @property
    def seconds(self) -> float:
        if not self.is_quick:
            return math.inf
        return QUICK_S[self.options.detail] * (LIMITS_FACTOR if self.options.finds_limits else 1)

    def predict(
        self, system: System, simulate: Simulate, ranked: Ranked | None = None, progress: Progress | None = None, /
    ) -> Result:
        return predict(system, self.operator, self.options, progress=progress, simulate=simulate, ranked=ranked)

    def prepared(self, system: System, simulate: Simulate, ranked: Ranked) -> Prepared:
        """The operator with its plans on a system, before it is simulated."""
        return prepare(system, self.operator, self.options, simulate, ranked)

    def identity(self, system: System) -> dict[str, Any]:
        """What a result on a system repeats of the case."""
        options = {name: getattr(self.options, name) for name in ("detail", "l2", "load", "operands")}
        return {"arch": system.gpu.name, **asdict(operator_columns(self.operator)), **options}

    def __str__(self) -> str:
        columns = operator_columns(self.operator)
        batch = (columns.batch,) if columns.batch > 1 else ()
        sizes = "x".join(str(size) for size in (*batch, columns.m, columns.n, columns.k) if size)
        return f"{columns.op}:{sizes}:{columns.dtype}"


Workload_co = TypeVar("Workload_co", bound=Predictable[Any], covariant=True)


@dataclass(frozen=True, slots=True)
class Case(Generic[Workload_co]):
    """One prediction to make."""

    system: System
    workload: Workload_co

    def __str__(self) -> str:
        return f"{self.workload} on {self.system.gpu.name}"


OperatorCase = Case[OperatorWorkload]
"""An operator on a system."""


def case_with(own_kernel: KernelShape, one: OperatorCase) -> OperatorCase:
    """A case whose library has a kernel of one's own alone, where that differs from the library's."""
    if own_kernel.is_as_shipped:
        return one
    options = one.workload.options
    system = with_own_kernel(one.system, one.workload.operator, options, own_kernel)
    return replace(one, system=system, workload=replace(one.workload, options=replace(options, kernel=None)))


@dataclass(frozen=True, slots=True)
class CaseResult(Generic[Kept]):
    """What is kept of a prediction, or the reason that there is none."""

    result: Kept | None
    reason: str
    """Why there is no result, in a line of text; empty where there is one."""
    seconds: float
    """Wall time of this prediction."""
    traceback: str = ""
    """Traceback of an error that is a defect of gpusim; empty where the input is the reason."""

    def or_raise(self) -> Kept:
        """The result.

        Raises:
            InputError: the input is the reason that there is none.
            DefectError: a defect of gpusim is.
        """
        if self.traceback:
            error = DefectError(self.reason)
            error.add_note(self.traceback)
            raise error
        if self.result is None:
            raise InputError(self.reason)
        return self.result


@contextmanager
def naming(case: object) -> Iterator[None]:
    """Let an error that is a defect of gpusim say which case met it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        error.add_note(f"in the prediction of {case}")
        raise
