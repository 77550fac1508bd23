"""The memory beyond the SM: its port, L2 and DRAM; one SM's share of them (``sampled``), or all lines (``full``)."""
