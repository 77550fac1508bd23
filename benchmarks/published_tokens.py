"""Write into docs/language_models.md and README.md how published tokens a second of Llama 2 compare with predictions.

python benchmarks/published_tokens.py PAGE.md ... [--jobs N] [--each]

Pages are those of the engines' repositories, with tables of whole batches: TensorRT-LLM's docs/source/performance.md
up to v0.9 and its blogs of that time, lmdeploy's docs/en/benchmark/a100_fp16.md. Each row is a batch of prompts of one
length, and so many tokens of each. Nothing is fitted to them. Models without a configuration here are passed over.
Kernels are those of a serving engine, launched one by one from a compiled program; in FP8 the cache is, too, as
TensorRT-LLM's commands have it.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from generated_text import PAGE, cases, error_table, model_file
from provenance import ROOT
from sections import replaced

README = ROOT / "README.md"
SECTION = "published tokens"
SIZES = {"7b": (4096, 11008, 32, 32, 32), "13b": (5120, 13824, 40, 40, 40), "70b": (8192, 28672, 80, 64, 8)}
"""Hidden, feed-forward, layers, heads and heads of keys of Llama 2 (arXiv:2307.09288)."""
BOARDS = {"H200": "h200-sxm", "H100": "h100-sxm", "L40S": "l40s", "A100": "a100-sxm4-80gb"}
HOPPER_NODE = "DGX-H100"
"""Node of several H200, whose NVLink is that of H100."""
COLUMNS = {
    "model": "model",
    "batch": "batch",
    "batch size": "batch",
    "tp": "gpus",
    "input length": "prompt",
    "prompt_tokens": "prompt",
    "output length": "tokens",
    "output_tokens": "tokens",
    "throughput (out tok/s/gpu)": "of_gpu",
    "throughput(out tok/s)": "of_all",
    "1st token latency (ms)": "first_ms",
}
"""What columns of the tables are."""


class Text(NamedTuple):
    """What rows have in common that are predicted together."""

    engine: str
    model: str
    gpu: str
    gpus: int
    precision: str
    prompt: int
    tokens: int


class Figure(NamedTuple):
    """A published figure."""

    text: Text
    batch: int
    measure: str
    """``of_all`` and ``of_gpu``: tokens a second of all GPUs, of each; ``first_ms``: time to the first token [ms]."""
    value: float


def figures_of(page: str) -> Iterator[Figure]:
    """Rows of a page's tables whose model and conditions are known."""
    board, precision, model, names = "", "", "", list[str]()
    for line in page.splitlines():
        if not line.startswith("|"):
            names = []
            of_board = re.search(r"\b(H200|H100|L40S|A100)\b.*?\b(FP8|FP16)\b", line)
            if line.startswith(("#", "*")) and of_board:
                board, precision = of_board[1], of_board[2].lower()
            if line.startswith("#"):
                model = line.strip("# ")
            continue
        cells = [re.sub(r"<sup>.*?</sup>|\(\d\)|,(?=\d{3})", "", one).strip() for one in line.strip("|").split("|")]
        if not names:
            names = [COLUMNS.get(one.lower(), "") for one in cells]
            continue
        row = dict(zip(names, cells, strict=False))
        size = re.search(r"llama\D*(?:2-)?(\d+b)", row.get("model", model).lower())
        measure = next((one for one in ("of_gpu", "of_all", "first_ms") if one in row), "")
        if size and size[1] in SIZES and measure and row["batch"].isdigit():
            engine = "lmdeploy" if measure == "of_all" else "TensorRT-LLM"
            tokens = int(row.get("tokens", 1))
            text = Text(engine, size[1], BOARDS[board], int(row["gpus"]), precision, int(row["prompt"]), tokens)
            yield Figure(text, int(row["batch"]), measure, float(row[measure]))


def predicted(text: Text, batches: Sequence[int], jobs: str) -> dict[int, dict[str, Any]]:
    """Predictions by batch size."""
    hidden, ffn, layers, heads, key_heads = SIZES[text.model]
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    with model_file(config, f"Llama 2 {text.model}", "arXiv:2307.09288") as model:
        asked = [model, "--arch", text.gpu, "--mode", "inference", "--precision", text.precision, "--compiled-host"]
        asked += ["--prompt", str(text.prompt), "--batch", ",".join(map(str, batches)), "--jobs", jobs]
        asked += ["--kv-dtype", "fp8"] if text.precision == "fp8" else []
        asked += ["--gpus", str(text.gpus), "--parallel", "tensor"] if text.gpus > 1 else []
        asked += ["--node", HOPPER_NODE] if text.gpus > 1 and text.gpu == BOARDS["H200"] else []
        asked += ["--generate", str(text.tokens)] if text.tokens > 1 else []
        return {one["batch"]: one for one in cases(*asked)}


def error(figure: Figure, prediction: dict[str, Any]) -> float:
    """Predicted time over the measured one, less one."""
    if figure.measure == "first_ms":
        return float(prediction["step_ms"]) / figure.value - 1
    per_s = float(prediction["tokens_per_s" if figure.measure == "of_all" else "tokens_per_s_of_gpu"])
    return figure.value / per_s - 1


def summary(groups: Mapping[tuple[str, ...], Sequence[float]]) -> str:
    """A line of errors for each engine, architecture and type."""
    by_line: dict[str, list[float]] = defaultdict(list)
    for (engine, board, *_), errors in sorted(groups.items()):
        by_line[f"{engine}, {board}"] += [abs(one) for one in errors]
    return "".join(
        f"- {name}: {len(errors)} figures, median error {100 * statistics.median(errors):.1f} %, "
        f"mean {100 * statistics.fmean(errors):.1f} %\n"
        for name, errors in by_line.items()
    )


def main() -> None:
    """Predict all figures and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--jobs", default="1")
    parser.add_argument("--each", action="store_true", help="print the error of each figure")
    options = parser.parse_args()
    found: dict[Text, list[Figure]] = defaultdict(list)
    for page in options.pages:
        for figure in figures_of(page.read_text(encoding="utf-8")):
            found[figure.text].append(figure)
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for number, (text, figures) in enumerate(sorted(found.items()), start=1):
        predictions = predicted(text, sorted({one.batch for one in figures}), options.jobs)
        print(f"{number}/{len(found)} {' '.join(map(str, text))}")
        for figure in figures:
            of_figure = error(figure, predictions[figure.batch])
            what = "time to first token" if figure.measure == "first_ms" else "tokens a second"
            board = f"{text.gpu}, {text.precision.upper()}"
            groups[text.engine, board, f"Llama 2 {text.model.upper()}", str(text.gpus), what].append(of_figure)
            if options.each:
                print(f"  batch {figure.batch}, {figure.measure} {figure.value:g}: {100 * of_figure:+.1f} %")
    names = ("engine", "GPU", "model", "GPUs", "measured", "figures")
    PAGE.write_text(replaced(PAGE, {SECTION: error_table(names, dict(sorted(groups.items())))}), encoding="utf-8")
    README.write_text(replaced(README, {SECTION: summary(groups)}), encoding="utf-8")


if __name__ == "__main__":
    main()
