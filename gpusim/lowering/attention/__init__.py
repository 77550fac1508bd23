"""Lowering of fused attention."""
