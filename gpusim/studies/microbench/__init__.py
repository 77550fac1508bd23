"""Microbenchmarks played on the simulated machine, and compared with what boards were published to do."""

from gpusim.studies.microbench.parameters import Reading, UnsupportedBenchmarkError
from gpusim.studies.microbench.play import play

__all__ = ["Reading", "UnsupportedBenchmarkError", "play"]
