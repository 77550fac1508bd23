"""Operators that multiply no matrices, lowered to launches: a module for each kind of kernel."""
