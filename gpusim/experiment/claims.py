"""Published claims beside predictions: the schema of their files, and the file with its predictions prepared.

A claim is a value that a page states. Its prediction is an expression of the metrics of named predictions, such as
``a100.tflops / v100.tflops``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from gpusim.execution.cases import Case, OperatorCase, OperatorWorkload
from gpusim.experiment.model_run import ModelRun, Script
from gpusim.experiment.stated import SourcedValue, StatedRange, StatedValue
from gpusim.expression import METRICS, parsed
from gpusim.files.checked_document import Part, checked
from gpusim.files.yamlfile import SpecError, YamlFile
from gpusim.prediction.options import Options
from gpusim.record import Title
from gpusim.specs import Spec, load_spec
from gpusim.workloads.operators import parse_operator

Outcome = Literal["both", "published", "measured", "neither"]
TOLERANCE_PCT = 10.0
"""How far from a stated value a prediction may be that meets it."""


class RunEntry(Part):
    """A prediction that claims refer to by its name."""

    gpu: str = Field(description="name, alias or spec file")
    gemm: dict[str, Any] | None = Field(
        default=None, description="values of an operator, and options of its prediction"
    )
    model: ModelRun | None = Field(default=None, description="a step of a model")

    @model_validator(mode="after")
    def _either(self) -> RunEntry:
        if (self.gemm is None) == (self.model is None):
            raise ValueError("give either 'gemm' or 'model'")
        return self


class Claim(Part):
    """A value that a page states, and how it is predicted."""

    claim: Title = Field(description="what the page states, in words")
    source: str = Field(description="address of the page, and where the value stands on it")
    published: StatedValue = Field(description="the value that it states")
    measured: SourcedValue | None = Field(default=None, description="what others measured of it")
    unit: str = Field(default="", description="of all three values")
    predicted: str = Field(description="an expression of metrics of the runs, as NAME.METRIC")
    tolerance_pct: float = Field(
        default=TOLERANCE_PCT, ge=0, le=100, description="how far from a stated value a prediction may be that meets it"
    )
    note: str = Field(default="", description="a remark on the comparison")

    def outcome(self, value: float) -> Outcome:
        """Whether a prediction meets the published value, the measured value, both or neither."""
        published = self.published.met_by(value, self.tolerance_pct)
        measured = self.measured is not None and self.measured.value.met_by(value, self.tolerance_pct)
        if published and measured:
            return "both"
        return "published" if published else "measured" if measured else "neither"


class ClaimsFile(Part):
    """Claims, and the predictions that they are about."""

    title: Title = Field(description="heading of the table")
    question: str = Field(default="", description="what the experiment answers")
    runs: dict[str, RunEntry] = Field(min_length=1, description="predictions, by the name that claims give them")
    claims: Annotated[tuple[Claim, ...], Field(min_length=1)] = Field(description="the claims, in order")


PARTS: Mapping[str, type[BaseModel]] = {
    "runs": RunEntry,
    "claims": Claim,
    "model": ModelRun,
    "script": Script,
    "published": StatedRange,
    "measured": SourcedValue,
    "value": StatedRange,
}


@dataclass(frozen=True, slots=True)
class ClaimsExperiment:
    """A loaded file of claims."""

    name: str
    file: YamlFile
    overrides: tuple[str, ...]
    content: ClaimsFile
    specs: Mapping[str, Spec]
    """Specs of the GPUs, by the name of the run."""
    cases: Mapping[str, OperatorCase]
    """Cases of single operators, by the name of the run."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that runs predict."""
        return tuple(dict.fromkeys(run.model.model for run in self.content.runs.values() if run.model))

    def output_files(self) -> tuple[str, ...]:
        """Names of the files besides the manifest."""
        return ("results.csv", "figures.csv")


def load_claims(
    file: YamlFile, data: Mapping[str, Any], overrides: Sequence[str], arch_path: Sequence[Path | str]
) -> ClaimsExperiment:
    """Check a file of claims, down to the names in its expressions.

    Raises:
        SpecError: the first problem, with its line.
    """
    content = checked(ClaimsFile, file, data, PARTS, overrides)
    specs, cases = {}, {}
    for name, run in content.runs.items():
        where = f"runs.{name}"
        if not name.isidentifier():
            raise file.error(where, f"'{name}' is not a name that an expression can hold; use letters, digits and _")
        try:
            specs[name] = load_spec(run.gpu, arch_path)
        except SpecError as error:
            raise file.error(f"{where}.gpu", str(error)) from None
        part = "model" if run.gemm is None else "gemm"
        try:
            if run.gemm is not None:
                cases[name] = _case(specs[name], run.gemm)
            elif run.model is not None:
                run.model.check()
        except ValueError as error:
            raise file.error(f"{where}.{part}", str(error)) from None
    for index, claim in enumerate(content.claims):
        try:
            _check_names(claim.predicted, content.runs)
        except ValueError as error:
            raise file.error(f"claims.{index}.predicted", str(error)) from None
    return ClaimsExperiment(file.path.stem, file, tuple(overrides), content, specs, cases)


def _case(spec: Spec, values: Mapping[str, Any]) -> OperatorCase:
    """The prediction of an operator, from its values and those of its options."""
    options = {name: value for name, value in values.items() if name in Options.__dataclass_fields__}
    operator = parse_operator({name: value for name, value in values.items() if name not in options})
    return Case(spec.system, OperatorWorkload(operator, Options(**options)))


def _check_names(expression: str, runs: Mapping[str, RunEntry]) -> None:
    """Check that the metrics of an expression belong to runs of the file."""
    for node in ast.walk(parsed(expression, METRICS)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in runs:
            raise ValueError(f"'{node.value.id}' is not one of the runs; known are {', '.join(runs)}")
