"""Convolutions in two dimensions, forward and backward, as implicit matrix multiplications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gpusim.numbers.formats import Dtype, dtype_named
from gpusim.workloads.sizes import checked_size

ConvolutionOp = Literal["conv_fwd", "conv_bwd_inputs", "conv_bwd_weights"]
CONVOLUTION_OPS: tuple[ConvolutionOp, ...] = get_args(ConvolutionOp)
ImageLayout = Literal["nchw", "nhwc"]
SIZE_COLUMNS = (
    *("n_img", "in_channels", "height", "width", "out_channels", "filter_h", "filter_w"),
    *("pad_h", "pad_w", "stride_h", "stride_w"),
)
"""Further columns of convolutions in the measured CSV schema; pads and strides last."""
GROUPS_COLUMN = "groups"
IMAGE_LAYOUTS: tuple[ImageLayout, ...] = get_args(ImageLayout)


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """Sizes of images, filters, padding and stride."""

    images: int
    channels: int
    height: int
    width: int
    filters: int
    filter_h: int
    filter_w: int
    pad: tuple[int, int] = (0, 0)
    """Rows, columns."""
    stride: tuple[int, int] = (1, 1)
    """Rows, columns."""
    groups: int = 1
    """Parts of the channels, each convolved with its own part of the filters; as many as channels: depthwise."""

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result of the forward pass; 0 where the filter is larger than the padded image."""
        rows = (self.height + 2 * self.pad[0] - self.filter_h) // self.stride[0] + 1
        columns = (self.width + 2 * self.pad[1] - self.filter_w) // self.stride[1] + 1
        return max(rows, 0), max(columns, 0)

    @property
    def rows_read(self) -> list[int]:
        """Rows of an image that the taps of a column of the filter read, for each row of results."""
        return _read(self.height, self.filter_h, self.pad[0], self.stride[0], self.output[0])

    @property
    def columns_read(self) -> list[int]:
        """Columns that those of a row of the filter read."""
        return _read(self.width, self.filter_w, self.pad[1], self.stride[1], self.output[1])

    @property
    def gemm(self) -> tuple[int, int, int, int]:
        """Batch, m, n, k of the implicit GEMM, as in measured tables.

        m covers all images, batch is their number; n covers all groups, k one.
        """
        rows, columns = self.output
        m = self.images * rows * columns
        return self.images, m, self.filters, self.channels // self.groups * self.filter_h * self.filter_w

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by their column of the measured CSV schema."""
        images = (self.images, self.channels, self.height, self.width)
        filters = (self.filters, self.filter_h, self.filter_w)
        return dict(zip(SIZE_COLUMNS, (*images, *filters, *self.pad, *self.stride), strict=True))

    @property
    def columns(self) -> dict[str, str]:
        """The extra columns of convolution rows; without groups where there is one."""
        sizes = self.sizes if self.groups == 1 else {**self.sizes, GROUPS_COLUMN: self.groups}
        return {name: str(value) for name, value in sizes.items()}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A two-dimensional convolution or one of its gradients.

    Raises:
        ValueError: an invalid field; the text begins with its name.

    >>> Convolution(ConvolutionShape(1, 64, 56, 56, 64, 3, 3, pad=(1, 1)), "fp16").flops
    231211008
    """

    shape: ConvolutionShape
    dtype: Dtype
    op: str = "conv_fwd"
    layout: str = "nhwc"
    """Memory layout of images."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_named(self.dtype))
        shape = self.shape
        for name, size in {**shape.sizes, GROUPS_COLUMN: shape.groups}.items():
            if not (name.startswith("pad_") and size == 0):
                checked_size(name, size)
        if shape.channels % shape.groups or shape.filters % shape.groups:
            raise ValueError(
                f"groups: {shape.groups} do not divide {shape.channels} channels and {shape.filters} filters evenly"
            )
        if self.op not in CONVOLUTION_OPS:
            raise ValueError(f"op: expected one of {', '.join(CONVOLUTION_OPS)}, got '{self.op}'")
        if self.layout not in IMAGE_LAYOUTS:
            raise ValueError(f"layout: expected 'nchw' or 'nhwc', got '{self.layout}'")
        if 0 in self.shape.output:
            raise ValueError("filter_h, filter_w: the filter is larger than the padded image")

    @property
    def flops(self) -> int:
        """Operations of a direct convolution, two per multiply-add; the gradients have as many."""
        _, m, n, k = self.shape.gemm
        return 2 * m * n * k

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds that read a pixel, not padding."""
        shape = self.shape
        taps = len(shape.rows_read) * len(shape.columns_read)
        return shape.images * taps * shape.filters * (shape.channels // shape.groups)

    @property
    def read_bytes(self) -> float:
        """Part of :attr:`operand_bytes` that is used: a stride larger than the filter passes over pixels [B]."""
        if self.op == "conv_bwd_inputs":
            return self.operand_bytes
        shape = self.shape
        pixels = shape.images * len(set(shape.rows_read)) * len(set(shape.columns_read))
        unused = shape.channels * (shape.images * shape.height * shape.width - pixels)
        return self.operand_bytes - unused * self.dtype.bits / 8

    @property
    def operand_bytes(self) -> float:
        """The two tensors that are read [B]."""
        return self.size_bytes - self.result_bytes

    @property
    def result_bytes(self) -> float:
        """The tensor that is written [B]: outputs, or the gradient of images or filters."""
        images, filters, outputs = self._elements
        written = {"conv_fwd": outputs, "conv_bwd_inputs": images, "conv_bwd_weights": filters}[self.op]
        return written * self.dtype.bits / 8

    @property
    def size_bytes(self) -> float:
        """Images, filters and outputs, or their gradients [B]."""
        return sum(self._elements) * self.dtype.bits / 8

    @property
    def _elements(self) -> tuple[int, int, int]:
        """Elements of images, filters and outputs."""
        shape = self.shape
        images, m, n, k = shape.gemm
        return images * shape.channels * shape.height * shape.width, n * k, m * n

    @property
    def columns(self) -> dict[str, str | int]:
        """Columns of the measured CSV schema that describe it."""
        batch, m, n, k = self.shape.gemm
        return {
            "op": self.op,
            "batch": batch,
            "m": m,
            "n": n,
            "k": k,
            "dtype": self.dtype.value,
            "acc_dtype": self.dtype.default_accumulate,
            "layout": self.layout,
            "sparsity": "dense",
            **self.shape.columns,
        }


def _read(size: int, taps: int, pad: int, stride: int, outputs: int) -> list[int]:
    """What the taps along one dimension read, for all outputs, without padding.

    >>> _read(5, 3, 1, 2, 3)
    [0, 1, 1, 2, 3, 3, 4]
    """
    places = (output * stride - pad + tap for output in range(outputs) for tap in range(taps))
    return [place for place in places if 0 <= place < size]
