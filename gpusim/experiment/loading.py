"""Loading of experiments: lookup by name or path, overrides, and all checks before anything is predicted.

Every error is one line with file, line and key. ``key.path=value`` overrides replace or add values before the check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from gpusim.errors import excerpt
from gpusim.experiment.definition import Experiment, TrainingExperiment
from gpusim.experiment.plot_pages import page_count, problem
from gpusim.experiment.schema import PARTS, ExperimentFile, TrainingFile
from gpusim.files.checked_document import checked, find_shipped, load_document, shipped_folder
from gpusim.files.yamlfile import SpecError, YamlFile, parse_value
from gpusim.specs import Spec, load_spec, with_overrides


def open_experiment(
    name_or_path: str, overrides: Sequence[str] = (), arch_path: Sequence[Path | str] = ()
) -> Experiment | TrainingExperiment:
    """Load an experiment of either kind by the name of a shipped one or from a YAML file.

    Raises:
        SpecError: no such experiment, or an invalid one.
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
        SpecError: no such experiment, or an invalid one.
    """
    return _experiment(*_read(name_or_path, overrides), overrides, arch_path)


def _read(name_or_path: str, overrides: Sequence[str]) -> tuple[YamlFile, dict[str, Any]]:
    """An experiment's document with the overrides applied, and its file."""
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
    """Apply one ``key.path=value``; list items are named by index."""
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
    """Specs by label; a problem with one is reported at its line of the experiment."""
    specs: dict[str, Spec] = {}
    for index, entry in enumerate(content.gpus):
        try:
            spec = load_spec(entry.gpu, arch_path, cuda=content.cuda)
            spec = with_overrides(spec, entry.overrides) if entry.overrides else spec
        except SpecError as error:
            raise file.error(f"gpus.{index}", str(error)) from None
        label = entry.label or spec.gpu.name
        if label in specs:
            raise file.error(f"gpus.{index}", f"'{label}' appears twice; give one of them a label")
        specs[label] = spec
    return specs


def _with_labels(content: ExperimentFile, specs: Mapping[str, Spec]) -> ExperimentFile:
    """Replace baselines given as the experiment spells a GPU (an alias, for example) by its label."""
    labels = {entry.gpu: label for entry, label in zip(content.gpus, specs, strict=True) if not entry.label}
    plots = tuple(
        plot.model_copy(update={"baseline": labels.get(plot.baseline, plot.baseline)}) for plot in content.plots
    )
    return content.model_copy(update={"plots": plots})


def _check_labels(file: YamlFile, content: ExperimentFile, specs: Mapping[str, Spec]) -> None:
    """Check that baselines and stand-ins name GPUs of the experiment."""
    for index, plot in enumerate(content.plots):
        if plot.kind == "speedup" and plot.baseline not in specs:
            problem = f"'{plot.baseline}' is not one of the GPUs; use {' or '.join(specs)}"
            raise file.error(f"plots.{index}.baseline", problem)
    if "speedup" in content.tables and not any(plot.kind == "speedup" for plot in content.plots):
        raise file.error("tables", "a speedup table needs a speedup plot with its baseline; add one")
    for index, overlay in enumerate(content.measured):
        for board, label in overlay.stand_in.items():
            if label not in specs:
                problem = f"'{label}' is not one of the GPUs; use {' or '.join(specs)}"
                raise file.error(f"measured.{index}.stand_in.{board}", problem)


def _check_plots(experiment: Experiment) -> None:
    """Check that each plot can be drawn, and that no two write the same file."""
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
