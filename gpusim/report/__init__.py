"""What predictions are shown as: text tables, and timelines for a trace viewer."""
