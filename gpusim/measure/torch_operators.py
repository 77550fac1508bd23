"""Operators as PyTorch calls: random operands on the GPU, and the call that is measured.

Random data, because zeros need less power and run faster. Each call returns a new result, as in a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gpusim.measure.device import UnavailableError
from gpusim.numbers.formats import FORMATS, Dtype, NumberFormat
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.functions import SCHEMA_FUNCTIONS
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import ColumnReduction, Pointwise, RowReduction
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import Elementwise, LayerNorm, RowsOperator

TorchTensor = Any  # torch.Tensor, where PyTorch is installed
Operands = tuple[TorchTensor, ...]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator: a function that makes its operands, and the call to time."""

    operands: Callable[[], Operands]
    run: Callable[..., TorchTensor]
    algorithm: str = ""


def call_of(operator: Operator, device: str) -> OperatorCall:
    """The PyTorch call of an operator.

    Raises:
        UnavailableError: PyTorch has none; it may also raise when the call runs.
    """
    match operator:
        case Gemm(b_dtype=Dtype()):
            raise UnavailableError("PyTorch has no GEMM of two data types")
        case Gemm() if operator.scales or operator.counts:
            raise UnavailableError("GEMMs with scales, and of groups, are not measured")
        case Gemm(reads_c=True):
            raise UnavailableError("GEMMs that add to C are not measured")
        case Gemm(sparsity="2:4"):
            return _sparse_gemm(operator, device)
        case Gemm():
            return _dense_gemm(operator, device)
        case Convolution():
            return _convolution(operator, device)
        case Attention():
            return _attention(operator, device)
        case Pointwise() | RowReduction() | ColumnReduction():
            raise UnavailableError(f"{operator.op} is not a call of PyTorch: measure the operators that it stands for")
        case _:
            return _on_rows(operator, device)


@contextmanager
def float32_precision(operator: Operator) -> Iterator[None]:
    """Allow TF32 for FP32 tensors or not, by the operator's type, while the context is open."""
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    tf32 = operator.dtype is Dtype.TF32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn


def _torch_dtype(one: NumberFormat) -> Any:
    if not one.names.torch or not hasattr(torch, one.names.torch):
        raise UnavailableError(f"this PyTorch has no {one.name} tensors")
    return getattr(torch, one.names.torch)


def _random(shape: tuple[int, ...], dtype: Dtype, device: str) -> TorchTensor:
    """Normal random numbers; uniform over all values for integers."""
    one = dtype.format
    kind = _torch_dtype(one)
    if one.is_integer:
        return torch.randint(-int(one.largest) - 1, int(one.largest) + 1, shape, dtype=kind, device=device)
    return torch.randn(shape, dtype=_drawn_in(dtype), device=device).to(kind)


def _drawn_in(dtype: Dtype) -> Any:
    """Tensor type of the random generator, which has no 8-bit floating point."""
    return _torch_dtype(FORMATS[dtype.default_output] if _is_narrow(dtype) else dtype.format)


def _is_narrow(dtype: Dtype) -> bool:
    """Less than 16 bits: PyTorch multiplies these in functions of their own and has few other operators for them."""
    return dtype.bits < FORMATS["fp16"].bits


def _refuse_narrow(operator: Operator) -> None:
    if _is_narrow(operator.dtype):
        raise _unavailable(operator)


def _unavailable(operator: Operator) -> UnavailableError:
    return UnavailableError(f"PyTorch has no {operator.op} in {operator.dtype.value}")


def _dense_gemm(gemm: Gemm, device: str) -> OperatorCall:
    """C row-major as in frameworks; C in columns is the transposed GEMM in row-major."""
    rows, columns = (gemm.n, gemm.m) if gemm.order == "column" else (gemm.m, gemm.n)
    batch = (gemm.batch,) if _is_batched(gemm) else ()
    if batch or gemm.bias:
        _refuse_narrow(gemm)
    # BLAS's A, whose letter is the layout's first, is the right-hand operand of a GEMM in rows.
    right_transposed, left_transposed = (letter == "t" for letter in gemm.layout)
    left = (*batch, gemm.k, rows) if left_transposed else (*batch, rows, gemm.k)
    right = (*batch, columns, gemm.k) if right_transposed else (*batch, gemm.k, columns)
    multiply = _product(gemm, device)

    def operands() -> Operands:
        bias = (_random((columns,), gemm.dtype, device),) if gemm.bias else ()
        return (_random(left, gemm.dtype, device), _random(right, gemm.dtype, device), *bias)

    def run(x: TorchTensor, w: TorchTensor, *bias: TorchTensor) -> TorchTensor:
        return multiply(x.mT if left_transposed else x, w.mT if right_transposed else w, *bias)

    return OperatorCall(operands, run)


def _is_batched(gemm: Gemm) -> bool:
    """Whether PyTorch multiplies several matrices in one call, of ``bmm`` also one."""
    return gemm.op == "bmm" or gemm.batch > 1


def _product(gemm: Gemm, device: str) -> Callable[..., TorchTensor]:
    """The function that multiplies two matrices of the operator's type."""
    one = torch.ones((), dtype=torch.float32, device=device)

    def scaled(x: TorchTensor, w: TorchTensor) -> TorchTensor:
        return torch._scaled_mm(  # noqa: SLF001 -- PyTorch has no public name for it
            x, w, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    def biased(x: TorchTensor, w: TorchTensor, bias: TorchTensor) -> TorchTensor:
        return torch.addmm(bias, x, w)

    product: Callable[..., TorchTensor] = torch.bmm if _is_batched(gemm) else torch.mm
    if _is_narrow(gemm.dtype):
        product = torch._int_mm if gemm.dtype.format.is_integer else scaled  # noqa: SLF001 -- no public name
    elif gemm.bias:
        product = biased
    return product


def _sparse_gemm(gemm: Gemm, device: str) -> OperatorCall:
    """Compressed 2:4 A times dense B through cuSPARSELt, C column-major."""
    if gemm.dtype.format.sparse is None:
        raise UnavailableError(f"2:4 sparsity has no {gemm.dtype.value} path; FP32 tensors go through tf32")
    if not hasattr(torch, "_cslt_compress") or not torch.backends.cusparselt.is_available():
        return _sparse_gemm_without_cusparselt(gemm, device)
    result_kind = _torch_dtype(FORMATS[gemm.output]) if _is_narrow(gemm.dtype) else None

    def operands() -> Operands:
        compressed = torch._cslt_compress(_pruned(gemm, device))  # noqa: SLF001 -- no public name
        return compressed, _random((gemm.n, gemm.k), gemm.dtype, device)

    def multiply(compressed: TorchTensor, b: TorchTensor, *choice: int) -> TorchTensor:
        return torch._cslt_sparse_mm(  # noqa: SLF001 -- no public name
            compressed, b.mT, None, None, result_kind, True, *choice
        )

    compressed, b = operands()
    try:
        choice = _searched(compressed, b, result_kind)
        multiply(compressed, b, *choice)
    except (RuntimeError, TypeError, ValueError, AttributeError):
        choice = (0,)  # cuSPARSELt's default algorithm

    def run(compressed: TorchTensor, b: TorchTensor) -> TorchTensor:
        return multiply(compressed, b, *choice)

    return OperatorCall(operands, run, "cusparselt:" + "/".join(str(int(part)) for part in choice))


def _searched(compressed: TorchTensor, b: TorchTensor, result_kind: Any) -> tuple[int, ...]:
    """The fastest algorithm found by cuSPARSELt's search, with its split-K if any."""
    try:
        search = torch._C._cusparselt.mm_search  # noqa: SLF001 -- no public name, from PyTorch 2.5 on
    except AttributeError:
        search_2_4 = torch._cslt_sparse_mm_search  # noqa: SLF001 -- no public name
        return (int(search_2_4(compressed, b.mT, None, None, result_kind, True)),)
    algorithm, split_k, split_k_mode, _ = search(compressed, b.mT, None, None, result_kind, True)
    return (algorithm,) if split_k == 1 else (algorithm, split_k, split_k_mode)


def _sparse_gemm_without_cusparselt(gemm: Gemm, device: str) -> OperatorCall:
    """A 2:4 sparse GEMM by PyTorch's CUTLASS kernels."""
    if not hasattr(torch.sparse, "to_sparse_semi_structured"):
        raise UnavailableError("this PyTorch has neither cuSPARSELt nor semi-structured tensors")

    def operands() -> Operands:
        return torch.sparse.to_sparse_semi_structured(_pruned(gemm, device)), _random(
            (gemm.n, gemm.k), gemm.dtype, device
        )

    return OperatorCall(operands, lambda a, b: torch.mm(a, b.mT), "cutlass")


def _pruned(gemm: Gemm, device: str) -> TorchTensor:
    """A[m, k] with two random values of every four along k set to zero.

    One of every two where that is the pattern of Sparse Tensor Cores (TF32).
    """
    if gemm.k % 4:
        raise UnavailableError("2:4 needs a k that is a multiple of 4")
    one_of_two = [[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]]
    pattern = gemm.dtype.format.sparse
    patterns = one_of_two if pattern and pattern.chunk == 2 else [*one_of_two, [1, 1, 0, 0], [0, 0, 1, 1]]
    pairs = torch.tensor(patterns, dtype=torch.int8, device=device)
    drawn = torch.randint(0, len(pairs), (gemm.m * gemm.k // 4,), dtype=torch.int32, device=device)
    kept = pairs[drawn].reshape(gemm.m, gemm.k)
    dense = _random((gemm.m, gemm.k), gemm.dtype, device)
    between = dense.dtype if gemm.dtype.format.is_integer else _drawn_in(gemm.dtype)
    return (dense.to(between) * kept.to(between)).to(dense.dtype)


def _convolution(operator: Convolution, device: str) -> OperatorCall:
    _refuse_narrow(operator)
    form = torch.channels_last if operator.layout == "nhwc" else torch.contiguous_format
    shape = operator.shape
    image = (shape.images, shape.channels, shape.height, shape.width)

    def tensor(*sizes: int) -> TorchTensor:
        return _random(sizes, operator.dtype, device).to(memory_format=form)

    def operands() -> Operands:
        weight = tensor(shape.filters, shape.channels // shape.groups, shape.filter_h, shape.filter_w)
        if operator.op == "conv_fwd":
            return tensor(*image), weight
        return tensor(*image), weight, tensor(shape.images, shape.filters, *shape.output)

    def forward(x: TorchTensor, weight: TorchTensor) -> TorchTensor:
        return torch.conv2d(x, weight, None, shape.stride, shape.pad, groups=shape.groups)

    wanted = [operator.op == "conv_bwd_inputs", operator.op == "conv_bwd_weights", False]

    def backward(x: TorchTensor, weight: TorchTensor, gradient: TorchTensor) -> TorchTensor:
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, list(shape.stride), list(shape.pad), [1, 1], False, [0, 0], shape.groups, wanted
        )
        return gradients[wanted.index(True)]

    return OperatorCall(operands, forward if operator.op == "conv_fwd" else backward)


def _attention(operator: Attention, device: str) -> OperatorCall:
    if operator.backward or operator.mask:
        raise UnavailableError(f"{operator.op} with a mask or backward is not measured yet")
    sizes = (
        (operator.heads, operator.queries),
        (operator.held_heads, operator.keys),
        (operator.held_heads, operator.keys),
    )
    chosen = {"is_causal": operator.causal, "dropout_p": 0.1 if operator.dropout else 0.0}
    chosen |= {"enable_gqa": True} if operator.key_heads else {}

    def operands() -> Operands:
        shapes = ((operator.batch, heads, rows, operator.head_dim) for heads, rows in sizes)
        return tuple(_random(shape, operator.dtype, device) for shape in shapes)

    return OperatorCall(operands, partial(torch.nn.functional.scaled_dot_product_attention, **chosen))


def _on_rows(operator: RowsOperator, device: str) -> OperatorCall:
    _refuse_narrow(operator)
    if operator.dtype.format.stored_as:
        raise _unavailable(operator)
    shape = (operator.m, operator.n)
    functional = torch.nn.functional
    functions: dict[str, Callable[..., TorchTensor]] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, weight, bias: functional.layer_norm(x, (operator.n,), weight, bias),
        **{name: _elementwise(function.aten[0]) for name, function in SCHEMA_FUNCTIONS.items()},
        "sum": lambda x: torch.sum(x, -1),
    }
    shapes: list[tuple[int, ...]] = [shape]
    if isinstance(operator, Elementwise):
        shapes *= len(operator.reads)
    if isinstance(operator, LayerNorm):
        shapes += [(operator.n,), (operator.n,)]

    def operands() -> Operands:
        return tuple(_random(one, operator.dtype, device) for one in shapes)

    return OperatorCall(operands, functions[operator.op])


def _elementwise(name: str) -> Callable[..., TorchTensor]:
    """A function of PyTorch, of ``torch`` itself or of ``torch.nn.functional``."""
    function: Callable[..., TorchTensor] = getattr(torch if hasattr(torch, name) else torch.nn.functional, name)
    return function
