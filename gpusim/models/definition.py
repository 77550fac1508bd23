"""The schema of model files: sizes, inputs, blocks of layers that are used more than once, layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gpusim.files.checked_document import Part
from gpusim.models.lengths import Lengths
from gpusim.models.policy import Clipping, Optimizer, Precision
from gpusim.record import Title

Sizes = dict[str, int | str]
"""Integers, or expressions of those above them."""
LayerEntry = dict[str, Any]
"""A layer (``op``) or a block (``use``) with its attributes, which are checked once sizes are known."""


class Published(Part):
    """A value that others state of the model, which tests compare with."""

    value: float
    source: str
    sizes: dict[str, int] = Field(default={})
    """The sizes that it is of, where not those of the file."""
    tolerance: float = 0.01


class Uneven(Part):
    """How much less than the fullest pass one of other items computes: ``value`` times the size of a normal deviate."""

    value: float = Field(ge=0, lt=0.5)
    source: str


class Block(Part):
    """Layers that are used more than once."""

    takes: dict[str, int | str | None] = Field(default={})
    """Sizes that each use states; those with a value have it as default."""
    inputs: list[str] = Field(default=["input"])
    """Names of its inputs, in order."""
    layers: list[LayerEntry] = Field(min_length=1)


class Decoding(Part):
    """How a model writes one token after the other: its layers say in which pass they run (``only``)."""

    written: Lengths
    """Tokens of a sequence that it writes, and so the steps that it takes."""
    sources: Lengths | None = Field(default=None)
    """Tokens that it reads, where batches mix sequences of any length: size ``source_len`` is the longest of them."""


class ModelFile(Part):
    """A model."""

    title: Title
    source: str
    include: list[str] = Field(default=[])
    """Models whose blocks this one uses, too."""
    item: Annotated[str, Field(pattern="^(img|seq|tok)$")]
    items: int | str = "batch"
    """How many a pass takes."""
    optimizer: Optimizer
    precision: Precision = "fp32"
    """That of a command without ``--precision``; an experiment states its own."""
    clipping: Clipping = "none"
    counted_loss: bool = False
    """Whether the loss is a sum over tokens: the script divides each gradient by how many all GPUs had."""
    uneven: Uneven | None = None
    sizes: Sizes
    limits: Sizes = Field(default={})
    """Largest values of sizes, such as that of a sequence by the positions that were trained."""
    inputs: dict[str, list[int | str]] = Field(min_length=1)
    blocks: dict[str, Block] = Field(default={})
    layers: list[LayerEntry] = Field(min_length=1)
    decoding: Decoding | None = Field(default=None)
    """How a translation model decodes in inference."""
    published: dict[str, Published] = Field(default={})


class VariantFile(Part):
    """A model that differs from another one in sizes, or in some of its blocks."""

    title: Title
    source: str
    extends: str
    sizes: Sizes = Field(default={})
    blocks: dict[str, Block] = Field(default={})
    published: dict[str, Published] = Field(default={})


PARTS: Mapping[str, type[BaseModel]] = {"blocks": Block, "decoding": Decoding, "published": Published}
