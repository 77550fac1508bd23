"""The boards that take part in a calibration: those among the measured rows that extend the spec which is fitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from gpusim.evidence.boards import board_of
from gpusim.evidence.sources import NO_OVERHEADS, SOURCES, MeasuredSystem, stated_overheads
from gpusim.specs import Spec, UnknownGpuError
from gpusim.studies.calibration.parameters import FittedBoard, Known, may_move


def specs_of(start: Path, names: Iterable[str], out: Path, arch_path: Sequence[Path]) -> dict[str, Spec]:
    """The boards of some names that have the spec in their chain, as they are without the output's values."""
    specs = {}
    for name in sorted(set(names)):
        try:
            spec = board_of(name, arch_path, without=out)
        except UnknownGpuError:
            continue  # counted as of another GPU
        if start.resolve() in _chain(spec):
            specs[name] = spec
    return specs


def fitted_board(spec: Spec, fitted: Collection[Path], arch_path: Iterable[Path] = ()) -> FittedBoard:
    """A board, with what is known of the values that it has from the files that are fitted."""
    overheads = stated_overheads(spec.files, arch_path)
    provenance = {**spec.provenance, **(overheads.provenance(SOURCES) if overheads else {})}
    known = {
        key: Known(origin.kind, origin.spread)
        for key, origin in provenance.items()
        if origin.file is not None and origin.file.resolve() in fitted
    }
    hashes = [file.sha256 for file in overheads.files] if overheads else []
    measured = MeasuredSystem(spec.system, overheads.record if overheads else NO_OVERHEADS)
    return FittedBoard(measured, known, " ".join([spec.sha256, *hashes]))


def values_between(start: Path, specs: Iterable[Spec]) -> dict[Path, int]:
    """Specs between the boards and the one that is fitted, and how many of the values that may move they override."""
    hidden: dict[Path, int] = {}
    for spec in specs:
        chain = _chain(spec)
        for file in chain[1 : chain.index(start.resolve())]:
            of_file = [key for key, origin in spec.provenance.items() if origin.file and origin.file.resolve() == file]
            hidden[file] = sum(map(may_move, of_file))
    return {file: values for file, values in hidden.items() if values}


def _chain(spec: Spec) -> list[Path]:
    """The files of a board, from its own to the base of all."""
    return [path.resolve() for path in spec.files]
