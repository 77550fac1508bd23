"""Page of experiments: every plot of each as charts, and the table of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusim.experiment.claims import ClaimsExperiment
from gpusim.experiment.comparison import VARIANTS, Row
from gpusim.experiment.definition import Experiment, TrainingExperiment
from gpusim.experiment.key_units import name_and_unit, short_text
from gpusim.experiment.loading import AnyExperiment
from gpusim.experiment.model_speedups import ModelSpeedups
from gpusim.experiment.plot_pages import page_count
from gpusim.experiment.plot_schema import PlotKind
from gpusim.experiment.value_panels import GPU_NAME
from gpusim.pages.page import Block, Cell, Column, Page, Prose, Section, Table, shown
from gpusim.pages.plots import model_speedup_charts, plot_charts, training_charts
from gpusim.pages.printed import printed_table
from gpusim.pages.provenance import HASH_DIGITS, cautions, provenance
from gpusim.report.formatting import shape_text
from gpusim.specs import Provenance, Spec
from gpusim.studies import experiments
from gpusim.studies.manifest import manifest_inputs
from gpusim.studies.run import Finished

MOST_LISTED = 12
"""Values of a key that are listed among the overrides."""
NAMES: Mapping[PlotKind, str] = {
    "time": "Times",
    "tflops_roofline": "Roofline",
    "speedup": "Speedups",
    "sparse_speedup": "Speedups of 2:4 sparsity",
    "stalls": "Stalls",
    "heat_map": "Heat map",
    "curves": "Curves",
}
"""Headings of kinds of plots."""


@dataclass(frozen=True, slots=True)
class RanExperiment:
    """An experiment with its results, and the folder of its files."""

    experiment: AnyExperiment
    finished: Finished
    folder: Path

    @property
    def title(self) -> str:
        return self.experiment.content.title


def run_page(ran: Sequence[RanExperiment], command: Sequence[str]) -> Page:
    """The page.

    Args:
        command: the arguments that made it.
    """
    several = len(ran) > 1
    sections = [section for one in ran for section in _sections(one, f"{one.title}: " if several else "")]
    inputs: list[tuple[str, str]] = []
    records: dict[str, Mapping[str, Provenance]] = {}
    specs: dict[str, Spec] = {}
    for one in ran:
        inputs += _inputs(one.experiment, command)
        if isinstance(one.experiment, Experiment):
            records |= _values(one.experiment)
        elif not isinstance(one.experiment, TrainingExperiment):
            specs |= {spec.gpu.name: spec for spec in one.experiment.specs.values()}
    title = ran[0].title if not several else f"{len(ran)} experiments"
    questions = [one.experiment.content.question for one in ran if one.experiment.content.question]
    lead = " ".join(questions) or "Every plot and every row of the experiment."
    assumptions = ("what an experiment does not state of a GPU is as its spec has it",)
    sections += provenance(list(specs.values()), command, assumptions, inputs=inputs, records=records)
    boards = [spec for one in ran for spec in experiments.specs_of(one.experiment)]
    return Page(title, lead + cautions(boards), sections)


def _sections(one: RanExperiment, prefix: str) -> list[Section]:
    """Charts and tables of an experiment; their headings begin with a prefix."""
    experiment, finished = one.experiment, one.finished
    match experiment:
        case Experiment():
            return _of_gemms(experiment, finished, prefix)
        case TrainingExperiment():
            gradients = experiments.gradients_in(one.folder)
            drawn = training_charts(experiment.content, finished.rows, gradients)
        case ModelSpeedups():
            drawn = model_speedup_charts(one.title, finished.rows)
        case ClaimsExperiment():
            drawn = []
    printed = [printed_table(table) for table in experiments.tables(experiment, finished)]
    rows = Table([Column(name, name.replace("_", " ")) for name in finished.rows[0]], finished.rows, "Every row")
    charts = [Section(f"{prefix}Plots", drawn)] if drawn else []
    return [*charts, Section(f"{prefix}Results", printed), Section(f"{prefix}All rows", [rows], folded=True)]


def _of_gemms(experiment: Experiment, finished: Finished, prefix: str) -> list[Section]:
    content, rows = experiment.content, finished.rows
    sections = []
    for at, plot in enumerate(content.plots):
        if page_count(plot, rows):
            title = finished.cases.of_failed(plot.title or content.title)
            name = NAMES[plot.kind]
            alike = sum(other.kind == plot.kind for other in content.plots[: at + 1])
            heading = f"{prefix}{name}" if alike == 1 else f"{prefix}{name} {alike}"
            sections.append(Section(heading, plot_charts(plot, title, rows, finished.points)))
    others = [kind for kind in content.tables if kind != "results"]
    without = replace(experiment, content=content.model_copy(update={"tables": tuple(others)}))
    printed = [printed_table(table) for table in experiments.tables(without, finished)]
    results: list[Block] = [_table(experiment, finished), *printed]
    if finished.cases.failed:
        results.insert(0, Prose(f"{finished.cases.failed} of {finished.cases.all} cases have no prediction."))
    return [*sections, Section(f"{prefix}Results", results)]


def _table(experiment: Experiment, finished: Finished) -> Table:
    """Every prediction."""
    rows = finished.rows
    varying = [Column(path, *name_and_unit(path), digits=6) for path in experiment.varying]
    variants = [Column(name, name) for name in VARIANTS if len({row[name] for row in rows}) > 1]
    columns = (
        Column("gpu", "GPU"),
        *varying,
        Column("dtype", "type"),
        Column("what", "what"),
        Column("shape", "m × n × k"),
        *variants,
        Column("time_us", "time", "µs"),
        Column("interval", "interval", "µs", meaning="Eight in ten measured runs take this long"),
        Column("cycles", "cycles"),
        Column("tflops", "rate", "TFLOP/s"),
        Column("pct_of_peak", "of the peak", "%", 3),
        Column("bottleneck", "bottleneck", meaning="What would help most if it were twice as good"),
        Column("kernel", "kernel"),
    )
    predicted = finished.cases.all - finished.cases.failed
    of = f"the first {len(rows):,} of {predicted:,} predictions" if len(rows) < predicted else "Every prediction"
    cells = [_cells(row, experiment.varying, variants) for row in rows]
    return Table([column for column in columns if any(row[column.key] != "" for row in cells)], cells, of)


def _cells(row: Row, varying: Sequence[str], variants: Sequence[Column]) -> dict[str, Cell]:
    low, high = row["time_us_p10"], row["time_us_p90"]
    values = {path: row[path] if isinstance(row[path], int | float) else short_text(row[path]) for path in varying}
    same = ("dtype", "time_us", "cycles", "tflops", "pct_of_peak", "bottleneck", "kernel")
    return {
        "gpu": row.get(GPU_NAME, row["gpu"]),
        **values,
        "what": row["label"] or row["group"],
        "shape": shape_text(row),
        **{column.key: row[column.key] for column in variants},
        "interval": f"{shown(low)} to {shown(high)}" if low and high else "",
        **{name: row[name] for name in same},
    }


# Where it comes from ----------------------------------------------------------------------------


def _inputs(experiment: AnyExperiment, command: Sequence[str]) -> list[tuple[str, str]]:
    """Hashes of the experiment and of the files that it reads, and what replaces their values."""
    found = manifest_inputs(experiment, command)
    stated, name = found["experiment"], experiment.name
    inputs = [(f"hash of experiment {name}", stated["sha256"][:HASH_DIGITS])]
    inputs += [(f"overrides of experiment {name}", ", ".join(stated["overrides"]))] if stated["overrides"] else []
    inputs += [(f"hash of {file}", sha256[:HASH_DIGITS]) for file, sha256 in found.get("measured", {}).items()]
    for files in found.get("models", {}).values():
        inputs += [(f"hash of model {file}", sha256[:HASH_DIGITS]) for file, sha256 in files.items()]
    if isinstance(experiment, Experiment):
        inputs += _gpu_inputs(experiment)
    return inputs


def _gpu_inputs(experiment: Experiment) -> list[tuple[str, str]]:
    """Hash and overrides of each GPU; of design points the values that vary."""
    inputs: list[tuple[str, str]] = []
    for name, spec in _gpus(experiment).items():
        points = [one for one in experiment.gpus.values() if one.spec is spec or (one.varies and one.name == name)]
        inputs.append((f"hash of {name}", spec.sha256[:HASH_DIGITS]))
        values: dict[str, list[object]] = {}
        for point in points:
            for key_path, value in point.overrides.items():
                values.setdefault(key_path, []).append(value)
        inputs += [(f"overrides of {name}", f"{path}={_listed(found)}") for path, found in values.items()]
    return inputs


def _listed(values: Sequence[object]) -> str:
    """Different values; of many how many there are, from the first to the last."""
    texts = list(dict.fromkeys(map(short_text, values)))
    if len(texts) <= MOST_LISTED:
        return ", ".join(texts)
    return f"{texts[0]}, {texts[1]}, … {texts[-1]} ({len(texts)} values)"


def _gpus(experiment: Experiment) -> dict[str, Spec]:
    """A spec for each GPU, by label; the first of the design points of an entry."""
    found: dict[str, Spec] = {}
    for label, one in experiment.gpus.items():
        _ = found.setdefault(one.name if one.varies else label, one.spec)
    return found


def _values(experiment: Experiment) -> dict[str, Mapping[str, Provenance]]:
    """Values by GPU, without those that differ between its design points."""
    varying = {one.name: set(one.values) for one in experiment.gpus.values() if one.varies}
    return {
        name: {key: one for key, one in spec.provenance.items() if key not in varying.get(name, ())}
        for name, spec in _gpus(experiment).items()
    }
