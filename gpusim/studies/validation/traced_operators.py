"""What a kernel out of a trace computed, as operators: from the framework's operator, its tensors and the kernel."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import zip_longest

from gpusim.evidence.recorded_kernels import TYPES, TracedKernel, TracedTensor
from gpusim.numbers.formats import Dtype
from gpusim.units import ceil_div
from gpusim.workloads.functions import FUNCTIONS, POINTWISE
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction
from gpusim.workloads.vector import VectorOperator

Operators = tuple[VectorOperator, ...]


class NotStatedError(ValueError):
    """A trace does not say what an operator touched; the text says what is missing."""


ELEMENTWISE = {
    **{op: name for name, function in FUNCTIONS.items() if name in POINTWISE for op in function.aten},
    **{f"{name}_backward": f"{name}_backward" for name in FUNCTIONS if f"{name}_backward" in POINTWISE},
    "neg": "mul",
    **dict.fromkeys(("abs", "clamp", "clamp_min", "clamp_min_", "masked_fill_", "where", "nan_to_num"), "mask"),
    **dict.fromkeys(("log2", "sin", "cos"), "sqrt"),
    "threshold_backward": "relu_backward",
}
"""Functions by PyTorch's names, in-place ones too. Some stand for others with about as many instructions."""
COMPARING = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "bitwise_not", "bitwise_or", "bitwise_xor",
             "bitwise_or_", "bitwise_xor_", "bitwise_and_")  # fmt: skip
"""Functions whose results are truth values."""
REDUCING = {"sum": "sum", "mean": "sum", "max": "max", "min": "max", "all": "max", "any": "max", "prod": "sum"}
PLACED = re.compile("(?:Max|Min)Ops<")
"""In the name of ``reduce_kernel``: it returns the place of the largest or smallest element too."""
REDUCED_TYPE = re.compile(r"ReduceOp<(?:c10::)?(\w+(?: int)?)")
"""Type of elements in the name of ``reduce_kernel``."""
NEIGHBOURS = 4
"""Results of a thread of ``reduce_kernel<128, 4>``."""
WINDOW = 9
"""Pixels of ResNet's pooling window, which a trace does not state."""
CTA_OF_INDEXING = 512
"""Elements of a CTA of ``index_elementwise_kernel<128, 4>``."""


def operators_of(row: TracedKernel) -> Operators:
    """The operators whose kernels together do what the recorded one did.

    Raises:
        NotStatedError: the trace does not say what it touched.
    """
    for kinds, read in READERS.items():
        if row.kind in kinds:
            return read(row)
    raise NotStatedError(f"{row.kind}: what it touches depends on values, or is not an operator of a model")


def _elementwise(row: TracedKernel) -> Operators:
    if not row.tensors:
        raise NotStatedError(f"{row.op}: no shape is recorded")
    if row.op == "fill_":
        return _pointwise("copy", (), row.tensors[0])
    elements = _broadcast_elements(row.tensors)
    alike = len({tensor.elements for tensor in row.tensors}) == 1
    # Tensors of one shape that are not taken in order: how they lie is not recorded.
    run = row.tensors[0].shape[-1] if row.kind == "elementwise_kernel" and alike else None
    if row.op == "copy_":
        return _pointwise("copy", row.tensors[-1:], row.tensors[0], run)
    if row.op in COMPARING:
        return _pointwise("mask", row.tensors, TracedTensor((elements,), Dtype.INT8), run)
    if row.op not in ELEMENTWISE:
        raise NotStatedError(f"{row.op}: its arithmetic is not known")
    widest = max((_dtype(tensor) for tensor in row.tensors), key=lambda dtype: (dtype is not Dtype.INT8, dtype.bits))
    return _pointwise(ELEMENTWISE[row.op], row.tensors, TracedTensor((elements,), widest), run)


def _broadcast_elements(tensors: Sequence[TracedTensor]) -> int:
    """Elements of the result of broadcasting: dimensions are matched from the last one on."""
    backwards = zip_longest(*(reversed(tensor.shape) for tensor in tensors), fillvalue=1)
    return math.prod(max(extents) for extents in backwards)


def _pointwise(
    function: str, reads: Sequence[TracedTensor], written: TracedTensor, run: int | None = None
) -> Operators:
    elements = written.elements
    touched = tuple(Access(elements, _dtype(one), run, one.elements) for one in reads)
    return (Pointwise((function,), elements, touched, (Access(elements, _dtype(written)),)),)


def _cat(row: TracedKernel) -> Operators:
    names = [name for name in TYPES if f"<{name}," in row.kernel.lower() or f"::{name}," in row.kernel.lower()]
    if not names:
        raise NotStatedError("cat: the type of its elements is not recorded")
    return _moved(row.tensors[0].elements, TYPES[names[0]])


def _moved(elements: int, dtype: Dtype, run: int | None = None) -> Operators:
    return (Pointwise(("copy",), elements, (Access(elements, dtype, run),), (Access(elements, dtype),)),)


def _index(row: TracedKernel) -> Operators:
    if row.op != "index" or not row.tensors:
        raise NotStatedError(f"{row.op}: how many elements it touches is not recorded")
    tensor = row.tensors[0]
    return _moved(row.grid[0] * CTA_OF_INDEXING, _dtype(tensor), math.prod(tensor.shape[1:]))


def _reduction(row: TracedKernel) -> Operators:
    """A reduction along the last dimension, or along others where the grid says so.

    The kernel's name has the type that it reads, to which sums of short types were converted before.
    """
    if row.op not in REDUCING or not row.tensors:
        raise NotStatedError(f"{row.op}: what it reduces is not recorded")
    tensor = row.tensors[0]
    function, n = "arg_max" if PLACED.search(row.kernel) else REDUCING[row.op], tensor.shape[-1]
    named = REDUCED_TYPE.search(row.kernel)
    dtype = TYPES.get(named[1], tensor.dtype) if named else tensor.dtype
    if dtype is None:
        raise NotStatedError("types of lists of tensors are not recorded")
    read = (Access(tensor.elements, dtype),)
    of_cta = row.block[0] * (NEIGHBOURS if "<128, 4" in row.kernel else 1)
    for kept in (n, *(tensor.elements // size for size in tensor.shape[:-1])):
        if row.grid[0] == ceil_div(kept, of_cta):
            return (ColumnReduction(function, tensor.elements // kept, kept, read, (Access(kept, dtype),)),)
    m = tensor.elements // n
    return (RowReduction(function, m, n, read, (Access(m, dtype),)),)


def _norm(row: TracedKernel) -> Operators:
    tensor = row.tensors[0]
    n = tensor.shape[-1]
    m, dtype = tensor.elements // n, _dtype(tensor)
    x, parameter = Access(m * n, dtype), Access(m * n, dtype, distinct=n)
    if row.kind == "GammaBetaBackwardCUDAKernel":
        return (ColumnReduction("norm_weight_gradients", m, n, (x, x), (Access(n, dtype), Access(n, dtype))),)
    if row.kind == "layer_norm_grad_input_kernel":
        return (RowReduction("layer_norm_backward", m, n, (x, x, parameter), (x,)),)
    return (RowReduction("layer_norm", m, n, (x, parameter, parameter), (x,)),)


def _softmax(row: TracedKernel) -> Operators:
    tensor = row.tensors[0]
    n = tensor.shape[-1]
    x = Access(tensor.elements, _dtype(tensor))
    return (RowReduction("softmax", tensor.elements // n, n, (x,), (x,)),)


def _batch_norm(row: TracedKernel) -> Operators:
    """Statistics and normalising, which cuDNN does in one kernel."""
    images = row.tensors[0]
    channels, pixels, dtype = images.shape[1], math.prod(images.shape[2:]), _dtype(images)
    x, parameter = Access(images.elements, dtype, run=pixels), Access(images.elements, Dtype.FP32, distinct=channels)
    result, sums = Access(images.elements, dtype), Access(channels, Dtype.FP32)
    m = images.elements // channels
    if "_bw_" in row.kind:
        gradients = ColumnReduction("batch_norm_gradients", m, channels, (x, x), (sums, sums))
        rest = Pointwise(("normalise_backward",), images.elements, (x, x, parameter, parameter), (result,))
        return gradients, rest
    statistics = ColumnReduction("mean_variance", m, channels, (x,), (sums, sums))
    return statistics, Pointwise(("normalise",), images.elements, (x, parameter, parameter), (result,))


def _pool(row: TracedKernel) -> Operators:
    images = row.tensors[0]
    elements = row.grid[0] * row.block[0]
    window = Access(elements * WINDOW, _dtype(images), distinct=images.elements)
    results = Access(elements, _dtype(images)), Access(elements, Dtype.FP64)
    return (Pointwise(("max_pool",), elements, (window,), results),)


def _dtype(tensor: TracedTensor) -> Dtype:
    if tensor.dtype is None:
        raise NotStatedError("types of lists of tensors are not recorded")
    return tensor.dtype


READERS: dict[tuple[str, ...], Callable[[TracedKernel], Operators]] = {
    ("vectorized_elementwise_kernel", "unrolled_elementwise_kernel", "elementwise_kernel"): _elementwise,
    ("CatArrayBatchedCopy", "CatArrayBatchedCopy_aligned16_contig"): _cat,
    ("index_elementwise_kernel",): _index,
    ("reduce_kernel",): _reduction,
    ("vectorized_layer_norm_kernel", "layer_norm_grad_input_kernel", "GammaBetaBackwardCUDAKernel"): _norm,
    ("cunn_SoftMaxForward", "softmax_warp_forward"): _softmax,
    ("bn_fw_tr_1C11_kernel_NCHW", "bn_bw_1C11_kernel_new"): _batch_norm,
    ("max_pool_forward_nchw",): _pool,
}
"""Who reads rows of which kernels."""
