"""Studies of many predictions: experiments, sweeps, validation, calibration, numerics, hardware counters."""
