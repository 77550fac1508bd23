"""Columns: the fields of a record as arrays, with a row for each of many records.

Formulas over columns keep to elementary arithmetic, which rounds the same in every array and on every processor, and to
functions of :mod:`math`, element by element. A row is then the same to the bit whatever other rows there are. They do
not branch on a number and assign to no rows, so that they can be traced (:mod:`gpusim.lowering.traced`):
``numpy.where`` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Generic, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gpusim.lowering.traced import Traced

Array: TypeAlias = NDArray[Any]
R = TypeVar("R")


class Columns(Generic[R]):
    """Many records of type ``R``, as arrays in place of its fields; its properties and methods apply to them, too.

    A column may also be a constant, columns of a nested record, or a tuple or mapping of these. Fields that no formula
    needs may be left out until :meth:`row` makes a record.

    >>> from gpusim.launch import Grid
    >>> grids = Columns(Grid, x=np.array([4, 8]), y=3, splits=1, batch=1)
    >>> grids.ctas.tolist(), grids.row(1)
    ([12, 24], Grid(x=8, y=3, splits=1, batch=1, swizzle_width=None, stripes_across_y=False))
    """

    def __init__(self, record: type[R], **columns: Any) -> None:
        self.__dict__.update(columns)
        self._record = record
        self._names = tuple(columns)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._record, name)
        if isinstance(attribute, property) and attribute.fget:
            return attribute.fget(self)
        if isinstance(attribute, FunctionType):
            return MethodType(attribute, self)
        raise AttributeError(f"{self._record.__name__}: column '{name}' was left out")

    def row(self, index: int, **others: Any) -> R:
        """The record of a row.

        Args:
            others: fields that are not columns, or in place of some.
        """
        columns = self.__dict__
        fields = {name: _item(columns[name], index) for name in self._names if name not in others}
        return self._record(**fields, **others)

    def records(self, indices: Array, **others: Sequence[Any]) -> list[R]:
        """The records of some rows, as :meth:`row` makes them one by one.

        Args:
            others: values of fields that are not columns, or in place of some, one for each of the rows.
        """
        columns = self.__dict__
        names = [name for name in self._names if name not in others]
        values = [_items(columns[name], indices) for name in names]
        made = partial(_made, self._record, (*names, *others))
        return list(map(made, zip(*values, *others.values(), strict=True)))

    def rows(self, indices: Array) -> Columns[R]:
        """The records of some rows."""
        return self.mapped(lambda column: column[..., indices] if column.ndim else column)

    def mapped(self, function: Callable[[Array], Any]) -> Columns[R]:
        """These records with what a function makes of each array."""
        return Columns(self._record, **{name: _mapped(self.__dict__[name], function) for name in self._names})

    def replaced(self, **columns: Any) -> Columns[R]:
        """These records with other values in some columns."""
        return Columns(self._record, **{**{name: self.__dict__[name] for name in self._names}, **columns})


def _mapped(column: Any, function: Callable[[Array], Any]) -> Any:
    kind = type(column)
    if kind is np.ndarray or kind is Traced:
        return function(column)
    if kind is Columns:
        return column.mapped(function)
    if kind is dict:
        return {name: _mapped(one, function) for name, one in column.items()}
    return tuple([_mapped(one, function) for one in column]) if kind is tuple else column


def joined(parts: Sequence[Columns[R]], lengths: Sequence[int]) -> Columns[R]:
    """The records of several columns, one after the other.

    Args:
        lengths: records of each part.

    >>> from gpusim.launch import Grid
    >>> parts = Columns(Grid, x=np.array([4, 8]), y=3), Columns(Grid, x=5, y=3)
    >>> together = joined(parts, (2, 1))
    >>> together.x.tolist(), together.y
    ([4, 8, 5], 3)
    """
    first: Columns[R] = _joined(parts, lengths)
    return first


def _joined(columns: Sequence[Any], lengths: Sequence[int]) -> Any:
    first = columns[0]
    kinds = {type(one) for one in columns}
    if kinds == {Columns}:
        names = first._names  # noqa: SLF001 -- of this module
        parts = {name: _joined([one.__dict__[name] for one in columns], lengths) for name in names}
        return Columns(first._record, **parts)  # noqa: SLF001
    if kinds == {tuple}:
        return tuple([_joined(those, lengths) for those in zip(*columns, strict=True)])
    if np.ndarray not in kinds and all(one is first or one == first for one in columns):
        return first
    arrays = [
        one if isinstance(one, np.ndarray) and one.ndim else np.full(length, one)
        for one, length in zip(columns, lengths, strict=True)
    ]
    return np.concatenate(arrays, axis=-1)


def columns_of(record: R) -> Columns[R]:
    """A record as columns of one row; what is no number and no record stands as it is.

    >>> from gpusim.launch import Grid
    >>> columns_of(Grid(4, 3)).ctas.tolist()
    [12]
    """
    columns: dict[str, Any] = {}
    for one in fields(record):  # type: ignore[arg-type]
        value = getattr(record, one.name)
        columns[one.name] = _column(value)
    return Columns(type(record), **columns)


def _column(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return np.array([value])
    if is_dataclass(value) and not isinstance(value, type):
        return columns_of(value)
    return tuple([_column(one) for one in value]) if type(value) is tuple else value


def _made(record: type[R], names: tuple[str, ...], values: tuple[Any, ...]) -> R:
    return record(**dict(zip(names, values, strict=True)))


def _items(column: Any, indices: Array) -> Sequence[Any]:
    kind = type(column)
    if kind is np.ndarray:
        values: list[Any] = column[indices].tolist()
        return values
    if kind is Columns:
        return cast("list[Any]", column.records(indices))
    if kind is tuple:
        return list(zip(*(_items(one, indices) for one in column), strict=True)) or [()] * len(indices)
    if kind is dict:
        return [dict(zip(column, one, strict=True)) for one in _items(tuple(column.values()), indices)]
    return [column] * len(indices)


def _item(column: Any, index: int) -> Any:
    kind = type(column)
    if kind is np.ndarray:
        return column.item(index)
    if kind is Columns:
        return column.row(index)
    if kind is dict:
        return {name: _item(one, index) for name, one in column.items()}
    return tuple([_item(one, index) for one in column]) if kind is tuple else column


def elementwise(
    function: Callable[..., float], *columns: Array, where: Array | None = None, otherwise: float = 0.0
) -> Array:
    """A function of numbers of each row, as those of :mod:`math`: numpy's differ in the last bit between processors.

    Args:
        where: rows of which the function is taken; None: of all.
        otherwise: the value of other rows.
    """
    for one in columns:
        if isinstance(one, Traced):
            return one.graph.called(function, columns, where, otherwise)
    if where is None:
        return np.array(list(map(function, *(column.tolist() for column in columns))))
    found, rows = np.full(where.shape, otherwise), np.flatnonzero(where)
    found[rows] = list(map(function, *(column[rows].tolist() for column in columns)))
    return found


def share(part: Any, whole: Any) -> Array:
    """Part over whole; of nothing, nothing."""
    some = np.asanyarray(whole != 0)
    return np.where(some, part / np.where(some, whole, 1), 0.0)
