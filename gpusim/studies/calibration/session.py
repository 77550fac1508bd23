"""A calibration from measured tables to the spec that it writes, or refuses to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpusim.errors import InputError
from gpusim.evidence.boards import board_of
from gpusim.evidence.fields import rows_of
from gpusim.evidence.measured import read_measured
from gpusim.evidence.published_benchmarks import read_published
from gpusim.evidence.sources import MeasuredSystem, measured_system, stated_overheads
from gpusim.execution.journal import Journal
from gpusim.execution.service import Service
from gpusim.execution.store import remembering
from gpusim.prediction.selection import usable_kernels
from gpusim.progress import Progress, no_progress
from gpusim.record import record_key
from gpusim.specs import spec_file
from gpusim.specs.folders import search_folders
from gpusim.specs.inheritance import chain
from gpusim.specs.load import names_of
from gpusim.studies.calibration.boards import fitted_board, specs_of, values_between
from gpusim.studies.calibration.error import CalibrationError
from gpusim.studies.calibration.fit import Calibrator
from gpusim.studies.calibration.microbenchmarks import Curves, fixed_by_microbenchmarks
from gpusim.studies.calibration.observations import Observation, observations, sample_rows, timing_of_sources
from gpusim.studies.calibration.parameters import FittedBoard, Parameter, SourceTiming, parameters
from gpusim.studies.calibration.report import CalibrationReport, CalibrationSetting
from gpusim.studies.calibration.row_candidates import MOST_TIMED, records
from gpusim.studies.calibration.search import Log
from gpusim.studies.calibration.spec_writer import write_spec
from gpusim.studies.calibration.timer import FittedBoards, Timer
from gpusim.studies.calibration.unfitted import predict_unfitted
from gpusim.studies.validation.assumptions import assumed, doubts
from gpusim.studies.validation.prediction import systems_of

WORTH_COMPILING = 1000
"""Derivatives by rows and values, and candidates, from which on the simulator is compiled: half a minute once on a
machine, and a second for each process, to simulate launches in a tenth of the time."""


def check_spec_path(arch: str, out: Path, arch_path: Sequence[Path] = ()) -> None:
    """Check that a fitted spec of a GPU or an architecture can be written.

    Raises:
        InputError: It is not a YAML file in an existing folder, or bears the name of the spec that it extends.
        SpecError: No such GPU or architecture.
    """
    if out.suffix not in (".yaml", ".yml") or not out.parent.is_dir() or out.is_dir():
        raise InputError(f"-o {out}: expected a .yaml file in a folder that is there")
    if out.stem == spec_file(arch, arch_path).stem:
        raise InputError(f"-o {out}: a spec cannot extend one of its own file name; choose another")


def calibrate(
    arch: str,
    files: Sequence[Path],
    out: Path,
    *,
    recorded: Sequence[Path] = (),
    microbenchmarks: Path | None = None,
    overheads: Mapping[str, float] | None = None,
    rows_per_table: int = 100,
    seed: int = 0,
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
    log: Log = lambda _text: None,
) -> CalibrationReport:
    """Fit the uncertain values of a spec to measured runs.

    Args:
        arch: a board, or a base that boards extend: then all of them take part.
        files: measured tables; rows of other GPUs are counted and left out.
        out: file of the fitted spec; if it exists, its values are ignored.
        recorded: tables of which the recorded kernels count and the times do not.
        microbenchmarks: table of published readings, whose curves fix values before the runs do.
        overheads: host time in the readings, by timing method [us]; what is given is not fitted.
        rows_per_table: most rows of a table, GPU, data type and operator that physical values are fitted to; sampled at
            random.

    Raises:
        SpecError, MeasuredError: a file is wrong.
        CalibrationError: no row can be used, or two tables have the same file name.
    """
    start = spec_file(arch, arch_path)
    rows, of_kernels = rows_of(files, read_measured), rows_of(recorded, read_measured)
    tables = hashes_of([*files, *recorded, *([microbenchmarks] if microbenchmarks else [])])
    specs = specs_of(start, (row.gpu for row in (*rows, *of_kernels)), out, arch_path)
    if not specs:
        gpus = ", ".join(sorted({row.gpu for row in rows}))
        raise CalibrationError(f"{arch}: none of the rows ran on it (they name {gpus}); give other tables")
    for file, values in sorted(values_between(start, specs.values()).items()):
        log(f"{values} values that could move stand in {file.name} and stay; fit them with --arch {file.stem}")
    names = names_of(start, arch_path)
    of_sources = stated_overheads((file.path for file in chain(start, search_folders(arch_path))), arch_path)
    fitted = names.files | {file.path.resolve() for file in (of_sources.files if of_sources else ())}
    sources = timing_of_sources(row for row in rows if row.gpu in specs)
    boards = {
        name: fitted_board(spec, fitted, arch_path).with_sources(sources).with_overheads(overheads or {})
        for name, spec in specs.items()
    }
    found, left_out = observations(rows, boards)
    if not found:
        raise CalibrationError(f"{arch}: none of its rows can be predicted: {'; '.join(left_out)}")
    kernels, without_kernel = records(of_kernels, boards)
    for reason, count in without_kernel.items():
        left_out[f"recorded: {reason}"] = count
    used = [item.row for item in found]
    for text in (*assumed(used), *doubts(used, systems_of(used, specs, overheads or {}, arch_path), service)):
        log(text)
    journal = Journal(journal_of(out))
    if journal.damaged:
        log(f"{journal.damaged} damaged records of an interrupted calibration ignored and timed again")
    places, moving = sample_rows(found, rows_per_table, seed), _parameters(boards, found, sources)
    points = read_published(microbenchmarks) if microbenchmarks else ()
    of_points = specs_of(start, (point.gpu for point in points), out, arch_path)
    simulated = {name: fitted_board(spec, fitted, arch_path) for name, spec in of_points.items()}
    compiled = len(places) * len(moving) + len(found) * MOST_TIMED >= WORTH_COMPILING
    context = FittedBoards({**simulated, **boards}, cache=service.cache, compiled=compiled)
    with remembering(disk=service.cache), service.executor(context, len(found)) as executor:
        moving = fixed_by_microbenchmarks(moving, Curves.of(points, simulated), executor, log)
        timer = Timer(boards, executor, journal, progress)
        replaced = _replaced(out, specs, arch_path)
        outcome = Calibrator(boards, found, places, moving, timer, log, kernels).calibrate(replaced)
    unfitted = predict_unfitted(rows, boards, outcome, service, progress)
    base = of_sources.files[0].path.stem if of_sources else None
    setting = CalibrationSetting(start, tuple(files), rows_per_table, seed, names, base)
    names_of_boards = {name: board.system.gpu.name for name, board in boards.items()}
    return CalibrationReport(
        setting, outcome, tuple(found), unfitted, len(places), left_out, tables, journal.resumed, names_of_boards
    )


def write_fitted(report: CalibrationReport, out: Path, date: str | None = None) -> bool:
    """Write the fitted spec, unless the fit is refused; the journal of the timings goes either way.

    Args:
        date: Of the sources in the spec; today if None.

    Returns:
        Whether the spec was written.

    Raises:
        OSError: It cannot be written; the journal stays.
    """
    if not report.refusals:
        write_spec(report, out, date or f"{datetime.now(UTC):%Y-%m-%d}")
    journal_of(out).unlink(missing_ok=True)
    return not report.refusals


def journal_of(out: Path) -> Path:
    """The journal with the timings of an unfinished calibration."""
    return out.with_name(out.name + ".journal")


def _replaced(out: Path, boards: Iterable[str], arch_path: Sequence[Path]) -> dict[str, MeasuredSystem]:
    """The boards with the fitted values that are to be replaced, by name; none of a board that does not have them."""
    specs = {name: board_of(name, arch_path) for name in boards}
    return {
        name: measured_system(spec, arch_path)
        for name, spec in specs.items()
        if out.resolve() in (file.resolve() for file in spec.files)
    }


def hashes_of(files: Sequence[Path]) -> dict[str, str]:
    """The hash of each table by its file name."""
    tables = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    if len(tables) < len(files):
        raise CalibrationError("two tables have the same file name, by which the spec would name them; rename one")
    return tables


def _parameters(
    boards: Mapping[str, FittedBoard], found: Sequence[Observation], sources: Mapping[str, SourceTiming]
) -> tuple[Parameter, ...]:
    """The values that may move, given the instructions and timing methods of the rows."""
    instructions = {
        kernel.family.instruction
        for item in found
        for kernel in usable_kernels(boards[item.row.gpu].system, item.gemm, item.options.kernel, item.options.unit)
    }
    methods = {item.row.method for item in found if record_key(item.row.source) not in sources}
    methods |= {"stream"} & {one.method for one in sources.values()}  # the gap is of the driver, not of the source
    timed = dict.fromkeys(item.row.gpu for item in found)
    return parameters([boards[name] for name in timed], instructions, methods, sources)
