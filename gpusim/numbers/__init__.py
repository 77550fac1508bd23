"""Number formats: bits and range, accumulators, hardware support, names elsewhere."""
