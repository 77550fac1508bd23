"""The version of the program, where every module may read it: the package itself imports downward from all of them."""

from __future__ import annotations

__version__ = "0.1.0"
