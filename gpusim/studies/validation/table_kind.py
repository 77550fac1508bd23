"""What a kind of measured tables is to a validation: how it is known, predicted, and reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gpusim.execution.service import Service
from gpusim.progress import Progress, no_progress
from gpusim.report.text_table import TextTable


@dataclass(frozen=True, slots=True)
class Request:
    """What a validation is asked for; a kind of tables reads a part of it."""

    service: Service = Service()
    arch_path: Sequence[Path] = ()
    progress: Progress = no_progress
    detail: str = "sampled"
    pair: tuple[str, str] | None = None
    """GPUs whose speedups are scored too, that of the second over the first."""
    overheads: Mapping[str, float] = field(default_factory=dict)
    """Host time in the readings, by timing method [us], in place of the spec's."""
    out: Path | None = None
    """Folder to write rows, report and plots to."""
    by_stratum: bool = False
    """Whether errors by range of m and by memory or compute bound are printed."""
    model_path: Sequence[Path] = ()
    """Folders of model files, by the names that tables give models."""
    more: bool = False
    """Whether more statistics, and single rows, are printed."""


class Report(Protocol):
    """Measured rows of one kind beside their predictions. No row is dropped: one without a prediction has a reason."""

    @property
    def pairs(self) -> Sequence[tuple[float, float]]:
        """Predicted and measured value of each row that has a prediction, both in the unit of the row."""

    @property
    def reasons(self) -> Sequence[str]:
        """Why each of the other rows has none."""

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object; errors in percent."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The report on tables of one kind, and the messages to the user beside it."""

    report: Report
    files: tuple[Path, ...] = ()
    """Files written."""
    resumed: int = 0
    """Number of predictions resumed from a journal."""
    damaged: int = 0
    """Number of damaged records of that journal."""
    remarks: tuple[str, ...] = ()
    """Lines on what looks wrong in a table."""


@dataclass(frozen=True, slots=True)
class TableKind:
    """Kind of measured tables."""

    name: str
    """Name of what the rows measure, in the plural."""
    known_by: tuple[frozenset[str], ...]
    """Sets of columns, one of which its tables have; the kind without any takes what no other knows."""
    reads: frozenset[str]
    """Options that its validation reads, of those that not all do."""
    validate: Callable[[Sequence[Path], Request], Validated]
    """Predicts every row of some tables.

    Raises:
        InputError: a table breaks its schema, or a spec is wrong.
        OSError: a file cannot be written.
    """
    tables: Callable[[Mapping[str, Any], Request], list[TextTable]]
    """Function from a report's JSON object to the tables that are printed."""

    def knows(self, columns: frozenset[str]) -> bool:
        """Whether a table with these columns is of this kind."""
        return not self.known_by or any(own <= columns for own in self.known_by)
