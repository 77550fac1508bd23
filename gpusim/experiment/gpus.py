"""The GPUs of an experiment: an entry of the file is one board, or all of its design points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.experiment.key_units import value_text
from gpusim.experiment.schema import ExperimentFile, GpuEntry
from gpusim.experiment.value_panels import GPU_NAME
from gpusim.files.yamlfile import SpecError, YamlFile
from gpusim.specs import Spec, load_spec
from gpusim.specs.design_points import DesignPoint, Factor, Range, design_points, latin_hypercube, together
from gpusim.specs.overrides import OverrideError, values_of


@dataclass(frozen=True, slots=True)
class ExperimentGpu:
    """One GPU of an experiment, as shipped or with values replaced."""

    name: str
    """Label or name of its entry; the design points of an entry share it."""
    entry: GpuEntry
    spec: Spec
    overrides: Mapping[str, Any]
    """Replaced values by key path."""
    values: Mapping[str, Any]
    """Value of each key path that varies in the experiment; empty text where the board has no such key."""
    varies: bool
    """Whether its entry has several design points."""

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of its result rows: its name and its values, where values vary in the experiment."""
        return {GPU_NAME: self.name, **self.values} if self.values else {}


def experiment_gpus(
    file: YamlFile, content: ExperimentFile, arch_path: Sequence[Path | str]
) -> dict[str, ExperimentGpu]:
    """The GPUs by label; a problem with one is reported at its line of the experiment."""
    points: dict[str, tuple[str, GpuEntry, DesignPoint]] = {}
    for index, entry in enumerate(content.gpus):
        where = f"gpus.{index}"
        try:
            spec = load_spec(entry.gpu, arch_path, cuda=content.cuda)
            found = design_points(spec, entry.overrides, _factors(spec, entry), retuned=entry.retuned)
        except OverrideError as error:
            raise _at_line(file, where, error) from None
        except SpecError as error:
            raise file.error(where, str(error)) from None
        for point in found:
            name = entry.label or spec.gpu.name
            label = ", ".join([name, *(value_text(key_path, value) for key_path, value in point.values.items())])
            if label in points:
                remedy = "vary its values more" if points[label][1] is entry else "give one of them a label"
                raise file.error(where, f"'{label}' appears twice; {remedy}")
            points[label] = (name, entry, point)
    varying = list(dict.fromkeys(key_path for _, _, point in points.values() for key_path in point.values))
    return {label: _gpu(name, entry, point, varying) for label, (name, entry, point) in points.items()}


def _gpu(name: str, entry: GpuEntry, point: DesignPoint, varying: Sequence[str]) -> ExperimentGpu:
    own = values_of(point.spec) if varying else {}
    values = {key_path: own.get(key_path, "") for key_path in varying}
    return ExperimentGpu(name, entry, point.spec, point.overrides, values, bool(point.values))


def _factors(spec: Spec, entry: GpuEntry) -> list[Factor]:
    """Factors that vary besides the lists among the overrides."""
    factors: list[Factor] = [together(entry.zip)] if entry.zip else []
    if cube := entry.latin_hypercube:
        ranges = {key_path: Range(one.min, one.max, one.scale) for key_path, one in cube.ranges.items()}
        factors.append(latin_hypercube(spec, ranges, cube.samples, cube.seed))
    return factors


def _at_line(file: YamlFile, where: str, error: OverrideError) -> SpecError:
    """A problem with a value at its line of the experiment, where it stands there."""
    key_path, problem, _ = error.findings[0]
    for part in ("latin_hypercube.ranges", "zip", "overrides"):
        place = f"{where}.{part}.{key_path}"
        if place in file.lines:
            return file.error(place, problem)
    return file.error(where, f"override: {key_path}: {problem}")
