"""Measurements on the NVIDIA GPU in this machine: a suite in YAML in, a CSV in the measured schema out."""
