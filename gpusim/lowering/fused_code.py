"""Machine code of fused formulas, and the operations that numba has not as they are needed: choices without branches."""

from __future__ import annotations

import math
from typing import Any

import numba
from numba import extending, types

from gpusim.lowering.fused import Fused

_extending: Any = extending
_numba: Any = numba


@_extending.intrinsic
def select(typing_context: Any, condition: Any, value: Any, otherwise: Any) -> Any:
    """One value or the other, both of which are known."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        chosen, value, otherwise = arguments
        return builder.select(builder.trunc(chosen, _bit()) if chosen.type != _bit() else chosen, value, otherwise)

    return value(types.boolean, value, value), code


def _bit() -> Any:
    from llvmlite import ir  # noqa: PLC0415

    return ir.IntType(1)


def larger(one: Any, other: Any) -> Any:
    return select(one > other, one, other)


def smaller(one: Any, other: Any) -> Any:
    return select(one < other, one, other)


def lcm(one: int, other: int) -> int:
    return one // math.gcd(one, other) * other
