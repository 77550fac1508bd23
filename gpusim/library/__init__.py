"""Libraries: their kernels, and the heuristic that selects one."""
