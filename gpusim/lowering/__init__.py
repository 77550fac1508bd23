"""Operators and kernels to launches: grids, programs, traffic."""
