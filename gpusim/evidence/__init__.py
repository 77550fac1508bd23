"""What was measured: the table of timings, and importers of other formats."""
