"""Kernels of convolutions that multiply no matrices: those around GEMMs, and those of channels by themselves."""

from __future__ import annotations

from pydantic import Field

from gpusim.cuda_version import CudaVersion, LastCuda
from gpusim.library.main_loops import Cited, Cost, Count, Entry, Pipes, Source
from gpusim.workloads.convolution import ConvolutionOp, ImageLayout


class TransformKernel(Entry):
    """A kernel in which each thread computes addresses, loads, and stores."""

    source: Source
    threads: Cited[Count] = Field(description="of a CTA")
    registers: Cited[Count] = Field(description="per thread")
    setup_instructions: Cited[Cost] = Field(description="dependent, of a thread before its first load or store")


class SquareKernel(TransformKernel):
    """It transposes squares through shared memory."""

    side: Cited[Count] = Field(description="channels, and pixels, of a CTA")
    instructions: Cited[Pipes] | None = Field(
        default=None, description="of a warp besides loads and stores, by pipe; None: they take no time of a pipe"
    )
    until_cuda: LastCuda | None = Field(default=None, description="last version of CUDA whose library has it")


class PaddingKernel(TransformKernel):
    """A thread moves a value at a time."""

    instructions: Cited[Pipes] = Field(description="of a warp and value besides its load and store")


class StreamKernel(TransformKernel):
    """It passes over a tensor in order."""

    bytes_per_thread: Cited[Count] = Field(description="of what the GEMM wrote, or will add to")


class FillKernel(StreamKernel):
    """It writes the same value everywhere, and its instructions take longer than its bytes."""

    instructions: Cited[Cost] = Field(description="of a warp, integer ones")


class SumKernel(TransformKernel):
    """It adds up what the GEMMs of images leave."""

    results_per_thread: Cited[Count] = Field(
        description="elements of the result that a thread computes, each a sum of all partial results"
    )


class WinogradKernel(TransformKernel):
    """A thread transforms a tile of pixels, or the taps between a channel and a filter."""

    shared_bytes_per_thread: Cited[Count] = Field(description="shared memory of a CTA for each of its threads [B]")
    dependent_instructions: Cited[Cost] = Field(description="additions and multiplications, one after the other")
    instructions: Cited[Cost] = Field(description="additions and multiplications, of a warp")


class DepthwiseKernel(TransformKernel):
    """A thread adds up taps of one channel."""

    result_instructions: Cited[Pipes] = Field(description="of a result of a thread: divisions for where it lies")
    tap_instructions: Cited[Pipes] = Field(description="of a tap besides its loads and multiply-add: bounds, addresses")


class TiledDepthwiseKernel(TransformKernel):
    """A thread computes a rectangle of results of one channel or two, from registers that hold their window."""

    name: str = Field(description="as profilers print it")
    ops: tuple[ConvolutionOp, ...] = Field(min_length=1, description="passes that it computes")
    images: ImageLayout = Field(description="memory layout of the images that it reads and writes")
    results: Cited[tuple[Count, Count, Count]] = Field(description="rows, columns and channels of a thread")
    strided_results: Cited[tuple[Count, Count, Count]] = Field(description="rows, columns and channels with a stride")
    rows_together: Cited[Count] = Field(description="rows of results whose loads a cache or shared memory serves once")
    registers_by_side: Cited[tuple[tuple[Count, Count], ...]] = Field(
        description="sides of filters that it is compiled for, and its registers per thread"
    )
    access_instructions: Cited[Pipes] = Field(
        description="of each load and store: addresses, bounds, conversions; multiply-adds are counted apart"
    )

    def for_side(self, side: int) -> TiledDepthwiseKernel:
        """The kernel that is compiled for filters of a side, or for the next larger ones."""
        by_side = dict(self.registers_by_side.value)
        compiled = min((one for one in by_side if one >= side), default=max(by_side))
        registers = Cited(by_side[compiled], self.registers_by_side.kind, self.registers_by_side.source)
        return self.model_copy(update={"registers": registers})


class ConvolutionTransforms(Entry):
    """Kernels around the GEMMs of convolutions, and those of channels by themselves, as cuDNN and PyTorch have them."""

    transposition: SquareKernel = Field(
        description="between NCHW and NHWC, where a GEMM reads or writes the layout that the operator does not have"
    )
    older_transposition: SquareKernel | None = Field(
        default=None, description="launched in place of transposition up to the CUDA of its until_cuda; absent: never"
    )
    offsets: TransformKernel = Field(description="a thread for each pixel of an image")
    clearing: FillKernel = Field(
        description="writes zeros before a GEMM that adds to its result, or that leaves parts of it unwritten"
    )
    padding: PaddingKernel = Field(description="a thread for each value")
    conversion: StreamKernel = Field(
        description="converts a result that the GEMM stores in another data type than the operator has"
    )
    image_sum: SumKernel = Field(
        description="adds up, element by element, the partial results that images or CTAs left apart"
    )
    winograd: WinogradKernel = Field(description="of 4 x 4 outputs, around a batch of GEMMs")
    winograd_filters: WinogradKernel = Field(description="of 2 x 2 outputs, before a GEMM in one kernel")
    depthwise: DepthwiseKernel = Field(description="a thread for each result")
    depthwise_filters: DepthwiseKernel = Field(description="a CTA for each tap of each filter, a warp for each image")
    tiled_depthwise: tuple[TiledDepthwiseKernel, ...] = Field(
        default=(), description="of cuDNN; a framework launches the first that computes a pass of its layout"
    )

    def as_of(self, cuda: CudaVersion) -> ConvolutionTransforms:
        """The kernels that a version of CUDA had."""
        older = self.older_transposition
        if older is None or (older.until_cuda is not None and cuda > older.until_cuda):
            return self
        return self.model_copy(update={"transposition": older})
