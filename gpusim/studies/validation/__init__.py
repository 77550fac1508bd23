"""Measured runs laid beside predictions: how far off, on which rows, why, and against which yardsticks."""
