"""One question in a YAML file: GPUs x matrix multiplications x data types, and what to plot of them.

A file with the key ``training`` asks another kind of question: how a network trains in several number formats.

A file is checked like a spec: unknown keys are refused, every problem is one line with file, line and
key. ``key.path=value`` on the command line replaces or adds a value before the check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, PositiveInt, field_validator, model_validator

from gpusim.evidence.measured import MeasuredRow, read_measured
from gpusim.execution.sweep import Case
from gpusim.experiment.comparison import Row
from gpusim.experiment.pages import page_count, problem
from gpusim.experiment.plots import Dtypes, PlotEntry, ReferenceLine
from gpusim.files.document import Part, Sizes, Words, as_list, checked, find_shipped, load_document, shipped_folder
from gpusim.files.inputs import excerpt
from gpusim.files.yamlfile import SpecError, YamlFile, parse_value
from gpusim.mathmode.resolve import MathMode, MathModeError, Question, resolve
from gpusim.numerics.training import Run, Scaler, Task
from gpusim.prediction.predict import Options
from gpusim.specs.specfile import Spec, load_spec, with_overrides
from gpusim.workloads.gemm import OUTPUT_BITS, Dtype, Gemm, checked_load, type_name

TableKind = Literal["results", "speedup", "ledger"]


Layouts = Annotated[tuple[Literal["nn", "nt", "tn", "tt"], ...], BeforeValidator(as_list), Field(min_length=1)]
Sparsities = Annotated[tuple[Literal["dense", "2:4"], ...], BeforeValidator(as_list), Field(min_length=1)]
Details = Annotated[tuple[Literal["bound", "sampled", "full"], ...], BeforeValidator(as_list), Field(min_length=1)]
L2States = Annotated[tuple[Literal["cold", "warm"], ...], BeforeValidator(as_list), Field(min_length=1)]


def _quoted(value: object) -> object:
    """A version as it was written: a number has lost its last zeros."""
    if isinstance(value, int | float):
        raise ValueError(f"quote the version: '{value}'")  # noqa: TRY004 - pydantic reports a ValueError at its line
    return value


class GpuEntry(Part):
    """One GPU of the comparison, as it ships or with some values replaced."""

    gpu: str
    label: Words = ""
    dtypes: Dtypes | None = Field(default=None, description="those of the experiment's that it runs; all if absent")
    overrides: dict[str, int | float | str | bool | list[int | float]] = Field(default_factory=dict)


class MathModeEntry(Part):
    """A framework's multiplication, whose data type on each GPU follows from the math-mode rules."""

    framework: str
    version: Annotated[str, BeforeValidator(_quoted)] = Field(description="quoted: YAML reads 1.10 as 1.1")
    op: str = "matmul"
    dtype: str = "fp32"
    set: dict[str, str | int | bool] = Field(default_factory=dict)
    env: dict[str, str | int | bool] = Field(default_factory=dict)
    label: Words = Field(default="", description="what a reader calls it")

    @property
    def name(self) -> str:
        """How tables and plots call it."""
        return self.label or f"{self.dtype} in {self.framework} {self.version}"

    def question(self) -> Question:
        settings, environment = ({key: str(value) for key, value in one.items()} for one in (self.set, self.env))
        return Question(self.framework, self.version, self.op, self.dtype, settings, environment)


MathModes = Annotated[tuple[MathModeEntry, ...], BeforeValidator(as_list), Field(min_length=1)]


class GemmEntry(Part):
    """Matrix multiplications: every combination of the sizes given, or ``square`` for m = n = k."""

    square: Sizes | None = None
    m: Sizes | None = None
    n: Sizes | None = None
    k: Sizes | None = None
    batch: Sizes = (1,)
    group: Words = Field(default="", description="rows of one group share a panel of a plot")
    label: Words = Field(default="", description="what a reader calls this shape")
    dtypes: Dtypes | None = Field(default=None, description="instead of the experiment's")
    mathmode: MathModes | None = Field(default=None, description="in place of dtypes: what a framework takes")
    kernel: str | None = Field(default=None, description="pin a kernel by its printed name")

    @model_validator(mode="after")
    def _either_square_or_all_three(self) -> GemmEntry:
        given = [name for name in ("m", "n", "k") if getattr(self, name) is not None]
        if (self.square is None) == (not given) or (given and len(given) < 3):
            raise ValueError("give either 'square' or all of 'm', 'n' and 'k'")
        if self.dtypes and self.mathmode:
            raise ValueError("give either 'dtypes' or 'mathmode'")
        return self

    def shapes(self) -> Iterator[tuple[int, int, int, int]]:
        """Each (batch, m, n, k)."""
        if self.square is not None:
            yield from ((batch, size, size, size) for batch in self.batch for size in self.square)
        else:
            yield from product(self.batch, self.m or (), self.n or (), self.k or ())


class Overlay(Part):
    """Measured runs to lay over the predictions."""

    file: str = Field(description="CSV in the measured schema, relative to the experiment's file")
    stand_in: dict[str, str] = Field(
        default_factory=dict, description="measured board -> label of the GPU it is drawn with"
    )


class ExperimentFile(Part):
    """What an experiment's YAML may say."""

    title: Words
    question: str = ""
    gpus: Annotated[tuple[GpuEntry, ...], Field(min_length=1)]
    gemms: Annotated[tuple[GemmEntry, ...], Field(min_length=1)]
    dtypes: Dtypes | None = None
    mathmode: MathModes | None = Field(default=None, description="in place of dtypes: what a framework takes")
    accumulate: str = ""
    output_dtype: str = Field(default="", description="type that C is written in; the data type's usual one if empty")
    layout: Layouts = ("tn",)
    order: Literal["row", "column"] = "row"
    sparsity: Sparsities = ("dense",)
    detail: Details = ("sampled",)
    l2: L2States = ("cold",)
    load: str = Field(default="sustained", description="sustained, burst or a number of calls back to back")
    cuda: PositiveInt | None = Field(
        default=None, description="major version of CUDA whose libraries choose the kernels; the newest known"
    )
    measured: tuple[Overlay, ...] = ()
    plots: tuple[PlotEntry, ...] = ()
    tables: Annotated[tuple[TableKind, ...], BeforeValidator(as_list)] = ("results",)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        """A GPU may be its bare name, a plot its bare kind, an overlay its bare file."""
        if not isinstance(data, dict):
            return data
        expanded = dict(data)
        for key, name in (("gpus", "gpu"), ("plots", "kind"), ("measured", "file")):
            if isinstance(expanded.get(key), list):
                expanded[key] = [{name: item} if isinstance(item, str) else item for item in expanded[key]]
        return expanded

    @field_validator("load", mode="before")
    @classmethod
    def _load_is_known(cls, load: Any) -> str:
        return checked_load(load)

    @field_validator("accumulate")
    @classmethod
    def _accumulator_by_its_name(cls, accumulate: str) -> str:
        return type_name(accumulate)

    @field_validator("output_dtype")
    @classmethod
    def _output_is_known(cls, output: str) -> str:
        output = type_name(output)
        if output and output not in OUTPUT_BITS:
            raise ValueError(f"expected one of {', '.join(OUTPUT_BITS)}")
        return output

    @model_validator(mode="after")
    def _types_are_given_once(self) -> ExperimentFile:
        if self.dtypes and self.mathmode:
            raise ValueError("give either 'dtypes' or 'mathmode'")
        if not self.dtypes and not self.mathmode and not all(one.dtypes or one.mathmode for one in self.gemms):
            raise ValueError("give 'dtypes' or 'mathmode', here or in each of 'gemms'")
        return self


class _Type(NamedTuple):
    """A data type to predict, and the rules that led to it."""

    dtype: Dtype
    accumulate: str = ""
    mode: str = ""
    mathmode: MathMode | None = None


class TrainingFile(Part):
    """What the YAML of an experiment that trains may say."""

    title: Words
    question: str = ""
    training: Task
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _labels_differ(self) -> TrainingFile:
        labels = [run.label for run in self.runs]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"'{twice[0]}' stands twice among the runs; give one of them another label")
        return self


PARTS: Mapping[str, type[BaseModel]] = {
    "gpus": GpuEntry,
    "gemms": GemmEntry,
    "mathmode": MathModeEntry,
    "plots": PlotEntry,
    "measured": Overlay,
    "lines": ReferenceLine,
    "training": Task,
    "runs": Run,
    "loss_scale": Scaler,
}
"""Models by the key that they stand under."""


@dataclass(frozen=True, slots=True)
class ExperimentCase:
    """One prediction of an experiment, and where it belongs in tables and plots."""

    entry: int
    """Index of its ``gemms`` entry."""
    group: str
    label: str
    gpu: str
    """Label of the GPU."""
    case: Case
    mode: str = ""
    """What the framework was asked, where the data type follows from that."""
    mathmode: MathMode | None = None
    """And what it came to on this GPU."""

    def row(self) -> Row:
        """What is known of its result row before it is predicted, as if every prediction took 1 us."""
        gemm, options = self.case.gemm, self.case.options
        place = {"gpu": self.gpu, "group": self.group, "label": self.label, "mathmode": self.mode}
        shape = {"batch": gemm.batch, "m": gemm.m, "n": gemm.n, "k": gemm.k, "dtype": gemm.dtype.value}
        how = {"sparsity": gemm.sparsity, "layout": gemm.layout, "detail": options.detail, "l2": options.l2}
        return {**place, **shape, **how, "time_us": 1.0}


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A measured run that is drawn with one of the experiment's GPUs."""

    gpu: str
    """Label of the GPU it is drawn with."""
    board: str
    """The board that was measured."""
    row: MeasuredRow

    @property
    def tflops(self) -> float:
        """Rate of the measured run [TFLOP/s]."""
        gemm = self.row.gemm()
        return gemm.flops / self.row.time_us / 1e6 if gemm else 0.0


@dataclass(frozen=True, slots=True)
class Experiment:
    """A loaded experiment: what it says, and the boards it names."""

    name: str
    file: YamlFile
    overrides: tuple[str, ...]
    content: ExperimentFile
    specs: Mapping[str, Spec]
    """By label, in the order of the file."""

    def cases(self) -> tuple[ExperimentCase, ...]:
        """Every prediction, in the order of the file."""
        return tuple(case for index, entry in enumerate(self.content.gemms) for case in self._of_entry(index, entry))

    def _of_entry(self, index: int, entry: GemmEntry) -> Iterator[ExperimentCase]:
        content = self.content
        boards = {gpu: spec.gpu.with_cuda(content.cuda) for gpu, spec in self.specs.items()}
        axes = product(
            entry.shapes(),
            self._types(index, entry),
            content.sparsity,
            content.layout,
            content.detail,
            content.l2,
            boards.items(),
        )
        runs = dict(zip(self.specs, (gpu.dtypes or Dtype for gpu in content.gpus), strict=True))
        for (batch, m, n, k), types, sparsity, layout, detail, l2, (gpu, arch) in axes:
            dtype, accumulate, mode, mathmode = types[gpu]
            if dtype not in runs[gpu]:
                continue
            sums = content.accumulate or accumulate
            gemm = Gemm(m, n, k, dtype, batch, layout, sparsity, sums, content.order, content.output_dtype)
            group = entry.group or ("square" if entry.square else "")
            case = Case(arch, gemm, Options(detail, l2, entry.kernel, content.load))
            yield ExperimentCase(index, group, entry.label, gpu, case, mode, mathmode)

    def _types(self, index: int, entry: GemmEntry) -> list[dict[str, _Type]]:
        """By GPU: each data type asked for, or what each framework's multiplication comes to there."""
        content = self.content
        own = entry.dtypes or entry.mathmode
        if modes := (entry.mathmode if own else content.mathmode):
            where = f"gemms.{index}.mathmode" if own else "mathmode"
            return [
                {gpu: self._resolved(f"{where}.{at}", mode, spec) for gpu, spec in self.specs.items()}
                for at, mode in enumerate(modes)
            ]
        return [dict.fromkeys(self.specs, _Type(dtype)) for dtype in entry.dtypes or content.dtypes or ()]

    def _resolved(self, where: str, mode: MathModeEntry, spec: Spec) -> _Type:
        """The data type that a framework's multiplication takes on a GPU."""
        try:
            answer = resolve(mode.question(), spec.gpu)
        except MathModeError as error:
            raise self.file.error(where, str(error)) from None
        if answer.kind != "matmul":
            raise self.file.error(f"{where}.op", f"{answer.op} is no matrix multiplication; name one")
        if answer.conflicts or answer.path is None:
            raise self.file.error(where, f"settings contradict each other: {answer.conflicts[0].says}")
        return _Type(Dtype(answer.path), answer.accumulate or "", mode.name, answer)

    def output_files(self) -> tuple[str, ...]:
        """What a run writes besides the manifest, plots last and each of their pages a file."""
        plots = self.content.plots
        rows = [case.row() for case in self.cases()] if plots else []
        return ("results.csv", *(name for plot in plots for name in plot.file_names(page_count(plot, rows))))

    def measured_points(self) -> tuple[MeasuredPoint, ...]:
        """Measured matrix multiplications of the boards and data types compared, in file order."""
        return tuple(point for overlay in self.content.measured for point in self._points(overlay))

    def _points(self, overlay: Overlay) -> Iterator[MeasuredPoint]:
        by_board = {spec.gpu.name.lower(): label for label, spec in self.specs.items()}
        for spec in self.specs.values():
            names = (*spec.gpu.aliases, *spec.gpu.short_names)
            by_board |= {name.lower(): by_board[spec.gpu.name.lower()] for name in names}
        by_board |= {board.lower(): label for board, label in overlay.stand_in.items()}
        dtypes = self.content.dtypes or {case.case.gemm.dtype for case in self.cases()}
        for row in read_measured(self.file.path.parent / overlay.file):
            label = by_board.get(row.gpu.lower())
            if label and row.gemm() and row.dtype in dtypes:
                yield MeasuredPoint(label, row.gpu, row)


@dataclass(frozen=True, slots=True)
class TrainingExperiment:
    """A loaded experiment that trains."""

    name: str
    file: YamlFile
    overrides: tuple[str, ...]
    content: TrainingFile

    @property
    def figure(self) -> str:
        """Name of the picture."""
        return f"{self.name}.png"

    def output_files(self) -> tuple[str, ...]:
        """What a run writes besides the manifest, plots last."""
        return ("results.csv", "gradients.csv", self.figure)


def open_experiment(
    name_or_path: str, overrides: Sequence[str] = (), arch_path: Sequence[Path | str] = ()
) -> Experiment | TrainingExperiment:
    """Load an experiment of either kind by the name of a shipped one or from a YAML file.

    Raises:
        SpecError: no such experiment, or one that does not say what it must.
    """
    file, data = _read(name_or_path, overrides)
    if "training" in data:
        content = checked(TrainingFile, file, data, PARTS, overrides)
        return TrainingExperiment(file.path.stem, file, tuple(overrides), content)
    return _experiment(file, data, overrides, arch_path)


def load_experiment(
    name_or_path: str, overrides: Sequence[str] = (), arch_path: Sequence[Path | str] = ()
) -> Experiment:
    """Load an experiment of GPUs and matrix multiplications.

    Raises:
        SpecError: no such experiment, or one that does not say what it must.
    """
    return _experiment(*_read(name_or_path, overrides), overrides, arch_path)


def _read(name_or_path: str, overrides: Sequence[str]) -> tuple[YamlFile, dict[str, Any]]:
    """An experiment's document with the overrides in place, and the file it comes from."""
    file = load_document(find_shipped(name_or_path, shipped_experiments(), "experiment"))
    data = deepcopy(file.data)
    for override in overrides:
        _apply(data, override)
    return file, data


def _experiment(
    file: YamlFile, data: dict[str, Any], overrides: Sequence[str], arch_path: Sequence[Path | str]
) -> Experiment:
    content = checked(ExperimentFile, file, data, PARTS, overrides)
    specs = _specs(file, content, arch_path)
    content = _with_labels(content, specs)
    _check_labels(file, content, specs)
    experiment = Experiment(file.path.stem, file, tuple(overrides), content, specs)
    _check_plots(experiment)
    return experiment


def shipped_experiments() -> dict[str, Path]:
    """Experiments that can be run by name."""
    return {path.stem: path for path in sorted(shipped_folder("experiments").glob("*.yaml"))}


def _apply(data: dict[str, Any], override: str) -> None:
    """Set one ``key.path=value`` in the document; list items by their index."""
    key_path, equals, text = override.partition("=")
    if not equals or not key_path:
        raise SpecError(f"override '{excerpt(override)}': expected key.path=value")
    try:
        value = parse_value(text)
    except ValueError as error:
        raise SpecError(f"override '{excerpt(override)}': {error}") from None
    *parents, last = key_path.split(".")
    node: Any = data
    try:
        for key in parents:
            node = node[int(key)] if isinstance(node, list) else node.setdefault(key, {})
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    except (ValueError, IndexError, TypeError, AttributeError):
        raise SpecError(
            f"override '{excerpt(override)}': {excerpt(key_path)}: no such place in the experiment"
        ) from None


def _specs(file: YamlFile, content: ExperimentFile, arch_path: Sequence[Path | str]) -> dict[str, Spec]:
    """The boards by label; a problem with one stands at its line of the experiment."""
    specs: dict[str, Spec] = {}
    for index, entry in enumerate(content.gpus):
        try:
            spec = load_spec(entry.gpu, arch_path)
            spec = with_overrides(spec, entry.overrides) if entry.overrides else spec
        except SpecError as error:
            raise file.error(f"gpus.{index}", str(error)) from None
        label = entry.label or spec.gpu.name
        if label in specs:
            raise file.error(f"gpus.{index}", f"'{label}' stands twice; give one of them a label")
        specs[label] = spec
    return specs


def _with_labels(content: ExperimentFile, specs: Mapping[str, Spec]) -> ExperimentFile:
    """Plots whose baseline is a GPU as the experiment spells it, an alias perhaps, name it by its label."""
    labels = {entry.gpu: label for entry, label in zip(content.gpus, specs, strict=True) if not entry.label}
    plots = tuple(
        plot.model_copy(update={"baseline": labels.get(plot.baseline, plot.baseline)}) for plot in content.plots
    )
    return content.model_copy(update={"plots": plots})


def _check_labels(file: YamlFile, content: ExperimentFile, specs: Mapping[str, Spec]) -> None:
    """Names that point at GPUs of the experiment do."""
    for index, plot in enumerate(content.plots):
        if plot.kind == "speedup" and plot.baseline not in specs:
            problem = f"'{plot.baseline}' is none of the GPUs; use {' or '.join(specs)}"
            raise file.error(f"plots.{index}.baseline", problem)
    if "speedup" in content.tables and not any(plot.kind == "speedup" for plot in content.plots):
        raise file.error("tables", "a speedup table needs a speedup plot with its baseline; add one")
    for index, overlay in enumerate(content.measured):
        for board, label in overlay.stand_in.items():
            if label not in specs:
                problem = f"'{label}' is none of the GPUs; use {' or '.join(specs)}"
                raise file.error(f"measured.{index}.stand_in.{board}", problem)


def _check_plots(experiment: Experiment) -> None:
    """Each plot can be drawn, into files of its own."""
    if not experiment.content.plots:
        return
    rows = [case.row() for case in experiment.cases()]
    taken: set[str] = set()
    for index, plot in enumerate(experiment.content.plots):
        if found := problem(plot, rows):
            raise experiment.file.error(f"plots.{index}", found)
        names = plot.file_names(page_count(plot, rows))
        if twice := [name for name in names if name.lower() in taken]:
            raise experiment.file.error(f"plots.{index}", f"{twice[0]} is drawn twice; give one of them a 'file'")
        taken |= {name.lower() for name in names}
