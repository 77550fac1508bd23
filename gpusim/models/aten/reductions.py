"""Sums, means, extremes and norms over dimensions, and running sums."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.models.aten.access import reduction, whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.memory_bound import RowReduction

_SUMS = ("sum", "mean", "prod", "nansum", "cumsum_backward", "trace")
_EXTREMES = ("amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "aminmax", "count_nonzero")
_SQUARES = ("linalg_vector_norm", "norm", "var", "std", "var_mean", "std_mean", "frobenius_norm")


@lowers(*_SUMS)
def _sum(launches: Launches, call: Call) -> None:
    _reduced(launches, call, "sum")


@lowers(*_EXTREMES)
def _extreme(launches: Launches, call: Call) -> None:
    """Extremes over dimensions; with another tensor it is a function of every element."""
    if len(call.tensors) > 1:
        launches.elementwise(("relu",), call.tensors, call.returned)
    else:
        _reduced(launches, call, "max")


@lowers(*_SQUARES)
def _squares(launches: Launches, call: Call) -> None:
    _reduced(launches, call, "norm")


def _reduced(launches: Launches, call: Call, function: str) -> None:
    value = call.tensors[0]
    results = call.returned[:2]
    dims = _dims(call, value)
    launches.launch(reduction(function, value, results, dims), [value], results)


def _dims(call: Call, value: TensorView) -> Sequence[int]:
    """Dimensions that a call reduces: all unless it says which."""
    given = call.arguments.get("dim")
    if given is None or given == []:
        return range(len(value.shape))
    return [given] if isinstance(given, int) else given


@lowers("logsumexp")
def _log_sum_exp(launches: Launches, call: Call) -> None:
    """Largest elements, differences, exponentials and their sums, each a call (aten/src/ATen/native/ReduceOps.cpp)."""
    value, result = call.tensors[0], call.returned[0]
    dims = _dims(call, value)
    launches.launch(reduction("max", value, [result], dims), [value], [result])
    shape = tuple(
        1 if dim in {one % len(value.shape) for one in dims} else size for dim, size in enumerate(value.shape)
    )
    largest = TensorView(result.storage, result.dtype_name, shape, launches.temporary(shape, "float32").strides)
    exponentials = launches.temporary(value.shape, value.dtype_name)
    launches.elementwise(("sub",), [value, largest], [exponentials], "sub")
    launches.elementwise(("exp",), [exponentials], [exponentials], "exp")
    launches.launch(reduction("sum", exponentials, [result], dims), [exponentials], [result], "sum")
    launches.elementwise(("log",), [result], [result], "log")
    launches.elementwise(("add",), [result, largest if largest.shape == result.shape else result], [result], "add")


@lowers("cumsum", "cumprod", "cummax", "cummin", "_cummax_helper", "logcumsumexp")
def _running(launches: Launches, call: Call) -> None:
    """Rows are read once, and the sums so far are written (aten/src/ATen/native/cuda/ScanUtils.cuh)."""
    value, result = call.tensors[0], call.returned[0]
    n = value.shape[call.arguments.get("dim", -1)] if value.shape else 1
    operator = RowReduction("sum", value.elements // n, n, (whole(value),), (whole(result),))
    launches.launch(operator, [value], [result])
