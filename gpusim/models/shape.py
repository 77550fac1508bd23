"""Shapes of tensors."""

from __future__ import annotations

import math

Shape = tuple[int, ...]
"""Elements along each dimension; images are ``(images, channels, height, width)`` whatever their memory layout."""


def elements(shape: Shape) -> int:
    """Number of elements of a tensor."""
    return math.prod(shape)


def shown(shape: Shape) -> str:
    """A shape as messages print it.

    >>> shown((8, 3, 224, 224))
    '8x3x224x224'
    """
    return "x".join(map(str, shape)) or "scalar"
