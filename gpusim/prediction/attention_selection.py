"""The kernel that a framework launches for fused attention, with what it launches around it."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import replace

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.looped import tiles_in_parallel
from gpusim.lowering.attention.plan import AttentionPlan, attention_plan, resident_ctas
from gpusim.lowering.attention.splits import key_split_of
from gpusim.lowering.vector.plan import VectorPlan, vector_plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.selection import UnsupportedError
from gpusim.prediction.vector_selection import vector_kernel
from gpusim.system import System
from gpusim.workloads.attention import Attention, Implementation
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction
from gpusim.workloads.vector import VectorOperator

STAND_INS: dict[str, tuple[Implementation, ...]] = {
    "flash1": ("flash2", "memory_efficient"),
    "cudnn": ("flash3", "flash2", "memory_efficient"),
}
"""Implementations whose kernels stand for those of one without, the nearest first.

cuDNN's attention on an H100 reaches 631.3 TFLOP/s where FlashAttention-3 reaches 631.8 and FlashAttention-2 329.5
(batch 1, 24 heads of 128, 4,608 tokens; pytorch/pytorch issue 142132). Its backward pass reaches 305 to 518 where
FlashAttention-3 reaches 316 to 561 and FlashAttention-2 214 to 322 (heads of 128; arXiv:2407.08608, figure 6).
"""


def planned_attention(system: System, operator: Attention, name: str | None = None, *, warm: bool) -> AttentionPlan:
    """The plan of the first kernel of the catalogues that can run an operator.

    Kernels that split keys come first in a catalogue, and are passed over where they would not.

    Args:
        name: pins the kernel of this printed name.
        warm: the operator ran just before, on the same tensors.

    Raises:
        UnsupportedError: there is none; the text says why.
    """
    passed_over: set[str] = set()
    for kernel in _able(system, operator, name):
        # A head is rounded up to the next size that a family has, whatever its larger ones would do.
        if kernel.family.name in passed_over:
            continue
        if name is None and _leaves_keys_whole(system, operator, kernel):
            passed_over.add(kernel.family.name)
            continue
        with suppress(DoesNotFitError):
            around = [tuple(_planned(system, one) for one in those) for those in _around(system.gpu, operator, kernel)]
            return attention_plan(system.gpu, operator, kernel, *around, warm=warm)
    raise UnsupportedError(f"{operator.op} on {system.gpu.name}: no SM holds a CTA of the kernels that compute it")


def _leaves_keys_whole(system: System, operator: Attention, kernel: AttentionKernel) -> bool:
    """Whether a kernel that FlashAttention-2 has for split keys or pages alone would do neither."""
    family = kernel.family
    only_splits = family.kind == "flash" and family.combination is not None
    paged = operator.page_tokens is not None
    return only_splits and not paged and key_split_of(operator, kernel, system.gpu.sm.count).parts == 1


def stand_in(system: System, operator: Attention) -> Implementation | None:
    """The implementation whose kernels stand for those of the one that is named; None: its own."""
    if any(one.computes(operator) for one in system.library.attention_kernels):
        return None
    for name in STAND_INS.get(operator.implementation, ()):
        other = replace(operator, implementation=name)
        if any(one.computes(other) for one in system.library.attention_kernels):
            return name
    return None


def stand_in_note(system: System, operator: Attention) -> str:
    """What the result of an operator has to say of the kernel's implementation; empty where there is nothing."""
    other = stand_in(system, operator)
    name = f"{operator.implementation} of {operator.dtype.value}"
    return (
        f"{operator.op}: no kernel of {name} is modelled on {system.gpu.name}; {other} stands for it" if other else ""
    )


def _able(system: System, operator: Attention, name: str | None) -> list[AttentionKernel]:
    gpu, known = system.gpu, system.library.attention_kernels
    if other := stand_in(system, operator):
        operator = replace(operator, implementation=other)
    computing = [one for one in known if one.computes(operator)]
    if not computing:
        named_so = [one for one in known if operator.implementation in ("", one.implementation)]
        types = dict.fromkeys(
            dtype.value for one in named_so if one.family.op == operator.op for dtype in one.family.dtypes
        )
        has = f"they take {', '.join(types)}" if types else "they have none"
        kept = dict.fromkeys(dtype.value for one in known for dtype in one.family.key_dtypes)
        if operator.kv_dtype:
            has = f"keys may be in {', '.join(kept)}" if kept else "they have none for keys of another type"
        if operator.alibi:
            having = dict.fromkeys(one.implementation for one in known if one.family.alibi)
            has = f"{', '.join(having)} has it" if having else "give mask, with mask_by hq, as PyTorch does"
        extra = [
            *(["with a mask"] if operator.mask else []),
            *(["with ALiBi"] if operator.alibi else []),
            *(["with dropout"] if operator.dropout else []),
            *(["in pages"] if operator.page_tokens is not None else []),
            *(["in windows"] if operator.window is not None else []),
            *([f"with keys in {operator.kv_dtype.value}"] if operator.kv_dtype else []),
            *([f"by {operator.implementation}"] if operator.implementation else []),
        ]
        asked = " ".join([operator.op, "of", operator.dtype.value, *extra])
        raise UnsupportedError(f"{gpu.name}: no kernel for {asked} in its kernel catalogues; {has}")
    printed = {one.printed_name: one for one in computing}
    if name is not None and name not in printed:
        near = ", ".join(difflib.get_close_matches(name, printed, n=3, cutoff=0.0))
        raise UnsupportedError(f"no kernel '{name}' for {operator.op} on {gpu.name}; nearest: {near}")
    named = [printed[name]] if name is not None else computing
    able = [one for one in named if not one.refusal(operator)]
    if not able:
        raise UnsupportedError(f"{operator.op} on {gpu.name}: {named[-1].refusal(operator)}")
    return able


def _planned(system: System, operator: VectorOperator) -> VectorPlan:
    return vector_plan(system.gpu, operator, vector_kernel(system, operator), warm=False)


def _around(
    gpu: Gpu, operator: Attention, kernel: AttentionKernel
) -> tuple[tuple[VectorOperator, ...], tuple[VectorOperator, ...]]:
    """What is launched before and after."""
    return _around_backward(gpu, operator, kernel) if operator.backward else _around_forward(operator, kernel)


def _around_forward(
    operator: Attention, kernel: AttentionKernel
) -> tuple[tuple[VectorOperator, ...], tuple[VectorOperator, ...]]:
    """What an implementation does to sequences of any length.

    Where a kernel multiplies in the type of the keys, queries are converted before. FlashAttention-2 copies queries
    whose heads are packed, and the result back (vllm-project/flash-attention
    csrc/flash_attn/flash_api.cpp, ``seqlenq_ngroups_swapped``). The kernel that counts tiles for FlashAttention-3 is
    left out: the next one is launched before it ends (``prepare_varlen_pdl``), or it ran once for all layers.
    """
    before: list[VectorOperator] = []
    after: list[VectorOperator] = []
    if kernel.multiplied(operator) is not operator.dtype:
        before.append(_quantised_queries(operator, kernel.multiplied(operator)))
    swapped = kernel.packed_heads(operator) > 1 and operator.held_heads > 1  # one head of keys lies as it should
    if operator.packed and kernel.implementation == "flash2" and swapped:
        copied = _copy(operator.batch * operator.heads * operator.queries * operator.head_dim, operator)
        before += [copied] if operator.batch > 1 else []  # those of one sequence lie as they should
        after.append(copied)
    return tuple(before), tuple(after)


def _quantised_queries(operator: Attention, dtype: Dtype) -> Pointwise:
    """Queries in the type of the keys, by a scale that is known.

    Source: vllm-project/vllm vllm/v1/attention/backends/flash_attn.py, ``scaled_fp8_quant``.
    """
    elements = operator.queries_elements
    return Pointwise(("scale",), elements, (Access(elements, operator.dtype),), (Access(elements, dtype),))


def _copy(elements: int, operator: Attention) -> Pointwise:
    row = Access(elements, operator.dtype, run=operator.head_dim)
    return Pointwise(("copy",), elements, (row,), (row,))


def _around_backward(
    gpu: Gpu, operator: Attention, kernel: AttentionKernel
) -> tuple[tuple[VectorOperator, ...], tuple[VectorOperator, ...]]:
    """The sum over each row of the result times its gradient, and the gradients of queries.

    FlashAttention-2 and 3 add those up in FP32, from zeros, and convert them in the end; FlashAttention-1 where tiles
    of keys have CTAs of their own, and else sums rows in the kernel itself. FlashAttention-3 adds up gradients of keys
    and values that heads share, too (hopper/flash_api.cpp, ``dk_accum``); its zeros for queries, which the kernel of
    row sums writes, are counted as a kernel.
    """
    kind = kernel.family.kind
    if kind == "looped" and not tiles_in_parallel(operator, kernel, resident_ctas(gpu, kernel)):
        return (), ()
    rows, row = operator.batch * operator.heads * operator.queries, operator.head_dim
    held, sums = Access(rows * row, operator.dtype), Access(rows * row, Dtype.FP32)
    prepared = RowReduction("sum", rows, row, (held, held), (Access(rows, Dtype.FP32),), ("mul",))
    if kind == "staged":
        return (prepared,), ()
    cleared, converted = _of_sums(sums, held)
    if kind != "specialised" or operator.sharing_heads == 1:
        return (prepared, cleared), (converted,)
    elements = operator.batch * operator.held_heads * operator.keys * row
    of_keys = Access(elements, operator.dtype), Access(elements, Dtype.FP32)
    cleared_keys, converted_keys = _of_sums(of_keys[1], of_keys[0])
    return (prepared, cleared, cleared_keys, cleared_keys), (converted, converted_keys, converted_keys)


def _of_sums(sums: Access, held: Access) -> tuple[Pointwise, Pointwise]:
    """Sums in FP32 set to zero, and converted to what is held."""
    cleared = Pointwise(("copy",), sums.elements, (), (sums,))
    return cleared, Pointwise(("copy",), sums.elements, (sums,), (held,))
