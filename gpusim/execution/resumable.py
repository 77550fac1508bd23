"""A sweep whose results are kept in a journal: an interrupted one predicts only what it had not finished.

Neither cases nor results are held in memory: cases are generated anew each time that they are needed, and of each
result its place in the journal is known.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Generic

from pydantic import TypeAdapter

from gpusim.execution.cases import CaseResult, Kept, OperatorCase
from gpusim.execution.journal import Journal, key_of
from gpusim.execution.service import Service
from gpusim.execution.sweep import SweepSize, sweep_numbered, whole
from gpusim.prediction.results import Result, field_kinds
from gpusim.system import System

MISSING = -1
"""Place of a result that is not in the journal."""


@dataclass(frozen=True, slots=True)
class ResultForm(Generic[Kept]):
    """What is kept of each result."""

    keep: Callable[[Result], Kept]
    """A function of a module, called in the process that predicted the result."""
    names: tuple[str, ...]
    """Names of what is kept: part of the key, so that a gpusim that keeps something else predicts again."""
    json: TypeAdapter[CaseResult[Kept]]
    """How the journal writes it."""


WHOLE = ResultForm(whole, tuple(field_kinds()), TypeAdapter(CaseResult[Result]))
"""The form that keeps the whole result."""


class ResumableSweep(Generic[Kept]):
    """The results of cases by index: those that the journal has, and those that :meth:`predict` adds to it.

    Args:
        cases: Gives the same cases each time that it is called.
    """

    def __init__(self, cases: Callable[[], Iterable[OperatorCase]], form: ResultForm[Kept], journal: Journal) -> None:
        self._cases = cases
        self._form = form
        self._journal = journal
        self._missing = SweepSize()
        self._shared: dict[int, tuple[System, str]] = {}
        """What the keys of the cases of a system share, by its identity; the system, so that no other gets that."""
        self._places = array("q")
        for case in cases():
            place = journal.place(self._key(case))
            self._places.append(MISSING if place is None else place)
            if place is None:
                self._missing.add(case)
        self.found = len(self._places) - self._missing.count
        """Number of results that the journal had before."""
        journal.resumed += self.found

    def __len__(self) -> int:
        """Number of cases."""
        return len(self._places)

    def resumed(self) -> Iterator[tuple[int, CaseResult[Kept]]]:
        """The results that the journal had before, with their indices; to be requested before others are predicted."""
        for index, place in enumerate(self._places):
            if place != MISSING:
                yield index, self.case_result(index)

    def case_result(self, index: int) -> CaseResult[Kept]:
        """A result that is in the journal."""
        return self._form.json.validate_json(self._journal.record(self._places[index]))

    def predict(self, service: Service) -> Generator[tuple[int, CaseResult[Kept]]]:
        """Predict the missing cases and tolerate defects; (index, result), each as soon as it is in the journal."""
        keys: dict[int, str] = {}
        fresh = sweep_numbered(self._numbered(keys), self._missing, self._form.keep, service, tolerant=True)
        with closing(fresh) as chunks:
            for chunk in chunks:
                records = [(keys.pop(index), self._form.json.dump_json(one)) for index, one in chunk]
                for (index, _), place in zip(chunk, self._journal.append(records), strict=True):
                    self._places[index] = place
                yield from chunk

    def _numbered(self, keys: dict[int, str]) -> Iterator[tuple[int, OperatorCase]]:
        """The missing cases as they are sent to be predicted, whose keys are noted until they return."""
        for index, case in enumerate(self._cases()):
            if self._places[index] == MISSING:
                keys[index] = self._key(case)
                yield index, case

    def _key(self, case: OperatorCase) -> str:
        system = case.system
        if id(system) not in self._shared:
            self._shared[id(system)] = system, key_of((self._form.names, system.content_hash))
        return key_of((self._shared[id(system)][1], case.workload.operator, case.workload.options))
