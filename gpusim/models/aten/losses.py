"""Losses and their gradients."""

from __future__ import annotations

from gpusim.models.aten.access import reduction, spread, whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.functions import Chain
from gpusim.workloads.memory_bound import Access, Pointwise, RowReduction

_NONE = 0
"""Losses that are not reduced."""
_LOSSES: dict[str, tuple[Chain, Chain]] = {
    "mse_loss": (("sub", "mul"), ("sub", "scale", "mul")),
    "smooth_l1_loss": (("sub", "mask", "mul"), ("sub", "mask", "mul")),
    "huber_loss": (("sub", "mask", "mul"), ("sub", "mask", "mul")),
    "binary_cross_entropy": (("log", "log", "mul", "mul", "sub"), ("sub", "mul", "div")),
    "soft_margin_loss": (("exp", "log"), ("exp", "div", "mul")),
    "kl_div": (("log", "sub", "mul"), ("mul", "scale")),
}
"""Functions of each element, and of its gradient."""


@lowers("nll_loss_forward", "nll_loss2d_forward", kind="nll_loss")
def _nll_loss(launches: Launches, call: Call) -> None:
    """One element of each row, and their sum."""
    scores, targets = call.tensors[:2]
    loss = call.returned[0]
    rows = targets.elements
    operator = RowReduction("sum", 1, rows, (whole(targets), Access(rows, scores.dtype, run=1)), (whole(loss),))
    launches.launch(operator, [targets, _of(scores, rows)], [loss])


@lowers("nll_loss_backward", "nll_loss2d_backward", kind="fill")
def _nll_loss_backward(launches: Launches, call: Call) -> None:
    targets = call.tensors[2]
    given = call.returned[0]
    launches.elementwise(("copy",), [], [given])
    written = Access(targets.elements, given.dtype, run=1)
    operator = Pointwise(("scale",), targets.elements, (whole(targets),), (written,))
    launches.launch(operator, [targets], [given], "nll_loss_backward")


@lowers(*_LOSSES)
def _loss(launches: Launches, call: Call) -> None:
    functions, _ = _LOSSES[call.base]
    tensors, result = call.tensors, call.returned[0]
    if call.arguments.get("reduction", 1) == _NONE:
        launches.elementwise(functions, tensors, [result])
        return
    each = launches.temporary(tensors[0].shape, result.dtype_name)
    launches.elementwise(functions, tensors, [each])
    launches.launch(reduction("sum", each, [result], range(len(each.shape))), [each], [result])


@lowers(*(f"{name}_backward" for name in _LOSSES))
def _loss_backward(launches: Launches, call: Call) -> None:
    _, functions = _LOSSES[call.base.removesuffix("_backward")]
    result = call.returned[0]
    reads = tuple(spread(one, result.elements) for one in call.tensors)
    launches.launch(Pointwise(functions, result.elements, reads, (whole(result),)), call.tensors, [result])


def _of(view: TensorView, elements: int) -> TensorView:
    """A part of a tensor of so many elements."""
    return TensorView(view.storage, view.dtype_name, (elements,), (1,))
