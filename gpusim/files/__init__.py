"""Reading within bounds, YAML read once, and writing whole files or none."""
