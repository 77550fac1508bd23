"""Experiments from YAML files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.console import (
    emit_tables,
    refuse,
    refuse_file,
    refusing_file_errors,
    report_inconsistent,
    report_journal,
    report_written,
)
from gpusim.cli.options import ArchPathOption, ClusterOption, HtmlOption, JobsOption, NoCacheOption, service_of
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from gpusim.execution.service import Service
    from gpusim.experiment.loading import AnyExperiment
    from gpusim.studies.run import Finished


def run(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments by name or file, and values that replace theirs.",
            metavar="EXPERIMENT... [KEY.PATH=VALUE]...",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", help="Output folder. Default: results/NAME.", metavar="DIR")] = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = "",
    no_cache: NoCacheOption = False,
    arch_path: ArchPathOption = None,
    force: Annotated[bool, typer.Option("--force", help="Run again even where results are up to date.")] = False,
    html: HtmlOption = None,
    shipped: Annotated[bool, typer.Option("--list", help="List the shipped experiments and exit.")] = False,
) -> None:
    """Run experiments. Each writes a CSV of results, a manifest and plots.

    Results that are up to date with all of their inputs are kept. --html writes a page of all experiments: every plot
    as charts that tell the values of each mark, and the tables of rows.

    Exit status 1: a case cannot be predicted, or a prediction contradicts a bound of its GPU.
    """
    from gpusim.experiment.loading import open_experiment
    from gpusim.studies.experiments import finished_in, output_folders, shipped_table
    from gpusim.studies.manifest import failed_cases, is_up_to_date

    if shipped:
        emit_tables([shipped_table(arch_path or ())])
        return
    arguments = arguments or []
    overrides = [text for text in arguments if "=" in text and not text.endswith((".yaml", ".yml"))]
    names = [text for text in arguments if text not in overrides]
    if not names:
        refuse("name an experiment (--list shows those that ship) or give its .yaml file")
    experiments = [open_experiment(name, overrides, arch_path or ()) for name in names]
    folders = output_folders([experiment.name for experiment in experiments], out)
    command = ["gpusim", "run", *arguments, *(f"--arch-path={folder}" for folder in arch_path or ())]
    sound = True
    found: list[Finished] = []
    for experiment, folder in zip(experiments, folders, strict=True):
        if not force and is_up_to_date(experiment, folder):
            failed = failed_cases(folder)
            but = f" but for {failed} failed cases" if failed else ""
            print(f"gpusim: {folder} is up to date{but}; --force computes it again", file=sys.stderr)
            sound &= not failed
            found += [finished_in(experiment, folder)] if html is not None else []
        else:
            finished = _run_one(experiment, folder, service_of(jobs, cluster, no_cache=no_cache), command)
            sound &= not finished.cases.failed and not finished.cases.inconsistent
            found.append(finished)
    if html is not None:
        _write_page(experiments, found, folders, html)
    if not sound:
        raise typer.Exit(1)


def _run_one(experiment: AnyExperiment, folder: Path, service: Service, command: Sequence[str]) -> Finished:
    """Run one experiment, print its tables and files."""
    from gpusim.studies import experiments

    refuse_file(folder)
    with refusing_file_errors(folder, "choose another folder with -o"), progress_bar(experiment.name) as progress:
        finished = experiments.run(experiment, folder, service=service, command=command, progress=progress)
    report_journal(finished.resumed, finished.damaged)
    emit_tables(experiments.tables(experiment, finished))
    for path in finished.files:
        report_written(path)
    cases = finished.cases
    if cases.oversize:
        of = f"{cases.oversize} of {cases.all} GEMMs"
        print(f"gpusim: {of} would not fit into the GPU's memory; see the column 'fits'", file=sys.stderr)
    if cases.failed:
        print(f"gpusim: {cases.failed} of {cases.all} cases failed, {finished.failure}", file=sys.stderr)
    report_inconsistent(cases.inconsistent, cases.all)
    return finished


def _write_page(
    experiments: Sequence[AnyExperiment], found: Sequence[Finished], folders: Sequence[Path], path: Path
) -> None:
    from gpusim.pages.page import write_page
    from gpusim.pages.run import RanExperiment, run_page

    ran = [RanExperiment(*one) for one in zip(experiments, found, folders, strict=True)]
    write_page(run_page(ran, sys.argv[1:]), path)
    report_written(path)
