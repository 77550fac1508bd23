"""Arithmetic that numbers and arrays share, so that a formula is written once for one workload and for many."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np


def largest(*numbers: Any) -> Any:
    """The largest of some numbers. Of arrays, element by element.

    >>> largest(1.0, 3.0), largest(2.0, np.array([1.0, 3.0])).tolist()
    (3.0, [2.0, 3.0])
    """
    return reduce(np.maximum, numbers) if _any_array(numbers) else max(numbers)


def smallest(*numbers: Any) -> Any:
    """The smallest of some numbers. Of arrays, element by element."""
    return reduce(np.minimum, numbers) if _any_array(numbers) else min(numbers)


def nearest_whole(number: Any) -> Any:
    """The nearest whole number, of two equally near the even one. Of an array, element by element.

    >>> nearest_whole(2.5), nearest_whole(np.array([2.5, 3.5])).tolist()
    (2, [2, 4])
    """
    return np.rint(number).astype(np.int64) if isinstance(number, np.ndarray) else round(number)


def _any_array(numbers: tuple[Any, ...]) -> bool:
    return any(isinstance(one, np.ndarray) for one in numbers)
