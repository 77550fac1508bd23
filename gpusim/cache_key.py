"""Records as keys of caches, compared by a short key in place of all that they hold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class CacheKey(Generic[T]):
    """A record, equal to another of the same key; by default to that very record only.

    It keeps the record alive, so that no other can take over its identity.

    >>> CacheKey([1], "one") == CacheKey([2], "one"), CacheKey([1]) == CacheKey([1])
    (True, False)
    """

    __slots__ = ("key", "record")

    def __init__(self, record: T, key: Hashable = None) -> None:
        self.record = record
        self.key = id(record) if key is None else key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CacheKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
