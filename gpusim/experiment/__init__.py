"""Experiments: the YAML document, its cases, and the plots and pages that it comes to."""
