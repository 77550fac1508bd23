"""The host: launch gaps, and the overhead of timing methods."""
