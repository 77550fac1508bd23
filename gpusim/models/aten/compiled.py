"""Kernels that TorchInductor made, as the recorder of compiled programs describes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat

from gpusim.models.aten.access import run_of
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, lowers
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction


@lowers("inductor_kernel", kind="compiled")
def _kernel(launches: Launches, call: Call) -> None:
    """Loops over elements, or over rows with a reduction of each.

    A kernel that reduces rows and writes them too keeps each row in registers (``triton_per``), as the softmax of
    PyTorch does with rows of up to 1024 elements, and reads longer ones again.
    """
    rows, columns = call.arguments["rows"], call.arguments.get("columns", 1)
    functions = tuple(chain.from_iterable(repeat(name, count) for name, count in call.arguments.get("functions", [])))
    reads, writes = call.tensors, call.returned
    touched = tuple(map(_access, reads)), tuple(map(_access, writes))
    if not call.arguments.get("reductions"):
        launches.launch(Pointwise(functions or ("copy",), rows * columns, *touched), reads, writes)
    elif max(one.elements for one in writes) >= rows * columns:
        launches.launch(RowReduction("softmax", rows, columns, *touched, functions), reads, writes)
    elif _by_columns(reads, rows * columns):
        launches.launch(ColumnReduction("sum", columns, rows, *touched), reads, writes)
    else:
        launches.launch(RowReduction("sum", rows, columns, *touched, functions), reads, writes)


def _access(view: TensorView) -> Access:
    """Access in the order in which elements lie.

    Loops over tensors that lie in different orders run in tiles of two dimensions (torch/_inductor/codegen/triton.py,
    ``max_tiles``), and reductions along a dimension that lies apart run side by side.
    """
    dims = [dim for dim in range(len(view.shape)) if view.shape[dim] != 1]
    order = tuple(sorted(dims, key=lambda dim: (view.strides[dim] == 0, view.strides[dim], -dim)))
    run = run_of(view.shape, view.strides, order)
    return Access(view.elements, view.dtype, run, view.distinct if view.distinct < view.elements else None)


def _by_columns(reads: Sequence[TensorView], elements: int) -> bool:
    """Whether the tensors that are reduced lie with other dimensions innermost than the reduced one."""
    whole = [one for one in reads if one.elements == elements and one.distinct == elements]
    return bool(whole) and all(one.strides[-1] != 1 for one in whole)
