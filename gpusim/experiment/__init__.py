"""Experiments: the YAML document, its cases, and the pages of its plots."""
