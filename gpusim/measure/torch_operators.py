"""Operators as PyTorch calls: random operands on the GPU, and the call that is measured.

Random data, because zeros need less power and run faster. Each call returns a new result, as in a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gpusim.measure.device import UnavailableError
from gpusim.measure.suite import ConvolutionWork, GemmWork, Operator, VectorWork
from gpusim.workloads.gemm import Dtype

TorchTensor = Any  # torch.Tensor, where PyTorch is installed
Operands = tuple[TorchTensor, ...]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator: a function that makes its operands, and the call to time."""

    operands: Callable[[], Operands]
    run: Callable[..., TorchTensor]
    algorithm: str = ""


def call_of(work: Operator, device: str) -> OperatorCall:
    """The PyTorch call of an operator.

    Raises:
        UnavailableError: PyTorch has none; it may also raise when the call runs.
    """
    match work:
        case GemmWork(sparsity="2:4"):
            return _sparse_gemm(work, device)
        case GemmWork():
            return _dense_gemm(work, device)
        case ConvolutionWork():
            return _convolution(work, device)
        case VectorWork():
            return _vector(work, device)


@contextmanager
def float32_precision(work: Operator) -> Iterator[None]:
    """Allow TF32 for FP32 tensors or not, by the operator's type, while the context is open."""
    matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    tf32 = work.dtype is Dtype.TF32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = cudnn


def _torch_dtype(dtype: Dtype) -> Any:
    names = {
        Dtype.FP64: "float64",
        Dtype.FP32: "float32",
        Dtype.TF32: "float32",
        Dtype.FP16: "float16",
        Dtype.BF16: "bfloat16",
        Dtype.INT8: "int8",
        Dtype.FP8: "float8_e4m3fn",
    }
    if dtype not in names or not hasattr(torch, names[dtype]):
        raise UnavailableError(f"this PyTorch has no {dtype.value} tensors")
    return getattr(torch, names[dtype])


def _random(shape: tuple[int, ...], dtype: Dtype, device: str) -> TorchTensor:
    """Normal random numbers; uniform over all values for integers."""
    kind = _torch_dtype(dtype)
    if dtype is Dtype.INT8:
        return torch.randint(-128, 128, shape, dtype=kind, device=device)
    if dtype is Dtype.FP8:
        return torch.randn(shape, dtype=torch.bfloat16, device=device).to(kind)
    return torch.randn(shape, dtype=kind, device=device)


def _refuse_types(work: Operator, *types: Dtype) -> None:
    if work.dtype in types:
        raise UnavailableError(f"PyTorch has no {work.op} in {work.dtype.value}")


def _dense_gemm(work: GemmWork, device: str) -> OperatorCall:
    """C row-major as in frameworks; a BLAS ``gemm`` is column-major, the transposed product in row-major."""
    rows, columns = (work.n, work.m) if work.op == "gemm" else (work.m, work.n)
    batch = (work.batch,) if work.op == "bmm" else ()
    if batch or work.bias:
        _refuse_types(work, Dtype.INT8, Dtype.FP8)
    # BLAS's A, whose letter is the layout's first, is the right-hand operand of a product in rows.
    right_transposed, left_transposed = (letter == "t" for letter in work.layout)
    left = (*batch, work.k, rows) if left_transposed else (*batch, rows, work.k)
    right = (*batch, columns, work.k) if right_transposed else (*batch, work.k, columns)
    multiply = _product(work, device)

    def operands() -> Operands:
        bias = (_random((columns,), work.dtype, device),) if work.bias else ()
        return (_random(left, work.dtype, device), _random(right, work.dtype, device), *bias)

    def run(x: TorchTensor, w: TorchTensor, *bias: TorchTensor) -> TorchTensor:
        return multiply(x.mT if left_transposed else x, w.mT if right_transposed else w, *bias)

    return OperatorCall(operands, run)


def _product(work: GemmWork, device: str) -> Callable[..., TorchTensor]:
    """The function that multiplies two matrices of the operator's type."""
    if work.op == "bmm" and work.bias:
        raise UnavailableError("bmm takes no bias")
    one = torch.ones((), dtype=torch.float32, device=device)

    def scaled(x: TorchTensor, w: TorchTensor) -> TorchTensor:
        return torch._scaled_mm(  # noqa: SLF001 -- PyTorch has no public name for it
            x, w, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    def biased(x: TorchTensor, w: TorchTensor, bias: TorchTensor) -> TorchTensor:
        return torch.addmm(bias, x, w)

    product: Callable[..., TorchTensor] = torch.bmm if work.op == "bmm" else torch.mm
    if work.dtype is Dtype.INT8:
        product = torch._int_mm  # noqa: SLF001 -- no public name
    elif work.dtype is Dtype.FP8:
        product = scaled
    elif work.bias:
        product = biased
    return product


def _sparse_gemm(work: GemmWork, device: str) -> OperatorCall:
    """Compressed 2:4 A times dense B through cuSPARSELt, C column-major."""
    if work.dtype in (Dtype.FP32, Dtype.FP64):
        raise UnavailableError(f"2:4 sparsity has no {work.dtype.value} path; FP32 tensors go through tf32")
    if not hasattr(torch, "_cslt_compress") or not torch.backends.cusparselt.is_available():
        return _sparse_gemm_without_cusparselt(work, device)
    result_kind = {Dtype.INT8: torch.int32, Dtype.FP8: torch.bfloat16}.get(work.dtype)

    def operands() -> Operands:
        compressed = torch._cslt_compress(_pruned(work, device))  # noqa: SLF001 -- no public name
        return compressed, _random((work.n, work.k), work.dtype, device)

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


def _sparse_gemm_without_cusparselt(work: GemmWork, device: str) -> OperatorCall:
    """The same with PyTorch's CUTLASS kernels."""
    if not hasattr(torch.sparse, "to_sparse_semi_structured"):
        raise UnavailableError("this PyTorch has neither cuSPARSELt nor semi-structured tensors")

    def operands() -> Operands:
        return torch.sparse.to_sparse_semi_structured(_pruned(work, device)), _random(
            (work.n, work.k), work.dtype, device
        )

    return OperatorCall(operands, lambda a, b: torch.mm(a, b.mT), "cutlass")


def _pruned(work: GemmWork, device: str) -> TorchTensor:
    """A[m, k] with two random values of every four along k set to zero.

    For FP32 tensors one of every two, the pattern of Sparse Tensor Cores for TF32.
    """
    if work.k % 4:
        raise UnavailableError("2:4 needs a k that is a multiple of 4")
    one_of_two = [[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]]
    patterns = one_of_two if work.dtype is Dtype.TF32 else [*one_of_two, [1, 1, 0, 0], [0, 0, 1, 1]]
    pairs = torch.tensor(patterns, dtype=torch.int8, device=device)
    drawn = torch.randint(0, len(pairs), (work.m * work.k // 4,), dtype=torch.int32, device=device)
    kept = pairs[drawn].reshape(work.m, work.k)
    if work.dtype is Dtype.FP8:
        dense = _random((work.m, work.k), Dtype.BF16, device)
        return (dense * kept).to(_torch_dtype(Dtype.FP8))
    dense = _random((work.m, work.k), work.dtype, device)
    return dense * kept.to(dense.dtype)


def _convolution(work: ConvolutionWork, device: str) -> OperatorCall:
    _refuse_types(work, Dtype.INT8, Dtype.FP8, Dtype.INT4)
    form = torch.channels_last if work.layout == "nhwc" else torch.contiguous_format
    shape = work.shape
    image = (shape.images, shape.channels, shape.height, shape.width)

    def tensor(*sizes: int) -> TorchTensor:
        return _random(sizes, work.dtype, device).to(memory_format=form)

    def operands() -> Operands:
        weight = tensor(shape.filters, shape.channels, shape.filter_h, shape.filter_w)
        if work.op == "conv_fwd":
            return tensor(*image), weight
        return tensor(*image), weight, tensor(shape.images, shape.filters, *shape.output)

    def forward(x: TorchTensor, weight: TorchTensor) -> TorchTensor:
        return torch.conv2d(x, weight, None, shape.stride, shape.pad)

    wanted = [work.op == "conv_bwd_inputs", work.op == "conv_bwd_weights", False]

    def backward(x: TorchTensor, weight: TorchTensor, gradient: TorchTensor) -> TorchTensor:
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, list(shape.stride), list(shape.pad), [1, 1], False, [0, 0], 1, wanted
        )
        return gradients[wanted.index(True)]

    return OperatorCall(operands, forward if work.op == "conv_fwd" else backward)


def _vector(work: VectorWork, device: str) -> OperatorCall:
    _refuse_types(work, Dtype.INT8, Dtype.FP8, Dtype.INT4, Dtype.TF32)
    shape = (work.m, work.n)
    functional = torch.nn.functional
    functions: dict[str, Callable[..., TorchTensor]] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, weight, bias: functional.layer_norm(x, (work.n,), weight, bias),
        "add": torch.add,
        "mul": torch.mul,
        "relu": torch.relu,
        "gelu": functional.gelu,
        "tanh": torch.tanh,
    }
    others: dict[str, list[tuple[int, ...]]] = {"add": [shape], "mul": [shape], "layernorm": [(work.n,), (work.n,)]}

    def operands() -> Operands:
        return tuple(_random(one, work.dtype, device) for one in [shape, *others.get(work.op, [])])

    return OperatorCall(operands, functions[work.op])
