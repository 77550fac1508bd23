"""Numerical error of kernels: rounding, 2:4 sparsity, order of summation, training in low precision."""
