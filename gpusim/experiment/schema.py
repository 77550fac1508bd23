"""Schema of an experiment's YAML: keys, types, bounds, and which keys exclude each other.

Two kinds of file: GPUs x matrix multiplications with plots, and (with the key ``training``) a network trained in
several number formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from gpusim.cuda_version import LastCuda
from gpusim.experiment.plot_schema import PlotEntry, PlotKind, ReferenceLine
from gpusim.files.checked_document import Part
from gpusim.mathmode.resolve import FrameworkOperation
from gpusim.numerics.training import Scaler, TrainingRun, TrainingTask
from gpusim.record import ALSO_SINGLE, AlsoWritten, Title, Version, as_list
from gpusim.specs.design_points import MOST_POINTS
from gpusim.workloads.conditions import Operands
from gpusim.workloads.fields import Accumulator, Dtypes, L2States, Layouts, Output, RunLoad, Sizes, Sparsities
from gpusim.workloads.gemm import StorageOrder

TableKind = Literal["results", "speedup", "ledger"]


Details = Annotated[
    tuple[Literal["bound", "estimate", "sampled", "full"], ...],
    BeforeValidator(as_list),
    Field(min_length=1),
    ALSO_SINGLE,
]


_TITLE, _QUESTION = "heading of tables and plots", "what the experiment answers"


class ValueRange(Part):
    """A range of a value of the spec, its ends numbers or multiples of the shipped value such as ``0.5x``."""

    min: float | str = Field(description="smallest value, or multiple of the shipped one, such as 0.5x")
    max: float | str = Field(description="largest value, or multiple of the shipped one")
    scale: Literal["linear", "log"] = Field(default="linear", description="on which samples lie evenly")


class LatinHypercube(Part):
    """Samples that fill ranges of values evenly."""

    samples: int = Field(ge=1, le=MOST_POINTS, description="number of modified GPUs")
    seed: int = Field(default=0, ge=0, description="of the random numbers: the same seed gives the same samples")
    ranges: dict[str, ValueRange] = Field(min_length=1, description="by key path of the spec")


class GpuEntry(Part):
    """One GPU of the comparison, optionally with overridden values; or all combinations of lists of values."""

    gpu: str = Field(description="name, alias or spec file")
    label: Title = Field(default="", description="name in tables and plots; that of the GPU if empty")
    dtypes: Dtypes | None = Field(
        default=None, description="which of the experiment's data types it runs; all if absent"
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="values by key path of the spec, or lists of values: every combination of them",
    )
    zip: dict[str, Any] = Field(default_factory=dict, description="lists of values that change together")
    latin_hypercube: LatinHypercube | None = Field(
        default=None, description="samples that fill ranges of values evenly"
    )
    retuned: bool = Field(
        default=False,
        description="whether the library's heuristic is tuned for the changed GPU; else for the shipped one",
    )


class MathModeEntry(Part):
    """A framework's multiplication, whose data type on each GPU follows from the math-mode rules."""

    framework: str = Field(description="as of gpusim mathmode: pytorch, tensorflow, jax ...")
    version: Version
    op: str = Field(default="matmul", description="operation of the framework")
    dtype: str = Field(default="fp32", description="data type of its tensors")
    set: dict[str, str | int | bool] = Field(default_factory=dict, description="settings of the framework, by name")
    env: dict[str, str | int | bool] = Field(default_factory=dict, description="environment variables, by name")
    label: Title = Field(default="", description="name in tables and plots")

    @property
    def name(self) -> str:
        """Name in tables and plots."""
        return self.label or f"{self.dtype} in {self.framework} {self.version}"

    def operation(self) -> FrameworkOperation:
        settings, environment = ({key: str(value) for key, value in one.items()} for one in (self.set, self.env))
        return FrameworkOperation(self.framework, self.version, self.op, self.dtype, settings, environment)


MathModes = Annotated[tuple[MathModeEntry, ...], BeforeValidator(as_list), Field(min_length=1), ALSO_SINGLE]


class GemmCases(Part):
    """Matrix multiplications: every combination of the sizes given, or ``square`` for m = n = k."""

    square: Sizes | None = Field(default=None, description="m = n = k; sizes, or ranges such as 256:4096:256")
    m: Sizes | None = Field(default=None, description="rows of C")
    n: Sizes | None = Field(default=None, description="columns of C")
    k: Sizes | None = Field(default=None, description="inner (reduction) dimension")
    batch: Sizes = Field(default=(1,), description="GEMMs of one call")
    group: Title = Field(default="", description="rows of one group share a panel of a plot")
    label: Title = Field(default="", description="name of this shape in tables and plots")
    dtypes: Dtypes | None = Field(default=None, description="instead of the experiment's")
    mathmode: MathModes | None = Field(default=None, description="in place of dtypes: a framework's multiplication")
    kernel: str | None = Field(default=None, description="pin a kernel by its printed name")

    @model_validator(mode="after")
    def _either_square_or_all_three(self) -> GemmCases:
        given = [name for name in ("m", "n", "k") if getattr(self, name) is not None]
        if (self.square is None) == (not given) or (given and len(given) < 3):
            raise ValueError("give either 'square' or all of 'm', 'n' and 'k'")
        if self.dtypes and self.mathmode:
            raise ValueError("give either 'dtypes' or 'mathmode'")
        return self

    def shapes(self) -> Iterator[tuple[int, int, int, int]]:
        """Shapes as (batch, m, n, k)."""
        if self.square is not None:
            yield from ((batch, size, size, size) for batch in self.batch for size in self.square)
        else:
            yield from product(self.batch, self.m or (), self.n or (), self.k or ())


class Overlay(Part):
    """Measured runs to overlay on the predictions."""

    file: str = Field(description="CSV in the measured schema, relative to the experiment's file")
    stand_in: dict[str, str] = Field(
        default_factory=dict, description="measured GPU -> label of the simulated GPU it is drawn with"
    )


class ExperimentFile(Part):
    """An experiment that compares GPUs."""

    title: Title = Field(description=_TITLE)
    question: str = Field(default="", description=_QUESTION)
    gpus: Annotated[tuple[Annotated[GpuEntry, AlsoWritten(str)], ...], Field(min_length=1)] = Field(
        description="GPUs to compare, by name or with overridden values"
    )
    gemms: Annotated[tuple[GemmCases, ...], Field(min_length=1)] = Field(description="matrix multiplications")
    dtypes: Dtypes | None = Field(default=None, description="data types of A and B, each on every GPU that has it")
    mathmode: MathModes | None = Field(default=None, description="in place of dtypes: a framework's multiplication")
    accumulate: Accumulator = Field(
        default="", description="data type of the accumulator; the default of the operands' type if empty"
    )
    output_dtype: Output = Field(default="", description="data type of C; the default of the operands' type if empty")
    layout: Layouts = Field(default=("tn",), description="operand layouts, in the letters of BLAS's column-major call")
    order: StorageOrder = Field(default="row", description="how C lies; column is the order of BLAS")
    sparsity: Sparsities = Field(default=("dense",), description="structure of A: dense, or 2:4")
    detail: Details = Field(default=("sampled",), description="how much is simulated")
    l2: L2States = Field(default=("cold",), description="whether L2 holds operands of an earlier run at the start")
    load: RunLoad = Field(
        default="sustained",
        description="sustained, burst, flushed (as Triton's do_bench) or a number of calls back to back",
    )
    operands: Operands = Field(default="random", description="what the operands hold: random, positive or zeros")
    cuda: LastCuda | None = Field(
        default=None, description="version of CUDA whose libraries choose the kernels; the newest known if absent"
    )
    measured: tuple[Annotated[Overlay, AlsoWritten(str)], ...] = Field(
        default=(), description="measured runs to draw beside the predictions"
    )
    plots: tuple[Annotated[PlotEntry, AlsoWritten(PlotKind)], ...] = Field(
        default=(), description="plots to draw, by kind or with their keys"
    )
    tables: Annotated[tuple[TableKind, ...], BeforeValidator(as_list), ALSO_SINGLE] = Field(
        default=("results",), description="tables that it prints"
    )

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        return with_short_forms(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _types_are_given_once(self) -> ExperimentFile:
        if self.dtypes and self.mathmode:
            raise ValueError("give either 'dtypes' or 'mathmode'")
        if not self.dtypes and not self.mathmode and not all(one.dtypes or one.mathmode for one in self.gemms):
            raise ValueError("give 'dtypes' or 'mathmode', here or in each of 'gemms'")
        return self


def with_short_forms(data: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its short forms written out: a bare name for a GPU, kind for a plot, file for an overlay."""
    expanded = dict(data)
    for key, name in (("gpus", "gpu"), ("plots", "kind"), ("measured", "file")):
        if isinstance(expanded.get(key), list):
            expanded[key] = [{name: item} if isinstance(item, str) else item for item in expanded[key]]
    return expanded


class TrainingFile(Part):
    """An experiment that trains a network in several number formats."""

    title: Title = Field(description=_TITLE)
    question: str = Field(default="", description=_QUESTION)
    training: TrainingTask = Field(description="what is trained")
    runs: Annotated[tuple[TrainingRun, ...], Field(min_length=1)] = Field(description="number formats to train in")

    @model_validator(mode="after")
    def _labels_differ(self) -> TrainingFile:
        labels = [run.label for run in self.runs]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"two runs are labelled '{twice[0]}'; rename one")
        return self


PARTS: Mapping[str, type[BaseModel]] = {
    "gpus": GpuEntry,
    "latin_hypercube": LatinHypercube,
    "ranges": ValueRange,
    "gemms": GemmCases,
    "mathmode": MathModeEntry,
    "plots": PlotEntry,
    "measured": Overlay,
    "lines": ReferenceLine,
    "training": TrainingTask,
    "runs": TrainingRun,
    "loss_scale": Scaler,
}
"""Models of nested mappings by their key."""
