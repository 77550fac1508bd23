"""A whole model on one GPU, or on several GPUs and in several precisions in comparison."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.console import (
    emit_result,
    one_or_list,
    refuse,
    refuse_out_of_memory,
    refusing_file_errors,
    report_written,
)
from gpusim.cli.model_options import (
    FrameworkOptions,
    PrecisionsOption,
    SharingOptions,
    WorkOptions,
    model_workload,
    refuse_contradictions,
)
from gpusim.cli.options import (
    PLOTTED,
    AllowOomOption,
    ArchPathOption,
    ArchsOption,
    HtmlOption,
    JobsOption,
    NoCacheOption,
    RowsFormatOption,
    SetOption,
    overrides_of,
    service_of,
)
from gpusim.progress import progress_bar

if TYPE_CHECKING:
    from gpusim.execution.cases import Case
    from gpusim.execution.models import ModelWorkload
    from gpusim.execution.service import Service
    from gpusim.report.text_table import TextTable
    from gpusim.step.model import Footprint, ModelResult
    from gpusim.step.serving import ServingPoint


def model(
    name: Annotated[
        str, typer.Argument(help="Model: a name of 'gpusim models list', or a .yaml file.", metavar="MODEL")
    ],
    arch: ArchsOption,
    work: WorkOptions,
    how: FrameworkOptions,
    sharing: SharingOptions,
    precision: PrecisionsOption = None,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", help="Write a timeline of the step, for ui.perfetto.dev.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Draw latency and throughput of generated tokens to a PNG, SVG or PDF.", metavar="FILE"
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", help="Prices of GPUs by the hour, CSV or YAML: dollars a million tokens.", metavar="FILE"
        ),
    ] = None,
    overrides: SetOption = None,
    allow_oom: AllowOomOption = False,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
    arch_path: ArchPathOption = None,
    html: HtmlOption = None,
    output: RowsFormatOption = "table",
) -> None:
    """Predict a step of a whole model.

    Forward and backward pass and update, or inference: time, throughput, memory, and what limits it.

    Several GPUs or precisions give a comparison table, and in JSON a list. --html writes a page with layers, operators,
    kernels, host and GPU over time, and memory over the step; of several cases side by side.

    Exit status 1: a step does not fit into device memory. A line on standard error says so before the prediction,
    with the memory that each GPU needs and has.
    """
    from gpusim.api import load_system
    from gpusim.execution.cases import Case
    from gpusim.execution.sweep import predict_all
    from gpusim.report.model_tables import model_tables

    refuse_contradictions(work, sharing)
    replaced = overrides_of(overrides)
    steps = [
        replace(step, sizes={**step.sizes, **({} if batch is None else {"batch": batch})})
        for step in (model_workload(name, one, work, how, sharing) for one in precision or ("",))
        for batch in work.batches
    ]
    translated = steps[0].translates
    generates = work.generate and not translated
    _check_timeline(timeline, steps=0 if generates or translated else len(steps) * len(arch))
    folders = tuple(arch_path or ())
    outputs = GenerationOutputs(plot, prices, html, folders, replaced)
    outputs.refuse_misplaced(generates=bool(generates))
    systems = [(gpu, load_system(gpu, overrides=replaced, arch_path=folders)) for gpu in arch]
    cases = [
        Case(system, replace(step, node=step.node or gpu, arch_path=folders))
        for step in steps
        for gpu, system in systems
    ]
    service = service_of(jobs, no_cache=no_cache)
    if generates:
        _generate(cases, work.generate, service, output, outputs, allow_oom=allow_oom)
        return
    _report_footprints([(case.workload, case.workload.footprint(case.system)) for case in cases])
    with progress_bar("model") as progress:
        results = [one.or_raise() for one in predict_all(cases, service, progress)]
    if timeline is not None:
        _write_timeline(timeline, results[0])
    _emit(output, results, lambda: model_tables(results))
    if html is not None:
        _write_page([("", one) for one in results], folders, replaced, html)
    _refuse_out_of_memory(results, allowed=allow_oom)


def _check_timeline(path: Path | None, *, steps: int) -> None:
    """Refuse a timeline of another number of steps than one.

    Args:
        steps: that are predicted; 0 for a text.
    """
    if path is None:
        return
    if steps != 1:
        refuse(f"--timeline: shows one step{'; name one GPU and precision' if steps else ', and a text takes many'}")
    if not path.parent.is_dir():
        refuse(f"--timeline {path}: no folder {path.parent}")


@dataclass(frozen=True, slots=True)
class GenerationOutputs:
    """What is written of generated tokens, and what that needs."""

    plot: Path | None
    prices: Path | None
    html: Path | None
    folders: tuple[Path, ...]
    replaced: Mapping[str, Any]

    def refuse_misplaced(self, *, generates: bool) -> None:
        """Refuse a plot or prices of what is no text, and a plot of another kind."""
        if not generates and (self.plot or self.prices):
            refuse("--plot, --prices: of generated tokens; give --generate")
        if self.plot is not None and self.plot.suffix.lower() not in PLOTTED:
            refuse(f"--plot {self.plot}: expected a name that ends in {', '.join(PLOTTED)}")

    def hourly(self) -> Mapping[str, float]:
        """Prices by the hour that the file states."""
        from gpusim.studies.prices import read_prices

        if self.prices is None:
            return {}
        found = read_prices(self.prices, self.folders)
        if found.kind != "per_hour":
            refuse(f"--prices {self.prices}: has prices to buy; dollars a million tokens need prices per_hour")
        return found.of_board


def _generate(
    cases: Sequence[Case[Any]],
    count: int,
    service: Service,
    output: str,
    outputs: GenerationOutputs,
    *,
    allow_oom: bool,
) -> None:
    """Predict prompts and so many tokens after each, and print them."""
    from gpusim.execution.cases import Case
    from gpusim.execution.models import GenerationWorkload
    from gpusim.execution.sweep import predict_all
    from gpusim.report.serving_tables import generation_tables
    from gpusim.step.serving import serving_points

    per_hour = outputs.hourly()
    texts = [Case(case.system, GenerationWorkload(case.workload, count)) for case in cases]
    _report_footprints([(one.workload.prompt, one.workload.footprint(one.system)) for one in texts])
    with progress_bar("model") as progress:
        generations = [one.or_raise() for one in predict_all(texts, service, progress)]
    served = serving_points(generations, per_hour)
    _emit(output, served, lambda: generation_tables(served))
    if outputs.plot is not None:
        _draw(served, outputs.plot)
    if outputs.html is not None:
        shown = [pair for one in generations for pair in (("prompt", one.prompt), ("a token", one.tokens[1]))]
        _write_page(shown, outputs.folders, outputs.replaced, outputs.html)
    archs = [one.prompt.step.arch for one in generations]
    refuse_out_of_memory([one.fits for one in generations], "generation", archs, allowed=allow_oom)


def _draw(served: Sequence[ServingPoint], path: Path) -> None:
    from gpusim.figures.serving_plot import draw_serving

    with refusing_file_errors(path, "choose another file with --plot"):
        draw_serving(served, path)
    report_written(path)


def _emit(
    output: str, results: Sequence[ModelResult] | Sequence[ServingPoint], tables: Callable[[], Sequence[TextTable]]
) -> None:
    """Print steps; CSV has no lists of operators."""
    objects = [one.as_dict() for one in results]
    rows = [{name: value for name, value in one.items() if name != "operators"} for one in objects]
    emit_result(output, one_or_list(objects), tables, lambda: rows)


def _report_footprints(needs: Sequence[tuple[ModelWorkload, Footprint]]) -> None:
    """Say on standard error, before the long work, which steps need more memory than their GPU has."""
    for step, memory in needs:
        if not memory.fits:
            each = "the fullest" if step.parallel == "pipeline" else "each"
            where = memory.gpu.name if step.gpus == 1 else f"{each} of {step.gpus} {memory.gpu.name}"
            size = f"{memory.needed_gib:.2f} GiB of {memory.capacity_gib:.4g} GiB"
            print(f"gpusim: {step.model} in {step.policy.precision} needs {size} on {where}", file=sys.stderr)


def _write_timeline(path: Path, result: ModelResult) -> None:
    from gpusim.report.step_events import write_step_timeline

    with refusing_file_errors(path):
        write_step_timeline(path, result)
    report_written(path, "open it at ui.perfetto.dev")


def _write_page(
    results: Sequence[tuple[str, ModelResult]], folders: tuple[Path, ...], replaced: Mapping[str, Any], path: Path
) -> None:
    from gpusim.pages.page import write_page
    from gpusim.pages.step import model_page
    from gpusim.specs import load_spec, with_overrides

    names = dict.fromkeys(one.step.arch for _, one in results)
    specs = {name: with_overrides(load_spec(name, folders), replaced) for name in names}
    write_page(model_page(results, specs, sys.argv[1:]), path)
    report_written(path)


def _refuse_out_of_memory(results: Sequence[ModelResult], *, allowed: bool) -> None:
    refuse_out_of_memory([one.fits for one in results], "step", [one.step.arch for one in results], allowed=allowed)
