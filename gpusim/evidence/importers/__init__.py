"""Files of other programs, read into rows of the measured schema: one module per kind of file.

An importer is a function from a path and :class:`ImportOptions` to an :class:`Import`. It reads the whole file before
anything is written, refuses a malformed one with its place, and counts what makes no row by reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.importers import (
    aiconfigurator,
    cutlass,
    deepbench,
    kineto,
    llmservingsim,
    ncu,
    neusight,
    nsys,
    table,
    traces,
)
from gpusim.evidence.importers.recognised import recognised
from gpusim.evidence.importers.rows import Import, ImportOptions, SourceError

__all__ = ["KINDS", "Import", "ImportOptions", "SourceError", "import_file"]

KINDS: Mapping[str, Callable[[Path, ImportOptions], Import]] = {
    "aiconfigurator": aiconfigurator.read,
    "csv": table.read,
    "cutlass": cutlass.read,
    "deepbench": deepbench.read,
    "kineto": kineto.read,
    "llmservingsim": llmservingsim.read,
    "ncu": ncu.read,
    "neusight": neusight.read,
    "nsys": nsys.read,
    "traces": traces.read,
}


def import_file(kind: str, path: Path, options: ImportOptions) -> Import:
    """The rows of a file of some kind (a key of ``KINDS``); at least one.

    Raises:
        MeasuredError: the file is malformed, lacks what an option then must say, or holds no operator.
    """
    try:
        found = KINDS[kind](path, options)
    except MeasuredError as error:
        if known := recognised(path, kind):
            raise SourceError(known) from error
        raise
    if not found.rows:
        reasons = ", ".join(f"{count} x {reason}" for reason, count in found.skipped.most_common())
        raise SourceError(f"{path}: no operator to import{': ' + reasons if reasons else ''}; is it a {kind} file?")
    return found
