"""Operators on rows, lowered to launches: a module for each kind of kernel."""
