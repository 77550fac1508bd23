"""What to measure: a YAML suite to a list of operators and microbenchmarks, most valuable first.

A suite is checked like an experiment. Its sections are measured in the order in which they stand, entries
in the order of their list, and within an entry data types before shapes: a run that is cut short has what
the author put first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from gpusim.files.document import Part, Sizes, as_list, checked, find_shipped, load_document, shipped_folder
from gpusim.files.yamlfile import YamlFile
from gpusim.measure.instructions import INSTRUCTIONS
from gpusim.units import LARGEST_SIZE
from gpusim.workloads.convolution import ConvolutionShape
from gpusim.workloads.gemm import Dtype

GemmOp = Literal["gemm", "linear", "bmm"]
ConvolutionOp = Literal["conv_fwd", "conv_bwd_inputs", "conv_bwd_weights"]
VectorOp = Literal["softmax", "layernorm", "add", "mul", "relu", "gelu", "tanh"]
BenchmarkName = Literal["pointer_chase", "stream", "shared", "launch", "instruction_latency", "instruction_interval"]
L2State = Literal["cold", "warm"]

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "pointer_chase": ("l1", "l2"),
    "stream": ("read", "write", "copy"),
    "shared": ("latency", "bandwidth"),
    "launch": ("graph_gap", "graph_kernel", "stream_interval", "event_pair", "synchronise"),
    "instruction_latency": tuple(INSTRUCTIONS),
    "instruction_interval": tuple(INSTRUCTIONS),
}
"""What each microbenchmark can be asked for."""
WITH_FOOTPRINT = ("pointer_chase", "stream")


def _pair_of_sizes(value: object) -> object:
    """One pair where a list of pairs may stand."""
    single = isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, int) for one in value)
    return [value] if single else value


Positive = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Padding = Annotated[int, Field(ge=0, le=LARGEST_SIZE)]
Dtypes = Annotated[tuple[Dtype, ...], BeforeValidator(as_list), Field(min_length=1)]
L2States = Annotated[tuple[L2State, ...], BeforeValidator(as_list), Field(min_length=1)]
Layers = Annotated[tuple[tuple[Positive, Positive], ...], BeforeValidator(_pair_of_sizes), Field(min_length=1)]


class _Replayed(Part):
    """How an operator is replayed."""

    l2: L2States = ("cold",)
    sustained: bool = Field(default=False, description="also for a second at a stretch, until the power limit acts")


class GemmEntry(_Replayed):
    """Matrix multiplications: every combination of the sizes given."""

    op: GemmOp = "linear"
    dtypes: Dtypes
    square: Sizes | None = Field(default=None, description="m = n = k")
    m: Sizes | None = None
    n: Sizes | None = None
    k: Sizes | None = None
    layers: Layers | None = Field(default=None, description="pairs [n, k]: the weights of a model's layers")
    batch: Sizes = (1,)
    layout: Literal["nn", "nt", "tn"] = "tn"
    sparsity: Annotated[tuple[Literal["dense", "2:4"], ...], BeforeValidator(as_list), Field(min_length=1)] = ("dense",)
    bias: bool = False

    @model_validator(mode="after")
    def _one_way_to_say_the_shapes(self) -> GemmEntry:
        given = {name for name in ("square", "m", "n", "k", "layers") if getattr(self, name) is not None}
        if given not in ({"square"}, {"m", "n", "k"}, {"m", "layers"}):
            raise ValueError("give 'square', or 'm' with 'layers', or all of 'm', 'n' and 'k'")
        if "2:4" in self.sparsity and (self.op != "gemm" or self.layout != "tn" or self.batch != (1,)):
            raise ValueError("2:4 is measured as 'op: gemm' with layout tn and batch 1: its A is the sparse operand")
        if self.op != "bmm" and self.batch != (1,):
            raise ValueError("several products at once are 'op: bmm'")
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
        """What the entry asks for, data types outermost."""
        for dtype, (batch, m, n, k), sparsity in product(self.dtypes, self.shapes(), self.sparsity):
            yield GemmWork(self.op, dtype, m, n, k, batch, self.layout, sparsity, self.bias)


class ConvolutionEntry(_Replayed):
    """Two-dimensional convolutions: the layers given, each for every operator, batch and data type."""

    ops: Annotated[tuple[ConvolutionOp, ...], BeforeValidator(as_list), Field(min_length=1)] = ("conv_fwd",)
    dtypes: Dtypes
    n_img: Sizes
    in_channels: Positive
    height: Positive
    width: Positive
    out_channels: Positive
    filter: Annotated[tuple[Positive, Positive], Field(description="[height, width]")]
    pad: tuple[Padding, Padding] = (0, 0)
    stride: tuple[Positive, Positive] = (1, 1)
    layout: Literal["nchw", "nhwc"] = "nhwc"

    @model_validator(mode="after")
    def _filter_fits(self) -> ConvolutionEntry:
        for size, filter_size, pad in zip((self.height, self.width), self.filter, self.pad, strict=True):
            if size + 2 * pad < filter_size:
                raise ValueError("the filter is larger than the padded image")
        return self

    def operators(self) -> Iterator[Operator]:
        """What the entry asks for, data types outermost."""
        for dtype, n_img, op in product(self.dtypes, self.n_img, self.ops):
            images = (n_img, self.in_channels, self.height, self.width)
            shape = ConvolutionShape(*images, self.out_channels, *self.filter, self.pad, self.stride)
            yield ConvolutionWork(op, dtype, shape, self.layout)


class VectorEntry(_Replayed):
    """Operators on m rows of n elements."""

    ops: Annotated[tuple[VectorOp, ...], BeforeValidator(as_list), Field(min_length=1)]
    dtypes: Dtypes
    m: Sizes
    n: Sizes

    def operators(self) -> Iterator[Operator]:
        """What the entry asks for, data types outermost."""
        for dtype, op, m, n in product(self.dtypes, self.ops, self.m, self.n):
            yield VectorWork(op, dtype, m, n)


class MicrobenchmarkEntry(Part):
    """One microbenchmark, all of its variants if none is named."""

    benchmark: BenchmarkName
    variants: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()
    footprint_kib: Sizes | None = None

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
        """What the entry asks for."""
        for variant in self.variants or VARIANTS[self.benchmark]:
            for kib in self.footprint_kib or (0,):
                yield Microbenchmark(self.benchmark, variant, 1024 * kib)


class SuiteFile(Part):
    """What a suite's YAML may say."""

    title: str
    question: str = ""
    gemms: tuple[GemmEntry, ...] = ()
    convolutions: tuple[ConvolutionEntry, ...] = ()
    vectors: tuple[VectorEntry, ...] = ()
    microbenchmarks: tuple[MicrobenchmarkEntry, ...] = ()

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
"""Models by the section that they stand in."""


@dataclass(frozen=True, slots=True)
class GemmWork:
    """A (batched) matrix multiplication; sizes, layout and order of C as in the measured schema."""

    op: GemmOp
    dtype: Dtype
    m: int
    n: int
    k: int
    batch: int = 1
    layout: str = "tn"
    sparsity: str = "dense"
    bias: bool = False

    @property
    def flops(self) -> int:
        """Operations, two per multiply-add, dense-equivalent."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes of operands and result."""
        inputs = self.m * self.k + self.k * self.n
        return self.batch * (inputs * self.dtype.bits + self.m * self.n * self.dtype.output_bits) // 8

    @property
    def columns(self) -> dict[str, Any]:
        """Its columns of the measured schema."""
        return {
            "op": self.op,
            "batch": self.batch,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "dtype": self.dtype.value,
            "acc_dtype": self.dtype.default_accumulate,
            "layout": self.layout,
            "sparsity": self.sparsity,
            "bias": "yes" if self.bias else "no",
        }


@dataclass(frozen=True, slots=True)
class ConvolutionWork:
    """A two-dimensional convolution or one of its gradients."""

    op: ConvolutionOp
    dtype: Dtype
    shape: ConvolutionShape
    layout: str

    @property
    def flops(self) -> int:
        """Operations of a direct convolution, two per multiply-add; the gradients have as many."""
        _, m, n, k = self.shape.product
        return 2 * m * n * k

    @property
    def bytes(self) -> int:
        """Bytes of images, filters and result."""
        shape = self.shape
        images, m, n, k = shape.product
        return (images * shape.channels * shape.height * shape.width + n * k + m * n) * self.dtype.bits // 8

    @property
    def columns(self) -> dict[str, Any]:
        """Its columns of the measured schema."""
        batch, m, n, k = self.shape.product
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


@dataclass(frozen=True, slots=True)
class VectorWork:
    """An elementwise operator, softmax or layer norm on m rows of n elements."""

    op: VectorOp
    dtype: Dtype
    m: int
    n: int

    @property
    def flops(self) -> int:
        """Operations: one per element, for estimates only."""
        return self.m * self.n

    @property
    def bytes(self) -> int:
        """Bytes of operands and result."""
        tensors = 3 if self.op in ("add", "mul") else 2
        return tensors * self.m * self.n * self.dtype.bits // 8

    @property
    def columns(self) -> dict[str, Any]:
        """Its columns of the measured schema."""
        return {
            "op": self.op,
            "batch": 1,
            "m": self.m,
            "n": self.n,
            "k": "",
            "dtype": self.dtype.value,
            "acc_dtype": self.dtype.default_accumulate,
            "layout": "",
            "sparsity": "dense",
        }


Operator = GemmWork | ConvolutionWork | VectorWork


@dataclass(frozen=True, slots=True)
class Microbenchmark:
    """One point of a microbenchmark."""

    benchmark: BenchmarkName
    variant: str
    footprint_bytes: int
    """0 where there is none."""

    @property
    def key(self) -> str:
        """What tells it from the others."""
        footprint = f"/{self.footprint_bytes}" if self.footprint_bytes else ""
        return f"{self.benchmark}/{self.variant}{footprint}"


@dataclass(frozen=True, slots=True)
class State:
    """Under which circumstances an operator is replayed."""

    l2: L2State
    load: Literal["burst", "sustained"]


@dataclass(frozen=True, slots=True)
class Item:
    """An operator and the states in which it is asked for: one row each."""

    work: Operator
    states: tuple[State, ...]

    @property
    def key(self) -> str:
        """What tells its operator from the others."""
        return work_key(self.work)


@dataclass(frozen=True, slots=True)
class Suite:
    """A loaded suite."""

    name: str
    file: YamlFile
    content: SuiteFile

    def work(self) -> tuple[Item | Microbenchmark, ...]:
        """All there is to do, in order, nothing twice."""
        states: dict[Operator | Microbenchmark, dict[State, None]] = {}
        for section in self.file.data:
            for entry in getattr(self.content, section) if section in PARTS else ():
                if isinstance(entry, MicrobenchmarkEntry):
                    states |= {one: states.get(one, {}) for one in entry.microbenchmarks()}
                    continue
                asked = [State(l2, "burst") for l2 in entry.l2]
                asked += [State(entry.l2[0], "sustained")] if entry.sustained else []
                for work in entry.operators():
                    states.setdefault(work, {}).update(dict.fromkeys(asked))
        return tuple(
            work if isinstance(work, Microbenchmark) else Item(work, tuple(asked)) for work, asked in states.items()
        )


def work_key(work: Operator) -> str:
    """What tells an operator from all others, in words that stay the same from version to version."""
    return "/".join(f"{name}={value}" for name, value in work.columns.items() if value != "")


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
