"""The command line: each command parses its options, calls one function and prints. One module per command.

Exit status 0 is success, 1 a result outside the request or none at all, 2 wrong input. Wrong input is one line on
standard error, and so is a defect of gpusim, with status 1. Data goes to standard output, messages to standard error.
Heavy imports stand inside the commands that need them, so that ``--help`` is instant.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.main import get_command

from gpusim.cli import (
    archs,
    attention,
    cache,
    calibrate,
    capture,
    compare,
    counters,
    explain,
    gemm,
    import_,
    kernels,
    mathmode,
    measure,
    microbench,
    model,
    models,
    nodes,
    numerics,
    run,
    schema,
    serve,
    trace,
    validate,
)
from gpusim.cli.console import (
    compiling,
    drop_output,
    emit,
    help_without_command,
    log_to_stderr,
    prepare_streams,
    report_defect,
    shows_tracebacks,
    wrong_input,
)
from gpusim.cli.options import OneArchCommand, with_groups
from gpusim.errors import InputError
from gpusim.files.interrupts import stop_received
from gpusim.files.kept import keep_boards
from gpusim.progress import progress_lines, show_while_compiling
from gpusim.version import __version__

app = typer.Typer(
    name="gpusim",
    help="GPU performance simulator: predicts the time of an operator on a GPU, and what limits it.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: [m, n] and start:end:step are not markup
)
app.add_typer(archs.app, name="archs")
app.add_typer(models.app, name="models")
app.add_typer(nodes.app, name="nodes")
app.add_typer(kernels.app, name="kernels")
app.add_typer(cache.app, name="cache")
app.command()(with_groups(gemm.gemm))
app.command()(with_groups(attention.attention))
app.command(cls=OneArchCommand)(with_groups(trace.trace))
app.command(cls=OneArchCommand)(with_groups(numerics.numerics))
app.command()(with_groups(model.model))
app.command(help=compare.HELP)(with_groups(compare.compare))
app.command(help=explain.HELP, cls=OneArchCommand)(with_groups(explain.explain))
app.command()(run.run)
app.command(help=validate.HELP)(validate.validate)
app.command(help=microbench.HELP)(microbench.microbench)
app.command(help=serve.HELP)(serve.serve)
app.command(cls=OneArchCommand)(mathmode.mathmode)
app.command()(calibrate.calibrate)
app.command("import", help=import_.HELP)(with_groups(import_.import_))
app.command(help=capture.HELP)(capture.capture)
app.command()(measure.measure)
app.command()(counters.counters)
app.command()(schema.schema)


def run_cli(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    try:
        prepare_streams()
        show_while_compiling(compiling)
        keep_boards(wanted="--no-cache" not in arguments)
        with log_to_stderr(), progress_lines(next(iter(arguments), "gpusim")):
            status = _command()(args=list(arguments), prog_name="gpusim", standalone_mode=False)
    except typer.TyperException as error:
        return wrong_input(error.format_message(), arguments)
    except typer.Abort:
        return 130
    except InputError as error:  # any other ValueError is a defect
        return wrong_input(str(error), arguments)
    except OSError as error:
        if error.filename is None:  # the help could not be printed
            drop_output()
            return wrong_input(f"input or output failed: {error.strerror or error}")
        return wrong_input(f"{error.filename}: {error.strerror}", (*arguments, str(error.filename)))
    except Exception as error:
        from gpusim.execution.workers import WorkerLostError

        if isinstance(error, WorkerLostError):
            print(f"gpusim: {error}", file=sys.stderr)
        elif stop_received() or shows_tracebacks():  # an extension module may have turned a signal into its own error
            raise
        else:
            report_defect(error)
        status = 1
    return status if isinstance(status, int) else 0


@functools.cache
def _command() -> Callable[..., object]:
    """The parser of all commands: built once in a process, which takes longer than most commands do."""
    return get_command(app)


def _version(asked: bool) -> None:
    if asked:
        emit(lambda: print(f"gpusim {__version__}"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""
    del version
    help_without_command(context)
