"""How a generation of GPUs is predicted before anything is fitted to it.

python benchmarks/generations.py hopper --older calibrate/OLDER.csv ... --measured calibrate/OWN.csv ... -o FILE.json

The weights that all libraries share are fitted to the tables of older architectures alone; the architecture keeps the
datasheet and microbenchmark values of its base. Where these are assumed and the fit of the generation before has a
value, or where their source names rows of its own tables, the value of the generation before stands for them; energies
keep what follows from published power and the process. Nothing recorded of its kernels takes part, and nothing that was
read of how its sources time. Without ``--older`` the shipped weights serve, where no table of the architecture took
part in their fit. The file has the errors by table, for ``make readme``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpusim.specs import load_spec
from gpusim.specs.overrides import is_number, values_of

BOARDS = {
    "ampere_ga100": ("A100-SXM4-80GB", "V100-SXM2-16GB"),
    "hopper": ("H200-SXM-141GB", "A100-SXM4-80GB"),
    "ada": ("L40S", "RTX-3090"),
}
"""A board of each architecture, and one of the generation before."""
OWN_ROWS = re.compile("rows for calibration|AIConfigurator|Vidur|NeuSight")
"""Sources of values that were read off measured tables."""
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
        (specs / "sources" / f"{arch}.yaml").unlink(missing_ok=True)
        overlay = specs / f"{arch}_fitted.yaml"
        overlay.write_text(f"extends: {arch}\n", encoding="utf-8")
        stands_in = values_of_the_generation_before(arch, specs)
        overlay.write_text(yaml.safe_dump({"extends": arch, **stands_in}, sort_keys=False), encoding="utf-8")
        report = _gpusim("validate", *map(str, measured), "--arch-path", str(specs), "--format", "json")
    base = (SPECS / f"{arch}.yaml").resolve()
    names = ("gpu", "dtype", "op", "rows", "mape", "median_ape", "bias")
    tables = [
        {"table": Path(one["file"]).stem} | {name: one[name] for name in names}
        for one in json.loads(report)["tables"]
        if base in {file.resolve() for file in load_spec(one["gpu"]).files}  # tables have boards of others too
    ]
    before = {key: one["value"] for key, one in _flat(stands_in)}
    return {"arch": arch, "older": sorted(path.stem for path in older), "before": before, "tables": tables}


def values_of_the_generation_before(arch: str, specs: Path) -> dict[str, Any]:
    """What stands for values of a base that were assumed and fitted before, or read off the architecture's own rows.

    Args:
        specs: folder of specs, where nothing is fitted to the architecture.
    """
    board, earlier = BOARDS[arch]
    base, before = load_spec(board, [specs]), load_spec(earlier)
    of_base = base.files[base.files.index(specs / f"{arch}_fitted.yaml") :]  # not the board's own values
    own, known = values_of(base), values_of(before)
    found: dict[str, Any] = {}
    for key, origin in base.provenance.items():
        was = before.provenance.get(key)
        if origin.file not in of_base or was is None or key.startswith("power.") or own.get(key) == known.get(key):
            continue
        if not is_number(own.get(key)) or not is_number(known.get(key)):
            continue
        if (origin.kind == "assumed" and was.kind == "fitted") or OWN_ROWS.search(origin.source):
            *parts, last = key.split(".")
            inner = found
            for part in parts:
                inner = inner.setdefault(part, {})
            inner[last] = {"value": known[key], "kind": "assumed", "source": f"as the {earlier}"}
    return found


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, one in values.items():
        if "value" in one:
            yield f"{above}{name}", one
        else:
            yield from _flat(one, f"{above}{name}.")


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
