"""Measured rows that take part in no fit, predicted with the fitted values: operators other than matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpusim.cuda_version import CudaVersion
from gpusim.evidence.measured import MeasuredRow
from gpusim.execution.service import Service
from gpusim.progress import Progress
from gpusim.studies.calibration.fit import Calibration
from gpusim.studies.calibration.parameters import FittedBoard
from gpusim.studies.calibration.row_kernels import with_library
from gpusim.studies.validation.prediction import Scored, predict_rows
from gpusim.workloads.gemm import Gemm


def predict_unfitted(
    rows: Iterable[MeasuredRow],
    boards: Mapping[str, FittedBoard],
    found: Calibration,
    service: Service,
    progress: Progress,
) -> tuple[Scored, ...]:
    """Predictions of the rows of other operators on the boards; rows that cannot be predicted are passed over."""
    others = [row for row in rows if row.gpu in boards and row.operator is not None]
    others = [row for row in others if not isinstance(row.operator, Gemm)]
    values = [(one.parameter.key_path, one.value) for one in found.fitted]
    systems = {}
    for gpu, cuda in {(row.gpu, row.cuda): None for row in others}:
        measured = boards[gpu].with_values(values)
        library = CudaVersion(cuda.major) if cuda else None
        library = library if library in found.bias else None
        systems[gpu, cuda] = replace(measured, system=with_library(measured.system, library, found.bias))
    return tuple(predict_rows(others, "sampled", systems, {}, service, progress, None).scored.values())
