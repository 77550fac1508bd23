"""Write into docs/language_models.md how measured requests to GPT models compare with predicted ones.

python benchmarks/generated_text.py FASTERTRANSFORMER.csv [--jobs N]

Rows of ``gpt-*`` with FasterTransformer's own kernels: whole requests of ``seq_len`` tokens and ``out`` tokens more, in
FP16, some over several GPUs (``tp``). The models are made from their sizes as ``gpusim models new`` makes them; nothing
is fitted to the rows. Kernels are those of a serving engine, launched one by one from a compiled program; those of the
prompt attend in products around a softmax, as FasterTransformer does where ``FMHA_ENABLE`` is not set.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from provenance import ROOT
from sections import replaced, row

from gpusim.cli import run_cli

PAGE = ROOT / "docs" / "language_models.md"
SECTION = "requests"


class Request(NamedTuple):
    """What requests have in common that are predicted together."""

    model: str
    layers: int
    heads: int
    hidden: int
    vocabulary: int
    gpu: str
    gpus: int
    prompt: int
    tokens: int


def requests_of(rows: Iterable[Mapping[str, str]]) -> dict[Request, dict[int, float]]:
    """Measured times by batch size, of each kind of request [ms]."""
    found: dict[Request, dict[int, float]] = defaultdict(dict)
    for one in rows:
        if not one["model"].startswith("gpt-") or one["framework"] != "ft" or one["unit"] != "ms/step":
            continue
        said = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)(?!\.)\b", one["config"])}
        kind = Request(
            one["model"],
            said["layers"],
            said["heads"],
            said["hidden"],
            said["vocab"],
            one["gpu"],
            int(one["gpus"]),
            int(one["seq_len"]),
            said["out"],
        )
        found[kind][int(one["batch_per_gpu"])] = float(one["value"])
    return found


def predicted_ms(kind: Request, batches: Sequence[int], jobs: str) -> dict[int, float]:
    """Predicted times by batch size [ms]."""
    sizes = {"n_layer": kind.layers, "n_head": kind.heads, "n_embd": kind.hidden, "vocab_size": kind.vocabulary}
    config = {"model_type": "gpt2", "n_positions": 2048, **sizes}
    with model_file(config, kind.model, "FasterTransformer docs/gpt_guide.md") as model:
        asked = [model, "--arch", kind.gpu, "--mode", "inference", "--precision", "fp16", "--compiled-host"]
        asked += ["--prompt", str(kind.prompt), "--batch", ",".join(map(str, batches)), "--jobs", jobs]
        asked += ["--gpus", str(kind.gpus), "--parallel", "tensor"] if kind.gpus > 1 else []
        prompts = cases(*asked, "--attention", "eager")
        tokens = cases(*asked, "--generate", str(kind.tokens))
    return {
        prompt["batch"]: prompt["step_ms"] + (kind.tokens - 1) * token["time_per_output_token_ms"]
        for prompt, token in zip(prompts, tokens, strict=True)
    }


@contextmanager
def model_file(config: Mapping[str, Any], title: str, source: str) -> Iterator[str]:
    """A model's file for a while, made from a configuration of transformers as ``gpusim models new`` makes it."""
    with tempfile.TemporaryDirectory() as folder:
        read, made = Path(folder, "config.json"), Path(folder, "model.yaml")
        read.write_text(json.dumps(config), encoding="utf-8")
        _called("models", "new", "--from", str(read), "-o", str(made), "--title", title, "--source", source)
        yield str(made)


def cases(*arguments: str) -> list[dict[str, Any]]:
    """Predictions of ``gpusim model`` by batch size."""
    found = json.loads(_called("model", *arguments, "--allow-oom", "--format", "json"))
    return found if isinstance(found, list) else [found]


def _called(*arguments: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        status = run_cli(list(arguments))
    if status:
        raise SystemExit(f"gpusim {' '.join(arguments)} ended with {status}")
    return out.getvalue()


def error_table(names: Sequence[str], groups: Mapping[tuple[str, ...], Sequence[float]]) -> str:
    """A table of errors of groups, which are fractions of what was measured; the last name counts them."""
    lines = [row((*names, "median error", "mean of absolute errors", "bias"))]
    lines.append(row(["---"] * (len(names) + 3)))
    for group, errors in groups.items():
        absolute = [abs(one) for one in errors]
        cells = [statistics.median(absolute), statistics.fmean(absolute), statistics.median(errors)]
        lines.append(row((*group, str(len(errors)), *(f"{100 * one:.1f} %" for one in cells))))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Predict all requests and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--jobs", default="1")
    options = parser.parse_args()
    with options.table.open(newline="", encoding="utf-8") as file:
        requests = requests_of(csv.DictReader(file))
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    for number, (kind, measured) in enumerate(sorted(requests.items()), start=1):
        predicted = predicted_ms(kind, sorted(measured), options.jobs)
        errors[kind.model, kind.gpus] += [predicted[batch] / measured[batch] - 1 for batch in measured]
        print(f"{number}/{len(requests)} {kind.model} on {kind.gpus}: prompts of {kind.prompt}, {kind.tokens} tokens")
    groups: dict[tuple[str, ...], list[float]] = {
        (model, str(gpus)): of_model for (model, gpus), of_model in sorted(errors.items())
    }
    PAGE.write_text(replaced(PAGE, {SECTION: error_table(("model", "GPUs", "requests"), groups)}), encoding="utf-8")


if __name__ == "__main__":
    main()
