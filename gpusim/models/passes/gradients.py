"""What a training script does with gradients around the update: clears them, adds to them, clips them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from packaging.version import Version

from gpusim.models.aten.updates import FUSED_ELEMENTS
from gpusim.models.policy import Clipping, Policy
from gpusim.models.tape import Tape
from gpusim.models.task import Task
from gpusim.models.value import Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Pointwise, RowReduction

_FREED_SINCE = Version("2.0")
"""PyTorch whose zero_grad frees gradients; before, it filled them with zeros (release notes)."""
_CLAMPED_SINCE = Version("1.10")
"""PyTorch whose clip_grad_norm_ no longer reads the norm on the host (pytorch pull 61042)."""
Pairs = Sequence[tuple[Value, Value]]
"""Parameters with their gradients."""


def add_up(tape: Tape) -> None:
    """Add the gradients of parameters to those that are there, of earlier micro-batches or zeros, as they are ready."""
    policy = tape.arithmetic.policy
    if not policy.accumulates and not keeps_gradients(policy):
        return
    found = [(weight, gradient) for weight in tape.parameters.values() if (gradient := tape.gradient(weight))]
    ready = {tensor.name: place for place, task in enumerate(tape.tasks) for tensor in task.writes}
    backward, tape.tasks = tape.tasks, []
    added: dict[int, list[Task]] = defaultdict(list)
    for weight, gradient in found:
        tape.layer = weight.name.rpartition(".")[0]
        total = tape.new(weight.shape, weight.dtype, name=f"{weight.name}.accumulated")
        tape.pointwise("accumulate", ("add",), [total, gradient], [total])
        tape.kept(weight, total)
        added[ready.get(gradient.name, len(backward) - 1)].append(tape.tasks.pop())
    tape.tasks = [one for place, task in enumerate(backward) for one in (task, *added[place])]


def clear(tape: Tape, gradients: Sequence[Value]) -> None:
    """Fill gradients with zeros after the update, where they are not freed."""
    if keeps_gradients(tape.arithmetic.policy):
        for gradient in gradients:
            tape.pointwise("optimizer", ("copy",), [], [gradient])


def keeps_gradients(policy: Policy) -> bool:
    """Whether gradients stay in memory from step to step; apex's fused optimizers free them (``set_grad_none``)."""
    return not policy.fused_optimizer and Version(policy.version) < _FREED_SINCE


def groups(trained: Pairs) -> Iterator[Pairs]:
    """Parameters that one launch takes."""
    group: list[tuple[Value, Value]] = []
    for pair in trained:
        if group and sum(weight.elements for weight, _ in group) + pair[0].elements > FUSED_ELEMENTS:
            yield group
            group = []
        group.append(pair)
    yield group


def divide(tape: Tape, gradients: Sequence[Value]) -> None:
    """Divide each gradient by a number of the host, one after the other."""
    for gradient in gradients:
        tape.pointwise("optimizer", ("scale",), [gradient], [gradient])


def clip(tape: Tape, trained: Pairs, clipping: Clipping) -> None:
    """Bound gradients by the norm of all of them."""
    if clipping == "none":
        return
    parts = list(groups(trained)) if clipping == "fused" else [[pair] for pair in trained]
    found = [norms(tape, [gradient for _, gradient in part]) for part in parts]
    read_back = clipping == "fused" or Version(tape.arithmetic.policy.version) < _CLAMPED_SINCE
    factor = _factor(tape, found, read_back)
    for part in parts:
        gradients = [gradient for _, gradient in part]
        together(tape, "optimizer", "scale", sum(one.elements for one in gradients), [*gradients, factor], gradients)


def clip_alone(tape: Tape, gradient: Value) -> None:
    """Bound a gradient by its own norm."""
    read_back = Version(tape.arithmetic.policy.version) < _CLAMPED_SINCE
    factor = _factor(tape, [norms(tape, [gradient])], read_back)
    tape.pointwise("optimizer", ("scale",), [gradient, factor], [gradient])


def _factor(tape: Tape, found: Sequence[Value], read_back: bool) -> Value:
    """What gradients are multiplied by, from norms of parts of them, as clip_grad_norm_ computes it."""
    stacked = tape.new((sum(one.elements for one in found),), Dtype.FP32)
    tape.pointwise("optimizer", ("copy",), found, [stacked])
    total = norms(tape, [stacked])
    for functions in (("add",), ("div",), ("scale",), ("mask",)):  # 1e-6 more, reciprocal, largest norm, at most 1
        tape.pointwise("optimizer", functions, [total], [total])
    if read_back:
        tape.pointwise("read_norm", ("copy",), [total], [total])
    return total


def norms(tape: Tape, values: Sequence[Value]) -> Value:
    """Square roots of sums of squares, one of each tensor."""
    found = tape.new((len(values),), Dtype.FP32)
    elements = sum(one.elements for one in values)
    touched = tuple(one.touched() for one in values)
    operator = RowReduction("norm", len(values), max(1, elements // len(values)), touched, (found.touched(),))
    tape.launch("optimizer", operator, values, [found])
    return found


def together(
    tape: Tape, call: str, function: str, elements: int, reads: Sequence[Value], writes: Sequence[Value]
) -> None:
    """Launch a kernel over the tensors of many parameters."""
    touched = tuple(one.touched() for one in reads)
    operator = Pointwise((function,), elements, touched, tuple(one.touched() for one in writes))
    tape.launch(call, operator, reads, writes)
