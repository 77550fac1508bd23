"""Published claims judged by predictions: each run is predicted once, a claim is an expression of their metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpusim.errors import InputError
from gpusim.execution.cases import Case, OperatorCase
from gpusim.execution.journal import journal_in
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all, predict_one
from gpusim.experiment.claims import Claim, ClaimsExperiment
from gpusim.experiment.comparison import Row
from gpusim.expression import METRICS, value_of
from gpusim.files.outputs import check_places, staging, write_csv
from gpusim.progress import Progress, no_progress
from gpusim.studies.manifest import MANIFEST, manifest_inputs, output_files, write_manifest
from gpusim.studies.rows import write_results
from gpusim.studies.run import Counts, Finished


def run_claims(
    experiment: ClaimsExperiment,
    out: Path,
    *,
    service: Service = Service(),
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Finished:
    """Predict every run and judge every claim; write ``results.csv``, ``figures.csv`` and ``manifest.json``.

    Raises:
        SpecError: a run cannot be predicted, or an expression has a metric that its run does not have; with the line.
    """
    inputs = manifest_inputs(experiment, command)
    check_places(out, [MANIFEST, *experiment.output_files()], MANIFEST)
    with journal_in(out) as journal:
        metrics: dict[str, float] = {}
        for name, case in experiment.cases.items():
            try:
                found = journal.once(case, partial(_metrics, case))
            except InputError as error:
                raise experiment.file.error(f"runs.{name}", str(error)) from None
            metrics |= _named(name, found)
        metrics |= _model_metrics(experiment, service, progress)
        rows = [_judged(experiment, index, claim, metrics) for index, claim in enumerate(experiment.content.claims)]
        with staging(out, MANIFEST) as folder:
            write_results(folder, rows)
            write_csv(folder / "figures.csv", [_metric_row(experiment, *one) for one in metrics.items()])
            write_manifest(folder, inputs, {"rows": len(rows)})
    written = tuple(out / name for name in (MANIFEST, *output_files(experiment)))
    return Finished(tuple(rows), (), written, journal.resumed, journal.damaged, Counts(len(rows)))


def _metrics(case: OperatorCase) -> dict[str, Any]:
    """The metrics of the prediction of an operator."""
    return predict_one(case).metrics()


def _model_metrics(experiment: ClaimsExperiment, service: Service, progress: Progress) -> dict[str, float]:
    """The metrics of all predictions of models."""
    cases = {
        name: Case(experiment.specs[name].system, run.model.workload(run.gpu))
        for name, run in experiment.content.runs.items()
        if run.model is not None
    }
    metrics: dict[str, float] = {}
    for name, outcome in zip(cases, predict_all(list(cases.values()), service, progress), strict=True):
        if outcome.result is None:
            raise experiment.file.error(f"runs.{name}", outcome.reason)
        metrics |= _named(name, outcome.result.as_dict())
    return metrics


def _named(run: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among the metrics of a run, as expressions name them."""
    return {f"{run}.{name}": value for name, value in metrics.items() if type(value) in (int, float)}


def _judged(experiment: ClaimsExperiment, index: int, claim: Claim, metrics: dict[str, float]) -> Row:
    """A claim as a row."""
    try:
        value = value_of(claim.predicted, metrics, METRICS)
    except ValueError as error:
        raise experiment.file.error(f"claims.{index}.predicted", str(error)) from None
    measured = claim.measured
    return {
        "claim": claim.claim,
        "published": str(claim.published),
        "measured": str(measured.value) if measured else "",
        "predicted": float(value),
        "unit": claim.unit,
        "meets": claim.outcome(value),
        "tolerance_pct": claim.tolerance_pct,
        "expression": claim.predicted,
        "source": claim.source,
        "measured_source": measured.source if measured else "",
        "note": claim.note,
    }


def _metric_row(experiment: ClaimsExperiment, name: str, value: float) -> Row:
    run, _, metric = name.partition(".")
    return {"run": run, "gpu": experiment.specs[run].gpu.name, "figure": metric, "value": value}
