"""The report of a validation on whole models: errors by table and by kind of run, speedups between boards, scaling.

No row is dropped silently: one that cannot be predicted is counted as skipped, with its reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from gpusim.confidence import ratio_of
from gpusim.evidence.end_to_end import StepRow
from gpusim.step.model import StepSummary
from gpusim.studies.validation.accuracy import counts, errors, mean_percent, percent, rounded
from gpusim.version import MODEL_VERSION, __version__

STEP_TIMES = "ms/step"
"""Unit of rows that time forward and backward pass alone, from one event to another."""
LARGE_BATCH = 64
"""Inference at smaller batches is judged apart: hosts bind it."""
OTHER_PRECISION = {"tf32": "fp32"}
"""Precision that older GPUs ran where newer GPUs ran the key."""


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """One measured step and its prediction, in the unit of the row."""

    row: StepRow
    parts: tuple[tuple[float, StepSummary], ...]
    """Predictions of its batches by their length, each with its share of the batches."""
    larger_fits: bool | None = None
    """Whether the batch that ran out of memory is predicted to fit; None: the row states none."""

    @property
    def result(self) -> StepSummary:
        """Prediction of the batches that take most of the time."""
        return max(self.parts, key=lambda part: part[0] * part[1].step_ms)[1]

    @property
    def predicted(self) -> float:
        if self.row.unit == STEP_TIMES:
            return sum(share * one.step_ms for share, one in self.parts)
        return 1 / sum(share / one.throughput for share, one in self.parts)

    @property
    def error_fraction(self) -> float:
        """Signed: positive where the predicted value is larger."""
        return self.predicted / self.row.value - 1

    @property
    def longer(self) -> float:
        """Measured over predicted time."""
        return self.row.value / self.predicted if self.row.unit == STEP_TIMES else self.predicted / self.row.value

    @property
    def inside(self) -> bool:
        """Whether the measured value is in the interval of its prediction."""
        timed = self.result.timed
        return timed.contains(self.longer * timed.time_us)


@dataclass(frozen=True, slots=True)
class EndToEndReport:
    """The rows of some tables with their predictions."""

    scored: tuple[ScoredStep, ...]
    skipped: tuple[tuple[StepRow, str], ...]
    """Rows that were skipped, with the reason."""
    sha256: Mapping[str, str]
    """SHA-256 of the files, by name."""

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Predicted and measured value of each row that has a prediction, in the unit of the row."""
        return [(one.predicted, one.row.value) for one in self.scored]

    @property
    def reasons(self) -> list[str]:
        """Why each of the other rows has none."""
        return [reason for _, reason in self.skipped]

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; errors in percent."""
        rows = [*(one.row for one in self.scored), *(row for row, _ in self.skipped)]
        return {
            "gpusim": __version__,
            "model_version": MODEL_VERSION,
            "tables": [self._table(key) for key in sorted(set(map(_table_of, rows)))],
            "overall": self._metrics(lambda _: True),
            "kinds": {name: self._metrics(chosen) for name, chosen in KINDS.items()},
            "groups": {name: self._groups(of) for name, of in GROUPS.items()},
            "layouts": layouts(self.scored),
            "memory": memory(self.scored),
            "speedups": speedups(self.scored),
            "scaling": (found := scaling(self.scored)),
            "scaling_errors": scaling_errors(found),
            "rows": [explained(one) for one in self.scored],
        }

    def _table(self, key: tuple[str, str, str, str, str]) -> dict[str, Any]:
        file, gpu, model, mode, precision = key
        named = {"file": file, "gpu": gpu, "dtype": precision, "sparsity": "dense", "op": f"{model} {mode}"}
        return {**named, "sha256": self.sha256[file], **self._metrics(lambda row: _table_of(row) == key)}

    def _groups(self, of: Callable[[ScoredStep], str]) -> dict[str, Any]:
        """Errors of the rows that have a prediction, by a property; the largest group first."""
        found: dict[str, list[ScoredStep]] = defaultdict(list)
        for one in self.scored:
            if name := of(one):
                found[name].append(one)
        return {
            name: {"rows": len(rows), **errors([one.predicted for one in rows], [one.row.value for one in rows])}
            for name, rows in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        }

    def _metrics(self, chosen: Callable[[StepRow], bool]) -> dict[str, Any]:
        scored = [one for one in self.scored if chosen(one.row)]
        reasons = [reason for row, reason in self.skipped if chosen(row)]
        return {
            **counts(len(scored), reasons),
            **errors([one.predicted for one in scored], [one.row.value for one in scored]),
            "inside_pct": mean_percent([one.inside for one in scored]),
        }


def held_out(row: StepRow) -> bool:
    """Whether a host is fitted to other rows like this one, but not to it.

    Hosts of containers are fitted to throughputs whose number is even; to times between events none is.
    """
    return row.unit != STEP_TIMES and bool(re.search(r"[13579]$", row.id))


KINDS: Mapping[str, Callable[[StepRow], bool]] = {
    "odd ids": held_out,
    "not input-bound": lambda row: not row.input_bound,
    "training, one GPU": lambda row: row.mode == "train" and row.gpus == 1,
    "the same, odd ids": lambda row: row.mode == "train" and row.gpus == 1 and held_out(row),
    "training, several GPUs": lambda row: row.mode == "train" and row.gpus > 1,
    f"inference, batch >= {LARGE_BATCH}": lambda row: row.mode == "inference" and row.batch >= LARGE_BATCH,
    f"inference, batch < {LARGE_BATCH}": lambda row: row.mode == "inference" and row.batch < LARGE_BATCH,
    f"the same, batch < {LARGE_BATCH}, odd ids": lambda row: (
        row.mode == "inference" and row.batch < LARGE_BATCH and held_out(row)
    ),
}
"""Kinds of runs that errors are stated for; a run may be of several."""


def family_of(model: str) -> str:
    """The family of a network: its name up to the first number that is no version.

    >>> family_of("resnetv2_50x1_bit"), family_of("vit_base_patch16_224"), family_of("RegNetY_032")
    ('resnetv2', 'vit', 'regnety')
    """
    found = re.match(r"[a-z]+?(?:v\d)?(?=[\d_-]|$)", model.lower())
    return found[0] if found else model


GROUPS: Mapping[str, Callable[[ScoredStep], str]] = {
    "layout": lambda one: one.row.layout or "",
    "PyTorch": lambda one: one.row.torch or "",
    "limit": lambda one: "host" if one.result.is_host_bound else one.result.bottleneck,
    "family": lambda one: family_of(one.row.model),
}
"""Properties by which errors are stated."""


def layouts(scored: Sequence[ScoredStep]) -> list[dict[str, Any]]:
    """Throughput of NHWC over that of NCHW of runs that are else alike, but for the batch: measured and predicted."""
    found = []
    by_run: dict[tuple[object, ...], dict[str, ScoredStep]] = defaultdict(dict)
    for one in scored:
        if one.row.layout:
            by_run[tuple(getattr(one.row, name) for name in _OF_LAYOUTS)][one.row.layout] = one
    for pair in by_run.values():
        if len(pair) > 1:
            new, old = pair["nhwc"], pair["nchw"]
            measured, predicted = new.row.value / old.row.value, new.predicted / old.predicted
            error = percent(predicted / measured - 1)
            found.append({
                "model": new.row.model,
                "measured": rounded(measured),
                "predicted": rounded(predicted),
                "error_pct": error,
            })  # fmt: skip
    return found


def memory(scored: Sequence[ScoredStep]) -> dict[str, dict[str, Any]]:
    """Steps that ran and that are predicted to fit, and larger batches that ran out of memory and are not.

    By mode; of tables that state the larger batches.
    """
    found = {}
    for mode in ("inference", "train"):
        ran = [one for one in scored if one.row.mode == mode]
        failed = [one.larger_fits for one in ran if one.larger_fits is not None]
        if failed:
            found[mode] = {
                "ran": len(ran),
                "fit_pct": mean_percent([one.result.fits for one in ran]),
                "ran_out": len(failed),
                "do_not_fit_pct": mean_percent([not fits for fits in failed]),
            }
    return found


_OF_LAYOUTS = ("file", "gpu", "gpus", "model", "mode", "precision", "image_size", "torch", "compiled", "unit")


def speedups(scored: Sequence[ScoredStep]) -> list[dict[str, Any]]:
    """Training on one A100 over training on one V100 of the same model, container and batch, measured and predicted."""
    found = []
    older = [one for one in scored if one.row.gpu.startswith("v100")]
    for new in (one for one in scored if one.row.gpu.startswith("a100")):
        for old in older:
            if _alike(new.row, old.row):
                measured, predicted = new.row.value / old.row.value, new.predicted / old.predicted
                ratio = ratio_of(old.result.timed, new.result.timed)
                found.append({
                    "model": new.row.model,
                    "gpu_a": old.row.gpu,
                    "gpu_b": new.row.gpu,
                    "precision_a": old.row.precision,
                    "precision_b": new.row.precision,
                    "batch": new.row.batch,
                    "measured": rounded(measured),
                    "predicted": rounded(predicted),
                    "error_pct": percent(predicted / measured - 1),
                    "inside": ratio.contains(ratio.value * measured / predicted),
                })  # fmt: skip
    return found


def _alike(new: StepRow, old: StepRow) -> bool:
    """Whether two rows on one GPU each train the same, in the precision or in what older boards have for it."""
    same = all(getattr(new, name) == getattr(old, name) for name in ("model", "framework", "batch", "seq_len"))
    precisions = (new.precision, OTHER_PRECISION.get(new.precision))
    return same and old.precision in precisions and (new.mode, old.mode, new.gpus, old.gpus) == ("train", "train", 1, 1)


def scaling(scored: Sequence[ScoredStep]) -> list[dict[str, Any]]:
    """Throughput of several GPUs over as many times that of one, measured and predicted."""
    found = []
    of_several = [many for many in scored if many.row.gpus > 1]
    for one in (one for one in scored if one.row.gpus == 1):
        for many in of_several:
            if _of_one_gpu(one.row) == _of_one_gpu(many.row):
                measured = many.row.value / one.row.value / many.row.gpus
                predicted = many.predicted / one.predicted / many.row.gpus
                found.append({
                    "model": one.row.model,
                    "gpu": one.row.gpu,
                    "gpus": many.row.gpus,
                    "precision": one.row.precision,
                    "batch": one.row.batch,
                    "measured_pct": percent(measured),
                    "predicted_pct": percent(predicted),
                    "points": percent(predicted - measured),
                    "input_bound": many.row.input_bound,
                })  # fmt: skip
    return found


def scaling_errors(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Errors of the scaling in points, over all GPUs and over eight, with and without runs that input binds."""
    chosen = {
        f"{gpus}{rows}": [
            abs(one["points"]) for one in found if count in (0, one["gpus"]) and not (free and one["input_bound"])
        ]
        for gpus, count in (("several GPUs", 0), ("eight GPUs", 8))
        for rows, free in (("", False), (", not input-bound", True))
    }
    return {
        name: {"rows": len(points), "mean_points": rounded(fmean(points)), "largest_points": max(points)}
        for name, points in chosen.items()
        if points
    }


def _of_one_gpu(row: StepRow) -> tuple[object, ...]:
    names = ("gpu", "model", "framework", "mode", "precision", "batch", "seq_len", "unit")
    return tuple(getattr(row, name) for name in names)


def _table_of(row: StepRow) -> tuple[str, str, str, str, str]:
    return row.file, row.gpu, row.model, row.mode, row.precision


def explained(one: ScoredStep) -> dict[str, Any]:
    """One row with its error and the causes of its predicted time."""
    row, result = one.row, one.result
    return {
        "id": row.id,
        "line": row.line,
        "gpu": row.gpu,
        "gpus": row.gpus,
        "model": row.model,
        "mode": row.mode,
        "precision": row.precision,
        "batch": row.batch,
        "unit": row.unit,
        "measured": row.value,
        "predicted": rounded(one.predicted),
        "error_pct": percent(one.error_fraction),
        "idle_pct": percent(result.idle_fraction),
        "clock_mhz": rounded(result.clock_mhz),
        "memory_gib": rounded(result.memory_gib),
        "input_bound": row.input_bound,
        "layout": row.layout,
        "torch": row.torch,
        "family": family_of(row.model),
        "host_pct": percent(result.host_fraction),
        "bottleneck": result.bottleneck,
        "fits": result.fits,
        "unmodelled_pct": percent(result.unmodelled_fraction),
    }
