"""How far detail ``estimate`` is from ``sampled``, and how far both are from measured runs.

    python benchmarks/estimate_table.py [--jobs N] MEASURED.csv...

Prints the table of docs/speed.md, and the distances that widen the intervals of estimates
(``gpusim.confidence.ESTIMATE_DISTANCE``): the root of the mean square of the logarithm of estimated over sampled kernel
time, by family of operators and duration. No measured time enters these.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from accuracy_table import ORDER, kind_of, percent
from sections import row

from gpusim.confidence import Duration, Family, duration_of, family_of
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.studies.validation.accuracy import errors
from gpusim.studies.validation.prediction import Scored
from gpusim.studies.validation.report import ValidationReport, validate


def main() -> None:
    """Print the table and the distances."""
    parser = argparse.ArgumentParser(description="How far detail estimate is from detail sampled.")
    parser.add_argument("files", nargs="+", type=Path, metavar="MEASURED.csv")
    parser.add_argument("--jobs", type=int, default=available_cores())
    given = parser.parse_args()
    service = Service(given.jobs, cache=True)
    sampled, estimated = (validate(given.files, detail=detail, service=service) for detail in ("sampled", "estimate"))
    print(estimate_table(sampled, estimated))
    for reason, count in Counter(estimated.reasons).most_common(5):
        print(f"{count} without an estimate: {reason}")
    for (family, duration), logs in distances(sampled, estimated).items():
        print(f"{family}, {duration}: {_root_mean_square(logs):.4f} (mean {fmean(logs):+.4f}) of {len(logs):,}")


def estimate_table(sampled: ValidationReport, estimated: ValidationReport) -> str:
    """Errors of both details by kind of operator and by table as Markdown, and how far they lie apart.

    Args:
        sampled: of measured runs.
        estimated: of the same runs.
    """
    lines = [row(("operators", "runs", "sampled", "estimate", "apart")), "|---|---:|---:|---:|---:|"]
    for kind in ORDER:
        pairs = list(_pairs(sampled, estimated, (kind,)))
        if not pairs:
            continue
        lines.append(_line(f"**{kind}**", pairs))
        if any(_log_ratio(*pair) for pair in pairs):
            of_file: dict[str, list[tuple[Scored, Scored]]] = {}
            for pair in pairs:
                of_file.setdefault(Path(pair[0].row.file).stem, []).append(pair)
            lines += [_line(f"`{name}`", those) for name, those in sorted(of_file.items())]
    return "\n".join([*lines, ""])


def _line(name: str, pairs: Sequence[tuple[Scored, Scored]]) -> str:
    measured = [one.row.time_us for one, _ in pairs]
    of_times = ([one.predicted_us for one, _ in pairs], [other.predicted_us for _, other in pairs])
    means = [percent(errors(times, measured)["mape"]) for times in of_times]
    apart = _root_mean_square([_log_ratio(*pair) for pair in pairs])
    return row((name, f"{len(pairs):,}", *means, percent(100 * apart)))


def distances(sampled: ValidationReport, estimated: ValidationReport) -> dict[tuple[Family, Duration], list[float]]:
    """Logarithms of estimated over sampled kernel time, by family and duration."""
    found: dict[tuple[Family, Duration], list[float]] = {}
    for one, other in _pairs(sampled, estimated):
        assert one.row.operator is not None
        key = family_of(one.row.operator), duration_of(one.result.kernel_time_us)
        found.setdefault(key, []).append(_log_ratio(one, other))
    return dict(sorted(found.items()))


def _pairs(
    sampled: ValidationReport, estimated: ValidationReport, kinds: Sequence[str] = ORDER
) -> Iterator[tuple[Scored, Scored]]:
    """Predictions of the same row at both details."""
    others = {(item.row.file, item.row.line): item for item in estimated.scored}
    for table in sampled.tables:
        if kind_of(table) in kinds:
            for item in table.scored:
                if other := others.get((item.row.file, item.row.line)):
                    yield item, other


def _log_ratio(sampled: Scored, estimated: Scored) -> float:
    return math.log(estimated.result.kernel_time_us / sampled.result.kernel_time_us)


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(fmean(value * value for value in values))


if __name__ == "__main__":
    main()
