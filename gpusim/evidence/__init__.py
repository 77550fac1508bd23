"""What was measured: the table of timings, its sources, and importers of other formats."""
