"""What carries a simulation out: SimPy, which is the reference and records traces, or compiled code."""
