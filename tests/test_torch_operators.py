"""Operators as PyTorch calls: what is timed computes what its row says. On the CPU; skipped without PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.measure.device import NoDeviceError, UnavailableError
from gpusim.measure.suite import ConvolutionWork, GemmWork, Operator, VectorWork
from gpusim.workloads.convolution import ConvolutionShape
from gpusim.workloads.gemm import Dtype

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")


def result(work: Operator) -> tuple[tuple[Any, ...], Any]:
    """Operands of a work and what its call makes of them."""
    from gpusim.measure.torch_operators import call_of, float32_precision

    with float32_precision(work):
        call = call_of(work, "cpu")
        operands = call.operands()
        return operands, call.run(*operands)


@pytest.mark.parametrize("layout", ["tn", "nn", "nt"])
@pytest.mark.parametrize("op", ["gemm", "linear", "bmm"])
def test_a_product_has_the_layout_and_order_of_its_row(op: Any, layout: str) -> None:
    work = GemmWork(op, Dtype.FP64, 3, 5, 7, 2 if op == "bmm" else 1, layout)
    (x, w), c = result(work)
    # BLAS, column-major: its A is the right-hand operand of a product in rows, stored as a transposed one if 'n'.
    left, right = (x.mT if layout[1] == "t" else x), (w.mT if layout[0] == "t" else w)
    rows, columns = (work.n, work.m) if op == "gemm" else (work.m, work.n)
    assert tuple(c.shape[-2:]) == (rows, columns)
    assert torch.equal(c, left @ right)
    assert x.is_contiguous()
    assert w.is_contiguous()


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.TF32, Dtype.FP16, Dtype.BF16, Dtype.INT8, Dtype.FP8])
def test_a_product_has_the_types_of_its_row(dtype: Dtype) -> None:
    (x, _), c = result(GemmWork("linear", dtype, 32, 48, 64))
    assert 8 * x.element_size() == dtype.bits
    assert 8 * c.element_size() == dtype.output_bits


def test_a_bias_is_added() -> None:
    (x, w, bias), c = result(GemmWork("linear", Dtype.FP64, 3, 5, 7, bias=True))
    assert torch.allclose(c, x @ w.mT + bias)


@pytest.mark.parametrize("dtype", [Dtype.INT8, Dtype.FP8, Dtype.BF16])
def test_two_of_every_four_values_are_pruned(dtype: Dtype) -> None:
    from gpusim.measure.torch_operators import _pruned

    a = _pruned(GemmWork("gemm", dtype, 64, 64, 256, sparsity="2:4"), "cpu")
    kept = (a.to(torch.float32) != 0).view(64, 64, 4).sum(-1)
    assert 8 * a.element_size() == dtype.bits
    assert int(kept.max()) == 2
    assert float(kept.float().mean()) == pytest.approx(2, rel=0.02)  # a drawn value may be zero itself


def test_one_of_every_two_fp32_values_is_pruned() -> None:
    from gpusim.measure.torch_operators import _pruned

    a = _pruned(GemmWork("gemm", Dtype.TF32, 64, 64, 256, sparsity="2:4"), "cpu")
    assert ((a != 0).view(64, 128, 2).sum(-1) == 1).all()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("op", ["conv_fwd", "conv_bwd_inputs", "conv_bwd_weights"])
def test_a_convolution_gives_the_gradient_that_its_row_names(op: Any, layout: str) -> None:
    shape = ConvolutionShape(2, 3, 8, 9, 4, 3, 2, (1, 0), (2, 1))
    work = ConvolutionWork(op, Dtype.FP64, shape, layout)
    (x, weight, *gradient), given = result(work)
    x, weight = x.requires_grad_(), weight.requires_grad_()
    forward = torch.nn.functional.conv2d(x, weight, stride=shape.stride, padding=shape.pad)
    assert tuple(forward.shape) == (2, 4, *shape.output)
    if op == "conv_fwd":
        assert torch.allclose(given, forward)
    else:
        wanted = x if op == "conv_bwd_inputs" else weight
        assert torch.allclose(given, torch.autograd.grad(forward, wanted, gradient[0])[0])


@pytest.mark.parametrize("op", ["softmax", "layernorm", "add", "mul", "relu", "gelu", "tanh"])
def test_a_vector_operator_keeps_its_shape_and_type(op: Any) -> None:
    (x, *_), y = result(VectorWork(op, Dtype.BF16, 8, 64))
    assert (y.shape, y.dtype) == (x.shape, x.dtype)


def test_what_pytorch_has_no_call_for_is_unavailable() -> None:
    for work in (
        GemmWork("bmm", Dtype.INT8, 32, 32, 32, 2),
        GemmWork("linear", Dtype.INT4, 32, 32, 32),
        GemmWork("gemm", Dtype.FP64, 32, 32, 32, sparsity="2:4"),
        VectorWork("add", Dtype.TF32, 8, 8),
    ):
        with pytest.raises(UnavailableError):
            result(work)


def test_the_precision_of_the_caller_comes_back() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    result(GemmWork("linear", Dtype.TF32, 8, 8, 8))
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


@pytest.mark.skipif("torch.cuda.is_available()", reason="there is a GPU")
def test_without_a_gpu_there_is_no_device() -> None:
    from gpusim.measure.torch_device import TorchDevice

    with pytest.raises(NoDeviceError, match="finds no NVIDIA GPU"):
        TorchDevice()
