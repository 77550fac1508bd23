"""Machine code of fused formulas, and the operations that numba lacks: choices without branches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numba import extending, types

from gpusim.lowering.fused import KINDS, PLACES, Fused, with_called
from gpusim.sim.drivers.machine_code import machine_code

_extending: Any = extending


def _select(_context: Any, _condition: Any, value: Any, otherwise: Any) -> Any:
    """A value where a condition holds, or another one of its type: both are known, and no branch is taken."""
    if value != otherwise:
        return None

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        condition, value, otherwise = arguments
        return builder.select(condition, value, otherwise)

    return value(types.boolean, value, value), code


select = _extending.intrinsic(_select)


def larger(one: Any, other: Any) -> Any:
    """The larger of two numbers, none of which is nan."""
    return select(one > other, one, other)


def smaller(one: Any, other: Any) -> Any:
    """The smaller of two numbers, none of which is nan."""
    return select(one < other, one, other)


def lcm(one: int, other: int) -> int:
    """The least common multiple."""
    return one // math.gcd(one, other) * other


_OPERATIONS = {
    "select": select, "larger": larger, "smaller": smaller, "lcm": lcm, "ceil": np.ceil, "isnan": math.isnan,
    "inf": math.inf, "nan": math.nan,
}  # fmt: skip


def compiled(several: Sequence[Fused], text: str) -> list[Callable[..., None]]:
    """The loops of several fused formulas, kept on disk together.

    Args:
        text: those of the formulas.
    """
    loops = [_loop(number, fused) for number, fused in enumerate(several)]
    numbers = np.empty(0, dtype=np.int64)
    arguments = (numbers, numbers, np.empty((0, 0)), *(np.empty((0, 0), dtype=kind) for _ in PLACES for kind in KINDS))
    return machine_code(loops, [arguments] * len(loops), text, error_model="numpy")


def _loop(number: int, fused: Fused) -> Callable[..., None]:
    for function in (larger, smaller, lcm, *fused.functions.values()):
        for one in with_called(function):
            _extending.register_jitable(one)
    # numba keeps code by the name of a function and of its file, which has to exist.
    names: dict[str, Any] = {"__name__": __name__, **_OPERATIONS, **fused.functions}
    exec(compile(fused.source, __file__, "exec"), names)  # noqa: S102 - what :class:`Fused` has written
    loop = names["loop"]
    loop.__qualname__ = f"loop_{number}"
    return cast("Callable[..., None]", loop)
