"""Prints the errors on published microbenchmarks as a Markdown table, a line for each board.

python benchmarks/microbench_table.py ../shared/facts/microbenchmarks.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpusim.errors import InputError
from gpusim.studies.microbench.suite import ALL, simulate_published, summary


def main() -> None:
    """Simulate all points of the table."""
    if len(sys.argv) != 2:
        sys.exit("microbench_table: name the table of published readings")
    try:
        points = simulate_published(ALL, Path(sys.argv[1]))
    except InputError as error:
        sys.exit(f"microbench_table: {error}")
    print(microbench_table(summary(points)))


def microbench_table(errors: list[dict[str, object]]) -> str:
    """Median and 90th percentile of the errors of each board that has a spec, over all of its benchmarks."""
    lines = ["| GPU | points simulated | median error | 90th percentile |", "|---|--:|--:|--:|"]
    for one in errors:
        if one["benchmark"] == ALL and one["simulated"]:
            figures = f"{one['median_ape']:.1f} % | {one['p90_ape']:.1f} %"
            lines.append(f"| {one['gpu']} | {one['simulated']} of {one['points']} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
