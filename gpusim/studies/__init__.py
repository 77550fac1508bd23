"""Studies made of many predictions: experiments, validation, calibration, hardware counters."""
