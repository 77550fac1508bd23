"""Docstrings as Markdown, for griffe: doctests become blocks of code, and roles of Sphinx names in code style."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    r"""A docstring with its doctests in blocks.

    >>> as_markdown("Sum of :class:`~a.b.Parts`.\n\n>>> 1 + 1\n2\n\nRaises: nothing.")
    'Sum of `Parts`.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nRaises: nothing.'
    """
    return _ROLE.sub(r"`\1`", _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring))
