"""The state as one object: a function of numba takes a tuple's arrays one by one, which costs time and compile time."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.experimental import structref

from gpusim.sim.compiled.jit import compiled
from gpusim.sim.compiled.layout import State


@structref.register
class _StateType(types.StructRef):
    def __init__(self, fields: Any) -> None:
        super().__init__(fields)
        self.name = "gpusim.State"  # or every symbol would spell out all arrays and the fields of their records

    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class _SharedState(structref.StructRefProxy):
    """Has the attributes of :class:`State`."""


structref.define_proxy(_SharedState, _StateType, list(State._fields))


@compiled
def shared(arrays: State) -> State:
    """The same arrays behind one reference."""
    return _SharedState(*arrays)  # type: ignore[return-value]
