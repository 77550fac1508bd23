"""Writes docs/claims.md: every published claim of experiments/claims.yaml beside what is predicted for it.

python benchmarks/claims_page.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provenance import commit

from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.experiment.loading import open_experiment
from gpusim.studies.experiments import run

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "claims.md"
INTRODUCTION = """\
# Published claims

Figures that widely read pages state for V100, T4 and A100, beside measurements, where there are any, and what gpusim
predicts. A prediction *meets* a figure if it lies within the tolerance; "up to" is met from below. No figure was left
out for its result. `gpusim run claims` computes the table from [`experiments/claims.yaml`](../experiments/claims.yaml);
`make figures` writes this page.
"""


def main() -> None:
    """Predict the claims and write the page."""
    finished = run(open_experiment("claims"), ROOT / "results" / "claims", service=Service(available_cores()))
    parts = (INTRODUCTION, *paragraphs(finished.rows), f"Written at {commit()}.")
    PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")
    print(f"wrote {PAGE}")


def paragraphs(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    """The table of the claims, remarks on them, and the numbered sources that the table refers to."""
    sources = dict.fromkeys(row[name] for row in rows for name in ("source", "measured_source") if row[name])
    numbers = {source: number for number, source in enumerate(sources, start=1)}
    lines = [
        "| claim | published | measured | predicted | tolerance | meets |",
        "|---|---:|---:|---:|---:|---|",
        *(_line(row, numbers) for row in rows),
    ]
    notes = [f"- *{row['claim']}*: {row['note']}." for row in rows if row["note"]]
    listed = [f"{number}. {source}" for source, number in numbers.items()]
    return "\n".join(lines), "\n".join(notes), "\n".join(["Sources, by the numbers in brackets:", "", *listed])


def _line(row: Mapping[str, Any], numbers: Mapping[str, int]) -> str:
    unit = f" {row['unit']}" if row["unit"] else ""
    stated = (
        f"{row[name]}{unit} [{numbers[row[source]]}]" if row[name] else ""
        for name, source in (("published", "source"), ("measured", "measured_source"))
    )
    tolerance = f"{row['tolerance_pct']:g} %"
    cells = (row["claim"], *stated, f"{row['predicted']:.3g}{unit}", tolerance, row["meets"])
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
