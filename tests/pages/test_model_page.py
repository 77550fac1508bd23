"""The page of ``gpusim model --html``, and of ``gpusim explain --html`` of a model, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_pages import Open, check_on_every_screen, page_of

pytestmark = pytest.mark.browser
STEP = ("--precision", "amp-fp16", "--batch", "2", "--seq-len", "64")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model") / "page.html"
    return page_of("model", "bert_base", "--arch", "t4", "--arch", "a100-sxm4-80gb", *STEP, out=out)


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("explain") / "page.html"
    return page_of("explain", "bert_base", "--arch", "t4", *STEP, "--parts-only", out=out)


def column(opened: object, table: str, key: str) -> list[list[float]]:
    """Unrounded numbers of a column, of each table of the name."""
    script = """tables => tables.map(table => [...table.tBodies[0].rows].map(row => Number(row.cells[
        [...table.tHead.rows[0].cells].findIndex(cell => cell.dataset.key === "KEY")].dataset.value)))"""
    page = opened.page  # type: ignore[attr-defined]
    found: list[list[float]] = page.locator(f"[data-name={table}] table").evaluate_all(script.replace("KEY", key))
    return found


def test_each_case_has_a_waterfall_that_adds_up_to_its_step(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    (steps_ms,) = column(opened, "cases", "step_ms")
    waterfalls = column(opened, "waterfall", "us")
    assert len(waterfalls) == len(steps_ms) == 2
    for step_ms, (*parts, predicted) in zip(steps_ms, waterfalls, strict=True):
        assert sum(parts) == pytest.approx(predicted, rel=1e-9)
        assert predicted == pytest.approx(1e3 * step_ms, rel=1e-12)


def test_each_case_has_its_layers_operators_timeline_and_memory(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    assert opened.page.locator(".chart svg").count() == 1 + 2 * 6
    kernels = opened.rows("[data-name=kernels] table")
    assert any("gemm" in row[-1] for row in kernels)
    tiles = opened.page.locator("#operators--t4--amp-fp16 svg").first.locator("path[aria-roledescription='rect mark']")
    assert tiles.count() == min(len(kernels), 151)


def test_the_keyboard_zooms_host_and_gpu(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    bars = opened.page.locator("section[id^=host-and-gpu] .zoom")
    widths = []
    for bar in (bars.nth(0), bars.nth(1)):  # each its own chart
        for button in ("whole", "zoom in"):
            bar.get_by_role("button", name=button, exact=True).focus()
            opened.page.keyboard.press("Enter")
            low, high = (float(one.replace(",", "")) for one in bar.get_by_role("status").inner_text().split(" to "))
            widths.append(high - low)
    assert [widths[0] / widths[1], widths[2] / widths[3]] == pytest.approx([2, 2], rel=1e-2)
    assert widths[0] != pytest.approx(widths[2], rel=1e-3)


def test_the_most_memory_of_the_series_is_that_of_the_step(explained: Path, open_page: Open) -> None:
    opened = open_page(explained)
    stated = opened.page.locator("dt:text-is('memory') + dd").inner_text().split()[0]
    described = opened.page.locator("#memory-over-the-step .said").inner_text()
    assert float(described.split("Most at once is ")[1].split()[0]) == pytest.approx(float(stated), rel=0.01)
    opened.check()


def test_the_page_holds_on_every_screen_and_on_paper(page: Path, open_page: Open) -> None:
    check_on_every_screen(page, open_page)


def test_a_translation_of_many_steps_has_no_timeline(tmp_path: Path, open_page: Open) -> None:
    asked = ("model", "gnmt_v2_greedy", "--arch", "t4", "--mode", "inference", "--precision", "fp16", "--batch", "8")
    opened = open_page(page_of(*asked, out=tmp_path / "page.html"))
    headings = opened.page.locator("h2").all_inner_texts()
    assert "Layers" in headings
    assert "Host and GPU over time" not in headings
    opened.check()


def test_the_file_names_its_command(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "gpusim model bert_base --arch t4 --arch a100-sxm4-80gb" in text
