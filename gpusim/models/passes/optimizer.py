"""The update: gradients unscaled, weights and the optimizer's state replaced, copies in the model's type refreshed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusim.models.passes.tape import Tape
from gpusim.models.passes.value import Value
from gpusim.models.policy import Optimizer
from gpusim.numbers.formats import Dtype
from gpusim.workloads.memory_bound import Pointwise, RowReduction

FUSED_ELEMENTS = 320 * 65536
"""Most elements of one multi-tensor launch: 320 blocks of chunks of 65,536 (apex, csrc/multi_tensor_apply.cuh)."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """How an optimizer updates a parameter."""

    states: str
    """Letters of the tensors that it keeps for each parameter, in FP32."""
    calls: tuple[tuple[tuple[str, ...], str, str], ...]
    """Kernels where each parameter is updated by calls of its own, as torch.optim's loop does: functions, what they
    read and write (w weight, g gradient, m and v state, t temporary)."""


_RULES: Mapping[Optimizer, _Rule] = {
    "sgd": _Rule("", ((("add_scaled",), "gw", "g"), (("add_scaled",), "wg", "w"))),
    "sgd_momentum": _Rule(
        "m",
        (
            (("add_scaled",), "gw", "g"),
            (("scale",), "m", "m"),
            (("add_scaled",), "mg", "m"),
            (("add_scaled",), "wm", "w"),
        ),
    ),
    "adam": _Rule(
        "mv",
        (
            (("scale",), "m", "m"),
            (("add_scaled",), "mg", "m"),
            (("scale",), "v", "v"),
            (("add_scaled", "mul"), "vg", "v"),
            (("sqrt",), "v", "t"),
            (("div", "add"), "t", "t"),
            (("div", "add_scaled"), "wmt", "w"),
        ),
    ),
    "lamb": _Rule("mv", ()),
}


def update(tape: Tape, optimizer: Optimizer) -> None:
    """Launch the update of all parameters that have a gradient."""
    tape.phase, tape.layer = "update", "optimizer"
    rule = _RULES[optimizer]
    trained = [(weight, gradient) for weight in tape.parameters.values() if (gradient := tape.gradient(weight))]
    if not trained:
        return
    fused = tape.arithmetic.policy.fused_optimizer or not rule.calls
    groups = _groups(trained) if fused else [[pair] for pair in trained]
    if tape.arithmetic.scales_loss:
        for group in groups:
            gradients = [gradient for _, gradient in group]
            _together(tape, "unscale", "unscale", sum(one.elements for one in gradients), gradients, gradients)
    if optimizer == "lamb":
        for group in groups:
            _norms(tape, [gradient for _, gradient in group])
    for group in groups:
        if fused:
            _fused(tape, optimizer, rule, group)
        else:
            _by_calls(tape, rule, *group[0])


def _groups(trained: Sequence[tuple[Value, Value]]) -> list[list[tuple[Value, Value]]]:
    """Parameters that one launch updates."""
    groups: list[list[tuple[Value, Value]]] = [[]]
    for pair in trained:
        if sum(weight.elements for weight, _ in groups[-1]) + pair[0].elements > FUSED_ELEMENTS and groups[-1]:
            groups.append([])
        groups[-1].append(pair)
    return groups


def _fused(tape: Tape, optimizer: Optimizer, rule: _Rule, group: Sequence[tuple[Value, Value]]) -> None:
    """One launch for many parameters; LAMB's direction and step are two, with norms between them."""
    weights, gradients = [weight for weight, _ in group], [gradient for _, gradient in group]
    states = [_state(tape, weight, name) for name in rule.states for weight in weights]
    masters = [_master(tape, weight) for weight in weights]
    copies = [weight for weight, master in zip(weights, masters, strict=True) if weight is not master]
    kept = [*masters, *states]
    elements = sum(one.elements for one in weights)
    if optimizer != "lamb":
        _together(tape, "optimizer", optimizer, elements, [*gradients, *kept], [*kept, *copies])
        return
    directions = [_state(tape, weight, "direction") for weight in weights]
    _together(tape, "optimizer", "lamb_direction", elements, [*gradients, *kept], [*directions, *states])
    _norms(tape, masters)
    _norms(tape, directions)
    _together(tape, "optimizer", "lamb_update", elements, [*directions, *masters], [*masters, *copies])


def _by_calls(tape: Tape, rule: _Rule, weight: Value, gradient: Value) -> None:
    """Calls of its own for a parameter."""
    master = _master(tape, weight)
    known = {name: _state(tape, weight, name) for name in (*rule.states, "t")} | {"w": master, "g": gradient}
    for functions, reads, writes in rule.calls:
        tape.pointwise("optimizer", functions, [known[name] for name in reads], [known[name] for name in writes])
    if master is not weight:
        tape.pointwise("cast", ("copy",), [master], [weight])


def _master(tape: Tape, weight: Value) -> Value:
    """The weight that is updated: in FP32, beside a model that holds another type."""
    return weight if weight.dtype is Dtype.FP32 else _state(tape, weight, "master")


def _state(tape: Tape, weight: Value, name: str) -> Value:
    """A tensor of a parameter's size that the optimizer keeps, in FP32."""
    return tape.new(weight.shape, Dtype.FP32, name=f"{weight.name}.{name}")


def _together(
    tape: Tape, call: str, function: str, elements: int, reads: Sequence[Value], writes: Sequence[Value]
) -> None:
    """One kernel over tensors of many parameters."""
    touched = tuple(one.touched() for one in reads)
    operator = Pointwise((function,), elements, touched, tuple(one.touched() for one in writes))
    tape.launch(call, operator, reads, writes)


def _norms(tape: Tape, values: Sequence[Value]) -> None:
    """Sums of squares, one of each tensor."""
    norms = tape.new((len(values),), Dtype.FP32)
    elements = sum(one.elements for one in values)
    touched = tuple(one.touched() for one in values)
    operator = RowReduction("norm", len(values), max(1, elements // len(values)), touched, (norms.touched(),))
    tape.launch("norm", operator, values, [norms])
