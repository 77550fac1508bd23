"""Many predictions: worker processes, and a journal to resume from."""
