"""The command line: reads arguments, calls one function, prints what it says.

Exit status 0 is fine, 1 a result outside what was asked, 2 wrong input. Wrong input is one line on
standard error and no traceback. Data goes to standard output, talk to standard error. Heavy imports
stand inside the commands that need them, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

import gpusim

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpusim.experiment import Experiment, TrainingExperiment
    from gpusim.measure.runner import Outcome
    from gpusim.measure.suite import Suite
    from gpusim.run import Finished
    from gpusim.specfile import Spec
    from gpusim.tables import TextTable
    from gpusim.validation.summary import Report
    from gpusim.workload import Dtype, Gemm

PROGRESS_AFTER_S = 2.0
"""A bar appears only when there is something to wait for."""
BROKEN_PIPE_STATUS = 141
"""What a shell reports for a program that ended because its reader left (128 + SIGPIPE)."""
TRACE_EVENTS = 100_000
"""At some 170 bytes each, the file stays below 20 MB."""
SAMPLE = 1024
"""Rows and columns of C that ``numerics`` computes: a million elements, seconds of one core at k = 10240."""

app = typer.Typer(
    name="gpusim",
    help="Predicts how long a tiled matrix multiplication takes on a GPU that you do not have, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
archs_app = typer.Typer(help="The GPUs that can be asked for.", no_args_is_help=True)
app.add_typer(archs_app, name="archs")

Format = Literal["table", "json"]
FormatOption = Annotated[Format, typer.Option("--format", help="Output for a person or for a program.")]
ArchPathOption = Annotated[
    list[Path] | None,
    typer.Option("--arch-path", help="Folder of your own specs, searched first; may be repeated.", metavar="DIR"),
]
JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; all cores if not given.")]
DetailOption = Annotated[Literal["bound", "sampled", "full"], typer.Option(help="How much is simulated.")]
ArchOption = Annotated[str, typer.Option("--arch", help="GPU, alias, nvidia-smi name or spec file.")]
MOption = Annotated[int, typer.Option("-m", help="Rows of C.")]
NOption = Annotated[int, typer.Option("-n", help="Columns of C.")]
KOption = Annotated[int, typer.Option("-k", help="Length of the sums.")]
DtypeOption = Annotated[str, typer.Option(help="Data type of A and B.")]
BatchOption = Annotated[int, typer.Option(help="Products of this shape.")]
SparsityOption = Annotated[Literal["dense", "2:4"], typer.Option(help="Structure of A[m, k]: the weights, if 2:4.")]
LayoutOption = Annotated[Literal["nn", "nt", "tn", "tt"], typer.Option(help="BLAS, column-major.")]
OrderOption = Annotated[Literal["row", "column"], typer.Option(help="Which way C lies in memory.")]
UnitOption = Annotated[Literal["cuda", "tensor"] | None, typer.Option(help="Only CUDA or Tensor Cores.")]
AccumulateOption = Annotated[str, typer.Option(help="Accumulator type; the data type's usual one if empty.")]
OutputTypeOption = Annotated[
    str, typer.Option("--output-dtype", help="Type that C is written in; the data type's usual one if empty.")
]
KernelOption = Annotated[str | None, typer.Option(help="Pin a kernel by its printed name.")]
L2Option = Annotated[Literal["cold", "warm"], typer.Option(help="L2 at the start.")]
CudaOption = Annotated[
    int | None,
    typer.Option("--cuda", min=1, help="Major version of CUDA whose libraries choose the kernel; the newest known."),
]
LoadOption = Annotated[
    str,
    typer.Option(
        help="Repeated until the power limit acts, over before, or so many calls back to back.",
        metavar="[sustained|burst|CALLS]",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Replace a value of the spec.", metavar="KEY.PATH=VALUE")
]


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    try:
        status = app(args=list(arguments), prog_name="gpusim", standalone_mode=False)
    except typer.TyperException as error:
        message = error.format_message()
        return _wrong_input(message) if message else 0  # without a command the help has been printed
    except typer.Abort:
        return 130
    except ValueError as error:
        if isinstance(error, _input_errors()):
            return _wrong_input(str(error))
        raise
    except RuntimeError as error:
        from gpusim.sweep import WorkerLostError

        if isinstance(error, WorkerLostError):
            print(f"gpusim: {error}", file=sys.stderr)
            return 1
        raise
    return status if isinstance(status, int) else 0


def _input_errors() -> tuple[type[ValueError], ...]:
    """What the user can put right; any other ValueError is ours and keeps its traceback."""
    from gpusim.calibration.error import CalibrationError
    from gpusim.mathmode.resolve import MathModeError
    from gpusim.measured import MeasuredError
    from gpusim.numerics.sparsity import SparsityError
    from gpusim.numerics.study import OperandError
    from gpusim.predict import UnsupportedError
    from gpusim.specfile import SpecError

    others = OperandError, SparsityError, UnsupportedError
    return CalibrationError, MathModeError, MeasuredError, SpecError, *others


def _wrong_input(message: str) -> int:
    """Say what is wrong in one line."""
    print("gpusim: " + " ".join(message.split()), file=sys.stderr)
    return 2


def _refuse(message: str) -> NoReturn:
    """Wrong input found by a command itself."""
    raise typer.BadParameter(message)


def _emit(write: Callable[[], object]) -> None:
    """Print data; a reader that has left ends the program quietly."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE_STATUS) from None


def _emit_json(value: object) -> None:
    _emit(lambda: print(json.dumps(value, indent=2, allow_nan=False)))


def _emit_tables(tables: Sequence[TextTable]) -> None:
    """Tables with an empty line between them."""
    for index, table in enumerate(tables):
        if index:
            _emit(print)
        _emit(table.show)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, on a terminal, for work of more than two seconds."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what)
    began = time.monotonic()

    def advance(done: int, total: int) -> None:
        if time.monotonic() - began > PROGRESS_AFTER_S:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        bar.stop()


def _version(asked: bool) -> None:
    if asked:
        print(f"gpusim {gpusim.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Name the version.")
    ] = False,
) -> None:
    """Options of the program itself."""


# archs ------------------------------------------------------------------------------------------


@archs_app.command("list")
def archs_list(arch_path: ArchPathOption = None, output: FormatOption = "table") -> None:
    """List the GPUs, with what they can do at boost clock."""
    from gpusim import specfile, tables

    specs = [specfile.load_arch(entry.path, arch_path or ()) for entry in specfile.list_archs(arch_path or ())]
    summaries = [tables.arch_summary(spec) for spec in specs]
    if output == "json":
        _emit_json({"archs": summaries})
    else:
        _emit_tables([tables.archs_table(summaries)])


@archs_app.command("show")
def archs_show(
    name: Annotated[str, typer.Argument(help="GPU, alias, nvidia-smi name or spec file.")],
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Show one GPU: derived peaks, and where every value comes from."""
    from gpusim import specfile, tables

    spec = specfile.load_arch(name, arch_path or ())
    if output == "json":
        _emit_json(tables.arch_object(spec))
    else:
        _emit_tables(tables.arch_tables(spec))


@archs_app.command("check")
def archs_check(
    files: Annotated[list[str], typer.Argument(help="Spec files.", metavar="FILE...")], arch_path: ArchPathOption = None
) -> None:
    """Check spec files: sources, units, ranges, contradictions."""
    from gpusim import specfile

    wrong = 0
    for file in files:
        if not file.endswith((".yaml", ".yml")):
            wrong = _wrong_input(f"{file}: not a .yaml file; give the path of a spec")
            continue
        try:
            spec = specfile.load_arch(file, arch_path or ())
        except specfile.SpecError as error:
            wrong = _wrong_input(str(error))
        else:
            _emit(lambda: print(f"{file}: fine: {spec.arch.name}, {len(spec.provenance)} values with a source"))  # noqa: B023
    if wrong:
        raise typer.Exit(wrong)


@archs_app.command("schema")
def archs_schema() -> None:
    """Print the JSON Schema of a spec file, for editors."""
    from gpusim.specfile import spec_json_schema

    _emit_json(spec_json_schema())


# gemm -------------------------------------------------------------------------------------------


@app.command()
def gemm(
    arch: ArchOption,
    m: MOption,
    n: NOption,
    k: KOption,
    dtype: DtypeOption = "fp16",
    batch: BatchOption = 1,
    sparsity: SparsityOption = "dense",
    layout: LayoutOption = "tn",
    order: OrderOption = "row",
    accumulate: AccumulateOption = "",
    output_dtype: OutputTypeOption = "",
    unit: UnitOption = None,
    kernel: KernelOption = None,
    detail: DetailOption = "sampled",
    l2: L2Option = "cold",
    load: LoadOption = "sustained",
    cuda: CudaOption = None,
    overrides: SetOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="List the kernels that were ranked.")] = False,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict an m x n x k matrix multiplication: its time, what binds it, where the warps' cycles went."""
    from gpusim import tables
    from gpusim.predict import Options, predict

    workload = _workload(m, n, k, dtype, batch, layout, sparsity, accumulate, order, output_dtype)
    spec = _spec(arch, arch_path or (), overrides or ())
    result = predict(spec.arch.with_cuda(cuda), workload, Options(detail, l2, kernel, _load(load), unit))
    if output == "json":
        _emit_json(result.as_dict())
        return
    shown = [tables.result_table(result)]
    if result.warp_cycles:
        shown.append(tables.ledger_table(result.stall_cycles, result.warp_cycles))
    if explain:
        shown.append(tables.alternatives_table(result))
    _emit_tables(shown)


def _load(text: str) -> str:
    """A load that predictions know."""
    if text not in ("sustained", "burst") and not (text.isdecimal() and int(text)):
        _refuse(f"--load {text}: expected sustained, burst or a number of calls back to back")
    return text


def _workload(
    m: int, n: int, k: int, dtype: str, batch: int, layout: str, sparsity: str, accumulate: str, order: str,
    output: str = "",
) -> Gemm:  # fmt: skip
    """The multiplication that was asked for."""
    from gpusim.workload import Gemm

    try:
        return Gemm(m, n, k, _dtype(dtype), batch, layout, sparsity, accumulate, order, output)
    except ValueError as error:
        _refuse(str(error))


def _dtype(text: str) -> Dtype:
    """A data type by name; the nearest ones are offered for another."""
    from difflib import get_close_matches

    from gpusim.workload import Dtype

    known = [dtype.value for dtype in Dtype]
    if text.lower() in known:
        return Dtype(text.lower())
    close = get_close_matches(text.lower(), known, n=3, cutoff=0.5)
    _refuse(
        f"unknown data type '{text}'; " + (f"nearest: {', '.join(close)}" if close else f"known: {', '.join(known)}")
    )


def _spec(name: str, arch_path: Sequence[Path], overrides: Sequence[str]) -> Spec:
    """A GPU with the values of ``--set`` in place."""
    from gpusim.specfile import load_arch, with_overrides

    spec = load_arch(name, arch_path)
    values: dict[str, Any] = {}
    for override in overrides:
        key_path, equals, text = override.partition("=")
        if not equals or not key_path:
            _refuse(f"--set {override}: expected KEY.PATH=VALUE")
        try:
            values[key_path] = json.loads(text)
        except ValueError:
            values[key_path] = text
    return with_overrides(spec, values) if values else spec


# trace ------------------------------------------------------------------------------------------


@app.command()
def trace(
    arch: ArchOption,
    m: MOption,
    n: NOption,
    k: KOption,
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="TRACE.json")],
    dtype: DtypeOption = "fp16",
    batch: BatchOption = 1,
    sparsity: SparsityOption = "dense",
    layout: LayoutOption = "tn",
    order: OrderOption = "row",
    accumulate: AccumulateOption = "",
    output_dtype: OutputTypeOption = "",
    unit: UnitOption = None,
    kernel: KernelOption = None,
    detail: Annotated[Literal["sampled", "full"], typer.Option(help="How much is simulated.")] = "sampled",
    l2: L2Option = "cold",
    load: LoadOption = "sustained",
    cuda: CudaOption = None,
    overrides: SetOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Events in the file, at most.")] = TRACE_EVENTS,
    arch_path: ArchPathOption = None,
) -> None:
    """Write a timeline of one SM (its warps, pipes, ports) for ui.perfetto.dev or chrome://tracing."""
    from gpusim.predict import Options, predict
    from gpusim.sim.trace import Recorder
    from gpusim.timeline import write_timeline

    workload = _workload(m, n, k, dtype, batch, layout, sparsity, accumulate, order, output_dtype)
    spec = _spec(arch, arch_path or (), overrides or ())
    if out.exists() and not out.is_file():
        _refuse(f"-o {out}: is there and is no file")
    if not out.parent.is_dir():
        _refuse(f"-o {out}: no folder {out.parent}")
    recorder = Recorder(limit)
    result = predict(spec.arch.with_cuda(cuda), workload, Options(detail, l2, kernel, _load(load), unit), recorder)
    try:
        write_timeline(out, result, recorder)
    except OSError as error:
        _refuse(f"-o {out}: {error.strerror or error}")
    if recorder.dropped:
        print(f"gpusim: dropped {recorder.dropped} later events; --limit {limit} sets how many stay", file=sys.stderr)
    told = [f"wrote {out}: {recorder.kept} events; open it at ui.perfetto.dev"]
    if recorder.skipped_cycles:
        told.append(f"{recorder.skipped_cycles} of {result.cycles} cycles repeat others and were not played")
    _emit(lambda: print("\n".join(told)))


# numerics ---------------------------------------------------------------------------------------


@app.command()
def numerics(
    dtype: DtypeOption,
    m: Annotated[int | None, typer.Option("-m", help="Rows of C; those of --a if not given.")] = None,
    n: Annotated[int | None, typer.Option("-n", help="Columns of C; those of --b if not given.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="Length of the sums; that of --a or --b if not given.")] = None,
    arch: ArchOption = "A100-SXM4-80GB",
    sparsity: SparsityOption = "dense",
    accumulate: AccumulateOption = "",
    unit: UnitOption = None,
    kernel: KernelOption = None,
    distribution: Annotated[
        str,
        typer.Option(
            help="normal:MEAN,STD, uniform:LOW,HIGH or lognormal:MEAN,STD (of the logarithm, random signs).",
            metavar="NAME[:X,Y]",
        ),
    ] = "normal",
    distribution_b: Annotated[
        str, typer.Option("--distribution-b", help="The same for B; as A if empty.", metavar="NAME[:X,Y]")
    ] = "",
    a: Annotated[Path | None, typer.Option("--a", help="A, m x k, instead of a drawn one.", metavar="FILE.npy")] = None,
    b: Annotated[Path | None, typer.Option("--b", help="B, k x n, instead of a drawn one.", metavar="FILE.npy")] = None,
    scaling: Annotated[
        Literal["auto", "none", "amax"],
        typer.Option(help="amax: the largest magnitude becomes the type's largest number; auto: for integers."),
    ] = "auto",
    tf32_rounding: Annotated[
        Literal["nearest", "truncate"],
        typer.Option("--tf32-rounding", help="As libraries convert, or FP32 registers as they are."),
    ] = "nearest",
    rows: Annotated[int, typer.Option("--sample-rows", min=0, help="Rows of C to compute; 0: all.")] = SAMPLE,
    columns: Annotated[int, typer.Option("--sample-columns", min=0, help="Columns of C to compute; 0: all.")] = SAMPLE,
    seed: Annotated[int, typer.Option(min=0, help="Of the operands and of the sample.")] = 0,
    overrides: SetOption = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Execute the kernel that would be chosen on numpy data: errors against float64, overflow, underflow."""
    from gpusim import tables
    from gpusim.numerics import study
    from gpusim.predict import Options, ranked_plans

    try:
        drawn = [study.parse_distribution(text) for text in (distribution, distribution_b or distribution)]
    except ValueError as error:
        _refuse(f"--distribution: {error}")
    given = [study.load_matrix(path) if path else None for path in (a, b)]
    k = _extent("-k", k, ((a, given[0], 1), (b, given[1], 0)))
    m, n = _extent("-m", m, ((a, given[0], 0),)), _extent("-n", n, ((b, given[1], 1),))
    workload = _workload(m, n, k, dtype, 1, "tn", sparsity, accumulate, "row")
    spec = _spec(arch, arch_path or (), overrides or ())
    planned = ranked_plans(spec.arch, workload, Options(kernel=kernel, unit=unit))[0].plan
    if scaling == "auto":
        scaling = "amax" if workload.dtype.value.startswith("int") else "none"
    try:
        operands = study.operands(workload, given, drawn, seed, rows or m, columns or n)
        with _progress("numerics") as progress:
            found = study.study(
                planned, workload, operands, scaling=scaling, tf32_rounding=tf32_rounding, progress=progress
            )
    except MemoryError:
        _refuse(f"{m} x {n} x {k} does not fit into memory; lower --sample-rows and --sample-columns")
    sources = [str(path) if path else str(one) for path, one in zip((a, b), drawn, strict=True)]
    record = tables.numerics_object(spec.arch.name, planned, workload, found, sources, seed)
    if output == "json":
        _emit_json(record)
    else:
        _emit_tables([tables.numerics_table(record)])


def _extent(flag: str, asked: int | None, matrices: Sequence[tuple[Path | None, NDArray[Any] | None, int]]) -> int:
    """A size from its flag, or from the matrices that have it along an axis; all must agree."""
    found = [(str(path), int(matrix.shape[axis])) for path, matrix, axis in matrices if matrix is not None]
    if asked is not None:
        found.insert(0, (flag, asked))
    if not found:
        _refuse(f"{flag}: missing; give it, or the matrix with --a and --b")
    for name, extent in found[1:]:
        if extent != found[0][1]:
            _refuse(f"{flag}: {found[0][0]} says {found[0][1]}, {name} has {extent}; make them agree")
    return found[0][1]


# run --------------------------------------------------------------------------------------------


@app.command()
def run(
    arguments: Annotated[
        list[str],
        typer.Argument(
            help="Experiments by name or file, and values to replace.", metavar="EXPERIMENT... [KEY.PATH=VALUE]..."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", help="Output folder; results/NAME if not given.", metavar="DIR")
    ] = None,
    jobs: JobsOption = None,
    arch_path: ArchPathOption = None,
) -> None:
    """Run experiments: a CSV of results, a manifest and plots each."""
    from gpusim.experiment import open_experiment

    overrides = [text for text in arguments if "=" in text and not text.endswith((".yaml", ".yml"))]
    names = [text for text in arguments if text not in overrides]
    if not names:
        _refuse("name an experiment or give its .yaml file")
    experiments = [open_experiment(name, overrides, arch_path or ()) for name in names]
    taken = [experiment.name for experiment in experiments]
    if out is not None and len(set(taken)) < len(taken):
        _refuse("two experiments have the same name; give each its own run")
    for experiment in experiments:
        folder = Path("results") / experiment.name if out is None else out
        if out is not None and len(experiments) > 1:
            folder = out / experiment.name
        _run_one(experiment, folder, jobs, ["gpusim", "run", *arguments])


def _run_one(
    experiment: Experiment | TrainingExperiment, folder: Path, jobs: int | None, command: Sequence[str]
) -> None:
    """Run one experiment, print its tables and where its files lie."""
    from gpusim.experiment import TrainingExperiment
    from gpusim.run import run_experiment, run_training
    from gpusim.sweep import available_cores
    from gpusim.tables import training_table

    _refuse_file(folder)
    try:
        with _progress(experiment.name) as progress:
            if isinstance(experiment, TrainingExperiment):
                done = run_training(experiment, folder, command=command, progress=progress)
            else:
                done = run_experiment(
                    experiment, folder, jobs=jobs or available_cores(), command=command, progress=progress
                )
    except OSError as error:
        _refuse(f"{error.filename or folder}: {error.strerror or error}; choose another folder with -o")
    _tell_resumed(done.resumed)
    if isinstance(experiment, TrainingExperiment):
        _emit_tables([training_table(experiment.content.title, done.rows)])
    else:
        _emit_tables(_experiment_tables(experiment, done))
    _emit(lambda: print("\n" + "\n".join(f"wrote {path}" for path in done.files)))


def _experiment_tables(experiment: Experiment, done: Finished) -> list[TextTable]:
    """The tables that an experiment asks for."""
    from gpusim import report, tables

    shown = []
    for kind in experiment.content.tables:
        if kind == "results":
            shown.append(tables.experiment_table(experiment.content.title, done.rows))
        elif kind == "speedup":
            baseline = next(plot.baseline for plot in experiment.content.plots if plot.kind == "speedup")
            measured = report.measured_speedups(done.points, baseline)
            shown.append(tables.speedup_table(experiment.content.title, done.rows, baseline, measured))
        else:
            shown += [
                tables.ledger_table(
                    row["stall_cycles"],
                    row["warp_cycles"],
                    f"{row['label'] or tables.shape_text(row)} on {row['gpu']}: {row['cycles']} cycles, by cause",
                )
                for row in done.rows
            ]
    return shown


# validate ---------------------------------------------------------------------------------------


@app.command()
def validate(
    files: Annotated[
        list[Path], typer.Argument(help="Measured runs in the documented schema.", metavar="MEASURED.csv...")
    ],
    detail: DetailOption = "sampled",
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--pair", help="Score the speedup of GPU_B over GPU_A, too.", metavar="GPU_A GPU_B"),
    ] = None,
    strata: Annotated[bool, typer.Option("--strata", help="Errors by the range of m and what binds.")] = False,
    more: Annotated[
        bool, typer.Option("--more", help="More figures, tiles chosen for others, and the rows furthest off.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", help="Folder for every row, the report and plots.", metavar="DIR")
    ] = None,
    jobs: JobsOption = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Predict measured runs and print how far off the predictions are."""
    from gpusim.validation.tables import validation_tables

    report = _validated(files, detail, pair, out, jobs, arch_path)
    if output == "json":
        _emit_json(report.as_dict())
    else:
        _emit_tables(validation_tables(report.as_dict(), by_stratum=strata, more=more))
    if not report.complete:
        raise typer.Exit(1)


def _validated(
    files: Sequence[Path],
    detail: str,
    pair: tuple[str, str] | None,
    out: Path | None,
    jobs: int | None,
    arch_path: Sequence[Path] | None,
) -> Report:
    """The validation, with its files written where a folder was named."""
    from gpusim.journal import journal_in
    from gpusim.sweep import available_cores
    from gpusim.validation.summary import validate as validate_files

    if out is not None:
        _refuse_file(out)
        from gpusim.validation.files import write_files  # the pictures' library takes a while
    try:
        with journal_in(out) if out else nullcontext() as journal:
            with _progress("validate") as progress:
                report = validate_files(
                    files,
                    detail=detail,
                    jobs=jobs or available_cores(),
                    arch_path=arch_path or (),
                    pair=pair,
                    progress=progress,
                    journal=journal,
                )
            written = write_files(report, out) if out else ()
    except OSError as error:
        _refuse(f"{error.filename or out}: {error.strerror or error}; choose another folder with -o")
    if journal:
        _tell_resumed(journal.resumed)
    for path in written:
        print(f"gpusim: wrote {path}", file=sys.stderr)
    return report


def _refuse_file(folder: Path) -> None:
    """A folder that results go to must not be a file."""
    if folder.exists() and not folder.is_dir():
        _refuse(f"{folder}: is a file; give a folder with -o")


def _tell_resumed(records: int) -> None:
    """Say what an interrupted run has left."""
    if records:
        print(f"gpusim: {records} results taken from an interrupted run", file=sys.stderr)


# mathmode ---------------------------------------------------------------------------------------


@app.command()
def mathmode(
    framework: Annotated[str, typer.Option("--framework", help="pytorch, tensorflow, jax or tensorrt.")],
    version: Annotated[str, typer.Option("--version", help="Of the framework, such as 1.13 or 1.15.2+nv20.06.")],
    arch: ArchOption,
    op: Annotated[str, typer.Option("--op", help="Operation of the framework, or a kind of them.")] = "matmul",
    dtype: Annotated[str, typer.Option("--dtype", help="Data type of the tensors.")] = "fp32",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A flag of the framework, or the version of cublas or cudnn.", metavar="FLAG=VALUE"),
    ] = None,
    environment: Annotated[
        list[str] | None, typer.Option("--env", help="An environment variable.", metavar="NAME=VALUE")
    ] = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Say which arithmetic an operation of a framework takes on a GPU, and which rule decides.

    Exit status 1: settings contradict each other; they are listed, and what they leave open is not guessed.
    """
    from gpusim import tables
    from gpusim.mathmode.resolve import Question, resolve
    from gpusim.specfile import load_arch

    question = Question(framework, version, op, dtype, _pairs("--set", settings), _pairs("--env", environment))
    answer = resolve(question, load_arch(arch, arch_path or ()).arch)
    if output == "json":
        _emit_json(answer.as_dict())
    else:
        _emit_tables(tables.mathmode_tables(answer))
    if answer.conflicts:
        raise typer.Exit(1)


def _pairs(what: str, texts: Sequence[str] | None) -> dict[str, str]:
    """``NAME=VALUE`` options by name."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            _refuse(f"{what} {text}: expected NAME=VALUE")
        if name in pairs:
            _refuse(f"{what} {name} is given twice; keep one")
        pairs[name] = value
    return pairs


# calibrate --------------------------------------------------------------------------------------


@app.command()
def calibrate(
    arch: Annotated[str, typer.Option("--arch", help="Board, or base that boards extend: then all that ran.")],
    measured: Annotated[list[Path], typer.Option("--measured", help="Measured runs; may be repeated.", metavar="FILE")],
    out: Annotated[Path, typer.Option("-o", help="Spec to write.", metavar="SPEC.yaml")],
    rows: Annotated[
        int,
        typer.Option(
            "--rows", min=1, help="Rows of a table, GPU, type and operator that physical values are fitted to."
        ),
    ] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of the draw of rows.")] = 0,
    date: Annotated[str | None, typer.Option("--date", help="Date in the spec; today's if not given.")] = None,
    jobs: JobsOption = None,
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Fit the uncertain values of a spec to measured runs and write a spec that extends it.

    Exit status 1: the fit drives a value against what physics allows; nothing is written.
    """
    from datetime import UTC, datetime

    from gpusim.calibration.spec_writer import write_spec
    from gpusim.calibration.summary import calibrate as calibrate_spec
    from gpusim.calibration.summary import journal_of
    from gpusim.calibration.tables import calibration_tables
    from gpusim.specfile import spec_file
    from gpusim.sweep import available_cores

    if out.suffix not in (".yaml", ".yml") or not out.parent.is_dir() or out.is_dir():
        _refuse(f"-o {out}: expected a .yaml file in a folder that is there")
    if out.stem == spec_file(arch, arch_path or ()).stem:
        _refuse(f"-o {out}: a spec cannot extend one of its own file name; choose another")

    def log(text: str) -> None:
        print(f"gpusim: {text}", file=sys.stderr)

    try:
        with _progress("calibrate") as progress:
            report = calibrate_spec(
                arch,
                measured,
                out,
                rows_per_table=rows,
                seed=seed,
                jobs=jobs or available_cores(),
                arch_path=arch_path or (),
                progress=progress,
                log=log,
            )
    except OSError as error:
        _refuse(f"-o {out}: {error.strerror or error}")
    if output == "json":
        _emit_json(report.as_dict())
    else:
        _emit_tables(calibration_tables(report.as_dict()))
    if report.refusals:
        for refusal in report.refusals:
            log(refusal)
        journal_of(out).unlink(missing_ok=True)
        raise typer.Exit(1)
    if report.worse_held_out:
        log("rows held out are predicted worse than before the fit; measure more rows, or keep the spec as it was")
    try:
        write_spec(report, out, date or f"{datetime.now(UTC):%Y-%m-%d}")
    except OSError as error:
        _refuse(f"-o {out}: {error.strerror or error}; run it again, what was timed is kept")
    log(f"wrote {out}")


# import -----------------------------------------------------------------------------------------


IMPORT_HELP = """Turn a file of measured runs into the schema that validate reads.

\b
KIND            where such a file comes from
aiconfigurator  ai-dynamo/aiconfigurator: gemm_perf.parquet (extra: parquet)
cutlass         cutlass_profiler --operation=gemm --output=runs.csv
deepbench       baidu-research/DeepBench: results/**/*.xlsx (extra: xlsx)
kineto          PyTorch's profile(record_shapes=True), exported as JSON
llmservingsim   casys-kaist/LLMServingSim: perf_models/**/layers.csv
ncu             ncu --clock-control none --csv --page raw --log-file runs.csv
neusight        sitar-lab/NeuSight: dataset/**/*.csv
nsys            Nsight Systems: nsys export --type sqlite report.nsys-rep

What makes no row is counted on standard error, by reason.
"""


@app.command("import", help=IMPORT_HELP)
def import_(
    kind: Annotated[str, typer.Argument(help="What wrote the file, see above.", metavar="KIND")],
    file: Annotated[Path, typer.Argument(help="The file as it came.", metavar="FILE")],
    out: Annotated[Path, typer.Option("-o", help="File to write.", metavar="MEASURED.csv")],
    gpu: Annotated[str, typer.Option(help="The board, as in a100-sxm4-80gb; else as the file names it.")] = "",
    dtype: Annotated[str, typer.Option(help="Data type of A and B where the file names none.")] = "",
    accumulate: Annotated[
        str, typer.Option("--acc-dtype", help="Accumulator type where the file names none; the data type's usual one.")
    ] = "",
    layout: Annotated[
        Literal["nn", "nt", "tn", "tt"] | None, typer.Option(help="BLAS, column-major, where the file says none.")
    ] = None,
    method: Annotated[
        Literal["graph", "stream", "profiler", "layer", "event", "host"] | None,
        typer.Option(help="How it was timed, if not as such files usually are."),
    ] = None,
    l2: Annotated[
        Literal["cold", "warm"] | None, typer.Option(help="L2 at the start, if not as in such files usually.")
    ] = None,
    time_unit: Annotated[
        Literal["ns", "us", "ms", "s"] | None, typer.Option(help="Unit of the times where the file names none.")
    ] = None,
    m: Annotated[int | None, typer.Option("-m", min=1, help="Rows of C of every kernel, ncu and nsys.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Columns of C, likewise.")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Length of the sums, likewise.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Products of this shape, likewise.")] = 1,
    shapes: Annotated[
        Path | None,
        typer.Option(help="m, n, k (op, batch, dtype, layout) of each kernel, ncu and nsys.", metavar="CSV"),
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="The model's config.json, llmservingsim.", metavar="JSON")
    ] = None,
    source: Annotated[str, typer.Option(help="Text for the column source.")] = "",
) -> None:
    """Turn a file of measured runs into the schema that validate reads."""
    from difflib import get_close_matches

    from gpusim.importers import KINDS, Options, import_file
    from gpusim.measured import ACCUMULATORS, write_measured

    if kind not in KINDS:
        close = get_close_matches(kind, KINDS, n=1)
        _refuse(f"unknown kind '{kind}'; " + (f"nearest: {close[0]}" if close else f"known: {', '.join(KINDS)}"))
    if accumulate and accumulate not in ACCUMULATORS:
        _refuse(f"--acc-dtype {accumulate}: expected one of {', '.join(ACCUMULATORS)}")
    if not out.parent.is_dir():
        _refuse(f"-o {out}: no folder {out.parent}")
    if out.resolve() == file.resolve():
        _refuse(f"-o {out}: is the file to import; choose another name")
    options = Options(
        gpu=gpu,
        method=method or "",
        l2=l2 or "",
        source=source,
        dtype=_dtype(dtype) if dtype else None,
        accumulate=accumulate,
        layout=layout or "",
        time_unit=time_unit or "",
        m=m,
        n=n,
        k=k,
        batch=batch,
        shapes=shapes,
        model_config=model_config,
    )
    found = import_file(kind, file, options)
    try:
        write_measured(out, found.rows)
    except OSError as error:
        _refuse(f"-o {out}: {error.strerror or error}")
    for reason, count in sorted(found.skipped.items()):
        print(f"gpusim: skipped {count}: {reason}", file=sys.stderr)
    _emit(lambda: print(f"wrote {out}: {len(found.rows)} rows"))


# measure ----------------------------------------------------------------------------------------


@app.command()
def measure(
    suite_name: Annotated[str, typer.Argument(help="A shipped suite by name, or a file.", metavar="SUITE")],
    out: Annotated[
        Path | None, typer.Option("-o", help="Table to write or to go on with.", metavar="MEASURED.csv")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would be measured and how long it takes; needs no GPU.")
    ] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="Hardware counters of the suite's multiplications, through ncu.")
    ] = False,
    limit_s: Annotated[
        float | None, typer.Option("--limit-s", min=0, help="Begin nothing that would end after so many seconds.")
    ] = None,
    profiler: Annotated[bool, typer.Option(help="Record kernel names and grids, with PyTorch's profiler.")] = True,
    output: FormatOption = "table",
) -> None:
    """Measure operators on the NVIDIA GPU that is present, through PyTorch; run again, it goes on where it stopped."""
    from gpusim.measure.suite import load_suite

    suite = load_suite(suite_name)
    if plan:
        _measurement_plan(suite, output)
        return
    if out is None:
        _refuse("name the table to write: -o MEASURED.csv (or ask for --plan)")
    if not out.parent.is_dir():
        _refuse(f"-o {out}: no folder {out.parent}")
    if out.suffix != ".csv" or out.is_dir():
        _refuse(f"-o {out}: expected a file ending in .csv")
    if counters and limit_s is not None:
        _refuse("--limit-s: ncu counts a suite in one go; ask for fewer items, or without --counters")
    try:
        complete = _count(suite, out) if counters else _measure(suite, suite_name, out, limit_s, profiler)
    except OSError as error:
        _refuse(f"{error.filename or out}: {error.strerror or error}")
    if not complete:
        raise typer.Exit(1)


def _measure(suite: Suite, suite_name: str, out: Path, limit_s: float | None, profiler: bool) -> bool:
    """Measure a suite; an item that takes the device down is logged and a fresh process goes on behind it."""
    from gpusim.measure.device import DeviceLostError, NoDeviceError
    from gpusim.measure.runner import run_suite

    began_s = time.monotonic()
    limit = math.inf if limit_s is None else limit_s
    command = ["measure", suite_name, "-o", str(out), *([] if profiler else ["--no-profiler"])]
    try:
        _require_torch()
        from gpusim.measure.torch_device import TorchDevice

        device = TorchDevice(profile=profiler)
    except NoDeviceError as error:
        _refuse(str(error))
    try:
        with _progress(suite.name) as progress:
            outcome = run_suite(suite, device, out, limit_s=limit, command=["gpusim", *command], progress=progress)
    except DeviceLostError as error:
        print(f"gpusim: the device was lost ({error}); starting again behind that item", file=sys.stderr)
        if limit_s is not None:
            command += ["--limit-s", f"{max(0.0, limit_s - (time.monotonic() - began_s)):.0f}"]
        os.execv(sys.executable, [sys.executable, "-m", "gpusim", *command])  # noqa: S606 -- ourselves again
    _say_what_became(outcome)
    return outcome.complete


def _require_torch() -> None:
    """Refuse, with the remedy, where PyTorch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        _refuse("PyTorch is not installed; pip install 'gpusim[measure]', or torch and nvidia-ml-py")


def _count(suite: Suite, out: Path) -> bool:
    """Hardware counters of a suite."""
    from gpusim.measure import counters
    from gpusim.measure.device import NoDeviceError

    _require_torch()
    from gpusim.measure.torch_device import TorchDevice

    try:
        rows, without = counters.count(suite, TorchDevice(profile=False).identity, out)
    except NoDeviceError as error:
        _refuse(str(error))
    for item in without:
        print(f"gpusim: no counters of {item}", file=sys.stderr)
    _emit(lambda: print(f"wrote {out}: {rows} rows"))
    return not without


def _say_what_became(outcome: Outcome) -> None:
    """Reasons to standard error, files to standard output."""
    from collections import Counter

    if outcome.resumed:
        print(f"gpusim: {outcome.resumed} rows taken from an earlier run", file=sys.stderr)
    for reason, count in Counter(reason for _, reason in outcome.skipped).most_common():
        print(f"gpusim: skipped {count}: {reason}", file=sys.stderr)
    if outcome.remaining:
        print(f"gpusim: {outcome.remaining} items left by the time limit; run it again to go on", file=sys.stderr)
    _emit(lambda: print("\n".join([f"{outcome.measured} rows measured", *(f"wrote {path}" for path in outcome.files)])))


def _measurement_plan(suite: Suite, output: Format) -> None:
    """What a suite asks for."""
    from gpusim.measure.runner import plan_of
    from gpusim.tables import TextTable, time_text

    planned = plan_of(suite)
    if output == "json":
        _emit_json({"suite": suite.name, "title": suite.content.title, "lines": planned})
        return
    rows = [
        (line["what"], line["dtype"], str(line["items"]), str(line["rows"]), time_text(1e6 * line["seconds"]))
        for line in planned
    ]
    items, count = (str(sum(line[name] for line in planned)) for name in ("items", "rows"))
    rows.append(("total", "", items, count, time_text(1e6 * sum(line["seconds"] for line in planned))))
    _emit_tables([TextTable(suite.content.title, ("what", "type", ">items", ">rows", ">about"), tuple(rows))])


# counters ---------------------------------------------------------------------------------------


@app.command()
def counters(
    files: Annotated[
        list[Path], typer.Argument(help="Tables of 'measure --counters' or 'import ncu'.", metavar="COUNTERS.csv...")
    ],
    arch: Annotated[
        str | None, typer.Option("--arch", help="GPU to simulate; the one that was measured if not given.")
    ] = None,
    detail: DetailOption = "sampled",
    arch_path: ArchPathOption = None,
    output: FormatOption = "table",
) -> None:
    """Lay measured hardware counters beside those of the simulation."""
    from gpusim.counters import beside, counters_tables

    compared = beside(files, arch=arch, detail=detail, arch_path=arch_path or ())
    if output == "json":
        _emit_json({"rows": compared})
    else:
        _emit_tables(counters_tables(compared))
    if any(row["skipped"] for row in compared):
        raise typer.Exit(1)
