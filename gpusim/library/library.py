"""A library: its kernels, and the heuristic that selects one.

The heuristic takes the shortest estimated time, with a bias. All biases are in logarithms of time: 0.1 makes up for an
estimate that is 10 % longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from gpusim.cache_key import CacheKey
from gpusim.canonical_text import content_hash
from gpusim.cuda_version import CudaVersion, LastCuda
from gpusim.hardware.gpu import Gpu
from gpusim.library.attention import AttentionKernel
from gpusim.library.catalogue import ConvolutionAlgorithm, Kernel
from gpusim.library.transforms import ConvolutionTransforms
from gpusim.library.vector import VectorKernel
from gpusim.record import Record, Unsourced

LogTime = Annotated[float, Field(ge=-10, le=10)]
"""Logarithm of a ratio of times: up to 1.3, a factor of 3.7; 10 is a factor of 22,000."""


Feature = Literal[
    "tile_intensity",
    "tile_area",
    "tall_tile",
    "tile_along_result",
    "padding",
    "waves",
    "split_k",
    "sliced_k",
    "step_k",
]
"""What a heuristic knows of a choice besides its estimated time (:func:`gpusim.prediction.heuristic.features_of`)."""

Weights = dict[Feature, LogTime]


class HeuristicBias(Record):
    """How a library's choice departs from the shortest estimated time.

    A candidate is charged the sum of its features, each times the weight that the kernel's family gives it; a feature
    that has no weight counts nothing.
    """

    simt: Weights = Field(description="Penalty per unit of a feature, kernels on CUDA cores [logarithm of time].")
    simt_batched: Weights = Field(description="Penalties of batched GEMMs on CUDA cores, which libraries choose apart.")
    simt_half: Weights = Field(description="Penalties of kernels on CUDA cores whose operands have 16 bits.")
    mma: Weights = Field(description="Penalties of kernels on Tensor Cores that hold operands in registers.")
    mma_unaligned: Weights = Field(
        description="Penalties of their variants for leading dimensions that are not aligned, which load in pieces."
    )
    xmma: Weights = Field(description="Penalties of cuBLAS's xmma kernels, whose tiles lie between powers of two.")
    wgmma: Weights = Field(description="Penalties of kernels on Tensor Cores whose warpgroups read shared memory.")
    gemv_kernel_bonus: LogTime = Field(description="Bonus of GEMV kernels over GEMM kernels [logarithm of time].")


class SplitKSearch(Record):
    """Split-K factors that a heuristic considers."""

    factors: tuple[Annotated[int, Field(ge=2, le=1_024)], ...] = Field(
        strict=False, description="CTAs that may share the k of a tile, in ascending order; one alone always may."
    )
    min_steps: int = Field(ge=1, le=1_024, description="Fewest k-steps that a split leaves each of these CTAs.")
    workspace_mib: float = Field(
        ge=0,
        le=1_024,
        description="Partial sums of kernels that add them up in either way go to a second kernel if they take less, "
        "else from CTA to CTA [MiB].",
    )


class LibraryRecord(Record):
    """What the file of a library states."""

    kernel_catalogues: tuple[str, ...] = Field(
        strict=False, description="Kernel catalogues: files of the folder kernels, without .yaml."
    )
    last_cuda: Annotated[LastCuda | None, Unsourced()] = Field(
        default=None, description="Last version of CUDA with this library; the newest has none."
    )
    older: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Libraries of older versions of CUDA: files of this folder, without .yaml.",
    )
    heuristic_bias: HeuristicBias = Field(description="How the choice departs from the shortest estimated time.")
    split_k_search: SplitKSearch = Field(description="Which split-K factors the heuristic considers.")


@dataclass(frozen=True, slots=True)
class Library:
    """Kernels and the heuristic that selects one of them for an operator."""

    name: str
    kernels: tuple[Kernel, ...]
    """Kernels of matrix multiplications."""
    convolution_kernels: tuple[Kernel, ...]
    """Kernels of convolutions, as implicit matrix multiplications."""
    convolution_algorithms: tuple[ConvolutionAlgorithm, ...]
    """Ways to compute convolutions by kernels for matrix multiplications."""
    convolution_transforms: ConvolutionTransforms | None
    """Kernels around the GEMMs of convolutions; None: the library has none."""
    vector_kernels: tuple[VectorKernel, ...]
    """Kernels of operators on rows, in the order in which a framework considers them."""
    attention_kernels: tuple[AttentionKernel, ...]
    """Kernels of fused attention, in the order in which a framework considers them."""
    heuristic_bias: HeuristicBias
    split_k_search: SplitKSearch
    tuned_for: Gpu | None = None
    """GPU whose estimated times the heuristic compares; None for the one that it runs on."""
    older_kernels: tuple[Kernel, ...] = ()
    """Kernels of matrix multiplications that only older versions of CUDA had."""
    fixed_split_k: int | None = None
    """CTAs that share the k of each tile of a GEMM; None: as the heuristic considers."""

    def as_of(self, cuda: CudaVersion) -> Library:
        """This library with the kernels that a version of CUDA had."""
        kernels, convolution_kernels = (
            tuple(kernel for kernel in those if kernel.family.is_of(cuda))
            for those in (self.kernels + self.older_kernels, self.convolution_kernels)
        )
        algorithms = tuple(one for one in self.convolution_algorithms if one.since_cuda <= cuda)
        transforms = self.convolution_transforms
        return replace(
            self,
            kernels=kernels,
            convolution_kernels=convolution_kernels,
            convolution_algorithms=algorithms,
            convolution_transforms=transforms and transforms.as_of(cuda),
            older_kernels=(),
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 of the kernels, the heuristic, and the GPU that it was tuned for."""
        of_kinds = self.kernels, self.convolution_kernels, self.vector_kernels, self.attention_kernels
        kernels = [_kernels_hash(CacheKey(kernels)) for kernels in of_kinds]
        convolving = self.convolution_algorithms, self.convolution_transforms
        fixed = () if self.fixed_split_k is None else (self.fixed_split_k,)
        selection = self.heuristic_bias, self.split_k_search, self.tuned_for
        return content_hash((self.name, kernels, *convolving, *selection, *fixed))


@lru_cache(maxsize=64)
def _kernels_hash(
    kernels: CacheKey[tuple[Kernel, ...]] | CacheKey[tuple[VectorKernel, ...]] | CacheKey[tuple[AttentionKernel, ...]],
) -> str:
    """SHA-256 of kernels, which the libraries of many design points share."""
    return content_hash(kernels.record)
