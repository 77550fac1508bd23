"""Products of matrices, as PyTorch hands them to cuBLAS: as they lie where one of their strides is 1, else copied.

``layout`` is that of :class:`~gpusim.workloads.gemm.Gemm`: the first letter is that of the second matrix, ``t`` where
neighbours in memory run along k, the second that of the first one, ``n`` where they do.
"""

from __future__ import annotations

import math

from gpusim.models.aten.access import reduction, whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.models.layers.products import fuses_bias
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import RowReduction


@lowers("mm", kind="linear")
def _mm(launches: Launches, call: Call) -> None:
    a, b = call.tensors[:2]
    multiply(launches, "linear", a, b, call.returned[0])


@lowers("bmm", kind="matmul")
def _bmm(launches: Launches, call: Call) -> None:
    a, b = call.tensors[:2]
    multiply(launches, "matmul", a, b, call.returned[0])


@lowers("addmm", "_addmm_activation", kind="linear")
def _addmm(launches: Launches, call: Call) -> None:
    """A bias is added in the epilogue, or by another call, by the version and the dimensions of what is multiplied."""
    bias, a, b = call.tensors[:3]
    result = call.returned[0]
    if bias.distinct > result.shape[-1]:
        _added(launches, "linear", bias, a, b, call)
    elif fuses_bias(launches.arithmetic.policy.version, _dims(launches, call, a)):
        multiply(launches, "linear", a, b, result, bias)
    else:
        multiply(launches, "linear", a, b, result)
        launches.elementwise(("add",), [result, bias], [result], "add")


@lowers("baddbmm", "addbmm", kind="matmul")
def _baddbmm(launches: Launches, call: Call) -> None:
    added, a, b = call.tensors[:3]
    _added(launches, "matmul", added, a, b, call)


@lowers("mv", "addmv", kind="linear")
def _mv(launches: Launches, call: Call) -> None:
    *added, matrix, vector = call.tensors
    result = call.returned[0]
    column, written = (_column(one) for one in (vector, result))
    if added and added[0].storage != result.storage:
        launches.elementwise(("copy",), added, [result])
    multiply(launches, "linear", matrix, column, written, beta=1.0 if added else 0.0)


@lowers("dot", "vdot")
def _dot(launches: Launches, call: Call) -> None:
    a, b = call.tensors
    operator = RowReduction("norm", 1, a.elements, (whole(a), whole(b)), (whole(call.returned[0]),))
    launches.launch(operator, [a, b], call.returned)


@lowers("addr", "ger", "outer", kind="mul")
def _outer(launches: Launches, call: Call) -> None:
    launches.elementwise(("mul",), call.tensors, call.returned)


@lowers("_cdist_forward", kind="matmul")
def _distances(launches: Launches, call: Call) -> None:
    """By the products of rows where there are more than 25 of them (aten/src/ATen/native/Distance.cpp)."""
    a, b = call.tensors[:2]
    result = call.returned[0]
    turned = TensorView(b.storage, b.dtype_name, (*b.shape[:-2], b.shape[-1], b.shape[-2]), _exchanged(b.strides))
    for one in (a, b):
        sums = launches.temporary((*one.shape[:-1], 1), one.dtype_name)
        launches.launch(reduction("norm", one, [sums], (-1,)), [one], [sums], "")
    multiply(launches, "matmul", a, turned, result)
    launches.elementwise(("relu", "sqrt"), [result], [result])


def multiply(
    launches: Launches,
    operation: str,
    a: TensorView,
    b: TensorView,
    result: TensorView,
    bias: TensorView | None = None,
    *,
    beta: float = 0.0,
    kind: str | None = None,
) -> None:
    """Launch ``result = a b``, of matrices or of batches of them, and the copies that it needs."""
    *outer, m, k = a.shape
    n = b.shape[-1]
    a, of_a = _as_it_lies(launches, a)
    b, of_b = _as_it_lies(launches, b)
    layout = ("t" if of_b == "column" else "n") + ("n" if of_a == "row" else "t")
    operator = Gemm(
        m,
        n,
        k,
        launches.arithmetic.path_of(operation, a.dtype),
        batch=math.prod(outer),
        layout=layout,
        op="bmm" if operation == "matmul" else "linear",
        bias=bias is not None,
        beta=beta,
    )
    launches.launch(operator, [a, b, *([bias] if bias else [])], [result], kind)


def _as_it_lies(launches: Launches, matrix: TensorView) -> tuple[TensorView, str]:
    """A matrix, copied if neither of its strides is 1, and what lies together of it: rows or columns.

    Source: aten/src/ATen/native/cuda/Blas.cpp, ``prepare_matrix_for_cublas``.
    """
    rows, columns = matrix.shape[-2:]
    down, across = matrix.strides[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return matrix, "row"
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return matrix, "column"
    return launches.copied(matrix), "row"


def _added(launches: Launches, operation: str, added: TensorView, a: TensorView, b: TensorView, call: Call) -> None:
    """A product onto a tensor, which is copied into the result first."""
    result = call.returned[0]
    beta = float(call.arguments.get("beta", 1.0))
    if beta and (added.storage != result.storage or added.shape != result.shape):
        launches.elementwise(("copy",), [added], [result])
    multiply(launches, operation, a, b, result, beta=beta)


def _dims(launches: Launches, call: Call, value: TensorView) -> int:
    """Dimensions of the input of a linear layer, of which a product sees a matrix.

    They are those that the call states, or those of what was computed into its storage; of a move, which may have had
    more of them, and of heads they are taken as three.
    """
    return int(call.arguments.get("input_dims") or max(2, launches.dims.get(value.storage, 3)))


def _column(vector: TensorView) -> TensorView:
    return TensorView(vector.storage, vector.dtype_name, (*vector.shape, 1), (*vector.strides, 1))


def _exchanged(strides: tuple[int, ...]) -> tuple[int, ...]:
    return (*strides[:-2], strides[-1], strides[-2])
