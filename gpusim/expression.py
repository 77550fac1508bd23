"""Arithmetic in documents, on named values: ``4 * hidden``, ``max(1, width // 64)``, ``median(a / b, c / d)``."""

from __future__ import annotations

import ast
import difflib
import operator
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gpusim.errors import excerpt
from gpusim.units import ceil_div

LONGEST = 2_000
"""Longest expression [characters]."""

Number = TypeVar("Number", int, float)
Operators = Mapping[type[ast.operator], Callable[[Any, Any], Any]]

_ANYWHERE: Operators = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


@dataclass(frozen=True, slots=True)
class Grammar:
    """What expressions of one kind may contain."""

    names: str
    """What its names are, for messages."""
    numbers: tuple[type, ...]
    operators: Operators
    functions: Mapping[str, Callable[..., Any]]
    known: str
    """What it understands, for messages."""
    example: str
    largest: float
    """Largest absolute value of any part."""


SIZES = Grammar(
    "size",
    (int,),
    {**_ANYWHERE, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
    {"min": min, "max": max, "ceil_div": ceil_div},
    "+ - * // % and min, max, ceil_div on integers",
    "4 * hidden",
    2**48,  # more elements than any memory holds
)
"""Grammar of the sizes of a model."""
METRICS = Grammar(
    "metric",
    (int, float),
    {**_ANYWHERE, ast.Div: operator.truediv},
    {"min": min, "max": max, "median": lambda *values: statistics.median(values)},
    "+ - * / and min, max, median on numbers",
    "a100.tflops / v100.tflops",
    1e30,
)
"""Grammar of predicted metrics; names may have dots."""


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """The integer that an expression of sizes comes to.

    Raises:
        ValueError: not an expression of known names; the text is one line.

    >>> evaluate("4 * hidden + ceil_div(heads, 3)", {"hidden": 1024, "heads": 16})
    4102
    """
    return int(value_of(text, names, SIZES))


def value_of(text: str, names: Mapping[str, Number], grammar: Grammar) -> Number:
    """The number that an expression comes to.

    Raises:
        ValueError: not an expression of known names; the text is one line.

    >>> value_of("100 * (median(a.time / b.time, 2, 1.5) - 1)", {"a.time": 6.0, "b.time": 4.0}, METRICS)
    50.0
    """
    body = parsed(text, grammar)
    try:
        value: Number = _value(body, names, grammar)
    except ZeroDivisionError:
        raise ValueError(f"'{excerpt(text)}' divides by zero") from None
    except RecursionError:
        raise _no_expression(text, grammar) from None
    return value


def parsed(text: str, grammar: Grammar) -> ast.expr:
    """The tree of an expression.

    Raises:
        ValueError: it is none; the text is one line.
    """
    if len(text) > LONGEST:
        raise ValueError(f"an expression has at most {LONGEST} characters, got {len(text)}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise _no_expression(text, grammar) from None


def _no_expression(text: str, grammar: Grammar) -> ValueError:
    return ValueError(f"'{excerpt(text)}' is not an expression; write one such as {grammar.example}")


def _value(node: ast.expr, names: Mapping[str, Any], grammar: Grammar) -> Any:
    match node:
        case ast.Constant(value=number) if type(number) in grammar.numbers:
            return number
        case ast.Name() | ast.Attribute():
            return _named(ast.unparse(node), names, grammar)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names, grammar)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in grammar.operators:
            sides = (_value(side, names, grammar) for side in (left, right))
            return _bounded(grammar.operators[type(op)](*sides), grammar)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if name in grammar.functions:
            values = (_value(argument, names, grammar) for argument in arguments)
            return _bounded(grammar.functions[name](*values), grammar)
    raise ValueError(f"'{excerpt(ast.unparse(node))}' is not understood; use {grammar.known}")


def _named(name: str, names: Mapping[str, Any], grammar: Grammar) -> Any:
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(names) or 'none'}"
        raise ValueError(f"unknown {grammar.names} '{excerpt(name)}'; {remedy}")
    return names[name]


def _bounded(value: Any, grammar: Grammar) -> Any:
    if abs(value) > grammar.largest:
        raise ValueError(f"a {grammar.names} of {value:.3g} is beyond {grammar.largest:.3g}")
    return value
