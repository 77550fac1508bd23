"""Weights of a heuristic that the libraries of all architectures share, each with what it has of its own beside them.

A weight is the sum of a shared one and one of the library; both are drawn to none by the prior of
:mod:`gpusim.studies.calibration.heuristic_bias`, so that what all show is shared. Only the shared ones are kept: each
library's own are for the calibration of its architecture to find.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpusim.studies.calibration.assessment import FOLDS, LEAST_CHANCE
from gpusim.studies.calibration.heuristic_bias import BiasValues, RankedKernels, fit_bias, probabilities
from gpusim.studies.calibration.observations import Observation, shape_folds
from gpusim.studies.calibration.search import FloatArray


@dataclass(frozen=True, slots=True)
class TableScore:
    """How the rows of a table come out, their shapes left out of the fit."""

    table: str
    gpu: str
    dtype: str
    errors: FloatArray
    """Logarithms of predicted over measured time where the kernel was not recorded, of the candidate that is chosen."""
    log_losses: FloatArray
    """Negative log-likelihood of the recorded kernels [nats]."""
    same: FloatArray
    """Whether the most probable choice is on the recorded kernel."""


def shared_weights(rows: Sequence[RankedKernels], libraries: Sequence[str], start: BiasValues) -> BiasValues:
    """The weights that libraries share.

    Args:
        libraries: of each row.
        start: where weights are without evidence.
    """
    fitted = _fit(rows, libraries, start)
    return {name: fitted[name] for name in start}


def scores(
    items: Sequence[Observation], rows: Sequence[RankedKernels], libraries: Sequence[str], start: BiasValues
) -> list[TableScore]:
    """Each table, of GPU and data type, by fits without the third of the shapes that a row belongs to."""
    found: dict[tuple[str, str, str], tuple[list[float], list[float], list[bool]]] = {}
    folds = shape_folds(items, FOLDS)
    for fold in range(FOLDS):
        kept = np.flatnonzero(folds != fold).tolist()
        fitted = _fit([rows[place] for place in kept], [libraries[place] for place in kept], start)
        for place in np.flatnonzero(folds == fold).tolist():
            row, item = _with_own(rows[place], libraries[place]), items[place].row
            errors, losses, same = found.setdefault((Path(item.file).stem, item.gpu, item.dtype.value), ([], [], []))
            chances = probabilities(row, fitted)
            if row.log_errors is None:
                recorded = row.likelihoods > 0
                losses.append(-math.log(chances[recorded].sum() + LEAST_CHANCE))
                same.append(bool(recorded[np.argmax(chances)]))
            else:
                timed = np.isfinite(row.log_errors)
                errors.append(float(row.log_errors[np.argmax(np.where(timed, chances, -1.0))]))
    return [
        TableScore(*key, np.array(errors), np.array(losses), np.array(same))
        for key, (errors, losses, same) in sorted(found.items())
    ]


def _fit(rows: Sequence[RankedKernels], libraries: Sequence[str], start: BiasValues) -> BiasValues:
    """The shared weights, and those of each library under the key path with its name."""
    own = {_own(library, name): 0.0 for library in dict.fromkeys(libraries) for name in start}
    return fit_bias([_with_own(row, one) for row, one in zip(rows, libraries, strict=True)], {**start, **own})


def _with_own(row: RankedKernels, library: str) -> RankedKernels:
    """A row whose charges count for its library too."""
    own: Mapping[str, FloatArray] = {_own(library, name): column for name, column in row.charges.items()}
    return replace(row, charges={**row.charges, **own})


def _own(library: str, name: str) -> str:
    return f"{library}:{name}"
