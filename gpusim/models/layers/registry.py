"""Every layer that a model file may name, and its parser."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from gpusim.errors import excerpt
from gpusim.models.layers.elementwise import (
    Activation,
    BatchNorm,
    Cast,
    Combination,
    CrossEntropy,
    Dropout,
    GroupNorm,
    LayerNorm,
    Power,
    Reduced,
    Rope,
    Softmax,
)
from gpusim.models.layers.matrix import Attention, Conv2d, ConvTranspose2d, Linear, Lstm, Matmul
from gpusim.models.layers.movement import (
    Concat,
    Embedding,
    Expand,
    Flatten,
    Gather,
    GlobalAvgPool2d,
    IndexSelect,
    Item,
    KvCache,
    Nms,
    Permute,
    Pool2d,
    Reshape,
    RoiAlign,
    Scatter,
    Slice,
    SmallCalls,
    Sort,
    TopK,
    Upsample,
)

MatrixLayer = Attention | Conv2d | ConvTranspose2d | Linear | Lstm | Matmul
ElementwiseLayer = Activation | Cast | Combination | Dropout | Power | Rope
RowLayer = BatchNorm | CrossEntropy | GroupNorm | LayerNorm | Reduced | Softmax
ViewLayer = Expand | Flatten | KvCache | Permute | Reshape | Slice
ImageLayer = GlobalAvgPool2d | Nms | Pool2d | RoiAlign | Upsample
GatherLayer = Concat | Embedding | Gather | IndexSelect | Scatter
SearchLayer = Item | SmallCalls | Sort | TopK
AnyLayer = MatrixLayer | ElementwiseLayer | RowLayer | ViewLayer | ImageLayer | GatherLayer | SearchLayer
LAYERS: Mapping[str, type[AnyLayer]] = {
    name: layer for layer in get_args(AnyLayer) for name in get_args(layer.model_fields["op"].annotation)
}
"""By the name that model files use."""


def parse_layer(values: Mapping[str, Any], names: Mapping[str, int]) -> AnyLayer:
    """The layer with these attributes, of which sizes may be expressions of named ones.

    Raises:
        ValueError: there is no such layer; the text is one line.
        pydantic.ValidationError: an attribute that it does not have, or a wrong value.
    """
    op = str(values.get("op"))
    if op not in LAYERS:
        close = difflib.get_close_matches(op, LAYERS, n=3, cutoff=0.5)
        remedy = f"did you mean {', '.join(close)}?" if close else f"known are {', '.join(sorted(LAYERS))}"
        raise ValueError(f"unknown layer '{excerpt(op)}'; {remedy}")
    return LAYERS[op].model_validate(values, context=names)
