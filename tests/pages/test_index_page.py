"""The page of a package index: no broken picture or link, and the addresses of CITATION.cff."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from conftest import REPOSITORY
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ADDRESS = "https://example.org/someone/gpusim"
LINK = re.compile(r"\]\(([^)]*)\)")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that the metadata of a wheel is made from."""
    for name in ("pyproject.toml", "README.md", "CITATION.cff", "LICENSE", "hatch_build.py", "gpusim/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    citation = (tmp_path / "CITATION.cff").read_text(encoding="utf-8")
    lines = [line for line in citation.splitlines() if not line.startswith("repository-code:")]
    (tmp_path / "CITATION.cff").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def index_page(project: Path) -> tuple[str, dict[str, str]]:
    """Long description and addresses, as hatchling finds them."""
    core = ProjectMetadata(str(project), PluginManager()).core
    assert core.readme_content_type == "text/markdown"
    return core.readme, core.urls


def test_without_an_address_the_page_names_files_and_links_to_none(project: Path) -> None:
    page, urls = index_page(project)
    assert urls == {}
    assert all(target.startswith(("https://", "#")) for target in LINK.findall(page))
    assert "![" not in page
    for target in LINK.findall((project / "README.md").read_text(encoding="utf-8")):
        assert target.strip("/") in page


def test_with_an_address_every_link_leads_to_a_file_of_the_source(project: Path) -> None:
    with (project / "CITATION.cff").open("a", encoding="utf-8") as file:
        file.write(f'repository-code: "{ADDRESS}/"\n')
    page, urls = index_page(project)
    assert urls == {"Repository": ADDRESS, "Changelog": f"{ADDRESS}/blob/HEAD/CHANGELOG.md"}
    own = [target for target in LINK.findall(page) if target.startswith(ADDRESS)]
    assert own
    assert all(target.startswith(("https://", "#")) for target in LINK.findall(page))
    for target in own:
        assert (REPOSITORY / target.partition("/HEAD/")[2].partition("#")[0]).exists()


def test_the_readme_itself_links_to_files_that_are_there() -> None:
    for target in LINK.findall((REPOSITORY / "README.md").read_text(encoding="utf-8")):
        assert target.startswith(("https://", "#")) or (REPOSITORY / target.partition("#")[0]).exists()


def test_a_picture_is_shown_and_a_link_to_one_is_followed() -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", REPOSITORY / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "![A](docs/a.png) [b](docs/b.png) [`c/`](c) [d](https://d.org) [e](#e)"
    assert module.without_relative_links(text, ADDRESS) == (
        f"![A]({ADDRESS}/raw/HEAD/docs/a.png) [b]({ADDRESS}/blob/HEAD/docs/b.png) [`c/`]({ADDRESS}/blob/HEAD/c)"
        " [d](https://d.org) [e](#e)"
    )
    assert module.without_relative_links(text, "") == (
        "*A: docs/a.png in the source* b (docs/b.png) `c/` [d](https://d.org) [e](#e)"
    )
    assert module.repository_address("title: x\n# repository-code: none yet\n") == ""
