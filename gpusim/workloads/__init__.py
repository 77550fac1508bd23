"""Operators: shapes, data types, FLOPs and bytes; the conditions of a run; parsing of all of them."""
