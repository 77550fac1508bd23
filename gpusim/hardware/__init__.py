"""What a chip is: validated numbers with their units, and what fits on an SM."""
