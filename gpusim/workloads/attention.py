"""Fused attention: softmax of the products of queries and keys, times values, without scores in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from gpusim.numbers.formats import Dtype, dtype_named
from gpusim.workloads.sizes import checked_size

AttentionOp = Literal["attention_fwd", "attention_bwd"]
ATTENTION_OPS: tuple[AttentionOp, ...] = get_args(AttentionOp)
Implementation = Literal["flash1", "flash2", "flash3", "flashinfer", "cudnn", "memory_efficient"]
IMPLEMENTATIONS: tuple[Implementation, ...] = get_args(Implementation)
"""Implementations of fused attention, by which a workload may name the one that runs."""
PROPERTIES = ("causal", "mask", "dropout", "packed", "appends")
"""Columns that say yes or no."""
ATTENTION_COLUMNS = (
    "heads",
    "key_heads",
    *PROPERTIES,
    "mask_by",
    "page_tokens",
    "window",
    "implementation",
    "kv_dtype",
    "alibi",
)
"""Further columns of attention in the measured CSV schema; m are queries, n keys, k is the size of a head."""
_PRODUCTS = {"attention_fwd": 2, "attention_bwd": 5}
"""Products of tiles: queries by keys and scores by values; backward the scores again, and four gradients."""
MASK_DIMENSIONS = "bhq"
"""Dimensions that a mask may differ by beside the key: batch, head, query."""
STATISTIC_BYTES = 4
"""Logarithm of the sum of a row of exponentials, kept for the backward pass."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of every query of a head to the keys of its head, or the gradients of its three inputs.

    Raises:
        ValueError: an invalid field; the text begins with its name.

    >>> Attention(16, 16, 512, 512, 64, "fp16").flops == 4 * 16 * 16 * 512 * 512 * 64
    True
    """

    batch: int
    heads: int
    queries: int
    """Queries of a head."""
    keys: int
    """Keys of a head."""
    head_dim: int
    """Elements of a query, a key and a value."""
    dtype: Dtype
    """Type of queries and of the result, and of keys and values unless ``kv_dtype`` is set."""
    op: str = "attention_fwd"
    key_heads: int | None = None
    """Heads of keys and values, each shared by as many heads of queries; None: as many as of queries."""
    causal: bool = False
    """Whether the last query sees all keys, and each query before it one key fewer."""
    mask: bool = False
    """Whether a bias is added to the scores, such as one that hides what pads a sentence."""
    dropout: bool = False
    packed: bool = False
    """Whether sequences of any length lie one after the other, their lengths beside them (``varlen``)."""
    page_tokens: int | None = None
    """Tokens of a page of the key-value cache, which a table of pages finds; None: keys and values of a sequence lie
    together."""
    appends: bool = False
    """Whether keys and values of the queries' own tokens are written to the pages before, by a kernel of its own."""
    window: int | None = None
    """Keys that a query of causal attention sees at most, its own and those before it; None: all."""
    mask_by: str = ""
    """Dimensions by which the mask differs beside the key, of ``MASK_DIMENSIONS``: ``hq`` of relative positions, ``b``
    of padding; broadcast along the others."""
    implementation: str = ""
    """One of ``IMPLEMENTATIONS``; empty: the framework chooses."""
    kv_dtype: Dtype | None = None
    """Type in which pages keep keys and values, of 8 bits; None: that of the queries."""
    alibi: bool = False
    """Whether scores are lowered in proportion to the distance of query and key, which the kernel computes (Press et
    al., arXiv:2108.12409)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_named(self.dtype))
        for name in ("batch", "heads", "queries", "keys", "head_dim"):
            object.__setattr__(self, name, checked_size(name, getattr(self, name)))
        key_heads = self.heads if self.key_heads is None else checked_size("key_heads", self.key_heads)
        object.__setattr__(self, "key_heads", None if key_heads == self.heads else key_heads)
        kept = dtype_named(self.kv_dtype or self.dtype)
        object.__setattr__(self, "kv_dtype", None if kept is self.dtype else kept)
        if self.heads % key_heads:
            raise ValueError(f"key_heads: {key_heads} do not divide {self.heads} heads evenly")
        if set(self.mask_by) - set(MASK_DIMENSIONS):
            raise ValueError(f"mask_by: expected some of {', '.join(MASK_DIMENSIONS)}, got '{self.mask_by}'")
        object.__setattr__(self, "mask_by", "".join(one for one in MASK_DIMENSIONS if one in self.mask_by))
        if self.mask_by and not self.mask:
            raise ValueError("mask_by: says by what a mask differs; give mask, too")
        if self.op not in ATTENTION_OPS:
            raise ValueError(f"op: expected one of {', '.join(ATTENTION_OPS)}, got '{self.op}'")
        self._check_serving()
        if self.causal and self.keys < self.queries:
            raise ValueError(f"causal: {self.queries} queries see {self.keys} keys; the first ones would see none")

    def _check_serving(self) -> None:
        """Check what serving engines ask for: pages, windows, an implementation."""
        for name in ("page_tokens", "window"):
            size = getattr(self, name)
            object.__setattr__(self, name, None if size in (None, "") else checked_size(name, size))
        if self.implementation and self.implementation not in IMPLEMENTATIONS:
            known = ", ".join(IMPLEMENTATIONS)
            raise ValueError(f"implementation: expected one of {known}, got '{self.implementation}'")
        if self.window is not None and not self.causal:
            raise ValueError("window: only causal attention has one; give causal, too")
        if self.window is not None and self.window >= self.keys:
            object.__setattr__(self, "window", None)
        if self.appends and self.page_tokens is None:
            raise ValueError("appends: tokens are appended to pages; give page_tokens, too")
        if self.kv_dtype is not None and self.page_tokens is None:
            raise ValueError("kv_dtype: only pages of a cache keep another type; give page_tokens, too")
        if self.backward and (self.page_tokens is not None or self.window is not None):
            name = "page_tokens" if self.page_tokens is not None else "window"
            raise ValueError(f"{name}: the backward pass has no {name.split('_')[0]}s")

    @property
    def held_heads(self) -> int:
        """Heads of keys and values."""
        return self.key_heads or self.heads

    @property
    def sharing_heads(self) -> int:
        """Heads of queries that share a head of keys."""
        return self.heads // self.held_heads

    @property
    def backward(self) -> bool:
        return self.op == "attention_bwd"

    @property
    def scores(self) -> int:
        """Pairs of a query and a key that it sees."""
        hidden = self.queries * (self.queries - 1) // 2 if self.causal else 0
        if self.window is not None:
            # The last query has the most keys before its window, the one before it a key less.
            last = self.keys - self.window
            first = max(0, last - self.queries)
            hidden += (last * (last + 1) - first * (first + 1)) // 2
        return self.batch * self.heads * (self.queries * self.keys - hidden)

    @property
    def seen_keys(self) -> int:
        """Keys that any query sees: all, or those of the windows."""
        return self.keys if self.window is None else min(self.keys, self.window + self.queries - 1)

    @property
    def flops(self) -> int:
        """Operations of the products, two per multiply-add; softmax is not counted."""
        return 2 * _PRODUCTS[self.op] * self.scores * self.head_dim

    @property
    def queries_elements(self) -> int:
        """Elements of the queries, and of the result."""
        return self.batch * self.heads * self.queries * self.head_dim

    @property
    def queries_bytes(self) -> float:
        """Size of the queries, and of the result [B]."""
        return self.queries_elements * self.dtype.bits / 8

    @property
    def kept_bits(self) -> int:
        """Bits of an element of keys and values."""
        return (self.kv_dtype or self.dtype).bits

    @property
    def keys_bytes(self) -> float:
        """Size of the keys, and of the values [B]."""
        return self.batch * self.held_heads * self.seen_keys * self.head_dim * self.kept_bits / 8

    @property
    def statistics_bytes(self) -> float:
        """What the forward pass leaves to the backward pass beside its result [B]."""
        return STATISTIC_BYTES * self.batch * self.heads * self.queries

    @property
    def mask_rows(self) -> int:
        """Rows of keys that the mask has."""
        sizes = {"b": self.batch, "h": self.heads, "q": self.queries}
        return math.prod(sizes[one] for one in self.mask_by) if self.mask else 0

    @property
    def mask_bytes(self) -> float:
        """Size of the mask, in the type of the queries [B]."""
        return self.mask_rows * self.keys * self.dtype.bits / 8

    @property
    def new_bytes(self) -> float:
        """New keys and values as they are computed, which are read before [B]."""
        if not self.appends:
            return 0.0
        return 2 * self.batch * self.held_heads * self.queries * self.head_dim * self.dtype.bits / 8

    @property
    def appended_bytes(self) -> float:
        """New keys and values as the cache keeps them [B]."""
        return self.new_bytes * self.kept_bits / self.dtype.bits

    @property
    def operand_bytes(self) -> float:
        """Queries, keys and values, new ones, a mask; backward the result, its gradient and the statistics too [B]."""
        inputs = self.queries_bytes + 2 * self.keys_bytes + self.new_bytes + self.mask_bytes
        return inputs + (2 * self.queries_bytes + self.statistics_bytes if self.backward else 0.0)

    @property
    def result_bytes(self) -> float:
        """The result with its statistics, and new places of the cache, or the gradients of the inputs [B]."""
        if self.backward:
            return self.queries_bytes + 2 * self.keys_bytes
        return self.queries_bytes + self.statistics_bytes + self.appended_bytes

    @property
    def size_bytes(self) -> float:
        """Operands and results [B]."""
        return self.operand_bytes + self.result_bytes

    @property
    def columns(self) -> dict[str, str | int]:
        """Columns of the measured CSV schema that describe it."""
        columns: dict[str, str | int] = {
            "op": self.op,
            "batch": self.batch,
            "m": self.queries,
            "n": self.keys,
            "k": self.head_dim,
            "dtype": self.dtype.value,
            "acc_dtype": self.dtype.default_accumulate,
            "layout": "",
            "sparsity": "dense",
            "heads": self.heads,
            "key_heads": self.key_heads or "",
            **{name: "yes" if getattr(self, name) else "" for name in PROPERTIES},
            **{name: getattr(self, name) or "" for name in ("mask_by", "page_tokens", "window", "implementation")},
        }
        columns |= {"kv_dtype": self.kv_dtype.value} if self.kv_dtype else {}
        return columns | ({"alibi": "yes"} if self.alibi else {})
