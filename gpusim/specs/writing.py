"""A spec file as text: each value with its kind and source on a line of its own."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gpusim.files.checked_document import shipped_folder
from gpusim.specs.sourced import Sourced

LINE_WIDTH = 120


def schema_line(kind: str, folder: Path) -> str:
    """The comment that names the JSON Schema of a file, which editors read.

    Args:
        kind: Of the file: one that ``gpusim schema`` knows.
        folder: Where the file lies. The path to the schema that ships is relative to it, so that both can be moved.
    """
    schema = shipped_folder("schemas") / f"{kind}.json"
    return f"# yaml-language-server: $schema={Path(os.path.relpath(schema, folder)).as_posix()}"


def file_text(
    kind: str,
    folder: Path | None,
    comments: Sequence[str],
    names: Mapping[str, Any],
    sources: Mapping[str, str],
    values: Mapping[str, Any],
) -> str:
    """A spec file.

    Args:
        kind: As of :func:`schema_line`.
        folder: Where the file lies; None: it is not known, and the file names no schema.
        comments: At its head, a line each, without the mark of a comment.
        names: Keys that carry no source: ``name``, ``aliases``, ``extends``.
        sources: The bibliography.
        values: Nested mappings whose leaves are :class:`~gpusim.specs.sourced.Sourced`, or text.
    """
    schema = [schema_line(kind, folder)] if folder is not None else []
    lines = [*schema, *(f"# {comment}" for comment in comments)]
    lines += [f"{key}: {_flow(value)}" for key, value in names.items()]
    if sources:
        lines += ["", "sources:", *(line for key, text in sources.items() for line in _text_lines(key, text, 2))]
    for key, part in values.items():
        lines += ["", *_lines(key, part, 0)]
    return "\n".join(lines) + "\n"


def _lines(key: str, value: object, indent: int) -> Iterator[str]:
    pad = " " * indent
    match value:
        case Sourced():
            yield from _leaf_lines(key, value, indent)
        case dict() if value:
            yield f"{pad}{key}:"
            for below, part in value.items():
                yield from _lines(below, part, indent + 2)
        case _:
            yield f"{pad}{key}: {_flow(value)}"


def _leaf_lines(key: str, leaf: Sourced[Any], indent: int) -> Iterator[str]:
    """On one line where it fits, else a line for each of its keys."""
    pad = " " * indent
    source = json.dumps(leaf.source, ensure_ascii=False)
    parts = [f"value: {_flow(leaf.value)}", f"kind: {leaf.kind}"]
    if leaf.spread is not None:
        parts.append(f"spread: {_flow(leaf.spread)}")
    line = f"{pad}{key}: {{{', '.join(parts)}, source: {source}}}"
    if len(line) <= LINE_WIDTH:
        yield line
        return
    yield from (f"{pad}{key}:", *(f"{pad}  {part}" for part in parts))
    yield from _text_lines("source", leaf.source, indent + 2)


def _text_lines(key: str, text: str, indent: int) -> Iterator[str]:
    """A text in quotes, or folded where it is longer than a line."""
    pad = " " * indent
    line = f"{pad}{key}: {json.dumps(text, ensure_ascii=False)}"
    if len(line) <= LINE_WIDTH:
        yield line
        return
    yield f"{pad}{key}: >-"
    yield from textwrap.wrap(
        text,
        LINE_WIDTH,
        initial_indent=pad + "  ",
        subsequent_indent=pad + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _flow(value: object) -> str:
    """A value on one line: ``[A, B]``, ``1.5``, ``true``."""
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=10**6, allow_unicode=True).strip()
    return text.removesuffix("\n...")
