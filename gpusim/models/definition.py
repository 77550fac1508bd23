"""The schema of model files: sizes, inputs, blocks of layers that are used more than once, layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gpusim.files.checked_document import Part
from gpusim.models.lengths import Lengths
from gpusim.models.policy import Clipping, Fusion, Mode, Optimizer, Pass, Precision
from gpusim.record import Title

Size = int | str
"""An integer, or an expression of named sizes."""
Sizes = dict[str, Size]
LayerEntry = dict[str, Any]
"""A layer (``op``) or a block (``use``) with its attributes, which are checked once sizes are known."""


class Place(Part):
    """Keys of an entry that say where a layer or a block stands, not what it is."""

    name: str = Field(default="", description="name of its result; that of the layer or block if left out")
    inputs: list[str] = Field(default=[], description="names of its inputs; the result of the entry above if left out")
    repeat: Size = Field(default=1, description="how often it stands there, each taking the result of the one before")
    shares: str = Field(default="", description="layer whose weight it uses, too")
    frozen: bool = Field(default=False, description="whether its weights stay as they are in training")
    only: Mode | Pass | None = Field(default=None, description="mode, or pass of a decoder, that it is left to")


class Published(Part):
    """A value that others state of the model, which tests compare with."""

    value: float = Field(description="what they state")
    source: str = Field(description="where")
    sizes: dict[str, int] = Field(default={}, description="sizes that it is of, where not those of the file")
    tolerance: float = Field(default=0.01, description="relative deviation that a test accepts")


class Uneven(Part):
    """How much less than the fullest pass one of other items computes: ``value`` times the size of a normal deviate."""

    value: float = Field(ge=0, lt=0.5, description="share of a pass")
    source: str = Field(description="where it comes from")


class Block(Part):
    """Layers that are used more than once."""

    takes: dict[str, Size | None] = Field(
        default={}, description="sizes that each use states; those with a value have it as default"
    )
    inputs: list[str] = Field(default=["input"], description="names of its inputs, in order")
    layers: list[LayerEntry] = Field(min_length=1, description="its layers, in order")


class Decoding(Part):
    """How a model writes one token after the other: its layers say in which pass they run (``only``)."""

    written: Lengths = Field(description="tokens of a sequence that it writes, and so the steps that it takes")
    sources: Lengths | None = Field(
        default=None,
        description="tokens that it reads, where batches mix sequences of any length: size source_len is the longest",
    )


class ModelFile(Part):
    """A model."""

    title: Title = Field(description="what the model is called in tables")
    source: str = Field(description="publication or implementation that the shapes are those of")
    include: list[str] = Field(default=[], description="models whose blocks this one uses, too")
    item: Annotated[str, Field(pattern="^(img|seq|tok)$")] = Field(
        description="what throughput counts: img, seq or tok"
    )
    items: Size = Field(default="batch", description="how many of them a pass takes")
    optimizer: Optimizer = Field(description="that of the update")
    precision: Precision = Field(
        default="fp32", description="that of a command without --precision; an experiment states its own"
    )
    fusion: Fusion = Field(default="none", description="which kernels inference joins, where --fusion is not given")
    clipping: Clipping = Field(default="none", description="how gradients are bounded by the norm of all of them")
    counted_loss: bool = Field(
        default=False,
        description="whether the loss is a sum over tokens: the script divides each gradient by how many all GPUs had",
    )
    uneven: Uneven | None = Field(default=None, description="how much less an average pass computes than the fullest")
    sizes: Sizes = Field(description="integers by name, or expressions of those above them")
    limits: Sizes = Field(
        default={},
        description="largest values of sizes, such as that of a sequence by the positions that were trained",
    )
    inputs: dict[str, list[Size]] = Field(min_length=1, description="shapes of the inputs, by name")
    blocks: dict[str, Block] = Field(default={}, description="layers that are used more than once, by name")
    layers: list[LayerEntry] = Field(min_length=1, description="the layers, in order")
    decoding: Decoding | None = Field(default=None, description="how a translation model decodes in inference")
    published: dict[str, Published] = Field(default={}, description="values that others state, by name")


class VariantFile(Part):
    """A model that differs from another one in sizes, or in some of its blocks."""

    title: Title = Field(description="what the model is called in tables")
    source: str = Field(description="publication or implementation that the shapes are those of")
    extends: str = Field(description="model that it is a variant of: name of a shipped one, or file beside this one")
    sizes: Sizes = Field(default={}, description="sizes that differ")
    blocks: dict[str, Block] = Field(default={}, description="blocks that differ")
    published: dict[str, Published] = Field(default={}, description="values that others state, by name")


PARTS: Mapping[str, type[BaseModel]] = {"blocks": Block, "decoding": Decoding, "published": Published}
