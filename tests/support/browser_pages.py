"""Pages in a browser: headless Chromium, whose console, requests and accessibility are checked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

CHROMIUM_VARIABLE = "GPUSIM_CHROMIUM"
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
SERIOUS = ("serious", "critical")
MOST_BYTES = 4e6
WIDTHS_PX = (1280, 390)
MOST_SHEETS = 60


@dataclass(slots=True)
class Opened:
    """A page in the browser, and what it said and asked for."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def rows(self, table: str) -> list[list[str]]:
        """Texts of the cells of a table's visible rows; of an edited cell its value."""
        script = """table => [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => [...row.cells].map(
            cell => cell.querySelector("input") ? cell.querySelector("input").value : cell.textContent.trim()))"""
        found: list[list[str]] = self.page.locator(table).first.evaluate(script)
        return found

    def tip(self, chart: str, at: int = 0) -> str:
        """What the page tells of a point, or of what lies on it, when a pointer is over it."""
        self.page.locator(f"{chart} svg").first.locator(".mark-symbol.role-mark path").nth(at).hover(force=True)
        said: str = self.page.locator("#vg-tooltip-element.visible").inner_text()
        return said

    def check(self) -> None:
        """Check that nothing failed, nothing left the page, and that no one is shut out."""
        assert self.console == []
        assert [one for one in self.requests if not one.startswith(("file:", "data:", "blob:"))] == []
        assert axe_violations(self.page) == []


def axe_violations(page: Any) -> list[tuple[str, str]]:
    """What shuts someone out of a page: the rule, and the first element that breaks it."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS]


Open = Callable[..., Opened]


def page_of(*arguments: str | Path, out: Path) -> Path:
    """The page that a command writes."""
    asked = [sys.executable, "-m", "gpusim", *map(str, arguments), "--html", str(out)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    assert f"gpusim: wrote {out}" in done.stderr
    return out


def check_on_every_screen(path: Path, open_page: Open) -> None:
    """Check that a page is small, fits wide and narrow windows in light and dark, and prints on A4."""
    assert path.stat().st_size < MOST_BYTES
    for width, scheme in product(WIDTHS_PX, ("light", "dark")):
        opened = open_page(path, width, scheme)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme)
        opened.check()
    printed = open_page(path).page.pdf(format="A4")
    assert 0 < len(re.findall(rb"/Type /Page\s", printed)) < MOST_SHEETS


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get(CHROMIUM_VARIABLE) or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, f"no Chromium; make test-browser installs it, or {CHROMIUM_VARIABLE} names one"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Open a file: its path, the width of the window in pixels, and the colour scheme."""
    contexts = []

    def open_(path: Path, width: int = 1280, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        opened = Opened(page)
        page.on("console", lambda message: opened.console.append(message.text))
        page.on("pageerror", lambda error: opened.console.append(str(error)))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.drawn === 'yes'")
        return opened

    yield open_
    for context in contexts:
        context.close()
