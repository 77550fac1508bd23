"""The update: gradients unscaled, weights and the optimizer's state replaced, copies in the model's type refreshed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.models.passes.gradients import Pairs, clear, clip, clip_alone, divide, groups, norms, together
from gpusim.models.policy import Clipping, Optimizer
from gpusim.models.tape import Tape
from gpusim.models.value import Value
from gpusim.numbers.formats import Dtype


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel of an update that takes each parameter by itself."""

    function: str
    reads: str
    """Letters: w weight, g gradient, m and v state, t and u temporary."""
    write: str
    decays: bool = False
    """Only for what weight decay acts on: matrices and filters, not biases and norms."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """How an optimizer updates a parameter."""

    states: str
    """Letters of the tensors that it keeps for each parameter, in FP32."""
    calls: tuple[_Call, ...]
    """Where each parameter is updated by calls of its own, as torch.optim's loop does; empty: it is always fused."""
    fused: str
    """The function of the fused kernel."""
    clips_alone: bool = False
    """Each gradient is clipped by its own norm first, unless fused."""


_MOMENTS = (
    _Call("scale", "m", "m"),
    _Call("add_scaled", "mg", "m"),
    _Call("scale", "v", "v"),
    _Call("add_scaled", "vg", "v"),
    _Call("sqrt", "v", "t"),
)
"""Calls of Adam: running means of the gradient and of its square."""
_RULES: Mapping[Optimizer, _Rule] = {
    "sgd": _Rule("", (_Call("add_scaled", "gw", "g", True), _Call("add_scaled", "wg", "w")), "sgd"),
    "sgd_momentum": _Rule(
        "m",
        (
            _Call("add_scaled", "gw", "g", True),
            _Call("scale", "m", "m"),
            _Call("add_scaled", "mg", "m"),
            _Call("add_scaled", "wm", "w"),
        ),
        "sgd_momentum",
    ),
    "adam": _Rule(
        "mv",
        (*_MOMENTS, _Call("div", "t", "t"), _Call("add", "t", "t"), _Call("add_scaled", "wmt", "w")),
        "adam",
    ),
    "bert_adam": _Rule(
        "mv",
        (
            *_MOMENTS,
            _Call("add", "t", "t"),
            _Call("div", "mt", "t"),
            _Call("scale", "w", "u", True),  # decay
            _Call("add", "tu", "t", True),
            _Call("scale", "t", "u"),  # rate of learning, then the sign
            _Call("scale", "u", "u"),
            _Call("add", "wu", "w"),
        ),
        "adam",
        clips_alone=True,
    ),
    "lamb": _Rule("mv", (), "lamb"),
}


def state_bytes_per_parameter(optimizer: Optimizer) -> float:
    """What an optimizer keeps for each parameter [B]."""
    return len(_RULES[optimizer].states) * Dtype.FP32.bits / 8


def update(tape: Tape, optimizer: Optimizer, clipping: Clipping, counted_loss: bool = False) -> None:
    """Launch the update of all parameters that have a gradient, or what clears gradients alone."""
    tape.phase, tape.layer = "update", "optimizer"
    rule = _RULES[optimizer]
    trained = [(weight, gradient) for weight in tape.parameters.values() if (gradient := tape.gradient(weight))]
    if not trained:
        return
    held = [gradient for _, gradient in trained]
    if not tape.arithmetic.policy.updates:
        clear(tape, held)
        return
    if counted_loss:
        divide(tape, held)
    if tape.arithmetic.scales_loss:
        trained = [pair for group in groups(trained) for pair in _unscaled(tape, group)]
    clip(tape, trained, clipping)
    if rule.calls and not tape.arithmetic.policy.fused_optimizer:
        for weight, gradient in trained:
            _by_calls(tape, rule, weight, gradient)
    else:
        if optimizer == "lamb":
            for group in groups(trained):
                _ = norms(tape, [gradient for _, gradient in group])
        for group in groups(trained):
            _fused(tape, rule, group)
    clear(tape, held)


def _unscaled(tape: Tape, group: Pairs) -> Pairs:
    """Gradients divided by the scale of the loss: in place, or into FP32 where the model holds another type."""
    gradients = [gradient for _, gradient in group]
    written = [one if one.dtype is Dtype.FP32 else _state(tape, one, "unscaled") for one in gradients]
    together(tape, "unscale", "unscale", sum(one.elements for one in gradients), gradients, written)
    return [(weight, gradient) for (weight, _), gradient in zip(group, written, strict=True)]


def _fused(tape: Tape, rule: _Rule, group: Pairs) -> None:
    """One launch for many parameters; LAMB's direction and step are two, with norms between them."""
    weights, gradients = [weight for weight, _ in group], [gradient for _, gradient in group]
    states = [_state(tape, weight, name) for name in rule.states for weight in weights]
    masters = [_master(tape, weight) for weight in weights]
    copies = [weight for weight, master in zip(weights, masters, strict=True) if weight is not master]
    kept = [*masters, *states]
    elements = sum(one.elements for one in weights)
    if rule.fused != "lamb":
        together(tape, "optimizer", rule.fused, elements, [*gradients, *kept], [*kept, *copies])
        return
    directions = [_state(tape, weight, "direction") for weight in weights]
    together(tape, "optimizer", "lamb_direction", elements, [*gradients, *kept], [*directions, *states])
    _ = norms(tape, masters)
    _ = norms(tape, directions)
    together(tape, "optimizer", "lamb_update", elements, [*directions, *masters], [*masters, *copies])


def _by_calls(tape: Tape, rule: _Rule, weight: Value, gradient: Value) -> None:
    """Calls of its own for a parameter."""
    if rule.clips_alone:
        clip_alone(tape, gradient)
    master = _master(tape, weight)
    letters = {name for call in rule.calls for name in call.reads + call.write} - set("wg")
    known = {name: _state(tape, weight, name) for name in sorted(letters)} | {"w": master, "g": gradient}
    for call in rule.calls:
        if len(weight.shape) > 1 or not call.decays:
            tape.pointwise("optimizer", (call.function,), [known[name] for name in call.reads], [known[call.write]])
    if master is not weight:
        tape.pointwise("cast", ("copy",), [master], [weight])


def _master(tape: Tape, weight: Value) -> Value:
    """The weight that is updated: in FP32, beside a model that holds another type."""
    return weight if weight.dtype is Dtype.FP32 else _state(tape, weight, "master")


def _state(tape: Tape, weight: Value, name: str) -> Value:
    """A tensor of a parameter's size that the optimizer keeps, in FP32."""
    return tape.new(weight.shape, Dtype.FP32, name=f"{weight.name}.{name}")
