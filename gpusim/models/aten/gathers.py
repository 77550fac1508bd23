"""Elements by their places: indexing, gathers and scatters, embeddings, sorts and largest elements."""

from __future__ import annotations

import math

from packaging.version import Version

from gpusim.models.aten.access import whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.models.layers.gathers import SMALL_EMBEDDING
from gpusim.models.layers.searches import (
    BITS_OF_A_DIGIT,
    BITS_OF_A_LARGE_DIGIT,
    LARGE_DIGITS_SINCE,
    PASSES_TO_GATHER,
    RADIX_PASSES,
)
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction

# Gathers ------------------------------------------------------------------------------------------


@lowers("embedding", kind="embedding")
def _embedding(launches: Launches, call: Call) -> None:
    weight, indices = call.tensors[:2]
    _rows(launches, weight, indices, call.returned[0], weight.shape[-1])


@lowers("_embedding_bag", "_embedding_bag_forward_only", kind="embedding")
def _embedding_bag(launches: Launches, call: Call) -> None:
    """Rows that are summed as they are read (aten/src/ATen/native/cuda/EmbeddingBag.cu)."""
    weight, indices = call.tensors[:2]
    result = call.returned[0]
    elements = indices.elements * weight.shape[-1]
    read = Access(elements, weight.dtype, weight.shape[-1], min(weight.distinct, elements))
    operator = Pointwise(("add",), elements, (_spread(indices, elements), read), (whole(result),))
    launches.launch(operator, [indices, weight], [result])


@lowers("index_select", kind="index_select")
def _index_select(launches: Launches, call: Call) -> None:
    value, indices = call.tensors[:2]
    behind = math.prod(value.shape[call.arguments.get("dim", 0) % len(value.shape) + 1 :]) if value.shape else 1
    _rows(launches, value, indices, call.returned[0], behind)


def _rows(launches: Launches, value: TensorView, indices: TensorView, result: TensorView, run: int) -> None:
    read = Access(result.elements, value.dtype, run, min(value.distinct, result.elements))
    operator = Pointwise(("copy",), result.elements, (whole(indices), read), (whole(result),))
    launches.launch(operator, [indices, value], [result])


@lowers("index", "_unsafe_index", "gather", "take", "take_along_dim", kind="index")
def _gathered(launches: Launches, call: Call) -> None:
    """Each element of the result is read where an index says (aten/src/ATen/native/cuda/IndexKernel.cu)."""
    value, *indices = call.tensors
    result = call.returned[0]
    run = 1 if call.base in ("gather", "take", "take_along_dim") else _behind(call)
    touched = _elements(value, result.elements, run)
    places = tuple(_spread(one, result.elements) for one in indices)
    operator = Pointwise(("copy",), result.elements, (*places, touched), (whole(result),))
    launches.launch(operator, [*indices, value], [result])


def _behind(call: Call) -> int:
    """Elements that stand together behind the last dimension that is indexed."""
    value, places = call.operands[:2]
    assert isinstance(value, TensorView)
    given = places if isinstance(places, tuple) else (places,)
    last = max((at for at, one in enumerate(given) if one is not None), default=-1)
    return max(1, math.prod(value.shape[last + 1 :]))


def _elements(value: TensorView, elements: int, run: int) -> Access:
    distinct = min(value.distinct, elements)
    return Access(elements, value.dtype, run, distinct if distinct < elements else None)


def _spread(view: TensorView, elements: int) -> Access:
    elements = max(elements, view.elements)
    return Access(elements, view.dtype, None, view.distinct if view.distinct < elements else None)


# Scatters -----------------------------------------------------------------------------------------


@lowers("index_put", "_index_put_impl", "_unsafe_index_put", kind="index_put")
def _index_put(launches: Launches, call: Call) -> None:
    """Values are written where an index says, or added: then sorted by their places first, so that none collide.

    aten/src/ATen/native/cuda/Indexing.cu, ``index_put_with_sort_kernel``.
    """
    target, values, result = call.tensors[0], call.tensors[-1], call.returned[0]
    indices = call.tensors[1:-1]
    if not call.base.endswith("_"):
        launches.elementwise(("copy",), [target], [result])
    run = _behind(call)
    count = (
        max(1, values.elements // run) if values.elements >= run else max((one.elements for one in indices), default=1)
    )
    elements = max(values.elements, count)
    written = _elements(result, elements, run)
    places = launches.temporary((count,), "int64")
    value = Access(elements, values.dtype, None, values.distinct if values.distinct < elements else None)
    if call.arguments.get("accumulate"):
        launches.elementwise(
            ("scale", "add"), indices[:1] if indices[:1] and indices[0].elements == count else [], [places]
        )
        sort_places(launches, places)
        added = (_spread(places, elements), value, written)
        launches.launch(Pointwise(("add",), elements, added, (written,)), [places, values, result], [result])
    else:
        reads = (*(_spread(one, elements) for one in indices), value)
        launches.launch(Pointwise(("copy",), elements, reads, (written,)), [*indices, values], [result])


@lowers(
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "index_add",
    "index_copy",
    "index_fill",
    "masked_scatter",
    kind="scatter",
)
def _scattered(launches: Launches, call: Call) -> None:
    """A copy of the target unless it is written itself, then elements where an index says."""
    target, *others = call.tensors
    result = call.returned[0]
    if not call.base.endswith("_"):
        launches.elementwise(("copy",), [target], [result])
    indices, values = others[0], others[-1]
    by_rows = call.base.startswith("index")
    elements = max(values.elements, indices.elements)
    run = math.prod(target.shape[call.arguments.get("dim", 0) % len(target.shape) + 1 :]) if by_rows else 1
    written = _elements(result, elements, run)
    adds = "add" in call.base or "reduce" in call.base
    reads = (_spread(indices, elements), *([_spread(values, elements)] if len(others) > 1 else []))
    operator = Pointwise(("add",) if adds else ("copy",), elements, (*reads, *([written] if adds else [])), (written,))
    launches.launch(operator, [*others[:2], *([result] if adds else [])], [result])


@lowers("embedding_dense_backward", kind="fill")
def _embedding_backward(launches: Launches, call: Call) -> None:
    """Zeros, to which rows are added; more than a few are sorted first (aten/src/ATen/native/cuda/Embedding.cu)."""
    gradient, indices = call.tensors[:2]
    given = call.returned[0]
    entries, features = given.shape
    count = indices.elements
    launches.elementwise(("copy",), [], [given])
    if count > SMALL_EMBEDDING:
        sort_places(
            launches, launches.contiguous(indices) if indices.distinct == count else indices, "embedding_backward"
        )
    written = Access(gradient.elements, given.dtype, features, min(entries, count) * features)
    reads = (_spread(indices, count), whole(gradient), written)
    operator = Pointwise(("add",), gradient.elements, reads, (written,))
    launches.launch(operator, [indices, gradient], [given], "embedding_backward")


# Sorts --------------------------------------------------------------------------------------------


def sort_places(launches: Launches, places: TensorView, kind: str = "") -> None:
    """Sort keys of 64 bits with what belongs to them: passes of a radix sort (CUB)."""
    sorted_places = launches.temporary(places.shape, places.dtype_name)
    order = launches.temporary(places.shape, "int64")
    for at in range(RADIX_PASSES):
        launches.elementwise(("copy",), [places, order], [sorted_places, order], "" if at else kind)


@lowers("sort", "argsort", "msort", kind="sort")
def _sort(launches: Launches, call: Call) -> None:
    value = launches.contiguous(call.tensors[0])
    results = call.returned
    places = results[-1]
    for at in range(RADIX_PASSES):
        launches.elementwise(("copy",), [value, places], results, "" if at else None)


@lowers("topk", "kthvalue", "mode", "median", kind="topk")
def _largest(launches: Launches, call: Call) -> None:
    """A radix select, which reads a row once for each digit, then a small sort (TensorTopK.cu)."""
    value, results = call.tensors[0], call.returned
    columns = value.shape[call.arguments.get("dim", -1)]
    large = Version(launches.arithmetic.policy.version) >= LARGE_DIGITS_SINCE
    passes = value.dtype.bits // (BITS_OF_A_LARGE_DIGIT if large else BITS_OF_A_DIGIT) + PASSES_TO_GATHER
    read = Access(value.elements * passes, value.dtype, distinct=value.elements)
    writes = tuple(map(whole, results))
    operator = RowReduction("max", value.elements // columns, columns * passes, (read,), writes)
    launches.launch(operator, [value], results)
    launches.elementwise(("copy",), results, results, "")


@lowers("bincount", "histc", "one_hot", kind="scatter")
def _counted(launches: Launches, call: Call) -> None:
    value, result = call.tensors[0], call.returned[0]
    launches.elementwise(("copy",), [], [result], "fill")
    written = _elements(result, value.elements, 1)
    operator = Pointwise(("add",), value.elements, (whole(value), written), (written,))
    launches.launch(operator, [value, result], [result])
