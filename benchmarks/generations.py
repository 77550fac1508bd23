"""How a generation of GPUs is predicted before anything is fitted to it.

python benchmarks/generations.py hopper --older calibrate/OLDER.csv ... --measured calibrate/OWN.csv ... -o FILE.json

The weights that all libraries share are fitted to the tables of older architectures alone; the architecture keeps the
datasheet and microbenchmark values of its base. Nothing recorded of its kernels takes part. Without ``--older`` the
shipped weights serve, where no table of the architecture took part in their fit. The file has the errors by table, for
``make readme``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpusim.specs import load_spec

SPECS = Path(__file__).resolve().parent.parent / "arch_specs"


def predicted_before_its_fit(arch: str, older: Sequence[Path], measured: Sequence[Path]) -> dict[str, Any]:
    """The errors of an architecture's base, with weights that older architectures share.

    Args:
        arch: base of the architecture, such as ``ada``.
        older: tables that the weights are fitted to; none: the shipped weights, which never saw the architecture.
        measured: tables of the architecture.
    """
    with tempfile.TemporaryDirectory() as folder:
        specs = Path(folder, "specs")
        shutil.copytree(SPECS, specs)
        if older:
            library = specs / "libraries/nvidia_fitted.yaml"
            _gpusim("calibrate", "--library", "nvidia", "-o", str(library), *_options(older))
        for stem in (SPECS / kind / f"{arch}_fitted.yaml" for kind in ("libraries", "sources", "hosts")):
            (specs / stem.relative_to(SPECS)).unlink(missing_ok=True)
        (specs / "confidence" / f"{arch}_fitted.json").unlink(missing_ok=True)
        (specs / f"{arch}_fitted.yaml").write_text(f"extends: {arch}\n", encoding="utf-8")
        report = _gpusim("validate", *map(str, measured), "--arch-path", str(specs), "--format", "json")
    base = (SPECS / f"{arch}.yaml").resolve()
    names = ("gpu", "dtype", "op", "rows", "mape", "median_ape", "bias")
    tables = [
        {"table": Path(one["file"]).stem} | {name: one[name] for name in names}
        for one in json.loads(report)["tables"]
        if base in {file.resolve() for file in load_spec(one["gpu"]).files}  # tables have boards of others too
    ]
    return {"arch": arch, "older": sorted(path.stem for path in older), "tables": tables}


def _options(tables: Sequence[Path]) -> list[str]:
    return [part for path in tables for part in ("--measured", str(path))]


def _gpusim(*arguments: str) -> str:
    command = [sys.executable, "-m", "gpusim", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


def main() -> None:
    """Runs from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arch", help="base of the architecture, such as ada")
    parser.add_argument("--older", nargs="*", type=Path, default=[], metavar="CSV", help="tables to fit weights to")
    parser.add_argument("--measured", nargs="+", type=Path, required=True, metavar="CSV", help="tables of its boards")
    parser.add_argument("-o", dest="out", type=Path, required=True, metavar="JSON", help="file to write")
    asked = parser.parse_args()
    found = predicted_before_its_fit(asked.arch, asked.older, asked.measured)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
