"""The schema of model files: sizes, inputs, blocks of layers that are used more than once, layers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from gpusim.files.checked_document import Part
from gpusim.record import Title

Sizes = dict[str, int | str]
"""Integers, or expressions of those above them."""
LayerEntry = dict[str, Any]
"""A layer (``op``) or a block (``use``) with its attributes; checked when the graph is built, as sizes are known then."""


class Published(Part):
    """A figure that others state of the model, which tests compare with."""

    value: float
    source: str
    sizes: dict[str, int] = {}
    """The sizes that it is of, where not those of the file."""
    tolerance: float = 0.01


class Block(Part):
    """Layers that are used more than once."""

    takes: dict[str, int | str | None] = {}
    """Sizes that each use states; those with a value have it as default."""
    inputs: list[str] = ["input"]
    """Names of its inputs, in order."""
    layers: list[LayerEntry] = Field(min_length=1)


class ModelFile(Part):
    """A model."""

    title: Title
    source: str
    item: Annotated[str, Field(pattern="^(img|seq|tok)$")]
    sizes: Sizes
    inputs: dict[str, list[int | str]] = Field(min_length=1)
    blocks: dict[str, Block] = {}
    layers: list[LayerEntry] = Field(min_length=1)
    published: dict[str, Published] = {}


class VariantFile(Part):
    """A model that differs from another one in sizes, or in some of its blocks."""

    title: Title
    source: str
    extends: str
    sizes: Sizes = {}
    blocks: dict[str, Block] = {}
    published: dict[str, Published] = {}


PARTS = {"blocks": Block, "published": Published}
