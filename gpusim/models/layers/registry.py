"""Every layer that a model file may name, and its parser."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from gpusim.errors import excerpt
from gpusim.models.layers import (  # noqa: F401 -- which define them
    attention,
    channels,
    convolutions,
    detectors,
    elementwise,
    experts,
    gathers,
    images,
    latent_attention,
    lstm,
    products,
    rows,
    searches,
    views,
)
from gpusim.models.layers.layer import Layer

LAYERS: Mapping[str, type[Layer]] = {
    name: layer for layer in Layer.__subclasses__() for name in get_args(layer.model_fields["op"].annotation)
}
"""Layers by the name that model files use."""


def parse_layer(values: Mapping[str, Any], names: Mapping[str, int]) -> Layer:
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
