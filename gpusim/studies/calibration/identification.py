"""Which values the rows tell: those with a narrow interval that no other value can stand in for.

What they do not tell goes back to what the spec assumes, one value at a time, as the others are known better then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.studies.calibration.linear_model import LinearModel, Mask, Places
from gpusim.studies.calibration.parameters import OF_SOURCE, Parameter
from gpusim.studies.calibration.search import FloatArray

KNOWN_FRACTION = 0.9
"""A value whose uncertainty, within the range that physics allows, shrinks by less than this is not identified."""
WIDEST_INTERVAL = 4.0
"""Ratio of the ends of the 95 % interval above which a value is not identified. It ends where physics ends."""
SEEN_AS_ONE = 0.9
"""Correlation of two values, without its sign, from which the rows show only what they are together."""
SIGMAS = 1.96
"""Standard deviations on each side of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Identification:
    """Values that the rows identify, with their uncertainty."""

    values: Mask
    """Mask of the values that the rows identify."""
    reasons: Mapping[str, str]
    """Why the others are not, by key path."""
    sd: FloatArray
    """Standard deviation of the logarithm of each value, the others of them identified."""

    @classmethod
    def of(cls, moving: Sequence[Parameter]) -> Identification:
        """Before there is a fit: all values move."""
        return cls(np.ones(len(moving), dtype=np.bool_), {}, np.array([one.known_sd for one in moving]))


def identify(model: LinearModel, known: Identification) -> Identification:
    """Values that move and that the rows identify."""
    kept, reasons, sd = known.values.copy(), dict(known.reasons), known.sd.copy()
    while kept.any():
        places = np.flatnonzero(kept)
        covariance = model.covariance(kept)
        sd[places] = np.sqrt(np.diag(covariance))
        found = _seen_as_one(model, places, covariance) or _least_known(model, places, sd)
        if found is None:
            break
        place, reason = found
        kept[place] = False
        reasons[model.moving[place].key_path] = reason
    return Identification(kept, reasons, sd)


def contradicted(model: LinearModel, known: Identification) -> Identification:
    """Identified values that the rows contradict: where rows agree with the spec, its value stays."""
    kept, reasons, sd = known.values.copy(), dict(known.reasons), known.sd.copy()
    every = np.ones(len(model.errors), dtype=np.bool_)
    while kept.any():
        places = np.flatnonzero(kept)
        sd[places] = np.sqrt(np.diag(model.covariance(kept)))
        moved = np.abs(model.solved(every, kept)[places]) / sd[places]
        if moved.min() > SIGMAS:
            break
        place = int(places[moved.argmin()])
        kept[place] = False
        reasons[model.moving[place].key_path] = "the runs agree with it"
    return Identification(kept, reasons, sd)


def _least_known(model: LinearModel, places: Places, sd: FloatArray) -> tuple[int, str] | None:
    """The value that the rows tell least of."""
    shares = {int(place): sd[place] / model.moving[place].known_sd for place in places}
    place = max(shares, key=lambda one: shares[one])
    if shares[place] >= KNOWN_FRACTION:
        return place, "not identifiable from this data"
    widths = {int(place): _width(model.moving[place], model.at[place], sd[place]) for place in places}
    place = max(widths, key=lambda one: widths[one])
    if widths[place] > WIDEST_INTERVAL:
        return place, f"known within a factor of {widths[place]:.1f} only"
    return None


def _width(one: Parameter, move: float, sd: float) -> float:
    """Ratio of the ends of the 95 % interval, within the range that physics allows."""
    return math.exp(min(move + SIGMAS * sd, one.high_move) - max(move - SIGMAS * sd, one.low_move))


def _seen_as_one(model: LinearModel, places: Places, covariance: FloatArray) -> tuple[int, str] | None:
    """One of the two values that the rows tell apart least.

    What one source alone shows is the way of timing of that source; of two others, the less known stays as assumed.
    """
    sd = np.sqrt(np.diag(covariance))
    correlation = np.abs(covariance / np.outer(sd, sd) - np.eye(len(sd)))
    first, second = np.unravel_index(int(correlation.argmax()), correlation.shape)
    if correlation[first, second] < SEEN_AS_ONE:
        return None
    names = [model.moving[places[one]].key_path for one in (first, second)]
    of_source = [name.startswith(OF_SOURCE) for name in names]
    fixed = of_source.index(False) if any(of_source) and not all(of_source) else int(sd[second] > sd[first])
    return int(places[(first, second)[fixed]]), f"the runs show it only together with {names[1 - fixed]}"
