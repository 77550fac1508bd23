"""The table of errors on measured collectives within a node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim.studies.validation.collectives import validate_collectives


def collectives_table(files: Sequence[Path]) -> str:
    """Errors by table and size as Markdown; runs on several nodes are not predicted."""
    lines = ["| measured runs | size | rows | median error | 90 % below | bias |", "|---|---|---:|---:|---:|---:|"]
    for file in files:
        for one in validate_collectives([file]).as_dict()["sizes"]:
            errors = f"{one['median_ape']:.1f} % | {one['p90_ape']:.1f} % | {one['bias']:+.1f} %"
            lines.append(f"| {file.stem} | {one['size']} | {one['predicted']} of {one['rows']} | {errors} |")
    return "\n".join([*lines, ""])
