"""The documentation as a site: it builds, its links lead somewhere, it works from files, and its search does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import site_reference
from conftest import REPOSITORY, environment
from typer.main import get_command

import gpusim
from gpusim.cli import app
from gpusim.sim.causes import Cause
from gpusim.studies.explain.parts import MEANINGS
from gpusim.studies.file_schemas import TITLES, schema_of


class Page(HTMLParser):
    """Anchors of a page, addresses that it refers to, and those of what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif "src" in found or tag == "link":
            self.loaded.append(found.get("src") or found.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {**environment(), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=quiet, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.mark.slow
def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 50
    broken = []
    for path, page in pages.items():
        for target in (*page.links, *page.loaded):
            parts = urlsplit(target)
            if parts.scheme or not target:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            anchors = pages[file].anchors if file in pages else set()
            if not file.is_file() or (parts.fragment and file in pages and unquote(parts.fragment) not in anchors):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert broken == []


@pytest.mark.slow
def test_the_site_loads_nothing_from_the_network(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = [target for target in Page(path).loaded if urlsplit(target).netloc]
        assert loaded == [], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", path.read_text(encoding="utf-8")), path


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_the_search_works_from_files(site: Path, tmp_path: Path) -> None:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--virtual-time-budget=20000", "--dump-dom", f"{(site / 'index.html').as_uri()}?q=mio_throttle"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=os.environ).stdout
    assert 'reference/glossary.html#stalls" class="md-search-result__link"' in shown


def test_the_reference_names_every_command_public_name_stall_part_and_key() -> None:
    pages = site_reference.pages()
    text = {name.removeprefix("reference/").removesuffix(".md"): page for name, page in pages.items()}
    assert [name for name in get_command(app).commands if f"## gpusim {name}\n" not in text["cli"]] == []  # type: ignore[attr-defined]
    public = [name for name in gpusim.__all__ if not name.startswith("__")]
    assert [
        name for name in public if not re.search(rf"^::: gpusim\.(\w+\.)*{name}$", text["python"], re.MULTILINE)
    ] == []
    named = [*(one.value for one in Cause), *MEANINGS]
    assert [name for name in named if f"\n| `{name}` |" not in text["glossary"]] == []
    for kind in set(TITLES) - {"gpu"}:
        schema = schema_of(kind)
        parts = [schema, *(part for name, part in schema.get("$defs", {}).items() if not name.startswith("Cited_"))]
        keys = {key for part in parts for key in part.get("properties", ())}
        assert [key for key in sorted(keys - {"use"}) if f"\n| `{key}`" not in text[kind]] == [], kind
    assert "| `clock.boost_mhz` | MHz | number (≥ 10, ≤ 20000) | " in text["gpu"]
    assert "| sm.count | 40 | datasheet | " in text["boards/t4"]
