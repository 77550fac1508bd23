"""All operators of ONNX that are known: of operator sets 9 to 24, and those of ONNX Runtime that exporters write."""

from __future__ import annotations

from gpusim.capture import onnx_attention, onnx_layers, onnx_moves, onnx_pointwise
from gpusim.capture.onnx_registry import OPERATORS

__all__ = ["OPERATORS", "onnx_attention", "onnx_layers", "onnx_moves", "onnx_pointwise"]
