"""YAML specs to records, each value with its source: the registry of boards, and cross-checks."""
