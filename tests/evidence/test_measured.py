"""Measured tables: accepted and refused rows."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MEASURED_HEADER as HEADER
from conftest import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st

from gpusim.cuda_version import CudaVersion
from gpusim.evidence import fields
from gpusim.evidence.boards import board_of, gpu_of_device
from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.measured import read_measured, write_measured
from gpusim.numbers.formats import Dtype
from gpusim.specs import UnknownGpuError
from gpusim.workloads.conditions import calls_of
from gpusim.workloads.convolution import Convolution, ConvolutionShape
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, Pointwise
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import Elementwise, LayerNorm, Reduction, Softmax

ROW = "a100-sxm4-80gb,linear,1,16,4096,1024,bf16,fp32,tn,dense,12.5,graph,cold,,,,,,,,made up"


def write(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "runs.csv"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


def stated(**values: str) -> str:
    """The sample row with some values replaced."""
    return ",".join({**dict(zip(HEADER.split(","), ROW.split(","), strict=True)), **values}.values())


def test_a_table_names_boards_and_never_files(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text("name: Mine\nextends: t4\n", encoding="utf-8")
    assert board_of("t4").gpu.name == "T4"
    with pytest.raises(UnknownGpuError, match=r"mine\.yaml: a table names GPUs, not files"):
        board_of(str(spec))
    assert gpu_of_device(str(spec)) == str(spec).lower()


def test_a_table_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeasuredError, match=r"/dev/zero: cannot be read: not a regular file"):
        read_measured("/dev/zero")
    monkeypatch.setattr(fields, "MAX_ROWS", 2)
    with pytest.raises(MeasuredError, match=r"runs\.csv:4: more than 2 rows"):
        read_measured(write(tmp_path, HEADER, ROW, ROW, ROW))
    with pytest.raises(MeasuredError, match=r"runs\.csv:1: 20001 columns; at most 10000 are read"):
        read_measured(write(tmp_path, "," * 20_000))


def test_a_row_is_read_as_it_stands(tmp_path: Path) -> None:
    (row,) = read_measured(write(tmp_path, HEADER, ROW))
    assert (row.line, row.gpu, row.op, row.batch, row.m, row.n, row.k) == (
        2,
        "a100-sxm4-80gb",
        "linear",
        1,
        16,
        4096,
        1024,
    )
    assert (row.dtype, row.accumulate, row.layout, row.sparsity) == (Dtype.BF16, "fp32", "tn", "dense")
    assert (row.time_us, row.method, row.l2, row.source) == (12.5, "graph", "cold", "made up")
    assert (row.kernel, row.tile_m, row.grid) == ("", None, None)


def test_extra_columns_are_allowed_in_any_place_and_kept(tmp_path: Path) -> None:
    (row,) = read_measured(write(tmp_path, "driver," + HEADER + ",note", "450.1," + ROW + ",warm room"))
    assert row.time_us == 12.5
    assert row.extra == {"driver": "450.1", "note": "warm room"}


@pytest.mark.parametrize(
    ("dtype", "stated", "written"),
    [("int8", "", "int32"), ("int8", "fp16", "fp16"), ("bf16", "", "bf16"), ("bf16", "fp32", "fp32")],
)
def test_a_row_says_what_c_is_written_in_or_it_is_the_types_usual_one(
    tmp_path: Path, dtype: str, stated: str, written: str
) -> None:
    accumulate = "int32" if dtype == "int8" else "fp32"
    values = dict(zip(HEADER.split(","), ROW.split(","), strict=True))
    line = ",".join({**values, "dtype": dtype, "acc_dtype": accumulate}.values())
    (row,) = read_measured(write(tmp_path, HEADER + ",out_dtype", f"{line},{stated}"))
    gemm = row.operator
    assert isinstance(gemm, Gemm)
    assert gemm.output == written


def test_columns_that_only_some_sources_record_may_be_missing(tmp_path: Path) -> None:
    (row,) = read_measured(
        write(
            tmp_path, "gpu,op,batch,m,n,k,dtype,sparsity,time_us,method,l2", "t4,gemm,1,8,8,8,fp16,dense,3,graph,warm"
        )
    )
    assert (row.layout, row.accumulate, row.threads) == ("", "", None)


def test_a_file_of_another_system_is_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\n{ROW}\r\n\r\n".encode())
    assert len(read_measured(path)) == 1


def test_a_last_line_without_its_line_break_is_read_when_it_is_complete(tmp_path: Path) -> None:
    assert len(read_measured(write(tmp_path, HEADER, ROW, end=""))) == 1


@pytest.mark.parametrize(
    ("column", "value", "line"),
    [
        ("time_us", "-3", "2: time_us: expected a positive time, got '-3'"),
        ("time_us", "0", "2: time_us: expected a positive time, got '0'"),
        ("time_us", "nan", "2: time_us: expected a time, got 'nan'"),
        ("time_us", "inf", "2: time_us: expected a time, got 'inf'"),
        ("time_us", "1_000", "2: time_us: expected a time, got '1_000'"),
        ("time_us", "1e-9", "2: time_us: expected a time of 1e-06 to 1e+13 us, got '1e-9'"),
        ("time_us", "1e999", "2: time_us: expected a time of 1e-06 to 1e+13 us, got '1e999'"),
        ("time_us", "0." + "0" * 5000 + "1e5001", "2: time_us: expected a time, got '0.000"),
        ("m", "9" * 5000, "2: m: more than 64 bits hold"),
        ("gpu", "x" * 300, "2: gpu: a name of 300 characters; name the GPU"),
        ("time_us", "fast", "2: time_us: expected a time, got 'fast'"),
        ("time_us", "", "2: time_us: expected a time, got ''"),
        ("m", "-16", "2: m: expected a positive integer, got '-16'"),
        ("n", "4096.5", "2: n: expected a positive integer, got '4096.5'"),
        ("m", "9" * 400, "2: m: more than 64 bits hold"),
        ("m", "1_000", "2: m: expected a positive integer, got '1_000'"),
        ("m", "१२", "2: m: expected a positive integer, got '१२'"),
        ("k", "", "2: k: expected a positive integer, got ''"),
        ("batch", "0", "2: batch: expected a positive integer, got '0'"),
        ("threads", "many", "2: threads: expected a positive integer, got 'many'"),
        ("dtype", "bf61", "2: dtype: unknown 'bf61'; nearest: bf16"),
        ("op", "linaer", "2: op: unknown 'linaer'; nearest: linear"),
        ("method", "grph", "2: method: unknown 'grph'; nearest: graph"),
        ("method", "", "2: method: empty; expected one of graph, stream, profiler, layer, event, host"),
        ("l2", "lukewarm", "2: l2: unknown 'lukewarm'; nearest: warm"),
        ("sparsity", "2:5", "2: sparsity: unknown '2:5'; nearest: 2:4"),
        ("layout", "tx", "2: layout: unknown 'tx'; nearest: tt, tn"),
        ("acc_dtype", "fp23", "2: acc_dtype: unknown 'fp23'; nearest: "),
        ("gpu", "", "2: gpu: empty; name the GPU"),
    ],
)
def test_a_value_outside_the_schema_is_refused_with_line_and_column(
    tmp_path: Path, column: str, value: str, line: str
) -> None:
    path = write(tmp_path, HEADER, stated(**{column: value}))
    with pytest.raises(MeasuredError) as error:
        read_measured(path)
    assert str(error.value).startswith(f"{path}:{line}")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) - len(str(path)) < 300


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ":1: empty file; expected a header"),
        (HEADER + "\n", ":2: no rows below the header"),
        (
            HEADER.replace("time_us", "time_su") + "\n" + ROW + "\n",
            ":1: time_us: no such column in the header; is it 'time_su'?",
        ),
        (HEADER.replace(",", ";") + "\n", ":1: columns are separated by semicolons; export it with commas"),
        (HEADER.replace(",", "\t") + "\n", ":1: columns are separated by tabs; export it with commas"),
        (HEADER + ",,\n" + ROW + ",,\n", ":1: column without a name: column occurs twice"),
        (HEADER + ",m\n" + ROW + ",1\n", ":1: m: column occurs twice"),
        (f"{HEADER}\n{ROW}\n{ROW[:40]}", ":3: 7 columns, the header names 21; the file ends inside this line"),
        (f"{HEADER}\n{ROW[:40]}\n{ROW}\n", ":2: 7 columns, the header names 21; complete the line"),
        (f'{HEADER}\n{ROW}\n"{ROW}', ":3: unexpected end of data"),
        ("\0\0\0", ":1: "),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MeasuredError) as error:
        read_measured(path)
    assert str(error.value).startswith(f"{path}{problem}")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasuredError, match=r"none\.csv: cannot be read: No such file"):
        read_measured(tmp_path / "none.csv")
    with pytest.raises(MeasuredError, match="cannot be read: Is a directory"):
        read_measured(tmp_path)
    binary = tmp_path / "runs.csv"
    binary.write_bytes(HEADER.encode() + b"\n\xff\xfe")
    with pytest.raises(MeasuredError, match=r"runs\.csv:2: byte \d+ of the file is not UTF-8 text"):
        read_measured(binary)
    binary.write_bytes(f"{HEADER}\n{ROW}\n".encode("utf-16") + b"\x00\xdc")
    with pytest.raises(MeasuredError, match=r"runs\.csv:3: byte \d+ of the file is not UTF-16 text"):
        read_measured(binary)


@given(cut=st.integers(min_value=len(HEADER) + 1, max_value=len(HEADER) + len(ROW) - len(",,,,,,,made up")))
def test_a_file_that_was_cut_off_in_its_last_line_is_never_read_as_complete(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "runs.csv"
    path.write_text(f"{HEADER}\n{ROW}\n"[: cut + 1], encoding="utf-8")
    with pytest.raises(MeasuredError):
        read_measured(path)


def test_matrix_operators_become_matrix_multiplications(tmp_path: Path) -> None:
    bmm = stated(op="bmm").replace("bmm,1,", "bmm,8,")
    blas = stated(op="gemm").replace(",tn,", ",,")
    rows = read_measured(write(tmp_path, HEADER + ",order", f"{ROW},", f"{bmm},row", f"{blas},", f"{blas},column"))
    linear, batched, plain, by_columns = (row.operator for row in rows)
    assert isinstance(linear, Gemm)
    assert isinstance(batched, Gemm)
    assert isinstance(plain, Gemm)
    assert (linear.m, linear.n, linear.k, linear.layout, linear.order) == (16, 4096, 1024, "tn", "row")
    assert (batched.batch, batched.order) == (8, "row")
    assert (plain.layout, plain.order) == ("tn", "row")
    assert by_columns == replace(plain, order="column")
    with pytest.raises(MeasuredError, match="order: C of bmm is row-major, got 'column'; write op gemm"):
        read_measured(write(tmp_path, HEADER + ",order", f"{bmm},column"))


def test_the_layout_is_as_stated_or_as_the_source_calls_it(tmp_path: Path) -> None:
    torch_mm = "https://github.com/zzc0721/torch-performance-test-data/issues/140"
    lines = [stated(op="gemm", layout=layout, source=source) for source in (torch_mm, "mine") for layout in ("", "nt")]
    rows = read_measured(write(tmp_path, HEADER, *lines))
    assert [row.layout for row in rows] == ["nn", "nt", "", "nt"]
    assert [row.operator.layout for row in rows if isinstance(row.operator, Gemm)] == ["nn", "nt", "tn", "nt"]


@pytest.mark.parametrize(
    ("layout", "ran"),
    [("nn", (40, 33, 24)), ("tn", (40, 33, 24)), ("nt", (40, 40, 17)), ("tt", (40, 40, 24))],
)
def test_padded_leading_dimensions_are_those_that_ran(tmp_path: Path, layout: str, ran: tuple[int, int, int]) -> None:
    line = stated(op="gemm", m="35", n="33", k="17", layout=layout, dtype="fp16")
    rows = read_measured(write(tmp_path, HEADER + ",order,padded_to", f"{line},column,8", f"{line},column,"))
    padded, as_stated = (row.operator for row in rows)
    assert isinstance(padded, Gemm)
    assert isinstance(as_stated, Gemm)
    assert (padded.m, padded.n, padded.k) == ran
    assert (as_stated.m, as_stated.n, as_stated.k) == (35, 33, 17)
    assert (rows[0].m, rows[0].n, rows[0].k) == (35, 33, 17)


def test_a_source_whose_program_is_known_is_read_as_that_times(tmp_path: Path) -> None:
    triton = "https://github.com/triton-lang/triton/issues/1648"
    leimao = "https://github.com/leimao/CUDA-GEMM-Optimization"
    stated_as = [(triton, "profiler"), (leimao, "event"), ("mine", "profiler"), ("mine", "do_bench")]
    same = {"op": "gemm", "dtype": "fp16", "acc_dtype": "", "layout": "", "l2": "warm"}
    lines = [stated(source=source, method=method, **same) for source, method in stated_as]
    rows = read_measured(write(tmp_path, HEADER, *lines))
    assert [row.method for row in rows] == ["do_bench", "stream", "profiler", "do_bench"]
    assert [row.load for row in rows] == ["flushed", "200", "sustained", "flushed"]
    assert [row.l2_of(usable_bytes=2**20) for row in rows] == ["cold", "warm", "warm", "cold"]
    assert [row.layout for row in rows] == ["nn", "nn", "", ""]
    assert [row.accumulate for row in rows] == ["", "fp16", "", ""]
    with pytest.raises(MeasuredError, match="2: method: unknown 'grph'"):
        read_measured(write(tmp_path, HEADER, stated(source=triton, method="grph", **same)))


def test_a_table_of_deepbenchs_that_lacks_the_column_states_sizes_before_padding(tmp_path: Path) -> None:
    lines = [stated(source="deepbench", dtype=dtype) for dtype in ("fp16", "fp32")]
    assert [row.padded_to for row in read_measured(write(tmp_path, HEADER, *lines))] == [8, None]
    (row,) = read_measured(write(tmp_path, HEADER + ",padded_to", lines[0] + ","))
    assert row.padded_to is None


def test_deepbench_keeps_images_of_halves_pixel_by_pixel_whatever_a_table_says(tmp_path: Path) -> None:
    shape = ConvolutionShape(8, 64, 28, 28, 64, 3, 3)
    for source, dtype, layout in (
        ("deepbench", "fp16", "nhwc"),
        ("deepbench", "fp32", "nchw"),
        ("mine", "fp16", "nchw"),
    ):
        line = stated(source=source, op="conv_fwd", dtype=dtype, layout="nchw")
        columns = shape.columns
        header, values = (",".join((first, *rest)) for first, rest in ((HEADER, columns), (line, columns.values())))
        (row,) = read_measured(write(tmp_path, header, values))
        assert isinstance(row.operator, Convolution)
        assert row.operator.layout == layout


def test_the_load_is_as_stated_or_as_the_source_repeats(tmp_path: Path) -> None:
    kinds = [
        ("vidur", "profiler", "", "80"),
        ("vidur", "profiler", "sustained", "sustained"),
        ("https://github.com/zzc0721/torch-performance-test-data/issues/140", "stream", "", "36"),
        ("mine", "profiler", "", "sustained"),
        ("mine", "graph", "", "burst"),
    ]
    lines = [f"{stated(source=source, method=method)},{load}" for source, method, load, _ in kinds]
    rows = read_measured(write(tmp_path, HEADER + ",load", *lines))
    assert [row.load for row in rows] == [expected for *_, expected in kinds]


@pytest.mark.parametrize(
    ("source", "op", "size", "l2"),
    [
        # six weights of 2 MiB, an input of 2 and a result of 2
        ("aiconfigurator-vllm-0.14.0", "linear", 1024, "warm"),
        ("aiconfigurator-vllm-0.24.0", "linear", 1025, "cold"),
        ("aiconfigurator-vllm-0.14.0", "gemm", 1024, "cold"),
        ("aiconfigurator-trtllm-1.0.0-sq", "linear", 1024, "cold"),
        ("mine", "linear", 1024, "cold"),
    ],
)
def test_l2_is_warm_where_it_holds_all_that_a_source_rotates(
    tmp_path: Path, source: str, op: str, size: int, l2: str
) -> None:
    sizes = dict.fromkeys(("m", "n", "k"), str(size))
    (row,) = read_measured(write(tmp_path, HEADER, stated(source=source, op=op, l2="cold", **sizes)))
    assert row.l2_of(usable_bytes=16 * 2**20) == l2
    assert row.l2 == "cold"


def test_scales_are_as_stated_or_as_the_source_calls_it(tmp_path: Path) -> None:
    kinds = [
        ("aiconfigurator-vllm-0.24.0", "fp8", "", "", ("row", "compiled")),
        ("aiconfigurator-vllm-0.24.0", "bf16", "", "", ("", "")),
        ("aiconfigurator-vllm-0.24.0", "fp8", "tensor", "", ("tensor", "")),
        ("https://github.com/vllm-project/vllm/pull/6677", "int8", "", "", ("row", "")),
        ("mine", "fp8", "row", "kernel", ("row", "kernel")),
        ("mine", "fp8", "", "", ("", "")),
    ]
    for source, dtype, scales, quantise, expected in kinds:
        columns = ",scales,quantise" if scales or quantise else ""
        values = f",{scales},{quantise}" if columns else ""
        line = stated(source=source, op="linear", dtype=dtype, acc_dtype="") + values
        (row,) = read_measured(write(tmp_path, HEADER + columns, line))
        assert isinstance(row.operator, Gemm)
        assert (row.operator.scales, row.operator.quantise) == expected


def test_weights_of_another_type_are_read_with_their_group(tmp_path: Path) -> None:
    for group, read in (("none", None), ("128", 128)):
        line = stated(op="linear", dtype="fp16", acc_dtype="fp32") + f",int4,{group}"
        (row,) = read_measured(write(tmp_path, HEADER + ",b_dtype,group", line))
        assert isinstance(row.operator, Gemm)
        assert (row.operator.b_dtype, row.operator.group) == (Dtype.INT4, read)


def test_operands_are_as_stated_or_as_the_source_fills_them(tmp_path: Path) -> None:
    kinds = [
        ("deepbench", "t4", "fp16", "", "zeros"),
        ("deepbench", "t4", "fp16", "random", "random"),
        ("deepbench", "t4", "fp32", "", "positive"),
        ("aiconfigurator-vllm-0.14.0", "a100-sxm4-80gb", "bf16", "", "zeros"),
        ("aiconfigurator-vllm-0.24.0", "h200-sxm-141gb", "bf16", "", "random"),
        ("cutlass-profiler", "a100-sxm4-80gb", "tf32", "", "zeros"),
        ("mine", "t4", "fp16", "", "random"),
    ]
    lines = [f"{stated(source=source, gpu=gpu, dtype=dtype)},{held}" for source, gpu, dtype, held, _ in kinds]
    rows = read_measured(write(tmp_path, HEADER + ",operands", *lines))
    assert [row.operands for row in rows] == [expected for *_, expected in kinds]


def test_deepbench_passes_the_smallest_number_as_beta_and_so_has_c_read(tmp_path: Path) -> None:
    kinds = [
        ("deepbench", "fp16", "", 2.0**-24),
        ("deepbench", "fp32", "", 2.0**-149),
        ("deepbench", "fp32", "0", 0.0),
        ("mine", "fp16", "", 0.0),
        ("mine", "fp16", "-1.5", -1.5),
    ]
    lines = [f"{stated(source=source, dtype=dtype)},{beta}" for source, dtype, beta, _ in kinds]
    rows = read_measured(write(tmp_path, HEADER + ",beta", *lines))
    assert [row.operator.beta for row in rows if isinstance(row.operator, Gemm)] == [beta for *_, beta in kinds]
    write_measured(tmp_path / "again.csv", rows)
    assert [row.stated_beta for row in read_measured(tmp_path / "again.csv")] == [None, None, 0.0, None, -1.5]


@pytest.mark.parametrize(
    ("op", "operator"),
    [
        ("softmax", Softmax(16, 4096, Dtype.BF16)),
        ("layernorm", LayerNorm(16, 4096, Dtype.BF16)),
        ("add", Elementwise(16, 4096, Dtype.BF16, "add")),
        ("sum", Reduction(16, 4096, Dtype.BF16, "sum")),
    ],
)
def test_a_row_without_k_is_an_operator_on_rows(tmp_path: Path, op: str, operator: Operator) -> None:
    (row,) = read_measured(write(tmp_path, HEADER, stated(op=op, k="", layout="")))
    assert row.operator == operator
    assert row.k is None


def test_an_operator_by_what_it_touches_is_known_by_columns_of_its_own(tmp_path: Path) -> None:
    line = stated(op="pointwise", k="", layout="") + ',add+relu,"64 bf16, 64 bf16 distinct 8",64 bf16'
    (row,) = read_measured(write(tmp_path, f"{HEADER},function,reads,writes", line))
    x = Access(64, Dtype.BF16)
    assert row.operator == Pointwise(("add", "relu"), row.m * row.n, (x, Access(64, Dtype.BF16, distinct=8)), (x,))
    with pytest.raises(MeasuredError, match=r":2: function: missing; pointwise requires it"):
        _ = read_measured(write(tmp_path, HEADER, stated(op="pointwise", k="", layout="")))


SIZES = "n_img,in_channels,height,width,out_channels,filter_h,filter_w,pad_h,pad_w,stride_h,stride_w"


def test_a_convolution_is_known_by_the_columns_of_its_sizes(tmp_path: Path) -> None:
    line = stated(op="conv_fwd", layout="nchw")
    (without,) = read_measured(write(tmp_path, HEADER, line))
    assert without.operator is None
    (row,) = read_measured(write(tmp_path, f"{HEADER},{SIZES}", f"{line},2,64,56,56,128,3,3,1,1,2,2"))
    shape = ConvolutionShape(2, 64, 56, 56, 128, 3, 3, (1, 1), (2, 2))
    assert row.operator == Convolution(shape, Dtype.BF16, "conv_fwd", "nchw")


def test_images_of_neusight_are_zeros_and_its_filters_random(tmp_path: Path) -> None:
    lines = [stated(op=op, layout=layout, source="neusight") for op, layout in (("conv_fwd", "nchw"), ("gemm", "tn"))]
    rows = read_measured(
        write(tmp_path, f"{HEADER},{SIZES}", f"{lines[0]},2,64,56,56,128,3,3,1,1,2,2", f"{lines[1]},,,,,,,,,,,")
    )
    assert [row.operands for row in rows] == ["one_zero", "random"]


@pytest.mark.parametrize(
    ("columns", "values", "problem"),
    [
        ("", {"op": "softmax", "k": "", "sparsity": "2:4"}, "sparsity: softmax is dense, got '2:4'"),
        (SIZES, {"op": "conv_fwd"}, "filter_h, filter_w: the filter is larger than the padded image"),
    ],
)
def test_columns_that_contradict_each_other_are_refused_with_their_line(
    tmp_path: Path, columns: str, values: dict[str, str], problem: str
) -> None:
    more = f",{columns}" if columns else ""
    line = stated(**{"layout": "nchw", **values}) + (",2,64,3,3,128,5,5,0,0,1,1" if columns else "")
    with pytest.raises(MeasuredError, match=re.escape(f"runs.csv:2: {problem}; correct or remove the row")):
        read_measured(write(tmp_path, HEADER + more, line))


def test_the_shipped_published_points_each_name_a_page() -> None:
    rows = read_measured(REPOSITORY / "experiments" / "a100_vs_v100_published.csv")
    assert {row.dtype for row in rows} == {Dtype.FP16, Dtype.FP32}
    assert all(row.source.startswith("https://") for row in rows)


def test_every_measured_table_is_read(measured_folder: Path) -> None:
    for path in sorted(measured_folder.glob("*/*.csv")):
        rows = read_measured(path)
        assert len(rows) == len(path.read_text(encoding="utf-8").splitlines()) - 1, path


def test_a_table_may_hold_training_steps_which_are_not_single_products(tmp_path: Path) -> None:
    (row,) = read_measured(write(tmp_path, HEADER, stated(op="linear_fwd_bwd")))
    assert row.operator is None


def test_a_load_of_no_calls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        MeasuredError, match="load: expected sustained, burst, flushed or a number of calls back to back, got '0'"
    ):
        read_measured(write(tmp_path, HEADER + ",load", f"{ROW},0"))


@pytest.mark.parametrize(
    ("method", "load", "read"),
    [
        ("graph", "", "burst"),
        ("layer", "", "burst"),
        ("do_bench", "", "flushed"),
        ("do_bench", "sustained", "sustained"),
        ("profiler", "flushed", "flushed"),
        ("event", "", "sustained"),
        ("event", "burst", "burst"),
        ("graph", "54", "54"),
    ],
)
def test_a_row_says_how_long_it_ran_or_its_method_does(tmp_path: Path, method: str, load: str, read: str) -> None:
    (row,) = read_measured(write(tmp_path, HEADER + ",load", f"{stated(method=method)},{load}"))
    assert row.load == read
    if read != "flushed":
        assert calls_of(row.load) == {"burst": 0, "sustained": math.inf, "54": 54}[read]


def test_a_row_says_how_it_was_timed(tmp_path: Path) -> None:
    (row,) = read_measured(write(tmp_path, HEADER + ",cuda,timer_us,repeat_p90", ROW + ",12,0.5,0.02"))
    assert (row.cuda, row.timer_us, row.repeat_p90) == (CudaVersion(12), 0.5, 0.02)
    (row,) = read_measured(write(tmp_path, HEADER + ",cuda,timer_us,repeat_p90", ROW + ",,,"))
    assert (row.cuda, row.timer_us, row.repeat_p90) == (None, None, None)


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("cuda", "12.x", "expected a version of CUDA, such as 12 or 12.4, got '12.x'"),
        ("padded_to", "0", "expected a positive integer, got '0'"),
        ("operands", "full", "unknown 'full'; expected one of random, positive, one_zero, zeros"),
        ("timer_us", "-1", "expected a number from 0 to 1e+06, got '-1'"),
        ("timer_us", "nan", "expected a number from 0 to 1e+06, got 'nan'"),
        ("repeat_p90", "2", "expected a number from 0 to 1, got '2'"),
        ("beta", "one", "expected a number, got 'one'"),
    ],
)
def test_a_wrong_value_of_how_a_row_was_timed_is_refused(tmp_path: Path, column: str, value: str, problem: str) -> None:
    with pytest.raises(MeasuredError, match=re.escape(f"runs.csv:2: {column}: {problem}")):
        read_measured(write(tmp_path, f"{HEADER},{column}", f"{ROW},{value}"))


@pytest.mark.parametrize(
    ("source", "m", "l2"),
    [
        ("aiconfigurator-vllm-0.24.0", 9000, "warm"),
        ("aiconfigurator-trtllm-1.0.0-sq", 9000, "warm"),
        ("aiconfigurator-trtllm-1.0.0-sq", 4000, "cold"),  # elements of input and result, 8 of the weights
        ("mine", 9000, "cold"),
    ],
)
def test_l2_is_warm_where_the_call_before_left_nearly_all_operands_there(
    tmp_path: Path, source: str, m: int, l2: str
) -> None:
    sizes = {"m": str(m), "n": "1000", "k": "1000"}
    (row,) = read_measured(write(tmp_path, HEADER, stated(source=source, op="linear", l2="cold", **sizes)))
    assert row.l2_of(usable_bytes=2**20) == l2
