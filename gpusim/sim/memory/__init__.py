"""The memory beyond the SM: its port to L2, L2 and DRAM, as one SM's share (``sampled``) or with all lines (``full``)."""
