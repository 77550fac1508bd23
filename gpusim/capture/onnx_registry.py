"""Operators of ONNX by name, each as functions of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpusim.capture.onnx_module import Node

Operator = Callable[[Node], Any]
OPERATORS: dict[str, Operator] = {}
"""Operators by name; those of other domains with the domain before it."""
RUNTIME = "com.microsoft."
"""Domain of ONNX Runtime's own operators."""


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Register a function that runs a node of any of these names."""

    def add(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return add
