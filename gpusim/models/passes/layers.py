"""What each layer of a model calls."""

from __future__ import annotations

from typing import assert_never

from gpusim.models.graph import Node
from gpusim.models.layers.elementwise import (
    Activation,
    BatchNorm,
    Cast,
    Combination,
    CrossEntropy,
    Dropout,
    GroupNorm,
    LayerNorm,
    Power,
    Reduced,
    Rope,
    Softmax,
)
from gpusim.models.layers.matrix import Attention, Conv2d, ConvTranspose2d, Linear, Lstm, Matmul
from gpusim.models.layers.movement import (
    Concat,
    Embedding,
    Expand,
    Flatten,
    Gather,
    GlobalAvgPool2d,
    IndexSelect,
    Item,
    KvCache,
    Nms,
    Permute,
    Pool2d,
    Reshape,
    RoiAlign,
    Scatter,
    Slice,
    SmallCalls,
    Sort,
    TopK,
    Upsample,
)
from gpusim.models.layers.registry import (
    ElementwiseLayer,
    GatherLayer,
    ImageLayer,
    MatrixLayer,
    RowLayer,
    SearchLayer,
    ViewLayer,
)
from gpusim.models.passes import elementwise, matrix, movement, rows
from gpusim.models.passes.tape import Tape
from gpusim.models.passes.value import Value

Weights = dict[str, Value]


def call_layer(tape: Tape, node: Node, inputs: list[Value], weights: Weights) -> Value:
    """Launch what a layer computes from its inputs and its trainable tensors; its result."""
    layer = node.layer
    if isinstance(layer, MatrixLayer):
        return _matrix(tape, layer, inputs, weights)
    if isinstance(layer, ElementwiseLayer):
        return _elementwise(tape, layer, inputs)
    if isinstance(layer, RowLayer):
        return _rows(tape, layer, node, inputs, weights)
    if isinstance(layer, ViewLayer):
        return _view(tape, layer, node, inputs[0])
    if isinstance(layer, ImageLayer):
        return _images(tape, layer, node, inputs)
    if isinstance(layer, SearchLayer):
        return _search(tape, layer, inputs[0])
    return _gather(tape, layer, node, inputs, weights)


def _matrix(tape: Tape, layer: MatrixLayer, inputs: list[Value], weights: Weights) -> Value:
    match layer:
        case Linear():
            return matrix.linear(tape, layer, inputs[0], weights["weight"], weights.get("bias"))
        case Matmul():
            return matrix.matmul(tape, *inputs, transposed=layer.transposed)
        case Conv2d():
            return matrix.convolution(tape, layer, inputs[0], weights["weight"], weights.get("bias"))
        case ConvTranspose2d():
            return matrix.transposed_convolution(tape, layer, inputs[0], weights["weight"], weights.get("bias"))
        case Attention():
            return matrix.attention(tape, layer, inputs)
        case Lstm():
            return matrix.lstm(tape, layer, inputs[0], weights)
        case _:
            assert_never(layer)


def _elementwise(tape: Tape, layer: ElementwiseLayer, inputs: list[Value]) -> Value:
    match layer:
        case Cast():
            return inputs[0]
        case Power():
            return elementwise.power(tape, tape.eligible("pow", inputs)[0], layer.exponent)
        case Rope():
            return movement.rotated(tape, inputs[0])
        case Activation():
            return elementwise.apply(tape, layer.op, inputs[0])
        case Combination():
            return elementwise.combine(tape, layer.op, *inputs)
        case Dropout():
            return elementwise.dropout(tape, inputs[0])
        case _:
            assert_never(layer)


def _rows(tape: Tape, layer: RowLayer, node: Node, inputs: list[Value], weights: Weights) -> Value:
    value = inputs[0]
    match layer:
        case BatchNorm(frozen=True):
            return rows.frozen_batch_norm(tape, value)
        case BatchNorm():
            return rows.batch_norm(tape, value, weights["weight"], weights["bias"])
        case GroupNorm():
            return rows.group_norm(tape, value, weights["weight"], weights["bias"], layer.groups)
        case LayerNorm(op="rms_norm"):
            return rows.rms_norm(tape, value, weights["weight"])
        case LayerNorm():
            return rows.layer_norm(tape, value, weights["weight"], weights["bias"])
        case Softmax():
            return rows.softmax(tape, layer.op, value, wide=layer.wide)
        case CrossEntropy():
            return rows.cross_entropy(tape, value)
        case Reduced():
            return rows.reduced(tape, layer.op, value, node.result)
        case _:
            assert_never(layer)


def _view(tape: Tape, layer: ViewLayer, node: Node, value: Value) -> Value:
    match layer:
        case Reshape() | Flatten():
            return movement.view(tape, value, node.result)
        case Expand():
            return movement.expanded(tape, value, node.result)
        case Permute():
            order = [dim % len(value.shape) for dim in layer.dims]
            return movement.permuted(tape, value, order, contiguous=layer.contiguous)
        case Slice():
            return movement.sliced(tape, layer, value)
        case KvCache():
            return tape.new(node.result, value.dtype, name=tape.layer)
        case _:
            assert_never(layer)


def _images(tape: Tape, layer: ImageLayer, node: Node, inputs: list[Value]) -> Value:
    match layer:
        case Pool2d():
            return movement.pool(tape, layer, inputs[0])
        case GlobalAvgPool2d():
            return movement.global_average(tape, inputs[0])
        case Upsample():
            return movement.upsampled(tape, inputs[0], node.result)
        case RoiAlign():
            return movement.roi_align(tape, layer, *inputs)
        case Nms():
            return movement.nms(tape, layer, inputs[0])
        case _:
            assert_never(layer)


def _gather(tape: Tape, layer: GatherLayer, node: Node, inputs: list[Value], weights: Weights) -> Value:
    match layer:
        case Concat():
            return movement.concatenated(tape, inputs, node.result)
        case Embedding():
            return movement.embedding(tape, inputs[0], weights["weight"])
        case Gather():
            return movement.gathered(tape, inputs[0], layer.rows)
        case Scatter():
            return movement.scattered(tape, *inputs)
        case IndexSelect():
            return movement.index_selected(tape, inputs[0], layer.dim)
        case _:
            assert_never(layer)


def _search(tape: Tape, layer: SearchLayer, value: Value) -> Value:
    match layer:
        case Sort():
            return movement.sort(tape, "sort", value)
        case TopK():
            return movement.top(tape, value, layer.kept)
        case SmallCalls():
            return movement.small_calls(tape, layer, value)
        case Item():
            return movement.item(tape, value)
        case _:
            assert_never(layer)
