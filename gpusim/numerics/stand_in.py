"""Plans for multiplications that a GPU can issue and the kernel catalogues do not list yet.

An assumption: blocked as the catalogues' 128 x 128 FP16 kernel is, 64 bytes of k for each row of a tile and one warp
along k. Of that only what cuts k matters here, above all the depth of the multiply instruction, which the spec has.
"""

from __future__ import annotations

from gpusim.arch import GpuArch, Instruction
from gpusim.kernels import Family, Kernel, KernelEntry
from gpusim.plan import Plan, plan
from gpusim.workload import Gemm

TILE = 128
K_BYTES = 64


def stand_in_plan(arch: GpuArch, gemm: Gemm) -> Plan | None:
    """The workload on a kernel that is named for what it is; None where the GPU has no instruction for it."""
    able = {
        name: one
        for name, one in arch.instructions.items()
        if (one.sparsity, one.accumulate) == (gemm.sparsity, gemm.accumulate) and gemm.dtype.value in one.inputs
    }
    if not able:
        return None
    name = max(able, key=lambda name: able[name].fma / able[name].issue_interval_cycles)
    return plan(arch, gemm, _kernel(name, able[name], gemm))


def _kernel(name: str, instruction: Instruction, gemm: Gemm) -> Kernel:
    depth = max(instruction.shape[2], K_BYTES * 8 // gemm.dtype.bits * (1 if gemm.sparsity == "dense" else 2))
    entry = KernelEntry(tile=(TILE, TILE, depth), warps=(2, 2, 1), stages=2, registers=128)
    family = Family(
        name="uncatalogued_" + name + "_{tile_m}x{tile_n}x{tile_k}",
        source="assumed",
        instruction=name,
        inputs=(gemm.dtype,),
        staging="async",
        load_bytes=16,
        setup_instructions=0,
        step_instructions=0,
        pipelined=True,
        stores_result=True,
        split_k=(),
        raster_width=0,
        kernels=(entry,),
    )
    return Kernel(family, *entry.tile, *entry.warps, entry.stages, entry.registers, entry.suffix)
