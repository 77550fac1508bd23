"""Plots of an experiment: checked when it is loaded, with the names of their files."""

from __future__ import annotations

from pathlib import Path

import plots
import pytest
from conftest import LoadExperiment
from prepared_rows import prepared_rows

from gpusim import figures
from gpusim.experiment.plot_pages import MAX_SERIES
from gpusim.files.yamlfile import SpecError

TWO = """title: t
gpus: [T4, A100-SXM4-40GB]
dtypes: fp16
gemms: [{m: 64, n: 64, k: 64}]
plots:
"""
ONE = TWO.replace(", A100-SXM4-40GB", "")
SPEEDUP = "- {kind: speedup, baseline: T4, lines: [{label: l, value: RATIO}]}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            ONE + "- {kind: speedup, baseline: T4}",
            ":6: plots.0: no other GPU runs the GEMMs of T4; add a GPU",
        ),
        (
            TWO + "- {kind: speedup, baseline: T4, baseline_dtype: fp32}",
            ":6: plots.0: no other GPU runs the GEMMs of T4 fp32",
        ),
        (TWO + "- {kind: speedup}", ":6: plots.0.baseline: '' is not one of the GPUs; use T4 or A100-SXM4-40GB"),
        (TWO + "- {kind: speedup, baseline: T5}", ":6: plots.0.baseline: 'T5' is not one of the GPUs"),
        *(
            (TWO + SPEEDUP.replace("RATIO", ratio), ":6: plots.0.lines.0.value: ")
            for ratio in (
                "1e400/1",
                "1/0",
                "0/0",
                "nan/1",
                "-1/2",
                "'1/1e-400'",
                ".inf",
                ".nan",
                "0",
                "1e5",
                "x/y",
                "[1]",
            )
        ),
        (TWO + "- {kind: time, baseline: T4}", ":6: plots.0: 'baseline' belongs to a plot of kind speedup"),
        (TWO + "- {kind: time, file: t.gif}", ":6: plots.0.file: '.gif' is not a plot format; use .png, .svg, .pdf"),
        (TWO + "- {kind: time, file: ../t}", ":6: plots.0.file: "),
        (TWO + "- {kind: time, file: .png}", ":6: plots.0.file: "),
        (TWO + f"- {{kind: time, file: {'t' * 300}}}", ":6: plots.0.file: "),
        (TWO + "- {kind: time, file: t}\n- {kind: stalls, file: T.png}", ":7: plots.1: T.png is drawn twice"),
        (TWO + '- {kind: time, title: "a\\u0007b"}', ":6: plots.0.title: the character U+0007 cannot be shown"),
        (TWO + '- {kind: time, title: "\\ud800"}', ": "),
        (TWO + f"- {{kind: time, title: {'t' * 201}}}", ":6: plots.0.title: "),
        (
            TWO + "- stalls\ndetail: bound",
            ":6: plots.0: a closed form has no stall ledger; write detail: sampled",
        ),
        (TWO + "- sparse_speedup", ":6: plots.0: a sparse speedup needs both; write sparsity: [dense, '2:4']"),
        (
            TWO.replace(
                "T4,", ", ".join(f"{{gpu: T4, label: {i}}}" for i in map("g{}".format, range(MAX_SERIES))) + ","
            )
            + "- time",
            ":6: plots.0: 65 series cannot be distinguished, at most 64 can; remove the plot or split the experiment",
        ),
        (TWO.replace("m: 64, n: 64", "m: '1:80', n: '1:80'") + "- stalls", ":6: plots.0: it would need 320 pages"),
    ],
)
def test_what_cannot_be_drawn_is_refused_when_the_experiment_is_loaded(
    load: LoadExperiment, text: str, problem: str
) -> None:
    with pytest.raises(SpecError) as error:
        load(text)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_one_gpu_in_a_speedup_of_data_types_is_drawn(load: LoadExperiment) -> None:
    experiment = load(ONE.replace("fp16", "[fp16, fp32]") + "- {kind: speedup, baseline: T4, baseline_dtype: fp32}")
    (figure,) = figures.compose(experiment.content.plots[0], "t", prepared_rows(experiment), ())
    assert figure.axes


def test_the_files_of_every_page_are_known_before_the_work(load: LoadExperiment, tmp_path: Path) -> None:
    experiment = load(
        TWO.replace("m: 64, n: 64", "m: '1:45', n: [64, 65]")
        + "- {kind: stalls, file: s.svg}\n- time\n- tflops_roofline"
    )
    names = experiment.output_files()
    assert names[:6] == ("results.csv", "s.svg", "s_2.svg", "s_3.svg", "s_4.svg", "s_5.svg")
    rows = prepared_rows(experiment)
    written = [path for entry in experiment.content.plots for path in figures.draw(entry, "t", rows, (), tmp_path)]
    assert tuple(path.name for path in written) == names[1:]


def test_random_plot_sections_are_drawn_so_that_they_can_be_read_or_are_refused() -> None:
    assert plots.main(["--count", "14", "--seed", "7"]) == 0
