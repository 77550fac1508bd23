"""An explanation as tables: parts, the comparison with another board, sensitivities, advice."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpusim.prediction.results import Result
from gpusim.report.calibration_notes import uncalibrated, uncalibrated_tables
from gpusim.report.formatting import interval_text, ratio_text, time_text
from gpusim.report.limit_text import limit_text
from gpusim.report.text_table import TextTable
from gpusim.studies.explain.explanation import Explanation
from gpusim.studies.explain.parts import meaning_of
from gpusim.studies.explain.sensitivities import FACTORS, Sensitivity, limit_saving

if TYPE_CHECKING:
    from gpusim.step.model import ModelResult

DOUBLED = FACTORS[-1]
LEAST_SHARE = 0.0005
"""Fraction of the time below which tables sum parts up. JSON has all."""


def explanation_tables(found: Explanation, workload: str) -> list[TextTable]:
    """Tables of an explanation that have rows."""
    tables = [parts_table(found, workload)]
    if found.to is not None:
        tables.append(differences_table(found))
    if found.sensitivities:
        tables.append(sensitivities_table(found))
    if found.advice:
        tables.append(advice_table(found))
    results = [one.result for one in (found.of, found.to) if one is not None]
    return [*tables, *uncalibrated_tables(uncalibrated(results))]


def explanation_rows(found: Explanation, workload: str) -> list[dict[str, Any]]:
    """A row for each part of the time; beside another board, with its time there."""
    about = {"workload": workload, "arch": found.of.arch, "overrides": dict(found.of.result.overrides)}
    if found.to is None:
        return [{**about, **asdict(part)} for part in found.parts]
    return [{**about, "to": found.to.arch, **asdict(one)} for one in found.differences]


def parts_table(found: Explanation, workload: str) -> TextTable:
    """Table of the parts of the time; the last line is their sum."""
    shown = [part for part in found.parts if abs(part.share) >= LEAST_SHARE]
    rows = [(part.name, time_text(part.us), f"{100 * part.share:.1f}", meaning_of(part.name)) for part in shown]
    if rest_us := found.total_us - sum(part.us for part in shown) if len(shown) < len(found.parts) else 0.0:
        rows.append(("others", time_text(rest_us), f"{100 * rest_us / found.total_us:.1f}", ""))
    interval = interval_text(*found.of.interval)
    rows.append(("all", time_text(found.total_us), "100.0", interval and f"8 in 10 runs: {interval}"))
    result = found.of.result
    title = f"{workload} on {found.of.gpu}" if isinstance(result, Result) else _step_title(result)
    return TextTable(title, ("part", ">time", ">%", "what happens"), tuple(rows))


def _step_title(result: ModelResult) -> str:
    from gpusim.report.model_tables import step_title  # noqa: PLC0415 -- of models alone

    return step_title(result)


def differences_table(found: Explanation) -> TextTable:
    """The parts on two boards, and what each makes up of the difference."""
    assert found.to is not None
    least_us = LEAST_SHARE * max(found.total_us, found.to.total_us)
    rows = [
        (one.name, time_text(one.us), time_text(one.to_us), _signed(one.difference_us), f"{100 * one.share:.1f}")
        for one in found.differences
        if abs(one.difference_us) >= least_us
    ]
    saved_us = found.total_us - found.to.total_us
    saved = f"{100 * saved_us / found.total_us:.1f}"
    rows.append(("all", time_text(found.total_us), time_text(found.to.total_us), _signed(saved_us), saved))
    interval = interval_text(*found.to.interval)
    speedup = ratio_text(*found.speedup)
    title = f"{found.to.gpu} is {speedup} times as fast as {found.of.gpu}: what makes up the difference"
    if interval:
        title += f" (8 in 10 runs on {found.to.gpu}: {interval})"
    headings = ("part", f">{found.of.gpu}", f">{found.to.gpu}", ">saved", f">% of {found.of.gpu}")
    return TextTable(title, headings, tuple(rows))


def sensitivities_table(found: Explanation) -> TextTable:
    """The time with each resource better, over the time as it is."""
    changes: dict[str, dict[float, Sensitivity]] = {}
    for one in found.sensitivities:
        changes.setdefault(one.resource, {})[one.factor] = one
    rows = [
        (
            name,
            *(f"{by[factor].time_ratio:.3f}" if factor in by else "-" for factor in FACTORS),
            f"{by[DOUBLED].time_ratio_p10:.2f} to {by[DOUBLED].time_ratio_p90:.2f}" if DOUBLED in by else "-",
        )
        for name, by in changes.items()
    ]
    title = f"Relative time if one resource improves{_limit(found)}"
    return TextTable(title, ("resource", ">10 % better", ">doubled", "8 in 10 such boards"), tuple(rows))


def _limit(found: Explanation) -> str:
    """What limits an operator."""
    result = found.of.result
    if not isinstance(result, Result) or not result.utilization.savings:
        return ""
    return f"; the limit is {limit_text(result, limit_saving(result, found.sensitivities))}"


def advice_table(found: Explanation) -> TextTable:
    """Table of changes that would make the workload faster on the same GPU."""
    rows = tuple(
        (one.text, time_text(one.total_us), time_text(one.gain_us), f"{one.speedup:.2f}") for one in found.advice
    )
    return TextTable("Predicted to be faster on the same GPU", ("change", ">time", ">gain", ">speedup"), rows)


def _signed(time_us: float) -> str:
    return f"-{time_text(-time_us)}" if time_us < 0 else time_text(time_us)
