"""Measurements on the NVIDIA GPU that is present: a suite in YAML to a CSV in the measured schema."""
