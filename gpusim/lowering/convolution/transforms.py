"""Launches around a product: images and filters to another layout, and tables of offsets.

cuDNN's kernels nchwToNhwcKernel and nhwcToNchwKernel transpose, in profiles of V100 and A100, squares of 32 channels
and 32 pixels through shared memory, a CTA of 256 threads each; every image has squares of its own, and so has every
filter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.operand import SECTOR_BYTES
from gpusim.lowering.pages import effective_l2_bytes
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.program import Barrier, Compute, Load, LoadShared, Program, Read, Role, Store, StoreShared, WaitLoad
from gpusim.units import ceil_div, us_of_cycles

SQUARE = 32
"""Channels, and pixels, of a CTA."""
THREADS = 256
REGISTERS = 32
"""Of a thread, as profiles have it."""
SETUP_INSTRUCTIONS = 300
"""Dependent, of a thread before its first load, for indices and addresses; fitted to filters of one tap on an A100,
with a CTA for each filter and 32 channels, in a profile of ResNet-50: 66 us for 512 x 2048, 131 us for 2048 x 1024."""
OFFSETS_PER_CTA = 256
"""Pixels whose offsets a CTA of computeOffsetsKernel writes: 13 CTAs for 3,136 of them in a profile of a V100."""


@dataclass(frozen=True, slots=True)
class Transform:
    """A launch that moves tensors to where the product wants them, or from where it leaves them."""

    lowered: Lowered
    totals: Totals
    estimate_us: float
    """For ranking: its DRAM traffic at peak bandwidth, with the time that a launch takes."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Images or filters in memory."""

    count: int
    channels: int
    pixels: int
    """Of one channel of one."""
    element_bytes: float
    padded_channels: int
    """Channels that are there after a transposition, or were before: zeros fill up what the product reads."""

    @property
    def size_bytes(self) -> float:
        return self.count * self.channels * self.pixels * self.element_bytes

    @property
    def padded_bytes(self) -> float:
        return self.size_bytes / self.channels * self.padded_channels


def transposition(gpu: Gpu, stack: Stack, *, to_channels_last: bool, footprint_bytes: float) -> Transform:
    """A change of layout.

    Args:
        footprint_bytes: what the convolution touches between two such launches, which leaves L2 what it holds [B].
    """
    name = "nchwToNhwcKernel" if to_channels_last else "nhwcToNchwKernel"
    grid = Grid(ceil_div(stack.pixels, SQUARE), ceil_div(stack.padded_channels, SQUARE), batch=stack.count)
    shared_bytes = int(SQUARE * (SQUARE + 1) * stack.element_bytes)
    sizes = (stack.size_bytes, stack.padded_bytes)
    read_bytes, written_bytes = sizes if to_channels_last else sizes[::-1]
    runs = (stack.pixels, stack.padded_channels) if to_channels_last else (stack.padded_channels, stack.pixels)
    asked, sent = (
        size_bytes * _overfetch(run * stack.element_bytes, SQUARE * stack.element_bytes)
        for size_bytes, run in zip((read_bytes, written_bytes), runs, strict=True)
    )
    warps = THREADS // gpu.sm.warp_size
    per_warp = 1 / (grid.ctas * warps)
    accesses = SQUARE / warps
    program: Program = (
        Compute(SETUP_INSTRUCTIONS * gpu.instructions["ffma"].latency_cycles),
        Load((Read("input", asked * per_warp, asked * per_warp),), asked * per_warp, accesses),
        WaitLoad(),
        StoreShared(accesses * SQUARE * stack.element_bytes, accesses),
        Barrier(),
        LoadShared(accesses * SQUARE * stack.element_bytes, accesses),
        Store("result", written_bytes * per_warp, sent * per_warp, accesses),
    )
    return streamed(
        gpu,
        name,
        grid,
        Resources(THREADS, REGISTERS, shared_bytes),
        program,
        (read_bytes, written_bytes),
        footprint_bytes,
    )


def padding(gpu: Gpu, stack: Stack, *, footprint_bytes: float) -> Transform:
    """A stack in the same layout with zeros beside its channels, or without them: a thread for each value."""
    values = stack.padded_bytes / stack.element_bytes
    grid = Grid(ceil_div(math.ceil(values), THREADS))
    warps = THREADS // gpu.sm.warp_size
    read, written = stack.size_bytes / (grid.ctas * warps), stack.padded_bytes / (grid.ctas * warps)
    program: Program = (
        Compute(SETUP_INSTRUCTIONS * gpu.instructions["ffma"].latency_cycles),
        Load((Read("input", read, read),), read, 1.0),
        WaitLoad(),
        Store("result", written, written, 1.0),
    )
    sizes = (stack.size_bytes, stack.padded_bytes)
    return streamed(gpu, "nhwcAddPaddingKernel", grid, Resources(THREADS, 16, 0), program, sizes, footprint_bytes)


def offsets(gpu: Gpu, name: str, pixels_of_image: int) -> Transform:
    """A table of the offsets of an image's pixels, which the product looks up."""
    grid = Grid(ceil_div(pixels_of_image, OFFSETS_PER_CTA))
    warps = OFFSETS_PER_CTA // gpu.sm.warp_size
    written_bytes = 4.0 * pixels_of_image
    per_warp = written_bytes / (grid.ctas * warps)
    program: Program = (
        Compute(SETUP_INSTRUCTIONS * gpu.instructions["ffma"].latency_cycles),
        Store("result", per_warp, per_warp, 1.0),
    )
    return streamed(gpu, name, grid, Resources(OFFSETS_PER_CTA, 16, 0), program, (0.0, written_bytes), 0.0)


def zeros(gpu: Gpu, size_bytes: float) -> Transform:
    """A result that the product writes a part of, or adds to, is cleared before."""
    warps = THREADS // gpu.sm.warp_size
    per_thread_bytes = 16
    grid = Grid(ceil_div(math.ceil(size_bytes), THREADS * per_thread_bytes))
    per_warp = size_bytes / (grid.ctas * warps)
    program: Program = (
        Compute(SETUP_INSTRUCTIONS * gpu.instructions["ffma"].latency_cycles),
        Store("result", per_warp, per_warp, 1.0),
    )
    name = "scalePackedTensor_kernel"
    return streamed(gpu, name, grid, Resources(THREADS, 16, 0), program, (0.0, size_bytes), 0.0)


def _overfetch(row_bytes: float, longest_bytes: float) -> float:
    """Bytes of sectors that are touched per byte of runs of a row, wherever they start."""
    run_bytes = min(row_bytes, longest_bytes)
    aligned = row_bytes % SECTOR_BYTES == 0 or run_bytes < SECTOR_BYTES
    return 1.0 if aligned else 1.0 + SECTOR_BYTES / 2 / run_bytes


def streamed(
    gpu: Gpu,
    name: str,
    grid: Grid,
    resources: Resources,
    program: Program,
    moved_bytes: tuple[float, float],
    footprint_bytes: float,
    runs_bytes: tuple[float, float] = (math.inf, math.inf),
) -> Transform:
    """A launch that reads one tensor once, where ``program`` loads any, and writes another.

    Args:
        runs_bytes: what lies together of what a CTA reads, and writes: DRAM opens a page for each run [B].
    """
    read_cost, write_cost = (_page_cost(gpu, run_bytes) for run_bytes in runs_bytes)
    write_cost *= gpu.dram.mixed_write_cost
    read_bytes, written_bytes = moved_bytes
    capacity = effective_l2_bytes(gpu)
    missed_bytes = read_bytes * (1.0 - survival_fraction(footprint_bytes, capacity))
    kept = survival_fraction(read_bytes + written_bytes, capacity)
    pushed_out = written_bytes * (1.0 - kept)
    cta_bytes = (read_bytes / grid.ctas, written_bytes / grid.ctas)
    tensors = [Tensor("result", cta_bytes[1])]
    if read_bytes:
        tensors.append(Tensor("input", cta_bytes[0], None, missed_bytes / read_bytes, read_cost=read_cost))
    launch = Launch(
        name,
        grid,
        (Role(resources.threads // gpu.sm.warp_size, program),),
        resources,
        tuple(tensors),
        write_back_cost=write_cost * pushed_out / (missed_bytes + written_bytes),
        write_cost=write_cost,
        cold=missed_bytes > 0,
    )
    lowered = Lowered(launch, Traffic(read_bytes, missed_bytes, pushed_out, read_cost=read_cost, write_cost=write_cost))
    taken = occupancy(SmLimits.of(gpu), *resources)
    rounds = ceil_div(grid.ctas, taken.ctas * gpu.sm.count)
    streamed_us = (missed_bytes * read_cost + pushed_out * write_cost) / (gpu.dram.peak_bandwidth_gb_per_s * 1e3)
    latency_cycles = gpu.l2.latency_cycles + SETUP_INSTRUCTIONS * gpu.instructions["ffma"].latency_cycles
    in_rounds_us = us_of_cycles(rounds * latency_cycles, gpu.clock.boost_mhz)
    estimate_us = max(streamed_us, in_rounds_us) + gpu.front_end.kernel_latency_us
    return Transform(lowered, totals_of(gpu, lowered), estimate_us)


def _page_cost(gpu: Gpu, run_bytes: float) -> float:
    """DRAM time of bytes in runs, of the same bytes a page at a time."""
    dram = gpu.dram
    whole = 1.0 + dram.activation_bytes / dram.page_bytes
    return (1.0 + dram.activation_bytes / min(run_bytes, dram.page_bytes)) / whole
