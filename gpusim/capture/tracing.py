"""Tracing of a module: each way of running it, at several sizes, as one captured model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._pytree import tree_leaves, tree_map_only

from gpusim.capture.attention import OF_ATTENTION, Replaced
from gpusim.capture.backward import nested, run_backward
from gpusim.capture.errors import CaptureError, library_place, place_of, reason_of
from gpusim.capture.fake_cuda import FakeCuda, OnMeta, autocast, silent, uninitialised
from gpusim.capture.recorder import Layers, Recorder
from gpusim.capture.recurrent import OF_CUDA
from gpusim.capture.sizes import Expressions, Point, SizeError, merged
from gpusim.gc_pause import gc_paused
from gpusim.models.aten.call import Operand, TensorView, Trace
from gpusim.models.aten.file import FORMAT, ParameterPart, ProgramFile, VariantPart
from gpusim.models.aten.program import Variant
from gpusim.models.policy import Optimizer, Precision
from gpusim.progress import Progress, no_progress

_HALF = {"fp16": torch.float16, "bf16": torch.bfloat16, "amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}
_PRECISIONS: Mapping[Any, Precision] = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True, slots=True)
class Source:
    """What is captured."""

    title: str
    described: str
    """What it is, with the versions of what made it."""
    model: Callable[[bool], Any]
    """Makes the module; with an argument that says whether its attention is spelled out."""
    inputs: Callable[[Point], Any]
    """Makes the arguments of the module at sizes: a tensor, a tuple, or a mapping of keyword arguments."""
    sizes: Mapping[str, int]
    """Sizes that may be chosen, with their values unless said otherwise."""
    loss: Callable[[Any, Point], Any] | None = None
    """The loss of what the module returns; None: gradients of ones of all results."""
    targets: Callable[[Point], Mapping[str, Any]] | None = None
    """Makes further keyword arguments of training, with which the module returns a loss."""
    token: Callable[[Point, Callable[[Any], Any]], Mapping[str, Any]] | None = None
    """Makes the arguments of a step of one more token of each sequence, given what brings tensors to the device."""
    script: Path | None = None
    """The user's program, for messages."""
    attends: bool | None = None
    """Whether the module spells its attention out on request; None: where it calls scaled_dot_product_attention."""
    autocasts_gradients: bool = False
    """Whether the script runs the backward pass within autocast, too."""
    assumptions: Sequence[str] = ()
    place: str = ""
    """What messages name; empty: the script, or the title."""

    @property
    def named(self) -> str:
        """What messages name."""
        return self.place or str(self.script or self.title)


@dataclass(slots=True)
class Traced:
    """A trace with what is there before it."""

    trace: Trace
    backward: int
    resident_bytes: int
    parameters: dict[str, tuple[tuple[int, ...], str, bool]] = field(default_factory=dict)
    taken: tuple[tuple[int, ...], ...] = ()
    """Shapes of the arguments."""
    images: bool = False
    attends: bool = False
    assumptions: Sequence[str] = ()
    """Answers to what a module asks about values."""


STEP = 32
"""Larger sizes are changed by so much: images are halved five times by most networks."""


def points_of(sizes: Mapping[str, int], symbols: Sequence[str]) -> list[Point]:
    """Sizes at which a program is traced: as it is, with each size changed alone, and with all of them doubled.

    >>> points_of({"batch": 8}, ["batch"])
    [{'batch': 8}, {'batch': 10}, {'batch': 16}]
    """
    changed = [{**sizes, name: sizes[name] + (STEP if sizes[name] >= STEP else 2)} for name in symbols]
    doubled = [{**sizes, **{name: 2 * sizes[name] for name in symbols}}] if symbols else []
    return [dict(sizes), *changed, *doubled]


def traced(source: Source, variant: Variant, point: Point) -> Traced:
    """Calls of a step at sizes.

    Raises:
        CaptureError: the program fails, or decides by values, which fake tensors do not have.
    """
    if variant.mode == "train" and torch.version.cuda is None and torch.version.hip is None:
        raise CaptureError(
            f"{source.named}: this build of PyTorch is for CPUs alone, which cannot trace a backward pass of CUDA; "
            "install one for CUDA, which needs no GPU here, or add --mode inference"
        )
    inductor = _inductor() if variant.compiled else None  # before anything of PyTorch is replaced
    with gc_paused(), silent(), uninitialised():
        eager = variant.attention == "eager"
        cuda = FakeCuda()
        module, arguments, images, held = _on_cuda(source, variant, point, cuda)
        parameters = {
            name: (tuple(one.shape), str(one.dtype)[6:], one.requires_grad) for name, one in module.named_parameters()
        }
        names = {one: name for name, one in module.named_parameters()}
        layers = Layers(module)
        recorder = Recorder(layers)
        shapes = tuple(tuple(one.shape) for one in cuda.made[held:])
        resident = recorder.keep(cuda.made)
        amp = _HALF.get(variant.precision) if variant.precision.startswith("amp-") else None
        replaced = Replaced({**OF_CUDA, **({} if eager else OF_ATTENTION)}, source.script, recorder.of_linear)

        def results_of(result: Any) -> list[Any]:
            found = _results(source.loss(result, point) if source.loss else result)
            if not found:
                raise CaptureError(
                    f"{source.named}: nothing that it returns depends on a weight; capture it with --mode inference"
                )
            return found

        def run() -> int:
            if inductor is not None:
                compiling = inductor.Compiling(_called, module, arguments, cuda, amp, replaced, layers)
                if variant.mode == "train":
                    forward: int
                    recorder.trace, forward = inductor.compiled_training(compiling, results_of)
                    return forward
                recorder.trace = inductor.compiled_inference(compiling)
                return len(recorder.trace.calls)
            with cuda.mode, layers.followed(), replaced, recorder, autocast(amp):
                if variant.mode != "train":
                    with torch.no_grad():
                        _ = _called(module, arguments)
                    return len(recorder.trace.calls)
                results = results_of(_called(module, arguments))
            forward = len(recorder.trace.calls)
            recorder.phase = "backward"
            again = autocast(amp if source.autocasts_gradients else None)
            with cuda.mode, replaced, recorder, torch.no_grad(), nested(layers, recorder.sweep), again:
                leaves = run_backward(results, layers, recorder.sweep)
                for leaf, name in names.items():
                    gradient = leaves.get(leaf, leaf.grad)
                    if gradient is not None:
                        recorder.trace.gradients[name] = recorder.view(gradient)
            return forward

        forward = _ran(source, "", run)
        recorder.sweep()
        attends = any(call.base == "attention" for call in recorder.trace.calls)
        # A mask of attention has four dimensions, too.
        images = images and any("conv" in call.base or "pool" in call.base for call in recorder.trace.calls)
        return Traced(recorder.trace, forward, resident, parameters, shapes, images, attends, replaced.assumptions)


def _inductor() -> Any:
    """The module that needs TorchInductor."""
    from gpusim.capture import inductor  # noqa: PLC0415 -- TorchInductor takes seconds to import

    return inductor


def _on_cuda(source: Source, variant: Variant, point: Point, cuda: FakeCuda) -> tuple[Any, Any, bool, int]:
    """A module and its arguments as a variant has them; whether it takes images, and how many tensors it holds."""
    half = _HALF.get(variant.precision)
    with OnMeta():
        module = _made(source, eager=variant.attention == "eager")
        arguments = {} if variant.mode == "token" else _ran(source, "inputs()", lambda: source.inputs(point))
        if source.targets is not None and variant.mode == "train":
            arguments = {**arguments, **source.targets(point)}
        if half is not None and not variant.precision.startswith("amp-"):
            module = module.to(half)
            arguments = _in(arguments, half)
        images = any(one.dim() == 4 for one in tree_leaves(arguments) if isinstance(one, torch.Tensor))
        if variant.layout == "nhwc":
            module = module.to(memory_format=torch.channels_last)
            arguments = _channels_last(arguments)
        module.train(variant.mode == "train")
    cuda.move(module)
    held = len(cuda.made)
    if variant.mode == "token" and source.token is not None:
        make_token = source.token
        with cuda.mode:
            arguments = _ran(source, "", lambda: make_token(point, lambda one: cuda.values(_in(one, half))))
    else:
        arguments = cuda.values(arguments)
    return module, arguments, images, held


def _made(source: Source, *, eager: bool) -> Any:
    """The module of a source.

    Raises:
        CaptureError: it makes none.
    """
    module = _ran(source, "model()", lambda: source.model(eager))
    module = getattr(module, "_orig_mod", module)  # that of torch.compile
    if not isinstance(module, torch.nn.Module):
        raise CaptureError(f"{source.named}: model() returns a {type(module).__name__}; return a torch.nn.Module")
    if isinstance(module, torch.jit.ScriptModule):
        raise CaptureError(
            f"{source.named}: model() returns a TorchScript module; return the module that it is made of"
        )
    return module


def _called(module: Any, arguments: Any) -> Any:
    if isinstance(arguments, Mapping):
        return module(**arguments)
    return module(*arguments) if isinstance(arguments, tuple | list) else module(arguments)


def _results(result: Any) -> list[Any]:
    """Results whose gradient is asked for: a loss, where the module gives one, else all."""
    if is_dataclass(result) and not isinstance(result, Mapping):
        result = vars(result)
    loss = result.get("loss") if isinstance(result, Mapping) else None
    leaves = (
        [loss]
        if isinstance(loss, torch.Tensor)
        else tree_leaves(dict(result) if isinstance(result, Mapping) else result)
    )
    return [one for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]


def _in(arguments: Any, dtype: Any) -> Any:
    def of(one: Any) -> Any:
        return one.to(dtype) if dtype is not None and one.is_floating_point() else one

    return tree_map_only(torch.Tensor, of, arguments)


def _channels_last(arguments: Any) -> Any:
    def of(one: Any) -> Any:
        return one.to(memory_format=torch.channels_last) if one.dim() == 4 else one

    return tree_map_only(torch.Tensor, of, arguments)


_NO_VALUE = "meta tensor"
"""What PyTorch says of values that are asked for where there are none."""


def _ran(source: Source, called: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the user's code may raise anything
        place = place_of(source.script, error) or source.named
        if (within := library_place(error)) and not place.partition(":")[2].isdigit():
            place = f"{place} ({within})"
        if isinstance(error, DataDependentOutputException) or _NO_VALUE in str(error):
            what = (
                f"{called}: it reads the value of a weight, an input or a random tensor"
                if called
                else ("the module decides by a value of a tensor")
            )
            raise CaptureError(
                f"{place}: {what}, which has none here; state the value as a number, or leave the part out"
            ) from None
        if isinstance(error, DynamicOutputShapeException):
            function = str(error.func).removeprefix("aten.")
            raise CaptureError(
                f"{place}: the shape of what {function} gives depends on values, which there are none of here; "
                "use a mask of a fixed shape, or leave the part out"
            ) from None
        raise CaptureError(f"{place}: {called + ': ' if called else ''}{reason_of(error)}") from None


# From traces to a file ----------------------------------------------------------------------------


class _Document:
    """Traces of one variant at several sizes, as one part of a file."""

    def __init__(self, traces: Sequence[Traced], points: Sequence[Point]) -> None:
        self._traces = traces
        self._expressions = Expressions(points)
        self._places: dict[tuple[TensorView, ...], int] = {}
        self._entries: list[tuple[int, str, list[int | str], list[int | str]]] = []
        self._known: dict[str, int] = {}

    def part(self, variant: Variant) -> VariantPart:
        first = self._traces[0]
        resident = (
            self._expressions.of([one.resident_bytes for one in self._traces]) if variant.mode == "token" else None
        )
        calls = [one.trace.calls for one in self._traces]
        for at, same in enumerate(zip(*calls, strict=False)):
            if len({(call.name, call.layer) for call in same}) > 1:
                names = " and ".join(sorted({call.name for call in same}))
                raise SizeError(f"call {at} is {names} at different sizes")
        if len({len(one) for one in calls}) > 1:
            raise SizeError(f"{len(calls[0])} calls at one size are {len(calls[-1])} at another")
        rows = []
        for at, same in enumerate(zip(*calls, strict=True)):
            one = same[0]
            operands = [self._operand([call.operands[place] for call in same]) for place in range(len(one.operands))]
            results = [self._place([call.results[place] for call in same]) for place in range(len(one.results))]
            arguments = {key: self._argument([call.arguments.get(key) for call in same]) for key in one.arguments}
            rows.append((one.name, one.layer, operands, results, arguments, list(first.trace.freed[at])))
        used = {entry[0] for entry in self._entries}
        storages = {
            number: self._expressions.of([one.trace.storage_bytes[number] for one in self._traces])
            for number in first.trace.storage_bytes
            if number in used
        }
        gradients = {
            name: self._place([one.trace.gradients[name] for one in self._traces]) for name in first.trace.gradients
        }
        return VariantPart(
            mode=variant.mode,
            precision=variant.precision,
            layout=variant.layout,
            attention=variant.attention,
            compiled=variant.compiled,
            resident_bytes=resident,
            storages=storages,
            tensors=self._entries,
            backward=first.backward,
            gradients=gradients,
            calls=rows,
        )

    def _operand(self, same: Sequence[Operand]) -> Any:
        first = same[0]
        if isinstance(first, tuple):
            if any(not isinstance(one, tuple) or len(one) != len(first) for one in same):
                raise SizeError("a list of tensors has another length at another size")
            return [self._place([one[at] for one in same]) for at in range(len(first))]  # type: ignore[index]
        return self._place(same)

    def _place(self, same: Sequence[Any]) -> int | None:
        """Place of a tensor in the list of distinct ones."""
        if same[0] is None:
            return None
        key = tuple(same)
        if key not in self._places:
            first = same[0]
            if any(one is None or one.storage != first.storage or one.dtype_name != first.dtype_name for one in same):
                raise SizeError("a tensor is another at another size")
            shape = merged([one.shape for one in same], self._expressions)
            strides = merged([one.strides for one in same], self._expressions)
            entry = (first.storage, first.dtype_name, shape, strides)
            text = repr(entry)
            if text not in self._known:
                self._known[text] = len(self._entries)
                self._entries.append(entry)
            self._places[key] = self._known[text]
        return self._places[key]

    def _argument(self, same: Sequence[Any]) -> Any:
        found = merged(same, self._expressions)
        return found if found == same[0] else _marked(found, same[0])


def _marked(found: Any, first: Any) -> Any:
    """Expressions among arguments, apart from texts."""
    if isinstance(found, list):
        return [_marked(one, other) for one, other in zip(found, first, strict=True)]
    return {"size": found} if isinstance(found, str) and not isinstance(first, str) else found


def held_precision(source: Source) -> tuple[Precision, bool]:
    """Precision of a module by the type that most elements of its weights have, and whether it has any.

    Raises:
        CaptureError: there is none for it.
    """
    with silent(), uninitialised(), OnMeta():
        module = _made(source, eager=False)
    held = Counter[Any]()
    for one in module.parameters():
        held[one.dtype] += one.numel()
    most = max(held, key=lambda dtype: held[dtype], default=torch.float32)
    if most not in _PRECISIONS:
        *others, last = _PRECISIONS.values()
        name = str(most).removeprefix("torch.")
        raise CaptureError(
            f"{source.named}: {name} is not supported; convert the model to {', '.join(others)} or {last}"
        )
    return _PRECISIONS[most], bool(held)


def captured(
    source: Source,
    variants: Sequence[Variant],
    *,
    optimizer: Optimizer,
    precision: Precision,
    item: str | None = None,
    symbols: Sequence[str] | None = None,
    progress: Progress = no_progress,
) -> ProgramFile:
    """Trace every variant at several sizes, the first one at one size more.

    Args:
        item: what throughput counts; None: images where the module takes any.
        symbols: sizes that may be chosen later; None: all that the program has.

    Raises:
        CaptureError: the program fails, or calls other functions at another size.
    """
    known: dict[tuple[Variant, tuple[int, ...]], Traced] = {}
    chosen = list(dict.fromkeys(variants))

    def trace_of(variant: Variant, point: Point) -> Traced:
        others = _OF_OTHERS if variant.mode == "token" else _OF_TOKENS
        key = variant, tuple(size for name, size in point.items() if source.token is None or name not in others)
        if key not in known:
            known[key] = traced(source, variant, point)
            progress(len(known), len(chosen) * (len(source.sizes) + 1) + 1)
        return known[key]

    one = trace_of(replace(chosen[0], attention="fused", compiled=False), source.sizes)
    chosen = list(dict.fromkeys(_that_differ(chosen, images=one.images, attends=_attends(source, one))))
    for variant in chosen:
        _ = trace_of(variant, source.sizes)  # what fails here is no matter of sizes
    wanted = list(source.sizes if symbols is None else symbols)
    first_of = {variant.mode: variant for variant in reversed(chosen)}
    symbols, unused = _followed(source, wanted, lambda point: [trace_of(one, point) for one in first_of.values()])
    answers = [text for variant in chosen for text in trace_of(variant, source.sizes).assumptions]
    source = replace(source, assumptions=[*source.assumptions, *unused, *dict.fromkeys(answers)])
    while True:
        points = points_of(source.sizes, symbols)
        try:
            parts = [
                _compiled_part(source, symbols, variant, trace_of)
                if variant.compiled
                else _Part(
                    variant,
                    some := points if at == 0 else points[: len(symbols) + 1],
                    [trace_of(variant, point) for point in some],
                )
                for at, variant in enumerate(chosen)
            ]
            attends = _attends(source, one)
            return _file(source, parts, points, symbols, optimizer, precision, item, attends=attends)
        except (SizeError, CaptureError) as error:
            if not symbols:
                raise CaptureError(f"{source.named}: {error}") from None
            symbols.pop()  # the batch, which comes first, is the likeliest to be free


_OF_TOKENS = frozenset({"past_len"})
"""Sizes that only steps of one token have."""
_OF_OTHERS = frozenset({"seq_len"})
"""Sizes that steps of one token lack."""


def _followed(
    source: Source, symbols: Sequence[str], traces_of: Callable[[Point], Sequence[Traced]]
) -> tuple[list[str], list[str]]:
    """Sizes that the arguments of a program depend on, and what is to be said of those that they do not."""
    first = [one.taken for one in traces_of(source.sizes)]
    followed, unused = [], []
    for name in symbols:
        try:
            if [one.taken for one in traces_of(points_of(source.sizes, [name])[1])] != first:
                followed.append(name)
            else:
                unused.append(f"no input depends on {name}")
        except CaptureError as error:
            unused.append(f"{name} is {source.sizes[name]}, since at another size: {error}")
    return followed, unused


def _attends(source: Source, one: Traced) -> bool:
    return one.attends if source.attends is None else source.attends


def _that_differ(variants: Sequence[Variant], *, images: bool, attends: bool) -> Iterator[Variant]:
    """Variants as a program tells them apart: not by a layout without images, nor by attention that it lacks."""
    for one in variants:
        yield replace(one, layout=one.layout if images else "nchw", attention=one.attention if attends else "fused")


class _Part(NamedTuple):
    """Traces of a variant, at some points."""

    variant: Variant
    points: Sequence[Point]
    traces: Sequence[Traced]
    fixed: Sequence[str] = ()
    """Sizes that may be chosen for other variants, and not for this one."""

    @property
    def written(self) -> VariantPart:
        """The part of a file.

        Raises:
            SizeError: the variant calls other functions at another of the points.
        """
        part = _Document(self.traces, self.points).part(self.variant)
        return part.model_copy(update={"fixed": list(self.fixed)})


def _compiled_part(
    source: Source, symbols: Sequence[str], variant: Variant, trace_of: Callable[[Variant, Point], Traced]
) -> _Part:
    """Traces of a compiled variant at as many sizes as it can be chosen for: Inductor splits reductions by them.

    Raises:
        CaptureError: the program fails.
    """
    for count in range(len(symbols), 0, -1):
        points = points_of(source.sizes, symbols[:count])
        part = _Part(variant, points, [trace_of(variant, point) for point in points], symbols[count:])
        try:
            _ = part.written
        except SizeError:
            continue
        return part
    return _Part(variant, [dict(source.sizes)], [trace_of(variant, source.sizes)], symbols)


def _file(
    source: Source,
    parts: Sequence[_Part],
    points: Sequence[Point],
    symbols: Sequence[str],
    optimizer: Optimizer,
    precision: Precision,
    item: str | None,
    *,
    attends: bool,
) -> ProgramFile:
    first = parts[0].traces
    images = first[0].images
    return ProgramFile(
        format=FORMAT,
        title=source.title,
        source=f"captured from {source.described}",
        assumptions=list(source.assumptions),
        item=item or ("img" if images else "seq"),
        optimizer=optimizer,
        precision=precision,
        sizes=dict(source.sizes),
        fixed=[name for name in source.sizes if name not in symbols],
        images=images,
        attends=attends,
        parameters={
            name: ParameterPart(shape=list(shape), dtype=dtype, trained=trained)
            for name, (shape, dtype, trained) in first[0].parameters.items()
        },
        resident_bytes=Expressions(points).of([one.resident_bytes for one in first]),
        traces=[part.written for part in parts],
    )
