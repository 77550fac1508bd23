"""Arithmetic on the named sizes of a model: ``4 * hidden``, ``(kernel - 1) // 2``, ``max(1, width // 64)``."""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Mapping

from gpusim.errors import excerpt
from gpusim.units import ceil_div

LONGEST = 200
"""Longest expression [characters]."""
LARGEST = 2**48
"""Largest absolute value of any part of an expression: more elements than any memory holds."""

_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "ceil_div": ceil_div}


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """The integer that an expression comes to.

    Raises:
        ValueError: not an expression of known names; the text is one line.

    >>> evaluate("4 * hidden + ceil_div(heads, 3)", {"hidden": 1024, "heads": 16})
    4102
    """
    if len(text) > LONGEST:
        raise ValueError(f"an expression has at most {LONGEST} characters, got {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body, names)
    except SyntaxError:
        raise ValueError(f"'{excerpt(text)}' is no expression; write such as 4 * hidden") from None
    except ZeroDivisionError:
        raise ValueError(f"'{excerpt(text)}' divides by zero") from None


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
                remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(names) or 'none'}"
                raise ValueError(f"unknown size '{excerpt(name)}'; {remedy}")
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left, names), _value(right, names)))
        case ast.Call(func=ast.Name(id=function), args=[_, _, *_] as arguments, keywords=[]) if function in _FUNCTIONS:
            return _bounded(_FUNCTIONS[function](*(_value(argument, names) for argument in arguments)))
    known = ", ".join(_FUNCTIONS)
    raise ValueError(f"'{excerpt(ast.unparse(node))}' is not understood; use + - * // % and {known} on integers")


def _bounded(value: int) -> int:
    if abs(value) > LARGEST:
        raise ValueError(f"a size of {value:.3g} is beyond {LARGEST:.3g}")
    return value
