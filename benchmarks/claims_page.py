"""Writes docs/claims.md: every published claim of experiments/claims.yaml beside what is predicted for it.

python benchmarks/claims_page.py
"""

from __future__ import annotations

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

Figures that widely read pages state of V100, T4 and A100, beside what was measured where it was, and what gpusim
predicts. A prediction *meets* a figure within the tolerance; "up to" is met from below. None is left out.
`gpusim run claims` computes the table as [`experiments/claims.yaml`](../experiments/claims.yaml) says, `make figures`
writes this page.
"""


def main() -> None:
    """Predict the claims and write the page."""
    finished = run(open_experiment("claims"), ROOT / "results" / "claims", service=Service(available_cores()))
    lines = [
        "| claim | published | measured | predicted | tolerance | meets |",
        "|---|---:|---:|---:|---:|---|",
        *(_line(row) for row in finished.rows),
    ]
    notes = [f"- *{row['claim']}*: {row['note']}." for row in finished.rows if row["note"]]
    sources = dict.fromkeys(source for row in finished.rows for source in (row["source"], row["measured_source"]))
    written = f"Written at {commit()}."
    parts = (INTRODUCTION, "\n".join(lines), "\n".join(notes), "Sources:", _bullets(sources), written)
    PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")
    print(f"wrote {PAGE}")


def _line(row: dict[str, Any]) -> str:
    unit = f" {row['unit']}" if row["unit"] else ""
    stated = (f"{row[name]}{unit}" if row[name] else "" for name in ("published", "measured"))
    tolerance = f"{row['tolerance_pct']:g} %"
    cells = (row["claim"], *stated, f"{row['predicted']:.3g}{unit}", tolerance, row["meets"])
    return f"| {' | '.join(cells)} |"


def _bullets(sources: dict[str, None]) -> str:
    return "\n".join(f"- {source}" for source in sources if source)


if __name__ == "__main__":
    main()
