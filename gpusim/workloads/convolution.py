"""A convolution as measured tables write it: an implicit matrix multiplication, beside its own sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """A convolution in two dimensions of NCHW images."""

    images: int
    channels: int
    height: int
    width: int
    filters: int
    filter_h: int
    filter_w: int
    pad: tuple[int, int]
    """Rows, columns."""
    stride: tuple[int, int]

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result of the forward pass; 0 where the filter is larger than the padded image."""
        rows = (self.height + 2 * self.pad[0] - self.filter_h) // self.stride[0] + 1
        columns = (self.width + 2 * self.pad[1] - self.filter_w) // self.stride[1] + 1
        return max(rows, 0), max(columns, 0)

    @property
    def product(self) -> tuple[int, int, int, int]:
        """Batch, m, n, k as measured tables write them: m covers all images, batch says how many they are."""
        rows, columns = self.output
        m = self.images * rows * columns
        return self.images, m, self.filters, self.channels * self.filter_h * self.filter_w

    @property
    def columns(self) -> dict[str, str]:
        """The extra columns of convolution rows."""
        return {
            name: str(value)
            for name, value in {
                "n_img": self.images,
                "in_channels": self.channels,
                "height": self.height,
                "width": self.width,
                "out_channels": self.filters,
                "filter_h": self.filter_h,
                "filter_w": self.filter_w,
                "pad_h": self.pad[0],
                "pad_w": self.pad[1],
                "stride_h": self.stride[0],
                "stride_w": self.stride[1],
            }.items()
        }
