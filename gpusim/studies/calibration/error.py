"""What a calibration refuses."""


class CalibrationError(ValueError):
    """A calibration that cannot be made; one line with the remedy."""
