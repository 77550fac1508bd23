"""Math modes: every rule with its boundaries, laws over random settings, and the command."""

from __future__ import annotations

import json
import shlex
from functools import cache
from itertools import product

import pytest
from conftest import RunGpusim, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.hardware.gpu import Gpu
from gpusim.mathmode.resolve import FrameworkOperation, MathMode, MathModeError, resolve
from gpusim.mathmode.rulebook import HARDWARE, build_in, frameworks, load_rulebook, release_in
from gpusim.numbers.formats import DTYPE_OF_TENSORS
from gpusim.specs import list_archs, load_spec

V100, T4, A100 = "V100-SXM2-16GB", "T4", "A100-SXM4-40GB"
TF32_BY_CALL = ("tf32 tensor fp32", "jax-call-reduced")
TF32_ALWAYS = ("tf32 tensor fp32", "jax-0.4.3-ignores-precision")


@cache
def gpu(name: str) -> Gpu:
    """A shipped board, or one with dense instructions taken away or given another type."""
    if name == "A100 without TF32":
        return changed(A100, "tf32", None)
    if name == "V100 without FP16 Tensor Cores":
        return changed(V100, "fp16", None)
    if name == "A100 with FP8":
        return changed(A100, "int4", "fp8")
    return load_spec(name).gpu


def changed(board: str, old: str, new: str | None) -> Gpu:
    arch = load_spec(board).gpu
    instructions = {}
    for key, one in arch.instructions.items():
        if one.unit == "tensor" and old in one.inputs:
            if new is None:
                continue
            instructions[key] = one.model_copy(update={"inputs": (new,)})
        else:
            instructions[key] = one
    return arch.model_copy(update={"instructions": instructions})


def ask(operation: str, board: str) -> MathMode:
    """``framework version op dtype [NAME=VALUE ...]``; names in capitals are environment variables."""
    framework, version, op, dtype, *given_ = operation.split()
    pairs = dict(text.split("=", 1) for text in given_)
    return resolve(
        FrameworkOperation(
            framework,
            version,
            op,
            dtype,
            {name: value for name, value in pairs.items() if not name.isupper()},
            {name: value for name, value in pairs.items() if name.isupper()},
        ),
        gpu(board),
    )


# Rows: the operation, the GPU, its path, unit and accumulator, the rule that decides ----------------

DECIDED = [
    # PyTorch, matrix products: the default by version
    ("pytorch 1.6 matmul fp32", A100, "fp32 cuda fp32", "pytorch-before-1.7-has-no-tf32"),
    ("pytorch 1.6.1 conv2d fp32", A100, "fp32 cuda fp32", "pytorch-before-1.7-has-no-tf32"),
    ("pytorch 1.7 matmul fp32", A100, "tf32 tensor fp32", "pytorch-1.7-matmul-tf32-by-default"),
    ("pytorch 1.11.0 linear fp32", A100, "tf32 tensor fp32", "pytorch-1.7-matmul-tf32-by-default"),
    ("pytorch 1.12 matmul fp32", A100, "fp32 cuda fp32", "pytorch-1.12-matmul-fp32-by-default"),
    ("pytorch 1.13.0a0+08820cb matmul fp32", A100, "fp32 cuda fp32", "pytorch-1.12-matmul-fp32-by-default"),
    ("pytorch 2.15 bmm float32", A100, "fp32 cuda fp32", "pytorch-1.12-matmul-fp32-by-default"),
    # PyTorch, matrix products: the settings
    ("pytorch 1.12 mm fp32 matmul.allow_tf32=True", A100, "tf32 tensor fp32", "pytorch-matmul-allow-tf32"),
    ("pytorch 1.11 mm fp32 matmul.allow_tf32=False", A100, "fp32 cuda fp32", "pytorch-matmul-forbid-tf32"),
    (
        "pytorch 1.12 mm fp32 torch.set_float32_matmul_precision=highest",
        A100,
        "fp32 cuda fp32",
        "pytorch-matmul-precision-highest",
    ),
    (
        "pytorch 2.0 mm fp32 torch.set_float32_matmul_precision=high",
        A100,
        "tf32 tensor fp32",
        "pytorch-matmul-precision-high",
    ),
    (
        "pytorch 2.0 mm fp32 torch.set_float32_matmul_precision=medium",
        A100,
        "tf32 tensor fp32",
        "pytorch-matmul-precision-medium",
    ),
    ("pytorch 2.9 mm fp32 torch.backends.fp32_precision=tf32", A100, "tf32 tensor fp32", "pytorch-fp32-precision-tf32"),
    ("pytorch 2.9 mm fp32 torch.backends.fp32_precision=ieee", A100, "fp32 cuda fp32", "pytorch-fp32-precision-ieee"),
    (
        "pytorch 2.9 mm fp32 cudnn.fp32_precision=tf32",
        A100,
        "tf32 tensor fp32",
        "pytorch-cudnn-fp32-precision-tf32-reaches-matmul",
    ),
    (
        "pytorch 2.9 mm fp32 cudnn.fp32_precision=ieee torch.backends.fp32_precision=tf32",
        A100,
        "fp32 cuda fp32",
        "pytorch-cudnn-fp32-precision-ieee-reaches-matmul",
    ),
    (
        "pytorch 2.9 mm fp32 matmul.fp32_precision=tf32 torch.backends.fp32_precision=ieee",
        A100,
        "tf32 tensor fp32",
        "pytorch-matmul-fp32-precision-tf32",
    ),
    (
        "pytorch 2.9 mm fp32 matmul.fp32_precision=ieee torch.backends.fp32_precision=tf32",
        A100,
        "fp32 cuda fp32",
        "pytorch-matmul-fp32-precision-ieee",
    ),
    (
        "pytorch 2.9 mm fp32 matmul.fp32_precision=none torch.backends.fp32_precision=tf32",
        A100,
        "tf32 tensor fp32",
        "pytorch-fp32-precision-tf32",
    ),
    # PyTorch, the variable: it wins in 1.12 and 1.13, and is the initial value from 2.0
    (
        "pytorch 1.12 mm fp32 matmul.allow_tf32=false TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
        A100,
        "tf32 tensor fp32",
        "pytorch-cublas-override-wins",
    ),
    (
        "pytorch 1.13.1 mm fp32 matmul.allow_tf32=false TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
        A100,
        "tf32 tensor fp32",
        "pytorch-cublas-override-wins",
    ),
    (
        "pytorch 2.0 mm fp32 TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
        A100,
        "tf32 tensor fp32",
        "pytorch-cublas-override-at-start",
    ),
    (
        "pytorch 2.0 mm fp32 matmul.allow_tf32=false TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
        A100,
        "fp32 cuda fp32",
        "pytorch-matmul-forbid-tf32",
    ),
    (
        "pytorch 2.0 mm fp32 TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=0",
        A100,
        "fp32 cuda fp32",
        "pytorch-1.12-matmul-fp32-by-default",
    ),
    # PyTorch, cuDNN
    ("pytorch 1.7 conv2d fp32", A100, "tf32 tensor fp32", "pytorch-cudnn-tf32-by-default"),
    ("pytorch 2.15 lstm fp32", A100, "tf32 tensor fp32", "pytorch-cudnn-tf32-by-default"),
    ("pytorch 2.1 conv2d fp32 matmul.allow_tf32=false", A100, "tf32 tensor fp32", "pytorch-cudnn-tf32-by-default"),
    ("pytorch 1.7 conv2d fp32 cudnn.allow_tf32=true", A100, "tf32 tensor fp32", "pytorch-cudnn-allow-tf32"),
    ("pytorch 2.15 conv2d fp32 cudnn.allow_tf32=false", A100, "fp32 cuda fp32", "pytorch-cudnn-forbid-tf32"),
    ("pytorch 2.9 conv2d fp32 conv.fp32_precision=none", A100, "fp32 cuda fp32", "pytorch-conv-fp32-precision-none"),
    ("pytorch 2.9 gru fp32 rnn.fp32_precision=none", A100, "fp32 cuda fp32", "pytorch-rnn-fp32-precision-none"),
    (
        "pytorch 2.11 conv2d fp32 torch.backends.fp32_precision=ieee",
        A100,
        "tf32 tensor fp32",
        "pytorch-cudnn-tf32-by-default",
    ),
    (
        "pytorch 2.12 conv2d fp32 torch.backends.fp32_precision=ieee",
        A100,
        "fp32 cuda fp32",
        "pytorch-fp32-precision-ieee-reaches-conv",
    ),
    (
        "pytorch 2.9 conv2d fp32 conv.fp32_precision=none torch.backends.fp32_precision=tf32",
        A100,
        "tf32 tensor fp32",
        "pytorch-fp32-precision-tf32-reaches-conv",
    ),
    ("pytorch 2.11 gru fp32 cudnn.fp32_precision=ieee", A100, "tf32 tensor fp32", "pytorch-cudnn-tf32-by-default"),
    ("pytorch 2.12 gru fp32 cudnn.fp32_precision=ieee", A100, "fp32 cuda fp32", "pytorch-cudnn-fp32-precision-ieee"),
    ("pytorch 2.9 gru fp32 cudnn.fp32_precision=tf32", A100, "tf32 tensor fp32", "pytorch-cudnn-fp32-precision-tf32"),
    ("pytorch 2.9 conv1d fp32 conv.fp32_precision=tf32", A100, "tf32 tensor fp32", "pytorch-conv-fp32-precision-tf32"),
    ("pytorch 2.9 conv1d fp32 conv.fp32_precision=ieee", A100, "fp32 cuda fp32", "pytorch-conv-fp32-precision-ieee"),
    ("pytorch 2.9 lstm fp32 rnn.fp32_precision=tf32", A100, "tf32 tensor fp32", "pytorch-rnn-fp32-precision-tf32"),
    ("pytorch 2.9 lstm fp32 rnn.fp32_precision=ieee", A100, "fp32 cuda fp32", "pytorch-rnn-fp32-precision-ieee"),
    ("pytorch 2.9 conv1d fp32 rnn.fp32_precision=ieee", A100, "tf32 tensor fp32", "pytorch-cudnn-tf32-by-default"),
    # PyTorch, autocast and accumulation
    ("pytorch 1.6 linear fp32 autocast=fp16", V100, "fp16 tensor fp32", "pytorch-autocast-lower-precision-fp16"),
    ("pytorch 2.1 conv2d fp32 autocast=float16", T4, "fp16 tensor fp32", "pytorch-autocast-lower-precision-fp16"),
    ("pytorch 1.10 linear fp32 autocast=bf16", A100, "bf16 tensor fp32", "pytorch-autocast-lower-precision-bf16"),
    ("pytorch 2.4 linear fp32 autocast=bf16", V100, "fp32 cuda fp32", "bf16-emulated"),
    ("pytorch 2.1 softmax fp16 autocast=fp16", A100, "fp32 cuda -", "elementwise-stays-fp32"),
    ("pytorch 2.1 cdist fp16 autocast=fp16", A100, "fp32 cuda fp32", "pytorch-1.12-matmul-fp32-by-default"),
    ("pytorch 2.1 prelu fp32 autocast=fp16", A100, "fp16 cuda -", "pytorch-autocast-lower-precision-fp16"),
    ("pytorch 2.1 tensordot fp16 autocast=fp16", A100, "fp16 tensor fp32", "fp16-on-tensor-cores"),
    ("pytorch 2.1 linear fp64 autocast=fp16", A100, "fp64 tensor fp64", "fp64-on-tensor-cores"),
    ("pytorch 2.1 adam fp32 autocast=fp16", A100, "fp32 cuda -", "update-stays-fp32"),
    ("pytorch 2.6 mm fp16", A100, "fp16 tensor fp32", "fp16-on-tensor-cores"),
    ("pytorch 2.7 mm fp16 matmul.allow_fp16_accumulation=true", V100, "fp16 tensor fp16", "fp16-on-tensor-cores"),
    # TensorFlow
    ("tensorflow 2.3.4 matmul fp32", A100, "fp32 cuda fp32", "tensorflow-before-2.4-has-no-tf32"),
    ("tensorflow 2.4 matmul fp32", A100, "tf32 tensor fp32", "tensorflow-2.4-tf32-by-default"),
    ("tf 2.21.0 Conv2D fp32", A100, "tf32 tensor fp32", "tensorflow-2.4-tf32-by-default"),
    ("tf 1.15.2 MatMul fp32", A100, "fp32 cuda fp32", "tensorflow-before-2.4-has-no-tf32"),
    ("tf 1.15.2+nv20.03 MatMul fp32", A100, "fp32 cuda fp32", "tensorflow-before-2.4-has-no-tf32"),
    ("tf 1.15.2+nv20.06 MatMul fp32", A100, "tf32 tensor fp32", "tensorflow-nvidia-20.06-tf32-by-default"),
    ("tf 1.15.5+nv23.03 conv2d fp32", A100, "tf32 tensor fp32", "tensorflow-nvidia-20.06-tf32-by-default"),
    (
        "tf 2.4 matmul fp32 enable_tensor_float_32_execution=True",
        A100,
        "tf32 tensor fp32",
        "tensorflow-tf32-enabled",
    ),
    (
        "tf 2.4 matmul fp32 enable_tensor_float_32_execution=False",
        A100,
        "fp32 cuda fp32",
        "tensorflow-tf32-disabled",
    ),
    ("tf 2.10 dense fp32 policy=mixed_float16", T4, "fp16 tensor fp32", "tensorflow-policy-mixed-float16"),
    ("tf 2.10 dense fp32 policy=mixed_bfloat16", A100, "bf16 tensor fp32", "tensorflow-policy-mixed-bfloat16"),
    ("tf 2.10 relu fp32 policy=mixed_float16", T4, "fp16 cuda -", "tensorflow-policy-mixed-float16"),
    ("tf 2.10 adam fp32 policy=mixed_float16", T4, "fp32 cuda -", "update-stays-fp32"),
    (
        "tf 1.14 matmul fp32 enable_mixed_precision_graph_rewrite=1",
        V100,
        "fp16 tensor fp32",
        "tensorflow-graph-rewrite",
    ),
    ("tf 1.14 exp fp32 enable_mixed_precision_graph_rewrite=1", V100, "fp32 cuda -", "elementwise-stays-fp32"),
    # JAX
    ("jax 0.4.30 dot fp32", A100, "tf32 tensor fp32", "jax-tf32-by-default"),
    ("jax 0.4.30 dot fp32", V100, "fp32 cuda fp32", "tf32-needs-compute-capability-8.0"),
    ("jax 0.11 dot fp32 jax_default_matmul_precision=highest", A100, "fp32 cuda fp32", "jax-option-full"),
    ("jax 0.11 dot fp32 jax_default_matmul_precision=F32_F32_F32", A100, "fp32 cuda fp32", "jax-option-full"),
    ("jax 0.11 dot fp32 jax_default_matmul_precision=bfloat16", A100, "tf32 tensor fp32", "jax-option-reduced"),
    (
        "jax 0.11 dot fp32 jax_default_matmul_precision=BF16_BF16_F32",
        A100,
        "bf16 tensor fp32",
        "jax-option-bf16-algorithm",
    ),
    ("jax 0.11 dot fp32 JAX_DEFAULT_MATMUL_PRECISION=float32", A100, "fp32 cuda fp32", "jax-environment-full"),
    ("jax 0.11 dot fp32 JAX_DEFAULT_MATMUL_PRECISION=high", A100, "tf32 tensor fp32", "jax-environment-reduced"),
    (
        "jax 0.11 dot fp32 JAX_DEFAULT_MATMUL_PRECISION=bf16_bf16_f32",
        A100,
        "bf16 tensor fp32",
        "jax-environment-bf16-algorithm",
    ),
    (
        "jax 0.11 dot fp32 JAX_DEFAULT_MATMUL_PRECISION=bf16_bf16_f32 jax_default_matmul_precision=highest",
        A100,
        "fp32 cuda fp32",
        "jax-option-full",
    ),
    # TensorRT
    ("jax 0.4.3 dot fp32 precision=highest", A100, "fp32 cuda fp32", "jax-call-full"),
    ("jax 0.11 dot fp32 precision=high jax_default_matmul_precision=float32", A100, *TF32_BY_CALL),
    ("jax 0.11 dot fp32 precision=BF16_BF16_F32", A100, "bf16 tensor fp32", "jax-call-bf16-algorithm"),
    ("jax 0.4.1 matmul fp32 jax_default_matmul_precision=float32", "RTX-3090", *TF32_ALWAYS),
    ("jax 0.4.2 matmul fp32 precision=highest", A100, *TF32_ALWAYS),
    ("jax 0.4.2 matmul fp32 precision=highest", V100, "fp32 cuda fp32", "tf32-needs-compute-capability-8.0"),
    (
        "jax 0.4.2 conv fp32 JAX_DEFAULT_MATMUL_PRECISION=highest",
        A100,
        "tf32 tensor fp32",
        "jax-0.4.3-ignores-environment",
    ),
    (
        "jax 0.4.2 matmul fp32 precision=highest NVIDIA_TF32_OVERRIDE=0",
        A100,
        "fp32 cuda fp32",
        "nvidia-tf32-override-0",
    ),
    ("onnxruntime 1.18 matmul fp32", A100, "tf32 tensor fp32", "onnxruntime-tf32-by-default"),
    ("onnxruntime 1.18 matmul fp32", T4, "fp32 cuda fp32", "tf32-needs-compute-capability-8.0"),
    ("onnxruntime 1.6 matmul fp32", A100, "fp32 cuda fp32", "tf32-needs-cublas-11"),
    ("onnxruntime 1.17 attention fp32", A100, "fp32 cuda fp32", "onnxruntime-1.18-batched-gemm"),
    ("onnxruntime 1.18 attention fp32", A100, "tf32 tensor fp32", "onnxruntime-tf32-by-default"),
    ("onnxruntime 1.18 gemm fp32 use_tf32=1", A100, "tf32 tensor fp32", "onnxruntime-use-tf32"),
    ("onnxruntime 1.18 gemm fp32 use_tf32=0", A100, "fp32 cuda fp32", "onnxruntime-gemm-without-tf32"),
    ("onnxruntime 1.18 conv fp32 use_tf32=0", A100, "fp32 cuda fp32", "onnxruntime-conv-without-tf32"),
    ("ort 1.18 conv fp32 use_tf32=0 provider=tensorrt", A100, "tf32 tensor fp32", "onnxruntime-tf32-by-default"),
    ("ort 1.18 conv fp32 provider=tensorrt trt_fp16_enable=1", A100, "fp16 tensor fp32", "onnxruntime-tensorrt-fp16"),
    ("tensorrt 10.0 conv fp32 fp16=1", A100, "fp16 tensor fp32", "tensorrt-fp16-allowed"),
    ("tensorrt 10.0 conv fp32 bf16=1", A100, "bf16 tensor fp32", "tensorrt-bf16-allowed"),
    ("tensorrt 10.0 matmul fp32 fp16=1 stronglyTyped=1", A100, "tf32 tensor fp32", "tensorrt-tf32-by-default"),
    ("tensorrt 8.5 conv fp32", A100, "tf32 tensor fp32", "tensorrt-tf32-by-default"),
    ("tensorrt 8.5 conv fp32 BuilderFlag.TF32=true", A100, "tf32 tensor fp32", "tensorrt-tf32-allowed"),
    ("tensorrt 8.5 conv fp32 BuilderFlag.TF32=false", A100, "fp32 cuda fp32", "tensorrt-tf32-cleared"),
    ("tensorrt 8.5 conv fp32 cudnn=7.6", A100, "fp32 cuda fp32", "tf32-needs-cudnn-8"),
    ("tensorrt 8.5 conv int8", T4, "int8 tensor int32", "int8-on-tensor-cores"),
    ("tensorrt 8.5 conv int8", A100, "int8 tensor int32", "int8-on-tensor-cores"),
    ("tensorrt 8.5 conv int8", V100, "int8 cuda int32", "int8-by-dp4a"),
    # The libraries
    ("pytorch 1.11 matmul fp32 cublas=10.2", A100, "fp32 cuda fp32", "tf32-needs-cublas-11"),
    ("pytorch 1.11 matmul fp32 cublas=11.0", A100, "tf32 tensor fp32", "pytorch-1.7-matmul-tf32-by-default"),
    ("pytorch 1.7.1+cu102 matmul fp32", A100, "fp32 cuda fp32", "tf32-needs-cublas-11"),
    ("pytorch 1.7.1+cu110 matmul fp32", A100, "tf32 tensor fp32", "pytorch-1.7-matmul-tf32-by-default"),
    ("pytorch 2.1 conv2d fp32 cudnn=7.6.5", A100, "fp32 cuda fp32", "tf32-needs-cudnn-8"),
    ("pytorch 2.1 conv2d fp32 cudnn=8.0", A100, "tf32 tensor fp32", "pytorch-cudnn-tf32-by-default"),
    ("pytorch 2.1 conv2d fp32 cublas=10.2", A100, "tf32 tensor fp32", "pytorch-cudnn-tf32-by-default"),
    ("pytorch 1.11 matmul fp32 NVIDIA_TF32_OVERRIDE=0", A100, "fp32 cuda fp32", "nvidia-tf32-override-0"),
    ("tf 2.10 conv2d fp32 NVIDIA_TF32_OVERRIDE=0", A100, "fp32 cuda fp32", "nvidia-tf32-override-0"),
    ("tf 2.10 conv2d fp16 NVIDIA_TF32_OVERRIDE=0", A100, "fp16 tensor fp32", "fp16-on-tensor-cores"),
    # The GPU
    ("pytorch 1.11 matmul fp32", V100, "fp32 cuda fp32", "tf32-needs-compute-capability-8.0"),
    ("pytorch 1.11 matmul fp32", T4, "fp32 cuda fp32", "tf32-needs-compute-capability-8.0"),
    ("pytorch 1.11 matmul fp32", "RTX-3090", "tf32 tensor fp32", "pytorch-1.7-matmul-tf32-by-default"),
    ("pytorch 1.11 matmul fp32", "A100 without TF32", "fp32 cuda fp32", "tf32-not-in-spec"),
    ("pytorch 2.1 matmul fp64", A100, "fp64 tensor fp64", "fp64-on-tensor-cores"),
    ("pytorch 2.1 matmul fp64", T4, "fp64 cuda fp64", "fp64-on-cuda-cores"),
    ("pytorch 2.1 matmul fp16", V100, "fp16 tensor fp32", "fp16-on-tensor-cores"),
    ("pytorch 2.1 matmul half", T4, "fp16 tensor fp32", "fp16-on-tensor-cores"),
    ("pytorch 2.1 matmul fp16", "V100 without FP16 Tensor Cores", "fp16 cuda fp32", "fp16-without-tensor-cores"),
    ("pytorch 2.1 matmul torch.bfloat16", A100, "bf16 tensor fp32", "bf16-on-tensor-cores"),
    ("pytorch 2.1 matmul bf16", V100, "fp32 cuda fp32", "bf16-emulated"),
    ("pytorch 2.1 matmul bf16", T4, "fp32 cuda fp32", "bf16-emulated"),
    ("pytorch 2.1 matmul int4", T4, "int4 tensor int32", "int4-on-tensor-cores"),
    ("pytorch 2.1 matmul fp8", "A100 with FP8", "fp8 tensor fp32", "fp8-on-tensor-cores"),
    # What is not a product
    ("pytorch 1.11 relu fp32", A100, "fp32 cuda -", "elementwise-stays-fp32"),
    ("pytorch 1.11 add fp16", A100, "fp16 cuda -", "elementwise-on-cuda-cores"),
    ("pytorch 1.11 optimizer fp32", A100, "fp32 cuda -", "update-stays-fp32"),
    ("pytorch 1.11 sgd bf16", A100, "bf16 cuda -", "update-in-low-precision"),
    ("pytorch 1.11 sgd fp64", A100, "fp64 cuda -", "update-in-fp64"),
]

NOTED = [
    ("pytorch 2.1 softmax fp16 autocast=fp16", A100, "pytorch-autocast-fp32"),
    ("pytorch 2.1 addcmul fp16 autocast=bf16", A100, "pytorch-autocast-promote"),
    ("pytorch 2.1 linear fp64 autocast=fp16", A100, "pytorch-autocast-not-eligible"),
    ("pytorch 2.4 linear fp32 autocast=bf16", T4, "pytorch-bf16-autocast-emulated"),
    ("pytorch 2.1 linear fp32 autocast=fp16", A100, "pytorch-fp16-wants-loss-scaling"),
    ("pytorch 2.1 linear fp32 autocast=fp16 GradScaler=false", A100, "pytorch-fp16-wants-loss-scaling"),
    ("pytorch 2.1 linear fp32 autocast=fp16 GradScaler=true", A100, "pytorch-fp16-with-loss-scaling"),
    ("pytorch 2.1 linear fp32 autocast=bf16", A100, "pytorch-bf16-needs-no-loss-scaling"),
    ("pytorch 2.1 linear fp32 autocast=bf16", A100, "pytorch-weights-stay-fp32"),
    ("pytorch 2.1 conv2d fp32 set_float32_matmul_precision=highest", A100, "pytorch-matmul-precision-not-for-conv"),
    ("pytorch 1.11 mm fp32 TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1", A100, "pytorch-cublas-override-unknown"),
    (
        "pytorch 2.0 mm fp32 TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 set_float32_matmul_precision=highest",
        A100,
        "pytorch-cublas-override-documented-otherwise",
    ),
    ("pytorch 2.11 conv2d fp32 torch.backends.fp32_precision=ieee", A100, "pytorch-2.9-conv-deaf-to-fp32-precision"),
    ("pytorch 2.11 conv2d fp32 cudnn.fp32_precision=ieee", A100, "pytorch-2.9-conv-deaf-to-cudnn-fp32-precision"),
    ("pytorch 2.1 mm fp16", A100, "pytorch-fp16-reduced-precision-reduction"),
    (
        "pytorch 1.11 mm fp16 allow_fp16_reduced_precision_reduction=false",
        A100,
        "pytorch-fp16-full-precision-reduction",
    ),
    ("pytorch 2.1 mm bf16", A100, "pytorch-bf16-reduced-precision-reduction"),
    (
        "pytorch 2.0 mm bf16 allow_bf16_reduced_precision_reduction=false",
        A100,
        "pytorch-bf16-full-precision-reduction",
    ),
    ("pytorch 2.1 mm fp8", "A100 with FP8", "pytorch-fp8-through-scaled-mm"),
    ("tf 2.10 softmax fp32 policy=mixed_bfloat16", A100, "tensorflow-policy-softmax"),
    ("tf 2.10 dense fp32 policy=mixed_bfloat16", A100, "tensorflow-policy-weights-stay-fp32"),
    ("tf 2.10 dense fp32 policy=mixed_bfloat16", A100, "tensorflow-bf16-needs-no-loss-scaling"),
    ("tf 2.10 dense fp32 policy=mixed_float16", A100, "tensorflow-loss-scaling"),
    ("tf 1.14 exp fp32 enable_mixed_precision_graph_rewrite=1", V100, "tensorflow-graph-rewrite-neighbours"),
    ("tf 1.14 matmul fp32 enable_mixed_precision_graph_rewrite=1", V100, "tensorflow-graph-rewrite-loss-scaling"),
    ("jax 0.11 dot fp32 NVIDIA_TF32_OVERRIDE=0", A100, "jax-own-kernels"),
    ("tensorrt 8.5 conv int8", A100, "tensorrt-builder-chooses"),
    ("tensorrt 11.0 matmul fp32", A100, "tensorrt-tf32-not-required"),
    ("pytorch 2.1 conv2d fp32", A100, "cudnn-tf32-not-required"),
    ("ort 1.18 conv fp32 provider=tensorrt", A100, "onnxruntime-tensorrt-chooses"),
    ("ort 1.18 conv fp32 provider=tensorrt use_tf32=0", A100, "onnxruntime-tensorrt-ignores-use-tf32"),
    ("pytorch 1.11 mm fp32 NVIDIA_TF32_OVERRIDE=1", A100, "nvidia-tf32-override-1-idle"),
    ("pytorch 1.11 mm fp32", A100, "tf32-is-no-storage"),
    ("pytorch 2.16 mm fp32", A100, "newer-than-the-rules"),
]

CONTRADICTORY = [
    (
        "pytorch 1.12 mm fp32 matmul.allow_tf32=true set_float32_matmul_precision=highest",
        A100,
        "pytorch-allow-tf32-against-highest",
    ),
    (
        "pytorch 2.1 mm fp32 matmul.allow_tf32=false set_float32_matmul_precision=medium",
        A100,
        "pytorch-forbid-tf32-against-high",
    ),
    (
        "pytorch 2.9 mm fp32 matmul.allow_tf32=true matmul.fp32_precision=ieee",
        A100,
        "pytorch-matmul-old-and-new-settings",
    ),
    (
        "pytorch 2.15 mm fp32 set_float32_matmul_precision=high torch.backends.fp32_precision=tf32",
        A100,
        "pytorch-matmul-old-and-new-settings",
    ),
    (
        "pytorch 2.9 conv2d fp32 cudnn.allow_tf32=true conv.fp32_precision=ieee",
        A100,
        "pytorch-cudnn-old-and-new-settings",
    ),
    ("pytorch 1.9 linear fp32 autocast=bf16", A100, "pytorch-bf16-autocast-since-1.10"),
    ("pytorch 1.10 linear fp32 autocast=bf16", V100, "pytorch-bf16-autocast-refused"),
    ("pytorch 2.3 linear fp32 autocast=bf16", T4, "pytorch-bf16-autocast-refused"),
    (
        "tf 2.3 dense fp32 policy=mixed_float16 enable_mixed_precision_graph_rewrite=1",
        A100,
        "tensorflow-two-mixed-precisions",
    ),
    ("pytorch 2.1 mm fp32 NVIDIA_TF32_OVERRIDE=1", A100, "nvidia-tf32-override-1-undecided"),
]

REFUSED = [
    ("pytorch 2.1 mm fp8", A100, "A100-SXM4-40GB (compute capability 8.0) and fp8: the GPU's spec has no instruction"),
    ("pytorch 2.1 mm int4", V100, "has no instruction that multiplies this type; it has fp16, fp32, fp64, int8"),
    ("pytorch 2.1 sgd int8", A100, "optimizers do not update weights of this type"),
    ("pytorch 2.1 mm tf32", A100, "tf32 is a math mode of fp32 tensors"),
    ("pytorch 2.1 mm fp23", A100, "unknown data type 'fp23'; nearest: fp"),
    ("pytoch 2.1 mm fp32", A100, "unknown framework 'pytoch'; nearest: pytorch"),
    ("pytorch two mm fp32", A100, "'two' is not a version"),
    ("pytorch 2.1 mattmul fp32", A100, "unknown operation 'mattmul' of pytorch; nearest: matmul"),
    ("pytorch 2.1 mm fp32 allow_tf32=1", A100, "matches several settings"),
    (
        "pytorch 2.1 mm fp32 torch.backends.cuda.matmul.alow_tf32=1",
        A100,
        "nearest: torch.backends.cuda.matmul.allow_tf32",
    ),
    ("pytorch 2.1 mm fp32 matmul.allow_tf32=maybe", A100, "matmul.allow_tf32=maybe: expected true or false"),
    (
        "pytorch 1.6 mm fp32 matmul.allow_tf32=1",
        A100,
        "pytorch >=1.7 has torch.backends.cuda.matmul.allow_tf32, 1.6 does not",
    ),
    ("pytorch 2.8 mm fp32 matmul.fp32_precision=tf32", A100, "pytorch >=2.9 has"),
    ("pytorch 2.1 mm fp32 cublas=eleven", A100, "'eleven' is not a version"),
    ("pytorch 2.1 mm fp32 autocast=fp16 torch.autocast=bf16", A100, "torch.autocast is set twice"),
    ("pytorch 2.1 mm fp32 NVIDIA_TF32_OVERIDE=0", A100, "nearest: NVIDIA_TF32_OVERRIDE"),
    ("tf 2.3 matmul fp32 enable_tensor_float_32_execution=0", A100, "tensorflow >=2.4 has"),
    ("tensorrt 11.0 matmul fp32 fp16=1", A100, "tensorrt <11 has BuilderFlag.FP16, 11.0 does not"),
    ("onnxruntime 1.17 matmul fp32 use_tf32=0", A100, "onnxruntime >=1.18 has use_tf32, 1.17 does not"),
]


@pytest.mark.parametrize(("operation", "board", "expected", "rule"), DECIDED)
def test_the_path_and_the_rule_that_decides_it(operation: str, board: str, expected: str, rule: str) -> None:
    mode = ask(operation, board)
    assert (f"{mode.path} {mode.unit} {mode.accumulate or '-'}", mode.rule) == (expected, rule)
    assert mode.source.startswith("https://")
    assert mode.says
    assert not mode.conflicts


@pytest.mark.parametrize(("operation", "board", "rule"), NOTED)
def test_what_is_worth_knowing_is_noted(operation: str, board: str, rule: str) -> None:
    mode = ask(operation, board)
    reported = [note.rule for note in mode.notes] + [one.rule for one in mode.decided.values()]
    assert rule in reported


@pytest.mark.parametrize(("operation", "board", "rule"), CONTRADICTORY)
def test_a_contradiction_is_reported_and_not_guessed(operation: str, board: str, rule: str) -> None:
    mode = ask(operation, board)
    assert [one.rule for one in mode.conflicts] == [rule]
    assert (mode.path, mode.unit, mode.accumulate, mode.rule) == (None, None, None, rule)
    assert any(one.effect == "contradicts" for one in mode.considered)


@pytest.mark.parametrize(("operation", "board", "text"), REFUSED)
def test_what_cannot_be_resolved_is_refused_in_one_line_with_a_remedy(operation: str, board: str, text: str) -> None:
    with pytest.raises(MathModeError) as caught:
        ask(operation, board)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "fires"),
    [
        ("pytorch 1.9 linear fp32 autocast=bf16", True),
        ("pytorch 1.10 linear fp32 autocast=bf16", False),
        ("pytorch 2.9 mm fp32 matmul.fp32_precision=ieee", False),
        ("pytorch 2.1 mm fp32 matmul.allow_tf32=true set_float32_matmul_precision=high", False),
        ("pytorch 2.9 conv2d fp32 matmul.allow_tf32=true conv.fp32_precision=ieee", False),
        ("pytorch 2.1 mm fp32 NVIDIA_TF32_OVERRIDE=0", False),
        ("pytorch 2.1 relu fp32 NVIDIA_TF32_OVERRIDE=1", False),
    ],
)
def test_settings_that_agree_or_concern_something_else_do_not_contradict(operation: str, fires: bool) -> None:
    assert bool(ask(operation, A100).conflicts) == fires


@pytest.mark.parametrize(
    ("operation", "board", "use"),
    [
        ("pytorch 2.1 conv2d fp32", A100, "allowed"),  # cuDNN chooses
        ("pytorch 2.1 lstm fp32", A100, "allowed"),
        ("pytorch 2.1 conv2d fp32", V100, "decided"),
        ("pytorch 2.1 conv2d fp32 cudnn.allow_tf32=false", A100, "decided"),
        ("pytorch 2.1 mm fp32 matmul.allow_tf32=true", A100, "decided"),
        ("tensorrt 10.0 matmul fp32", A100, "allowed"),
        ("tensorrt 10.0 matmul fp16 stronglyTyped=1", A100, "decided"),
    ],
)
def test_what_a_library_may_use_is_not_what_it_uses(operation: str, board: str, use: str) -> None:
    assert ask(operation, board).use == use


def test_a_contradiction_that_the_gpu_settles_is_reported_with_the_path() -> None:
    operation = "pytorch 2.1 mm fp32 matmul.allow_tf32=true set_float32_matmul_precision=highest"
    mode = ask(operation, V100)
    assert [one.rule for one in mode.conflicts] == ["pytorch-allow-tf32-against-highest"]
    assert (mode.path, mode.unit, mode.rule) == ("fp32", "cuda", "tf32-needs-compute-capability-8.0")


def test_every_rule_stands_in_a_row() -> None:
    """Every rule is reached by a row; others would be untested, or could never hold."""
    rows = [row[:2] for row in (*DECIDED, *NOTED, *CONTRADICTORY)]
    modes = [ask(operation, board) for operation, board in rows]
    seen = {said.rule for mode in modes for said in (*mode.notes, *mode.conflicts, *mode.decided.values())}
    seen |= {one.rule for mode in modes for one in mode.overridden}
    books = [load_rulebook(name) for name in (*frameworks(), HARDWARE)]
    refusals = {rule.id for book in books for rule in book.rules if rule.then.refuse}
    known = {rule.id for book in books for rule in book.rules}
    assert known - seen == refusals
    assert refusals == {"type-without-instruction", "update-of-integers"}  # both in REFUSED


def test_rule_names_are_unique_and_sources_are_addresses() -> None:
    books = [load_rulebook(name) for name in (*frameworks(), HARDWARE)]
    ids = [rule.id for book in books for rule in book.rules]
    assert len(ids) == len(set(ids))
    assert all(url.startswith("https://") for book in books for url in book.sources.values())


def test_a_source_is_there_because_something_cites_it() -> None:
    for book in (load_rulebook(name) for name in (*frameworks(), HARDWARE)):
        cited = {rule.source for rule in book.rules} | {one.source for one in book.libraries}
        cited |= {one.source for one in book.lists.values()}
        assert set(book.sources) == cited


def test_each_setting_is_listed_with_its_effect() -> None:
    operation = (
        "pytorch 2.9 mm fp32 torch.backends.fp32_precision=tf32 matmul.fp32_precision=ieee"
        " conv.fp32_precision=tf32 NVIDIA_TF32_OVERRIDE=0"
    )
    mode = ask(operation, A100)
    assert {one.name: one.effect for one in mode.considered} == {
        "torch.backends.fp32_precision": "overridden",
        "torch.backends.cuda.matmul.fp32_precision": "agrees",
        "torch.backends.cudnn.conv.fp32_precision": "none",
        "NVIDIA_TF32_OVERRIDE": "decides",
    }
    by = {(one.what, one.rule): one.by for one in mode.overridden}
    assert by["path", "pytorch-fp32-precision-tf32"] == "pytorch-matmul-fp32-precision-ieee"


def test_the_library_version_says_where_it_is_from() -> None:
    assert ask("pytorch 2.1 mm fp32 cublas=11.4", A100).library == "cublas 11.4, as set"
    assert ask("pytorch 1.7.1+cu102 mm fp32", A100).library.startswith("cublas assumed to be 10.2: the build tag")
    assert ask("tf 1.15.2+nv20.06 conv2d fp32", A100).library.startswith("cudnn assumed to be 8.0: NVIDIA's TensorFlow")
    assert not ask("pytorch 2.1 relu fp32", A100).library


@pytest.mark.parametrize(
    ("version", "specifier", "inside"),
    [("1.12", ">=1.12", True), ("1.12.0a0", ">=1.12", True), ("1.11.9", ">=1.12", False), ("2.10", "<2.9", False)],
)
def test_a_pre_release_counts_as_its_release(version: str, specifier: str, inside: bool) -> None:
    assert release_in(version, specifier) is inside


def test_a_build_is_compared_by_its_tag_and_number() -> None:
    from packaging.version import Version

    assert build_in(Version("1.15.2+nv20.6"), "nv>=20.06")
    assert not build_in(Version("1.15.2+nv20.05"), "nv>=20.06")
    assert not build_in(Version("1.15.2+cu110"), "nv>=20.06")


@pytest.mark.parametrize("board", [entry.name for entry in list_archs()])
def test_every_board_has_an_answer_or_a_refusal_for_every_type_and_kind(board: str) -> None:
    types = {dtype.value for dtype in DTYPE_OF_TENSORS.values()}
    refused_types, asked_of = set(), gpu(board)
    for framework, kind, dtype in product(frameworks(), ("matmul", "conv", "rnn", "elementwise", "update"), types):
        try:
            mode = resolve(FrameworkOperation(framework, "2.4", kind, dtype), asked_of)
        except MathModeError:
            refused_types.add(dtype)
        else:
            assert mode.unit in ("tensor", "cuda")
            assert (mode.accumulate is None) == (kind in ("elementwise", "update"))
    assert not refused_types & {"fp32", "fp16"}


# Laws -------------------------------------------------------------------------------------------

FLAGS = {
    "torch.backends.cuda.matmul.allow_tf32": ("true", "false"),
    "torch.backends.cudnn.allow_tf32": ("true", "false"),
    "torch.set_float32_matmul_precision": ("highest", "high", "medium"),
    "torch.autocast": ("fp16", "bf16", "false"),
    "cublas": ("10.2", "11.0", "12.1"),
    "cudnn": ("7.6", "8.0"),
}
QUESTIONS = st.builds(
    FrameworkOperation,
    st.just("pytorch"),
    st.sampled_from(["1.12", "1.13.1", "2.0", "2.8", "2.15"]),
    st.sampled_from(["matmul", "conv2d", "lstm", "relu", "softmax", "adam"]),
    st.sampled_from(["fp64", "fp32", "fp16", "bf16"]),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in FLAGS.items()}),
    st.fixed_dictionaries({}, optional={"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": st.sampled_from(["0", "1"])}),
)


@given(QUESTIONS, st.sampled_from([V100, T4, A100, "RTX-3090"]))
@settings(max_examples=300)
def test_whatever_is_set_the_gpu_has_what_the_path_needs(operation: FrameworkOperation, board: str) -> None:
    mode = resolve(operation, gpu(board))
    dense = [one for one in gpu(board).instructions.values() if one.sparsity == "dense"]
    assert (mode.path is None) <= bool(mode.conflicts)
    if mode.unit == "tensor":
        assert mode.kind in ("matmul", "conv", "rnn")
        assert any(one.unit == "tensor" and mode.path in one.inputs for one in dense)
    if mode.path == "tf32":
        assert gpu(board).compute_capability >= "8.0"
        assert mode.unit == "tensor"
    if mode.kind in ("elementwise", "update"):
        assert mode.unit in ("cuda", None)
    assert mode.unit is not None or mode.path is None


@given(QUESTIONS)
@settings(max_examples=200)
def test_nvidia_tf32_override_0_leaves_no_tf32_and_changes_nothing_else(operation: FrameworkOperation) -> None:
    without = resolve(operation, gpu(A100))
    off = FrameworkOperation(
        operation.framework,
        operation.version,
        operation.op,
        operation.dtype,
        operation.settings,
        {**operation.environment, "NVIDIA_TF32_OVERRIDE": "0"},
    )
    mode = resolve(off, gpu(A100))
    assert mode.path != "tf32"
    if without.path not in ("tf32", None):
        assert (mode.path, mode.unit, mode.accumulate) == (without.path, without.unit, without.accumulate)


# The command ------------------------------------------------------------------------------------


def test_the_command_prints_the_path_the_unit_the_rule_and_its_source(command: RunGpusim) -> None:
    words = "mathmode --framework pytorch --version 1.13 --op matmul --dtype fp32 --format json"
    process = command(*shlex.split(words), "--arch", "A100-SXM4-80GB", "--set", "matmul.allow_tf32=True")
    assert (process.returncode, process.stderr) == (0, "")
    mode = json.loads(process.stdout)
    assert (mode["path"], mode["unit"], mode["rule"]) == ("tf32", "tensor", "pytorch-matmul-allow-tf32")
    assert mode["source"].startswith("https://docs.pytorch.org/")
    assert mode["conflicts"] == []
    assert mode["overridden"] == [
        {"what": "path", "rule": "pytorch-1.12-matmul-fp32-by-default", "by": "pytorch-matmul-allow-tf32"}
    ]


def test_the_command_ends_with_1_where_settings_contradict(command: RunGpusim) -> None:
    words = "mathmode --framework pytorch --version 2.9 --arch A100-SXM4-40GB --set matmul.allow_tf32=1"
    process = command(*shlex.split(words), "--set", "matmul.fp32_precision=ieee", "--format", "json")
    assert (process.returncode, process.stderr) == (1, "")
    mode = json.loads(process.stdout)
    assert mode["path"] is None
    assert [one["rule"] for one in mode["conflicts"]] == ["pytorch-matmul-old-and-new-settings"]
    table = command(*shlex.split(words), "--set", "matmul.fp32_precision=ieee")
    assert table.returncode == 1
    assert "undecided" in table.stdout
    assert "Contradictions" in table.stdout


def test_the_command_says_what_was_set_and_what_is_worth_knowing(command: RunGpusim) -> None:
    words = "mathmode --framework pytorch --version 2.1 --arch t4 --set autocast=fp16 --env NVIDIA_TF32_OVERRIDE=0"
    process = command(*shlex.split(words))
    assert (process.returncode, process.stderr) == (0, "")
    for text in ("fp16", "tensor", "torch.autocast", "loss scaling", "stay FP32", "NVIDIA_TF32_OVERRIDE  0"):
        assert text in process.stdout


@pytest.mark.parametrize(
    "words",
    [
        "--framework pytorch --version 1.13 --arch A1000",
        "--framework torchh --version 1.13 --arch t4",
        "--framework pytorch --version 1.13 --arch t4 --set matmul.allow_tf32",
        "--framework pytorch --version 1.13 --arch t4 --env A=1 --env A=2",
        "--framework pytorch --version 1.13 --arch t4 --op frobnicate",
    ],
)
def test_the_command_refuses_wrong_input(command: RunGpusim, words: str) -> None:
    refused(command("mathmode", *shlex.split(words)))
