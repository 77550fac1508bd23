"""Microbenchmarks as programs on the simulated machine, compared with what boards were published to do."""

from gpusim.studies.microbench.benchmarks import reading_of
from gpusim.studies.microbench.parameters import Reading, UnsupportedBenchmarkError

__all__ = ["Reading", "UnsupportedBenchmarkError", "reading_of"]
