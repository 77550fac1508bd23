"""Microbenchmarks as launches: chases, streams and chains of small kernels, in the vocabulary of every other kernel."""
