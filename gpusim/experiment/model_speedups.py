"""Speedups of whole models from one GPU to another: the schema of their files, and the file with all of its cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, PositiveFloat, PositiveInt

from gpusim.experiment.model_run import ModelRun, Script
from gpusim.expression import METRICS, value_of
from gpusim.files.checked_document import Part, checked
from gpusim.files.yamlfile import SpecError, YamlFile
from gpusim.models.policy import Mode, Precision
from gpusim.record import ALSO_SINGLE, AlsoWritten, Title, Version, as_list
from gpusim.specs import Spec, load_spec


def _twice(value: object) -> object:
    """Pair of precisions; a single one is that of both GPUs."""
    return (value, value) if isinstance(value, str) else value


Precisions = Annotated[tuple[Precision, Precision], BeforeValidator(_twice), AlsoWritten(Precision)]
"""Precision on the baseline, and on the other GPU."""
Counts = Annotated[tuple[PositiveInt, ...], BeforeValidator(as_list), Field(min_length=1), ALSO_SINGLE]


def _evaluated(value: object) -> object:
    """A ratio of two throughputs as a number."""
    return value_of(value, {}, METRICS) if isinstance(value, str) else value


class StatedSpeedup(Part):
    """A speedup at one pair of precisions and one number of GPUs, as measured or claimed."""

    precisions: Precisions = Field(description="on the baseline and on the other GPU; one is that of both")
    gpus: PositiveInt = Field(default=1, description="number of GPUs on both sides")
    speedup: Annotated[PositiveFloat, BeforeValidator(_evaluated), AlsoWritten(str)] = Field(
        description="a number, or such as 2470 / 1200"
    )
    source: str = Field(description="where it was measured or claimed")


class ComparedModel(Part):
    """A model on both GPUs, at equal sizes."""

    label: Title = Field(description="name in tables and plots")
    model: str = Field(description="name of a shipped model, or a file")
    mode: Mode = Field(default="train", description="training or inference")
    sizes: dict[str, PositiveInt] = Field(default={}, description="batch and others that the model has")
    accumulation: PositiveInt = Field(default=1, description="forward and backward passes for each update")
    script: Script = Field(default=Script(), description="what the training script decides")
    baseline: str | None = Field(default=None, description="another GPU as baseline for this model")
    other: str | None = Field(default=None, description="another GPU beside the baseline for this model")
    precisions: tuple[Precisions, ...] | None = Field(default=None, description="instead of the experiment's")
    gpus: Counts | None = Field(default=None, description="instead of the experiment's")
    measured: tuple[StatedSpeedup, ...] = Field(default=(), description="speedups that others measured")
    claimed: tuple[StatedSpeedup, ...] = Field(default=(), description="speedups that pages state")


class ModelSpeedupsFile(Part):
    """An experiment that compares two GPUs by whole models."""

    title: Title = Field(description="heading of the table and the plot")
    question: str = Field(default="", description="what the experiment answers")
    baseline: str = Field(description="GPU that speedups are relative to")
    other: str = Field(description="GPU whose speedups are predicted")
    precisions: Annotated[tuple[Precisions, ...], Field(min_length=1)] = Field(
        description="each of both GPUs, or pairs of baseline and other"
    )
    gpus: Counts = Field(default=(1,), description="numbers of GPUs, a comparison for each")
    version: Version | None = Field(default=None, description="of PyTorch; as the container of a script has it")
    models: Annotated[tuple[ComparedModel, ...], Field(min_length=1)] = Field(description="models to compare")


PARTS: Mapping[str, type[BaseModel]] = {
    "models": ComparedModel,
    "script": Script,
    "measured": StatedSpeedup,
    "claimed": StatedSpeedup,
}


@dataclass(frozen=True, slots=True)
class SpeedupCase:
    """A model at one pair of precisions and one number of GPUs, on both GPUs."""

    entry: int
    """Index in the file."""
    model: ComparedModel
    precisions: tuple[Precision, Precision]
    boards: tuple[str, str]
    """Names of the baseline and of the other GPU."""
    runs: tuple[ModelRun, ModelRun]
    """Runs on the baseline, and on the other GPU."""

    @property
    def gpus(self) -> int:
        return self.runs[0].gpus

    @property
    def measured(self) -> StatedSpeedup | None:
        """Speedup that was measured, if any."""
        return next(filter(self._is_of, self.model.measured), None)

    @property
    def claimed(self) -> StatedSpeedup | None:
        """Speedup that a page states, if any."""
        return next(filter(self._is_of, self.model.claimed), None)

    def _is_of(self, stated: StatedSpeedup) -> bool:
        return (stated.precisions, stated.gpus) == (self.precisions, self.gpus)


@dataclass(frozen=True, slots=True)
class ModelSpeedups:
    """A loaded experiment."""

    name: str
    file: YamlFile
    overrides: tuple[str, ...]
    content: ModelSpeedupsFile
    specs: Mapping[str, Spec]
    """Specs by the name that the file gives a GPU."""

    def cases(self) -> Iterator[SpeedupCase]:
        """Every comparison, in the order of the file."""
        content = self.content
        for index, entry in enumerate(content.models):
            boards = (entry.baseline or content.baseline, entry.other or content.other)
            for precisions, gpus in product(entry.precisions or content.precisions, entry.gpus or content.gpus):
                first, second = (
                    ModelRun(
                        model=entry.model,
                        mode=entry.mode,
                        precision=precision,
                        sizes=entry.sizes,
                        gpus=gpus,
                        accumulation=entry.accumulation,
                        version=content.version,
                        script=entry.script,
                    )
                    for precision in precisions
                )
                yield SpeedupCase(index, entry, precisions, boards, (first, second))

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(dict.fromkeys(entry.model for entry in self.content.models))

    def output_files(self) -> tuple[str, ...]:
        """Names of the files besides the manifest, the plot last."""
        return ("results.csv", "speedups.png")


def load_model_speedups(
    file: YamlFile, data: Mapping[str, Any], overrides: Sequence[str], arch_path: Sequence[Path | str]
) -> ModelSpeedups:
    """Check an experiment down to the sizes of its models.

    Raises:
        SpecError: the first problem, with its line.
    """
    content = checked(ModelSpeedupsFile, file, data, PARTS, overrides)
    specs: dict[str, Spec] = {}
    places = [("", content), *((f"models.{index}.", entry) for index, entry in enumerate(content.models))]
    for where, part in places:
        for key in ("baseline", "other"):
            name = getattr(part, key)
            try:
                specs |= {name: load_spec(name, arch_path)} if name else {}
            except SpecError as error:
                raise file.error(f"{where}{key}", str(error)) from None
    experiment = ModelSpeedups(file.path.stem, file, tuple(overrides), content, specs)
    for case in experiment.cases():
        try:
            for run in case.runs:
                run.check()
        except ValueError as error:
            raise file.error(f"models.{case.entry}", str(error)) from None
    return experiment
