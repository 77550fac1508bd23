"""Hooks of MkDocs: pages from outside of docs/, pages that are generated from code, and links to the source.

A page is written once, for a reader of the repository. In the site it has other neighbours: the README is its first
page, the changelog and the notes on the calibration are pages too, and what is no page (code, specs, experiments) is a
link to the repository where CITATION.cff states its address, else a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import site_notebook
import site_reference
from mkdocs.structure.files import File, Files

from hatch_build import repository_address

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
FROM_ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "experiments/calibration/README.md": "calibration.md",
    "experiments/calibration/deviations.md": "deviations.md",
}
"""Pages of the repository outside of docs/, and what they are called in the site."""
GENERATED = {
    "glossary of stalls and limits": "reference/glossary.md",
    "reference of spec keys": "reference/gpu.md",
    "reference of measured tables": "reference/measured.md",
}
"""Pages that only the site has, by the words that pages name them with."""
NOTEBOOK = f"{DOCS}/tour.ipynb"
_IN_REPOSITORY = {page: path for path, page in FROM_ELSEWHERE.items()}
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>(?!\w+:|#)[^)\s]+)\)")
_FENCE = re.compile(r"^(?P<fence>```)(?P<language>\w+) (?P<file>\S+)$", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that docs/ does not hold."""
    added = {page: (ROOT / path).read_text(encoding="utf-8") for path, page in FROM_ELSEWHERE.items()}
    added |= site_reference.pages()
    pages: dict[str, str | bytes] = {**added, **site_notebook.page_and_pictures(ROOT / NOTEBOOK)}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite what a viewer of the repository and MkDocs read in different ways."""
    del config
    here = page.file.src_uri
    source = _IN_REPOSITORY.get(here, f"{DOCS}/{here}")
    address = repository_address((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    known = {file.src_uri for file in files}
    text = _COMMENT.sub("\n", markdown)
    text = _FENCE.sub(r'\g<fence>\g<language> title="\g<file>"', text)
    return "".join(_in_site(part, source, here, known, address) for part in _parts(text))


def _parts(text: str) -> Iterable[str]:
    """The text in pieces, each either a fenced block or prose."""
    return re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)


def _in_site(text: str, source: str, here: str, known: set[str], address: str) -> str:
    """A piece of a page with the links of the site."""
    if text.startswith("```"):
        return text
    start = PurePosixPath(here).parent.as_posix()
    for words, page in GENERATED.items():
        if page != here:
            text = text.replace(words, f"[{words}]({os.path.relpath(page, start)})")

    def moved(found: re.Match[str]) -> str:
        path, mark, anchor = found["target"].partition("#")
        target = _normal(PurePosixPath(source).parent / path)
        name = _page_of(target)
        if name in known:
            return f"{found['picture']}[{found['text']}]({os.path.relpath(name, start)}{mark}{anchor})"
        if not (ROOT / target).exists():
            return found[0]  # MkDocs reports it
        if address:
            return f"{found['picture']}[{found['text']}]({address}/blob/HEAD/{target})"
        is_named = found["text"].strip("`/").endswith(PurePosixPath(target).name)
        return found["text"] if is_named else f"{found['text']} (`{target}`)"

    return _LINK.sub(moved, text)


def _page_of(path: str) -> str:
    """What a file of the repository is called in the site."""
    if path == NOTEBOOK:
        return site_notebook.PAGE
    return FROM_ELSEWHERE.get(path, path.removeprefix(f"{DOCS}/"))


def _normal(path: PurePosixPath) -> str:
    return PurePosixPath(os.path.normpath(path)).as_posix()
