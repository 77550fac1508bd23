"""Recorded ATen calls: what eager PyTorch calls in a step, and the kernels that it launches for each call."""
