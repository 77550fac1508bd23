"""The page of ``gpusim microbench --html``, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_pages import Open, check_on_every_screen, page_of

pytestmark = pytest.mark.browser
PUBLISHED = """\
gpu,benchmark,parameters,value,unit,source
T4,mem_latency_pchase_random,footprint_kb=16,32,cycles,nobody
T4,mem_latency_pchase_random,footprint_kb=1024,190,cycles,nobody
T4,mem_latency_pchase_random,footprint_kb=65536,500,cycles,nobody
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    table = folder / "published.csv"
    _ = table.write_text(PUBLISHED, "utf-8")
    return page_of("microbench", "latency", "--measured", table, out=folder / "page.html")


def test_a_curve_has_its_published_readings(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    assert opened.page.locator("figcaption").first.inner_text() == "T4: pointer chase, one chain"
    assert opened.page.locator(".chart svg .mark-symbol.role-mark path").count() == 6  # three of them published
    assert "190" in opened.tip("#curves", 1)


def test_points_have_their_errors_and_sources(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    rows = opened.rows("#points .table:last-of-type table")
    assert len(rows) == 3
    for row in rows:
        simulated, published, error = (float(row[at].replace(",", "")) for at in (3, 5, 6))
        assert error == pytest.approx(100 * (simulated / published - 1), abs=0.5)
        assert row[7] == "nobody"


def test_the_page_holds_on_every_screen_and_on_paper(page: Path, open_page: Open) -> None:
    check_on_every_screen(page, open_page)


def test_a_suite_without_a_table_has_curves_of_its_own_points(tmp_path: Path, open_page: Open) -> None:
    path = page_of("microbench", "latency", "--arch", "t4", out=tmp_path / "page.html")
    assert len(path.read_text("utf-8")) < 4e6
    opened = open_page(path, 390)
    assert opened.page.locator(".chart svg").count() >= 3
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    heading = opened.page.locator("#points").get_by_role("button", name="simulated")
    heading.click()
    opened.check()
