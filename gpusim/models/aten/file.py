"""Files of captured models: calls with shapes as expressions of named sizes.

A file is YAML in the syntax of JSON, which is read a hundred times as fast. ``traces`` has an object for each variant:
``tensors`` lists distinct tensors as ``[storage, type, shape, strides]``, ``calls`` has a line for each call, ``[name,
layer, operands, results, arguments, freed storages]`` with tensors by their place in that list, and ``backward`` is the
place of the first call of the backward pass.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpusim.cache_key import CacheKey
from gpusim.errors import excerpt
from gpusim.expression import evaluate
from gpusim.files.yamlfile import SpecError
from gpusim.models.aten.call import DTYPES, Call, Operand, TensorView, Trace
from gpusim.models.aten.program import Parameter, Program, TracedMode, Variant
from gpusim.models.policy import Optimizer, Precision
from gpusim.models.shape import Shape
from gpusim.units import LARGEST_SIZE

FORMAT = "gpusim captured model 1"
MOST_KNOWN = 4
"""Captured models, and programs of them, that are remembered."""
Size = int | str
"""A number, or an expression of sizes."""
TensorEntry = tuple[int, str, list[Size], list[Size]]
"""Storage, type, shape, strides."""
CallEntry = tuple[str, str, list[int | list[int | None] | None], list[int | None], dict[str, Any], list[int]]
"""Name, layer, operands, results, arguments, storages that are freed; tensors by their place."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class VariantPart(_Part):
    """A trace of a captured model."""

    mode: TracedMode
    """``train``: forward and backward pass; ``inference``: forward; ``token``: of one more token of each sequence."""
    precision: str
    """Precision of the calls; a trace in ``fp32`` serves ``tf32``, and one of the ``amp-`` serves the other."""
    layout: str
    """Memory layout of images, ``nchw`` or ``nhwc``; ``nchw`` of a model that takes none."""
    attention: str
    """``fused``: scaled_dot_product_attention is a call; ``eager``: products around a softmax."""
    compiled: bool = False
    """The calls are kernels of TorchInductor, not those of eager PyTorch."""
    fixed: list[str] = []
    """Further sizes that cannot be chosen for it, such as those that decide how Inductor splits reductions."""
    resident_bytes: Size | None = None
    """Bytes of weights, buffers, inputs, and keys and values of earlier tokens, in a step of one token."""
    storages: dict[int, Size]
    """Bytes of each storage."""
    tensors: list[TensorEntry]
    """Distinct tensors: storage, type by PyTorch's name, shape and strides in elements."""
    backward: int
    """Place of the first call of the backward pass."""
    gradients: dict[str, int]
    """Gradient of each parameter."""
    calls: list[CallEntry]
    """Calls in order: name, layer, operands, results, arguments, and the storages that are freed after it; tensors by
    their place in ``tensors``."""

    @property
    def variant(self) -> Variant:
        return Variant(self.mode, self.precision, self.layout, self.attention, self.compiled)


class ParameterPart(_Part):
    """A trainable tensor."""

    shape: list[int]
    """Elements along each dimension."""
    dtype: str
    """Type of an element by PyTorch's name, such as ``float32``."""
    trained: bool = True
    """The optimizer updates it, and GPUs that train together exchange its gradient."""


class ProgramFile(_Part):
    """A captured model."""

    format: Literal["gpusim captured model 1"]
    """Says that the file is a captured model, and how it is laid out."""
    title: str
    """What the model is called in tables."""
    source: str
    """What was captured, and with which versions."""
    assumptions: list[str] = []
    """What the capture took for granted, which ``gpusim models show`` prints."""
    item: Annotated[str, Field(pattern="^(img|seq|tok)$")]
    """What throughput counts: images, sequences or tokens."""
    items: Size = "batch"
    """How many of them a pass takes."""
    optimizer: Optimizer
    """What updates the parameters after the captured calls of training; its kernels are those of the framework."""
    precision: Precision
    """That of a command without ``--precision``."""
    sizes: dict[str, int]
    """Sizes that shapes are expressions of, by name, as they were captured; a command may choose others."""
    fixed: list[str] = []
    """Sizes that cannot be chosen: calls differ with them in more than numbers."""
    images: bool
    """It takes images, so that their memory layout decides which trace is used."""
    attends: bool
    """It computes attention that may be fused, so that the kind of attention decides which trace is used."""
    parameters: dict[str, ParameterPart]
    """Trainable tensors, by name."""
    resident_bytes: Size
    """Bytes of weights, buffers and inputs."""
    traces: list[VariantPart] = Field(min_length=1)
    """Calls of a step for each way of running it that was captured."""


@dataclass(frozen=True, slots=True)
class CapturedFile:
    """The file of a captured model."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class CapturedModel:
    """A captured model: sizes may still be chosen."""

    name: str
    file: CapturedFile
    content: ProgramFile

    @property
    def files(self) -> Mapping[str, CapturedFile]:
        """Its file."""
        return {"": self.file}

    @property
    def published(self) -> Mapping[str, Any]:
        """No values are published of it."""
        return {}

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Check that the model has sizes of these names, which may be chosen.

        Raises:
            SpecError: it has not; one line.
        """
        content = self.content
        for name, size in sizes.items():
            if name not in content.sizes:
                raise SpecError(f"{self.name} has no size '{excerpt(name)}'; it has {', '.join(content.sizes)}")
            if name in content.fixed and size != content.sizes[name]:
                raise SpecError(
                    f"{self.name}: size {name} was captured at {content.sizes[name]} alone; "
                    f"capture it again with --size {name}={size}"
                )
            if not 1 <= size <= LARGEST_SIZE:
                raise SpecError(f"{self.name}: size {name}: expected a positive integer, got {excerpt(str(size))}")

    def graph(self, sizes: Mapping[str, int] | None = None) -> Program:
        """The model at given sizes, others as the file has them.

        Raises:
            SpecError: a size that the model does not have, or that it does not hold for; one line.
        """
        self.check_sizes(sizes or {})
        return _program(CacheKey(self), tuple({**self.content.sizes, **(sizes or {})}.items()))


@lru_cache(maxsize=MOST_KNOWN)
def _program(model: CacheKey[CapturedModel], sizes: tuple[tuple[str, int], ...]) -> Program:
    """The model at these sizes, of which many boards are predicted."""
    return _AtSizes(model.record, dict(sizes)).program()


def token_program(model: CapturedModel, sizes: Mapping[str, int], kept: int) -> Program:
    """The step of one more token of each sequence, with so many tokens before it.

    Raises:
        SpecError: it was not captured, or not at such sizes; one line.
    """
    content = model.content
    part = next((one for one in content.traces if one.mode == "token"), None)
    if part is None:
        raise SpecError(
            f"{model.name}: has no trace of one token; capture a causal model of transformers with --mode token"
        )
    model.check_sizes({**sizes, "past_len": kept})
    at_sizes = _AtSizes(model, {**content.sizes, **sizes, "past_len": kept})
    resident = at_sizes.number(part.resident_bytes or content.resident_bytes)
    program = at_sizes.program()
    return replace(program, one_token=True, resident_bytes=resident, sizes={**program.sizes, "seq_len": 1})


def is_captured(path: Path) -> bool:
    """Whether a file begins as that of a captured model."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            return FORMAT.encode() in file.read(len(FORMAT) + 32)
    except OSError:
        return False


def load_captured(path: Path) -> CapturedModel:
    """A captured model from its file.

    Raises:
        SpecError: the file cannot be read, or is none of a captured model.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None
    return _captured(path, CacheKey(raw, hashlib.sha256(raw).hexdigest()))


@lru_cache(maxsize=MOST_KNOWN)
def _captured(path: Path, content_of_file: CacheKey[bytes]) -> CapturedModel:
    """The model of a file that holds this."""
    raw, sha256 = content_of_file.record, str(content_of_file.key)
    try:
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        content = ProgramFile.model_validate_json(text)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise _unreadable(path, error) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        where = f"{where}: " if where else ""
        raise SpecError(
            f"{path}: no captured model: {where}{excerpt(first['msg'])}; write it with gpusim capture"
        ) from None
    _check_places(path, content)
    return CapturedModel(path.name.partition(".")[0], CapturedFile(path, sha256), content)


def _unreadable(path: Path, error: Exception) -> SpecError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    remedy = "check the path" if isinstance(error, FileNotFoundError) else "write it again with gpusim capture"
    return SpecError(f"{path}: {reason}; {remedy}")


def _check_places(path: Path, content: ProgramFile) -> None:
    """Refuse tensors that are not listed."""
    for trace in content.traces:
        count = len(trace.tensors)
        for at, (name, _, operands, results, *_rest) in enumerate(trace.calls):
            flat = [one for part in (*operands, results) for one in (part if isinstance(part, list) else [part])]
            if any(one is not None and not 0 <= one < count for one in flat):
                raise SpecError(f"{path}: call {at} ({excerpt(name)}): names a tensor that is not listed")
        for _, dtype, *_rest in trace.tensors:
            if dtype not in DTYPES:
                raise SpecError(f"{path}: unknown type '{excerpt(dtype)}'; known are {', '.join(DTYPES)}")


def captured_text(content: ProgramFile) -> str:
    """The text of the file of a captured model: a line for each call."""
    values = content.model_dump(mode="json", exclude_defaults=True)
    traces = values.pop("traces")
    head = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    parts = [_trace_text(trace) for trace in traces]
    return "{\n" + ",\n".join([*head, f'"traces": [\n{",".join(parts)}\n]']) + "\n}\n"


def _trace_text(trace: Mapping[str, Any]) -> str:
    lists = ("tensors", "calls")
    head = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in trace.items() if key not in lists]
    rows = [f"{json.dumps(key)}: [\n" + ",\n".join(map(json.dumps, trace[key])) + "\n]" for key in lists]
    return "{\n" + ",\n".join([*head, *rows]) + "\n}"


class _AtSizes:
    """A captured model at given sizes; every expression is evaluated once."""

    def __init__(self, model: CapturedModel, sizes: Mapping[str, int]) -> None:
        self._model, self._sizes = model, sizes
        self._known: dict[str, int] = {}

    def program(self) -> Program:
        content = self._model.content
        parameters = {
            name: Parameter(tuple(one.shape), one.dtype, one.trained) for name, one in content.parameters.items()
        }
        return Program(
            self._model.name,
            content.item,
            self.number(content.items),
            self._sizes,
            parameters,
            {part.variant: partial(self._trace, part) for part in content.traces},
            content.optimizer,
            self.number(content.resident_bytes),
            content.images,
            content.attends,
            source=content.source,
        )

    def _trace(self, part: VariantPart) -> Trace:
        for name in part.fixed:
            if (size := self._sizes[name]) != (captured := self._model.content.sizes[name]):
                raise SpecError(
                    f"{self._model.name}: {part.variant}: was captured at {name} {captured} alone; "
                    f"capture it again with --size {name}={size}"
                )
        tensors = [
            TensorView(storage, dtype, self._shape(shape), self._shape(strides))
            for storage, dtype, shape, strides in part.tensors
        ]

        def of(place: int | None) -> TensorView | None:
            return None if place is None else tensors[place]

        def operand(entry: int | Sequence[int | None] | None) -> Operand:
            return tuple(map(of, entry)) if isinstance(entry, list) else of(entry)  # type: ignore[arg-type]

        calls = [
            Call(
                name,
                layer,
                "forward" if at < part.backward else "backward",
                tuple(map(operand, operands)),
                tuple(map(of, results)),
                {key: self._argument(value) for key, value in arguments.items()},
            )
            for at, (name, layer, operands, results, arguments, _) in enumerate(part.calls)
        ]
        sizes = {storage: self.number(size) for storage, size in part.storages.items()}
        gradients = {name: tensors[place] for name, place in part.gradients.items()}
        return Trace(calls, sizes, [tuple(call[5]) for call in part.calls], gradients)

    def _shape(self, entries: Sequence[Size]) -> Shape:
        return tuple(entries) if all(isinstance(one, int) for one in entries) else tuple(map(self.number, entries))  # type: ignore[arg-type]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._argument(one) for one in value]
        if isinstance(value, dict):
            return self.number(value["size"])
        return value

    def number(self, entry: Size) -> int:
        """A number, or the value of an expression."""
        if isinstance(entry, int):
            return entry
        if entry not in self._known:
            try:
                self._known[entry] = evaluate(entry, self._sizes)
            except ValueError as error:
                raise SpecError(f"{self._model.file.path}: {error}") from None
        return self._known[entry]
