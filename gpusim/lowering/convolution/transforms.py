"""Launches around a GEMM: other layouts and types of its tensors, tables of offsets, zeros.

cuDNN's kernels nchwToNhwcKernel and nhwcToNchwKernel transpose squares of channels and pixels through shared memory;
every image has squares of its own, and so has every filter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import SmLimits
from gpusim.hardware.occupancy import occupancy
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.library.transforms import ConvolutionTransforms, TransformKernel
from gpusim.lowering.locality import Traffic, survival_fraction
from gpusim.lowering.operand import SECTOR_BYTES
from gpusim.lowering.pages import effective_l2_bytes, page_cost
from gpusim.lowering.totals import Lowered, Totals, totals_of
from gpusim.program import Alu, Barrier, Compute, Load, LoadShared, Program, Read, Role, Store, StoreShared, WaitLoad
from gpusim.units import ceil_div, us_of_cycles


@dataclass(frozen=True, slots=True)
class Transform:
    """A launch that moves tensors to where the GEMM wants them, or from where it leaves them."""

    lowered: Lowered
    totals: Totals
    estimate_us: float
    """Time for ranking: the DRAM traffic at peak bandwidth, and the time that a launch takes [us]."""
    dirty_bytes: float
    """Bytes that L2 holds at the launch's end and DRAM does not [B]."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Images or filters in memory."""

    count: int
    channels: int
    pixels: int
    """Pixels of a channel of an image, or of a filter."""
    element_bytes: float
    padded_channels: int
    """Channels that are there after a transposition, or were before: zeros fill up what the GEMM reads."""
    kernel_bytes: float | None = None
    """Width of an element as the GEMM has it, if that is another type [B]."""

    @property
    def size_bytes(self) -> float:
        return self.count * self.channels * self.pixels * self.element_bytes

    @property
    def padded_bytes(self) -> float:
        return self.count * self.padded_channels * self.pixels * (self.kernel_bytes or self.element_bytes)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where launches around a GEMM run."""

    gpu: Gpu
    kernels: ConvolutionTransforms
    footprint_bytes: float
    """What the convolution touches between two such launches, which leaves L2 what it holds [B]."""
    dirty_bytes: float
    """Bytes that launches before wrote, which L2 holds and DRAM does not [B]."""

    def after(self, one: Transform) -> Surroundings:
        """Where the launch after a transform runs."""
        return replace(self, dirty_bytes=one.dirty_bytes)

    def after_gemm(self, written_bytes: float) -> Surroundings:
        """Where the launch after a GEMM runs, which read about as much as it wrote."""
        return replace(self, dirty_bytes=left_dirty_bytes(self.gpu, written_bytes, written_bytes))

    def setup(self, kernel: TransformKernel) -> Compute:
        """Indices and addresses of a thread."""
        return Compute(kernel.setup_instructions.value * self.gpu.instructions["ffma"].latency_cycles)

    def warps(self, kernel: TransformKernel) -> int:
        """Warps of a CTA."""
        return kernel.threads.value // self.gpu.sm.warp_size

    def transposition(self, stack: Stack, *, to_channels_last: bool) -> Transform:
        """A change of layout."""
        kernel = self.kernels.transposition
        side = kernel.side.value
        name = "nchwToNhwcKernel" if to_channels_last else "nhwcToNchwKernel"
        grid = Grid(ceil_div(stack.pixels, side), ceil_div(stack.padded_channels, side), batch=stack.count)
        shared_bytes = int(side * (side + 1) * stack.element_bytes)
        sizes = (stack.size_bytes, stack.padded_bytes)
        read_bytes, written_bytes = sizes if to_channels_last else sizes[::-1]
        runs = (stack.pixels, stack.padded_channels) if to_channels_last else (stack.padded_channels, stack.pixels)
        requested, sent = (
            size_bytes * _overfetch(run * stack.element_bytes, side * stack.element_bytes)
            for size_bytes, run in zip((read_bytes, written_bytes), runs, strict=True)
        )
        warps = self.warps(kernel)
        per_warp, accesses = 1 / (grid.ctas * warps), side / warps
        setup = self.setup(kernel)
        issued = Alu(tuple(kernel.instructions.value.by_pipe.items()), setup.cycles) if kernel.instructions else setup
        program: Program = (
            issued,
            Load((Read("input", requested * per_warp, requested * per_warp),), requested * per_warp, accesses),
            WaitLoad(),
            StoreShared(accesses * side * stack.element_bytes, accesses),
            Barrier(),
            LoadShared(accesses * side * stack.element_bytes, accesses),
            Store("result", written_bytes * per_warp, sent * per_warp, accesses),
        )
        return self.streamed(name, grid, kernel, program, (read_bytes, written_bytes), shared_bytes)

    def padding(self, stack: Stack) -> Transform:
        """A stack in the same layout with zeros beside its channels, or without them: a thread for each value."""
        kernel = self.kernels.padding
        grid = Grid(ceil_div(math.ceil(stack.padded_bytes / stack.element_bytes), kernel.threads.value))
        issued = Alu(tuple(kernel.instructions.value.by_pipe.items()), self.setup(kernel).cycles)
        return self._passed("nhwcAddPaddingKernel", grid, kernel, (stack.size_bytes, stack.padded_bytes), issued)

    def conversion(self, stack: Stack) -> Transform:
        """A result in the requested type."""
        kernel = self.kernels.conversion
        of_cta = kernel.threads.value * kernel.bytes_per_thread.value
        grid = Grid(ceil_div(math.ceil(stack.padded_bytes), of_cta))
        return self._passed("convertTensor_kernel", grid, kernel, (stack.padded_bytes, stack.size_bytes))

    def offsets(self, name: str, pixels_of_image: int) -> Transform:
        """A table of the offsets of an image's pixels, which the GEMM looks up."""
        kernel = self.kernels.offsets
        grid = Grid(ceil_div(pixels_of_image, kernel.threads.value))
        return self._passed(name, grid, kernel, (0.0, 4.0 * pixels_of_image))

    def zeros(self, size_bytes: float) -> Transform:
        """A result that the GEMM writes a part of, or adds to, is cleared before."""
        kernel = self.kernels.clearing
        grid = Grid(ceil_div(math.ceil(size_bytes), kernel.threads.value * kernel.bytes_per_thread.value))
        written = size_bytes / (grid.ctas * self.warps(kernel))
        issued = Alu((("alu", kernel.instructions.value),), self.setup(kernel).cycles)
        program: Program = (issued, Store("result", written, written, 1.0))
        return self.streamed("scalePackedTensor_kernel", grid, kernel, program, (0.0, size_bytes))

    def sum_of(
        self, name: str, count: int, elements: int, read_element_bytes: float, element_bytes: float
    ) -> Transform:
        """The launch that adds up what images, or CTAs, contribute to each element.

        Args:
            count: contributions to an element.
        """
        kernel = self.kernels.image_sum
        results = kernel.results_per_thread.value
        grid = Grid(ceil_div(elements, kernel.threads.value * results))
        sizes = (count * elements * read_element_bytes, elements * element_bytes)
        read, sent = (size_bytes / (grid.ctas * self.warps(kernel)) for size_bytes in sizes)
        lanes, latency = self.gpu.sm.warp_size, self.gpu.instructions["ffma"].latency_cycles
        program: Program = (
            self.setup(kernel),
            Load((Read("input", read, read),), read, read / (lanes * read_element_bytes)),
            WaitLoad(),
            Alu((("fma", count * results),), count * latency),
            Store("result", sent, sent, sent / (lanes * element_bytes)),
        )
        follows = replace(self, footprint_bytes=sum(sizes))
        return follows.streamed(name, grid, kernel, program, sizes)

    def _passed(
        self,
        name: str,
        grid: Grid,
        kernel: TransformKernel,
        moved_bytes: tuple[float, float],
        issued: Alu | None = None,
    ) -> Transform:
        """Each warp reads its part, if anything is read, and writes it."""
        read, written = (size_bytes / (grid.ctas * self.warps(kernel)) for size_bytes in moved_bytes)
        load: Program = (Load((Read("input", read, read),), read, 1.0), WaitLoad()) if read else ()
        program: Program = (issued or self.setup(kernel), *load, Store("result", written, written, 1.0))
        return self.streamed(name, grid, kernel, program, moved_bytes)

    def streamed(
        self,
        name: str,
        grid: Grid,
        kernel: TransformKernel,
        program: Program,
        sizes_bytes: tuple[float, float],
        shared_bytes: int = 0,
        *,
        request_count: float = 1.0,
        runs_bytes: tuple[float, float] = (math.inf, math.inf),
    ) -> Transform:
        """A launch that reads one tensor once, where ``program`` loads any, and writes another.

        Args:
            request_count: times that CTAs which run together request from L2 what is read.
            runs_bytes: what lies together of what a CTA reads, and writes: DRAM opens a page for each run [B].
        """
        gpu = self.gpu
        resources = Resources(kernel.threads.value, kernel.registers.value, shared_bytes)
        read_cost, write_cost = (page_cost(gpu, run_bytes) for run_bytes in runs_bytes)
        read_bytes, written_bytes = sizes_bytes
        write_cost *= gpu.dram.mixed_write_cost if read_bytes else 1.0
        capacity = effective_l2_bytes(gpu)
        missed_bytes = read_bytes * (1.0 - survival_fraction(self.footprint_bytes, capacity))
        moved_bytes = read_bytes + written_bytes
        left_bytes = left_dirty_bytes(gpu, read_bytes, written_bytes)
        # What the launch before left takes part in this as far as the convolution does not fit L2 as a whole.
        found_bytes = self.dirty_bytes * (1.0 - survival_fraction(self.footprint_bytes, capacity))
        pushed_bytes = found_bytes * min(1.0, moved_bytes / capacity)
        pushed_out = written_bytes - left_bytes + pushed_bytes
        tensors = [Tensor("result", written_bytes / grid.ctas)]
        if read_bytes:
            missing, requested_bytes = missed_bytes / read_bytes / request_count, read_bytes * request_count
            tensors.append(Tensor("input", requested_bytes / grid.ctas, None, missing, read_cost=read_cost))
        launch = Launch(
            name,
            grid,
            (Role(self.warps(kernel), program),),
            resources,
            tuple(tensors),
            write_back_cost=write_cost * pushed_out / (missed_bytes + written_bytes),
            write_cost=write_cost,
            cold=missed_bytes > 0,
        )
        moved = Traffic(
            read_bytes * request_count,
            missed_bytes,
            pushed_out,
            read_cost=read_cost,
            read_energy=read_cost,
            write_cost=write_cost,
        )
        lowered = Lowered(launch, moved)
        rounds = ceil_div(grid.ctas, occupancy(SmLimits.of(gpu), *resources).ctas * gpu.sm.count)
        streamed_us = (missed_bytes * read_cost + pushed_out * write_cost) / (gpu.dram.peak_bandwidth_gb_per_s * 1e3)
        latency_cycles = gpu.l2.latency_cycles + self.setup(kernel).cycles
        in_rounds_us = us_of_cycles(rounds * latency_cycles, gpu.clock.boost_mhz)
        estimate_us = max(streamed_us, in_rounds_us) + gpu.front_end.kernel_latency_us
        return Transform(lowered, totals_of(gpu, lowered), estimate_us, left_bytes + found_bytes - pushed_bytes)


def left_dirty_bytes(gpu: Gpu, read_bytes: float, written_bytes: float) -> float:
    """What a launch leaves in L2 of what it wrote [B].

    L2 holds what was read and written last, in equal measure. Of zeros, which nothing is read for, half of it too: a
    profile of a 2080 Ti shows the time to write them all, after a launch that left as much.
    """
    return written_bytes * min(1.0, effective_l2_bytes(gpu) / max(read_bytes + written_bytes, 2 * written_bytes))


def _overfetch(row_bytes: float, longest_bytes: float) -> float:
    """Bytes of sectors that are touched per byte of runs of a row, wherever they start."""
    run_bytes = min(row_bytes, longest_bytes)
    aligned = row_bytes % SECTOR_BYTES == 0 or run_bytes < SECTOR_BYTES
    return 1.0 if aligned else 1.0 + SECTOR_BYTES / 2 / run_bytes
