"""Loading of experiments: lookup by name or path, overrides, and all checks before anything is predicted.

Every error is one line with file, line and key. ``key.path=value`` overrides replace or add values before the check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from gpusim.errors import excerpt
from gpusim.experiment.claims import ClaimsExperiment, load_claims
from gpusim.experiment.definition import Experiment, TrainingExperiment
from gpusim.experiment.gpus import ExperimentGpu, experiment_gpus
from gpusim.experiment.model_speedups import ModelSpeedups, load_model_speedups
from gpusim.experiment.plot_pages import page_count, problem
from gpusim.experiment.schema import PARTS, ExperimentFile, TrainingFile, ValueRange, with_short_forms
from gpusim.files.checked_document import checked, find_shipped, load_document, shipped_folder
from gpusim.files.yamlfile import SpecError, YamlFile, parse_value

AnyExperiment = Experiment | TrainingExperiment | ClaimsExperiment | ModelSpeedups

MOST_OFFERED = 8
"""Labels that a message about an unknown one repeats."""
_OF_KEY_PATHS = ("overrides", "zip", "ranges")
"""Mappings whose keys are key paths of a spec, and have dots."""


def open_experiment(
    name_or_path: str, overrides: Sequence[str] = (), arch_path: Sequence[Path | str] = ()
) -> AnyExperiment:
    """Load an experiment of any kind by the name of a shipped one or from a YAML file.

    Raises:
        SpecError: no such experiment, or an invalid one.
    """
    file, data = _read(name_or_path, overrides)
    if "training" in data:
        content = checked(TrainingFile, file, data, PARTS, overrides)
        return TrainingExperiment(file.path.stem, file, tuple(overrides), content)
    if "claims" in data:
        return load_claims(file, data, overrides, arch_path)
    if "models" in data:
        return load_model_speedups(file, data, overrides, arch_path)
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
    data = with_short_forms(deepcopy(file.data))
    for override in overrides:
        _apply(data, override)
    return file, data


def _experiment(
    file: YamlFile, data: dict[str, Any], overrides: Sequence[str], arch_path: Sequence[Path | str]
) -> Experiment:
    content = checked(ExperimentFile, file, data, PARTS, overrides)
    gpus = experiment_gpus(file, content, arch_path)
    content = _with_labels(content, gpus)
    _check_labels(file, content, gpus)
    experiment = Experiment(file.path.stem, file, tuple(overrides), content, gpus)
    _check_plots(experiment)
    return experiment


def shipped_experiments() -> dict[str, Path]:
    """Experiments that can be run by name."""
    return {path.stem: path for path in sorted(shipped_folder("experiments").glob("*.yaml"))}


def _apply(data: dict[str, Any], override: str) -> None:
    """Apply one ``key.path=value``; list items are named by index, values of a spec by their own key paths."""
    key_path, equals, text = override.partition("=")
    if not equals or not key_path:
        raise SpecError(f"override '{excerpt(override)}': expected key.path=value")
    try:
        value = parse_value(text)
    except ValueError as error:
        raise SpecError(f"override '{excerpt(override)}': {error}") from None
    *parents, last = _keys(key_path)
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


def _keys(key_path: str) -> list[str]:
    """The keys of a path, that of a value of a spec in one.

    >>> _keys("gpus.0.overrides.l2.capacity_mib")
    ['gpus', '0', 'overrides', 'l2.capacity_mib']
    """
    keys = key_path.split(".")
    above = next((at for at, key in enumerate(keys, 1) if key in _OF_KEY_PATHS), len(keys))
    ending = keys[-1:] if keys[-1] in ValueRange.model_fields and "ranges" in keys else []
    below = ".".join(keys[above : len(keys) - len(ending)])
    return [*keys[:above], *([below] if below else []), *ending]


def _with_labels(content: ExperimentFile, gpus: Mapping[str, ExperimentGpu]) -> ExperimentFile:
    """Replace baselines given as the experiment spells a GPU (an alias, for example) by its label."""
    labels = {one.entry.gpu: label for label, one in gpus.items() if not one.varies and not one.entry.label}
    plots = tuple(
        plot.model_copy(update={"baseline": labels.get(plot.baseline, plot.baseline)}) for plot in content.plots
    )
    return content.model_copy(update={"plots": plots})


def _check_labels(file: YamlFile, content: ExperimentFile, gpus: Mapping[str, ExperimentGpu]) -> None:
    """Check that baselines and stand-ins name GPUs of the experiment."""
    for index, plot in enumerate(content.plots):
        if plot.kind == "speedup" and plot.baseline not in gpus:
            problem = f"'{plot.baseline}' is not one of the GPUs; use {_labels(gpus)}"
            raise file.error(f"plots.{index}.baseline", problem)
    if "speedup" in content.tables and not any(plot.kind == "speedup" for plot in content.plots):
        raise file.error("tables", "a speedup table needs a speedup plot with its baseline; add one")
    for index, overlay in enumerate(content.measured):
        for board, label in overlay.stand_in.items():
            if label not in gpus:
                problem = f"'{label}' is not one of the GPUs; use {_labels(gpus)}"
                raise file.error(f"measured.{index}.stand_in.{board}", problem)


def _labels(gpus: Mapping[str, ExperimentGpu]) -> str:
    """The labels that a message offers."""
    return " or ".join(list(gpus)[:MOST_OFFERED]) + (" ..." if len(gpus) > MOST_OFFERED else "")


def _check_plots(experiment: Experiment) -> None:
    """Check that each plot can be drawn, and that no two write the same file."""
    if not experiment.content.plots:
        return
    rows = [case.row() for case in experiment.cases()]
    taken: set[str] = set()
    for index, plot in enumerate(experiment.content.plots):
        if found := problem(plot, rows, experiment.varying):
            raise experiment.file.error(f"plots.{index}", found)
        names = plot.file_names(page_count(plot, rows))
        if twice := [name for name in names if name.lower() in taken]:
            raise experiment.file.error(f"plots.{index}", f"{twice[0]} is drawn twice; give one of them a 'file'")
        taken |= {name.lower() for name in names}
