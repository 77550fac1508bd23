"""Scaled dot-product attention: one kernel, or products around a softmax, with the copies of heads that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from packaging.version import Version

from gpusim.models.layers.elementwise import apply, combine, dropout
from gpusim.models.layers.layer import Layer, Size
from gpusim.models.layers.products import matmul
from gpusim.models.layers.rows import softmax
from gpusim.models.layers.views import copy
from gpusim.models.sdpa import Called, Choice, choice
from gpusim.models.shape import Shape, elements, shown
from gpusim.models.tape import Tape
from gpusim.models.value import TRUTH, Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.attention import Attention as AttentionOperator
from gpusim.workloads.memory_bound import ColumnReduction

HEADS_APART = 4
"""Dimensions of queries, keys and values whose heads lie side by side."""


class Attention(Layer):
    """Scaled dot-product attention of queries, keys and values, ``batch x length x features`` each.

    Or ``batch x heads x length x features of a head``, as PyTorch's scaled_dot_product_attention takes them, and gives
    its result: such a layer is a call of that function, another an implementation that a model spells out. A fourth
    input is added to the scores, broadcast to ``batch x heads x queries x keys``. How it is computed, as separate
    products around a softmax or as one kernel, is the framework's.
    """

    op: Literal["attention"] = "attention"
    heads: Size
    """Heads of queries, which their features divide into evenly."""
    key_heads: Size | None = None
    """Heads of keys and values, where queries share them; None: as many as of queries."""
    causal: bool = False
    """A query sees keys up to its own place: a fused kernel passes over the tiles beyond, an eager implementation masks
    scores in a kernel of its own."""
    window: Size | None = None
    """Keys that a query sees at most, its own place among them; None: all before it. A cache keeps no more, and a token
    reads no more; of longer prompts FlashAttention skips the others, and other kernels multiply all keys."""
    scaled: Literal["scores", "queries", "nothing"] = "scores"
    """What an eager implementation divides by the root of the features of a head."""
    clamped: bool = False
    """An eager implementation keeps masked scores finite, in a kernel of its own (transformers up to 4.38, OPT)."""
    contiguous: bool = False
    """An eager implementation copies heads beside each other where a product could take them as they lie, too."""
    dropout: float = 0.0
    """Probability with which training drops a key for a query [0 to 1]; what is launched depends on whether it is 0."""

    def result(self, *shapes: Shape) -> Shape:
        queries, keys, values = shapes[:3]
        if len(queries) == len(keys) == HEADS_APART:
            return self._result_by_head(queries, keys, values)
        for shape in shapes[:3]:
            self.needs(len(shape) == 3, f"takes batch x length x features, got {shown(shape)}")
        self.needs(keys[:2] == values[:2] and keys[0] == queries[0], f"keys {shown(keys)}, values {shown(values)}")
        of_keys = self.key_heads or self.heads
        self.needs(queries[2] % self.heads == 0, f"{queries[2]} features do not divide into {self.heads} heads")
        self.needs(keys[2] % of_keys == 0, f"{keys[2]} features do not divide into {of_keys} heads")
        self.needs(keys[2] // of_keys == queries[2] // self.heads, "heads of queries and keys have one size")
        return *queries[:2], self.heads * (values[2] // of_keys)

    def _result_by_head(self, queries: Shape, keys: Shape, values: Shape) -> Shape:
        of_keys = self.key_heads or self.heads
        self.needs(queries[1] == self.heads, f"has {self.heads} heads, got {shown(queries)}")
        self.needs(keys[1] == of_keys, f"has {of_keys} heads of keys, got {shown(keys)}")
        same = keys[:3] == values[:3] and keys[0] == queries[0] and keys[3] == queries[3]
        self.needs(same, f"keys {shown(keys)}, values {shown(values)}")
        return *queries[:3], values[3]

    def multiply_adds(self, *shapes: Shape) -> int:
        queries, keys = shapes[:2]
        return (elements(queries) + elements(self.result(*shapes))) * keys[-2]

    def call(self, tape: Tape, *inputs: Value) -> Value:
        """Computed as the policy says; a bias that differs by query is added to scores in memory."""
        arithmetic, called = tape.arithmetic, len(inputs[0].shape) == HEADS_APART
        fused = arithmetic.policy.fuses_attention or (
            called and arithmetic.policy.calls_fused_attention and self._chosen(tape, inputs) != "math"
        )
        if self.causal:
            arithmetic.check_cache("this attention", fused=fused)
        if fused and all(_by_key(bias) for bias in inputs[3:]):
            return self._fused(tape, inputs)
        if called:
            return self._attended(tape, inputs)
        return self._eager(tape, inputs)

    def _chosen(self, tape: Tape, inputs: Sequence[Value], dtype: Dtype | None = None) -> Choice:
        """What the version of PyTorch takes on the GPU; heads that share keys have copies of them before 2.5."""
        (queries, keys), policy = inputs[:2], tape.arithmetic.policy
        apart = len(queries.shape) == HEADS_APART
        head_dim = queries.shape[-1] if apart else queries.shape[-1] // self.heads
        value_dim = inputs[2].shape[-1] if apart else inputs[2].shape[-1] // (self.key_heads or self.heads)
        called = Called(
            queries.shape[0],
            self.heads,
            queries.shape[-2],
            keys.shape[-2],
            head_dim,
            value_dim,
            dtype or tape.arithmetic.cast_to("matmul") or queries.dtype,
            self.heads,
            trains=policy.mode == "train",
            causal=self.causal and keys.shape[-2] == queries.shape[-2],
            mask=len(inputs) > len(inputs[:3]),
            dropout=self.dropout if policy.mode == "train" else 0.0,
        )
        return choice(Version(policy.version), tape.arithmetic.gpu.capability, called)

    def _implementation(self, tape: Tape, inputs: Sequence[Value], dtype: Dtype) -> str:
        """The implementation that is named, or that PyTorch takes; empty: the kernels of an engine, or of windows."""
        policy = tape.arithmetic.policy
        if policy.attention_implementation or policy.fusion in ("serving", "engine") or self.window is not None:
            return policy.attention_implementation
        chosen = self._chosen(tape, inputs, dtype)
        return "" if chosen == "math" else chosen

    def _fused(self, tape: Tape, inputs: Sequence[Value]) -> Value:
        """Launch one fused kernel in either pass, which takes heads as they lie."""
        kept_in = tape.arithmetic.kept_in if self.causal else None
        operands = [one if one.dtype is kept_in else tape.eligible("matmul", [one])[0] for one in inputs[:3]]
        queries, keys, values = operands
        length, features = queries.shape[-2:]
        batch = queries.shape[0]
        result = tape.new(self.result_of(*operands), queries.dtype, *operands)
        sums = tape.new((batch, self.heads, length), Dtype.FP32, name=f"{tape.layer}.sums")
        forward = AttentionOperator(
            batch,
            self.heads,
            length,
            keys.shape[-2],
            features if len(queries.shape) == HEADS_APART else features // self.heads,
            queries.dtype,
            key_heads=self.key_heads,
            causal=self.causal,
            mask=len(inputs) > len(operands),
            mask_by=_differs_by(inputs[3].shape) if len(inputs) > len(operands) else "",
            dropout=self.dropout > 0 and tape.arithmetic.policy.mode == "train",
            implementation=self._implementation(tape, inputs, queries.dtype),
            **self.as_served(tape, queries.dtype),
        )
        tape.launch("attention", forward, [*operands, *inputs[3:]], [result, sums])

        def backward(gradient: Value) -> list[Value | None]:
            gradients = [tape.new(one.shape, one.dtype) for one in operands]
            reads = [*operands, *inputs[3:], result, sums, gradient]
            tape.launch("attention_backward", replace(forward, op="attention_bwd"), reads, gradients)
            return [one if of.differentiable else None for one, of in zip(gradients, operands, strict=True)]

        return tape.record(result, [queries, keys, values], backward)

    def as_served(self, tape: Tape, dtype: Dtype) -> dict[str, Any]:
        """What a serving engine adds to fused attention: pages of the cache; and windows in inference."""
        arithmetic = tape.arithmetic
        if not self.causal or arithmetic.policy.mode == "train" or not arithmetic.has_flash_attention(dtype):
            return {}
        pages = arithmetic.page_tokens(dtype)
        kept_in = arithmetic.kept_in if pages is not None else None
        return {"window": self.window, "packed": pages is not None, "page_tokens": pages, "kv_dtype": kept_in}

    def _eager(self, tape: Tape, inputs: Sequence[Value]) -> Value:
        """Attention as transformers' eager implementation computes it: heads are copied beside each other, and back.

        ``aten::matmul`` takes those of one sequence as they lie, but for keys and values that a cache has put together.
        Of several it copies keys, which it takes transposed, with places side by side.
        """
        key_heads = self.key_heads or self.heads
        queries = apply(tape, "scale", inputs[0]) if self.scaled == "queries" else inputs[0]
        cached = inputs[1].shape[1] > inputs[0].shape[1]
        copies = self.contiguous or inputs[0].shape[0] > 1
        turned = copies and not (cached or self.contiguous) and key_heads == self.heads
        queries = _heads(tape, queries, self.heads, copies=copies)
        keys = _keys(tape, inputs[1], key_heads, copies=copies or cached, turned=turned)
        values = _heads(tape, inputs[2], key_heads, copies=copies or cached)
        return _joined_heads(tape, self._attended(tape, [queries, keys, values, *inputs[3:]], turned=turned))

    def _attended(self, tape: Tape, inputs: Sequence[Value], *, turned: bool = False) -> Value:
        """Attention of heads that lie side by side; scores are scaled, masked and normalised by kernels of their own.

        Args:
            turned: keys have places, not features, side by side.
        """
        queries, keys, values = inputs[:3]
        if self.key_heads not in (None, self.heads):
            keys, values = (_repeated_heads(tape, one, self.heads) for one in (keys, values))
        scores = matmul(tape, queries, keys, transposed=not turned)
        if self.scaled == "scores":
            scores = apply(tape, "scale", scores)
        if self.causal:
            mask = tape.new(scores.shape[-2:], Dtype.INT8, name=f"{tape.layer}.causal")
            scores = combine(tape, "where", scores, mask)
        for added in inputs[3:]:
            scores = combine(tape, "add", scores, added)
        if self.clamped:
            scores = _clamped(tape, scores)
        weights = softmax(tape, "softmax", scores)
        if self.dropout:
            weights = dropout(tape, weights)
        return matmul(tape, weights, values)


def _by_key(bias: Value) -> bool:
    """Whether a bias of scores is the same for all queries."""
    return len(bias.shape) < 2 or bias.shape[-2] == 1


def _differs_by(bias: Shape) -> str:
    """Dimensions by which a bias differs beside the key, of its shape ``batch x heads x queries x keys``."""
    return "".join(name for name, size in zip("qhb", reversed(bias[:-1]), strict=False) if size > 1)


def _heads(tape: Tape, value: Value, count: int, *, copies: bool) -> Value:
    """``batch x length x features`` as ``batch x heads x length x features of a head``.

    Args:
        copies: for the product; else it takes heads as they lie. The gradient, which comes head by head, is copied.
    """
    batch, length, features = value.shape
    each = features // count
    return _moved(tape, value, (batch, count, length, each), each if copies else None, each)


def _keys(tape: Tape, value: Value, count: int, *, copies: bool, turned: bool) -> Value:
    """Keys as heads; their gradient comes with places, not features, side by side.

    Args:
        copies: as of :func:`_heads`.
        turned: whether the copy has places side by side, too: ``batch x heads x features of a head x length``.
    """
    batch, length, features = value.shape
    each = features // count
    shape = (batch, count, each, length) if turned else (batch, count, length, each)
    return _moved(tape, value, shape, (1 if turned else each) if copies else None, 1)


def _joined_heads(tape: Tape, value: Value) -> Value:
    """Heads beside each other again; products that follow the gradient of one sequence take it as it lies."""
    batch, count, length, features = value.shape
    return _moved(tape, value, (batch, length, count * features), features, features if batch > 1 else None)


def _moved(tape: Tape, value: Value, shape: Shape, forward: int | None, back: int | None) -> Value:
    """Elements in another order, and their gradient back: copied in runs of so many; None: they stay in their place."""
    result = tape.view(value, shape) if forward is None else tape.new(shape, value.dtype, value)
    if forward is not None:
        copy(tape, value, result, forward)

    def backward(gradient: Value) -> list[Value]:
        if back is None:
            return [tape.view(gradient, value.shape)]
        given = tape.new(value.shape, value.dtype)
        copy(tape, gradient, given, back)
        return [given]

    return tape.record(result, [value], backward)


def _repeated_heads(tape: Tape, value: Value, count: int) -> Value:
    """Heads of keys or values, repeated for the heads of queries that share them."""
    batch, shared, length, features = value.shape
    result = tape.new((batch, count, length, features), value.dtype, value)
    tape.pointwise("copy", ("copy",), [value], [result])

    def backward(gradient: Value, given: Value) -> None:
        each = length * features
        touched = (gradient.touched(run=each),)
        operator = ColumnReduction("sum", count // shared, batch * shared * each, touched, (given.touched(),))
        tape.launch("sum", operator, [gradient], [given])

    return tape.record_kernel(result, value, backward)


def _clamped(tape: Tape, value: Value) -> Value:
    """The larger of every element and a number, ``torch.max`` of a tensor and a scalar tensor.

    Its gradient is halved where both are equal and zero where the number is larger: five kernels.
    """
    result = tape.new(value.shape, value.dtype, value)
    tape.pointwise("maximum", ("relu",), [value], [result])

    def backward(gradient: Value) -> list[Value]:
        equal, larger = (tape.new(value.shape, TRUTH) for _ in range(2))
        half, given = (tape.new(value.shape, value.dtype) for _ in range(2))
        for function, reads, written in (
            ("mask", [value], equal),
            ("scale", [gradient], half),
            ("mask", [equal, half, gradient], given),
            ("mask", [value], larger),
            ("mask", [given, larger], given),
        ):
            tape.pointwise("maximum_backward", (function,), reads, [written])
        return [given]

    return tape.record(result, [value], backward)
