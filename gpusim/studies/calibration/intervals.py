"""The errors of operators that take part in no fit, stated anew beside a fitted spec whose values stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim.confidence import Confidence
from gpusim.evidence.boards import board_of
from gpusim.evidence.fields import rows_of
from gpusim.evidence.measured import read_measured
from gpusim.execution.service import Service
from gpusim.files.outputs import replacing
from gpusim.progress import Progress, no_progress
from gpusim.specs import UnknownGpuError
from gpusim.specs.load import CONFIDENCE
from gpusim.studies.calibration.error import CalibrationError
from gpusim.studies.calibration.left_out import with_unfitted
from gpusim.studies.calibration.spec_writer import text_of
from gpusim.studies.validation.prediction import predict_rows, systems_of


def state_intervals(
    files: Sequence[Path],
    out: Path,
    *,
    service: Service = Service(),
    arch_path: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> int:
    """Write what the tables say of operators that take part in no fit into the errors of a fitted spec.

    Args:
        files: measured tables; rows of boards that do not extend the fitted spec are left out.
        out: file of the fitted spec.

    Returns:
        Rows that were predicted.

    Raises:
        SpecError, MeasuredError: a file is wrong.
        CalibrationError: the spec has no fit, or no row ran on its boards.
    """
    path = out.parent / CONFIDENCE / f"{out.stem}.json"
    if not path.is_file():
        raise CalibrationError(f"{out}: no fit has written {path.name}; calibrate without --intervals first")
    rows = rows_of(files, read_measured)
    specs = {}
    for gpu in sorted({row.gpu for row in rows}):
        try:
            spec = board_of(gpu, arch_path)
        except UnknownGpuError:
            continue
        if out.resolve() in (file.resolve() for file in spec.files):
            specs[gpu] = spec
    of_boards = [row for row in rows if row.gpu in specs]
    if not of_boards:
        raise CalibrationError(f"{out}: none of the rows ran on a board that extends it; give other tables")
    systems = systems_of(of_boards, specs, {}, arch_path)
    scored = predict_rows(of_boards, "sampled", systems, {}, service, progress, None).scored
    names = {gpu: spec.system.gpu.name for gpu, spec in specs.items()}
    known = Confidence.model_validate_json(path.read_text(encoding="utf-8"))
    with replacing(path) as whole:
        whole.write_text(text_of(with_unfitted(known, names, tuple(scored.values()))), encoding="utf-8")
    return len(scored)
