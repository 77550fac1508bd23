"""Layers that multiply matrices: convolutions, linear layers, batched products, attention, LSTM cells."""

from __future__ import annotations

from typing import Literal

from gpusim.models.layers.layer import Layer, OffsetPair, Shape, Size, SizePair, elements, shown


class Conv2d(Layer):
    """A convolution of images (``aten::conv2d``)."""

    op: Literal["conv2d"] = "conv2d"
    filters: Size
    kernel: SizePair
    stride: SizePair = (1, 1)
    padding: OffsetPair = (0, 0)
    dilation: SizePair = (1, 1)
    groups: Size = 1
    bias: bool = True

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 4, f"images are images x channels x height x width, got {shown(shape)}")
        images, channels, *size = shape
        self.needs(channels % self.groups == 0, f"{channels} channels do not divide into {self.groups} groups")
        self.needs(self.filters % self.groups == 0, f"{self.filters} filters do not divide into {self.groups} groups")
        sides = zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        height, width = (
            (side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for side, kernel, stride, pad, dilation in sides
        )
        self.needs(min(height, width) >= 1, f"a filter of {shown(self.kernel)} is larger than {shown(tuple(size))}")
        return images, self.filters, height, width

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        weight: dict[str, Shape] = {"weight": (self.filters, shape[1] // self.groups, *self.kernel)}
        return {**weight, "bias": (self.filters,)} if self.bias else weight

    def multiply_adds(self, *shapes: Shape) -> int:
        per_result = elements(self.weights(*shapes)["weight"]) // self.filters
        return elements(self.result(*shapes)) * per_result


class ConvTranspose2d(Layer):
    """The transposed convolution that doubles the resolution of masks (``aten::conv_transpose2d``)."""

    op: Literal["conv_transpose2d"] = "conv_transpose2d"
    filters: Size
    kernel: SizePair
    stride: SizePair = (1, 1)
    padding: OffsetPair = (0, 0)
    bias: bool = True

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 4, f"images are images x channels x height x width, got {shown(shape)}")
        sides = zip(shape[2:], self.kernel, self.stride, self.padding, strict=True)
        height, width = ((side - 1) * stride - 2 * pad + kernel for side, kernel, stride, pad in sides)
        return shape[0], self.filters, height, width

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        weight: dict[str, Shape] = {"weight": (shape[1], self.filters, *self.kernel)}
        return {**weight, "bias": (self.filters,)} if self.bias else weight

    def multiply_adds(self, *shapes: Shape) -> int:
        (shape,) = shapes
        return elements(shape) * self.filters * elements(self.kernel)


class Linear(Layer):
    """A product with a weight along the last dimension (``aten::linear``)."""

    op: Literal["linear"] = "linear"
    features: Size
    bias: bool = True
    by_inputs: bool = False
    """Features of an input lie side by side in the weight, not the inputs of a feature: transformers' ``Conv1D``."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) >= 1, "needs a dimension to multiply along")
        return *shape[:-1], self.features

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        weight: dict[str, Shape] = {"weight": (self.features, shape[-1])}
        return {**weight, "bias": (self.features,)} if self.bias else weight

    def multiply_adds(self, *shapes: Shape) -> int:
        (shape,) = shapes
        return elements(shape) * self.features


class Matmul(Layer):
    """A batched product of two activations (``aten::matmul``); the second may be stored transposed."""

    op: Literal["matmul"] = "matmul"
    transposed: bool = False

    def result(self, *shapes: Shape) -> Shape:
        a, b = shapes
        self.needs(len(a) >= 2 and len(b) == len(a), f"cannot multiply {shown(a)} by {shown(b)}")
        k, n = reversed(b[-2:]) if self.transposed else b[-2:]
        self.needs(a[:-2] == b[:-2] and a[-1] == k, f"cannot multiply {shown(a)} by {shown(b)}")
        return *a[:-1], n

    def multiply_adds(self, *shapes: Shape) -> int:
        return elements(self.result(*shapes)) * shapes[0][-1]


HEADS_APART = 4
"""Dimensions of queries, keys and values whose heads lie side by side."""


class Attention(Layer):
    """Scaled dot-product attention of queries, keys and values, ``batch x length x features`` each.

    Or ``batch x heads x length x features of a head``, as PyTorch's function takes them, and gives its result. A fourth
    input is added to the scores, broadcast to ``batch x heads x queries x keys``. How it is computed, as separate
    products around a softmax or as one kernel, is the framework's.
    """

    op: Literal["attention"] = "attention"
    heads: Size
    key_heads: Size | None = None
    """Heads of keys and values, where queries share them; None: as many as of queries."""
    causal: bool = False
    scaled: Literal["scores", "queries", "nothing"] = "scores"
    """What an eager implementation divides by the root of the features of a head."""
    clamped: bool = False
    """An eager implementation keeps masked scores finite, in a kernel of its own (transformers up to 4.38, OPT)."""
    contiguous: bool = False
    """An eager implementation copies heads beside each other where a product could take them as they lie, too."""
    dropout: float = 0.0

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


class Lstm(Layer):
    """One layer of LSTM cells over ``length x batch x features`` (``aten::lstm``)."""

    op: Literal["lstm"] = "lstm"
    hidden: Size
    bidirectional: bool = False

    @property
    def directions(self) -> int:
        """1, or 2 of a bidirectional layer."""
        return 2 if self.bidirectional else 1

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 3, f"takes length x batch x features, got {shown(shape)}")
        return *shape[:2], self.hidden * self.directions

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        gates = 4 * self.hidden
        each = {
            "weight_ih": (gates, shape[2]),
            "weight_hh": (gates, self.hidden),
            "bias_ih": (gates,),
            "bias_hh": (gates,),
        }
        back = {f"{name}_reverse": size for name, size in each.items()} if self.bidirectional else {}
        return {**each, **back}

    def multiply_adds(self, *shapes: Shape) -> int:
        (shape,) = shapes
        matrices = (size for name, size in self.weights(*shapes).items() if name.startswith("weight"))
        return shape[0] * shape[1] * sum(map(elements, matrices))
