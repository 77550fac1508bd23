"""What a measured table says of its runs, put in doubt: another order, load, L2 or timing method that fits far better.

Some GEMMs of a table are predicted once more as if they had run in another state. Where that explains much of the
error, a line says so; nothing is changed. A line also says what tables leave out, and what is taken in its place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpusim.evidence.measured import MeasuredRow
from gpusim.evidence.sources import source_of
from gpusim.execution.cases import OperatorCase, OperatorWorkload
from gpusim.execution.service import Service
from gpusim.execution.sweep import predict_all
from gpusim.studies.validation.prediction import Systems, cases_of_rows, reading_us
from gpusim.workloads.conditions import L2_STATES
from gpusim.workloads.gemm import GEMM_OPS

FloatArray = NDArray[np.float64]

LEAST_ROWS, MOST_ROWS = 8, 32
"""GEMMs of a table that put an assumption in doubt, and those that are predicted once more."""
LEAST_ERROR, LEAST_GAIN = 0.1, 0.03
"""Mean error from which on a table is doubted, and what another assumption has to take off it; logarithms."""
REMAINING = {"method": 0.5}
"""Share of the error that another assumption may leave: a time that is added fits errors of short kernels too well."""
USUALLY_REMAINING = 0.7
CERTAIN = 3.0
"""Standard errors by which the mean gain of the rows is above 0."""
LOADS = ("burst", "sustained")
METHODS = ("profiler", "graph", "stream", "event", "host")


def doubts(
    rows: Sequence[MeasuredRow],
    systems: Systems,
    service: Service,
    known_logs: Mapping[int, float] | None = None,
) -> Iterator[str]:
    """Lines on tables whose GEMMs another assumption explains far better.

    Args:
        known_logs: logarithm of predicted over measured time by the index of rows; predicted here where None.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(rows):
        if (row.gpu, row.cuda) in systems and row.op in GEMM_OPS:
            groups.setdefault((row.file, row.op), []).append(index)
    for (file, op), members in groups.items():
        indices = [index for index in members if known_logs is None or index in known_logs]
        places = np.linspace(0, len(indices) - 1, min(len(indices), MOST_ROWS)).round().astype(int)
        sample = [rows[indices[place]] for place in places]
        if len(sample) < LEAST_ROWS:
            continue
        logs = [known_logs[indices[at]] for at in places] if known_logs else _logs(sample, systems, service)
        if not np.nanmean(np.abs(logs)) >= LEAST_ERROR:
            continue
        found = [one for one in _alternatives(sample, logs, systems, service) if one is not None]
        if found:
            _, left_pct, what, remedy = min(found)
            was_pct = _mape(np.array(logs))
            yield f"{file}: {op}: {what} the error falls from {was_pct:.0f} to {left_pct:.0f} %; {remedy}"


def assumed(rows: Sequence[MeasuredRow]) -> Iterator[str]:
    """A line on what rows of programs that are not known leave out, and what is taken; none where nothing is."""
    loads, layouts = Counter[str](), 0
    for row in rows:
        known = source_of(row.source)
        if not row.stated_load and not known.load:
            loads[row.load] += 1
        layouts += row.op in GEMM_OPS and not row.layout
    parts = [f"load of {count} rows (taken as {load})" for load, count in loads.most_common()]
    parts += [f"layout of {layouts} rows (taken as tn)"] if layouts else []
    if parts:
        yield f"not stated: {', '.join(parts)}; the columns load and layout state them"


def _alternatives(
    rows: Sequence[MeasuredRow], logs: Sequence[float], systems: Systems, service: Service
) -> Iterator[tuple[float, float, str, str] | None]:
    """Mean logarithmic error and MAPE under each assumption that explains the error, what it is, and what to do."""
    remedy = "state the column order, or exchange m and n"
    others = [
        ("order", [_transposed(row) for row in rows], ("with m and n exchanged", remedy)),
        *(
            ("load", [replace(row, stated_load=load) for row in rows], (f"with load {load}", "check the column load"))
            for load in LOADS
        ),
        *(("l2", [replace(row, l2=l2) for row in rows], (f"with l2 {l2}", "check the column l2")) for l2 in L2_STATES),
    ]
    kernels_us, *others_us = _kernels_us([rows, *(other for _, other, _ in others)], systems, service)
    for (what, other, text), other_us in zip(others, others_us, strict=True):
        yield _gain(what, logs, _readings(other, other_us, systems), text)
    for method in METHODS:
        other = [replace(row, method=method) for row in rows]
        text = (f"with method {method}", "check the column method")
        yield _gain("method", logs, _readings(other, kernels_us, systems), text)


def _gain(
    what: str, before: Sequence[float], after: Sequence[float], text: tuple[str, str]
) -> tuple[float, float, str, str] | None:
    errors = np.abs(before), np.abs(after)
    both = np.isfinite(errors[0]) & np.isfinite(errors[1])
    if both.sum() < LEAST_ROWS:
        return None
    gains = errors[0][both] - errors[1][both]
    left, standard_error = float(errors[1][both].mean()), float(gains.std(ddof=1)) / math.sqrt(len(gains))
    explains = left <= REMAINING.get(what, USUALLY_REMAINING) * float(errors[0][both].mean())
    explains &= _mape(np.array(after)[both]) < _mape(np.array(before)[both])
    if explains and gains.mean() >= max(LEAST_GAIN, CERTAIN * standard_error):
        return left, _mape(np.array(after)[both]), *text
    return None


def _mape(logs: FloatArray) -> float:
    """Mean absolute error [%]."""
    return 100 * float(np.nanmean(np.abs(np.expm1(logs))))


def _transposed(row: MeasuredRow) -> MeasuredRow:
    """The row with C in the other order, which exchanges m and n."""
    return replace(row, m=row.n, n=row.m)


def _logs(rows: Sequence[MeasuredRow], systems: Systems, service: Service) -> list[float]:
    """Logarithm of predicted over measured time of each row; NaN where it cannot be predicted."""
    (kernels_us,) = _kernels_us([rows], systems, service)
    return _readings(rows, kernels_us, systems)


def _readings(rows: Sequence[MeasuredRow], kernels_us: Mapping[int, float], systems: Systems) -> list[float]:
    """Those logarithms for kernel times by the index of the row [us]."""
    found = [math.nan] * len(rows)
    for index, kernel_us in kernels_us.items():
        row = rows[index]
        found[index] = math.log(reading_us(kernel_us, row, systems[row.gpu, row.cuda]) / row.time_us)
    return found


def _kernels_us(tables: Iterable[Sequence[MeasuredRow]], systems: Systems, service: Service) -> list[dict[int, float]]:
    """Predicted kernel time [us] of the rows that can be predicted, by index, for each of several tables.

    All are predicted at once, and rows of several tables that ask for the same prediction share it.
    """
    cases = [cases_of_rows(rows, "sampled", systems, {})[0] for rows in tables]
    asked = {_question(case): case for of_table in cases for case in of_table.values()}
    outcomes = dict(zip(asked, predict_all(list(asked.values()), service), strict=True))
    known = {key: one.result.kernel_time_us for key, one in outcomes.items() if one.result is not None}
    return [
        {index: known[_question(case)] for index, case in of_table.items() if _question(case) in known}
        for of_table in cases
    ]


def _question(case: OperatorCase) -> tuple[int, OperatorWorkload]:
    """What decides the prediction of a case, for systems that stay in memory."""
    return id(case.system), case.workload
