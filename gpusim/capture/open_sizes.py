"""Sizes that a saved program leaves open: named or asked for, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from gpusim.capture.errors import CaptureError
from gpusim.capture.sizes import Point

Size = int | Literal["batch"]
"""What an open dimension is: a number, or the batch."""
BATCH_NAMES = ("batch", "batch_size", "n")
"""Names of a dimension, in any case, that is the batch unless a user says otherwise."""


def size_name(name: str) -> str:
    """A name as expressions may have it.

    >>> size_name("x.2")
    'x_2'
    """
    return re.sub(r"\W", "_", name)


class OpenSizes:
    """Shapes of the inputs of a program, with names in place of open sizes."""

    def __init__(self, shapes: Sequence[Sequence[int | str]], sizes: Mapping[str, Size], what: str) -> None:
        """State open sizes.

        Args:
            shapes: of each input, with names of open dimensions.
            sizes: what a user states, by name; ``batch`` is the batch.
            what: a word for the program, of messages.

        Raises:
            CaptureError: a dimension without a size, or a size of no open dimension.
        """
        self._shapes = shapes
        self._is = _stated(list(dict.fromkeys(_names(shapes))), sizes, what)
        first = next((shape[0] for shape in shapes if shape and isinstance(shape[0], int)), 1)
        self.follows = "batch" in self._is.values()
        if not self.follows and sizes.get("batch", first) != first:
            raise CaptureError(
                f"the {what} states its batch, {first}; export it with an open one, or leave --batch out"
            )
        batch = int(sizes.get("batch", 8)) if self.follows else first
        self.sizes = {"batch": batch, **{name: int(size) for name, size in self._is.items() if size != "batch"}}

    def at(self, point: Point) -> list[tuple[int, ...]]:
        """Shapes of the inputs at sizes."""
        return [tuple(self._number(size, point) for size in shape) for shape in self._shapes]

    def _number(self, size: int | str, point: Point) -> int:
        return size if isinstance(size, int) else point["batch" if self._is[size] == "batch" else size]

    @property
    def assumptions(self) -> list[str]:
        """What was taken to be the batch."""
        found = [f"{name} = batch" for name, size in self._is.items() if size == "batch" and name != "batch"]
        if not self.follows:
            found.append(f"the batch is {self.sizes['batch']}, the first size of the first input")
        return found


def _names(shapes: Sequence[Sequence[int | str]]) -> Iterator[str]:
    for shape in shapes:
        yield from (size for size in shape if isinstance(size, str))


def _stated(names: Sequence[str], sizes: Mapping[str, Size], what: str) -> dict[str, Size]:
    """The size of each open dimension, by name."""
    for name in sizes:
        if name not in names and name != "batch":
            known = f"it leaves {', '.join(names)} open" if names else "it leaves none open"
            raise CaptureError(f"--size {name}: the {what} has no such dimension; {known}")
    batch: dict[str, Size] = {name: "batch" for name in names if name.lower() in BATCH_NAMES}
    stated = {**batch, **{name: size for name, size in sizes.items() if name != "batch"}}
    if missing := [name for name in names if name not in stated]:
        remedy = " ".join(f"--size {name}=N" for name in missing)
        raise CaptureError(f"the {what} leaves {', '.join(missing)} open; add {remedy} (N: a number, or batch)")
    return {name: stated[name] for name in names}
