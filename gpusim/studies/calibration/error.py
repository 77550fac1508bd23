"""The error of a refused calibration."""

from gpusim.errors import InputError


class CalibrationError(InputError):
    """A calibration that cannot be made; one line with the remedy."""
