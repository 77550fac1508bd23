"""What every refusal of wrong input has in common."""

from __future__ import annotations


class InputError(ValueError):
    """Input that the user can correct: one line that names the place and the remedy."""
