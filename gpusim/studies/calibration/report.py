"""A calibration from files to report: boards and rows that take part, the fit, and its errors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.evidence.boards import board_of
from gpusim.evidence.measured import MeasuredRow, read_tables
from gpusim.execution.journal import Journal
from gpusim.execution.service import Service
from gpusim.prediction.selection import usable_kernels
from gpusim.progress import Progress, no_progress
from gpusim.specs import Spec, UnknownGpuError, spec_file
from gpusim.specs.load import Names, names_of
from gpusim.studies.calibration.error import CalibrationError
from gpusim.studies.calibration.fit import Calibration, Calibrator
from gpusim.studies.calibration.heuristic_bias import BiasValues
from gpusim.studies.calibration.observations import Observation, observations, sample_rows
from gpusim.studies.calibration.parameters import Board, Parameter, may_move, parameters
from gpusim.studies.calibration.search import FloatArray
from gpusim.studies.calibration.timer import Boards, Timer

MIN_BONUS = 0.01
"""Smaller bonuses of kernels are left out of a spec: they change choices only between kernels whose times differ by
less than 1 %."""


@dataclass(frozen=True, slots=True)
class CalibrationSetting:
    """The arguments of a calibration."""

    arch: Path
    """The spec, of a base or a board, whose values are fitted."""
    files: tuple[Path, ...]
    rows_per_table: int
    seed: int
    names: Names
    """Library and host of what is fitted."""


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibration and its rows."""

    setting: CalibrationSetting
    calibration: Calibration
    observed: tuple[Observation, ...]
    sampled_rows: int
    """Number of rows that physical values were fitted to."""
    left_out: Mapping[str, int]
    """Rows that took no part, by reason."""
    tables_sha256: Mapping[str, str]
    resumed: int

    @property
    def refusals(self) -> list[str]:
        """Reasons against the fit: values that it drives to a limit of their physical range."""
        return [
            f"{one.parameter.key_path} is driven to its limit {one.value:g}: the spec or the data miss something"
            for one in self.calibration.fitted
            if one.driven_to_limit
        ]

    @property
    def worse_held_out(self) -> bool:
        """Whether held-out rows are predicted worse than with the original spec."""
        before, held_out = (_figures("", one)["_mape"] for one in (self.calibration.before, self.calibration.held_out))
        return held_out > before

    @property
    def warnings(self) -> list[str]:
        """Findings to check: values at a limit that they were near, and larger errors of held-out rows."""
        at_limit = [
            f"{one.parameter.key_path} ended at its limit {one.value:g}, near the {one.parameter.value:g} that it had"
            for one in self.calibration.fitted
            if one.at_limit and not one.driven_to_limit
        ]
        worse = "rows held out are predicted worse than before the fit; measure more rows, or keep the spec as it was"
        return [*at_limit, worse] if self.worse_held_out else at_limit

    @property
    def data_sha256(self) -> str:
        """One hash of all the tables."""
        return hashlib.sha256("".join(self.tables_sha256.values()).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The report as a JSON object."""
        outcome = self.calibration
        return {
            "arch": self.setting.arch.stem,
            "rows": len(self.observed),
            "sampled_rows": self.sampled_rows,
            "left_out": dict(self.left_out),
            "tables": dict(self.tables_sha256),
            "parameters": [
                {
                    "key_path": one.parameter.key_path,
                    "before": one.parameter.value,
                    "kind": one.parameter.kind,
                    "after": one.value,
                    "low": one.interval[0],
                    "high": one.interval[1],
                    "identified": one.identified,
                    "at_limit": one.at_limit,
                }
                for one in outcome.fitted
            ],
            **_bias(outcome.bias[None]),
            "older": {
                f"cuda_{library}": _bias(found) for library, found in outcome.bias.items() if library is not None
            },
            "errors": self._errors(),
            "refusals": self.refusals,
            "warnings": self.warnings,
        }

    def _errors(self) -> list[dict[str, Any]]:
        """Errors of each table before and after, and on rows held out of the fit."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, item in enumerate(self.observed):
            row = item.row
            groups.setdefault((Path(row.file).stem, row.gpu, row.dtype.value, row.op), []).append(index)
        groups[("all", "", "", "")] = list(range(len(self.observed)))
        outcome = self.calibration
        return [
            {
                **dict(zip(("table", "gpu", "dtype", "op"), key, strict=True)),
                "rows": len(places),
                **_figures("before", outcome.before[places]),
                **_figures("after", outcome.after[places]),
                **_figures("held_out", outcome.held_out[places]),
            }
            for key, places in groups.items()
        ]


def _bias(found: BiasValues) -> dict[str, dict[str, float]]:
    return {"common": dict(found.common), "kernels": dict(found.by_label)}


def _figures(when: str, log_errors: FloatArray) -> dict[str, float]:
    errors = 100 * np.abs(np.expm1(log_errors))
    return {
        f"{when}_mape": float(errors.mean()),
        f"{when}_median_ape": float(np.median(errors)),
        f"{when}_bias": 100 * math.expm1(float(np.median(log_errors))),
    }


def calibrate(
    arch: str,
    files: Sequence[Path],
    out: Path,
    *,
    overheads: Mapping[str, float] | None = None,
    rows_per_table: int = 100,
    seed: int = 0,
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
    log: Callable[[str], None] = lambda _text: None,
) -> CalibrationReport:
    """Fit the uncertain values of a spec to measured runs.

    Args:
        arch: a board, or a base that boards extend: then all of them take part.
        files: measured tables; rows of other GPUs are counted and left out.
        out: file of the fitted spec; if it exists, its values are ignored.
        overheads: host time in the readings, by timing method [us]; what is given is not fitted.
        rows_per_table: most rows of a table, GPU, data type and operator that physical values are fitted to; sampled at
            random.

    Raises:
        SpecError, MeasuredError: a file is wrong.
        CalibrationError: no row can be used, or two tables have the same file name.
    """
    start = spec_file(arch, arch_path)
    rows = read_tables(files)
    tables = _hashes(files)
    specs = _specs(start, rows, out, arch_path)
    if not specs:
        gpus = ", ".join(sorted({row.gpu for row in rows}))
        raise CalibrationError(f"{arch}: none of the rows ran on it (they name {gpus}); give other tables")
    for file, values in sorted(_hidden(start, specs.values()).items()):
        log(f"{values} values that could move stand in {file.name} and stay; fit them with --arch {file.stem}")
    names = names_of(start, arch_path)
    boards = {name: _board(names.files, spec).with_overheads(overheads or {}) for name, spec in specs.items()}
    found, left_out = observations(rows, boards)
    if not found:
        raise CalibrationError(f"{arch}: none of its rows can be predicted: {'; '.join(left_out)}")
    journal = Journal(journal_of(out))
    if journal.damaged:
        log(f"{journal.damaged} damaged records of an interrupted calibration ignored and timed again")
    places = sample_rows(found, rows_per_table, seed)
    with service.executor(Boards(boards), len(found)) as executor:
        timer = Timer(boards, executor, journal, progress)
        outcome = Calibrator(boards, found, places, _parameters(boards, found), timer, log).calibrate()
    setting = CalibrationSetting(start, tuple(files), rows_per_table, seed, names)
    return CalibrationReport(setting, outcome, tuple(found), len(places), left_out, tables, journal.resumed)


def _hashes(files: Sequence[Path]) -> dict[str, str]:
    """The hash of each table by its file name."""
    tables = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    if len(tables) < len(files):
        raise CalibrationError("two tables have the same file name, by which the spec would name them; rename one")
    return tables


def _parameters(boards: Mapping[str, Board], found: Sequence[Observation]) -> tuple[Parameter, ...]:
    """The values that may move, given the instructions and timing methods of the rows."""
    instructions = {
        kernel.family.instruction
        for item in found
        for kernel in usable_kernels(boards[item.row.gpu].system, item.gemm, item.options.kernel, item.options.unit)
    }
    return parameters(boards.values(), instructions, {item.row.method for item in found})


def journal_of(out: Path) -> Path:
    """The journal with the timings of an unfinished calibration."""
    return out.with_name(out.name + ".journal")


def _specs(start: Path, rows: Sequence[MeasuredRow], out: Path, arch_path: Sequence[Path]) -> dict[str, Spec]:
    """The boards among the rows that have the spec in their chain, as they are without the output's values."""
    specs = {}
    for name in sorted({row.gpu for row in rows}):
        try:
            spec = board_of(name, arch_path, without=out)
        except UnknownGpuError:
            continue  # counted as of another GPU
        if start.resolve() in _chain(spec):
            specs[name] = spec
    return specs


def _chain(spec: Spec) -> list[Path]:
    """The files of a board, from its own to the base of all."""
    return [path.resolve() for path in spec.files]


def _board(fitted: Collection[Path], spec: Spec) -> Board:
    """A board with the values that it has from the files that are fitted."""
    kinds = {
        key: origin.kind
        for key, origin in spec.provenance.items()
        if origin.file is not None and origin.file.resolve() in fitted
    }
    return Board(spec.system, kinds, spec.sha256)


def _hidden(start: Path, specs: Iterable[Spec]) -> dict[Path, int]:
    """Specs between the boards and the one that is fitted, and how many of the values that may move they override."""
    hidden: dict[Path, int] = {}
    for spec in specs:
        chain = _chain(spec)
        for file in chain[1 : chain.index(start.resolve())]:
            of_file = [key for key, origin in spec.provenance.items() if origin.file and origin.file.resolve() == file]
            hidden[file] = sum(map(may_move, of_file))
    return {file: values for file, values in hidden.items() if values}
