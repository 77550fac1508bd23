"""The live page of ``gpusim serve``, in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser_pages import Opened, axe_violations
from served import Served

from gpusim.specs import load_spec

pytestmark = pytest.mark.browser
LINK = "#workload=gemm:1024x1024x1024:fp16&gpu=T4"
TWO = f"{LINK}&knobs=sms:80,dram_bandwidth:500&second=V100-SXM2-16GB&second_knobs=clock:1200"
ANSWERED_MS = 60_000

OpenLive = Callable[..., Opened]


@pytest.fixture
def open_live(browser: Any, server: Served) -> Iterator[OpenLive]:
    """Open the page at a link: its fragment, the width of the window in pixels, and the colour scheme."""
    contexts = []

    def open_(link: str = LINK, width: int = 1280, scheme: str = "light") -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.console.append(message.text))
        opened.page.on("pageerror", lambda error: opened.console.append(str(error)))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(server.url + link)
        answers(opened, 1)
        return opened

    yield open_
    for context in contexts:
        context.close()


def answers(opened: Opened, count: int) -> None:
    """Wait until the page has shown so many answers."""
    opened.page.wait_for_selector(f'html[data-answered="{count}"]', state="attached", timeout=ANSWERED_MS)


def value(opened: Opened, name: str, at: int = 0) -> str:
    """A value of the table, of a board."""
    row = opened.page.locator("#values tr", has=opened.page.get_by_role("rowheader", name=name, exact=True))
    return str(row.locator("td").nth(at).inner_text())


def test_a_knob_changes_the_time(open_live: OpenLive, server: Served) -> None:
    opened = open_live()
    assert opened.page.locator("#values thead th").all_inner_texts() == ["value", "T4"]
    opened.page.get_by_label("SMs", exact=True).fill("20")
    answers(opened, 2)
    assert opened.page.locator("#values thead th").all_inner_texts() == ["value", "T4", "T4, changed"]
    board = server.predict(workload="gemm:1024x1024x1024:fp16", gpu="t4", knobs={"sms": 20})["boards"][0]
    times = [float(value(opened, "time", at).split()[0]) for at in range(2)]
    assert times == pytest.approx([board["shipped"]["time_us"], board["changed"]["time_us"]], rel=1e-3)
    assert times[1] > times[0]
    assert "T4: " in opened.page.locator("#headline").inner_text()
    assert opened.page.locator("#chart-0 svg").get_attribute("aria-label")
    opened.page.get_by_role("button", name="Back to what ships").click()
    answers(opened, 3)
    assert opened.page.locator("#values thead th").all_inner_texts() == ["value", "T4"]


def test_the_keyboard_turns_a_knob(open_live: OpenLive) -> None:
    opened = open_live()
    slider = opened.page.get_by_label("Power limit, slider")
    slider.focus()
    opened.page.keyboard.press("ArrowLeft")
    answers(opened, 2)
    assert "power:67.62" in opened.page.url
    assert "times what ships" in slider.get_attribute("aria-valuetext")
    opened.page.keyboard.press("ArrowRight")
    answers(opened, 3)
    assert "power" not in opened.page.url


def test_a_link_holds_all_that_is_seen(open_live: OpenLive) -> None:
    opened = open_live(TWO)
    seen = opened.page.locator("#values").inner_text()
    assert opened.page.locator("#values thead th").count() == 5
    assert (
        value(opened, "SM clock", 3),
        opened.page.get_by_label("DRAM bandwidth", exact=True).first.input_value(),
    ) == (
        "1200 of 1200 MHz",
        "500",
    )
    opened.page.reload()
    answers(opened, 1)
    assert opened.page.locator("#values").inner_text() == seen
    assert opened.page.url.endswith(TWO)


def test_a_workload_is_chosen_with_its_values(open_live: OpenLive) -> None:
    opened = open_live()
    opened.page.get_by_label("Operator or model").select_option("softmax")
    answers(opened, 2)
    assert "workload=softmax:8192x4096:fp16" in opened.page.url
    before = float(value(opened, "time").split()[0])
    opened.page.get_by_label("m", exact=True).fill("32768")
    answers(opened, 3)
    assert float(value(opened, "time").split()[0]) > 2 * before or "ms" in value(opened, "time")


def test_a_step_is_shown_as_it_is_predicted(open_live: OpenLive) -> None:
    opened = open_live("#workload=bert_base&precision=fp16&sizes=batch:1,seq_len:128&gpu=T4")
    assert value(opened, "limit")
    opened.page.get_by_label("batch", exact=True).fill("2")
    answers(opened, 2)
    assert "sizes=batch:2,seq_len:128" in opened.page.url
    assert value(opened, "limit") != "..."


def test_what_is_refused_is_said(open_live: OpenLive) -> None:
    opened = open_live()
    opened.page.get_by_label("SMs", exact=True).fill("100000")
    answers(opened, 2)
    assert opened.page.get_by_role("alert").inner_text() == "knobs.sms: expected 10 to 160, got 100000"
    opened.page.get_by_label("SMs", exact=True).fill("44")
    answers(opened, 3)
    assert opened.page.locator("#problem").inner_text() == ""


def test_files_are_saved(open_live: OpenLive, tmp_path: Any) -> None:
    opened = open_live(f"{LINK}&knobs=sms:44")
    with opened.page.expect_download() as saved:
        opened.page.get_by_role("button", name="YAML of T4").click()
    assert saved.value.suggested_filename == "t4-changed.yaml"
    saved.value.save_as(tmp_path / "board.yaml")
    assert load_spec(tmp_path / "board.yaml").gpu.sm.count == 44
    with opened.page.expect_download(timeout=ANSWERED_MS) as saved:
        opened.page.get_by_role("button", name="Export page").click()
    saved.value.save_as(tmp_path / "page.html")
    kept = opened.page.context.new_page()
    said: list[str] = []
    kept.on("pageerror", lambda error: said.append(str(error)))
    kept.goto((tmp_path / "page.html").as_uri())
    kept.wait_for_selector('html[data-drawn="yes"]', state="attached")
    assert (kept.locator(".chart svg").count(), said, axe_violations(kept)) == (4, [], [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_shuts_no_one_out(open_live: OpenLive, server: Served, width: int, scheme: str) -> None:
    opened = open_live(TWO, width, scheme)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.locator(".chart svg").count() == 4
    assert opened.console == []
    assert [one for one in opened.requests if not one.startswith((server.url, "data:"))] == []
    assert axe_violations(opened.page) == []


def test_the_page_of_the_api_shuts_no_one_out(browser: Any, server: Served) -> None:
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{server.url}docs")
    heading = page.get_by_role("heading", name="POST /api/predict")
    assert heading.is_visible()
    assert (said, axe_violations(page)) == ([], [])
    assert [one for one in requests if not one.startswith((server.url, "data:"))] == []
    page.close()
