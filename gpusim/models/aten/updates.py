"""Kernels over the tensors of many parameters: what optimizers and scalers of gradients launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpusim.models.aten.access import whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, NoModelError, lowers
from gpusim.workloads.functions import Chain
from gpusim.workloads.memory_bound import Pointwise, RowReduction

FUSED_ELEMENTS = 320 * 65536
"""Most elements of one multi-tensor launch: 320 blocks of chunks of 65,536 (apex, csrc/multi_tensor_apply.cuh)."""
_FOREACH: Mapping[str, Chain] = {
    **{f"_foreach_{name}": (name,) for name in ("add", "sub", "mul", "div", "sqrt", "neg", "exp", "log")},
    "_foreach_lerp": ("sub", "add_scaled"),
    "_foreach_addcmul": ("mul", "add_scaled"),
    "_foreach_addcdiv": ("div", "add_scaled"),
    "_foreach_reciprocal": ("div",),
    "_foreach_pow": ("power",),
    "_foreach_maximum": ("relu",),
    "_foreach_minimum": ("relu",),
    "_foreach_clamp_min": ("relu",),
    "_foreach_clamp_max": ("relu",),
    "_foreach_abs": ("relu",),
    "_foreach_sign": ("mask",),
    "_foreach_copy": ("copy",),
}
"""Functions of each element, by name of ATen without the underscore of those that write to their operands."""
_OPTIMIZERS = {"_fused_adam": "adam", "_fused_adamw": "adam", "_fused_adagrad": "sgd_momentum"}


@lowers(*(name for name in _FOREACH if name != "_foreach_neg"), kind="optimizer")
def _of_each(launches: Launches, call: Call) -> None:
    base = call.base.rstrip("_")
    functions = _FOREACH[base]
    if functions == ("add",) and call.arguments.get("alpha", 1) != 1:
        functions = ("add_scaled",)
    functions = tuple("scale" if one == "neg" else one for one in functions)
    lists = [one for one in _lists(call) if one]
    written = lists[0] if call.base.endswith("_") else list(call.returned)
    read = lists[1:] if base == "_foreach_copy" else lists
    _together(launches, functions, read, [written])


@lowers("_foreach_neg", kind="optimizer")
def _negated(launches: Launches, call: Call) -> None:
    lists = _lists(call)
    _together(launches, ("scale",), lists, [lists[0] if call.base.endswith("_") else list(call.returned)])


@lowers("_foreach_zero", kind="optimizer")
def _zeros(launches: Launches, call: Call) -> None:
    _together(launches, ("copy",), [], [_lists(call)[0]])


@lowers("_foreach_norm", kind="optimizer")
def _norms(launches: Launches, call: Call) -> None:
    values = _lists(call)[0]
    results = list(call.returned)[: len(values)] or values[:1]
    elements = sum(one.elements for one in values)
    n = max(1, elements // len(values))
    operator = RowReduction("norm", len(values), n, tuple(map(whole, values)), tuple(map(whole, results)))
    launches.launch(operator, values, results)


@lowers("_amp_foreach_non_finite_check_and_unscale", kind="unscale")
def _unscaled(launches: Launches, call: Call) -> None:
    gradients = _lists(call)[0]
    _together(launches, ("unscale",), [gradients], [gradients])


@lowers("_amp_update_scale", kind="optimizer")
def _scale(launches: Launches, call: Call) -> None:
    launches.elementwise(("mask",), call.tensors[:1], call.tensors[:1])


@lowers("_fused_adam", "_fused_adamw", "_fused_adagrad", kind="optimizer")
def _fused_adam(launches: Launches, call: Call) -> None:
    """Weights, gradients and states are read, and all but the gradients written."""
    weights, gradients, *states = _lists(call)[:4]
    function = _OPTIMIZERS[call.base.rstrip("_")]
    _together(launches, (function,), [weights, gradients, *states], [weights, *states])


@lowers("_fused_sgd", kind="optimizer")
def _fused_sgd(launches: Launches, call: Call) -> None:
    weights, gradients, *states = (one for one in _lists(call)[:3] if one)
    function = "sgd_momentum" if states else "sgd"
    _together(launches, (function,), [weights, gradients, *states], [weights, *states])


def _lists(call: Call) -> list[list[TensorView]]:
    lists = [[one for one in part if one is not None] for part in call.operands if isinstance(part, tuple)]
    if not lists or not lists[0]:
        raise NoModelError
    return lists


def _together(
    launches: Launches,
    functions: Chain,
    reads: Sequence[Sequence[TensorView]],
    writes: Sequence[Sequence[TensorView]],
) -> None:
    """Launch kernels over as many tensors as one launch takes."""
    for places in _groups(writes[0]):
        read = [ones[at] for ones in reads for at in places if at < len(ones)]
        written = [ones[at] for ones in writes for at in places if at < len(ones)]
        elements = sum(writes[0][at].elements for at in places)
        operator = Pointwise(functions, elements, tuple(map(whole, read)), tuple(map(whole, written)))
        launches.launch(operator, read, written, "optimizer")


def _groups(tensors: Sequence[TensorView]) -> Iterator[list[int]]:
    """Places of tensors that one launch takes."""
    group: list[int] = []
    elements = 0
    for at, one in enumerate(tensors):
        if group and elements + one.elements > FUSED_ELEMENTS:
            yield group
            group, elements = [], 0
        group.append(at)
        elements += one.elements
    yield group
