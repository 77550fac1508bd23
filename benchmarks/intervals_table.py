"""How many measured values are in the intervals of their predictions, eight in ten of which should be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from models_table import without_fitted_host
from sections import row

from gpusim.confidence import Ratio, Timed, family_of, ratio_of
from gpusim.studies.validation.prediction import Scored
from gpusim.studies.validation.report import ValidationReport
from gpusim.studies.validation.step_report import EndToEndReport, ScoredStep, speedups

FAMILIES = {"product": "matrix products", "convolution": "convolutions", "vector": "vector operators"}


def intervals_table(
    report: ValidationReport, published: ValidationReport | None, steps: Mapping[Path, EndToEndReport]
) -> str:
    """Shares of measured values inside, by what is predicted, as Markdown.

    Args:
        report: of rows left out of sources that fits have seen.
        published: of figures of other sources.
        steps: of whole models.
    """
    lines = [row(("measured", "values", "inside", "median half-width")), "|---|---:|---:|---:|"]
    for family, name in FAMILIES.items():
        lines += _rows_line(f"{name}, sources that fits have seen", _of_family(report.scored, family))
    if published:
        lines += _rows_line("matrix products, other sources", _of_family(published.scored, "product"))
    if report.speedups:
        pairs = report.speedups.pairs
        ratios = [ratio_of(pair.first.result.timed, pair.second.result.timed) for pair in pairs]
        title = f"speedup of {report.speedups.gpu_b} over {report.speedups.gpu_a}"
        lines += _line(title, [pair.inside for pair in pairs], [_half(one) for one in ratios])
    for file, one in steps.items():
        free = [step for step in one.scored if without_fitted_host(step.row)]
        fitted = [step for step in one.scored if not without_fitted_host(step.row)]
        lines += _line(f"steps, {file.stem}, no host fitted to them", *_of_steps(free))
        lines += _line(f"steps, {file.stem}, hosts fitted to them", *_of_steps(fitted))
        of_pairs = [bool(pair["inside"]) for pair in speedups(one.scored)]
        lines += _line(f"speedups of A100 over V100 in training, {file.stem}", of_pairs, [])
    return "\n".join(lines) + "\n"


def _of_family(scored: Iterable[Scored], family: str) -> list[Scored]:
    return [one for one in scored if one.row.operator and family_of(one.row.operator) == family]


def _rows_line(name: str, scored: Sequence[Scored]) -> list[str]:
    return _line(name, [bool(one.inside) for one in scored], [_half(one.result.timed) for one in scored])


def _of_steps(scored: Sequence[ScoredStep]) -> tuple[list[bool], list[float]]:
    return [one.inside for one in scored], [_half(one.result.timed) for one in scored]


def _half(one: Timed | Ratio) -> float:
    """Half the width of an interval, over the prediction."""
    value, low, high = one[-3:]
    return (float(high or value) - float(low or value)) / (2 * float(value or 1.0))


def _line(name: str, inside: Sequence[bool], halves: Sequence[float]) -> list[str]:
    if not inside:
        return []
    width = f"{100 * median(halves):.0f} %" if halves else ""
    return [row((name, str(len(inside)), f"{100 * sum(inside) / len(inside):.0f} %", width))]
