"""gpusim: predicts how long a tiled matrix multiplication takes on a GPU, and what binds it."""

__version__ = "0.1.0"
