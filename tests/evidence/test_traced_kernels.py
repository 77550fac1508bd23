"""Kernels out of traces: what their rows say, which operators they stand for, and the table of errors by kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import REPOSITORY

from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.recorded_kernels import TracedKernel, read_traced_kernels
from gpusim.numbers.formats import Dtype
from gpusim.report.trace_validation_tables import trace_validation_tables
from gpusim.studies.validation.kinds import kind_of
from gpusim.studies.validation.session import OPERATORS
from gpusim.studies.validation.traced_kernels import TRACED_KERNELS, validate_traced_kernels
from gpusim.studies.validation.traced_operators import NotStatedError, operators_of
from gpusim.workloads.memory_bound import Access, ColumnReduction, Pointwise, RowReduction

HEADER = "board,source,op,shapes,dtypes,numel_max,kernel,grid,block,time_us"
ADD = (
    'a100-sxm4-80gb,own,add,"64x4096x256,1x4096x256","bf16,bf16",67108864,'
    '"void at::native::{}<128, 4>",131072x1x1,128x1x1,250'
)
SHARED = REPOSITORY.parent / "shared" / "traces" / "memory_bound.csv"


@pytest.fixture
def row(tmp_path: Path) -> TracedKernel:
    return _rows(tmp_path, ADD.format("elementwise_kernel"))[0]


def _rows(folder: Path, *lines: str) -> tuple[TracedKernel, ...]:
    table = folder / "trace.csv"
    table.write_text("\n".join((HEADER, *lines)), encoding="utf-8")
    return read_traced_kernels(table)


def test_a_row_names_its_kernel_and_its_tensors(row: TracedKernel) -> None:
    assert row.kind == "elementwise_kernel"
    assert [(one.shape, one.dtype) for one in row.tensors] == [
        ((64, 4096, 256), Dtype.BF16),
        ((1, 4096, 256), Dtype.BF16),
    ]
    assert (row.grid, row.block, row.time_us) == ((131072, 1, 1), (128, 1, 1), 250.0)


def test_a_broadcast_addition_reads_the_smaller_tensor_again(row: TracedKernel) -> None:
    elements, again = 64 * 4096 * 256, 4096 * 256
    x = Access(elements, Dtype.BF16)
    assert operators_of(row) == (
        Pointwise(("add",), elements, (x, Access(elements, Dtype.BF16, distinct=again)), (x,)),
    )


def test_the_grid_tells_sums_of_columns_from_sums_of_rows(tmp_path: Path) -> None:
    names = 'own,sum,2048x15625,f32,32000000,"void at::native::reduce_kernel<512, 1, ReduceOp<float>>"'
    along, across = _rows(tmp_path, f"t4,{names},489x1x1,32x16x1,122", f"t4,{names},128x1x1,32x16x1,122")
    read = (Access(2048 * 15625, Dtype.FP32),)
    assert operators_of(along) == (ColumnReduction("sum", 2048, 15625, read, (Access(15625, Dtype.FP32),)),)
    assert operators_of(across) == (RowReduction("sum", 2048, 15625, read, (Access(2048, Dtype.FP32),)),)


def test_the_kernels_name_tells_the_largest_elements_from_those_with_their_places(tmp_path: Path) -> None:
    names = ("ReduceOp<float, MaxOps<float>, unsigned int>", "ReduceOp<float, func_wrapper_t<float, MaxNanFunctor>>")
    lines = [f't4,own,max,64x800,f32,51200,"at::native::reduce_kernel<512, 1, {one}>",4x1x1,32x16x1,5' for one in names]
    read = (Access(51200, Dtype.FP32),)
    found = [operators_of(row) for row in _rows(tmp_path, *lines)]
    assert found == [(RowReduction(one, 64, 800, read, (Access(64, Dtype.FP32),)),) for one in ("arg_max", "max")]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('t4,own,nonzero,1000,b8,1000,"void cub::DeviceScanKernel<int>",1x1x1,128x1x1,4', "DeviceScanKernel: what it"),
        (
            't4,own,fb::hash,1000,f32,1000,"void at::native::vectorized_elementwise_kernel<4>",1x1x1,64x1x1,4',
            "fb::hash: its arithmetic is not known",
        ),
        (
            't4,own,cat,list2:1000,list,1000,"CatArrayBatchedCopy<at::native::OpaqueType<4> >",1x1x1,64x1x1,4',
            "cat: the type of its elements is not recorded",
        ),
    ],
)
def test_what_a_trace_does_not_say_is_named(tmp_path: Path, line: str, says: str) -> None:
    (one,) = _rows(tmp_path, line)
    with pytest.raises(NotStatedError, match=says):
        _ = operators_of(one)


def test_a_report_counts_every_row_and_says_why_some_have_no_prediction(tmp_path: Path) -> None:
    _ = _rows(
        tmp_path,
        ADD.format("elementwise_kernel"),
        ADD.format("cub::DeviceScanKernel"),
        ADD.format("elementwise_kernel").replace("a100-sxm4-80gb", "b9000"),
        ADD.format("elementwise_kernel").replace(",250", ",0.0"),
    )
    report = validate_traced_kernels([tmp_path / "trace.csv"]).as_dict()
    overall = report["overall"]
    assert (overall["rows"], overall["predicted"], overall["skipped"], overall["long_rows"]) == (4, 1, 3, 1)
    assert sum(overall["skip_reasons"].values()) == 3
    assert overall["mape"] < 100
    tables = trace_validation_tables(report)
    assert [table.title for table in tables] == ["Predicted against recorded kernels", "Not predicted"]


def test_a_table_of_traces_is_known_by_its_columns(tmp_path: Path) -> None:
    _ = _rows(tmp_path, ADD)
    assert kind_of(tmp_path / "trace.csv") is TRACED_KERNELS
    (tmp_path / "other.csv").write_text("gpu,op,m,n\n", encoding="utf-8")
    assert kind_of(tmp_path / "other.csv") is OPERATORS
    with pytest.raises(MeasuredError, match=r"none\.csv: cannot be read"):
        kind_of(tmp_path / "none.csv")


def test_a_time_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(MeasuredError, match=r"trace.csv:2: time_us: "):
        _ = _rows(tmp_path, ADD.format("elementwise_kernel").replace(",250", ",fast"))


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="needs the traces beside the project")
def test_long_vectorized_kernels_of_recorded_traces_come_within_a_tenth() -> None:
    report = validate_traced_kernels([SHARED]).as_dict()
    of_a100 = [one for one in report["kernels"] if one["gpu"].startswith("a100") and one["long_rows"] > 10]
    medians = {(one["kernel"], one["gpu"]): one["long"]["median_ape"] for one in of_a100}
    assert medians["vectorized_elementwise_kernel", "a100-sxm4-40gb"] < 10
    assert medians["vectorized_elementwise_kernel", "a100-sxm4-80gb"] < 10
