"""Which kernels a library has for a GPU."""
