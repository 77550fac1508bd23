"""A loaded experiment: its predictions, its output files, and the measured runs to overlay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from gpusim.evidence.measured import MeasuredRow, read_measured
from gpusim.execution.cases import Case, OperatorCase, OperatorWorkload
from gpusim.experiment.comparison import Row
from gpusim.experiment.gpus import ExperimentGpu
from gpusim.experiment.plot_pages import page_count
from gpusim.experiment.schema import ExperimentFile, GemmCases, MathModeEntry, Overlay, TrainingFile
from gpusim.files.yamlfile import YamlFile
from gpusim.mathmode.resolve import MathMode, MathModeError, resolve
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.specs import Spec
from gpusim.workloads.gemm import Gemm


class _Type(NamedTuple):
    """A data type to predict, and the rules that led to it."""

    dtype: Dtype
    accumulate: str = ""
    mode: str = ""
    mathmode: MathMode | None = None


@dataclass(frozen=True, slots=True)
class ExperimentCase:
    """One prediction of an experiment, with its place in tables and plots."""

    entry: int
    """Index of its ``gemms`` entry."""
    group: str
    label: str
    gpu: str
    """Label of the GPU."""
    case: OperatorCase
    mode: str = ""
    """Name of the operation under ``mathmode``, where the data type follows from one."""
    mathmode: MathMode | None = None
    """Math mode of the operator on this GPU."""
    gpu_columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the result row: the name of the GPU and its values, where values vary in the experiment."""

    def row(self) -> Row:
        """The part of the result row that is known before prediction, with a time of 1 us."""
        columns, options = self.case.workload.operator.columns, self.case.workload.options
        place = {"gpu": self.gpu, **self.gpu_columns, "group": self.group, "label": self.label, "mathmode": self.mode}
        shape = {name: columns[name] for name in ("batch", "m", "n", "k", "dtype", "sparsity", "layout")}
        return {**place, **shape, "detail": options.detail, "l2": options.l2, "time_us": 1.0}


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """A measured run that is drawn with one of the experiment's GPUs."""

    gpu: str
    """Label of the GPU it is drawn with."""
    board: str
    """The GPU that was measured."""
    row: MeasuredRow

    @property
    def tflops(self) -> float:
        """Rate of the measured run [TFLOP/s]."""
        operator = self.row.operator
        return operator.flops / self.row.time_us / 1e6 if operator else 0.0


@dataclass(frozen=True, slots=True)
class Experiment:
    """A loaded experiment and its GPUs."""

    name: str
    file: YamlFile
    overrides: tuple[str, ...]
    content: ExperimentFile
    gpus: Mapping[str, ExperimentGpu]
    """GPUs by label, in the order of the file."""

    @property
    def specs(self) -> dict[str, Spec]:
        """The specs of the GPUs, by label."""
        return {label: one.spec for label, one in self.gpus.items()}

    @property
    def varying(self) -> tuple[str, ...]:
        """Key paths of the values that vary between the GPUs."""
        return tuple(next(iter(self.gpus.values())).values)

    def cases(self) -> Iterator[ExperimentCase]:
        """Every prediction, in the order of the file; generated one by one, as there may be very many."""
        for index, entry in enumerate(self.content.gemms):
            yield from self._of_entry(index, entry)

    def _of_entry(self, index: int, entry: GemmCases) -> Iterator[ExperimentCase]:
        content = self.content
        axes = product(
            entry.shapes(),
            self._types(index, entry),
            content.sparsity,
            content.layout,
            content.detail,
            content.l2,
            self.gpus.items(),
        )
        for (batch, m, n, k), types, sparsity, layout, detail, l2, (label, gpu) in axes:
            dtype, accumulate, mode, mathmode = types[label]
            if dtype not in (gpu.entry.dtypes or Dtype):
                continue
            sums = content.accumulate or accumulate
            gemm = Gemm(m, n, k, dtype, batch, layout, sparsity, sums, content.order, content.output_dtype)
            group = entry.group or ("square" if entry.square else "")
            options = Options(detail, l2, entry.kernel, content.load, operands=content.operands)
            case = Case(gpu.spec.system, OperatorWorkload(gemm, options))
            yield ExperimentCase(index, group, entry.label, label, case, mode, mathmode, gpu.columns)

    def _types(self, index: int, entry: GemmCases) -> list[dict[str, _Type]]:
        """By GPU: each data type requested, or the type that each framework's multiplication takes."""
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
            math_mode = resolve(mode.operation(), spec.gpu)
        except MathModeError as error:
            raise self.file.error(where, str(error)) from None
        if math_mode.kind != "matmul":
            raise self.file.error(f"{where}.op", f"{math_mode.op} is not a matrix multiplication; name one")
        if math_mode.conflicts or math_mode.path is None:
            raise self.file.error(where, f"settings contradict each other: {math_mode.conflicts[0].says}")
        return _Type(Dtype(math_mode.path), math_mode.accumulate or "", mode.name, math_mode)

    def output_files(self) -> tuple[str, ...]:
        """Names of the files besides the manifest; plots last, one file per page."""
        plots = self.content.plots
        rows = [case.row() for case in self.cases()] if plots else []
        return ("results.csv", *(name for plot in plots for name in plot.file_names(page_count(plot, rows))))

    def measured_points(self) -> tuple[MeasuredPoint, ...]:
        """Measured matrix multiplications of these GPUs and data types, in file order."""
        return tuple(point for overlay in self.content.measured for point in self._points(overlay))

    def _points(self, overlay: Overlay) -> Iterator[MeasuredPoint]:
        single = {label: one.spec for label, one in self.gpus.items() if not one.varies}
        by_name = {spec.gpu.name.lower(): label for label, spec in single.items()}
        for spec in single.values():
            names = (*spec.gpu.aliases, *spec.gpu.short_names)
            by_name |= {name.lower(): by_name[spec.gpu.name.lower()] for name in names}
        by_name |= {board.lower(): label for board, label in overlay.stand_in.items()}
        dtypes = self.content.dtypes or {case.case.workload.operator.dtype for case in self.cases()}
        for row in read_measured(self.file.path.parent / overlay.file):
            label = by_name.get(row.gpu.lower())
            if label and isinstance(row.operator, Gemm) and row.dtype in dtypes:
                yield MeasuredPoint(label, row.gpu, row)


@dataclass(frozen=True, slots=True)
class TrainingExperiment:
    """A loaded training experiment."""

    name: str
    file: YamlFile
    overrides: tuple[str, ...]
    content: TrainingFile

    @property
    def plot_file(self) -> str:
        """Name of the plot's file."""
        return f"{self.name}.png"

    def output_files(self) -> tuple[str, ...]:
        """Names of the files besides the manifest, plots last."""
        return ("results.csv", "gradients.csv", self.plot_file)
