"""Parsing of sizes: integers of Python or NumPy, decimal text, lists and ``start:end:step`` ranges.

A range includes its end if a step reaches it, as in the CUTLASS profiler. A step such as ``*2`` multiplies.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

from gpusim.errors import shown
from gpusim.units import LARGEST_SIZE

MAX_SIZES = 100_000
"""Longest range: a mistyped step must not request millions of predictions."""


def parse_size(value: object) -> int:
    """A size as an ``int``, from an integer of Python or NumPy or from decimal text.

    >>> parse_size("4096")
    4096

    Raises:
        ValueError: not a positive integer of 64 bits.
    """
    number = value
    if isinstance(value, str) and value.isascii() and value.isdigit():  # neither 1_000 nor digits of other scripts
        number = int(value) if len(value) <= len(str(LARGEST_SIZE)) else LARGEST_SIZE + 1
    try:
        size = operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        size = 0
    if size > LARGEST_SIZE:
        raise ValueError("more than 64 bits hold")
    if size < 1 or isinstance(value, bool):
        raise ValueError(f"expected a positive integer, got {shown(value)}")
    return size


def checked_size(name: str, value: object) -> int:
    """As :func:`parse_size`; the error text begins with ``name``."""
    try:
        return parse_size(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def parse_sizes(value: object) -> tuple[int, ...]:
    """Sizes from a number, a ``start:end:step`` text, or a list of both.

    >>> parse_sizes(["256:1024:256", 4096]), parse_sizes("1,16,256:512:256")
    ((256, 512, 768, 1024, 4096), (1, 16, 256, 512))
    >>> parse_sizes("1:64:*4")
    (1, 4, 16, 64)
    """
    match value:
        case int() if not isinstance(value, bool):
            return (parse_size(value),)
        case str():
            return tuple(size for part in value.split(",") for size in _range(part))
        case list() | tuple():
            return tuple(size for item in value for size in parse_sizes(item))
    raise ValueError(f"expected a size, a 'start:end:step' range or a list of them, got {shown(value)}")


def _range(text: str) -> tuple[int, ...]:
    """The sizes of ``start:end`` or ``start:end:step``, including the end if a step reaches it."""
    ends, star, factor = text.rpartition(":*")
    if star and ends.count(":") == 1 and factor.isascii() and factor.isdigit() and int(factor[:20]) > 1:
        (start,) = _range(f"{ends}:{LARGEST_SIZE}")
        return tuple(_powers(start, int(ends.partition(":")[2]), int(factor[:20])))
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


def _powers(start: int, end: int, factor: int) -> Iterator[int]:
    """``start`` times powers of a factor, up to an end."""
    size = start
    while size <= end:
        yield size
        size *= factor
