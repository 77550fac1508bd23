"""Operators as PyTorch calls: the timed call computes what its row states. On the CPU; skipped without PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.measure.device import NoDeviceError, UnavailableError
from gpusim.numbers.formats import Dtype
from gpusim.workloads.convolution import Convolution, ConvolutionShape
from gpusim.workloads.functions import SCHEMA_FUNCTIONS
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator, parse_operator
from gpusim.workloads.vector import Elementwise, Reduction

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")


def result(operator: Operator) -> tuple[tuple[Any, ...], Any]:
    """Operands of an operator, and what its call computes from them."""
    from gpusim.measure.torch_operators import call_of, float32_precision

    with float32_precision(operator):
        call = call_of(operator, "cpu")
        operands = call.operands()
        return operands, call.run(*operands)


@pytest.mark.parametrize("layout", ["tn", "nn", "nt"])
@pytest.mark.parametrize(("op", "order"), [("gemm", "row"), ("gemm", "column"), ("linear", "row"), ("bmm", "row")])
def test_a_product_has_the_layout_and_order_of_its_row(op: Any, order: str, layout: str) -> None:
    operator = Gemm(3, 5, 7, Dtype.FP64, 2 if op == "bmm" else 1, layout, order=order, op=op)
    (x, w), c = result(operator)
    # BLAS, column-major: its A is the right-hand operand of a product in rows, stored as a transposed one if 'n'.
    left, right = (x.mT if layout[1] == "t" else x), (w.mT if layout[0] == "t" else w)
    rows, columns = (operator.n, operator.m) if order == "column" else (operator.m, operator.n)
    assert tuple(c.shape[-2:]) == (rows, columns)
    assert torch.equal(c, left @ right)
    assert x.is_contiguous()
    assert w.is_contiguous()


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.TF32, Dtype.FP16, Dtype.BF16, Dtype.INT8, Dtype.FP8])
def test_a_product_has_the_types_of_its_row(dtype: Dtype) -> None:
    (x, _), c = result(Gemm(32, 48, 64, dtype, op="linear"))
    assert 8 * x.element_size() == dtype.bits
    assert 8 * c.element_size() == dtype.output_bits


def test_a_bias_is_added() -> None:
    (x, w, bias), c = result(Gemm(3, 5, 7, Dtype.FP64, op="linear", bias=True))
    assert torch.allclose(c, x @ w.mT + bias)


@pytest.mark.parametrize("dtype", [Dtype.INT8, Dtype.FP8, Dtype.BF16])
def test_two_of_every_four_values_are_pruned(dtype: Dtype) -> None:
    from gpusim.measure.torch_operators import _pruned

    a = _pruned(Gemm(64, 64, 256, dtype, order="column", op="gemm", sparsity="2:4"), "cpu")
    kept = (a.to(torch.float32) != 0).view(64, 64, 4).sum(-1)
    assert 8 * a.element_size() == dtype.bits
    assert int(kept.max()) == 2
    assert float(kept.float().mean()) == pytest.approx(2, rel=0.02)  # a drawn value may be zero itself


def test_one_of_every_two_fp32_values_is_pruned() -> None:
    from gpusim.measure.torch_operators import _pruned

    a = _pruned(Gemm(64, 64, 256, Dtype.TF32, order="column", op="gemm", sparsity="2:4"), "cpu")
    assert ((a != 0).view(64, 128, 2).sum(-1) == 1).all()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("op", ["conv_fwd", "conv_bwd_inputs", "conv_bwd_weights"])
def test_a_convolution_gives_the_gradient_that_its_row_names(op: Any, layout: str) -> None:
    shape = ConvolutionShape(2, 3, 8, 9, 4, 3, 2, (1, 0), (2, 1))
    operator = Convolution(shape, Dtype.FP64, op, layout)
    (x, weight, *gradient), given = result(operator)
    x, weight = x.requires_grad_(), weight.requires_grad_()
    forward = torch.nn.functional.conv2d(x, weight, stride=shape.stride, padding=shape.pad)
    assert tuple(forward.shape) == (2, 4, *shape.output)
    if op == "conv_fwd":
        assert torch.allclose(given, forward)
    else:
        wanted = x if op == "conv_bwd_inputs" else weight
        assert torch.allclose(given, torch.autograd.grad(forward, wanted, gradient[0])[0])


@pytest.mark.parametrize("op", ["softmax", "layernorm", *SCHEMA_FUNCTIONS])
def test_a_vector_operator_keeps_its_shape_and_type(op: Any) -> None:
    (x, *_), y = result(parse_operator({"op": op, "m": 8, "n": 64, "dtype": "bf16"}))
    assert (y.shape, y.dtype) == (x.shape, x.dtype)


def test_what_pytorch_has_no_call_for_is_unavailable() -> None:
    for operator in (
        Gemm(32, 32, 32, Dtype.INT8, 2, op="bmm"),
        Gemm(32, 32, 32, Dtype.INT4, op="linear"),
        Gemm(32, 32, 32, Dtype.FP64, order="column", op="gemm", sparsity="2:4"),
        Elementwise(8, 8, Dtype.TF32, "add"),
    ):
        with pytest.raises(UnavailableError):
            result(operator)


def test_the_precision_of_the_caller_comes_back() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    result(Gemm(8, 8, 8, Dtype.TF32, op="linear"))
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


@pytest.mark.skipif("torch.cuda.is_available()", reason="there is a GPU")
def test_without_a_gpu_there_is_no_device() -> None:
    from gpusim.measure.torch_device import TorchDevice

    with pytest.raises(NoDeviceError, match="finds no NVIDIA GPU"):
        TorchDevice()


def test_a_sum_has_one_number_for_each_row() -> None:
    (x,), y = result(Reduction(8, 64, Dtype.FP32))
    assert torch.equal(y, x.sum(-1))
