"""Attention to keys and values that are kept as one small vector a token: MLA of DeepSeek-V2, arXiv:2405.04434.

Many queries a sequence, as of a prompt: keys and values are computed of the latent vectors, and attention is that of
many heads. A token of a sequence whose others are kept: the products that would compute keys and values are applied to
the query and the result instead, and all heads attend to the latent vectors themselves.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from gpusim.models.layers.layer import Layer, Size
from gpusim.models.layers.products import gemm
from gpusim.models.policy import PolicyError
from gpusim.models.shape import Shape, elements, shown
from gpusim.models.tape import Tape
from gpusim.models.value import Value
from gpusim.workloads.attention import Attention as AttentionOperator
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction


class LatentAttention(Layer):
    """Multi-head latent attention of queries, latent vectors and the keys' turned part. Of inference, causal.

    The kernels of a kept sequence are products around a softmax: no catalogue here has a fused one of heads this long.
    """

    op: Literal["latent_attention"] = "latent_attention"
    heads: Size
    """Heads of queries."""
    plain: Size
    """Features of a head's query and key that are not turned by its place."""
    value_dim: Size
    """Features of a head's value."""
    causal: ClassVar[bool] = True
    window: ClassVar[int | None] = None

    def result(self, *shapes: Shape) -> Shape:
        queries, latent, turned = shapes
        each = self.plain + turned[-1]
        self.needs(queries[-1] == self.heads * each, f"{queries[-1]} features are not {self.heads} heads of {each}")
        self.needs(latent[:-1] == turned[:-1], f"latent vectors {shown(latent)}, turned keys {shown(turned)}")
        return *queries[:-1], self.heads * self.value_dim

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        return {"up": (self.heads * (self.plain + self.value_dim), shapes[1][-1])}

    def multiply_adds(self, *shapes: Shape) -> int:
        queries, latent, _ = shapes
        up = elements(latent) * self.heads * (self.plain + self.value_dim)
        return up + (elements(queries) + elements(self.result(*shapes))) * latent[1]

    def call(self, tape: Tape, queries: Value, latent: Value, turned: Value, *, up: Value) -> Value:
        if tape.arithmetic.policy.mode == "train":
            raise PolicyError(f"{tape.layer}: training of latent attention is not modelled; give --mode inference")
        tape.arithmetic.check_cache("latent attention", fused=False)
        if latent.shape[1] == queries.shape[1]:
            return self._of_prompt(tape, queries, latent, turned, up)
        return self._of_kept(tape, queries, latent, turned, up)

    def _of_prompt(self, tape: Tape, queries: Value, latent: Value, turned: Value, up: Value) -> Value:
        batch, length, rank = latent.shape
        tokens, each = batch * length, self.plain + turned.shape[-1]
        both = tape.new((batch, length, up.shape[0]), queries.dtype)
        tape.launch("linear", gemm(tape, "linear", (1, tokens, up.shape[0], rank), "tn"), [latent, up], [both])
        keys = tape.new((batch, length, self.heads * each), queries.dtype)
        parts = (
            Access(tokens * self.heads * self.plain, queries.dtype, self.plain),
            Access(tokens * self.heads * turned.shape[-1], queries.dtype, turned.shape[-1], turned.elements),
        )
        joined = Pointwise(("copy",), keys.elements, parts, (keys.touched(),))
        tape.launch("concat", joined, [both, turned], [keys])
        result = tape.new(self.result_of(queries, latent, turned), queries.dtype)
        fused = AttentionOperator(batch, self.heads, length, length, each, queries.dtype, causal=True)
        tape.launch("attention", fused, [queries, keys, both], [result])
        return result

    def _of_kept(self, tape: Tape, queries: Value, latent: Value, turned: Value, up: Value) -> Value:
        batch, new = queries.shape[:2]
        kept, rank = latent.shape[1:]
        rows, whole = self.heads * new, rank + turned.shape[-1]
        held = queries.dtype
        absorbed = tape.new((batch, rows, whole), held)
        product = gemm(tape, "matmul", (self.heads, batch * new, rank, self.plain), "nn")
        tape.launch("matmul", product, [queries, up], [absorbed])
        scores, chances = (tape.new((batch, rows, kept), held) for _ in range(2))
        product = gemm(tape, "matmul", (batch, rows, kept, whole), "tn")
        tape.launch("matmul", product, [absorbed, latent, turned], [scores])
        touched = scores.touched()
        softmax = RowReduction("softmax", batch * rows, kept, (touched,), (touched,), ("scale",))
        tape.launch("softmax", softmax, [scores], [chances])
        gathered = tape.new((batch, rows, rank), held)
        product = gemm(tape, "matmul", (batch, rows, rank, kept), "nn")
        tape.launch("matmul", product, [chances, latent], [gathered])
        result = tape.new(self.result_of(queries, latent, turned), held)
        product = gemm(tape, "matmul", (self.heads, batch * new, self.value_dim, rank), "tn")
        tape.launch("matmul", product, [gathered, up], [result])
        return result
