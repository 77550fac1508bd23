"""What fits of several architectures found of the same value: the centre and the spread that their base may state.

python benchmarks/shared_values.py experiments/calibration/*.json
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

HOST = "host."
LEAST_ARCHITECTURES = 2


def shared_values(files: Sequence[Path]) -> str:
    """A Markdown table of the values that more than one fit identifies: each, their geometric mean, their spread."""
    found: dict[str, dict[str, float]] = {}
    for path in files:
        report = json.loads(path.read_bytes())
        for one in report["parameters"]:
            if not one["reason"] and not one["key_path"].startswith(HOST):
                found.setdefault(one["key_path"], {})[report["arch"]] = one["after"]
    lines = ["| value | fits | geometric mean | spread |", "|---|---|---:|---:|"]
    for key_path, of_arch in sorted(found.items()):
        if len(of_arch) >= LEAST_ARCHITECTURES:
            logs = [math.log(value) for value in of_arch.values()]
            fits = ", ".join(f"{arch} {value:.4g}" for arch, value in of_arch.items())
            lines.append(f"| `{key_path}` | {fits} | {math.exp(fmean(logs)):.3g} | {stdev(logs):.2f} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(shared_values([Path(argument) for argument in sys.argv[1:]]))
