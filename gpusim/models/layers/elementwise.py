"""Layers whose results come from one element each, or from one row: activations, sums, norms, softmax, losses."""

from __future__ import annotations

from typing import Literal

from gpusim.models.layers.layer import Index, Layer, Shape, Size, shown
from gpusim.workloads.functions import FUNCTIONS

_OF_ONE, _OF_TWO = (
    tuple(name for name, function in FUNCTIONS.items() if function.operands == operands) for operands in (1, 2)
)


class Activation(Layer):
    """A function of every element."""

    op: Literal[_OF_ONE]  # type: ignore[valid-type]  # type checkers take literals alone

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape


class Combination(Layer):
    """A function of the elements of several tensors, each broadcast to the shape of the result."""

    op: Literal[_OF_TWO]  # type: ignore[valid-type]  # as above

    def result(self, *shapes: Shape) -> Shape:
        dims = max(map(len, shapes))
        padded = [(1,) * (dims - len(shape)) + shape for shape in shapes]
        for sizes in zip(*padded, strict=True):
            together = " and ".join(map(shown, shapes))
            self.needs(len({size for size in sizes if size != 1}) <= 1, f"cannot broadcast {together} to one shape")
        return tuple(max(sizes) for sizes in zip(*padded, strict=True))


class Cast(Layer):
    """Stands where a program converts, which the precision decides."""

    op: Literal["cast"] = "cast"

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape


class Rope(Layer):
    """Turns pairs of features by the angle of their place: rotary embedding."""

    op: Literal["rope"] = "rope"

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape


class Power(Layer):
    """A power of every element, by a number that the program holds."""

    op: Literal["pow"] = "pow"
    exponent: Size

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape


class Dropout(Layer):
    """Zeroes elements at random in training, and is nothing in inference."""

    op: Literal["dropout"] = "dropout"
    probability: float = 0.1

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape


class BatchNorm(Layer):
    """Normalises each channel over all images (``aten::batch_norm``)."""

    op: Literal["batch_norm"] = "batch_norm"
    frozen: bool = False
    """Scale and shift of fixed numbers, as detectors keep those of their backbone."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) >= 2, f"takes images x channels, got {shown(shape)}")
        return shape

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        return {} if self.frozen else {"weight": (shape[1],), "bias": (shape[1],)}


class GroupNorm(Layer):
    """Normalises groups of channels of each image."""

    op: Literal["group_norm"] = "group_norm"
    groups: Size

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(shape[1] % self.groups == 0, f"{shape[1]} channels do not divide into {self.groups} groups")
        return shape

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        return {"weight": (shape[1],), "bias": (shape[1],)}


class LayerNorm(Layer):
    """Normalises rows; ``rms_norm`` by their root mean square alone, without a bias."""

    op: Literal["layer_norm", "rms_norm"] = "layer_norm"

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        weight: dict[str, Shape] = {"weight": (shape[-1],)}
        return {**weight, "bias": (shape[-1],)} if self.op == "layer_norm" else weight


class Softmax(Layer):
    """Of rows; ``log_softmax`` its logarithm."""

    op: Literal["softmax", "log_softmax"] = "softmax"
    wide: bool = False
    """The result is in FP32, whatever it is of (``dtype=torch.float32``)."""

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape


class CrossEntropy(Layer):
    """Mean loss of rows of scores against the number of the right column of each."""

    op: Literal["cross_entropy"] = "cross_entropy"

    def result(self, *shapes: Shape) -> Shape:
        self.needs(len(shapes[0]) >= 2, f"takes rows of scores, got {shown(shapes[0])}")
        return ()


class Reduced(Layer):
    """Sum or mean over some dimensions, which disappear."""

    op: Literal["sum", "mean"]
    dims: list[Index]

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        gone = {dim % len(shape) for dim in self.dims}
        return tuple(size for dim, size in enumerate(shape) if dim not in gone)
