"""A calibration that writes its spec, or refuses to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpusim.errors import InputError
from gpusim.specs import spec_file
from gpusim.studies.calibration.report import CalibrationReport, journal_of
from gpusim.studies.calibration.spec_writer import write_spec


def check_spec_path(arch: str, out: Path, arch_path: Sequence[Path] = ()) -> None:
    """Check that a fitted spec of a GPU or an architecture can be written.

    Raises:
        InputError: It is no YAML file in an existing folder, or bears the name of the spec that it extends.
        SpecError: No such GPU or architecture.
    """
    if out.suffix not in (".yaml", ".yml") or not out.parent.is_dir() or out.is_dir():
        raise InputError(f"-o {out}: expected a .yaml file in a folder that is there")
    if out.stem == spec_file(arch, arch_path).stem:
        raise InputError(f"-o {out}: a spec cannot extend one of its own file name; choose another")


def write_fitted(report: CalibrationReport, out: Path, date: str | None = None) -> bool:
    """Write the fitted spec, unless the fit is refused; the journal of the timings goes either way.

    Args:
        date: Of the sources in the spec; today if None.

    Returns:
        Whether the spec was written.

    Raises:
        OSError: It cannot be written; the journal stays.
    """
    if report.refusals:
        journal_of(out).unlink(missing_ok=True)
        return False
    write_spec(report, out, date or f"{datetime.now(UTC):%Y-%m-%d}")
    return True
