"""2:4 structured sparsity of A: pruning, the compressed form that ``mma.sp`` reads, and back.

The hardware's pattern is always two of four: of four adjacent units along k two are kept, and two bits of metadata
give the position of each. A unit is one element of FP16, BF16 or INT8; two neighbouring elements of INT4,
which is pruned in pairs (4:8); half an element of TF32, which is therefore pruned 1:2. Source: PTX ISA, "Sparse
matrix storage" (https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-sparse-matrix-storage).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import InputError
from gpusim.numbers.formats import Dtype, SparsePattern
from gpusim.numerics.rounding import Floats

CHUNK_UNITS = 4
KEPT_UNITS = 2
INDEX_BITS = 2
WORD_BITS = 32
"""Metadata is held in 32-bit registers."""


class SparsityError(InputError):
    """A matrix or data type without a 2:4 form; one line with the remedy."""


def pattern_of(dtype: Dtype) -> SparsePattern:
    """The 2:4 pattern of a data type in ``mma.sp``.

    Raises:
        SparsityError: the data type has no sparse multiplication.
    """
    pattern = dtype.format.sparse
    if pattern is None:
        have = ", ".join(one.value for one in Dtype if one.format.sparse)
        raise SparsityError(f"{dtype.value} has no 2:4 multiplication; use one of {have}")
    return pattern


@dataclass(frozen=True, slots=True)
class Compressed:
    """A pruned m x k matrix as ``mma.sp`` reads it.

    ``values`` [m, k / 2] are the kept elements from left to right. ``metadata`` [m, words] has two 2-bit indices
    per chunk, the first chunk in the lowest bits of the first 32-bit word. (The distribution of the words over the
    threads of a warp does not affect the result.)
    """

    values: Floats
    metadata: NDArray[np.uint32]
    k: int
    pattern: SparsePattern

    def columns(self) -> NDArray[np.int64]:
        """Position along k of each value, unpacked from the metadata [m, k / 2]."""
        chunks = self.k // self.pattern.chunk
        shifts = np.arange(0, WORD_BITS, INDEX_BITS, dtype=np.uint32)
        unpacked = (self.metadata[:, :, None] >> shifts & np.uint32(3)).reshape(len(self.metadata), -1)
        indices = unpacked[:, : KEPT_UNITS * chunks].astype(np.int64).reshape(-1, chunks, KEPT_UNITS)
        within = _elements_of_units(indices, self.pattern)
        starts = self.pattern.chunk * np.arange(chunks, dtype=np.int64)[:, None]
        return (starts + within).reshape(len(self.metadata), -1)

    def decompressed(self) -> Floats:
        """The uncompressed m x k matrix."""
        dense = np.zeros((len(self.values), self.k))
        np.put_along_axis(dense, self.columns(), self.values, axis=1)
        return dense


def prune(a: Floats, pattern: SparsePattern) -> Floats:
    """A with the smaller half of each chunk's groups set to zero; of equal groups the left ones are kept.

    A group's weight is the sum of its magnitudes.

    >>> prune(np.array([[3.0, -4.0, 1.0, 4.0]]), SparsePattern(4, 4)).tolist()
    [[0.0, -4.0, 0.0, 4.0]]
    """
    kept = _kept_groups(a, pattern)
    mask = np.zeros((len(a), a.shape[1] // pattern.chunk, pattern.groups), dtype=bool)
    np.put_along_axis(mask, kept, values=True, axis=2)
    return np.where(np.repeat(mask.reshape(len(a), -1), pattern.group, axis=1), a, 0.0)


def compress(a: Floats, pattern: SparsePattern) -> Compressed:
    """Compress a matrix that satisfies its pattern.

    Raises:
        SparsityError: k is not a multiple of the chunk, or a chunk has too many non-zero groups.
    """
    m, k = a.shape
    kept = _kept_groups(a, pattern)
    offsets = np.arange(pattern.group, dtype=np.int64)
    within = (pattern.group * kept[..., None] + offsets).reshape(m, k // pattern.chunk, -1)
    starts = pattern.chunk * np.arange(k // pattern.chunk, dtype=np.int64)[:, None]
    values = np.take_along_axis(a, (starts + within).reshape(m, -1), axis=1)
    if np.count_nonzero(values) != np.count_nonzero(a):
        raise SparsityError(f"a chunk of {pattern.chunk} elements has more than half non-zero groups; prune it first")
    return Compressed(values, _packed(_units_of_groups(kept, pattern)), k, pattern)


def _kept_groups(a: Floats, pattern: SparsePattern) -> NDArray[np.int64]:
    """Positions of the larger half of each chunk's groups, ascending [m, chunks, groups / 2]."""
    m, k = a.shape
    if k % pattern.chunk:
        raise SparsityError(
            f"k: {k} is not a multiple of {pattern.chunk}, the chunk of this data type's 2:4 pattern; pad it"
        )
    weights = np.abs(a).reshape(m, k // pattern.chunk, pattern.groups, pattern.group).sum(axis=3)
    heaviest = np.argsort(-weights, axis=2, kind="stable")[:, :, : pattern.groups // 2]
    return np.sort(heaviest, axis=2)


def _units_of_groups(kept: NDArray[np.int64], pattern: SparsePattern) -> NDArray[np.int64]:
    """Unit indices for the metadata: groups are units, but one of TF32 is two (0b0100 or 0b1110)."""
    units = CHUNK_UNITS // pattern.groups
    return (units * kept[..., None] + np.arange(units)).reshape(*kept.shape[:2], KEPT_UNITS)


def _elements_of_units(indices: NDArray[np.int64], pattern: SparsePattern) -> NDArray[np.int64]:
    """Element positions within a chunk of unit indices."""
    units = CHUNK_UNITS // pattern.groups
    groups = indices[..., ::units] // units
    return (pattern.group * groups[..., None] + np.arange(pattern.group)).reshape(*groups.shape[:2], -1)


def _packed(indices: NDArray[np.int64]) -> NDArray[np.uint32]:
    """2-bit indices in 32-bit words, the last word filled up with zeros [m, words]."""
    flat = indices.reshape(len(indices), -1)
    per_word = WORD_BITS // INDEX_BITS
    padded = np.pad(flat, ((0, 0), (0, -flat.shape[1] % per_word))).astype(np.uint32)
    shifts = np.arange(0, WORD_BITS, INDEX_BITS, dtype=np.uint32)
    words: NDArray[np.uint32] = np.bitwise_or.reduce(padded.reshape(len(flat), -1, per_word) << shifts, axis=2)
    return words
