"""How far a fit carries beyond the rows it was made of: without a part of them, without a source, without a board."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gpusim.record import record_key
from gpusim.studies.calibration.heuristic_bias import probabilities
from gpusim.studies.calibration.linear_model import LinearModel, Mask, Places
from gpusim.studies.calibration.observations import GROUP_KINDS, GroupKind, groups, shape_folds
from gpusim.studies.calibration.parameters import OF_SOURCE, STALL_OF_SOURCE
from gpusim.studies.calibration.row_kernels import LibraryBias, RowKernels, RowOptions
from gpusim.studies.calibration.search import FloatArray, Log

FOLDS = 3
"""Folds of the cross-validation by rows: every fit keeps two thirds of them."""
LEAST_CHANCE = 1e-9
"""Added to the probability of a recorded kernel, so that one which the heuristic rules out costs 21 nats, not all."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A source or a board, and how a fit without it predicts it."""

    kind: GroupKind
    name: str
    rows: int
    errors: FloatArray | None
    """Logarithms of predicted over measured time; None where nothing remains to fit to."""


@dataclass(frozen=True, slots=True)
class OwnValue:
    """A value of the host that holds for the runs of one source alone."""

    key_path: str
    own_us: float
    neutral_us: float
    """What a run without a source has in its place: the timing method's common value, or no stall."""


@dataclass(frozen=True, slots=True)
class OwnTiming:
    """Effect of a source's own timing values on the fit to its rows."""

    source: str
    values: tuple[OwnValue, ...]
    """One of the source's values, or all of them; none where the source has none."""
    share: float
    """Median share of the predicted time by which they change a prediction."""
    without: FloatArray
    """Logarithms of predicted over measured time with the neutral values in their place."""
    errors: FloatArray
    """Logarithms of predicted over measured time with values of its own."""


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """How well a heuristic foretells recorded kernels, their shapes left out of its fit."""

    rows: int
    log_loss: float
    """Mean of the negative logarithm of the probability of the recorded kernel, whatever its split [nats]."""
    same_kernel_fraction: float
    """Rows whose most probable choice is on the recorded kernel."""


class Refit:
    """Fits without some rows: physical values by the linear model, then the bias by new times, then predictions.

    Args:
        model: of all rows, around their fit.
        values: those that take part.
        places: the row of each reading of the model.
        bias: of all fits; if None, each has its own.
    """

    def __init__(
        self, kernels: RowKernels, model: LinearModel, values: Mask, places: Places, bias: LibraryBias | None = None
    ) -> None:
        self._kernels = kernels
        self._model = model
        self._values = values
        self._places = places
        self._bias = bias

    def of_nothing(self, bias: LibraryBias) -> Refit:
        """A refit in which no value moves, with one bias whatever is left out."""
        return Refit(self._kernels, self._model, np.zeros_like(self._values), self._places, bias)

    def held_out(self, options: Mapping[int, RowOptions]) -> FloatArray:
        """Errors of all rows, each by a fit without the third of the rows that it belongs to.

        Args:
            options: of all rows and records, under the values fitted to all of them: a third of the rows moves these
                too little to time the candidates again.
        """
        count = len(self._kernels.rows)
        errors = np.zeros(count)
        for fold in range(FOLDS):
            out = (np.arange(len(options)) % FOLDS == fold) & (np.arange(len(options)) < count)
            errors[out[:count]] = self._without(out, options)
        return errors

    def left_out(self, log: Log) -> list[LeftOut]:
        """Errors of each source and each board in a fit without it."""
        found = []
        known: dict[bytes, FloatArray] = {}  # often a source is all that ran on a board
        for kind in GROUP_KINDS:
            for name, out in groups(self._kernels.items, kind).items():
                rows = out[: len(self._kernels.rows)]
                if not rows.any():
                    continue  # nothing but records
                if out.tobytes() not in known and not rows.all():
                    known[out.tobytes()] = self._without(out)
                errors = known.get(out.tobytes())
                log(f"without {kind} {name}: {'nothing remains' if errors is None else summary(errors)}")
                found.append(LeftOut(kind, name, int(rows.sum()), errors))
        return found

    def choices(self, options: Mapping[int, RowOptions]) -> ChoiceScore | None:
        """Score of the choices of recorded kernels, each by a fit without the third of the shapes that has it."""
        folds = shape_folds(self._kernels.items, FOLDS)
        scores = []
        for fold in range(FOLDS):
            bias = self._fitted_bias({place: one for place, one in options.items() if folds[place] != fold})
            for place in np.flatnonzero(folds == fold).tolist():
                row = options[place].ranked
                if row.log_errors is None:
                    chances = probabilities(row, self._kernels.bias_at(place, bias))
                    same = row.likelihoods > 0
                    scores.append((-math.log(chances[same].sum() + LEAST_CHANCE), bool(same[np.argmax(chances)])))
        if not scores:
            return None
        log_loss, agreement = np.mean(scores, axis=0)
        return ChoiceScore(len(scores), float(log_loss), float(agreement))

    def _without(self, out: Mask, options: Mapping[int, RowOptions] | None = None) -> FloatArray:
        """Errors of the rows that a fit leaves out, of all items that are out.

        If no options are given, the candidates of the others are timed again: of rows that physical values are fitted
        to, and of those with a recorded kernel, which need no time.
        """
        theta = self._model.solved(~out[self._places], self._values)
        if options is None and self._bias is None:
            fitted = {
                *self._places.tolist(),
                *(place for place, item in enumerate(self._kernels.items) if item.row.kernel),
            }
            options = self._kernels.options(theta, sorted(fitted - set(np.flatnonzero(out).tolist())))
        bias = self._fitted_bias({place: one for place, one in (options or {}).items() if not out[place]})
        return self._kernels.errors_as_chosen(theta, bias, np.flatnonzero(out[: len(self._kernels.rows)]).tolist())

    def _fitted_bias(self, options: Mapping[int, RowOptions]) -> LibraryBias:
        return self._kernels.fitted_bias(options) if self._bias is None else self._bias


def own_timings(kernels: RowKernels, theta: FloatArray, bias: LibraryBias) -> Iterator[OwnTiming]:
    """What each source's own values carry of the fit: one by one and, of several, all together."""
    fitted = kernels.values(theta)
    for source, mask in groups(kernels.rows, "source").items():
        places = np.flatnonzero(mask).tolist()
        own = _own_values(kernels, theta, places[0])
        taken = [*((one,) for one in own), *([own] if len(own) > 1 else [])]
        trials = [tuple({**dict(fitted), **{one.key_path: one.neutral_us for one in of}}.items()) for of in taken]
        log_times = kernels.log_times_at(kernels.chosen(theta, bias, places), [fitted, *trials])
        errors = log_times - kernels.measured[mask][:, None]
        if not own:
            yield OwnTiming(source, (), 0.0, errors[:, 0], errors[:, 0])
        for number, of in enumerate(taken, start=1):
            share = float(np.median(np.abs(np.expm1(log_times[:, number] - log_times[:, 0]))))
            yield OwnTiming(source, of, share, errors[:, number], errors[:, 0])


def _own_values(kernels: RowKernels, theta: FloatArray, place: int) -> tuple[OwnValue, ...]:
    """The values of a source's own, one of whose rows is at ``place``, that differ from what others have."""
    row, measured = kernels.rows[place].row, kernels.measured_at(theta, place)
    harness = measured.overheads.harness(row.source)
    common_us = measured.system.host.timing_us(row.method)
    timing_us = common_us if harness.added_us is None else harness.added_us
    # Only calls of a stream wait for what the source does beside them.
    stall_us = harness.stall_us if row.method == "stream" else 0.0
    key = record_key(row.source)
    values = (
        OwnValue(f"{OF_SOURCE}{key}", timing_us, common_us),
        OwnValue(f"{STALL_OF_SOURCE}{key}", stall_us, 0.0),
    )
    return tuple(one for one in values if one.own_us != one.neutral_us)


def summary(log_errors: FloatArray) -> str:
    """Errors in a few words."""
    errors = np.abs(np.expm1(log_errors))
    return f"MAPE {100 * errors.mean():.1f} %, median {100 * np.median(errors):.1f} %"
