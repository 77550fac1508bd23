"""What worker processes do: predictions, each for one board, and the page to keep."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpusim.execution.cases import OperatorWorkload, naming
from gpusim.execution.models import ModelWorkload
from gpusim.execution.store import shared_store
from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.pages.page import page_text
from gpusim.pages.what_if import Side, what_if_page
from gpusim.progress import Progress
from gpusim.sim.drivers.choice import has_numba, prefer_compiled
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.studies.what_if import BoardPrediction, predict_on, variant_yaml
from gpusim.studies.workload import GpuVariant, Workload
from gpusim.workloads.short_form import operator_of

REPORT_EVERY_S = 0.1
Report = Callable[[object], None]
"""Tells the server how far a task is; raises an error where nobody waits for it any more."""


@dataclass(frozen=True, slots=True)
class Predict:
    """A prediction to make."""

    workload: Workload
    board: GpuVariant
    cache: bool
    """Whether launches of steps are remembered on disk."""


@dataclass(frozen=True, slots=True)
class Write:
    """A page to write."""

    workload: str
    sides: tuple[Side, ...]
    boards: tuple[GpuVariant, ...]


def warm_up(_report: Report, board: GpuVariant) -> None:
    """Load what predictions need, so that the first one is as quick as others."""
    if has_numba():
        prefer_compiled()
    _ = predict_on(OperatorWorkload(operator_of("gemm:512x512x512:fp16")), board, simulate)


def predict(report: Report, task: Predict) -> BoardPrediction:
    """Predict a workload on a board. A step is reported with its time before it is found what would help."""
    with naming(f"{task.workload} on {task.board.arch}"):
        if not isinstance(task.workload, ModelWorkload):
            return predict_on(task.workload, task.board, simulate)
        store = shared_store(disk=task.cache)
        counted = _Counted(store.simulate, report)
        report(predict_on(task.workload, task.board, counted, limits=False))
        found = predict_on(task.workload, task.board, counted)
        store.flush()
        return found


class _Counted:
    """Simulates launches, and reports how many there were."""

    def __init__(self, simulate: Callable[..., LaunchOutcome], report: Report) -> None:
        self._simulate, self._report = simulate, report
        self._launches, self._reported_s = 0, 0.0

    def __call__(
        self, machine: Machine, launch: Launch, detail: str = "sampled", progress: Progress | None = None
    ) -> LaunchOutcome:
        self._launches += 1
        now_s = time.monotonic()
        if now_s - self._reported_s > REPORT_EVERY_S:
            self._report(self._launches)
            self._reported_s = now_s
        return self._simulate(machine, launch, detail, progress)


def write(_report: Report, task: Write) -> str:
    """The text of a page."""
    specs = [board.spec for board in task.boards]
    files: dict[str, Any] = {
        f"{board.arch.lower()}-changed.yaml": variant_yaml(board.spec, f"{board.arch} changed")
        for board in task.boards
        if board.overrides
    }
    return page_text(what_if_page(task.workload, task.sides, specs, files))
