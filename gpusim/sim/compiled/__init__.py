"""The simulation compiled: an interpreter of the same programs whose state is in arrays, for numba."""
