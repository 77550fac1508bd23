"""Execution of many predictions: worker processes, and a journal to resume from."""
