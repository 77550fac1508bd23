"""Text tables for terminals and pipes, and timelines for trace viewers."""
