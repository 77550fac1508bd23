"""The drawings of docs/machine.md: those of the code, with text that a screen reader finds."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import drawings
import pytest
from conftest import REPOSITORY

SVG = "{http://www.w3.org/2000/svg}"
SIMULATED = ("tiles", "main_loop")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SIMULATED else []) for name in drawings.DRAWINGS]
)
def test_a_drawing_is_that_of_the_code(name: str) -> None:
    text = (drawings.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert text == drawings.svg_text(*drawings.DRAWINGS[name]()), "run make figures"


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_a_drawing_says_what_it_shows(name: str) -> None:
    root = ET.parse(drawings.FOLDER / f"{name}.svg").getroot()  # noqa: S314 - our own file
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert len(title.text or "") > 10
    assert len(description.text or "") > 80
    assert len(list(root.iter(f"{SVG}text"))) > 5  # text, not outlines


def test_every_drawing_stands_on_the_page_with_words_in_its_place() -> None:
    page = (REPOSITORY / "docs" / "machine.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"!\[([^\]]*)\]\(drawings/(\w+)\.svg\)", page))
    assert set(shown.values()) == set(drawings.DRAWINGS)
    assert all(len(text) > 40 for text in shown)
