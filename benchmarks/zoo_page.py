"""Writes docs/zoo.md and its plot, from reports of ``gpusim validate --format json`` on tables of whole models.

python benchmarks/zoo_page.py REPORT.json...
python benchmarks/zoo_page.py --section REPORT.json...

The second form writes a section of the page alone: tables that were predicted later than the page, or random samples of
tables' networks (``benchmarks.zoo_sample``). A new page keeps the section that the one before it had.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from accuracy_table import percent
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from provenance import README, commit
from sections import replaced, row

from gpusim.figures import ticks
from gpusim.figures.canvas import Canvas, Caption, cells
from gpusim.figures.style import COLOURS, STYLE
from gpusim.figures.validation_plots import abreast, diagonals, guides
from gpusim.studies.validation.accuracy import errors

ROOT = Path(__file__).resolve().parent.parent
PAGE, PLOT = ROOT / "docs" / "zoo.md", ROOT / "docs" / "zoo.png"
INTRODUCTION = """\
# Networks that nobody typed in

Networks of [timm](https://github.com/huggingface/pytorch-image-models), torchvision and PaddleClas (by their equals in
the other two), captured as they are ([capture](models.md#capture)), against throughputs that others measured and
published. No constant is fitted to any of them, and no host: the specs are those of all other pages.

![Predicted against measured throughput](zoo.png)
"""
CONDITIONS = """\
How the tables were measured. timm's `benchmark.py` runs FP16 under autocast with `cudnn.benchmark`, and waits for each
step; [`benchmarks/zoo.py`](../benchmarks/zoo.py) states what the captures take over from it. No table says whether it
ran with `--fast-norm`; group and layer norms of inference are taken to have run in FP16, since networks of group norms
come out far too slow in FP32. The power limit of the board is not stated either, and is taken as the datasheet's 350 W:
networks that matrix multiplications bind come out slower than measured, as they would if the board's limit were higher.
"""
COPIED_INPUTS = """\
torchvision's rows of PyTorch 1.0 have their input on the GPU; in the others the step holds a copy of the input from
pageable memory, which predictions hold, too, on a host that eight loaders keep busy, which they do not know.
"""
ENGINES = """\
PaddleClas's rows are of Paddle Inference with TensorRT, versions up to 8.0, on boards whose form and clocks are not
stated. The predictions fold layers as an engine does, and run kernels of cuDNN and cuBLAS in place of TensorRT's own,
one group of channels after the other where the version is below 8 or not known. PaddleClas's loop times a copy of the
images from pageable memory, and sleeps between two steps "for T4 GPU": steps are taken to run at the highest clock,
although the average that the fitted governor holds to the limit is shorter than most of them. What Paddle computes
itself between parts that TensorRT takes is not known, and not predicted.
"""
NO_KERNEL = "no kernel of its type computes it"
"""End of a reason that begins with the layer."""
SECTION = "later"
"""Markers of the section."""
LATER = """\
## Predicted later

Tables, and random samples of 40 and 25 networks of tables (`benchmarks/zoo_sample.py`, seed 36), that were predicted
after the rest of this page; they take the place of lines of the same tables above.
"""
THROUGHPUT = "img/s"
"""Unit of the rows that are drawn, and stated by family."""
NAMED = {"train": "training"}
"""Modes by the names that sentences give them, where these differ."""
LEAST_ROWS = 12
"""Rows of a family that has a line."""
MOST_NETWORKS = 15
"""Networks that are listed with the largest errors."""
SIDE_IN = 3.1
"""Side of a panel of the plot."""
LOOKS: Mapping[str, Mapping[str, Any]] = {
    "nchw": {"marker": "o", "color": COLOURS[0], "markersize": 2.6, "alpha": 0.55, "markeredgewidth": 0.0},
    "nhwc": {
        "marker": "^",
        "color": COLOURS[1],
        "markersize": 3.2,
        "alpha": 0.7,
        "markerfacecolor": "none",
        "markeredgewidth": 0.7,
    },
}
"""Markers of a layout of images."""

Row = Mapping[str, Any]


def main() -> None:
    """Write the page and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--section", action="store_true", help="write the section of later tables alone")
    options = parser.parse_args()
    reports = {path.stem: _report(path) for path in options.reports}
    if options.section:
        PAGE.write_text(replaced(PAGE, {SECTION: later(reports)}), encoding="utf-8")
        print(f"wrote a section of {PAGE}")
        return
    parity(reports).savefig(PLOT, dpi=130)
    README.write_text(replaced(README, {"zoo": _summary(_throughputs(reports))}), encoding="utf-8")
    sections = (
        INTRODUCTION,
        "\n".join(_table_lines(reports)),
        *_sentences(reports),
        CONDITIONS,
        *_conditions(reports),
        _kept(),
        "## By family\n\nRows in images/s, by the first part of their names: both layouts, all versions.",
        "\n".join(_family_lines(_throughputs(reports))),
        "## Farthest off\n\nThe median of each network's rows, by mode and layout.",
        "\n".join(_worst_lines(_throughputs(reports))),
        f"`make zoo` captures the networks of a table, `make zoo-page` writes this page. Written at {commit()}.",
    )
    PAGE.write_text("\n\n".join(one.strip() for one in sections) + "\n", encoding="utf-8")
    print(f"wrote {PAGE} and {PLOT}")


def later(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """The section of tables that were predicted after the page."""
    tables, sentences = "\n".join(_table_lines(reports)), _sentences(reports)
    batches = [line for name, one in reports.items() for line in _batch_lines(name, one["rows"])]
    parts = (
        LATER,
        tables,
        "\n".join((*BATCH_HEAD, *batches)) if batches else "",
        *sentences,
        *_conditions(reports),
        f"Written at {commit()}.",
    )
    return "\n\n".join(one.strip() for one in parts if one) + "\n"


BATCH_HEAD = (
    row(("table", "GPU", "precision", "batch", "rows", "median error", "mean", "90 % below", "bias")),
    "|---|---|---|---:|---:|---:|---:|---:|---:|",
)


def _batch_lines(name: str, rows: Sequence[Row]) -> Iterator[str]:
    """Errors by precision and batch, where a table has batches of one."""
    if any(one["batch"] == 1 for one in rows):
        for (gpu, precision, batch), own in _grouped(rows, "gpu", "precision", "batch"):
            yield row((name, gpu, precision, str(batch), str(len(own)), *_cells(own)[:-1]))


def _kept() -> str:
    """That section of the page as it is, with its markers."""
    begin, end = f"<!-- {SECTION}:begin -->\n", f"<!-- {SECTION}:end -->"
    text = PAGE.read_text(encoding="utf-8")
    return f"{begin}{text.partition(begin)[2].partition(end)[0]}{end}"


def _conditions(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """How some of the tables were measured."""
    if any(name.startswith("torchvision") for name in reports):
        yield COPIED_INPUTS
    if any(name.startswith("paddleclas") for name in reports):
        yield ENGINES


def _summary(rows: Sequence[Row]) -> str:
    """What README says of all networks."""
    texts = []
    for (mode, layout), own in _grouped(rows, "mode", "layout"):
        found = errors([one["predicted"] for one in own], [one["measured"] for one in own])
        networks = len({one["model"] for one in own})
        runs = ", ".join(part for part in (NAMED.get(mode, mode), layout.upper()) if part)
        texts.append(
            f"- {runs}: {networks} networks ({len(own)} rows), "
            f"median error {found['median_ape']:.1f} %, mean {found['mape']:.1f} %"
        )
    return "\n".join(texts) + "\n"


def _report(path: Path) -> Mapping[str, Any]:
    """The report on one table."""
    content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content["reports"][0] if "reports" in content else content


def _rows(reports: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    return [one for report in reports.values() for one in report["rows"]]


def _throughputs(reports: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    return [one for one in _rows(reports) if one["unit"] == THROUGHPUT]


def _table_lines(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield row(("table", "GPU", "runs", "rows", "networks", "median error", "mean", "90 % below", "bias", "Spearman"))
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, report in reports.items():
        for (gpu, mode, layout, torch), rows in _grouped(report["rows"], "gpu", "mode", "layout", "torch"):
            runs = ", ".join(part for part in (mode, layout, f"PyTorch {torch}" if torch else "") if part)
            yield row((name, gpu, runs, str(len(rows)), str(len({one["model"] for one in rows})), *_cells(rows)))
        for (gpu, mode), rows in _grouped(report["rows"], "gpu", "mode"):
            if len({(one["layout"], one["torch"]) for one in rows}) == 1:
                continue
            networks = str(len({one["model"] for one in rows}))
            yield row((name, gpu, f"**{mode}, all**", str(len(rows)), networks, *_cells(rows)))


def _cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """Errors of rows, as cells; rank correlation where it says something."""
    found = errors([one["predicted"] for one in rows], [one["measured"] for one in rows])
    shown = (*(percent(found[key]) for key in ("median_ape", "mape", "p90_ape")), f"{found['bias']:+.1f} %")
    rank = found["spearman"]
    return (*shown, "" if rank is None or len(rows) < LEAST_ROWS else f"{rank:.3f}")


def _grouped(rows: Sequence[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for one in rows:
        found[tuple(one[name] for name in names)].append(one)
    return sorted(found.items(), key=lambda pair: tuple(map(str, pair[0])))


def _sentences(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Paragraphs on rows without a prediction, on layouts, on memory, and on kernels without a model."""
    for name, report in reports.items():
        if reasons := report["overall"]["skip_reasons"]:
            listed = "; ".join(f"{count} of {_shortened(reason)}" for reason, count in _counted(reasons).items())
            yield f"Rows of `{name}` without a prediction: {listed}."
        if pairs := [abs(pair["error_pct"]) for pair in report["layouts"]]:
            yield (
                f"Throughput of NHWC over that of NCHW (`{name}`, {len(pairs)} pairs): median error "
                f"{median(pairs):.1f} %, mean {sum(pairs) / len(pairs):.1f} %."
            )
        for mode, one in report["memory"].items():
            yield (
                f"Device memory (`{name}`): of {one['ran']} batches of {NAMED.get(mode, mode)} that ran, "
                f"{one['fit_pct']:.1f} % are predicted to fit; of {one['ran_out']} larger ones that ran out of memory, "
                f"{one['do_not_fit_pct']:.1f} % are predicted not to."
            )
    rows = _rows(reports)
    whole = {one["model"] for one in rows} - {one["model"] for one in rows if one["unmodelled_pct"]}
    least = min(rows, key=lambda one: -one["unmodelled_pct"])
    yield (
        f"In {len(whole)} of {len({one['model'] for one in rows})} networks every call has a kernel model of its own; "
        f"the largest share of bytes that is simulated as copies is {least['unmodelled_pct']:.1f} % ({least['model']})."
    )


def _counted(reasons: Mapping[str, int]) -> dict[str, int]:
    """Rows by what is missing, without the names of networks."""
    found: dict[str, int] = defaultdict(int)
    for reason, count in reasons.items():
        without_layer = reason.partition(": ")[2] if reason.endswith(NO_KERNEL) else reason
        found["networks without a capture" if reason.startswith("model '") else without_layer] += count
    return found


def _shortened(reason: str) -> str:
    return reason.split(";", maxsplit=1)[0]


def _family_lines(rows: Sequence[Row]) -> Iterator[str]:
    yield row(("family", "mode", "rows", "networks", "median error", "mean", "90 % below", "bias"))
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for (family, mode), own in _grouped(rows, "family", "mode"):
        if len(own) >= LEAST_ROWS:
            networks = str(len({one["model"] for one in own}))
            yield row((family, mode, str(len(own)), networks, *_cells(own)[:-1]))


def _worst_lines(rows: Sequence[Row]) -> Iterator[str]:
    yield row(("network", "GPU", "runs", "error"))
    yield "|---|---|---|---:|"
    found = [
        (median(one["error_pct"] for one in own), model, gpu, f"{mode}, {layout}" if layout else mode)
        for (model, gpu, mode, layout), own in _grouped(rows, "model", "gpu", "mode", "layout")
    ]
    for error, model, gpu, runs in sorted(found, key=lambda one: -abs(one[0]))[:MOST_NETWORKS]:
        yield row((model, gpu, runs, f"{error:+.0f} %"))


def parity(reports: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Predicted against measured throughput, a panel for each GPU and mode, logarithmic."""
    with mpl.rc_context(STYLE):
        canvas = Canvas()
        panels = [(key, own) for key, own in _grouped(_throughputs(reports), "gpu", "mode")]
        for at, ((gpu, mode), own) in zip(cells(len(panels), abreast(len(panels))), panels, strict=True):
            found = errors([one["predicted"] for one in own], [one["measured"] for one in own])
            subtitle = f"{len(own):,} rows, median error {found['median_ape']:.1f} %, mean {found['mape']:.1f} %"
            heading = f"{gpu.upper()}, {NAMED.get(mode, mode)}"
            _draw(canvas.panel(*at, SIDE_IN, SIDE_IN, heading, subtitle, stretches=False), own)
        entries = [(Line2D([], [], linestyle="none", **look), name.upper()) for name, look in LOOKS.items()]
        caption = "A point is a measured network at one image size and version. Nothing is fitted to these rows"
        title = "Predicted against measured throughput of whole networks"
        return canvas.finish(Caption(title, caption, [*entries, *guides()]))


def _draw(ax: Any, rows: Sequence[Row]) -> None:
    for layout, look in LOOKS.items():
        own = [one for one in rows if one["layout"] == layout]
        ax.plot([one["measured"] for one in own], [one["predicted"] for one in own], linestyle="none", **look)
    values = [one[name] for one in rows for name in ("measured", "predicted")]
    low, high = min(values) / 1.2, max(values) * 1.2
    diagonals(ax, low, high)
    for axis, name in ((ax.xaxis, "measured"), (ax.yaxis, "predicted")):
        ticks.set_log_ticks(axis, low, high, ticks.number, 5, SIDE_IN)
        axis.set_label_text(f"{name} throughput [images/s]")


if __name__ == "__main__":
    main()
