"""The page of ``gpusim run --html``, in a browser: every kind of plot."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_pages import Open, check_on_every_screen, page_of
from conftest import RunGpusim

pytestmark = pytest.mark.browser
EVERY_PLOT = """\
title: Two boards
question: Which is faster?
gpus: [T4, A100-SXM4-40GB]
dtypes: fp16
gemms:
  - {group: square, square: [256, 512, 1024]}
  - {group: named, label: wide, m: 64, n: 1024, k: 256}
  - {group: named, label: narrow, m: 64, n: 64, k: 256}
measured: [runs.csv]
tables: [results, speedup, ledger]
plots:
  - time
  - tflops_roofline
  - stalls
  - kind: speedup
    baseline: T4
    lines: [{label: DRAM, value: 1555/320}]
"""
SPARSE = """\
title: Sparse
gpus: [A100-SXM4-40GB]
dtypes: fp16
sparsity: [dense, "2:4"]
gemms: [{m: 512, k: 512, n: [16, 256, 1024]}]
plots: [sparse_speedup]
"""
DESIGN = """\
title: Design
gpus:
  - gpu: A100-SXM4-40GB
    overrides: {l2.capacity_mib: [20, 40], dram.peak_bandwidth_gb_per_s: [1x, 2x, 4x]}
dtypes: fp16
gemms: [{label: a layer, m: 16, n: 4096, k: 4096}]
plots:
  - {kind: heat_map, x: l2.capacity_mib, y: dram.peak_bandwidth_gb_per_s}
  - {kind: curves, x: dram.peak_bandwidth_gb_per_s, series: l2.capacity_mib}
"""
PANELS = """\
title: Many panels
gpus: [T4]
dtypes: fp16
gemms: [GROUPS]
plots: [time]
"""
MODELS = """\
title: A model
baseline: T4
other: A100-SXM4-40GB
precisions: [amp-fp16]
models:
  - label: BERT
    model: bert_base
    mode: inference
    sizes: {batch: 1, seq_len: 64, layers: 1}
    measured: [{precisions: amp-fp16, speedup: 3, source: nobody}]
    claimed: [{precisions: amp-fp16, speedup: 2, source: nobody}]
"""
MEASURED = """\
gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2
t4,gemm,1,512,512,512,fp16,dense,20,profiler,warm
a100-sxm4-40gb,gemm,1,512,512,512,fp16,dense,9,profiler,warm
a100-sxm4-40gb,gemm,1,64,64,256,fp16,dense,6,profiler,warm
"""
TRAINING = (
    *("mixed_precision_numerics", "training.steps=6", "training.log_every=2", "training.gradients_at=3"),
    *("training.samples=16", "training.layers=[8, 16, 4]"),
)


def _written(folder: Path, **texts: str) -> list[Path]:
    _ = (folder / "runs.csv").write_text(MEASURED, "utf-8")
    paths = [folder / f"{name}.yaml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        _ = path.write_text(text, "utf-8")
    return paths


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of plot of experiments with GEMMs, and speedups of models."""
    folder = tmp_path_factory.mktemp("page")
    files = _written(folder, every=EVERY_PLOT, sparse=SPARSE, design=DESIGN, models=MODELS)
    return page_of("run", *files, "--jobs", "1", "-o", folder / "results", out=folder / "page.html")


def test_every_kind_of_plot_has_charts_with_marks(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    headings = opened.page.locator("h2").all_inner_texts()
    kinds = ("Times", "Roofline", "Stalls", "Speedups")
    assert [f"Two boards: {kind}" in headings for kind in kinds] == [True] * 4
    for heading in ("Sparse: Speedups of 2:4 sparsity", "Design: Heat map", "Design: Curves", "A model: Plots"):
        assert heading in headings
    charts = opened.page.locator(".chart svg")
    assert charts.count() >= 10
    script = "svg => svg.querySelectorAll('.role-mark path, .role-mark line').length"
    assert all(charts.nth(at).evaluate(script) > 2 for at in range(charts.count()))


def test_a_pointer_tells_gpu_shape_and_bottleneck(page: Path, open_page: Open) -> None:
    said = open_page(page).tip("#two-boards--times", 1)
    for text in ("256", "fp16", "time [µs]", "bottleneck", "predicted"):
        assert text in said


def test_the_table_has_every_prediction_and_can_be_sorted(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    table = "#two-boards--results table"
    assert len(opened.rows(table)) == 10
    heading = opened.page.locator("#two-boards--results").get_by_role("button", name="time µs").first
    heading.focus()
    opened.page.keyboard.press("Enter")
    names = opened.page.locator(f"{table} thead").first.locator("th").all_inner_texts()
    place = next(at for at, name in enumerate(names) if name.startswith("time"))
    times = [float(row[place].replace(",", "")) for row in opened.rows(table)]
    assert times == sorted(times)


def test_the_page_holds_on_every_screen_and_on_paper(page: Path, open_page: Open) -> None:
    check_on_every_screen(page, open_page)


def test_the_file_says_what_varies(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "hash of experiment every" in text
    assert "l2.capacity_mib=20, 40" in text
    assert "hash of runs.csv" in text


def test_of_many_panels_the_reader_chooses_one(tmp_path: Path, open_page: Open) -> None:
    groups = ", ".join(f"{{group: group {at}, m: 64, n: {64 * at}, k: 64}}" for at in range(1, 13))
    files = _written(tmp_path, panels=PANELS.replace("GROUPS", groups))
    opened = open_page(page_of("run", *files, "--jobs", "1", "-o", tmp_path / "out", out=tmp_path / "page.html"))
    assert opened.page.locator(".chart svg").count() == 1
    assert "64×64×64" in opened.page.locator(".chart svg").text_content()
    opened.page.get_by_role("combobox", name="panel").select_option("fp16, group 12")
    opened.page.wait_for_function("document.querySelector('.chart svg').textContent.includes('64×768×64')")
    opened.check()


def test_results_that_are_up_to_date_make_the_page_again(tmp_path: Path, command: RunGpusim) -> None:
    files = _written(tmp_path, every=EVERY_PLOT, models=MODELS)
    for asked, count in (([*files, "--jobs", "1"], 2), (TRAINING, 1)):
        pages = [tmp_path / name for name in ("first.html", "again.html")]
        for path in pages:
            done = command("run", *asked, "-o", tmp_path / f"out{count}", "--html", path)
            assert done.returncode == 0, done.stderr
        assert done.stderr.count("is up to date") == count
        first, again = (path.read_text("utf-8").replace(path.name, "") for path in pages)
        assert first == again


def test_a_training_has_its_four_plots(tmp_path: Path, open_page: Open) -> None:
    opened = open_page(page_of("run", *TRAINING, "-o", tmp_path / "out", out=tmp_path / "page.html"))
    assert opened.page.locator("#plots figcaption").all_inner_texts() == [
        "Does it learn?",
        "Which magnitudes do the gradients have?",
        "How large may the loss scale be?",
        "How many updates are lost?",
    ]
    opened.check()
