"""Calls that multiply matrices, and their gradients: linear layers, batched products, convolutions, attention, LSTM.

``layout`` is in BLAS column-major terms: its first letter is that of the second operand, ``t`` where neighbours in
memory run along k, the second that of the first operand, ``n`` where they do.
"""

from __future__ import annotations

import math
from dataclasses import replace

from packaging.version import Version

from gpusim.models.layers.layer import Shape
from gpusim.models.layers.matrix import HEADS_APART, Attention, Conv2d, ConvTranspose2d, Linear, Lstm
from gpusim.models.passes import elementwise, movement, rows
from gpusim.models.passes.elementwise import summed
from gpusim.models.passes.tape import Tape
from gpusim.models.passes.value import Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.attention import Attention as AttentionOperator
from gpusim.workloads.convolution import Convolution, ConvolutionOp, ConvolutionShape
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, Pointwise


def _gemm(tape: Tape, operation: str, sizes: tuple[int, int, int, int], layout: str, *, bias: bool = False) -> Gemm:
    """A product of ``batch x m x n x k`` in the arithmetic of an operation."""
    batch, m, n, k = sizes
    path = tape.arithmetic.path(operation)
    output = tape.arithmetic.result_of_int8.value if path is Dtype.INT8 else ""
    op = "bmm" if operation == "matmul" else "linear"
    return Gemm(m, n, k, path, batch=batch, layout=layout, output=output, op=op, bias=bias)


INT8_MULTIPLE = 16
"""Sizes of an INT8 product on Tensor Cores are multiples of 16 (cuBLAS, IMMA kernels)."""


def _fits_int8(*sizes: int) -> bool:
    """Whether INT8 inference quantises a layer of such sizes; others run as operations that it leaves alone."""
    return all(size % INT8_MULTIPLE == 0 for size in sizes)


_FUSES_BIAS_OF_3D = Version("1.12")
"""pytorch/pytorch pull 72728; before, only of matrices."""
_FUSES_BIAS_OF_ANY = Version("2.2")
"""pytorch/pytorch pull 106911."""


def _fuses_bias(version: str, dims: int) -> bool:
    """Whether a PyTorch adds the bias of a linear layer in the product's epilogue."""
    since = {2: Version("0"), 3: _FUSES_BIAS_OF_3D}.get(dims, _FUSES_BIAS_OF_ANY)
    return Version(version) >= since


def linear(tape: Tape, layer: Linear, x: Value, weight: Value, bias: Value | None) -> Value:
    """``x W^T + bias`` along the last dimension: the bias in the epilogue (``addmm``), or added by another call."""
    n, k = weight.shape
    operation = "linear" if _fits_int8(n, k) else "addmm"
    x, weight, *biases = tape.eligible(operation, [x, weight, *([bias] if bias else [])])
    m = x.elements // k
    held = tape.arithmetic.result_of_int8 if x.dtype is Dtype.INT8 else x.dtype
    result = tape.new((*x.shape[:-1], n), held, x, weight)
    operands = [x, weight, *biases]
    fused = bool(biases) and _fuses_bias(tape.arithmetic.policy.version, len(x.shape))
    taken = operands if fused else operands[:2]
    forward, back = ("nn", "tn") if layer.by_inputs else ("tn", "nn")
    tape.launch("linear", _gemm(tape, operation, (1, m, n, k), forward, bias=fused), taken, [result])
    if biases and not fused:
        tape.pointwise("add", ("add",), [result, *biases], [result])

    def backward(gradient: Value) -> list[Value | None]:
        gradients: list[Value | None] = [None]
        if x.differentiable:
            gradients[0] = given = tape.new(x.shape, x.dtype)
            of_x = _gemm(tape, operation, (1, m, k, n), back)
            tape.launch("linear_backward", of_x, [gradient, weight], [given])
        of_weight = None
        if weight.differentiable:
            of_weight = tape.new(weight.shape, weight.dtype, name=f"d.{weight.name}")
            product = _gemm(tape, operation, (1, k, n, m) if layer.by_inputs else (1, n, k, m), "nt")
            tape.launch("linear_backward", product, [gradient, x], [of_weight])
        rows_of = tape.view(gradient, (m, n))
        return [*gradients, of_weight, *(summed(tape, rows_of, one.shape) for one in biases)]

    return tape.record(result, operands, backward)


def matmul(tape: Tape, a: Value, b: Value, *, transposed: bool = False) -> Value:
    """A batched product; the second operand may be stored ``n x k``, and its gradient comes ``k x n`` all the same."""
    a, b = tape.eligible("matmul", [a, b])
    *outer, m, k = a.shape
    n = b.shape[-2] if transposed else b.shape[-1]
    batch = math.prod(outer)
    result = tape.new((*outer, m, n), a.dtype, a, b)
    product = _gemm(tape, "matmul", (batch, m, n, k), "tn" if transposed else "nn")
    tape.launch("matmul", product, [a, b], [result])

    def backward(gradient: Value) -> list[Value | None]:
        gradients: list[Value | None] = [None, None]
        if a.differentiable:
            gradients[0] = of_a = tape.new(a.shape, a.dtype)
            layout = "nn" if transposed else "tn"
            product = _gemm(tape, "matmul", (batch, m, k, n), layout)
            tape.launch("matmul_backward", product, [gradient, b], [of_a])
        if b.differentiable:
            gradients[1] = of_b = tape.new(b.shape, b.dtype)
            tape.launch("matmul_backward", _gemm(tape, "matmul", (batch, k, n, m), "nt"), [a, gradient], [of_b])
        return gradients

    return tape.record(result, [a, b], backward)


# Convolutions -------------------------------------------------------------------------------------


def convolution(tape: Tape, layer: Conv2d, images: Value, weight: Value, bias: Value | None) -> Value:
    """A convolution; its bias is added by a kernel of its own."""
    operation = "conv2d" if _fits_int8(layer.filters, images.shape[1] // layer.groups) else "conv"
    images, weight, *biases = tape.eligible(operation, [images, weight, *([bias] if bias else [])])
    shape = _shape(images.shape, layer.filters, layer.kernel, layer.padding, layer.stride, layer.groups)
    held = tape.arithmetic.result_of_int8 if images.dtype is Dtype.INT8 else images.dtype
    result = tape.new(layer.result(images.shape), held, images, weight)
    return _convolved(tape, operation, shape, ("conv_fwd", "conv_bwd_inputs"), [images, weight, *biases], result)


def transposed_convolution(
    tape: Tape, layer: ConvTranspose2d, images: Value, weight: Value, bias: Value | None
) -> Value:
    """A transposed convolution: the gradient of one by its images, which its own gradient runs forward."""
    operation = "conv_transpose2d"
    images, weight, *biases = tape.eligible(operation, [images, weight, *([bias] if bias else [])])
    shape = _shape(layer.result(images.shape), images.shape[1], layer.kernel, layer.padding, layer.stride, 1)
    result = tape.new(layer.result(images.shape), images.dtype, images, weight)
    return _convolved(tape, operation, shape, ("conv_bwd_inputs", "conv_fwd"), [images, weight, *biases], result)


def _shape(
    images: Shape, filters: int, kernel: tuple[int, int], padding: tuple[int, int], stride: tuple[int, int], groups: int
) -> ConvolutionShape:
    count, channels, height, width = images
    return ConvolutionShape(count, channels, height, width, filters, *kernel, padding, stride, groups)


def _convolved(
    tape: Tape,
    operation: str,
    shape: ConvolutionShape,
    directions: tuple[ConvolutionOp, ConvolutionOp],
    operands: list[Value],
    result: Value,
) -> Value:
    """A convolution in a direction, and its gradients; the gradient by the images runs in the other direction."""
    images, weight, *biases = operands
    layout = tape.arithmetic.policy.layout
    name = "conv2d" if directions[0] == "conv_fwd" else "conv_transpose2d"
    path = tape.arithmetic.path(operation)

    def launch(call: str, direction: ConvolutionOp, reads: list[Value], written: Value) -> None:
        tape.launch(call, Convolution(shape, path, direction, layout), reads, [written])

    launch(name, directions[0], [images, weight], result)
    for bias in biases:
        tape.pointwise("", ("add",), [result, bias], [result])

    def backward(gradient: Value) -> list[Value | None]:
        call = f"{name}_backward"
        of_images = None
        if images.differentiable:
            of_images = tape.new(images.shape, images.dtype)
            launch(call, directions[1], [gradient, weight], of_images)
        of_weight = None
        if weight.differentiable:
            of_weight = tape.new(weight.shape, weight.dtype, name=f"d.{weight.name}")
            launch("" if of_images else call, "conv_bwd_weights", [images, gradient], of_weight)
        return [of_images, of_weight, *(rows.channel_sum(tape, gradient, one) for one in biases)]

    return tape.record(result, operands, backward)


# Attention ----------------------------------------------------------------------------------------


def attention(tape: Tape, layer: Attention, inputs: list[Value]) -> Value:
    """Attention as the policy has it computed; a bias that differs by query is added to scores in memory."""
    fused = tape.arithmetic.policy.attention == "fused" and all(_by_key(bias) for bias in inputs[3:])
    if fused:
        return _fused_attention(tape, layer, inputs)
    if len(inputs[0].shape) == HEADS_APART:
        return _attended(tape, layer, inputs)
    return _eager_attention(tape, layer, inputs)


def _by_key(bias: Value) -> bool:
    """Whether a bias of scores is the same for all queries."""
    return len(bias.shape) < 2 or bias.shape[-2] == 1


def _fused_attention(tape: Tape, layer: Attention, inputs: list[Value]) -> Value:
    """One kernel in either pass, which takes heads as they lie."""
    queries, keys, values = operands = tape.eligible("matmul", inputs[:3])
    length, features = queries.shape[-2:]
    batch = queries.shape[0]
    result = tape.new(layer.result(*(one.shape for one in operands)), queries.dtype, *operands)
    sums = tape.new((batch, layer.heads, length), Dtype.FP32, name=f"{tape.layer}.sums")
    forward = AttentionOperator(
        batch,
        layer.heads,
        length,
        keys.shape[-2],
        features if len(queries.shape) == HEADS_APART else features // layer.heads,
        queries.dtype,
        key_heads=layer.key_heads,
        causal=layer.causal,
        mask=len(inputs) > len(operands),
        dropout=layer.dropout > 0 and tape.arithmetic.policy.mode == "train",
    )
    tape.launch("attention", forward, [*operands, *inputs[3:]], [result, sums])

    def backward(gradient: Value) -> list[Value | None]:
        gradients = [tape.new(one.shape, one.dtype) for one in operands]
        reads = [*operands, *inputs[3:], result, sums, gradient]
        tape.launch("attention_backward", replace(forward, op="attention_bwd"), reads, gradients)
        return [one if of.differentiable else None for one, of in zip(gradients, operands, strict=True)]

    return tape.record(result, [queries, keys, values], backward)


def _eager_attention(tape: Tape, layer: Attention, inputs: list[Value]) -> Value:
    """Attention as transformers' eager implementation computes it: heads are copied beside each other, and back.

    ``aten::matmul`` takes those of one sequence as they lie, but for keys and values that a cache has put together. Of
    several it copies keys, which it takes transposed, with places side by side.
    """
    key_heads = layer.key_heads or layer.heads
    queries = elementwise.scale(tape, inputs[0]) if layer.scaled == "queries" else inputs[0]
    cached = inputs[1].shape[1] > inputs[0].shape[1]
    copies = layer.contiguous or inputs[0].shape[0] > 1
    turned = copies and not (cached or layer.contiguous) and key_heads == layer.heads
    queries = movement.heads(tape, queries, layer.heads, copies=copies)
    keys = movement.keys(tape, inputs[1], key_heads, copies=copies or cached, turned=turned)
    values = movement.heads(tape, inputs[2], key_heads, copies=copies or cached)
    return movement.joined_heads(tape, _attended(tape, layer, [queries, keys, values, *inputs[3:]], turned=turned))


def _attended(tape: Tape, layer: Attention, inputs: list[Value], *, turned: bool = False) -> Value:
    """Attention of heads that lie side by side; scores are scaled, masked and normalised by kernels of their own.

    Args:
        turned: keys have places, not features, side by side.
    """
    queries, keys, values = inputs[:3]
    if layer.key_heads not in (None, layer.heads):
        keys, values = (movement.repeated_heads(tape, one, layer.heads) for one in (keys, values))
    scores = matmul(tape, queries, keys, transposed=not turned)
    if layer.scaled == "scores":
        scores = elementwise.scale(tape, scores)
    if layer.causal:
        mask = tape.new(scores.shape[-2:], Dtype.INT8, name=f"{tape.layer}.causal")
        scores = elementwise.combine(tape, "where", scores, mask)
    for added in inputs[3:]:
        scores = elementwise.combine(tape, "add", scores, added)
    if layer.clamped:
        scores = elementwise.clamped(tape, scores)
    weights = rows.softmax(tape, "softmax", scores)
    if layer.dropout:
        weights = elementwise.dropout(tape, weights)
    return matmul(tape, weights, values)


# LSTM ---------------------------------------------------------------------------------------------


def lstm(tape: Tape, layer: Lstm, x: Value, weights: dict[str, Value]) -> Value:
    """One layer of LSTM cells: one product for all inputs, then a product and the gates for each place.

    cuDNN launches all of it in one call of the framework.
    """
    names = list(weights)
    x, *cast = tape.eligible("lstm", [x, *weights.values()])
    length, batch, features = x.shape
    result = tape.new((length, batch, layer.hidden * layer.directions), x.dtype, x, *cast)
    cells = _Cells(tape, length, batch, features, layer.hidden, layer.directions, x.dtype)
    gates = tape.new((length, batch, 4 * layer.hidden * layer.directions), x.dtype, name=f"{tape.layer}.gates")
    cells.forward([x, *cast], gates, result)

    def backward(gradient: Value) -> list[Value | None]:
        of_x = tape.new(x.shape, x.dtype) if x.differentiable else None
        of_gates = tape.new(gates.shape, gates.dtype)
        of_weights = [tape.new(one.shape, one.dtype, name=f"d.{one.name}") for one in cast]
        cells.backward([gradient, gates, *cast], of_gates, of_x)
        matrices = [one for name, one in zip(names, of_weights, strict=True) if name.startswith("weight")]
        biases = [one for name, one in zip(names, of_weights, strict=True) if name.startswith("bias")]
        cells.of_weights([x, result], of_gates, matrices)
        for bias in biases:
            tape.launch("", rows.column_sum(of_gates, bias), [of_gates], [bias])
        return [of_x, *of_weights]

    return tape.record(result, [x, *cast], backward)


class _Cells:
    """Products and gates of LSTM cells."""

    def __init__(
        self, tape: Tape, length: int, batch: int, features: int, hidden: int, directions: int, dtype: Dtype
    ) -> None:
        self._tape, self._length, self._batch = tape, length, batch
        self._features, self._hidden, self._directions, self._dtype = features, hidden, directions, dtype

    def _product(self, m: int, n: int, k: int, layout: str) -> Gemm:
        return _gemm(self._tape, "lstm", (1, m, n, k), layout)

    def _gates(self, functions: tuple[str, ...], read: int, written: int) -> Pointwise:
        """Gates of one place: tensors of batch x hidden."""
        elements = self._batch * self._hidden
        tensors = [Access(elements * count, self._dtype) for count in (read, written)]
        return Pointwise(functions, elements, (tensors[0],), (tensors[1],))

    def forward(self, reads: list[Value], gates: Value, result: Value) -> None:
        tape, hidden = self._tape, self._hidden
        call = "lstm"
        for _ in range(self._directions):
            of_inputs = self._product(self._length * self._batch, 4 * hidden, self._features, "tn")
            tape.launch(call, of_inputs, reads, [gates])
            call = ""
            for _ in range(self._length):
                tape.launch("", self._product(self._batch, 4 * hidden, hidden, "tn"), [result, *reads[1:]], [gates])
                cell = self._gates(("sigmoid",) * 3 + ("tanh",) * 2 + ("mul",) * 3 + ("add",) * 9, 9, 6)
                tape.launch("", cell, [gates], [gates, result])

    def backward(self, reads: list[Value], of_gates: Value, of_x: Value | None) -> None:
        tape, hidden = self._tape, self._hidden
        call = "lstm_backward"
        for _ in range(self._directions):
            for _ in range(self._length):
                cell = self._gates(("sigmoid_backward",) * 3 + ("tanh_backward",) * 2 + ("mul",) * 6 + ("add",), 9, 5)
                tape.launch(call, cell, reads[:2], [of_gates])
                call = ""
                before = self._product(self._batch, hidden, 4 * hidden, "nn")
                tape.launch("", before, [of_gates, *reads[2:]], [of_gates])
            if of_x is not None:
                of_inputs = self._product(self._length * self._batch, self._features, 4 * hidden, "nn")
                tape.launch("", of_inputs, [of_gates, *reads[2:]], [of_x])

    def of_weights(self, reads: list[Value], of_gates: Value, matrices: list[Value]) -> None:
        """Gradients of the weights: one product of all places each."""
        for matrix in matrices:
            m, n = matrix.shape
            product = self._product(m, n, self._length * self._batch, "nt")
            self._tape.launch("", product, [of_gates, *reads], [matrix])
