"""Measured runs: the CSV schema, and importers of other formats."""
