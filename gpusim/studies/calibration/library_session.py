"""A calibration of what libraries share: from measured tables of several architectures to the file of a library."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.errors import InputError
from gpusim.evidence.boards import board_of
from gpusim.evidence.fields import rows_of
from gpusim.evidence.measured import MeasuredRow, read_measured
from gpusim.execution.journal import Journal
from gpusim.execution.service import Service
from gpusim.execution.store import remembering
from gpusim.files.outputs import replacing
from gpusim.progress import Progress, no_progress
from gpusim.specs import UnknownGpuError
from gpusim.specs.load import LIBRARIES, names_of
from gpusim.specs.writing import file_text
from gpusim.studies.calibration.boards import fitted_board
from gpusim.studies.calibration.error import CalibrationError
from gpusim.studies.calibration.heuristic_bias import BiasValues
from gpusim.studies.calibration.library_fit import TableScore, scores, shared_weights
from gpusim.studies.calibration.observations import observations
from gpusim.studies.calibration.parameters import FittedBoard
from gpusim.studies.calibration.row_candidates import MOST_TIMED, records
from gpusim.studies.calibration.row_kernels import RowKernels
from gpusim.studies.calibration.search import Log
from gpusim.studies.calibration.session import WORTH_COMPILING, hashes_of, journal_of
from gpusim.studies.calibration.spec_writer import moved_bias, nested
from gpusim.studies.calibration.timer import FittedBoards, Timer


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """Weights that libraries share, and how they foretell shapes left out of the fit."""

    library: str
    """The base that the libraries extend."""
    start: BiasValues
    bias: BiasValues
    scores: Sequence[TableScore]
    left_out: Mapping[str, int]
    """Rows that took no part, by reason."""
    tables_sha256: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "library": self.library,
            "tables": dict(self.tables_sha256),
            "left_out": dict(self.left_out),
            "bias": dict(self.bias),
            "scores": [
                {
                    "table": one.table,
                    "gpu": one.gpu,
                    "dtype": one.dtype,
                    "timed": len(one.errors),
                    "mape": _mean(100 * np.abs(np.expm1(one.errors))),
                    "recorded": len(one.same),
                    "log_loss": _mean(one.log_losses),
                    "same_kernel_pct": _mean(100.0 * one.same),
                }
                for one in self.scores
            ],
        }


def calibrate_library(
    library: str,
    files: Sequence[Path],
    out: Path,
    *,
    recorded: Sequence[Path] = (),
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
    log: Log = lambda _text: None,
) -> LibraryReport:
    """Fit the weights that the libraries of boards share, at the physical values that the boards have.

    Args:
        library: a base that they extend.
        files: measured tables; rows of boards whose library does not extend it are counted and left out.
        out: file of the weights.
        recorded: tables of which the recorded kernels count and the times do not.

    Raises:
        SpecError, MeasuredError: a file is wrong.
        InputError: the file of the weights cannot be written, or is the base.
        CalibrationError: no row can be used, or two tables have the same file name.
    """
    if out.suffix not in (".yaml", ".yml") or not out.parent.is_dir() or out.is_dir() or out.stem == library:
        raise InputError(f"-o {out}: expected a .yaml file in a folder that is there, of another name than the base")
    rows, of_kernels = rows_of(files, read_measured), rows_of(recorded, read_measured)
    boards = _boards((*rows, *of_kernels), library, arch_path)
    found, left_out = observations(rows, boards)
    kernels, without_kernel = records(of_kernels, boards)
    left_out |= {f"recorded: {reason}": count for reason, count in without_kernel.items()}
    if not boards:
        raise CalibrationError(f"library {library}: no GPU of the rows has it, nor one that extends it")
    if not found and not kernels:
        raise CalibrationError(f"library {library}: none of its rows can be predicted: {'; '.join(left_out)}")
    context = FittedBoards(boards, cache=service.cache, compiled=len(found) * MOST_TIMED >= WORTH_COMPILING)
    with remembering(disk=service.cache), service.executor(context, len(found) + len(kernels)) as executor:
        timer = Timer(boards, executor, Journal(journal_of(out)), progress)
        of_rows = RowKernels(boards, found, (), timer, kernels)
        log(f"{len(found)} rows with a time, {len(kernels)} records of kernels")
        options = of_rows.options(np.zeros(0), range(len(of_rows.items)))
    ranked = [options[place].ranked for place in range(len(of_rows.items))]
    libraries = [boards[item.row.gpu].system.library.name for item in of_rows.items]
    start = {**dict.fromkeys(of_rows.start, 0.0), "gemv_kernel_bonus": of_rows.start["gemv_kernel_bonus"]}
    bias = shared_weights(ranked, libraries, start)
    found_scores = scores(of_rows.items, ranked, libraries, start)
    return LibraryReport(library, start, bias, found_scores, left_out, hashes_of([*files, *recorded]))


def write_library(report: LibraryReport, out: Path, date: str | None = None) -> None:
    """Write the file of the weights, whole or not at all; the journal of the timings goes.

    Raises:
        OSError: It cannot be written; the journal stays.
    """
    digest = hashlib.sha256("".join(report.tables_sha256.values()).encode()).hexdigest()
    options = f"gpusim calibrate --library {report.library}"
    comments = [
        f"What the libraries that extend {report.library} have in common, fitted to measured runs and recorded kernels",
        f"by {options}; do not edit, run it again.",
        *(f"{table}: sha256 {sha256}" for table, sha256 in report.tables_sha256.items()),
    ]
    sources = {"fit": f"{options}, {date or f'{datetime.now(UTC):%Y-%m-%d}'}, data sha256 {digest[:12]}"}
    keys, values = {"extends": report.library}, nested(moved_bias(report.bias, report.start))
    text = file_text("library", out.parent, comments, keys, sources, values)
    with replacing(out) as whole:
        whole.write_text(text, encoding="utf-8")
    journal_of(out).unlink(missing_ok=True)


def _boards(rows: Sequence[MeasuredRow], library: str, arch_path: Sequence[Path]) -> dict[str, FittedBoard]:
    """The boards of some rows whose library extends a base."""
    found = {}
    for name in sorted({row.gpu for row in rows}):
        try:
            spec = board_of(name, arch_path)
        except UnknownGpuError:
            continue  # counted as of another GPU
        files = names_of(spec.files[0], arch_path).files
        if library in (file.stem for file in files if file.parent.name == LIBRARIES):
            found[name] = fitted_board(spec, (), arch_path)
    return found


def _mean(values: Any) -> float | None:
    """Mean of values; None without any."""
    return float(np.mean(values)) if len(values) else None
