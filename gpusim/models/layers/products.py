"""Layers that multiply matrices: linear layers, and batched products of activations.

``layout`` is in BLAS column-major terms: its first letter is that of the second operand, ``t`` where neighbours in
memory run along k, the second that of the first operand, ``n`` where they do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from packaging.version import Version

from gpusim.models.layers.elementwise import summed
from gpusim.models.layers.layer import Layer, Size
from gpusim.models.shape import Shape, elements, shown
from gpusim.models.tape import Tape
from gpusim.models.value import Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import RowReduction

GROUP = 128
"""Weights of INT4 along k that share a scale, as GPTQ and AWQ quantise them."""
INT8_MULTIPLE = 16
"""Sizes of an INT8 product on Tensor Cores are multiples of 16 (cuBLAS, IMMA kernels)."""
_FUSES_BIAS_OF_3D = Version("1.12")
"""pytorch/pytorch pull 72728; before, only of matrices."""
_FUSES_BIAS_OF_ANY = Version("2.2")
"""pytorch/pytorch pull 106911."""


class Linear(Layer):
    """A product with a weight along the last dimension (``aten::linear``)."""

    op: Literal["linear"] = "linear"
    features: Size
    """Last dimension of the result: n of the GEMM."""
    bias: bool = True
    """A vector is added to each row: in the epilogue of the GEMM, or by another kernel in frameworks that do not fuse
    it."""
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

    def call(self, tape: Tape, x: Value, weight: Value, bias: Value | None = None) -> Value:
        """The bias is added in the epilogue (``addmm``), or by another call."""
        n, k = weight.shape
        stands_in_block = "." in tape.layer or tape.arithmetic.quantises_scores
        operation = "linear" if fits_int8(n, k) and stands_in_block else "addmm"
        m = x.elements // k
        if tape.arithmetic.cast_to(operation) is Dtype.FP8:
            biases, held = ([bias] if bias else []), x.dtype
            x, weight = quantised_rows(tape, x), tape.cast(weight, Dtype.FP8)
        else:
            x, weight, *biases = tape.eligible(operation, [x, weight, *([bias] if bias else [])])
            held = tape.arithmetic.result_of_int8 if x.dtype is Dtype.INT8 else x.dtype
            if stands_in_block:
                weight = tape.cast(weight, tape.arithmetic.weights_in)
        result = tape.new((*x.shape[:-1], n), held, x, weight)
        operands = [x, weight, *biases]
        fused = bool(biases) and fuses_bias(tape.arithmetic.policy.version, len(x.shape))
        taken = operands if fused else operands[:2]
        forward, back = ("nn", "tn") if self.by_inputs else ("tn", "nn")
        product = gemm(tape, operation, (1, m, n, k), forward, bias=fused)
        product = with_narrow_weights(tape, product, weight)
        tape.launch("linear", product, taken, [result])
        if biases and not fused:
            tape.pointwise("add", ("add",), [result, *biases], [result])

        def backward(gradient: Value) -> list[Value | None]:
            gradients: list[Value | None] = [None]
            if x.differentiable:
                gradients[0] = given = tape.new(x.shape, x.dtype)
                of_x = gemm(tape, operation, (1, m, k, n), back)
                tape.launch("linear_backward", of_x, [gradient, weight], [given])
            of_weight = None
            if weight.differentiable:
                of_weight = tape.new(weight.shape, weight.dtype, name=f"d.{weight.name}")
                product = gemm(tape, operation, (1, k, n, m) if self.by_inputs else (1, n, k, m), "nt")
                tape.launch("linear_backward", product, [gradient, x], [of_weight])
            rows_of = tape.view(gradient, (m, n))
            return [*gradients, of_weight, *(summed(tape, rows_of, one.shape) for one in biases)]

        return tape.record(result, operands, backward)


def quantised_rows(tape: Tape, x: Value) -> Value:
    """Activations in FP8 with a scale for each row: a kernel that finds its largest element and divides by it."""
    rows, columns = x.elements // x.shape[-1], x.shape[-1]
    result = tape.new(x.shape, Dtype.FP8)
    scales = tape.new((rows,), Dtype.FP32, name=f"{tape.layer}.scales")
    written = (result.touched(), scales.touched())
    operator = RowReduction("quantise", rows, columns, (x.touched(),), written)
    tape.launch("quantise", operator, [x], [result, scales])
    return result


def fuses_bias(version: str, dims: int) -> bool:
    """Whether a PyTorch adds the bias of a linear layer in the product's epilogue."""
    since = {2: Version("0"), 3: _FUSES_BIAS_OF_3D}.get(dims, _FUSES_BIAS_OF_ANY)
    return Version(version) >= since


class Matmul(Layer):
    """A batched product of two activations (``aten::matmul``); the second may be stored transposed."""

    op: Literal["matmul"] = "matmul"
    transposed: bool = False
    """The second input is stored n x k, not k x n, and multiplied as it lies."""

    def result(self, *shapes: Shape) -> Shape:
        a, b = shapes
        self.needs(len(a) >= 2 and len(b) == len(a), f"cannot multiply {shown(a)} by {shown(b)}")
        k, n = reversed(b[-2:]) if self.transposed else b[-2:]
        self.needs(a[:-2] == b[:-2] and a[-1] == k, f"cannot multiply {shown(a)} by {shown(b)}")
        return *a[:-1], n

    def multiply_adds(self, *shapes: Shape) -> int:
        return elements(self.result(*shapes)) * shapes[0][-1]

    def call(self, tape: Tape, a: Value, b: Value) -> Value:
        return matmul(tape, a, b, transposed=self.transposed)


def matmul(tape: Tape, a: Value, b: Value, *, transposed: bool = False) -> Value:
    """A batched product; the second operand may be stored ``n x k``, and its gradient comes ``k x n`` all the same."""
    a, b = tape.eligible("matmul", [a, b])
    *outer, m, k = a.shape
    n = b.shape[-2] if transposed else b.shape[-1]
    batch = math.prod(outer)
    result = tape.new((*outer, m, n), a.dtype, a, b)
    product = gemm(tape, "matmul", (batch, m, n, k), "tn" if transposed else "nn")
    tape.launch("matmul", product, [a, b], [result])

    def backward(gradient: Value) -> list[Value | None]:
        gradients: list[Value | None] = [None, None]
        if a.differentiable:
            gradients[0] = of_a = tape.new(a.shape, a.dtype)
            layout = "nn" if transposed else "tn"
            product = gemm(tape, "matmul", (batch, m, k, n), layout)
            tape.launch("matmul_backward", product, [gradient, b], [of_a])
        if b.differentiable:
            gradients[1] = of_b = tape.new(b.shape, b.dtype)
            tape.launch("matmul_backward", gemm(tape, "matmul", (batch, k, n, m), "nt"), [a, gradient], [of_b])
        return gradients

    return tape.record(result, [a, b], backward)


def gemm(tape: Tape, operation: str, sizes: tuple[int, int, int, int], layout: str, *, bias: bool = False) -> Gemm:
    """A product of ``batch x m x n x k`` in the arithmetic of an operation."""
    batch, m, n, k = sizes
    path = tape.arithmetic.path(operation)
    narrow = {Dtype.INT8: tape.arithmetic.result_of_int8.value, Dtype.FP8: tape.arithmetic.held_in.value}
    output = narrow.get(path, "")
    op = "bmm" if operation == "matmul" else "linear"
    scales = "row" if path is Dtype.FP8 else ""
    return Gemm(m, n, k, path, batch=batch, layout=layout, output=output, op=op, bias=bias, scales=scales)


def with_narrow_weights(tape: Tape, product: Gemm, weight: Value) -> Gemm:
    """A product whose weights alone are narrow, where they are; in INT4 so many along k share a scale."""
    if weight.dtype is not tape.arithmetic.weights_in:
        return product
    return replace(product, b_dtype=weight.dtype, group=GROUP if weight.dtype is Dtype.INT4 else None)


def fits_int8(*sizes: int) -> bool:
    """Whether INT8 inference quantises a layer of such sizes; others run as operations that it leaves alone."""
    return all(size % INT8_MULTIPLE == 0 for size in sizes)
