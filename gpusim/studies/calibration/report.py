"""What a calibration found: fitted values, errors by table, and what speaks against the fit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.specs.load import Names
from gpusim.studies.calibration.assessment import LeftOut
from gpusim.studies.calibration.fit import Calibration
from gpusim.studies.calibration.observations import GROUP_KINDS, Observation
from gpusim.studies.calibration.search import FloatArray
from gpusim.studies.validation.prediction import Scored

MIN_BIAS = 0.02
"""Smaller moves of a weight are left out of a spec: a feature spans a few units, and the estimates are not as sure."""


LARGE_PCT = 20.0
"""Mean error of rows left out, from which on a fit or its tables are in doubt [%]."""
WORSE = 0.5
"""Rise of a table's mean error that a report names [percent points]."""


@dataclass(frozen=True, slots=True)
class CalibrationSetting:
    """The arguments of a calibration."""

    arch: Path
    """The spec, of a base or a board, whose values are fitted."""
    files: tuple[Path, ...]
    rows_per_table: int
    seed: int
    names: Names
    """Library and host of what is fitted."""
    overheads: str | None = None
    """Stem of the file with the overheads of sources that the fitted ones extend; None if there is none."""


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibration and its rows."""

    setting: CalibrationSetting
    calibration: Calibration
    observed: tuple[Observation, ...]
    unfitted: tuple[Scored, ...]
    """Rows of other operators, which take part in no fit, predicted with the fitted values."""
    sampled_rows: int
    """Number of rows that physical values were fitted to."""
    left_out: Mapping[str, int]
    """Rows that took no part, by reason."""
    tables_sha256: Mapping[str, str]
    resumed: int
    board_names: Mapping[str, str]
    """Names of the boards that took part, by their names in the tables."""

    @property
    def refusals(self) -> list[str]:
        """Reasons against the fit: values that it drives to a limit of their range, and what no board could draw."""
        driven = [
            f"{one.parameter.key_path} is driven to its limit {one.value:g}: the spec or the data miss something"
            for one in self.calibration.fitted
            if one.driven_to_limit
        ]
        return [*driven, *(f"beyond physics: {text}" for text in self.calibration.beyond_physics)]

    @property
    def warnings(self) -> list[str]:
        """Findings to check: values at a limit of their range, larger errors of tables, a fit that moves nothing."""
        at_limit = [
            f"{one.parameter.key_path} ended at its limit {one.value:g}; the spec had {one.parameter.origin}"
            for one in self.calibration.fitted
            if one.at_limit and not one.driven_to_limit
        ]
        return [*at_limit, *self._large_error(), *self._worse_tables(), *self._not_kept(), *self._unmoved()]

    def _large_error(self) -> Iterator[str]:
        """Line that says that rows which the fit had left out are predicted badly, if they are."""
        held_out_pct = _metrics("", self.calibration.held_out)["_mape"]
        if held_out_pct > LARGE_PCT:
            yield (
                f"mean error {held_out_pct:.0f} % on rows that the fit left out: check the columns order, layout, "
                "load, l2 and method of the tables before you use this spec"
            )

    def _unmoved(self) -> Iterator[str]:
        """Line that says that every value is what it was, if no other line says why."""
        outcome = self.calibration
        if outcome.discarded is None and not any(one.settled for one in outcome.fitted):
            yield (
                "no physical value moved: the runs agree with the spec, or are too few or too alike to identify one; "
                "add sizes, data types and states of L2"
            )

    def _not_kept(self) -> Iterator[str]:
        """Line that says that the fit is not kept, if it is not."""
        outcome = self.calibration
        if outcome.discarded is not None:
            was, held_out = (_metrics("", errors)["_mape"] for errors in (outcome.before, outcome.discarded))
            yield (
                f"the fit is not kept: mean error {held_out:.2f} % on rows held out, {was:.2f} % without it; what "
                "microbenchmarks fix stands"
            )

    def _worse_tables(self) -> Iterator[str]:
        """Tables that the fit predicts worse than the one which it replaces did, or the spec if there was none."""
        outcome = self.calibration
        known = outcome.before if outcome.replaced is None else outcome.replaced
        for (table, gpu, dtype, op), places in self._groups().items():
            was, now = (_metrics("", errors[places])["_mape"] for errors in (known, outcome.after))
            if now > was + WORSE:
                yield f"{table}, {op} in {dtype} on {gpu}: mean error {now:.1f} %, {was:.1f} % before this fit"

    @property
    def data_sha256(self) -> str:
        """Common hash of all the tables."""
        return hashlib.sha256("".join(self.tables_sha256.values()).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The report as a JSON object."""
        outcome = self.calibration
        return {
            "arch": self.setting.arch.stem,
            "rows": len(self.observed),
            "sampled_rows": self.sampled_rows,
            "unfitted_rows": len(self.unfitted),
            "left_out": dict(self.left_out),
            "tables": dict(self.tables_sha256),
            "parameters": [
                {
                    "key_path": one.parameter.key_path,
                    "before": one.parameter.value,
                    "kind": one.parameter.kind,
                    "stated": one.parameter.stated,
                    "after": one.value,
                    "low": one.interval[0],
                    "high": one.interval[1],
                    "reason": one.reason,
                    "at_limit": one.at_limit,
                }
                for one in outcome.fitted
            ],
            "bias": dict(outcome.bias[None]),
            "older": {f"cuda_{library}": dict(found) for library, found in outcome.bias.items() if library is not None},
            "errors": self._errors(),
            "without": self._without(),
            "own_timing": self._own_timing(),
            "discarded": None if outcome.discarded is None else _metrics("held_out", outcome.discarded),
            "choices": self._choices(),
            "refusals": self.refusals,
            "warnings": self.warnings,
        }

    def _groups(self) -> dict[tuple[str, ...], list[int]]:
        """The rows of each table, GPU, data type and operator."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, item in enumerate(self.observed):
            row = item.row
            groups.setdefault((Path(row.file).stem, row.gpu, row.dtype.value, row.op), []).append(index)
        return groups

    def _errors(self) -> list[dict[str, Any]]:
        """Errors of each table before and after, and on rows held out of the fit."""
        groups = {**self._groups(), ("all", "", "", ""): list(range(len(self.observed)))}
        outcome = self.calibration
        return [
            {
                **dict(zip(("table", "gpu", "dtype", "op"), key, strict=True)),
                "rows": len(places),
                **_metrics("before", outcome.before[places]),
                **_metrics("after", outcome.after[places]),
                **_metrics("held_out", outcome.held_out[places]),
            }
            for key, places in groups.items()
        ]

    def _choices(self) -> dict[str, Any] | None:
        """How well the heuristic foretells recorded kernels of shapes that were left out."""
        found = self.calibration.choices
        if found is None:
            return None
        agreement = 100 * found.same_kernel_fraction
        return {"rows": found.rows, "log_loss": found.log_loss, "same_kernel_pct": agreement}

    def _without(self) -> list[dict[str, Any]]:
        """Each source and each board as a fit without it predicts it, and all that could be left out together."""
        found = []
        for kind in GROUP_KINDS:
            of_kind = [one for one in self.calibration.left_out if one.kind == kind]
            tested = [one.errors for one in of_kind if one.errors is not None]
            whole = [LeftOut(kind, "all", sum(map(len, tested)), np.concatenate(tested))] if len(tested) > 1 else []
            for one in (*of_kind, *whole):
                metrics = {} if one.errors is None else _metrics("", one.errors)
                found.append(
                    {
                        "kind": one.kind,
                        "name": one.name,
                        "rows": one.rows,
                        **{name: metrics.get(f"_{name}") for name in ("mape", "median_ape", "bias")},
                    }
                )
        return found

    def _own_timing(self) -> list[dict[str, Any]]:
        """Each source's own values, one by one and together, and what they carry of the fit to its rows."""
        found = []
        for one in self.calibration.own_timing:
            with_own, without = (_metrics("", errors)["_mape"] for errors in (one.errors, one.without))
            found.append(
                {
                    "source": one.source,
                    "rows": len(one.errors),
                    "values": [
                        {"key_path": of.key_path, "own_us": of.own_us, "neutral_us": of.neutral_us} for of in one.values
                    ],
                    "share": one.share,
                    "mape_without": without,
                    "mape": with_own,
                }
            )
        return found


def _metrics(when: str, log_errors: FloatArray) -> dict[str, float]:
    errors = 100 * np.abs(np.expm1(log_errors))
    return {
        f"{when}_mape": float(errors.mean()),
        f"{when}_median_ape": float(np.median(errors)),
        f"{when}_bias": 100 * math.expm1(float(np.median(log_errors))),
    }
