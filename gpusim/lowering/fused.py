"""Traced formulas as one loop over rows: its source, and the values that it needs from outside.

What differs from kernel to kernel only, or never, is computed by numpy and passed to the loop. What differs from
problem to problem is computed once for each of them, and with a kernel of it once for rows of both that follow each
other. Every operation is numpy's, on the same types, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from gpusim.lowering.columns import Array, elementwise
from gpusim.lowering.traced import CONSTANT, Call, Cast, Leaf, Node, Traced, Varies, value_of

KINDS = ("float64", "int64", "bool")
"""Types of numbers."""
PLACES = {Varies.NEVER: "0", Varies.KERNEL: "chosen", Varies.PROBLEM: "problem", Varies.ROW: "row"}
"""Where the loop finds values that differ so."""

_LEVELS = {Varies.PROBLEM: Varies.PROBLEM, Varies.PROBLEM | Varies.KERNEL: Varies.KERNEL}
"""Where the loop computes values that differ so, if not for each row: for rows of a problem, or of a kernel among them.
"""

_INFIX: Mapping[Any, str] = {
    np.add: "+",
    np.subtract: "-",
    np.multiply: "*",
    np.true_divide: "/",
    np.floor_divide: "//",
    np.remainder: "%",
    np.less: "<",
    np.less_equal: "<=",
    np.greater: ">",
    np.greater_equal: ">=",
    np.equal: "==",
    np.not_equal: "!=",
    np.bitwise_and: "&",
    np.bitwise_or: "|",
    np.bitwise_xor: "^",
}
_CALLED: Mapping[Any, str] = {
    np.minimum: "smaller",
    np.maximum: "larger",
    np.lcm: "lcm",
    np.ceil: "ceil",
    np.isnan: "isnan",
}
_OF_REAL_NUMBERS = (np.true_divide, np.ceil, np.isnan)


class Fused:
    """The loop of some traced columns.

    Attributes:
        source: text of the function ``loop(begins, kernel, results, *matrices)``. It writes each value of a row of
            ``results``. Rows are in the order of problems: those of a problem are from ``begins`` of it up to that of
            the next. ``kernel`` has the number of each row's kernel. Matrices are those of :meth:`given`.
        functions: those that it calls, by their names there.
    """

    def __init__(self, columns: Sequence[Array]) -> None:
        found = {id(node): node for column in columns if isinstance(column, Traced) for node in column.flat}
        values = list(found.values())
        self._places = {node: place for place, node in enumerate(found)}
        nodes = _in_order(values)
        self._names = {id(node): f"v{number}" for number, node in enumerate(nodes)}
        inner = [node for node in nodes if _is_inner(node)]
        used = {id(one) for node in inner for one in node.operands} | {id(node) for node in values}
        passed = [node for node in nodes if id(node) in used and not _is_inner(node) and not _is_constant(node)]
        self._passed = {
            (varies, kind): [node for node in passed if (node.varies, node.dtype.name) == (varies, kind)]
            for varies in PLACES
            for kind in KINDS
        }
        called = [node.operation.function for node in nodes if isinstance(node.operation, Call)]
        self.functions: dict[str, Callable[..., float]] = {_name(function): function for function in called}
        self.source = self._source(inner, values)

    def given(self, roots: Mapping[str, Any], *varying: Varies) -> list[Array]:
        """Values for the loop of what differs so: a matrix for each type of numbers, with a row for each place.

        Args:
            roots: what leaves are found below, by the first name of their paths.
        """
        values = _Values(roots)
        with np.errstate(all="ignore"):
            return [
                _matrix([values[node] for node in self._passed[varies, kind]], kind)
                for varies in varying
                for kind in KINDS
            ]

    @property
    def count(self) -> int:
        """How many values the loop gives of a row."""
        return len(self._places)

    def column(self, results: Array, column: Array) -> Array:
        """One of the columns, of the rows of results; a constant one as it is."""
        if not isinstance(column, Traced):
            return column
        found = [results[self._places[id(node)]].astype(node.dtype) for node in column.flat]
        return np.stack(found) if len(found) > 1 else found[0]

    @property
    def text(self) -> str:
        """All that decides what the loop computes: its source, and the code and constants of what it calls."""
        return "\n".join((self.source, *(line for one in self.functions.values() for line in _described(one))))

    def _source(self, inner: Sequence[Node], values: Sequence[Node]) -> str:
        lines: dict[Varies, list[str]] = {varies: [] for varies in PLACES}
        for (varies, kind), nodes in self._passed.items():
            matrix = _matrix_name(varies, kind)
            lines[varies] += [
                f"{self._names[id(node)]} = {matrix}[{PLACES[varies]}, {column}]" for column, node in enumerate(nodes)
            ]
        for node in inner:
            lines[_LEVELS.get(node.varies, Varies.ROW)].append(f"{self._names[id(node)]} = {self._operation(node)}")
        results = [f"results[{place}, row] = {self._value(node, 'float64')}" for place, node in enumerate(values)]
        matrices = ", ".join(_matrix_name(varies, kind) for varies in PLACES for kind in KINDS)
        return "\n".join(
            (
                f"def loop(begins, kernel, results, {matrices}):",
                *(f"    {line}" for line in lines[Varies.NEVER]),
                "    for problem in range(len(begins) - 1):",
                *(f"        {line}" for line in lines[Varies.PROBLEM]),
                "        row, end = begins[problem], begins[problem + 1]",
                "        while row < end:",
                "            chosen = kernel[row]",
                *(f"            {line}" for line in lines[Varies.KERNEL]),
                "            while row < end and kernel[row] == chosen:",
                *(f"                {line}" for line in (*lines[Varies.ROW], *results)),
                "                row += 1",
                "",
            )
        )

    def _operation(self, node: Node) -> str:
        operation, kind = node.operation, node.dtype.name
        if isinstance(operation, Cast):
            return self._value(node.operands[0], kind)
        if isinstance(operation, Call):
            where, otherwise, *columns = (self._value(one, one.dtype.name) for one in node.operands)
            called = f"{_name(operation.function)}({', '.join(columns)})"
            return called if where == "True" else f"{called} if {where} else {otherwise}"
        if operation is np.where:
            condition, *others = node.operands
            both = ", ".join(self._value(one, kind) for one in others)
            return f"select({self._value(condition, 'bool')}, {both})"
        of = _kind_of_operands(node)
        values = [self._value(one, of) for one in node.operands]
        if operation in _INFIX:
            return f" {_INFIX[operation]} ".join(values)
        if operation in (np.negative, np.invert):
            return f"{'-' if operation is np.negative else 'not' if kind == 'bool' else '~'} {values[0]}"
        return f"{_CALLED[operation]}({', '.join(values)})"

    def _value(self, node: Node, kind: str) -> str:
        """A value as one of a type of numbers."""
        if _is_constant(node):
            return _literal(node.operands[0], kind)
        name = self._names[id(node)]
        match node.dtype.name:
            case same if same == kind:
                return name
            case "bool":
                return f"select({name}, {_literal(1, kind)}, {_literal(0, kind)})"
        return f"{'float' if kind == 'float64' else 'int'}({name})"


class _Values:
    """Values of nodes as numpy computes them, a column of as many rows as differ, or of one."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._roots = roots
        self._known: dict[int, Any] = {}

    def __getitem__(self, node: Node) -> Any:
        if id(node) not in self._known:
            self._known[id(node)] = self._value(node)
        return self._known[id(node)]

    def _value(self, node: Node) -> Any:
        operation = node.operation
        if isinstance(operation, Leaf):
            value = value_of(self._roots, operation)
            return value.reshape(-1, value.shape[-1])[operation.place] if isinstance(value, np.ndarray) else value
        if _is_constant(node):
            return node.operands[0]
        operands = [self[one] for one in node.operands]
        if isinstance(operation, Cast):
            return np.asarray(operands[0]).astype(operation.kind)
        if isinstance(operation, Call):
            where, otherwise, *columns = np.broadcast_arrays(*map(np.atleast_1d, operands))
            return elementwise(operation.function, *columns, where=where, otherwise=otherwise.item(0))
        return operation(*operands)


def _matrix(columns: Sequence[Any], kind: str) -> Array:
    if not columns:
        return np.empty((0, 0), dtype=kind)
    matrix = np.empty((max(map(np.size, columns)), len(columns)), dtype=kind)
    for place, column in enumerate(columns):
        np.copyto(matrix[:, place], column, casting="same_kind")
    return matrix


def _matrix_name(varies: Varies, kind: str) -> str:
    return f"{varies.name}_{kind}".lower()


def _kind_of_operands(node: Node) -> str:
    """The type to which operands are brought: that of the result, or of the comparison of both."""
    if node.operation in _OF_REAL_NUMBERS:
        return "float64"
    if node.dtype != bool:
        return str(node.dtype.name)
    return str(np.result_type(*(one.operands[0] if _is_constant(one) else one.dtype for one in node.operands)).name)


def _literal(value: float, kind: str) -> str:
    """A number of a type; ``inf`` and ``nan`` are names of the loop."""
    return repr(np.dtype(kind).type(value).item())


def _is_constant(node: Node) -> bool:
    return isinstance(node.operation, tuple) and node.operation[0] == CONSTANT


def _is_inner(node: Node) -> bool:
    """Whether the loop computes it."""
    return bool(node.varies & (Varies.PROBLEM | Varies.ROW)) and not isinstance(node.operation, Leaf)


def _in_order(values: Sequence[Node]) -> list[Node]:
    """All that values are made of, operands first."""
    found: dict[int, Node] = {}
    waiting = [(node, False) for node in reversed(values)]
    while waiting:
        node, is_complete = waiting.pop()
        if is_complete:
            found.setdefault(id(node), node)
        elif id(node) not in found:
            waiting.append((node, True))
            waiting += [] if _is_constant(node) else [(one, False) for one in node.operands]
    return list(found.values())


def _name(function: Callable[..., float]) -> str:
    return function.__name__.strip("_")


def with_called(function: Any) -> Iterator[FunctionType]:
    """A function and those that it calls by a global name, if they are of Python."""
    if isinstance(function, FunctionType):
        yield function
        for name in function.__code__.co_names:
            yield from with_called(function.__globals__.get(name))


def _described(function: Callable[..., float]) -> Iterator[str]:
    for one in with_called(function):
        code = one.__code__
        named = {name: one.__globals__.get(name) for name in code.co_names}
        numbers = {name: value for name, value in named.items() if isinstance(value, int | float)}
        yield f"{one.__name__} {code.co_code.hex()} {code.co_consts} {code.co_names} {numbers}"
