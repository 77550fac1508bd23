"""The page of ``gpusim compare --html``, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_pages import Open, check_on_every_screen, page_of
from conftest import RunGpusim, refused

pytestmark = pytest.mark.browser
ARCHS = "v100-sxm2-16gb,t4,a100-sxm4-80gb"
GPU, PRICE, FOR_A_DOLLAR, FOR_THE_MONEY = 0, 6, 8, 9
TABLE = "[data-name=prices] table"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    prices = folder / "prices.csv"
    _ = prices.write_text("gpu,per_hour\nt4,0.5\nv100-sxm2-16gb,2.5\na100-sxm4-80gb,3.5\n", "utf-8")
    model = ("--mode", "inference", "--precision", "fp16", "--batch", "2")
    return page_of(
        *("compare", "gemm:1024x1024x1024:fp16", "bert_base", *model, "--archs", ARCHS, "--prices", prices),
        out=folder / "page.html",
    )


def test_a_click_sorts_the_rows_and_another_turns_them_round(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    names = {row[GPU] for row in opened.rows(TABLE)}
    assert names == {"V100-SXM2-16GB", "T4", "A100-SXM4-80GB"}
    assert opened.page.locator(".chart svg").count() == 6
    heading = opened.page.get_by_role("button", name="speedup ×")
    for turned in (False, True):
        heading.click()
        speedups = [float(row[4]) for row in opened.rows(TABLE)]
        assert speedups == sorted(speedups, reverse=turned)


def test_an_edited_price_changes_what_is_best_for_the_money(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    before = {row[GPU]: row for row in opened.rows(TABLE) if row[1].startswith("gemm")}
    best = max(before, key=lambda gpu: float(before[gpu][FOR_THE_MONEY]))
    assert float(before[best][FOR_THE_MONEY]) == 1
    field = opened.page.get_by_label(f"price of {best}").first
    field.fill(str(100 * float(before[best][PRICE])))
    after = {row[GPU]: row for row in opened.rows(TABLE) if row[1].startswith("gemm")}
    assert max(after, key=lambda gpu: float(after[gpu][FOR_THE_MONEY])) != best
    per_dollar = [float(rows[best][FOR_A_DOLLAR].replace(",", "")) for rows in (before, after)]
    assert per_dollar[0] / per_dollar[1] == pytest.approx(100, rel=1e-2)


def test_a_board_beyond_the_measured_ones_is_named_above_the_table_of_one_workload(
    tmp_path: Path, open_page: Open
) -> None:
    spec, prices = tmp_path / "wide.yaml", tmp_path / "prices.csv"
    count = '{value: 168, kind: assumed, source: "what if: twice the SMs"}'
    _ = spec.write_text(f"name: Wide\nextends: a40\nsm:\n  count: {count}\n", "utf-8")
    _ = prices.write_text("gpu,to_buy\nwide,9000\na40,5000\n", "utf-8")
    asked = ("gemm:1024x1024x1024:fp16", "--archs", "a40,wide", "--arch-path", tmp_path, "--prices", prices)
    opened = open_page(page_of("compare", *asked, out=tmp_path / "page.html"))
    assert "Wide is unlike the measured boards of its architecture" in opened.page.locator("header").inner_text()
    bought_for_the_money = FOR_THE_MONEY - 3  # no workload, and neither a run nor a dollar of hours
    assert max(float(row[bought_for_the_money]) for row in opened.rows(TABLE)) == 1
    opened.page.get_by_label("price of Wide").fill("1")
    assert {row[GPU]: float(row[bought_for_the_money]) for row in opened.rows(TABLE)}["Wide"] == 1
    opened.check()


def test_the_page_holds_on_every_screen_and_on_paper(page: Path, open_page: Open) -> None:
    check_on_every_screen(page, open_page)


def test_the_keyboard_reaches_headings_and_filters(page: Path, open_page: Open) -> None:
    opened = open_page(page)
    heading = opened.page.get_by_role("button", name="power W")
    heading.focus()
    opened.page.keyboard.press("Enter")
    powers = [float(row[12]) for row in opened.rows(TABLE)]
    assert powers == sorted(powers)


def test_the_file_names_its_command(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "gpusim compare gemm:1024x1024x1024:fp16 bert_base" in text
    assert "http://" not in text.split("<script")[0]


def test_a_folder_that_is_not_there_is_named(command: RunGpusim, tmp_path: Path) -> None:
    asked = ("compare", "gemm:64x64x64:fp32", "--archs", "t4", "--html", tmp_path / "no" / "page.html")
    assert f"no folder {tmp_path / 'no'}; make it first" in refused(command(*asked))


def test_the_page_says_first_that_a_board_is_calibrated_on_nothing(tmp_path: Path, open_page: Open) -> None:
    mine = tmp_path / "mine.yaml"
    _ = mine.write_text('name: Mine\nextends: rtx_3070\ncompute_capability: "12.0"\n', "utf-8")
    gemm = ("gemm:512x512x512:fp16",)
    for arguments in (("compare", *gemm, "--archs", f"{mine},t4"), ("explain", *gemm, "--arch", mine)):
        opened = open_page(page_of(*arguments, out=tmp_path / f"{arguments[0]}.html"))
        lead = opened.page.locator("main p, header p, p").first.inner_text()
        assert "Mine is not calibrated: its values were fitted to no measured run" in lead
        assert "T4 is not" not in lead
