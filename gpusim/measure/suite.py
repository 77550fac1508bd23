"""A measurement suite: a YAML file of operators and microbenchmarks, most valuable first.

A suite is checked like an experiment. Sections and entries are measured in the order of the file, data types before
shapes within an entry: a run that is cut short has measured what the author put first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from gpusim.files.checked_document import Part, checked, find_shipped, load_document, shipped_folder
from gpusim.files.yamlfile import YamlFile
from gpusim.measure.instructions import INSTRUCTIONS
from gpusim.record import ALSO_SINGLE, as_list
from gpusim.workloads.conditions import L2State
from gpusim.workloads.convolution import Convolution, ConvolutionShape, ImageLayout
from gpusim.workloads.fields import ConvolutionOps, Dtypes, L2States, Padding, Size, Sizes, Sparsities, VectorOps
from gpusim.workloads.gemm import Gemm, GemmOp, StorageOrder
from gpusim.workloads.operators import Operator, operator_key, parse_operator

BenchmarkName = Literal["pointer_chase", "stream", "shared", "launch", "instruction_latency", "instruction_interval"]

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "pointer_chase": ("l1", "l2"),
    "stream": ("read", "write", "copy"),
    "shared": ("latency", "bandwidth"),
    "launch": ("graph_gap", "graph_kernel", "stream_interval", "event_pair", "synchronise"),
    "instruction_latency": tuple(INSTRUCTIONS),
    "instruction_interval": tuple(INSTRUCTIONS),
}
"""Variants of each microbenchmark."""
WITH_FOOTPRINT = ("pointer_chase", "stream")


def _pair_of_sizes(value: object) -> object:
    """A single pair as a list of one."""
    single = isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, int) for one in value)
    return [value] if single else value


Layers = Annotated[tuple[tuple[Size, Size], ...], BeforeValidator(_pair_of_sizes), Field(min_length=1), ALSO_SINGLE]


class _Replayed(Part):
    """How an operator is replayed."""

    l2: L2States = Field(default=("cold",), description="whether L2 is flushed before each call, or warm")
    sustained: bool = Field(default=False, description="also for a second at a stretch, until the power limit acts")


class GemmEntry(_Replayed):
    """Matrix multiplications: every combination of the sizes given."""

    op: GemmOp = Field(default="linear", description="as in measured tables")
    dtypes: Dtypes = Field(description="data types of A and B")
    square: Sizes | None = Field(default=None, description="m = n = k")
    m: Sizes | None = Field(default=None, description="rows of C")
    n: Sizes | None = Field(default=None, description="columns of C")
    k: Sizes | None = Field(default=None, description="inner (reduction) dimension")
    layers: Layers | None = Field(default=None, description="pairs [n, k]: the weights of a model's layers")
    batch: Sizes = Field(default=(1,), description="GEMMs of one call, of op bmm")
    layout: Literal["nn", "nt", "tn"] = Field(default="tn", description="in the letters of BLAS's column-major call")
    order: StorageOrder = Field(default="row", description="how C lies; column is the order of BLAS")
    sparsity: Sparsities = Field(default=("dense",), description="structure of A: dense, or 2:4")
    bias: bool = Field(default=False, description="whether a bias is added")

    @model_validator(mode="after")
    def _shapes_are_given_once(self) -> GemmEntry:
        given = {name for name in ("square", "m", "n", "k", "layers") if getattr(self, name) is not None}
        if given not in ({"square"}, {"m", "n", "k"}, {"m", "layers"}):
            raise ValueError("give 'square', or 'm' with 'layers', or all of 'm', 'n' and 'k'")
        if self.order == "column" and self.op != "gemm":
            raise ValueError("C by columns is 'op: gemm'")
        sparse = (self.op, self.order, self.layout, self.batch)
        if "2:4" in self.sparsity and sparse != ("gemm", "column", "tn", (1,)):
            raise ValueError(
                "2:4 is measured as 'op: gemm' with order column, layout tn and batch 1: its A is the sparse operand"
            )
        if self.op != "bmm" and self.batch != (1,):
            raise ValueError("several GEMMs at once are 'op: bmm'")
        if self.bias and self.op != "linear":
            raise ValueError("a bias is added by 'op: linear'")
        return self

    def shapes(self) -> Iterator[tuple[int, int, int, int]]:
        """Each (batch, m, n, k)."""
        if self.square is not None:
            yield from ((batch, size, size, size) for batch in self.batch for size in self.square)
        elif self.layers is not None:
            yield from ((batch, m, n, k) for batch, (n, k), m in product(self.batch, self.layers, self.m or ()))
        else:
            yield from product(self.batch, self.m or (), self.n or (), self.k or ())

    def operators(self) -> Iterator[Operator]:
        """Every operator of the entry, data types outermost."""
        for dtype, (batch, m, n, k), sparsity in product(self.dtypes, self.shapes(), self.sparsity):
            yield Gemm(m, n, k, dtype, batch, self.layout, sparsity, order=self.order, op=self.op, bias=self.bias)


class ConvolutionEntry(_Replayed):
    """Two-dimensional convolutions: the layers given, each for every operator, batch and data type."""

    ops: ConvolutionOps = Field(default=("conv_fwd",), description="passes, as in measured tables")
    dtypes: Dtypes = Field(description="data types of images and filters")
    n_img: Sizes = Field(description="images of a batch")
    in_channels: Size = Field(description="channels of an image")
    height: Size = Field(description="pixels of an image from top to bottom")
    width: Size = Field(description="pixels of an image from left to right")
    out_channels: Size = Field(description="filters")
    filter: Annotated[tuple[Size, Size], Field(description="[height, width]")]
    pad: tuple[Padding, Padding] = Field(default=(0, 0), description="[height, width] on each side")
    stride: tuple[Size, Size] = Field(default=(1, 1), description="[height, width]")
    layout: ImageLayout = Field(default="nhwc", description="how images lie in memory")

    @model_validator(mode="after")
    def _filter_fits(self) -> ConvolutionEntry:
        for size, filter_size, pad in zip((self.height, self.width), self.filter, self.pad, strict=True):
            if size + 2 * pad < filter_size:
                raise ValueError("the filter is larger than the padded image")
        return self

    def operators(self) -> Iterator[Operator]:
        """Every operator of the entry, data types outermost."""
        for dtype, n_img, op in product(self.dtypes, self.n_img, self.ops):
            images = (n_img, self.in_channels, self.height, self.width)
            shape = ConvolutionShape(*images, self.out_channels, *self.filter, self.pad, self.stride)
            yield Convolution(shape, dtype, op, self.layout)


class VectorEntry(_Replayed):
    """Operators on m rows of n elements."""

    ops: VectorOps = Field(description="operators, as in measured tables")
    dtypes: Dtypes = Field(description="data types of the operands")
    m: Sizes = Field(description="rows")
    n: Sizes = Field(description="elements of a row")

    def operators(self) -> Iterator[Operator]:
        """Every operator of the entry, data types outermost."""
        for dtype, op, m, n in product(self.dtypes, self.ops, self.m, self.n):
            yield parse_operator({"op": op, "m": m, "n": n, "dtype": dtype})


class MicrobenchmarkEntry(Part):
    """One microbenchmark, all of its variants if none is named."""

    benchmark: BenchmarkName = Field(description="what is measured")
    variants: Annotated[tuple[str, ...], BeforeValidator(as_list), ALSO_SINGLE] = Field(
        default=(), description="which of its variants; all if left out"
    )
    footprint_kib: Sizes | None = Field(default=None, description="memory that a chase or a stream goes through [KiB]")

    @model_validator(mode="after")
    def _known_variants(self) -> MicrobenchmarkEntry:
        known = VARIANTS[self.benchmark]
        for variant in self.variants:
            if variant not in known:
                raise ValueError(f"{self.benchmark} has no variant '{variant}'; known are {', '.join(known)}")
        if (self.benchmark in WITH_FOOTPRINT) != (self.footprint_kib is not None):
            raise ValueError(f"{' and '.join(WITH_FOOTPRINT)} take footprint_kib, the others do not")
        return self

    def microbenchmarks(self) -> Iterator[Microbenchmark]:
        """Every microbenchmark of the entry."""
        for variant in self.variants or VARIANTS[self.benchmark]:
            for kib in self.footprint_kib or (0,):
                yield Microbenchmark(self.benchmark, variant, 1024 * kib)


class SuiteFile(Part):
    """Content of a suite's YAML file."""

    title: str = Field(description="what the suite measures")
    question: str = Field(default="", description="what it answers")
    gemms: tuple[GemmEntry, ...] = Field(default=(), description="matrix multiplications")
    convolutions: tuple[ConvolutionEntry, ...] = Field(default=(), description="convolutions")
    vectors: tuple[VectorEntry, ...] = Field(default=(), description="operators on rows")
    microbenchmarks: tuple[MicrobenchmarkEntry, ...] = Field(default=(), description="microbenchmarks")

    @model_validator(mode="after")
    def _something_to_measure(self) -> SuiteFile:
        if not (self.gemms or self.convolutions or self.vectors or self.microbenchmarks):
            raise ValueError("nothing to measure; add gemms, convolutions, vectors or microbenchmarks")
        return self


PARTS: Mapping[str, type[BaseModel]] = {
    "gemms": GemmEntry,
    "convolutions": ConvolutionEntry,
    "vectors": VectorEntry,
    "microbenchmarks": MicrobenchmarkEntry,
}
"""Models of the entries, by section."""


@dataclass(frozen=True, slots=True)
class Microbenchmark:
    """One point of a microbenchmark."""

    benchmark: BenchmarkName
    variant: str
    footprint_bytes: int
    """0: none."""

    @property
    def key(self) -> str:
        """Identifier in files and logs."""
        footprint = f"/{self.footprint_bytes}" if self.footprint_bytes else ""
        return f"{self.benchmark}/{self.variant}{footprint}"


@dataclass(frozen=True, slots=True)
class State:
    """The conditions under which an operator is replayed."""

    l2: L2State
    load: Literal["burst", "sustained"]


@dataclass(frozen=True, slots=True)
class Item:
    """An operator and the states to measure it in: one row each."""

    operator: Operator
    states: tuple[State, ...]

    @property
    def key(self) -> str:
        """Identifier in files and logs."""
        return operator_key(self.operator)


@dataclass(frozen=True, slots=True)
class Suite:
    """A loaded suite."""

    name: str
    file: YamlFile
    content: SuiteFile

    def items(self) -> tuple[Item | Microbenchmark, ...]:
        """Everything to measure, in order, nothing twice."""
        states: dict[Operator | Microbenchmark, dict[State, None]] = {}
        for section in self.file.data:
            for entry in getattr(self.content, section) if section in PARTS else ():
                if isinstance(entry, MicrobenchmarkEntry):
                    states |= {one: states.get(one, {}) for one in entry.microbenchmarks()}
                    continue
                wanted = [State(l2, "burst") for l2 in entry.l2]
                wanted += [State(entry.l2[0], "sustained")] if entry.sustained else []
                for operator in entry.operators():
                    states.setdefault(operator, {}).update(dict.fromkeys(wanted))
        return tuple(
            one if isinstance(one, Microbenchmark) else Item(one, tuple(wanted)) for one, wanted in states.items()
        )


def shipped_suites() -> dict[str, Path]:
    """Suites that can be run by name."""
    return {path.stem: path for path in sorted((shipped_folder("experiments") / "measure").glob("*.yaml"))}


def load_suite(name_or_path: str) -> Suite:
    """Load a suite by the name of a shipped one or from a YAML file.

    Raises:
        SpecError: no such suite, or one that does not say what it must.
    """
    file = load_document(find_shipped(name_or_path, shipped_suites(), "suite"))
    return Suite(file.path.stem, file, checked(SuiteFile, file, file.data, PARTS))
