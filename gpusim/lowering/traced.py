"""Formulas over columns as graphs: a formula that is called on traced columns returns the operations it consists of.

A traced column is an array of nodes in place of numbers, so that numpy broadcasts, indexes and stacks it as others.
What is computed twice is one node. A formula may not branch on the value of a traced column; where it asks whether any
row meets a condition, some does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntFlag
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np


class Varies(IntFlag):
    """With what a value differs: a flag for each, none for what is the same in all rows."""

    NEVER = 0
    KERNEL = 1
    PROBLEM = 2
    ROW = 4


class Leaf(NamedTuple):
    """A value that is given: its path from a root, by names of attributes, and its place among those found there."""

    path: tuple[str, ...]
    place: int = 0


class Call(NamedTuple):
    """A function of numbers: its operands are a condition where it is called, the value elsewhere, and arguments."""

    function: Callable[..., float]


class Cast(NamedTuple):
    """A conversion to a type of numbers."""

    kind: str


class Node:
    """A value of each row: an operation on others, a leaf, or a constant, which is its operation's only operand.

    Operations are ufuncs of numpy, ``numpy.where``, :class:`Call` and :class:`Cast`.
    """

    __slots__ = ("dtype", "operands", "operation", "varies")

    def __init__(self, operation: Any, operands: tuple[Any, ...], dtype: Any, varies: Varies) -> None:
        self.operation, self.operands, self.dtype, self.varies = operation, operands, dtype, varies


CONSTANT = "constant"


class Graph:
    """Nodes in the order in which they were made: operands come before what is made of them."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[Any, ...], Node] = {}

    def leaf(self, path: tuple[str, ...], kind: Any, varies: Varies, shape: tuple[int, ...] = ()) -> Traced:
        """A column of given values; of the shape of a column of one row."""
        places = np.arange(int(np.prod(shape)), dtype=object).reshape(shape)
        made = np.frompyfunc(lambda place: self._node(Leaf(path, int(place)), (), np.dtype(kind), varies), 1, 1)
        return self._traced(made(places))

    def called(
        self, function: Callable[..., float], columns: Sequence[Any], where: Any = None, otherwise: float = 0.0
    ) -> Traced:
        """A function of numbers, of rows of which a condition holds."""
        return self.applied(Call(function), True if where is None else where, otherwise, *columns)

    def applied(self, operation: Any, *columns: Any) -> Traced:
        """An operation on columns, some of which are traced."""
        made = np.frompyfunc(lambda *operands: self._applied(operation, operands), len(columns), 1)
        return self._traced(made(*(np.asarray(one, dtype=object) for one in columns)))

    def _traced(self, nodes: Any) -> Traced:
        found = np.asarray(nodes, dtype=object).view(Traced)
        found.graph = self
        return found

    def _applied(self, operation: Any, operands: tuple[Any, ...]) -> Node:
        nodes = tuple([one if isinstance(one, Node) else self._constant(one) for one in operands])
        varies = Varies.NEVER
        for one in nodes:
            varies |= one.varies
        return self._node(operation, nodes, None, varies)

    def _constant(self, value: float) -> Node:
        """A number of Python, which takes the type of what it is combined with."""
        return self._node((CONSTANT, type(value), repr(value)), (value,), np.dtype(type(value)), Varies.NEVER)

    def _node(self, operation: Any, operands: tuple[Any, ...], dtype: Any, varies: Varies) -> Node:
        key = (operation, *operands)
        if key not in self.nodes:
            self.nodes[key] = Node(operation, operands, dtype or _type_of(operation, operands), varies)
        return self.nodes[key]


class Traced(np.ndarray[Any, Any]):
    """A column of nodes."""

    graph: Graph

    def __array_finalize__(self, source: Any) -> None:
        self.graph = getattr(source, "graph", None)  # type: ignore[assignment]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        assert (method, options) == ("__call__", {}), (ufunc, method, options)
        return _graph_of(inputs).applied(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.where:
            return _graph_of(args).applied(np.where, *args)
        if function is np.clip:
            value, least, most = args
            return np.minimum(np.maximum(value, least), most)
        assert (function, kwargs) == (np.stack, {})
        graph = _graph_of(args[0])
        return graph._traced(np.stack([np.asarray(one, dtype=object) for one in args[0]]))  # noqa: SLF001

    @property
    def dtype(self) -> Any:
        """Type of the numbers."""
        return self.item(0).dtype

    def astype(self, kind: Any) -> Any:  # type: ignore[override]
        """The numbers as others of a type."""
        return self.graph.applied(Cast(np.dtype(kind).name), self)

    def take(self, *_at: Any, **_axis: Any) -> Traced:  # type: ignore[override]
        """The column itself: it stands for the values of any row."""
        return self

    def any(self) -> bool:  # type: ignore[override]
        """Whether a condition holds in any row: in some it may."""
        return True

    def __bool__(self) -> bool:
        raise TypeError("a formula over columns asks for a value: numpy.where chooses in each row")


def _graph_of(inputs: Sequence[Any]) -> Graph:
    return next(one.graph for one in inputs if isinstance(one, Traced))


def _type_of(operation: Any, operands: tuple[Node, ...]) -> Any:
    """Type that numpy gives a result."""
    match operation:
        case Cast(kind):
            return np.dtype(kind)
        case Call():
            return np.dtype(float)
    examples = [one.operands[0] if _is_constant(one) else np.ones(1, one.dtype) for one in operands]
    with np.errstate(all="ignore"):
        return operation(*examples).dtype


def _is_constant(node: Node) -> bool:
    return isinstance(node.operation, tuple) and node.operation[0] == CONSTANT


class TracedRecord:
    """A record whose numbers are traced: those of its fields and properties. Its methods apply to it as they are.

    Records in a tuple are found by their names.
    """

    def __init__(self, graph: Graph, record: Any, path: tuple[str, ...]) -> None:
        self._graph, self._record, self._path = graph, record, path

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(type(self._record), name, None)
        if isinstance(attribute, FunctionType):
            return MethodType(attribute, self)
        return self._traced(getattr(self._record, name), (*self._path, name))

    def _traced(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, bool | int | float):
            return self._graph.leaf(path, type(value), Varies.NEVER)
        if isinstance(value, tuple):
            return tuple(TracedRecord(self._graph, one, (*path, one.name)) for one in value)
        return value if isinstance(value, str) else TracedRecord(self._graph, value, path)


def value_of(roots: Mapping[str, Any], leaf: Leaf) -> Any:
    """The value of a leaf below some roots."""
    value: Any = roots[leaf.path[0]]
    for name in leaf.path[1:]:
        value = next(one for one in value if one.name == name) if type(value) is tuple else getattr(value, name)
    return value
