"""Kernels that a serving engine launches for several layers at once. Inference alone; no model file names them.

Which kernels those are is read in vLLM 0.6 (csrc: ``pos_encoding_kernels.cu``, ``layernorm_kernels.cu``,
``activation_kernels.cu``, ``cache_kernels.cu``); TensorRT-LLM fuses the same layers.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from gpusim.models.layers.layer import Layer
from gpusim.models.shape import Shape, elements
from gpusim.models.tape import Tape
from gpusim.models.task import Task
from gpusim.models.value import INDEX, Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.attention import Attention as AttentionOperator
from gpusim.workloads.collective import Collective
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction

ROTATED = ("mul", "add_scaled")
"""``x cos + rotate(x) sin`` of an element."""


class ServedLayer(Layer):
    """A kernel of a serving engine, in the place of layers of a model."""

    op: str = "served"


class Rotary(ServedLayer):
    """Queries and keys turned in place by one kernel (``rotary_embedding``); this result is one of the two."""

    takes: Literal["both", "done"] = "both"
    """``done``: the kernel of the layer before turned this tensor, too."""
    head_dim: int
    """Features of a head, which a row of the table of sines and cosines has."""
    features: tuple[int | None, ...]
    """Features of each input that are turned; None: all."""

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def call(self, tape: Tape, *values: Value) -> Value:
        if self.takes == "both":
            tokens = elements(values[0].shape[:-1])
            parts = [
                one if count is None else tape.view(one, (*one.shape[:-1], count))
                for one, count in zip(values, self.features, strict=True)
            ]
            turned = sum(one.elements for one in parts)
            places = tape.new((tokens,), INDEX, name="positions")
            table = tape.new((tokens, self.head_dim), values[0].dtype, name="rotary.cos_sin")
            touched = tuple(one.touched() for one in parts)
            reads = (*touched, places.touched(), table.touched())
            tape.launch("rope", Pointwise(ROTATED, turned, reads, touched), [*parts, places, table], parts)
        return tape.view(values[0], values[0].shape)


class ResidualSum(ServedLayer):
    """A sum that the norm after it computes and stores, too."""

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def call(self, tape: Tape, *values: Value) -> Value:
        return tape.new(values[0].shape, values[0].dtype)


class RmsNormKernel(ServedLayer):
    """RMS norm of rows, or of each head of them, in one kernel.

    With three inputs (``fused_add_rms_norm``): the sum of the first two is normalised, and stored as the third.
    """

    heads: int = 1

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        return {"weight": (shapes[0][-1] // self.heads,)}

    def call(self, tape: Tape, *values: Value, weight: Value) -> Value:
        columns = weight.elements
        reads, written = [*values[:2], weight], [tape.new(values[0].shape, values[0].dtype), *values[2:]]
        size = values[0].elements
        touched = tuple(one.touched(size) for one in reads)
        fused = ("add",) if len(values) > 1 else ()
        operator = RowReduction(
            "rms_norm", size // columns, columns, touched, tuple(one.touched() for one in written), fused
        )
        tape.launch("layer_norm", operator, reads, written)
        return written[0]


class Chain(ServedLayer):
    """Elementwise functions one after the other in one kernel, such as SwiGLU (``silu_and_mul``)."""

    functions: tuple[str, ...]

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def call(self, tape: Tape, *values: Value) -> Value:
        result = tape.new(values[0].shape, values[0].dtype)
        tape.pointwise("mul", self.functions, values, [result])
        return result


class MixedAttention(ServedLayer):
    """Attention of a token of each of some sequences, and of the last part of one more prompt: two launches.

    Rows are those of the sequences, then those of the part.
    """

    heads: int
    key_heads: int | None
    window: int | None
    sequences: int
    kept: int
    """Tokens before the new one of each sequence, and tokens of the prompt."""
    chunk: int
    """Tokens of its last part."""
    causal: ClassVar[bool] = True

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def multiply_adds(self, *shapes: Shape) -> int:
        features, keys = shapes[0][-1], self._keys
        return 2 * features * (self.sequences * keys(1) + self.chunk * keys(self.chunk))

    def _keys(self, new: int) -> int:
        """Keys of a sequence of which so many queries are new."""
        before = self.kept if new == 1 else self.kept - new
        return new + (before if self.window is None else min(before, self.window))

    def call(self, tape: Tape, queries: Value, keys: Value, values: Value) -> Value:
        arithmetic = tape.arithmetic
        arithmetic.check_cache("this attention", fused=arithmetic.policy.fuses_attention)
        result = tape.new(queries.shape, queries.dtype)
        each = queries.shape[-1] // self.heads
        for name, batch, new in (("chunk", 1, self.chunk), ("tokens", self.sequences, 1)):
            kept = self._keys(new)
            reads = [tape.view(queries, (batch, new, queries.shape[-1]))]
            for part, of in (("keys", keys), ("values", values)):
                shape = (batch, kept, of.shape[-1])
                reads.append(tape.new(shape, arithmetic.cached_in, name=f"{tape.layer}.{part}.{name}"))
            pages = arithmetic.page_tokens(queries.dtype)
            operator = AttentionOperator(
                batch,
                self.heads,
                new,
                kept,
                each,
                queries.dtype,
                key_heads=self.key_heads,
                causal=True,
                packed=pages is not None,
                page_tokens=pages,
                implementation=arithmetic.policy.attention_implementation,
                kv_dtype=arithmetic.kept_in,
            )
            tape.launch("attention", operator, reads, [tape.view(result, reads[0].shape)])
        return result


class CacheWrite(ServedLayer):
    """Keys and values of new tokens stored where the cache keeps them (``reshape_and_cache``)."""

    stays: bool
    """Whether the memory of these tokens is counted here: a prompt's is, while a token's is among the keys that
    attention reads."""

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def call(self, tape: Tape, *values: Value) -> Value:
        kept_in = tape.arithmetic.cached_in
        tokens = elements(values[0].shape[:-1])
        slots = tape.new((tokens,), INDEX, name="slots")
        written = [tape.new(one.shape, kept_in, name=f"{tape.layer}.cache", stays=self.stays) for one in values]
        run = min(one.shape[-1] for one in values)
        touched = (*(one.touched() for one in values), slots.touched())
        stored = tuple(one.touched(run=run) for one in written)
        functions = ("copy",) if kept_in is values[0].dtype else ("scale",)
        operator = Pointwise(functions, sum(one.elements for one in values), touched, stored)
        tape.launch("copy", operator, [*values, slots], written)
        return values[0]


class LastRows(ServedLayer):
    """The last token of each sequence, whose scores alone are wanted."""

    sequences: int
    """How many there are."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return (self.sequences, 1, *shape[2:])

    def call(self, tape: Tape, value: Value) -> Value:
        result = tape.new(self.result_of(value), value.dtype)
        places = tape.new((result.shape[0],), INDEX, name="last_places")
        read = Access(result.elements, value.dtype, value.shape[-1])
        operator = Pointwise(("copy",), result.elements, (places.touched(), read), (result.touched(),))
        # It reads few of the rows, which are what L2 has to hold.
        rows = tape.new(result.shape, value.dtype, name=f"{tape.layer}.rows")
        tape.launch("index_select", operator, [places, rows], [result])
        return result


class Gathered(ServedLayer):
    """Scores of the whole vocabulary, of which each GPU computed a part. Engines alone gather them."""

    ranks: int

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return *shape[:-1], self.ranks * shape[-1]

    def call(self, tape: Tape, value: Value) -> Value:
        result = tape.new(self.result_of(value), value.dtype)
        if tape.arithmetic.policy.fusion == "serving":
            gathered = Collective("all_gather", result.size_bytes, self.ranks)
            tape.tasks.append(Task(tape.layer, tape.phase, gathered, (value.tensor,), (result.tensor,), "all_gather"))
        return result


class Sample(ServedLayer):
    """A token of each sequence, drawn by its probability: as vLLM does without top-k and top-p.

    Scores in FP32 over the temperature, softmax, over exponentially distributed numbers, the largest.
    """

    def result(self, *shapes: Shape) -> Shape:
        return shapes[0][:-1]

    def call(self, tape: Tape, scores: Value) -> Value:
        rows, columns = elements(scores.shape[:-1]), scores.shape[-1]
        wide = tape.new(scores.shape, Dtype.FP32)
        tape.pointwise("cast", ("copy",), [scores], [wide])
        tape.pointwise("div", ("scale",), [wide], [wide])
        chances = tape.new(scores.shape, Dtype.FP32)
        touched = wide.touched()
        tape.launch("softmax", RowReduction("softmax", rows, columns, (touched,), (touched,)), [wide], [chances])
        drawn = tape.new(scores.shape, Dtype.FP32)
        tape.pointwise("random", ("random", "log"), [], [drawn])
        tape.pointwise("div", ("div",), [chances, drawn], [chances])
        chosen = tape.new((rows,), INDEX, name="sampled")
        largest = RowReduction("arg_max", rows, columns, (touched,), (chosen.touched(),))
        tape.launch("arg_max", largest, [chances], [chosen])
        return chosen
