"""Speedups of whole models between two GPUs, beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpusim import figures
from gpusim.confidence import ratio_of
from gpusim.execution.cases import Case
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.experiment.comparison import Row
from gpusim.experiment.model_speedups import ModelSpeedups, SpeedupCase
from gpusim.files.outputs import check_places, output_folder, staging
from gpusim.progress import Progress, no_progress
from gpusim.step.model import ModelResult
from gpusim.studies.manifest import MANIFEST, manifest_inputs, output_files, write_manifest
from gpusim.studies.rows import write_results
from gpusim.studies.run import Counts, Finished


def run_model_speedups(
    experiment: ModelSpeedups,
    out: Path,
    *,
    arch_path: Sequence[Path] = (),
    service: Service = Service(),
    command: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Finished:
    """Predict every model on both GPUs; write ``results.csv``, ``manifest.json`` and the plot.

    Raises:
        SpecError: a model cannot be predicted; the text names its line.
    """
    inputs = manifest_inputs(experiment, command)
    check_places(out, [MANIFEST, *experiment.output_files()], MANIFEST)
    cases = list(experiment.cases())
    asked = [
        Case(experiment.specs[gpu].system, replace(run.workload(gpu), arch_path=tuple(arch_path)))
        for case in cases
        for run, gpu in zip(case.runs, case.boards, strict=True)
    ]
    with output_folder(out):
        outcomes = iter(predict_all(asked, service, progress))
        rows = []
        for case in cases:
            pair = [next(outcomes), next(outcomes)]
            results = [outcome.result for outcome in pair if outcome.result]
            if len(results) < len(pair):
                raise experiment.file.error(f"models.{case.entry}", pair[0].reason or pair[1].reason)
            rows.append(_row(case, *results))
        with staging(out, MANIFEST) as folder:
            write_results(folder, rows)
            figures.draw_model_speedups(experiment.content.title, rows, folder / experiment.output_files()[-1])
            write_manifest(folder, inputs, {"rows": len(rows)})
    written = tuple(out / name for name in (MANIFEST, *output_files(experiment)))
    return Finished(tuple(rows), (), written, 0, 0, Counts(len(rows)))


def _row(case: SpeedupCase, baseline: ModelResult, other: ModelResult) -> Row:
    """A comparison as a row."""
    measured, claimed = case.measured, case.claimed
    speedup = other.throughput / baseline.throughput
    time_ratio = ratio_of(baseline.timed, other.timed)
    low, high = (speedup * (end or time_ratio.value) / time_ratio.value for end in (time_ratio.low, time_ratio.high))
    return {
        "label": case.model.label,
        "model": case.model.model,
        "mode": case.model.mode,
        "baseline": baseline.step.arch,
        "gpu": other.step.arch,
        "gpus": case.gpus,
        "container": case.model.script.container,
        "baseline_precision": case.precisions[0],
        "precision": case.precisions[1],
        "batch": other.graph.sizes["batch"],
        "baseline_throughput": baseline.throughput,
        "throughput": other.throughput,
        "unit": other.unit,
        "speedup": speedup,
        "speedup_p10": low,
        "speedup_p90": high,
        "measured_speedup": measured.speedup if measured else "",
        "error_pct": 100 * (speedup / measured.speedup - 1) if measured else "",
        "claimed_speedup": claimed.speedup if claimed else "",
        "baseline_step_ms": baseline.step_ms,
        "step_ms": other.step_ms,
        "baseline_tensor_active_pct": baseline.tensor_active_pct,
        "tensor_active_pct": other.tensor_active_pct,
        "baseline_fits": baseline.fits,
        "fits": other.fits,
        "measured_source": measured.source if measured else "",
        "claimed_source": claimed.source if claimed else "",
    }
