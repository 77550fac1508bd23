"""Figures of a benchmark, and their comparison with a baseline.

A metric is compared by its cost, which does not depend on how fast or how busy the machine is: CPU time in calibration
loops, bytes, or a ratio of two times. Wall times and rates that depend on the machine are printed only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from pydantic import TypeAdapter

from gpusim.report.text_table import TextTable

TOLERANCE = 0.25
"""Largest increase of a cost that raises no alarm. Six repeats on two cores that seven to sixteen processes shared
differed by 4 to 18 %, and a load of 11 from one of 5 by up to 18 %, as other programs fill the caches."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One result of a benchmark."""

    name: str
    value: float
    unit: str
    cost: float | None = None
    """Less is better, and the machine does not matter; None: not compared."""

    @property
    def text(self) -> str:
        """The value with three digits, and its unit.

        >>> Metric("rate", 1234.5, "shapes/s").text, Metric("time", 0.01234, "ms").text
        ('1,234 shapes/s', '0.0123 ms')
        """
        digits = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"
        return f"{digits} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Results:
    """What a sweep reports of its results."""

    compared: int
    """Results compared byte for byte with those of one prediction at a time."""
    differing: int
    """Compared results that differ."""
    sha256: str
    """Hash of the times of all shapes."""
    detail: str = "sampled"
    """Level of detail of the sweep."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one script of the benchmark prints, as JSON."""

    metrics: tuple[Metric, ...]
    results: Results | None = None

    def json(self) -> str:
        return _MEASURED.dump_json(self).decode()

    @classmethod
    def of_json(cls, text: bytes) -> Self:
        return _MEASURED.validate_json(text)  # type: ignore[return-value]


_MEASURED = TypeAdapter(Measured)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric beside the baseline."""

    metric: Metric
    baseline_cost: float | None
    """None: the baseline has no such metric."""

    @property
    def change(self) -> float | None:
        """Relative change of the cost since the baseline; None where one of them is unknown."""
        if self.metric.cost is None or self.baseline_cost is None:
            return None
        return self.metric.cost / self.baseline_cost - 1

    @property
    def slower(self) -> bool:
        """Whether the cost has grown by more than the tolerance."""
        return self.change is not None and self.change > TOLERANCE


def compared(metrics: Iterable[Metric], baseline: Mapping[str, float]) -> list[Comparison]:
    """Each metric beside its cost in a baseline."""
    return [Comparison(metric, baseline.get(metric.name)) for metric in metrics]


def better_of(first: Iterable[Metric], second: Iterable[Metric]) -> tuple[Metric, ...]:
    """The cheaper of two measurements of each metric.

    Noise makes one of two measurements slow, a regression both.
    """
    return tuple(min(pair, key=lambda metric: metric.cost or 0.0) for pair in zip(first, second, strict=True))


def costs(metrics: Iterable[Metric]) -> dict[str, float]:
    """What a baseline holds: the cost by name."""
    return {metric.name: metric.cost for metric in metrics if metric.cost is not None}


def comparison_table(title: str, comparisons: Iterable[Comparison]) -> TextTable:
    """Figure, value, cost now and in the baseline, change."""
    rows = tuple(
        (
            one.metric.name,
            one.metric.text,
            _digits(one.metric.cost),
            _digits(one.baseline_cost),
            "" if one.change is None else f"{100 * one.change:+.0f} %",
            "slower" if one.slower else "",
        )
        for one in comparisons
    )
    return TextTable(title, ("metric", ">value", ">cost", ">baseline", ">change", "verdict"), rows)


def _digits(value: float | None) -> str:
    """A cost with four digits; empty for None."""
    return "" if value is None else f"{value:.4g}"
