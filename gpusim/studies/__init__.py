"""Work that makes many predictions: experiments, validation, calibration, counters."""
