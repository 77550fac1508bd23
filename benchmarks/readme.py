"""Writes what the README says in numbers: the accuracy table and the pictures.

    python benchmarks/readme.py MEASURED.csv...

Everything between the accuracy markers is replaced by the errors on the given tables, and the pictures of docs/
by those that the shipped experiments draw.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from gpusim.experiment import load_experiment
from gpusim.run import run_experiment
from gpusim.sweep import available_cores
from gpusim.validation import validate

ROOT = Path(__file__).resolve().parent.parent
PICTURES = {
    "a100_vs_v100_gemm": ("speedup.png", "a100_vs_v100_speedup.png"),
    "tf32_paths": ("speedup.png", "tf32_paths.png"),
    "sparse_2to4": ("sparse_speedup.png", "sparse_2to4.png"),
}
"""Experiment -> the plot it draws and its name in docs/."""
MARKERS = re.compile(r"(<!-- accuracy:begin -->\n).*(<!-- accuracy:end -->)", re.DOTALL)


def main() -> None:
    """Write all of it."""
    files = [Path(name) for name in sys.argv[1:]]
    if not files:
        sys.exit("readme: name the measured tables")
    report = validate(files, jobs=available_cores()).as_dict()
    readme = ROOT / "README.md"
    text, count = MARKERS.subn(lambda found: found[1] + accuracy(report) + found[2], readme.read_text(encoding="utf-8"))
    if count != 1:
        sys.exit("readme: README.md has no accuracy markers")
    readme.write_text(text, encoding="utf-8")
    pictures()


def accuracy(report: dict[str, Any]) -> str:
    """The errors as a Markdown table."""
    lines = [
        "| measured runs | GPU | type | rows | mean error | median | 90 % below | closed-form bound |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for table in report["tables"]:
        if table["predicted"] == 0:
            continue
        errors = " | ".join(f"{table[name]:.1f} %" for name in ("mape", "median_ape", "p90_ape", "bound_mape"))
        rows = str(table["rows"]) if not table["skipped"] else f"{table['predicted']} of {table['rows']}"
        name = f"{Path(table['file']).stem} ({table['op']})"
        kind = table["dtype"] + ("" if table["sparsity"] == "dense" else f" {table['sparsity']}")
        lines.append(f"| {name} | {table['gpu']} | {kind} | {rows} | {errors} |")
    return "\n".join(lines) + "\n"


def pictures() -> None:
    """The plots of the shipped experiments that the README shows or links to."""
    docs = ROOT / "docs"
    docs.mkdir(exist_ok=True)
    for name, (plot, picture) in PICTURES.items():
        out = ROOT / "results" / name
        _ = run_experiment(load_experiment(name), out, jobs=available_cores())
        _ = shutil.copyfile(out / plot, docs / picture)


if __name__ == "__main__":
    main()
