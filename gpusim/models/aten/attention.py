"""Scaled dot-product attention: one kernel where PyTorch has one for such operands, else products around a softmax.

Source: aten/src/ATen/native/transformers/attention.cpp of the versions; :mod:`gpusim.models.sdpa`.
"""

from __future__ import annotations

import math
from itertools import pairwise

from packaging.version import Version

from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.models.aten.norms import softmax, softmax_gradient
from gpusim.models.aten.products import multiply
from gpusim.models.sdpa import FIRST, Called, Choice, choice
from gpusim.numbers.formats import Dtype
from gpusim.workloads.attention import Attention

_WIDE_MATH = Version("2.5")
"""First PyTorch that computes products around a softmax in FP32 where tensors have 16 bits."""
_ALIGNED = 8
"""Elements that rows of a mask are padded to."""
_BROADCAST_MASK = Version("2.1.2")
"""First PyTorch that pads a mask before it is broadcast over sequences and heads, and not the other way (pull request
114173); before, rows were padded to 16 elements."""
_ALIGNED_BEFORE = 16


@lowers("attention", kind="attention")
def _attention(launches: Launches, call: Call) -> None:
    query, key, value, *masks = call.tensors
    result, sums = call.returned[:2]
    if _fused(launches, call, query, key, value):
        reads = [query, key, value, *(_mask_for_kernel(launches, one, query, key) for one in masks)]
        launches.launch(_operator(launches, call, query, key, value), reads, [result, sums], "attention")
        return
    _attended(launches, call, query, key, value, masks, result)


@lowers("attention_backward", kind="attention_backward")
def _attention_backward(launches: Launches, call: Call) -> None:
    gradient, query, key, value, result, sums, *masks = call.tensors
    given = [one for one in call.returned[:3] if one.elements]
    of_mask = [one for one in call.returned[3:] if one.elements]
    if not _fused(launches, call, query, key, value):
        _attended_backward(launches, call, gradient, query, key, value, given, of_mask)
        return
    reads = [query, key, value, *masks, result, sums, gradient]
    launches.launch(_operator(launches, call, query, key, value), reads, given, "attention_backward")
    if of_mask:  # by the same kernel; its operator does not state them
        launches.elementwise(("copy",), [], of_mask, "")


def _operator(launches: Launches, call: Call, query: TensorView, key: TensorView, value: TensorView) -> Attention:
    """One operator; heads of values that are longer than those of keys count by the mean of both."""
    masks = call.tensors[3:] if call.base == "attention" else call.tensors[6:]
    batch, heads, length, features = query.shape[-4:]
    return Attention(
        math.prod(query.shape[:-4]) * batch,
        heads,
        length,
        key.shape[-2],
        (features + value.shape[-1] + 1) // 2,
        query.dtype,
        "attention_bwd" if call.base.endswith("backward") else "attention_fwd",
        key_heads=key.shape[-3],
        causal=bool(call.arguments.get("causal")) and length <= key.shape[-2],
        mask=bool(masks),
        mask_by=_differs_by(_broadcast(launches, masks[0], query, key)) if masks else "",
        dropout=bool(call.arguments.get("dropout")),
        implementation=_implementation(launches, call, query, key, value),
    )


def _differs_by(mask: TensorView) -> str:
    """Dimensions by which a mask differs beside the key; those before the batch count with it."""
    outer = [size > 1 and stride != 0 for size, stride in zip(mask.shape[:-1], mask.strides[:-1], strict=True)]
    by_query, by_head = (len(outer) >= at and outer[-at] for at in (1, 2))
    return "b" * any(outer[:-2]) + "h" * by_head + "q" * by_query


# Which kernels ------------------------------------------------------------------------------------


def _fused(launches: Launches, call: Call, query: TensorView, key: TensorView, value: TensorView) -> bool:
    """Whether a kernel computes all of it: FlashAttention or the memory-efficient one."""
    policy = launches.arithmetic.policy
    if policy.attention:
        return policy.fuses_attention
    return _chosen(launches, call, query, key, value) != "math"


def _chosen(launches: Launches, call: Call, query: TensorView, key: TensorView, value: TensorView) -> Choice:
    """What the version of PyTorch takes on the GPU."""
    if any(one.strides[-1] != 1 for one in (query, key, value)):
        return "math"
    policy = launches.arithmetic.policy
    batch, heads, length, features = query.shape[-4:]
    called = Called(
        math.prod(query.shape[:-4]) * batch,
        heads,
        length,
        key.shape[-2],
        features,
        value.shape[-1],
        query.dtype,
        key.shape[-3],
        trains=policy.mode == "train",
        causal=bool(call.arguments.get("causal")),
        mask=len(call.tensors) > (6 if call.base.endswith("backward") else 3),
        dropout=float(call.arguments.get("dropout") or 0.0),
    )
    return choice(Version(policy.version), launches.arithmetic.gpu.capability, called)


def _implementation(launches: Launches, call: Call, query: TensorView, key: TensorView, value: TensorView) -> str:
    """The implementation that is named, or that PyTorch takes; empty: of an engine, or where PyTorch has none."""
    policy = launches.arithmetic.policy
    if policy.attention_implementation or policy.fusion == "engine":
        return policy.attention_implementation
    chosen = _chosen(launches, call, query, key, value)
    return "" if chosen == "math" else chosen


def _mask_for_kernel(launches: Launches, mask: TensorView, query: TensorView, key: TensorView) -> TensorView:
    """A mask of truth values as numbers, and one whose rows begin anywhere with padded ones."""
    if not mask.floating:
        numbers = launches.temporary(mask.shape, query.dtype_name)
        launches.elementwise(("mask",), [mask], [numbers], "where")
        mask = numbers
    if _pads_broadcast(launches, key):
        return _padded(launches, _expanded(mask, query, key), _ALIGNED_BEFORE)
    outer = zip(mask.shape[:-1], mask.strides[:-1], strict=True)
    if all(size == 1 or stride % _ALIGNED == 0 for size, stride in outer):
        return mask
    return _padded(launches, mask, _ALIGNED)


def _padded(launches: Launches, mask: TensorView, aligned: int) -> TensorView:
    padded = launches.temporary((*mask.shape[:-1], -(-mask.shape[-1] // aligned) * aligned), mask.dtype_name)
    part = TensorView(padded.storage, padded.dtype_name, mask.shape, padded.strides)
    launches.elementwise(("copy",), [], [padded], "pad")
    launches.elementwise(("copy",), [mask], [part], "copy")
    return part


def _pads_broadcast(launches: Launches, key: TensorView) -> bool:
    """Whether a mask is padded once it is broadcast."""
    return Version(launches.arithmetic.policy.version) < _BROADCAST_MASK and key.shape[-2] % _ALIGNED_BEFORE != 0


def _broadcast(launches: Launches, mask: TensorView, query: TensorView, key: TensorView) -> TensorView:
    """The mask as the kernel finds it; one that was padded once broadcast has rows of its own for all scores."""
    if not _pads_broadcast(launches, key):
        return mask
    return launches.temporary(_expanded(mask, query, key).shape, query.dtype_name)


def _expanded(mask: TensorView, query: TensorView, key: TensorView) -> TensorView:
    """A view of a mask with a row of keys for every query."""
    shape = (*query.shape[:-1], key.shape[-2])
    missing = len(shape) - len(mask.shape)
    strides = (
        *(0,) * missing,
        *(0 if size == 1 else step for size, step in zip(mask.shape, mask.strides, strict=True)),
    )
    return TensorView(mask.storage, mask.dtype_name, shape, strides)


# Products around a softmax ------------------------------------------------------------------------


def _attended(
    launches: Launches,
    call: Call,
    query: TensorView,
    key: TensorView,
    value: TensorView,
    masks: list[TensorView],
    result: TensorView,
) -> None:
    """Scores lie in memory, and are masked, normalised and multiplied by calls of their own."""
    query, key, value = (_held(launches, one) for one in (query, key, value))
    key, value = (_repeated_heads(launches, one, query.shape[-3]) for one in (key, value))
    turned = _turned(key)
    scaled = [query, turned] if Version(launches.arithmetic.policy.version) >= FIRST else [query]
    scaled = [_scaled(launches, one) for one in scaled]
    q, k = _matrices(launches, scaled[0]), _matrices(launches, scaled[1] if len(scaled) > 1 else turned)
    scores = launches.temporary((*q.shape[:-1], k.shape[-1]), q.dtype_name)
    multiply(launches, "matmul", q, k, scores, kind="matmul")
    by_head = _by_head(scores, query)
    if call.arguments.get("causal"):
        triangle = launches.temporary(by_head.shape[-2:], q.dtype_name)
        for functions, kind in ((("copy",), "fill"), (("mask",), "tril"), (("mask",), "where")):
            launches.elementwise(functions, [] if kind == "fill" else [triangle], [triangle], kind)
        masks = [triangle]
    for mask in masks:
        launches.elementwise(("add",) if mask.floating else ("mask",), [by_head, mask], [by_head], "add")
    weights = _normalised(launches, scores, query.dtype_name)
    if call.arguments.get("dropout") and launches.arithmetic.policy.mode == "train":
        dropped, kept = launches.temporary(weights.shape, weights.dtype_name), launches.temporary(weights.shape, "bool")
        launches.elementwise(("dropout",), [weights], [dropped, kept], "dropout")
        weights = dropped
    values = _matrices(launches, value)
    given = launches.temporary((*weights.shape[:-1], values.shape[-1]), value.dtype_name)
    multiply(launches, "matmul", weights, values, given, kind="matmul")
    launches.elementwise(("copy",), [_by_head(given, result)], [result], "copy")


def _attended_backward(
    launches: Launches,
    call: Call,
    gradient: TensorView,
    query: TensorView,
    key: TensorView,
    value: TensorView,
    given: list[TensorView],
    of_mask: list[TensorView],
) -> None:
    gradient, query, key, value = (_held(launches, one) for one in (gradient, query, key, value))
    of_result = _matrices(launches, gradient)
    batch, queries, keys = of_result.shape[0], query.shape[-2], key.shape[-2]
    features, of_value = query.shape[-1], value.shape[-1]
    shape = (batch, queries, keys)
    weights, of_weights = (launches.temporary(shape, query.dtype_name) for _ in range(2))

    def saved(rows: int, columns: int) -> TensorView:
        return launches.temporary((batch, rows, columns), query.dtype_name)

    kind = "matmul_backward"
    multiply(launches, "matmul", of_result, _turned(saved(keys, of_value)), of_weights, kind=kind)
    multiply(launches, "matmul", _turned(weights), of_result, saved(keys, of_value), kind=kind)
    if call.arguments.get("dropout"):
        kept = launches.temporary(shape, "bool")
        launches.elementwise(("dropout_backward",), [of_weights, kept], [of_weights], "dropout_backward")
    of_scores = of_mask[0] if of_mask else of_weights
    if of_scores.elements != of_weights.elements or not of_scores.contiguous:
        of_scores = of_weights
    of_scores = TensorView(of_scores.storage, of_weights.dtype_name, shape, of_weights.strides)
    softmax_gradient(launches, of_weights, weights, of_scores, -1, "softmax_backward")
    of_query, of_key = saved(queries, features), saved(features, keys)
    multiply(launches, "matmul", of_scores, saved(keys, features), of_query, kind=kind)
    multiply(launches, "matmul", _turned(saved(queries, features)), of_scores, of_key, kind=kind)
    both = Version(launches.arithmetic.policy.version) >= FIRST
    for one, written in zip((of_query, of_key), given[:2], strict=False):
        if both or one is of_query:
            laid = TensorView(written.storage, one.dtype_name, one.shape, one.strides)
            launches.elementwise(("scale",), [one], [laid], "mul_backward")


def _normalised(launches: Launches, scores: TensorView, dtype_name: str) -> TensorView:
    """Softmax of scores; where a model spells it out, autocast computes it in FP32, and rounds for the product."""
    policy = launches.arithmetic.policy
    wide = Version(policy.version) < FIRST and policy.precision.startswith("amp") and dtype_name != "float32"
    if wide:
        scores = _cast(launches, scores, "float32")
    weights = launches.temporary(scores.shape, scores.dtype_name)
    softmax(launches, "softmax", [scores], weights, -1, "softmax")
    return _cast(launches, weights, dtype_name) if wide else weights


def _held(launches: Launches, value: TensorView) -> TensorView:
    """An operand in the type that the products compute in."""
    wide = Version(launches.arithmetic.policy.version) >= _WIDE_MATH
    return _cast(launches, value, "float32") if wide and value.dtype in (Dtype.FP16, Dtype.BF16) else value


def _cast(launches: Launches, value: TensorView, dtype_name: str) -> TensorView:
    result = launches.temporary(value.shape, dtype_name, value.strides if value.distinct == value.elements else None)
    launches.elementwise(("copy",), [value], [result], "cast")
    return result


def _scaled(launches: Launches, value: TensorView) -> TensorView:
    result = launches.temporary(value.shape, value.dtype_name, value.strides)
    launches.elementwise(("scale",), [value], [result], "mul")
    return result


def _turned(value: TensorView) -> TensorView:
    """A view with its last two dimensions exchanged."""
    *shape, rows, columns = value.shape
    *strides, down, across = value.strides
    return TensorView(value.storage, value.dtype_name, (*shape, columns, rows), (*strides, across, down))


def _matrices(launches: Launches, value: TensorView) -> TensorView:
    """Heads of all sequences as one batch of matrices: a view, or a copy where their distances differ."""
    *outer, rows, columns = value.shape
    *steps, down, across = value.strides
    kept = [(size, step) for size, step in zip(outer, steps, strict=True) if size != 1]
    if any(step != size * below for (_, step), (size, below) in pairwise(kept)):
        value = launches.copied(value)
        *_, down, across = value.strides
        kept = [(math.prod(outer), rows * columns)]
    step = kept[-1][1] if kept else rows * columns
    return TensorView(value.storage, value.dtype_name, (math.prod(outer), rows, columns), (step, down, across))


def _by_head(matrices: TensorView, like: TensorView) -> TensorView:
    """A batch of matrices with the heads of each sequence apart."""
    outer = like.shape[:-2]
    step = matrices.shape[-1] * matrices.shape[-2]
    strides = tuple(math.prod(outer[at + 1 :]) * step for at in range(len(outer)))
    return TensorView(
        matrices.storage, matrices.dtype_name, (*outer, *matrices.shape[-2:]), (*strides, *matrices.strides[-2:])
    )


def _repeated_heads(launches: Launches, value: TensorView, heads: int) -> TensorView:
    """Heads of keys or values, repeated for the heads of queries that share them."""
    *outer, held, length, features = value.shape
    if held == heads:
        return value
    result = launches.temporary((*outer, held, heads // held, length, features), value.dtype_name)
    *steps, step, down, across = value.strides
    spread = TensorView(value.storage, value.dtype_name, result.shape, (*steps, step, 0, down, across))
    launches.elementwise(("copy",), [spread], [result], "repeat")
    shape = (*outer, heads, length, features)
    return TensorView(result.storage, result.dtype_name, shape, launches.temporary(shape, "bool").strides)
