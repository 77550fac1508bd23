"""What is said of boards that are calibrated on nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpusim.report.text_table import TextTable

if TYPE_CHECKING:
    from gpusim.prediction.results import Result
    from gpusim.specs import Spec
    from gpusim.step.model import ModelResult


def uncalibrated_text(board: str) -> str:
    """What is said of a board that is calibrated on nothing."""
    return (
        f"{board} is not calibrated: its values were fitted to no measured run, of it or of another board of its "
        "architecture, and how far its times are off is not known."
    )


def uncalibrated(results: Iterable[Result | ModelResult]) -> list[str]:
    """Boards of predictions that are calibrated on nothing."""
    return list(dict.fromkeys(one.timed.board for one in results if one.calibrated_on == "nothing"))


def uncalibrated_specs(specs: Iterable[Spec]) -> list[str]:
    """Boards that are calibrated on nothing."""
    return list(dict.fromkeys(one.gpu.name for one in specs if one.system.calibrated_on == "nothing"))


def uncalibrated_tables(boards: Sequence[str]) -> list[TextTable]:
    """A table with a sentence for each board that is calibrated on nothing, if there are any."""
    rows = tuple((uncalibrated_text(board),) for board in boards)
    return [TextTable("Notes", ("note",), rows)] if rows else []
