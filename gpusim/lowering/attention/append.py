"""The kernel that writes new keys and values into the pages of a cache: a CTA for each token."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.lowering.attention.parts import WIDE_ACCESS_BYTES
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.program import Compute, Load, Program, Read, Role, Store, WaitLoad
from gpusim.workloads.attention import Attention

KERNEL = "reshape_and_cache_flash_kernel"
SLOT, NEW, CACHE = "slots", "new tokens", "cache"
SLOT_BYTES = 8
"""Where a token goes: a 64-bit index of all places of the cache [B]."""
MAX_THREADS = 512
REGISTERS = 32
DIVISION_INSTRUCTIONS = 90
"""Dependent instructions of a 64-bit division and its remainder, which find a token's page and place (assumed)."""


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """The kernel, for the tokens of one operator."""

    launch: Launch
    totals: tuple[Totals, ...]


def append_plan(gpu: Gpu, operator: Attention, *, warm: bool) -> AppendPlan:
    """Lower the write of an operator's own tokens to their pages.

    Source: vllm-project/vllm csrc/cache_kernels.cu, reshape_and_cache_flash: a CTA for each token, of as many threads
    as it has elements, up to 512; each copies 16 bytes at a time.

    Args:
        warm: the operator ran just before, on the same tensors.
    """
    tokens = operator.batch * operator.queries
    elements = operator.held_heads * operator.head_dim
    token_bytes, kept_bytes = elements * operator.dtype.bits / 8, elements * operator.kept_bits / 8
    threads = min(elements, MAX_THREADS)
    warps = -(-threads // gpu.sm.warp_size)
    resident = survival_fraction(operator.size_bytes, effective_l2_bytes(gpu)) if warm else 0.0
    missed = 1.0 - resident
    tensors = (
        Tensor(SLOT, SLOT_BYTES, miss_fraction=missed),
        Tensor(NEW, 2 * token_bytes, miss_fraction=missed),
        Tensor(CACHE, 2 * kept_bytes),
    )
    resources = Resources(warps * gpu.sm.warp_size, REGISTERS, 0)
    role = Role(warps, _program(gpu, token_bytes / warps, kept_bytes / warps, warps))
    read_bytes, written_bytes = tokens * (2 * token_bytes + SLOT_BYTES), tokens * 2 * kept_bytes
    traffic = Traffic(read_bytes, read_bytes * missed, written_bytes * missed)
    launch = Launch(KERNEL, Grid(tokens), (role,), resources, tensors, traffic.write_back_cost, cold=not warm)
    return AppendPlan(launch, (totals_of(gpu, Lowered(launch, traffic)),))


def _program(gpu: Gpu, warp_bytes: float, kept_bytes: float, warps: int) -> Program:
    """A warp reads where its token goes, then copies its part of the keys, and of the values.

    Args:
        warp_bytes: of the part as it was computed.
        kept_bytes: of the part as the cache keeps it; its conversion hides behind the loads.
    """
    accesses = warp_bytes / WIDE_ACCESS_BYTES
    copy: Program = (
        Load((Read(NEW, warp_bytes, warp_bytes),), warp_bytes, accesses),
        WaitLoad(),
        Store(CACHE, kept_bytes, kept_bytes, accesses),
    )
    return (
        Load((Read(SLOT, SLOT_BYTES / warps, SLOT_BYTES / warps),), SLOT_BYTES, 1.0),
        WaitLoad(),
        Compute(DIVISION_INSTRUCTIONS * gpu.pipes["alu"].latency_cycles),
        *copy,
        *copy,
    )
