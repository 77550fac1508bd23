"""The kernel that a framework launches for fused attention, with what it launches around it."""

from __future__ import annotations

import difflib
from contextlib import suppress

from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.library.attention import AttentionKernel
from gpusim.lowering.attention.plan import AttentionPlan, attention_plan
from gpusim.lowering.vector.plan import VectorPlan, vector_plan
from gpusim.numbers.formats import Dtype
from gpusim.prediction.selection import UnsupportedError
from gpusim.prediction.vector_selection import vector_kernel
from gpusim.system import System
from gpusim.workloads.attention import Attention
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction
from gpusim.workloads.vector import VectorOperator


def planned_attention(system: System, operator: Attention, name: str | None = None, *, warm: bool) -> AttentionPlan:
    """The plan of the first kernel of the catalogues that can run an operator.

    Args:
        name: pins the kernel of this printed name.
        warm: the operator ran just before, on the same tensors.

    Raises:
        UnsupportedError: there is none; the text says why.
    """
    for kernel in _able(system, operator, name):
        around = [tuple(_planned(system, one) for one in those) for those in _around(operator, kernel)]
        with suppress(DoesNotFitError):
            return attention_plan(system.gpu, operator, kernel, *around, warm=warm)
    raise UnsupportedError(f"{operator.op} on {system.gpu.name}: no SM holds a CTA of the kernels that compute it")


def _able(system: System, operator: Attention, name: str | None) -> list[AttentionKernel]:
    gpu, known = system.gpu, system.library.attention_kernels
    computing = [one for one in known if one.computes(operator)]
    if not computing:
        types = dict.fromkeys(
            dtype.value for one in known if one.family.op == operator.op for dtype in one.family.dtypes
        )
        has = f"they take {', '.join(types)}" if types else "they have none"
        masked = " with a mask" if operator.mask else ""
        raise UnsupportedError(
            f"{gpu.name}: no kernel for {operator.op} of {operator.dtype.value}{masked} in its kernel catalogues; {has}"
        )
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
    operator: Attention, kernel: AttentionKernel
) -> tuple[tuple[VectorOperator, ...], tuple[VectorOperator, ...]]:
    """What is launched before and after.

    The backward pass needs the sum over each row of the result times its gradient. FlashAttention-2 adds gradients of
    queries up in FP32, from zeros, and converts them in the end.
    """
    if not operator.backward:
        return (), ()
    rows, row = operator.batch * operator.heads * operator.queries, operator.head_dim
    held, sums = Access(rows * row, operator.dtype), Access(rows * row, Dtype.FP32)
    prepared = RowReduction("sum", rows, row, (held, held), (Access(rows, Dtype.FP32),), ("mul",))
    if kernel.family.kind != "flash":
        return (prepared,), ()
    cleared = Pointwise(("copy",), rows * row, (), (sums,))
    return (prepared, cleared), (Pointwise(("copy",), rows * row, (sums,), (held,)),)
