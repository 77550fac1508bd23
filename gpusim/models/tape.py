"""The tape: tasks in the order in which a framework launches them, and what the backward pass does for each call.

A call launches its kernels and records how the gradients of its inputs follow from that of its result. The backward
pass runs the records from the last to the first, and adds up the gradients of tensors that were used more than once,
as PyTorch's autograd does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpusim.models.arithmetic import Arithmetic
from gpusim.models.shape import Shape
from gpusim.models.task import Phase, Task
from gpusim.models.value import Value, widest
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Access, Pointwise
from gpusim.workloads.operators import Operator

Backward = Callable[[Value], Sequence[Value | None]]
"""Launches what computes the gradients of a call's inputs from that of its result; None where none is needed."""


@dataclass(frozen=True, slots=True)
class _Record:
    layer: str
    inputs: tuple[Value, ...]
    result: Value
    backward: Backward


@dataclass(slots=True)
class _Gradient:
    """What is known of the gradient of a value while the backward pass runs."""

    whole: Value | None = None
    parts: list[Value] = field(default_factory=list)
    """Gradients of slices of the value, which do not overlap."""


@dataclass(slots=True)
class Tape:
    """Record of the kernels that a step has launched so far."""

    arithmetic: Arithmetic
    phase: Phase = "forward"
    layer: str = ""
    """Path of the layer that launches now."""
    tasks: list[Task] = field(default_factory=list)
    parameters: dict[str, Value] = field(default_factory=dict)
    """Trainable tensors by name."""
    _records: list[_Record] = field(default_factory=list)
    _gradients: dict[int, _Gradient] = field(default_factory=dict)
    _casts: dict[tuple[int, Dtype], Value] = field(default_factory=dict)
    _names: dict[str, int] = field(default_factory=dict)
    _operators: dict[Operator, Operator] = field(default_factory=dict)
    """One record of those that are equal: layers repeat, and what is found out about each is found by its identity."""
    _count: int = 0
    _recording: bool = True

    # Tensors --------------------------------------------------------------------------------------

    def new(self, shape: Shape, dtype: Dtype, *sources: Value, name: str = "", stays: bool = False) -> Value:
        """A tensor of its own; its gradient is needed where that of a source is."""
        stem = name or (self.layer if self.phase == "forward" else f"d.{self.layer}")
        used = self._names[stem] = self._names.get(stem, 0) + 1
        self._count += 1
        differentiable = any(source.differentiable for source in sources)
        return Value(self._count, stem if used == 1 else f"{stem}:{used}", shape, dtype, differentiable, stays=stays)

    def view(self, value: Value, shape: Shape, run: int | None = None) -> Value:
        """Another shape of the same memory, or of elements in it that lie in runs; without its gradient."""
        self._count += 1
        return Value(self._count, value.name, shape, value.dtype, value.differentiable, run or value.run)

    def parameter(self, name: str, shape: Shape, *, frozen: bool = False) -> Value:
        """A trainable tensor."""
        if name not in self.parameters:
            self._count += 1
            trained = self.arithmetic.policy.mode == "train" and not frozen
            self.parameters[name] = Value(self._count, name, shape, self.arithmetic.held_in, trained)
        return self.parameters[name]

    # Launches -------------------------------------------------------------------------------------

    def launch(self, call: str, operator: Operator, reads: Sequence[Value], writes: Sequence[Value]) -> None:
        """Launch a kernel; an empty call is a further one of the call before."""
        tensors = tuple(value.tensor for value in reads), tuple(value.tensor for value in writes)
        known = self._operators.setdefault(operator, operator)
        self.tasks.append(Task(self.layer, self.phase, known, *tensors, call))

    def pointwise(self, call: str, functions: tuple[str, ...], reads: Sequence[Value], writes: Sequence[Value]) -> None:
        """Launch elementwise functions; smaller tensors are broadcast."""
        elements = max(value.elements for value in (*reads, *writes))
        touched = tuple(value.touched(elements) for value in reads)
        self.launch(call, Pointwise(functions, elements, touched, _written(writes)), reads, writes)

    def record(self, result: Value, inputs: Sequence[Value], backward: Backward) -> Value:
        """Note what the backward pass does for a call; returns its result."""
        if result.differentiable and self._recording:
            self._records.append(_Record(self.layer, tuple(inputs), result, backward))
        return result

    def record_kernel(self, result: Value, value: Value, launch: Callable[[Value, Value], None]) -> Value:
        """Note what computes the gradient of a call's only input from that of its result; returns its result.

        Args:
            launch: takes the gradient of the result, and writes the second tensor.
        """

        def backward(gradient: Value) -> list[Value]:
            given = self.new(value.shape, value.dtype)
            launch(gradient, given)
            return [given]

        return self.record(result, [value], backward)

    def cast(self, value: Value, dtype: Dtype | None) -> Value:
        """The value in another type: a copy, which autocast makes once of a weight."""
        if dtype is None or dtype is value.dtype or dtype.format.stored_as == value.dtype.value:
            return value
        key = (value.number, dtype)
        if key in self._casts:
            return self._casts[key]
        result = self.new(value.shape, dtype, value, name=f"{value.name}.{dtype.value}")
        if (
            dtype in (Dtype.INT4, Dtype.INT8, Dtype.FP8) and value.name in self.parameters
        ):  # quantised before the model runs
            return result
        self.pointwise("cast", ("copy",), [value], [result])
        self.record(result, [value], lambda gradient: [self.cast(gradient, value.dtype)])
        if value.name in self.parameters:
            self._casts[key] = result
        return result

    def eligible(self, operation: str, values: Sequence[Value]) -> list[Value]:
        """The inputs of an operation as the framework casts them."""
        dtype = self.arithmetic.cast_to(operation)
        return [self.cast(value, dtype) for value in values]

    # The backward pass ----------------------------------------------------------------------------

    def backward(self, results: Sequence[Value]) -> None:
        """Launch the backward pass from the results that have a gradient: a loss, or what a model without one gives."""
        self.phase = "backward"
        for result in results:
            if result.differentiable:
                seed = self.new(result.shape, result.dtype)
                self.launch("fill", Pointwise(("copy",), seed.elements, (), (seed.touched(),)), [], [seed])
                self._gradients[result.number] = _Gradient(seed)
        self._run_backward()

    def _run_backward(self, first: int = 0) -> None:
        """Launch the backward passes of the records, from the last down to a first one."""
        while len(self._records) > first:
            record = self._records.pop()
            known = self._gradients.pop(record.result.number, None)
            if known is None:
                continue
            self.layer = record.layer
            gradients = record.backward(self._whole(record.result, known))
            for value, gradient in zip(record.inputs, gradients, strict=True):
                if gradient is not None and value.differentiable:
                    self._accumulate(value, gradient)

    def part(self, value: Value, gradient: Value) -> None:
        """Note the gradient of a slice of a value."""
        self._gradients.setdefault(value.number, _Gradient()).parts.append(gradient)

    def gradient(self, parameter: Value) -> Value | None:
        """The gradient of a parameter, after the backward pass."""
        known = self._gradients.get(parameter.number)
        return None if known is None else self._whole(parameter, known)

    def kept(self, parameter: Value, total: Value) -> None:
        """Note that the gradient of a parameter was added to a tensor, which is its gradient from now on."""
        self._gradients[parameter.number] = _Gradient(total)

    def _accumulate(self, value: Value, gradient: Value) -> None:
        known = self._gradients.setdefault(value.number, _Gradient())
        if known.whole is None:
            known.whole = gradient
            return
        both = self.new(value.shape, value.dtype)
        self.pointwise("add", ("add",), [known.whole, gradient], [both])
        known.whole = both

    def _whole(self, value: Value, known: _Gradient) -> Value:
        """A gradient with those of slices joined: beside each other where they cover it, else on zeros."""
        if not known.parts:
            assert known.whole is not None
            return known.whole
        joined = self.new(value.shape, widest(*known.parts))
        reads = tuple(part.touched(run=part.shape[-1]) for part in known.parts)
        elements = sum(part.elements for part in known.parts)
        if elements < value.elements:
            self.launch("fill", Pointwise(("copy",), value.elements, (), (joined.touched(),)), [], [joined])
        written = (Access(elements, joined.dtype, known.parts[0].shape[-1]),)
        self.launch("concat", Pointwise(("copy",), elements, reads, written), known.parts, [joined])
        other, known.whole, known.parts = known.whole, joined, []
        if other is not None:
            self._gradients[value.number] = known
            self._accumulate(value, other)
            del self._gradients[value.number]
        return known.whole

    # Checkpointing --------------------------------------------------------------------------------

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Calls within leave nothing for the backward pass."""
        before, self._recording = self._recording, False
        yield
        self._recording = before

    def again(self, run: Callable[[], Value], gradient: Value) -> None:
        """Run calls once more within the backward pass, now recorded, and run their records backward."""
        first = len(self._records)
        result = run()
        self._gradients[result.number] = _Gradient(gradient)
        self._run_backward(first)


def _written(values: Sequence[Value]) -> tuple[Access, ...]:
    return tuple(value.touched() for value in values)
