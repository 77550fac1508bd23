"""The store of simulated launches on disk: what it holds, emptied, checked; and the machine code beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import emit_result, help_without_command, refuse
from gpusim.cli.options import FormatOption

if TYPE_CHECKING:
    from gpusim.execution.database import Database
    from gpusim.execution.store import Place

app = typer.Typer(
    help="Show, empty and check the store of simulated launches.\n\n"
    "Commands that predict many operators keep the outcomes of simulations in a file, and take them from there when "
    "a launch is simulated again. Results do not depend on it. The variable GPUSIM_CACHE names its folder, or is "
    "'off'; GPUSIM_CACHE_SIZE is its largest size, 512MiB by default.",
    callback=help_without_command,
    invoke_without_command=True,
)
DAY_S = 24 * 3600


@app.command("info")
def cache_info(output: FormatOption = "table") -> None:
    """Show where the store is, what it holds, and how often it was of use."""
    from gpusim.report.cache_tables import cache_object, cache_table

    place = _place()
    with _opened(place) as database:
        shown = cache_object(place.folder, place.limit_bytes, database.summary() if database else None)
    emit_result(output, shown, lambda: [cache_table(shown)])


@app.command("clear")
def cache_clear(
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than", min=0, help="Only outcomes that were not used for this many days.", metavar="DAYS"
        ),
    ] = None,
    other_models: Annotated[
        bool, typer.Option("--other-models", help="Only outcomes of other model versions.")
    ] = False,
) -> None:
    """Remove all that gpusim keeps outside of its package: outcomes, machine code, boards, the script of pages.

    With an option, some outcomes only. A later command simulates and compiles again what it needs.
    """
    from gpusim.version import MODEL_VERSION

    if older_than is not None and other_models:
        refuse("--older-than and --other-models: give one of them")
    place = _place()
    with _opened(place) as database:
        unused_for_s = None if older_than is None else DAY_S * older_than
        versions_but = MODEL_VERSION if other_models else None
        removed = database.remove(unused_for_s=unused_for_s, versions_but=versions_but) if database else 0
        print(f"gpusim: {removed} outcomes removed", file=sys.stderr)
        some = older_than is not None or other_models
        if database and not some and not database.delete():
            print(f"gpusim: {database.path}: another process uses the empty file; clear again later", file=sys.stderr)
    if not some:
        _remove_others(place.folder)


def _remove_others(store: Path) -> None:
    """Remove machine code, loaded boards and the script of pages, and the folder of the store where it is empty."""
    from gpusim.files.kept import remove_boards
    from gpusim.pages.vega import remove_scripts
    from gpusim.sim.drivers.code_folder import remove_all

    if remove_all():
        print("gpusim: machine code removed", file=sys.stderr)
    if remove_boards(store):
        print("gpusim: loaded boards removed", file=sys.stderr)
    if remove_scripts(store):
        print("gpusim: script of pages removed", file=sys.stderr)
    with suppress(OSError):  # it holds files
        store.rmdir()


@app.command("verify")
def cache_verify() -> None:
    """Check the store, and remove what is damaged.

    Exit status 1: something was damaged. It is computed again when it is needed.
    """
    with _opened(_place()) as database:
        checked, damaged = _verified(database) if database else (0, 0)
    print(f"gpusim: {checked} outcomes checked, {damaged} of them damaged and removed", file=sys.stderr)
    if damaged or (database and database.replaced):
        raise typer.Exit(1)


@app.command("compile")
def cache_compile() -> None:
    """Compile the simulator and the ranking of kernels for this machine, once for each version of gpusim.

    It takes about half a minute. All commands then run compiled where that is faster, single predictions too, with the
    same results. Exit status 1: the machine code cannot be kept.
    """
    from gpusim.hardware.machine import Machine
    from gpusim.prediction import fused_ranking
    from gpusim.sim.drivers.choice import has_numba
    from gpusim.sim.drivers.code_folder import folder, is_kept
    from gpusim.sim.simulate import compile_ahead
    from gpusim.specs import load_spec

    if not has_numba():
        refuse("compiling needs numba: pip install numba")
    gpu = load_spec("T4").gpu  # the machine code is that of any GPU
    compile_ahead(Machine.of(gpu, gpu.clock.max_mhz))
    if not (is_kept() and fused_ranking.compile_ahead(gpu)):
        print(
            f"gpusim: {folder()}: the machine code cannot be kept there; check that it can be written", file=sys.stderr
        )
        raise typer.Exit(1)


def _verified(database: Database) -> tuple[int, int]:
    """How many entries were checked, and how many of them damaged; a damaged file is set aside."""
    from gpusim.execution.database import FAILURES, SET_ASIDE, is_damage

    try:
        return database.verify()
    except FAILURES as error:
        if not is_damage(error):
            raise
        database.set_aside()
        print(f"gpusim: {database.path}: damaged as a whole, set aside as {SET_ASIDE}: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def _place() -> Place:
    """Where the store is."""
    from gpusim.execution.store import place_named
    from gpusim.files.cache_folder import FOLDER_VARIABLE

    place = place_named()
    if place is None:
        refuse(f"{FOLDER_VARIABLE} turns the store off; it names its folder otherwise")
    return place


@contextmanager
def _opened(place: Place) -> Iterator[Database | None]:
    """The file, or None where there is none yet."""
    from gpusim.execution.database import FAILURES, NAME, Database

    if not (place.folder / NAME).exists():
        yield None
        return
    try:
        database = Database(place.folder, place.limit_bytes)
        try:
            yield database
        finally:
            database.close()
    except FAILURES as error:
        refuse(f"{place.folder / NAME}: {error}")
