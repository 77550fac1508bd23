"""Number formats: what each holds, who multiplies it, and what it is called elsewhere."""
