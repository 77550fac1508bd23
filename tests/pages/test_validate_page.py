"""The page of ``gpusim validate --html``, in a browser: operators, whole models, collectives and traced kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_pages import Open, check_on_every_screen, page_of

pytestmark = pytest.mark.browser
OPERATORS = "gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2,source\n"
MODELS = "id,gpu,gpus,model,mode,precision,batch_per_gpu,value,unit,seq_len,framework\n"
COLLECTIVES = "op,gpu,num_nodes,num_gpus_per_node,dtype,size(kb),time(us)\n"
KERNELS = "board,source,op,shapes,dtypes,numel_max,kernel,grid,block,time_us\n"
SIZES = (64, 128, 256, 512, 1024, 2048)
LONG_NAME = "a-source-whose-name-is-longer-than-the-window-of-a-telephone-is-wide-"
ALL_ROWS = "#all-rows table"
EVERY_KIND = ("operators", "whole models", "collectives", "kernels out of traces")


def _operators(folder: Path, sizes: Iterator[tuple[int, int, int]], name: str = "made_up.csv") -> Path:
    """A table of GEMMs, with times that nobody measured."""
    rows = [
        f"{gpu},{op},1,{m},{n},{k},fp16,dense,{5 + m * n * k / rate:.4g},profiler,warm,nobody"
        for m, n, k in sizes
        for gpu, rate in (("t4", 2e7), ("v100-sxm2-16gb", 4e7))
        for op in ("gemm", "linear")
    ]
    path = folder / name
    _ = path.write_text(OPERATORS + "\n".join(rows) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Operators on two boards."""
    folder = tmp_path_factory.mktemp("page")
    table = _operators(folder, ((m, 1024, 1024) for m in SIZES))
    return page_of("validate", table, "--jobs", "1", out=folder / "page.html")


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of each kind, with rows that have no prediction."""
    folder = tmp_path_factory.mktemp("kinds")
    operators = _operators(folder, ((m, 256, 256) for m in SIZES[:2]))
    _ = operators.write_text(
        operators.read_text("utf-8") + "nothing,gemm,1,8,8,8,fp16,dense,5,profiler,warm,\n", "utf-8"
    )
    models = folder / "models.csv"
    _ = models.write_text(f"{MODELS}a-1,t4,1,bert_large,inference,fp16,1,40,seq/s,64,pytorch\n", "utf-8")
    collectives = folder / "collectives.csv"
    rows = "".join(f"all_reduce,V100-SXM2-16GB,{nodes},8,half,{size},90\n" for nodes in (1, 2) for size in (64, 1024))
    _ = collectives.write_text(COLLECTIVES + rows, "utf-8")
    kernels = folder / "kernels.csv"
    kernel = "void at::native::vectorized_elementwise_kernel<4>"
    rows = "".join(
        f"a100-sxm4-40gb,{LONG_NAME}{size},clamp_min_,{size}x1024,f32,{size * 1024},{kernel},{size * 2}x1x1,128x1x1,9\n"
        for size in SIZES
    )
    _ = kernels.write_text(KERNELS + rows, "utf-8")
    out = folder / "page.html"
    asked = [sys.executable, "-m", "gpusim", "validate", operators, models, collectives, kernels, "--html", out]
    done = subprocess.run([*map(str, asked), "--jobs", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr  # a row has no prediction
    return out


def test_a_pointer_on_a_point_tells_its_row(page: Path, open_page: Open) -> None:
    said = open_page(page).tip("#predicted-and-measured", 3)
    assert "gemm" in said or "linear" in said
    assert "1024x1024" in said
    assert "made_up.csv:" in said


def test_a_choice_holds_for_both_charts(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    charts = opened.page.locator("#predicted-and-measured .chart")
    points = [charts.nth(at).locator(".mark-symbol.role-mark path") for at in (0, 1)]
    before = [one.count() for one in points]
    assert before == [4 * len(SIZES)] * 2
    choice = charts.nth(0).get_by_role("combobox", name="GPU")
    choice.focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.wait_for_function(
        "() => document.querySelectorAll('#predicted-and-measured .chart')[1]"
        f".querySelectorAll('.mark-symbol.role-mark path').length === {2 * len(SIZES)}"
    )
    assert [one.count() for one in points] == [2 * len(SIZES)] * 2


def test_the_keyboard_sorts_and_filters_the_rows(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    heading = opened.page.locator("#all-rows").get_by_role("button", name="measured")
    heading.focus()
    opened.page.keyboard.press("Enter")
    measured = [float(row[2].replace(",", "")) for row in opened.rows(ALL_ROWS)]
    assert len(measured) == 4 * len(SIZES)
    assert measured == sorted(measured)
    opened.page.locator("#all-rows input").fill("t4 linear")
    found = opened.rows(ALL_ROWS)
    assert {row[1] for row in found} == {"t4"}
    assert len(found) == len(SIZES)


def test_errors_of_the_page_are_those_of_the_command(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    printed = opened.rows("#errors table")[-1]
    rows = opened.rows(ALL_ROWS)
    errors = [abs(float(row[4])) for row in rows]
    assert printed[0] == "all"
    assert float(printed[6]) == pytest.approx(sum(errors) / len(errors), rel=1e-2)


def test_a_page_of_every_kind_of_table_shuts_no_one_out(every_kind: Path, open_page: Open) -> None:
    opened = open_page(every_kind, 390)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    headings = opened.page.locator("h2").all_inner_texts()
    for kind in EVERY_KIND:
        assert f"{kind}: Predicted and measured" in headings
    assert opened.rows("#operators--no-prediction table")[0][2].startswith("nothing: unknown GPU")
    assert "several nodes" in opened.rows("#collectives--no-prediction table")[0][2]
    assert opened.page.evaluate("new Set([...document.querySelectorAll('[id]')].map(one => one.id)).size") == (
        opened.page.locator("[id]").count()
    )
    opened.check()


def test_the_page_holds_on_every_screen_and_on_paper(page: Path, open_page: Open) -> None:
    check_on_every_screen(page, open_page)


def test_thousands_of_rows_stay_small_and_can_all_be_found(tmp_path: Path, open_page: Open) -> None:
    sizes = [(m, n, 64) for m in range(8, 8 * 26, 8) for n in range(64, 64 * 31, 64)]
    table = _operators(tmp_path, iter(sizes))
    path = page_of("validate", table, "--detail", "bound", "--jobs", "1", out=tmp_path / "page.html")
    assert path.stat().st_size < 4e6
    opened = open_page(path)
    assert opened.page.locator("#predicted-and-measured .chart canvas").count() == 2
    assert len(opened.rows(ALL_ROWS)) == 100
    opened.page.locator("#all-rows .more button").click()
    assert len(opened.rows(ALL_ROWS)) == 200
    opened.page.locator("#all-rows").get_by_role("button", name="measured").click()
    opened.page.locator("#all-rows input").fill(f"{sizes[-1][0]}x{sizes[-1][1]}x64")
    assert [row[1] for row in opened.rows(ALL_ROWS)] in (
        ["t4", "t4", "v100-sxm2-16gb", "v100-sxm2-16gb"],
        ["v100-sxm2-16gb", "v100-sxm2-16gb", "t4", "t4"],
    )
    assert opened.page.locator("#all-rows [role=status]").inner_text() == f"4 of {4 * len(sizes)} rows"
    opened.check()


def test_the_page_names_its_command_its_tables_and_its_sources(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "gpusim validate" in text
    assert "hash of made_up.csv" in text
    assert "dram.peak_bandwidth_gb_per_s" in text
    assert "http://" not in text.split("<script")[0]
