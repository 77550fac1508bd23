"""Writes docs/training_2020.md and its plot: GPUs of 2017 to 2020 in training, predicted and measured.

python benchmarks/training_2020_page.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from claims_page import paragraphs
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from provenance import commit
from sections import row

from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.experiment.claims import ClaimsExperiment
from gpusim.experiment.comparison import Row
from gpusim.experiment.loading import open_experiment
from gpusim.figures.canvas import Canvas, Caption
from gpusim.figures.model_speedups_plot import BAR, BAR_IN, MEASURED, PANEL_IN, PRECISIONS
from gpusim.figures.style import COLOURS, STYLE, WHISKER
from gpusim.studies.experiments import run

ROOT = Path(__file__).resolve().parent.parent
PAGE, PLOT = ROOT / "docs" / "training_2020.md", ROOT / "docs" / "training_2020.png"
NETWORKS = {"resnet50": "ResNet-50", "bert_large_squad": "BERT base, 384 tokens"}
UNIT = "RTX-2080-Ti"
"""GPU whose throughput is 1."""
NOTED_PCT = 15.0
"""Differences above this have a reason."""
INTRODUCTION = """\
# GPUs of 2017 to 2020 in training

[A well-known guide](https://timdettmers.com/2020/09/07/which-gpu-for-deep-learning/) of September 2020 ranks GPUs by
their speed in training convolutional networks and transformers. It shows its figures in charts; they are not repeated
here, as no text with their numbers was found. What its text states of A100 over V100 stands on the page of [published
claims](claims.md). This page predicts the comparison, and sets beside it what others measured on the same boards:
NVIDIA's scripts as Lambda ran them, at a batch for each memory, and what the guide's author and others published.

`gpusim run training_2020` computes the values from
[`experiments/training_2020.yaml`](../experiments/training_2020.yaml); `make figures` writes this page. Nothing was
fitted to these measurements. GPUs with Tensor Cores train with FP16, the others with FP32. Normalised values are over
{unit} with FP16, measured values over the measured one and predicted values over the predicted one. GPUs without a
measurement have the batch of a measured board of as much memory, or a smaller one.

![Throughput in training over that of {unit}: bars are predictions, hollow markers are measurements](training_2020.png)
"""
CONDITIONS = """\
All predictions are of PyTorch 1.7 in NVIDIA's container 20.10, which the boards of 2020 were measured with; the older
ones were measured with 20.01. Images are NCHW. In the logs of the RTX 3070, which were read, FP16 stands for apex's
optimizer of FP16 in ResNet-50 and for its level O2 in BERT; predictions are of automatic mixed precision.
FP16 on GPUs of Pascal is not predicted: no kernel of the catalogue computes its convolutions.
"""


@dataclass(frozen=True, slots=True)
class Trained:
    """A network on a GPU: items/s, and the memory of the step [GiB]."""

    network: str
    gpu: str
    precision: str
    batch: int
    unit: str
    predicted: float
    low: float
    high: float
    memory_gib: float
    measured: float | None
    note: str

    @property
    def difference_pct(self) -> float | None:
        """Deviation of the prediction from the measurement."""
        return None if self.measured is None else 100 * (self.predicted / self.measured - 1)


def main() -> None:
    """Predict the experiment, write the page and draw the plot."""
    experiment, out = open_experiment("training_2020"), ROOT / "results" / "training_2020"
    if not isinstance(experiment, ClaimsExperiment):
        raise TypeError("experiments/training_2020.yaml holds no claims")
    finished = run(experiment, out, service=Service(available_cores()))
    trained = list(_trained(experiment, finished.rows, out / "figures.csv"))
    ratios = [one for one in finished.rows if not one["unit"]]
    table, notes, sources = paragraphs(ratios)
    parts = (
        INTRODUCTION.format(unit=UNIT),
        *(text for network in NETWORKS for text in _of_network(network, trained)),
        CONDITIONS,
        f"## Ratios that others state\n\n{table}\n\n{notes}",
        sources,
        *_sources_of_throughput(finished.rows),
        f"Written at {commit()}.",
    )
    _ = PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")
    print(f"wrote {PAGE}")
    with mpl.rc_context(STYLE):
        _figure(trained).savefig(PLOT)
    print(f"wrote {PLOT}")


def _trained(experiment: ClaimsExperiment, rows: Sequence[Row], figures: Path) -> Iterator[Trained]:
    """The networks on all GPUs, with what was measured of each."""
    found: dict[str, dict[str, float]] = {}
    with figures.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            found.setdefault(line["run"], {})[line["figure"]] = float(line["value"])
    of_run = {one["expression"]: one for one in rows}
    for name, entry in experiment.content.runs.items():
        if entry.model is None or entry.model.model not in NETWORKS:
            continue
        stated, values = of_run.get(f"{name}.throughput"), found[name]
        yield Trained(
            entry.model.model,
            entry.gpu,
            PRECISIONS["fp16" if entry.model.precision == "amp-fp16" else entry.model.precision],
            entry.model.sizes["batch"],
            stated["unit"] if stated else "",
            values["throughput"],
            values["throughput_p10"],
            values["throughput_p90"],
            values["memory_gib"],
            float(stated["published"]) if stated else None,
            stated["note"] if stated else "",
        )


def _of_network(network: str, trained: Sequence[Trained]) -> Iterator[str]:
    """The table of a network, and the reasons of its large differences."""
    own = [one for one in trained if one.network == network]
    base = _unit(own)
    unit = next(one.unit for one in own if one.unit)
    heading = [
        "GPU", "arithmetic", "batch", "memory, GiB", f"measured, {unit}", f"predicted, {unit}", "difference",
        "measured, normalised", "predicted, normalised",
    ]  # fmt: skip
    lines = [f"## {NETWORKS[network]}", "", row(heading), "|---|---|" + "---:|" * 7]
    for one in own:
        difference = one.difference_pct
        lines.append(
            row(
                [
                    one.gpu,
                    one.precision,
                    str(one.batch),
                    f"{one.memory_gib:.1f}",
                    f"{one.measured:.4g}" if one.measured else "",
                    f"{one.predicted:.4g}",
                    "" if difference is None else f"{difference:+.0f} %",
                    f"{one.measured / base.measured:.2f}" if one.measured and base.measured else "",
                    f"{one.predicted / base.predicted:.2f}",
                ]
            )
        )
    yield "\n".join(lines)
    reasons: dict[str, list[str]] = {}
    for one in own:
        if one.note and max(map(abs, _differences_pct(one, base))) > NOTED_PCT:
            reasons.setdefault(one.note, []).append(f"{one.gpu} ({one.precision})")
    if reasons:
        listed = [f"- {', '.join(names)}: {note}." for note, names in reasons.items()]
        yield "\n".join([f"Differences above {NOTED_PCT:g} %, of values or of normalised values:", "", *listed])


def _differences_pct(one: Trained, base: Trained) -> tuple[float, float]:
    """Deviations of the prediction, and of the normalised one, from the measurement; 0 without one."""
    own, unit = one.difference_pct, base.difference_pct
    if own is None or unit is None:
        return 0.0, 0.0
    return own, 100 * ((100 + own) / (100 + unit) - 1)


def _unit(own: Sequence[Trained]) -> Trained:
    """What normalised values of a network are over."""
    return next(one for one in own if (one.gpu, one.precision) == (UNIT, PRECISIONS["fp16"]))


def _sources_of_throughput(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Where the throughputs were measured."""
    sources = dict.fromkeys(one["source"] for one in rows if one["unit"])
    yield "\n".join(["Sources of the measured throughputs:", "", *(f"- {source}" for source in sources)])


def _figure(trained: Sequence[Trained]) -> Figure:
    """A panel for each network: the fastest prediction above, GPUs in the precision that suits them."""
    canvas = Canvas()
    for column, (network, title) in enumerate(NETWORKS.items()):
        own = [one for one in trained if one.network == network]
        base = _unit(own)
        best = {one.gpu: one for one in sorted(own, key=lambda one: one.predicted)}
        shown = sorted(best.values(), key=lambda one: one.predicted)
        ax = canvas.panel(0, column, PANEL_IN, len(shown) * BAR_IN + 0.1, title)
        places = range(len(shown))
        values = [one.predicted / base.predicted for one in shown]
        ax.barh(places, values, height=BAR, color=COLOURS[0])
        for place, one in enumerate(shown):
            ax.plot([one.low / base.predicted, one.high / base.predicted], [place, place], **WHISKER)
            if one.measured and base.measured:
                ax.plot([one.measured / base.measured], [place], **MEASURED)
        ax.set_yticks(places, [f"{one.gpu}, {one.precision}" for one in shown])
        ax.grid(visible=False, axis="y")
        ax.set_xlim(left=0)
        ax.set_xlabel(f"throughput over {UNIT}, FP16")
    return canvas.finish(
        Caption(
            "Training on GPUs of 2017 to 2020",
            "Simulated throughput of one GPU at the batch that its memory holds",
            [
                (Patch(facecolor=COLOURS[0]), "simulated"),
                (Line2D([], [], **WHISKER), "80 % interval of the prediction"),
                (Line2D([], [], **MEASURED), "measured, published by others"),
            ],
        )
    )


if __name__ == "__main__":
    main()
