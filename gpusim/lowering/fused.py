"""Traced formulas as one loop over rows: its source, and the values that it needs from outside.

What differs from kernel to kernel only, or never, is computed by numpy and passed to the loop; what differs from problem to
problem is computed once for each problem. Every operation is numpy's of the same types, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpusim.lowering.columns import Array, elementwise
from gpusim.lowering.traced import CONSTANT, Call, Cast, Leaf, Node, Varies, value_of

KINDS = ("float64", "int64", "bool")
INDEX = {Varies.NEVER: "0", Varies.KERNEL: "kernel[row]", Varies.PROBLEM: "problem", Varies.ROW: "row"}
"""Where the loop finds what differs with each of these."""

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
}
_NAMED: Mapping[Any, str] = {
    np.minimum: "smaller",
    np.maximum: "larger",
    np.where: "select",
    np.lcm: "lcm",
    np.ceil: "ceil",
    np.isnan: "isnan",
}
"""Functions of the loop: :mod:`gpusim.lowering.fused_code`."""
_ANY_TYPE = {np.true_divide, np.ceil, np.isnan}


class Fused:
    """The loop of some traced values, its results.

    Attributes:
        source: text of the function ``loop``.
        functions: those that it calls, by their names there.
    """

    def __init__(self, results: Sequence[Node]) -> None:
        self._needed = _in_order(results)
        self._names = {id(node): f"v{number}" for number, node in enumerate(self._needed)}
        self.functions = {
            node.operation.function.__name__.strip("_"): node.operation.function
            for node in self._needed
            if isinstance(node.operation, Call)
        }
        passed = self._passed(results)
        self._given: dict[tuple[Varies, str], list[Node]] = {
            (varies, kind): [node for node in passed if (node.varies, node.dtype.name) == (varies, kind)]
            for varies in INDEX
            for kind in KINDS
        }
        self.source = self._source(results)

    def _passed(self, results: Sequence[Node]) -> Iterable[Node]:
        """What comes from outside: leaves, and what is computed of those that differ with no problem."""
        used = {id(one) for node in self._needed if _is_inner(node) for one in node.operands}
        used |= {id(node) for node in results}
        return [
            node
            for node in self._needed
            if id(node) in used and not _is_inner(node) and not _is_constant(node)
        ]

    def arguments(self, roots: Mapping[str, Any], *differing: Varies) -> list[Array]:
        """Values for the loop of what differs as given: a matrix for each type of numbers, with a column for each value."""
        values = _Values(roots)
        return [_matrix([values[node] for node in self._given[varies, kind]], kind) for varies in differing for kind in KINDS]

    def _source(self, results: Sequence[Node]) -> str:
        passed = [f"{varies.name}_{kind}".lower() for varies in INDEX for kind in KINDS]
        sections: dict[Varies, list[str]] = {varies: [] for varies in INDEX}
        for (varies, kind), nodes in self._given.items():
            matrix = f"{varies.name}_{kind}".lower()
            sections[varies] += [
                f"{self._names[id(node)]} = {matrix}[{INDEX[varies]}, {place}]" for place, node in enumerate(nodes)
            ]
        for node in self._needed:
            if _is_inner(node) and not isinstance(node.operation, Leaf):
                varies = Varies.PROBLEM if node.varies == Varies.PROBLEM else Varies.ROW
                sections[varies].append(f"{self._names[id(node)]} = {self._text(node)}")
        of_rows = sections[Varies.KERNEL] + sections[Varies.ROW]
        of_rows += [f"results[{place}, row] = {self._value(node, 'float64')}" for place, node in enumerate(results)]
        return "\n".join(
            (
                f"def loop(begins, kernel, results, {', '.join(passed)}):",
                *(f"    {line}" for line in sections[Varies.NEVER]),
                "    for problem in range(len(begins) - 1):",
                *(f"        {line}" for line in sections[Varies.PROBLEM]),
                "        for row in range(begins[problem], begins[problem + 1]):",
                *(f"            {line}" for line in of_rows),
                "",
            )
        )

    def _text(self, node: Node) -> str:
        operation, operands = node.operation, node.operands
        kind = node.dtype.name
        if isinstance(operation, Cast):
            return self._value(operands[0], kind)
        if isinstance(operation, Call):
            where, otherwise, *columns = (self._value(one, one.dtype.name) for one in operands)
            called = f"{operation.function.__name__.strip('_')}({', '.join(columns)})"
            return called if where == "True" else f"{called} if {where} else {otherwise}"
        if operation is np.negative:
            return f"-{self._value(operands[0], kind)}"
        if operation is np.invert:
            return f"not {self._value(operands[0], kind)}" if kind == "bool" else f"~{self._value(operands[0], kind)}"
        if operation is np.where:
            condition, *values = operands
            return f"select({self._value(condition, 'bool')}, {', '.join(self._value(one, kind) for one in values)})"
        common = _common_kind(operation, operands, kind)
        texts = [self._value(one, common) for one in operands]
        if operation in _INFIX:
            return f" {_INFIX[operation]} ".join(texts)
        return f"{_NAMED[operation]}({', '.join(texts)})"

    def _value(self, node: Node, kind: str) -> str:
        """A value as one of a type of numbers."""
        if _is_constant(node):
            return _literal(np.dtype(kind).type(node.operands[0]).item())
        name = self._names[id(node)]
        if node.dtype.name == kind:
            return name
        if node.dtype.name == "bool":
            return f"select({name}, {_literal(np.dtype(kind).type(1).item())}, {_literal(np.dtype(kind).type(0).item())})"
        return f"{'float' if kind == 'float64' else 'int'}({name})"


class _Values:
    """Values of nodes, as numpy computes them."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._roots = roots
        self._known: dict[int, Any] = {}

    def __getitem__(self, node: Node) -> Any:
        if id(node) not in self._known:
            with np.errstate(all="ignore"):
                self._known[id(node)] = self._value(node)
        return self._known[id(node)]

    def _value(self, node: Node) -> Any:
        operation = node.operation
        if isinstance(operation, Leaf):
            value = value_of(self._roots, operation)
            rows = isinstance(value, np.ndarray)
            return value.reshape(-1, value.shape[-1])[operation.place] if rows else value
        if _is_constant(node):
            return node.operands[0]
        operands = [self[one] for one in node.operands]
        if isinstance(operation, Cast):
            return np.asarray(operands[0]).astype(operation.kind)
        if isinstance(operation, Call):
            where, otherwise, *columns = np.broadcast_arrays(*map(np.atleast_1d, operands))
            return elementwise(operation.function, *columns, where=where, otherwise=otherwise.item(0))
        return operation(*operands)


def _matrix(values: Sequence[Any], kind: str) -> Array:
    """Values as the columns of a matrix."""
    if not values:
        return np.empty((0, 0), dtype=kind)
    columns = np.broadcast_arrays(*map(np.atleast_1d, values))
    return np.stack(columns, axis=-1, dtype=kind, casting="same_kind")


def _common_kind(operation: Any, operands: Sequence[Node], kind: str) -> str:
    """The type to which operands are brought: that of the result, or of the operands of a comparison."""
    if operation in {np.true_divide, np.ceil, np.isnan}:
        return "float64"
    if kind != "bool":
        return kind
    return str(np.result_type(*(one.operands[0] if _is_constant(one) else one.dtype for one in operands)).name)


def _literal(value: Any) -> str:
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f"{value!r}".replace("-", "minus_")


def _is_constant(node: Node) -> bool:
    return isinstance(node.operation, tuple) and node.operation[0] == CONSTANT


def _is_inner(node: Node) -> bool:
    """Whether the loop computes it."""
    return bool(node.varies & (Varies.PROBLEM | Varies.ROW)) and not isinstance(node.operation, Leaf)


def _in_order(results: Sequence[Node]) -> list[Node]:
    """All that results are made of, operands first."""
    found: dict[int, Node] = {}
    waiting = [(node, False) for node in reversed(results)]
    while waiting:
        node, is_complete = waiting.pop()
        if is_complete:
            found.setdefault(id(node), node)
        elif id(node) not in found:
            waiting.append((node, True))
            if not _is_constant(node):
                waiting += [(one, False) for one in node.operands]
    return list(found.values())


Loop = Callable[..., None]
