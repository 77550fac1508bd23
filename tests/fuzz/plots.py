"""Random plot sections, drawn from made-up rows: python tests/fuzz/plots.py --count 1000 --seed 1.

An experiment is refused in one line when it is loaded, or every page of every plot is drawn, under the names that were
known before, with no text cut or over other text, in the format asked for.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
from prepared_rows import prepared_rows
from text_of_figures import unreadable

from gpusim import figures
from gpusim.evidence.measured import MeasuredRow
from gpusim.experiment.definition import Experiment, MeasuredPoint
from gpusim.experiment.loading import load_experiment
from gpusim.figures.style import save
from gpusim.files.yamlfile import SpecError
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm

GPUS = ("V100-SXM2-16GB", "A100-SXM4-40GB", "T4", "H100-SXM5-80GB", "RTX-3090", "A100-PCIe-40GB")
KINDS = ("time", "tflops_roofline", "speedup", "sparse_speedup", "stalls")
OVER_VALUES = ("heat_map", "curves")
METRICS = ("time_us", "tflops", "pct_of_peak", "l2_hit_fraction", "dram_bytes", "energy_mj", "power_w", "clock_mhz")
VALUES = {
    "l2.capacity_mib": ("0.5x", "1x", "1.7x", 40, 123.456, 1000),
    "dram.peak_bandwidth_gb_per_s": ("0.25x", "1x", "2x", 1000, 54321.5),
    "library.heuristic_bias.mma.tile_intensity": (-0.1, 0, 0.05, 0.11),
    "sm.count": ("0.5x", "1x", 60, 61, 2048),
}
DTYPES = ("fp32", "fp16", "int8", "fp64", "tf32", "bf16")
WORDS = (
    *(
        "GEMM",
        "$",
        "$$",
        "\\frac{1}{2}",
        "$x_1^2$",
        "{",
        "}",
        "%s",
        "_a",
        "#",
        "&",
        "''",
        '"',
        "\\",
        "-",
        "…",
        "x" * 60,
    ),
    *("4096×4096", "µs", "ÄÖ", "中文", "🙂", "\u0301", "\u200b", "\u202e", "\x07", "\t", "\n", "\r\n", ""),
)
RATIOS = (1, 1.5, "1555/900", "1e400/1", "1/0", "0/1", "-1/2", "nan/1", "1/1e-400", "x/y", ".inf", 1e9, 1e-9, None, [1])
FILES = (
    "",
    "t",
    "t.png",
    "t.svg",
    "t.pdf",
    "t.gif",
    "T",
    "a.b",
    "..",
    "x/y",
    "/etc/t",
    ".png",
    "é",
    "t" * 120,
    "t.PNG",
    7,
)
RATIO_OF_HOSTILE = 0.15
"""How often a value is one that must be refused."""


def _words(rng: random.Random) -> str:
    """A title or a label."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(("A100", "twice the L2", "BERT-large QKV", "LLaMA-7B FFN decode"))
    if kind < 0.5:
        letters = [chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xA0, 0x3000)))) for _ in range(300)]
        return "".join(letter for letter in letters if letter.isprintable())[: rng.choice((20, 60, 200, 201))]
    words = WORDS if kind < 0.5 + RATIO_OF_HOSTILE / 3 else [word for word in WORDS if word.isprintable()]
    return " ".join(rng.choice(words) for _ in range(rng.choice((1, 2, 5, 20))))


def _varied(rng: random.Random, keys: Sequence[str]) -> dict[str, Any]:
    """Lists or samples of values."""
    if rng.random() < 0.3:
        ranges = {key: {"min": min(VALUES[key][-2:]), "max": max(VALUES[key][-2:])} for key in keys}
        return {"latin_hypercube": {"samples": rng.choice((2, 30)), "seed": 1, "ranges": ranges}}
    return {"overrides": {key: rng.sample(VALUES[key], rng.choice((2, 3, 4))) for key in keys}}


def _gemm(rng: random.Random) -> dict[str, Any]:
    """An entry of ``gemms``."""
    sizes = rng.choices((1, 16, 512, 4096, 11008, 10**6, rng.randrange(1, 10**5)), k=rng.choice((3, 3, 4, 6)))
    shape: dict[str, Any] = {"m": sizes[2:], "n": sizes[0], "k": sizes[1]}
    if rng.random() < 0.3:
        shape = {"square": sizes}
    named = {key: _words(rng) for key in ("group", "label") if rng.random() < 0.4}
    return {**shape, **named, "batch": rng.choice((1, 1, 1, 8))}


def _plot(rng: random.Random, gpus: Sequence[str], varied: Sequence[str]) -> dict[str, Any]:
    """An entry of ``plots``, over the values that vary if there are any."""
    hostile = rng.random() < RATIO_OF_HOSTILE
    entry: dict[str, Any] = {"kind": rng.choice(OVER_VALUES if varied else KINDS)}
    if entry["kind"] == "speedup" or hostile:
        entry["baseline"] = rng.choice([*gpus, *(["T5"] if hostile else [])])
        if rng.random() < 0.3:
            entry["baseline_dtype"] = rng.choice(DTYPES)
        ratios = RATIOS if hostile else RATIOS[:3]
        lines = [
            {"label": _words(rng), "value": rng.choice(ratios)} for _ in range(rng.choice((0, 0, 1, 3, 9 * hostile)))
        ]
        entry["lines"] = lines
    if entry["kind"] in OVER_VALUES or hostile:
        other = {"heat_map": "y", "curves": "series"}.get(entry["kind"], "y")
        x, y = rng.choices(list(VALUES), k=2) if hostile else (*varied, *varied)[:2]
        entry |= {"x": x, other: y, "metric": rng.choice(METRICS)}
        entry["total"] = entry["metric"] in ("time_us", "dram_bytes", "energy_mj") and rng.random() < 0.5
    if rng.random() < 0.4:
        entry["title"] = _words(rng)
    entry["file"] = rng.choice(FILES) if hostile else f"plot{rng.randrange(10**6)}.{rng.choice(('png', 'svg', 'pdf'))}"
    return entry


def experiments(count: int, seed: int) -> list[dict[str, Any]]:
    """Experiments as their YAML holds them."""
    return [_experiment(random.Random(f"{seed} {index}")) for index in range(count)]


def _experiment(rng: random.Random) -> dict[str, Any]:
    labels = [_words(rng) if rng.random() < 0.3 else "" for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6)))]
    gpus = [{"gpu": gpu, "label": label} for gpu, label in zip(rng.sample(GPUS, len(labels)), labels, strict=True)]
    names = [gpu["label"] or gpu["gpu"] for gpu in gpus]
    varied = rng.sample(list(VALUES), rng.choice((1, 2, 2, 2, 3))) if rng.random() < 0.4 else []
    if varied:
        gpus[0] |= _varied(rng, varied)
    plots = [_plot(rng, names, varied) for _ in range(rng.choice((1, 1, 2)))]
    sparse = any(plot["kind"] == "sparse_speedup" for plot in plots) != (rng.random() < RATIO_OF_HOSTILE / 3)
    return {
        "title": _words(rng),
        "gpus": gpus,
        "dtypes": rng.sample(DTYPES, rng.choice((1, 1, 1, 2, 3))),
        "gemms": [_gemm(rng) for _ in range(rng.choice((1, 1, 2, 3)))],
        "sparsity": ["dense", "2:4"] if sparse else ["dense"],
        "detail": rng.choice((["sampled"], ["sampled"], ["full"], ["bound", "full"], ["bound"])),
        **rng.choice(({"l2": "cold"}, {"l2": "warm"}, {"l2": ["cold", "warm"]}, {"layout": ["tn", "nn"]})),
        "plots": plots,
    }


def drawn(document: dict[str, Any]) -> tuple[str, str]:
    """Load an experiment and draw all of its plots; the outcome, and what shows it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.yaml"
        path.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
        try:
            experiment = load_experiment(str(path))
        except SpecError as error:
            return (harness.REFUSED, "") if "\n" not in str(error) else ("refused in several lines", str(error))
        rows = prepared_rows(experiment)
        points = _measured(experiment)
        names: list[str] = []
        for plot in experiment.content.plots:
            drawn = figures.compose(plot, experiment.content.title, rows, points)
            for number, figure in enumerate(drawn, 1):
                if found := unreadable(figure):
                    return "text that cannot be read", f"{plot.kind}, page {number}: {found[0]}"

            names += plot.file_names(len(drawn))
            save(drawn[-1], Path(folder) / names[-1])
        if ("results.csv", *names) != experiment.output_files():
            return "other files than known before", f"{names}, not {experiment.output_files()}"
        return harness.ACCEPTED, ""


def _measured(experiment: Experiment) -> list[MeasuredPoint]:
    """A measured run for some of the cases, on a sister board."""
    found = []
    for index, case in enumerate(experiment.cases()):
        gemm = case.case.workload.operator
        if index % 3 == 0 and isinstance(gemm, Gemm) and gemm.sparsity == "dense":
            shape = (gemm.batch, gemm.m, gemm.n, gemm.k, Dtype(gemm.dtype), "", gemm.layout, gemm.sparsity)
            row = MeasuredRow("runs.csv", index + 2, "sister-board", "gemm", *shape, 3.0 + index, "graph", "cold")
            found.append(MeasuredPoint(case.gpu, "sister-board", row))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw experiments and print the outcomes; 1 if there is a defect."""
    asked = harness.command_line(__doc__.partition("\n")[0]).parse_args(arguments)
    return harness.reported(harness.fed(experiments(asked.count, asked.seed), drawn))


if __name__ == "__main__":
    sys.exit(main())
