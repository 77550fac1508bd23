"""The random numbers by which a full L2 picks the lines that it may replace."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 0
"""Seed of every simulation, so that the same input gives the same output."""
_STATE_WORDS = 624


class RandomWords:
    """The 32-bit words that :class:`random.Random` draws from: MT19937, by NumPy's implementation."""

    def __init__(self) -> None:
        key = random.Random(SEED).getstate()[1][:_STATE_WORDS]  # noqa: S311 - no secret, only repeatable
        self._generator = np.random.MT19937()
        state: Any = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": _STATE_WORDS}}
        self._generator.state = state

    def draw(self, count: int) -> NDArray[np.int64]:
        """The next words.

        >>> drawn = random.Random(SEED)
        >>> RandomWords().draw(1000).tolist() == [drawn.getrandbits(32) for _ in range(1000)]
        True
        """
        return self._generator.random_raw(count).astype(np.int64)

    def refill(self, words: Any, used: int) -> NDArray[np.int64]:
        """The unused words, followed by as many new ones as were ``used``."""
        return np.concatenate((np.asarray(words[used:], np.int64), self.draw(used)))
