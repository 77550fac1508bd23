"""A mixture of experts: a router sends each token to a few of many feed-forward networks.

As engines compute it (vLLM's ``fused_moe``): scores and the largest of them, the order of tokens by expert, two grouped
products with an activation between, and a weighted sum for each token. The first product finds the rows of its tokens
by their order (``fused_moe_kernel``: ``offs_token // top_k``); they are copied only to be sent to other GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gpusim.models.layers.layer import Layer, Size
from gpusim.models.layers.products import gemm, quantised_rows, with_narrow_weights
from gpusim.models.policy import PolicyError
from gpusim.models.shape import Shape, elements
from gpusim.models.tape import Tape
from gpusim.models.task import Task
from gpusim.models.value import INDEX, Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.collective import Collective
from gpusim.workloads.functions import FUNCTIONS
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction


class Experts(Layer):
    """Gated feed-forward networks of which a router picks some for each token. Of inference.

    Routing is taken as even: every expert is as likely as another for every token [assumed].
    """

    op: Literal["experts"] = "experts"
    experts: Size
    """Networks that there are."""
    top_k: Size
    """Networks that a token is sent to."""
    ffn: Size
    """Features between the two products of a network."""
    function: Literal["silu", "gelu_tanh"] = "silu"
    """Of the gate."""
    bias: bool = False
    """Whether a number is added to each expert's score before the largest are chosen, and is not in their weights."""
    ranks: Size = 1
    """GPUs that the experts are spread over; each has tokens of its own."""

    def result(self, *shapes: Shape) -> Shape:
        self.needs(self.top_k <= self.experts, f"picks {self.top_k} of {self.experts} experts")
        self.needs(self.experts % self.ranks == 0, f"{self.experts} experts do not divide among {self.ranks} GPUs")
        return shapes[0]

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        features, own = shapes[0][-1], self.experts // self.ranks
        found: dict[str, Shape] = {
            "router": (self.experts, features),
            "gate_wide": (own, 2 * self.ffn, features),
            "narrow": (own, features, self.ffn),
        }
        return {**found, "bias": (self.experts,)} if self.bias else found

    def multiply_adds(self, *shapes: Shape) -> int:
        (shape,) = shapes
        return elements(shape) * (self.experts + 3 * self.top_k * self.ffn)

    def busy(self, tokens: int) -> int:
        """Experts of a GPU that at least one of all GPUs' tokens goes to, in the mean.

        >>> Experts(op="experts", experts=8, top_k=2, ffn=1).busy(1), Experts(experts=8, top_k=2, ffn=1).busy(64)
        (2, 8)
        """
        share = 1 - (1 - self.top_k / self.experts) ** (tokens * self.ranks)
        return max(1, round(self.experts // self.ranks * share))

    def counts(self, tokens: int) -> tuple[int, ...]:
        """Rows that each expert of a GPU takes of so many tokens: those that take any take as many, or one more.

        >>> Experts(op="experts", experts=8, top_k=2, ffn=1).counts(1)
        (1, 1, 0, 0, 0, 0, 0, 0)
        >>> Experts(op="experts", experts=4, top_k=1, ffn=1).counts(10)
        (3, 3, 2, 2)
        """
        rows, busy = tokens * self.top_k, self.busy(tokens)
        each, more = divmod(rows, busy)
        idle = self.experts // self.ranks - busy
        return (each + 1,) * more + (each,) * (busy - more) + (0,) * idle

    def call(self, tape: Tape, x: Value, **weights: Value) -> Value:
        if tape.arithmetic.policy.mode == "train":
            raise PolicyError(f"{tape.layer}: training of experts is not modelled; give --mode inference")
        if tape.arithmetic.policy.precision == "int8":
            raise PolicyError(f"{tape.layer}: grouped products have no kernels in int8 here; choose bf16 or fp8")
        tokens, features, held = x.elements // x.shape[-1], x.shape[-1], x.dtype
        rows, counts = tokens * self.top_k, self.counts(tokens)
        chances, order = self._route(tape, x, weights["router"], tokens)
        taken = [_narrowed(tape, x), order]
        if self.ranks > 1:
            taken = [_exchanged(tape, self._permuted(tape, taken[0], order, rows), self.ranks)]
        wide = _multiplied(tape, taken, weights["gate_wide"], counts, held)
        inner = tape.new((rows, self.ffn), held)
        halves = [tape.view(wide, inner.shape)] * 2
        tape.pointwise("mul", (*FUNCTIONS[self.function].functions, "mul"), halves, [inner])
        given = _multiplied(tape, [_narrowed(tape, inner)], weights["narrow"], counts, held)
        if self.ranks > 1:
            given = _exchanged(tape, given, self.ranks)
        result = tape.new(x.shape, held)
        read = Access(given.elements, held, features)
        summed = ColumnReduction("sum", self.top_k, result.elements, (read,), (result.touched(),))
        tape.launch("unpermute", summed, [given, chances, order], [result])
        return result

    def _route(self, tape: Tape, x: Value, router: Value, tokens: int) -> tuple[Value, Value]:
        """The weights of the chosen experts of each token, and the places of tokens in the order of experts."""
        scores = tape.new((tokens, self.experts), x.dtype)
        # The router keeps the type of the model where other products are narrow.
        routed = replace(gemm(tape, "matmul", (1, tokens, self.experts, x.shape[-1]), "tn"), op="linear")
        tape.launch("linear", routed, [x, router], [scores])
        chances = tape.new((tokens, self.top_k), Dtype.FP32)
        order = tape.new((tokens * self.top_k,), INDEX, name=f"{tape.layer}.order")
        written = (chances.touched(), order.touched())
        # A pass over the scores for each expert that is chosen.
        chosen = RowReduction("softmax", tokens, self.experts, (scores.touched(),), written, ("mask",) * self.top_k)
        tape.launch("softmax", chosen, [scores], [chances, order])
        aligned = Pointwise(("add",), order.elements, (order.touched(),), (order.touched(),))
        tape.launch("sort", aligned, [order], [order])
        return chances, order

    @staticmethod
    def _permuted(tape: Tape, x: Value, order: Value, rows: int) -> Value:
        sent = tape.new((rows, x.shape[-1]), x.dtype)
        read = x.touched(sent.elements, run=x.shape[-1])
        moved = Pointwise(("copy",), sent.elements, (order.touched(), read), (sent.touched(),))
        tape.launch("gather", moved, [order, x], [sent])
        return sent


def _narrowed(tape: Tape, x: Value) -> Value:
    """Rows in the type of linear layers: in FP8 they are quantised once, whatever experts they go to."""
    return quantised_rows(tape, x) if tape.arithmetic.cast_to("linear") is Dtype.FP8 else x


def _multiplied(tape: Tape, taken: Sequence[Value], weight: Value, counts: tuple[int, ...], held: Dtype) -> Value:
    """Rows times the weights of their experts, ``experts x features x row``, in one launch.

    Only experts with rows are read. One of them alone is a product as any other. A row that several experts take is
    counted as so many, though it lies in memory once.

    Args:
        taken: the rows; or tokens, and the places of their copies by expert.
    """
    features, columns = weight.shape[1:]
    busy = tuple(count for count in counts if count)
    weight = tape.cast(weight, Dtype.FP8 if taken[0].dtype is Dtype.FP8 else tape.arithmetic.weights_in)
    result = tape.new((sum(busy), features), held)
    product = with_narrow_weights(tape, gemm(tape, "linear", (1, sum(busy), features, columns), "tn"), weight)
    grouped = replace(product, counts=counts) if len(busy) > 1 else product
    read = Value(weight.number, weight.name, (len(busy), features, columns), weight.dtype)  # in the memory of all
    tape.launch("grouped_gemm", grouped, [*taken, read], [result])
    return result


def _exchanged(tape: Tape, value: Value, ranks: int) -> Value:
    """Rows after GPUs have sent each other those of their experts."""
    result = tape.new(value.shape, value.dtype)
    collective = Collective("all_to_all", value.size_bytes, ranks)
    tape.tasks.append(Task(tape.layer, tape.phase, collective, (value.tensor,), (result.tensor,), "all_to_all"))
    return result
