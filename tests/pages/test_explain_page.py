"""The page of ``gpusim explain --html`` of an operator, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_pages import Open, Opened, check_on_every_screen, page_of

pytestmark = pytest.mark.browser
OPERATOR = "gemm:1000x1000x1000:fp16"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("explain") / "page.html"
    return page_of("explain", OPERATOR, "--arch", "v100-sxm2-16gb", "--to", "a100-sxm4-80gb", out=out)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("example") / "page.html"
    return page_of("explain", "gemm:32x32x32:fp32:layout=nt", "--arch", "teaching", out=out)


def values(opened: Opened, table: str, key: str) -> list[float]:
    """Unrounded numbers of a column."""
    script = """(table, key) => [...table.tBodies[0].rows].map(row => Number(row.cells[
        [...table.tHead.rows[0].cells].findIndex(cell => cell.dataset.key === key)].dataset.value))"""
    locator = opened.page.locator(f"[data-name={table}] table").first
    found: list[float] = locator.evaluate(script.replace("(table, key)", "(table)").replace("=== key", f'=== "{key}"'))
    return found


def fact(opened: Opened, name: str) -> str:
    return str(opened.page.locator(f"dt:text-is('{name}') + dd").first.inner_text())


def test_the_waterfall_adds_up_to_the_stated_time(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    assert opened.page.locator(".chart svg").count() == 7
    *parts, predicted = values(opened, "waterfall", "us")
    assert sum(parts) == pytest.approx(predicted, rel=1e-12)
    assert f"{predicted:.2f} us" == fact(opened, "time")
    assert sum(values(opened, "parts", "us")) == pytest.approx(predicted, rel=1e-12)


def test_the_parts_of_the_speedup_add_up_to_the_difference(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    *parts, whole = values(opened, "speedup", "us")
    *_, here = values(opened, "speedup", "here")
    *_, there = values(opened, "speedup", "there")
    assert sum(parts) == pytest.approx(whole, rel=1e-9)
    assert there - here == pytest.approx(whole, rel=1e-12)
    assert f"{here:.2f} us" == fact(opened, "time")


def test_the_keyboard_zooms_the_timeline_and_leads_back(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    bar = opened.page.locator("#timeline-of-one-sm .zoom").first
    shown = bar.get_by_role("status")

    def press(button: str) -> tuple[float, float]:
        bar.get_by_role("button", name=button, exact=True).focus()
        opened.page.keyboard.press("Enter")
        low, high = (float(one.replace(",", "")) for one in shown.inner_text().split(" to "))
        return low, high

    low, high = press("whole")
    zoomed = press("zoom in")
    assert zoomed[1] - zoomed[0] == pytest.approx((high - low) / 2, rel=1e-2)
    moved = press("to the right")
    assert moved[0] > zoomed[0]
    assert press("whole") == (low, high)


def test_stalls_have_their_names_in_nsight_compute_and_what_helps(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    opened.page.locator("#stalls summary").click()
    rows = opened.rows("[data-name=stalls] table")
    assert "Stall Long Scoreboard" in {row[0] for row in rows}
    assert all(len(row[4]) > 20 for row in rows)
    assert sum(values(opened, "stalls", "share")) == pytest.approx(100)


def test_392_and_221_cycles_are_read_off_the_worked_example(example: Path, open_page: Open) -> None:
    opened = open_page(example)
    section = opened.page.locator("#every-warp--cycle-by-cycle")
    described = section.locator(".said").all_inner_texts()
    assert ["200 + 8 × 20 + 8 × 4 = 392 cycles" in described[0], "200 + 20 + 1 = 221 cycles" in described[1]] == [
        True
    ] * 2
    drawn = [one.text_content() for one in section.locator("svg").all()]
    assert ["392 cycles" in drawn[0], "221 cycles" in drawn[1]] == [True] * 2
    ends = values(opened, "waterfall", "us")
    assert ends[-1] == pytest.approx(0.392)
    opened.check()


def test_the_page_holds_on_every_screen_and_on_paper(page: Path, open_page: Open) -> None:
    check_on_every_screen(page, open_page)


def test_the_file_says_where_it_comes_from(page: Path) -> None:
    text = page.read_text("utf-8")
    assert f"gpusim explain {OPERATOR} --arch v100-sxm2-16gb" in text
    assert "hash of A100-SXM4-80GB" in text
    assert "sm.count" in text
