"""Sizes as they are given: integers of Python or NumPy, decimal text, lists and ``start:end:step`` ranges.

A range includes its end where a step meets it, as in the CUTLASS profiler.
"""

from __future__ import annotations

import operator

from gpusim.files.inputs import excerpt
from gpusim.files.yamlfile import shown
from gpusim.units import LARGEST_SIZE

MAX_SIZES = 100_000
"""Longest range: a typing error in a step must not ask for millions of predictions."""


def checked_size(name: str, value: object) -> int:
    """A size as an ``int``, also from an integer of NumPy's or from decimal text.

    Raises:
        ValueError: it is no positive integer of 64 bits; the text begins with ``name``.

    >>> checked_size("m", "4096")
    4096
    """
    if isinstance(value, str) and value.isascii() and value.isdigit():
        if len(value) > len(str(LARGEST_SIZE)):
            raise ValueError(f"{name}: more than 64 bits hold")
        value = int(value)
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name}: expected a positive integer, got {excerpt(repr(value))}") from None
    if size < 1:
        raise ValueError(f"{name}: expected a positive integer, got {size}")
    if size > LARGEST_SIZE:
        raise ValueError(f"{name}: more than 64 bits hold")
    return size


def parse_sizes(value: object) -> tuple[int, ...]:
    """Sizes from a number, a ``start:end:step`` text, or a list of both.

    >>> parse_sizes(["256:1024:256", 4096]), parse_sizes("1,16,256:512:256")
    ((256, 512, 768, 1024, 4096), (1, 16, 256, 512))
    """
    match value:
        case bool():
            pass
        case int():
            if value < 1:
                raise ValueError(f"expected a positive size, got {value}")
            if value > LARGEST_SIZE:
                raise ValueError("more than 64 bits hold")
            return (value,)
        case str():
            return tuple(size for part in value.split(",") for size in _range(part))
        case list() | tuple():
            return tuple(size for item in value for size in parse_sizes(item))
    raise ValueError(f"expected a size, a 'start:end:step' range or a list of them, got {shown(value)}")


def _range(text: str) -> tuple[int, ...]:
    """The sizes of ``start:end`` or ``start:end:step``, the end included where a step meets it."""
    try:
        parts = [int(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if len(parts) == 1:
        return parse_sizes(parts[0])
    if len(parts) not in (2, 3):
        raise ValueError(f"expected a size or a 'start:end:step' range, got {shown(text)}")
    start, end, step = (*parts, 1)[:3]
    if start < 1 or end < start or step < 1:
        raise ValueError(f"a range needs 1 <= start <= end and a step >= 1, got {shown(text)}")
    if end > LARGEST_SIZE:
        raise ValueError("a range ends beyond what 64 bits hold")
    if (end - start) // step >= MAX_SIZES:
        raise ValueError(f"{shown(text)} has more than {MAX_SIZES} sizes; enlarge the step")
    return tuple(range(start, end + 1, step))
