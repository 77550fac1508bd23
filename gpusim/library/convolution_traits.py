"""What a family of kernels made for convolutions takes, reads and writes, as a catalogue states it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gpusim.library.main_loops import Count, Entry
from gpusim.numbers.formats import Dtype
from gpusim.workloads.convolution import ConvolutionOp, ImageLayout


class ConvolutionTraits(Entry):
    """The convolutions that the kernels of a family take, and how they compute them."""

    ops: tuple[ConvolutionOp, ...] = Field(min_length=1, description="passes that they compute")
    images: ImageLayout = Field(description="memory layout of the images that they read and write")
    algorithm: Literal["implicit_gemm", "winograd", "atomic_scatter"] = Field(
        default="implicit_gemm",
        description="implicit_gemm: a GEMM of matrices that are gathered; winograd: Winograd's GEMMs in one "
        "kernel, filters of 3 x 3 only; atomic_scatter: what each tap makes of a result's gradient is added to the "
        "pixel that the tap reads",
    )
    min_channels: Count | None = Field(default=None, description="fewest channels of a group")
    max_channels: Count | None = Field(default=None, description="most channels of a group")
    max_filters: Count | None = Field(default=None, description="most filters of a group")
    max_taps: Count | None = Field(default=None, description="largest filter")
    unaligned_to: Count | None = Field(
        default=None,
        description="only one group, of channels that are no multiple of this, as others run on other kernels",
    )
    strided: bool | None = Field(
        default=None, description="only with a stride, or (false) only without; either if left out"
    )
    strided_from_taps: Count = Field(default=1, description="smallest filter that they take with a stride")
    pixels_multiple: Count | None = Field(
        default=None, description="number that the pixels of an image are a multiple of, as they are loaded together"
    )
    pads_within_filter: bool = Field(default=False, description="no padding as wide as the filter")
    widest_filled: bool = Field(
        default=False,
        description="the widest of the tiles that an image fills by half is taken, or that filters fill for their "
        "gradient",
    )
    transposes_from_taps: Count | None = Field(
        default=1, description="smallest filter for which images of the other layout are transposed; none: never"
    )
    transposes_result: bool = Field(
        default=False, description="images are written channel by channel where they are read pixel by pixel"
    )
    result: Dtype | None = Field(
        default=None, description="type of the result, which a kernel after it converts; inputs if left out"
    )
    offsets_kernel: str | None = Field(
        default=None, description="kernel before the GEMM that makes a table of its offsets, if any"
    )
    merged_channels: Count | None = Field(
        default=None,
        description="channels, and filters, up to which neighbouring groups are computed as one, zeros between them",
    )
    whole_group_tiles: bool = Field(
        default=False,
        description="in 16 bits and with cuDNN 8, groups of images that lie pixel by pixel must fill tiles: as many as "
        "merged_channels hold, or of filters that are a multiple of a tile's",
    )
    walks_taps_as_one: bool = Field(
        default=False,
        description="channels under any taps follow each other in a k-step, and in tiles of the filters' gradient",
    )
    pixels_per_split: Literal["row"] | Count | None = Field(
        default=None,
        description="what a CTA takes of all pixels, for the gradient of filters: a row of every result, or at most so "
        "many pixels of one; what the library chooses if left out",
    )

    @property
    def adds_to_result(self) -> bool:
        """CTAs add to a result that a kernel before them has cleared, and wait for no other."""
        return self.algorithm == "atomic_scatter" or self.pixels_per_split is not None
