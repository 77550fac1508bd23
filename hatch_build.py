"""Metadata for a package index: the README with absolute links, and the project's addresses.

An index has no other files of the repository. The address of the source is stated once, in CITATION.cff
(``repository-code``); without it, pictures and links become the names of the files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!#|\w+:)[^)\s]+)\)")


class IndexPage(MetadataHookInterface):
    """Fills in ``readme`` and ``urls``, which pyproject.toml declares dynamic."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both from the README and from CITATION.cff."""
        root = Path(self.root)
        address = repository_address((root / "CITATION.cff").read_text(encoding="utf-8"))
        text = without_relative_links((root / "README.md").read_text(encoding="utf-8"), address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = project_urls(address)


def repository_address(citation: str) -> str:
    r"""The address of the source in a CITATION.cff, without a slash at its end; empty if there is none.

    >>> repository_address("title: gpusim\nrepository-code: 'https://example.org/gpusim/'\n")
    'https://example.org/gpusim'
    """
    found = re.search(r"""^repository-code:\s*["']?(https?://[^\s"']+)""", citation, re.MULTILINE)
    return found[1].rstrip("/") if found else ""


def project_urls(address: str) -> dict[str, str]:
    """The project's addresses: none before its source has one."""
    return {"Repository": address, "Changelog": f"{address}/blob/HEAD/CHANGELOG.md"} if address else {}


def without_relative_links(markdown: str, address: str) -> str:
    """Markdown whose pictures and links work anywhere.

    >>> without_relative_links("[how](docs/how.md)", "https://example.org/gpusim")
    '[how](https://example.org/gpusim/blob/HEAD/docs/how.md)'
    >>> without_relative_links("![Speedups](docs/plot.png)", "")
    '*Speedups: docs/plot.png in the source*'
    """

    def absolute(found: re.Match[str]) -> str:
        view = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({address}/{view}/HEAD/{found['target']})"

    def named(found: re.Match[str]) -> str:
        if found["picture"]:
            return f"*{found['text']}: {found['target']} in the source*"
        is_name = found["text"].strip("`/") == found["target"].strip("/")
        return found["text"] if is_name else f"{found['text']} ({found['target']})"

    return RELATIVE_LINK.sub(absolute if address else named, markdown)
