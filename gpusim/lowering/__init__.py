"""Lowering of operators and kernels to launches: grids, programs, memory traffic."""
