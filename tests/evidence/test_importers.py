"""Importers: files in the formats that people have, with invented numbers, become rows of the measured schema."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from conftest import RunGpusim, refused
from hypothesis import given
from hypothesis import strategies as st
from importer_samples import CONV_HEADING, GEMM_HEADING, OF_TABLE, SAMPLES, report, sources, table, workbook

from gpusim.cuda_version import CudaVersion
from gpusim.evidence.fields import TIMES_US, MeasuredError
from gpusim.evidence.importers import KINDS, Import, ImportOptions, SourceError, import_file, nsys
from gpusim.evidence.importers.kernel_names import product_kernel
from gpusim.evidence.importers.kineto import load_trace
from gpusim.evidence.measured import (
    COLUMNS,
    MEASURED_OPS,
    MeasuredRow,
    read_measured,
    write_measured,
)
from gpusim.files.inputs import MOST_BYTES
from gpusim.host.timing_methods import METHODS
from gpusim.numbers.formats import ACCUMULATORS, Dtype
from gpusim.prediction.vector_selection import vector_kernel
from gpusim.specs import load_spec
from gpusim.units import MIB
from gpusim.workloads.conditions import CALLS_OF_LOAD, L2_STATES, OPERANDS
from gpusim.workloads.functions import SCHEMA_FUNCTIONS
from gpusim.workloads.gemm import GEMM_OPS, LAYOUTS, SPARSITIES, Gemm
from gpusim.workloads.memory_bound import MEMORY_BOUND_OPS, Pointwise
from gpusim.workloads.vector import VECTOR_OPS

A100 = ImportOptions(gpu="a100-sxm4-80gb")
CONVERTS = "CUTLASS kernel that converts FP32 operands to"


def shape(row: MeasuredRow) -> tuple[str, int, int, int, int | None]:
    return row.op, row.batch, row.m, row.n, row.k


def types(row: MeasuredRow) -> tuple[str, str, str, str]:
    return row.dtype.value, row.accumulate, row.layout, row.sparsity


def skipped(found: Import) -> int:
    return sum(found.skipped.values())


def empty_report(folder: Path) -> Path:
    """An export of a run without kernels, made with --lazy=false: every table is there."""
    path = report(folder, ranges=False)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        database.commit()
    return path


# The schema is what comes out --------------------------------------------------------------------

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=20).map(str.strip)
POSITIVE = st.integers(min_value=1, max_value=10**9)


@st.composite
def measured_rows(draw: st.DrawFn) -> MeasuredRow:
    """Any row that the schema allows, with one extra column."""
    op = draw(st.sampled_from([op for op in MEASURED_OPS if op not in MEMORY_BOUND_OPS]))  # these have accesses
    known = draw(st.booleans())
    size = st.integers(1, 2**20) if op in VECTOR_OPS else POSITIVE  # of a tensor that 64 bits count
    return MeasuredRow(
        file="",
        line=0,
        gpu=draw(NAMES.filter(bool)),
        op=op,
        batch=draw(size),
        m=draw(size),
        n=draw(size),
        k=None if op in VECTOR_OPS else draw(POSITIVE),
        dtype=draw(st.sampled_from(Dtype)),
        accumulate=draw(st.sampled_from(("", *ACCUMULATORS))),
        layout=draw(st.sampled_from(("", *LAYOUTS))),
        sparsity=draw(st.sampled_from(SPARSITIES)) if op in GEMM_OPS else "dense",
        time_us=draw(st.floats(*TIMES_US)),
        method=draw(st.sampled_from(METHODS)),
        l2=draw(st.sampled_from(L2_STATES)),
        kernel=draw(NAMES),
        threads=draw(POSITIVE) if known else None,
        tile_m=draw(POSITIVE) if known else None,
        tile_n=draw(POSITIVE) if known else None,
        grid=(draw(POSITIVE), draw(POSITIVE), draw(POSITIVE)) if known else None,
        source=draw(NAMES),
        stated_load=draw(st.sampled_from(("", *CALLS_OF_LOAD, "26"))),
        output=draw(st.sampled_from(("", "fp16"))),
        cuda=CudaVersion(draw(st.integers(1, 99))) if known else None,
        timer_us=draw(st.floats(0, 10)) if known else None,
        repeat_p90=draw(st.floats(0, 1)) if known else None,
        padded_to=draw(POSITIVE) if known else None,
        stated_operands=draw(st.sampled_from(("", *OPERANDS))),
        extra={"note": draw(NAMES)},
    )


def content(row: MeasuredRow) -> dict[str, Any]:
    """A row without where it stands."""
    return {name: getattr(row, name) for name in MeasuredRow.__slots__ if name not in ("file", "line")}


@given(rows=st.lists(measured_rows(), min_size=1, max_size=5))
def test_what_is_written_is_read_back_equal(rows: list[MeasuredRow], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("law") / "measured.csv"
    write_measured(path, rows)
    assert [content(row) for row in read_measured(path)] == [content(row) for row in rows]
    assert [entry.name for entry in path.parent.iterdir()] == ["measured.csv"]


def test_a_line_break_in_a_name_does_not_break_the_line(tmp_path: Path) -> None:
    (row, *_) = import_file("neusight", SAMPLES / "neusight.csv", ImportOptions()).rows
    write_measured(tmp_path / "measured.csv", [replace(row, kernel="first\r\nsecond", extra={"note": "a\rb"})])
    (back,) = read_measured(tmp_path / "measured.csv")
    assert (back.kernel, back.extra) == ("first second", {"note": "a b"})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_rows_that_are_read_back_equal(kind: str, tmp_path: Path) -> None:
    path, options = sources(tmp_path)[kind]
    found = import_file(kind, path, options)
    write_measured(tmp_path / "measured.csv", found.rows)
    extra = {column: "" for row in found.rows for column in row.extra}
    expected = [content(row) | {"extra": extra | dict(row.extra)} for row in found.rows]
    assert [content(row) for row in read_measured(tmp_path / "measured.csv")] == expected
    assert not set(extra) & set(COLUMNS)


@pytest.mark.parametrize("kind", KINDS)
def test_options_replace_how_and_where_a_file_was_timed(kind: str, tmp_path: Path) -> None:
    path, options = sources(tmp_path)[kind]
    changed = {name: getattr(options, name) for name in ImportOptions.__slots__}
    changed |= {"gpu": "My-GPU", "method": "host", "l2": "warm", "source": "https://example.org/runs"}
    for row in import_file(kind, path, ImportOptions(**changed)).rows:
        assert (row.gpu, row.method, row.l2, row.source) == ("my-gpu", "host", "warm", "https://example.org/runs")


# CUTLASS -----------------------------------------------------------------------------------------


def test_cutlass_lines_keep_their_sizes_and_say_whether_c_lies_in_rows() -> None:
    found = import_file("cutlass", SAMPLES / "cutlass.gemm.csv", A100)
    columns, rows, tf32, sparse = found.rows
    assert [shape(row) for row in found.rows] == [
        ("gemm", 1, 1024, 512, 256),
        ("gemm", 4, 1024, 512, 256),
        ("gemm", 1, 1024, 512, 256),
        ("gemm", 1, 2048, 2048, 2048),
    ]
    assert [row.order for row in found.rows] == ["column", "row", "column", "row"]
    assert types(columns) == ("fp16", "fp32", "tn", "dense")
    # C = A B in rows is C' = B' A' in columns: B comes first, and a matrix in rows is one in columns, transposed.
    assert types(rows) == ("fp32", "fp32", "nn", "dense")
    assert types(tf32) == ("tf32", "fp32", "nt", "dense")
    assert types(sparse) == ("fp16", "fp32", "nt", "2:4")
    assert [(row.tile_m, row.tile_n) for row in (columns, rows)] == [(256, 128), (64, 128)]
    assert [row.threads for row in (columns, rows)] == [256, 128]
    assert [row.time_us for row in found.rows] == [12.5, 25.1, 20.0, 50.0]
    assert {(row.method, row.l2) for row in found.rows} == {("stream", "cold")}
    assert found.skipped == {
        "status error_internal": 1,
        "operands of two types": 1,
        "operation kind rank_k is neither a matrix multiplication nor a convolution of images": 1,
    }
    assert (found.used_us, found.total_us) == (107.6, 222.6)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("tf32_s1688gemm_tf32", "s1688tf32gemm", f"{CONVERTS} TF32 on the way, which is not modelled"),
        ("tf32_s1688gemm_tf32", "s1688f16gemm", f"{CONVERTS} FP16 on the way, which is not modelled"),
        ("tf32_s1688gemm_tf32", "s1688bf16gemm", f"{CONVERTS} BF16 on the way, which is not modelled"),
        ("tf32_s1688gemm_tf32", "s1688gemm", "FP32 operands multiplied in several products"),
        ("universal", "planar_complex", "complex numbers"),
    ],
)
def test_cutlass_lines_of_other_arithmetic_are_skipped(old: str, new: str, reason: str, tmp_path: Path) -> None:
    path = edited("cutlass.gemm.csv", old, new)(tmp_path)
    if "1688" in old:
        path.write_text(path.read_text(encoding="utf-8").replace(",tf32:", ",f32:"), encoding="utf-8")
    found = import_file("cutlass", path, A100)
    assert len(found.rows) == 3
    assert found.skipped[reason] == 1


def test_cutlass_names_sparsity_by_the_instruction_too(tmp_path: Path) -> None:
    found = import_file(
        "cutlass", edited("cutlass.gemm.csv", "heuristic,tensorop", "heuristic,sptensorop")(tmp_path), A100
    )
    assert [row.sparsity for row in found.rows] == ["2:4", "dense", "dense", "2:4"]


def test_hopper_kernels_read_fp32_as_tf32_themselves(tmp_path: Path) -> None:
    path = edited(
        *("cutlass.gemm.csv", "cutlass_tensorop_tf32_s1688gemm_tf32_256x128_16x3_nt_align4"),
        "cutlass3x_sm90_tensorop_s64x128x8tf32gemm_f32_f32_f32_f32_f32_64x128x32_1x1x1_0_nnn_align4",
    )(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace(",tf32:", ",f32:"), encoding="utf-8")
    assert import_file("cutlass", path, A100).rows[2].dtype is Dtype.TF32


def test_what_the_cutlass_profiler_prints_is_read_with_the_lines_of_the_file(tmp_path: Path) -> None:
    table = (SAMPLES / "cutlass.gemm.csv").read_text(encoding="utf-8")
    path = tmp_path / "stdout.log"
    path.write_text(
        f"=====\n  Problem ID: 1\n\n        Runtime: 0.0125  ms\n\nCSV Results:\n\n{table}", encoding="utf-8"
    )
    printed, written = (import_file("cutlass", one, A100) for one in (path, SAMPLES / "cutlass.gemm.csv"))
    assert [content(row) for row in printed.rows] == [content(row) for row in written.rows]
    assert [row.line for row in printed.rows] == [row.line + 7 for row in written.rows]
    assert printed.skipped == written.skipped


CONV2D = """Problem,Provider,OperationKind,Operation,Disposition,Status,conv_kind,n,h,w,c,k,r,s,p,q,g,pad_h,pad_w,\
stride_h,stride_w,dilation_h,dilation_w,Activation,Filter,Output,conv_mode,iterator_algorithm,op_class,accum,warps_m,warps_n,\
warps_k,Runtime
1,CUTLASS,conv2d,cutlass_tensorop_f16_s16816fprop_optimized_f16_256x128_32x3_nhwc,passed,success,fprop,8,56,56,64,128,\
3,3,28,28,1,1,1,2,2,1,1,f16:nhwc,f16:nhwc,f16:nhwc,cross,optimized,tensorop,f32,4,2,1,0.05
1,CUTLASS,conv2d,cutlass_tensorop_s1688tf32wgrad_optimized_256x128_16x3_nhwc,passed,success,wgrad,8,56,56,64,128,\
3,3,56,56,1,1,1,1,1,1,1,f32:nhwc,f32:nhwc,f32:nhwc,cross,optimized,tensorop,f32,4,2,1,0.2
1,CUTLASS,conv2d,cutlass_tensorop_f16_s16816dgrad_optimized_f16_256x128_32x3_nhwc,passed,success,dgrad,8,56,56,64,128,\
3,3,54,54,1,1,1,1,1,2,2,f16:nhwc,f16:nhwc,f16:nhwc,cross,optimized,tensorop,f32,4,2,1,0.25
"""


def test_cutlass_convolutions_are_rows_of_their_direction(tmp_path: Path) -> None:
    path = tmp_path / "runs.conv2d.csv"
    path.write_text(CONV2D.replace("\\\n", ""), encoding="utf-8")
    found = import_file("cutlass", path, A100)
    (row,) = found.rows
    assert (shape(row), types(row)[:3]) == (("conv_fwd", 8, 8 * 28 * 28, 128, 64 * 9), ("fp16", "fp32", "nhwc"))
    assert (row.time_us, row.threads, row.extra["stride_h"], row.extra["pad_w"]) == (50.0, 256, "2", "1")
    assert found.skipped == {f"{CONVERTS} TF32 on the way, which is not modelled": 1, "dilated convolution": 1}
    assert found.used_us / found.total_us == pytest.approx(0.1)


# Nsight Compute ----------------------------------------------------------------------------------


def test_nsight_compute_kernels_take_the_given_shape_and_a_reduction_joins_its_product() -> None:
    found = import_file("ncu", SAMPLES / "ncu.csv", ImportOptions(gpu="a100-pcie-40gb", m=1024, n=512, k=4096, batch=2))
    half, single = found.rows
    assert shape(half) == shape(single) == ("linear", 2, 1024, 512, 4096)
    assert types(half) == ("fp16", "fp32", "tn", "dense")
    assert types(single) == ("tf32", "fp32", "tn", "dense")
    assert (half.time_us, single.time_us) == (12.5, 1003.0)
    assert (half.grid, half.threads, half.tile_m, half.tile_n) == ((16, 8, 1), 128, 128, 64)
    assert half.extra == {
        "gpu__time_duration.sum": "12500",
        "dram__bytes_read.sum": "3145728",
        "lts__t_sector_hit_rate.pct": "61.25",
        "sm__cycles_elapsed.max": "13750",
    }
    assert found.skipped == {"kernel whose name is not that of a matrix multiplication": 1}


def test_nsight_compute_shapes_may_come_from_a_file(tmp_path: Path) -> None:
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("op,m,n,k,layout\ngemm,1024,512,64,nt\nlinear,2048,512,64,\n", encoding="utf-8")
    found = import_file("ncu", SAMPLES / "ncu.csv", ImportOptions(gpu="t4", shapes=shapes))
    assert [shape(row) for row in found.rows] == [("gemm", 1, 1024, 512, 64), ("linear", 1, 2048, 512, 64)]
    assert [row.layout for row in found.rows] == ["nt", "tn"]
    shapes.write_text("m,n,k\n8,8,8\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"shapes\.csv: 1 shapes for the 2 matrix multiplications of .*ncu\.csv"):
        import_file("ncu", SAMPLES / "ncu.csv", ImportOptions(gpu="t4", shapes=shapes))


OLD_NCU = """==PROF== Connected to process 77 (/home/user/product)
"ID" of the run: 1, 2
max error, 0
==PROF== Disconnected from process 77
"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","gpu__time_duration.sum",\
"launch__block_dim_x","launch__block_dim_y","launch__block_dim_z","launch__grid_dim_x","launch__grid_dim_y",\
"launch__grid_dim_z","lts__t_sector_hit_rate.pct"
"","","","","","","","","usecond","block","block","block","","","","%"
"0","77","product","127.0.0.1","ampere_dgemm_64x64_nn","2022-May-10 20:02:12","1","7","39.008000",\
"128.000000","2.000000","1.000000","1228","16","1","(!) n/a"
"""


def test_old_nsight_compute_listings_have_the_grid_in_metrics_and_may_follow_what_the_program_printed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OLD_NCU.replace("\\\n", ""), encoding="utf-8")
    (row,) = import_file("ncu", path, SHAPE).rows
    assert (row.time_us, row.grid, row.threads, row.line) == (39.008, (1228, 16, 1), 256, 7)
    assert row.extra["lts__t_sector_hit_rate.pct"] == ""
    path.write_text(OLD_NCU.replace("\\\n", "").replace("launch__", "sm__"), encoding="utf-8")
    (row,) = import_file("ncu", path, SHAPE).rows
    assert (row.grid, row.threads) == (None, None)


@pytest.mark.parametrize(
    ("unit", "text", "time_us"),
    [
        ("ns", "117.344", 117.344),  # a fraction of a nanosecond is not timed: the point separates thousands
        ("ns", "117,344", 117.344),
        ("ns", "1.117.344", 1117.344),
        ("us", "117,34", 117.34),
        ("us", "117.34", 117.34),
        ("us", "1.117,344", 1117.344),
        ("us", "1,117.344", 1117.344),
        ("us", "1\u202f117,34", 1117.34),
        ("ms", "0,117", 117.0),
        ("us", "117", 117.0),
    ],
)
def test_the_numbers_of_a_listing_show_their_locale(unit: str, text: str, time_us: float, tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(NCU_OF_ONE.format(unit=unit, time=text), encoding="utf-8")
    assert import_file("ncu", path, SHAPE).rows[0].time_us == pytest.approx(time_us)


@pytest.mark.parametrize(("decimal", "time_us"), [("point", 117.344), ("comma", 117344.0)])
def test_the_locale_is_decided_for_the_file_or_by_the_option(decimal: str, time_us: float, tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(NCU_OF_ONE.format(unit="us", time="117.344"), encoding="utf-8")
    assert import_file("ncu", path, replace(SHAPE, decimal=decimal)).rows[0].time_us == time_us
    other = '"1","ampere_sgemm_128x64_nn","65,77"\n' if decimal == "comma" else '"1","ampere_sgemm_128x64_nn","65.77"\n'
    path.write_text(NCU_OF_ONE.format(unit="us", time="117.344") + other, encoding="utf-8")
    assert import_file("ncu", path, SHAPE).rows[0].time_us == time_us


NCU_DETAILS = """"ID","Kernel Name","Block Size","Grid Size","CC","Section Name","Metric Name","Metric Unit",\
"Metric Value","Rule Name","Rule Description"
"0","ampere_sgemm_128x64_nn","(128, 1, 1)","(16, 8, 1)","8.6","SOL","Duration","us","1.117,34",
"0","ampere_sgemm_128x64_nn","(128, 1, 1)","(16, 8, 1)","8.6","SOL","","","","SOLBottleneck","bound by memory"
"0","ampere_sgemm_128x64_nn","(128, 1, 1)","(16, 8, 1)","8.6","Launch","Registers Per Thread","register/thread","122"
"1","volta_sgemm_32x32_tn","(64, 1, 1)","(4, 4, 1)","8.6","SOL","Duration","us","8,50"
"""


def test_the_page_of_details_has_a_line_per_metric(tmp_path: Path) -> None:
    path = tmp_path / "details.csv"
    path.write_text(NCU_DETAILS.replace("\\\n", ""), encoding="utf-8")
    long, short = import_file("ncu", path, SHAPE).rows
    assert (long.time_us, long.grid, long.threads, long.line) == (1117.34, (16, 8, 1), 128, 2)
    assert long.extra["launch__registers_per_thread"] == "122"
    assert (short.time_us, short.kernel) == (8.5, "volta_sgemm_32x32_tn")


def test_a_listing_may_be_utf_16_as_powershell_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text((SAMPLES / "ncu.csv").read_text(encoding="utf-8"), encoding="utf-16", newline="\r\n")
    assert len(import_file("ncu", path, SHAPE).rows) == 2


# Nsight Systems ----------------------------------------------------------------------------------


def test_nsight_systems_kernels_belong_to_the_innermost_range_with_shapes(tmp_path: Path) -> None:
    found = import_file("nsys", report(tmp_path, ranges=True), ImportOptions())
    linear, bmm = found.rows
    assert (shape(linear), types(linear)) == (("linear", 1, 32, 512, 1024), ("bf16", "fp32", "tn", "dense"))
    assert (shape(bmm), types(bmm)) == (("bmm", 6, 8, 16, 64), ("fp32", "fp32", "nn", "dense"))
    assert (linear.time_us, bmm.time_us) == (13.75, 30.0)
    assert (linear.gpu, linear.grid, linear.threads) == ("a100-pcie-40gb", (16, 4, 2), 128)
    assert found.skipped == {"kernel that no range with shapes launched": 1}


def test_nsight_systems_kernels_without_ranges_need_shapes(tmp_path: Path) -> None:
    path = report(tmp_path, ranges=False)
    with pytest.raises(SourceError, match=r"recorded without shapes; add -m, -n and -k, or --shapes"):
        import_file("nsys", path, ImportOptions())
    found = import_file("nsys", path, ImportOptions(m=32, n=512, k=1024))
    assert [row.time_us for row in found.rows] == [13.75, 30.0]


def test_nsight_systems_describes_a_gpu_without_a_spec(tmp_path: Path) -> None:
    path = report(tmp_path, ranges=True)
    with contextlib.closing(sqlite3.connect(path)) as database:
        for column, value in (("computeMajor", 8), ("computeMinor", 6), ("smCount", 46), ("totalMemory", 8 * 2**30)):
            database.execute(f"ALTER TABLE TARGET_INFO_GPU ADD COLUMN {column} INTEGER")
            database.execute(f"UPDATE TARGET_INFO_GPU SET name = 'NVIDIA RTX 3065', {column} = {value}")  # noqa: S608
        database.commit()
    (note,) = import_file("nsys", path, ImportOptions()).notes
    assert "rtx-3065: no spec describes this GPU (compute capability 8.6, 46 SMs, 8 GiB)" in note
    assert "nearest: RTX-3070; import with --gpu RTX-3070" in note


NSYS_TRACE = """Processing [report.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Bytes (MB),Device,Strm,Name
100,2656,1,,,,,,,4.0,NVIDIA A100-SXM4-80GB (0),7,[CUDA memcpy Host-to-Device]
300,117344,2,16,8,1,128,1,1,,NVIDIA A100-SXM4-80GB (0),7,ampere_sgemm_128x64_nn
"""
NSYS_SUMMARY = """"Time (%)","Total Time (ns)","Instances","Avg (ns)","Med (ns)","GridXYZ","BlockXYZ","Name"
90.0,1200000,10,120000.0,117344.0,"  16    8    1"," 128    1    1","ampere_sgemm_128x64_nn"
10.0,130000,10,13000.0,13000.0,"1 1 1","256 1 1","void at::native::vectorized_elementwise_kernel<4>"
"""


@pytest.mark.parametrize(("text", "share"), [(NSYS_TRACE, 117344 / 120000), (NSYS_SUMMARY, 117344 / 130344)])
def test_nsys_stats_writes_tables_of_kernels(text: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / "stats.csv"
    path.write_text(text, encoding="utf-8")
    found = import_file("nsys", path, ImportOptions(gpu="a100-sxm4-80gb", m=1024, n=1024, k=512))
    (row,) = found.rows
    assert (row.time_us, row.grid, row.threads) == (117.344, (16, 8, 1), 128)
    assert found.used_us / found.total_us == pytest.approx(share)


# PyTorch profiler --------------------------------------------------------------------------------


def test_kernels_of_a_trace_are_joined_to_the_operators_that_launched_them() -> None:
    found = import_file("kineto", SAMPLES / "trace.json", ImportOptions())
    linear, bmm, convolution, gelu = found.rows
    assert (shape(linear), types(linear)) == (("linear", 1, 64, 2048, 512), ("fp16", "fp32", "tn", "dense"))
    assert (linear.time_us, linear.tile_m, linear.grid) == (11.0, 128, (16, 1, 2))
    assert linear.kernel.startswith("ampere_fp16_s16816gemm")
    # Joined through the correlation of its launch; FP32 tensors through TF32 Tensor Cores; B lies in columns.
    assert (shape(bmm), types(bmm)) == (("bmm", 8, 64, 64, 64), ("tf32", "fp32", "tn", "dense"))
    assert (shape(convolution), convolution.layout) == (("conv_fwd", 2, 2 * 16 * 16, 64, 16 * 9), "nchw")
    assert (convolution.time_us, convolution.extra["stride_h"]) == (10.0, "2")
    assert (shape(gelu), gelu.dtype) == (("gelu", 1, 64, 2048, None), Dtype.BF16)
    assert {row.gpu for row in found.rows} == {"a100-sxm4-80gb"}
    assert found.skipped == {
        "operator aten::copy_ is outside the schema": 1,
        "kernel that no recorded operator launched (a CUDA graph?)": 1,
    }


def trace_of(folder: Path, *events: dict[str, Any], **document: Any) -> Path:
    """A trace of some calls and kernels."""
    path = folder / "made.json"
    path.write_text(json.dumps({**document, "traceEvents": list(events)}), encoding="utf-8")
    return path


def called(
    name: str, start: int, end: int, number: int, *dims: list[int], types: Sequence[str] = (), dim: str = ""
) -> dict[str, Any]:
    """A call of an operator with the sizes and types of its inputs, and the second one as text."""
    arguments = {"External id": number, "Input Dims": list(dims), "Input type": types or ["float" for _ in dims]}
    arguments |= {"Concrete Inputs": ["", dim]} if dim else {}
    return {"ph": "X", "cat": "cpu_op", "name": name, "tid": 1, "ts": start, "dur": end - start, "args": arguments}


def launched(start: int, correlation: int, time_us: float, **arguments: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A CUDA call and the kernel that it launched."""
    call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": start, "dur": 1}
    kernel = {"cat": "kernel", "name": "kernel", "tid": "stream 7", "ts": start, "dur": time_us}
    return (
        {"ph": "X", **call, "args": {"correlation": correlation}},
        {"ph": "X", **kernel, "args": {"correlation": correlation, **arguments}},
    )


def test_the_cuda_call_counts_where_an_external_id_is_the_number_of_another_operator(tmp_path: Path) -> None:
    # PyTorch 2.1 writes a kernel's correlation as its external id, which some other operator may have.
    calls = called("aten::tanh", 0, 10, 1, [64, 32]), called("aten::relu", 20, 30, 2, [128, 32])
    (row,) = import_file("kineto", trace_of(tmp_path, *calls, *launched(25, 1, 3.5, **{"External id": 1})), T4).rows
    assert shape(row) == ("relu", 1, 128, 32, None)


def test_a_copy_made_within_an_operator_is_not_part_of_it(tmp_path: Path) -> None:
    outer = called("aten::native_layer_norm", 0, 100, 1, [64, 32], [])
    copy = called("aten::contiguous", 10, 40, 2, [64, 32]), called("aten::copy_", 15, 35, 3, [64, 32], [64, 32])
    found = import_file("kineto", trace_of(tmp_path, outer, *copy, *launched(20, 1, 7.5), *launched(50, 2, 3.5)), T4)
    assert [(row.op, row.time_us, row.extra["kernels"]) for row in found.rows] == [("layernorm", 3.5, "1")]
    assert found.skipped == {"operator aten::copy_ is outside the schema": 1}


@pytest.mark.parametrize(
    ("name", "dims", "reason"),
    [
        ("aten::add_", ([64, 32], [64, 32], []), ""),
        ("aten::relu_", ([64, 32],), ""),
        ("aten::mul_", ([64, 32], []), "mul of a tensor and a number"),
        ("aten::add", ([64, 32], [31]), "add of tensors of different shapes"),
        ("aten::add", ([64, 32], [32]), ""),
        ("aten::add", ([], [], []), "operator on scalars alone"),
        ("aten::add", (), "operator without recorded shapes; profile with record_shapes=True"),
        (
            "aten::cudnn_convolution_backward_input",
            ([], [32, 64, 7, 7], [64, 32, 1, 1]),
            "backward convolution without Concrete Inputs: padding and stride unknown",
        ),
        ("triton_poi_fused_gelu_8", (), "operator triton_poi_fused_gelu_8 is outside the schema"),
    ],
)
def test_an_operator_that_writes_in_place_is_read_and_one_outside_the_schema_counted_by_name(
    tmp_path: Path, name: str, dims: tuple[list[int], ...], reason: str
) -> None:
    row = called("aten::relu", 200, 300, 9, [8, 8]), *launched(250, 9, 1.5)
    found = import_file("kineto", trace_of(tmp_path, called(name, 0, 100, 1, *dims), *launched(50, 1, 2.5), *row), T4)
    assert dict(found.skipped) == ({reason: 1} if reason else {})
    assert len(found.rows) == (1 if reason else 2)


@pytest.mark.parametrize(
    ("dims", "strides", "types", "reads", "writes"),
    [
        # A transposed operand beside a dense one: the result lies as the first one does.
        (
            ([16, 16, 559, 64], [16, 16, 559, 64]),
            ([572416, 64, 1024, 1], [572416, 35776, 64, 1]),
            ("c10::BFloat16", "c10::BFloat16"),
            "9158656 bf16, 9158656 bf16 run 64",
            "9158656 bf16",
        ),
        (([64, 32], [32]), ([32, 1], [1]), ("float", "float"), "2048 fp32, 2048 fp32 distinct 32", "2048 fp32"),
        (([64, 32], [64, 1]), ([32, 1], [1, 1]), ("float", "float"), "2048 fp32, 2048 fp32 distinct 64", "2048 fp32"),
        (([64, 32], [64, 32]), ([32, 1], [1, 64]), ("float", "float"), "2048 fp32, 2048 fp32 run 1", "2048 fp32"),
        (([64, 32], [64, 32]), ([32, 1], [32, 1]), ("c10::Half", "float"), "2048 fp16, 2048 fp32", "2048 fp32"),
        (([64, 32], [64, 32]), ([32, 1], [32, 1]), ("c10::Half", "c10::BFloat16"), "2048 fp16, 2048 bf16", "2048 fp32"),
    ],
)
def test_strided_broadcast_and_mixed_operands_are_imported_as_they_lie(
    tmp_path: Path, dims: Any, strides: Any, types: tuple[str, ...], reads: str, writes: str
) -> None:
    call = called("aten::add", 0, 100, 1, *dims)
    call["args"] |= {"Input Strides": list(strides), "Input type": list(types)}
    (row,) = import_file("kineto", trace_of(tmp_path, call, *launched(50, 1, 2.5)), T4).rows
    assert (row.op, row.extra["reads"], row.extra["writes"]) == ("pointwise", reads, writes)
    assert isinstance(row.operator, Pointwise)
    assert vector_kernel(load_spec("t4").system, row.operator).name.split("<")[0] in {
        "elementwise_kernel",
        "unrolled_elementwise_kernel",
    }


@pytest.mark.parametrize("name", SCHEMA_FUNCTIONS)
def test_every_elementwise_function_of_the_schema_is_read_in_place_and_not(name: str, tmp_path: Path) -> None:
    function = SCHEMA_FUNCTIONS[name]
    dims = ([64, 32],) * function.operands
    plain, in_place = (f"aten::{op}" for op in function.aten)
    calls = called(plain, 0, 50, 1, *dims), called(in_place, 100, 150, 2, *dims)
    found = import_file("kineto", trace_of(tmp_path, *calls, *launched(20, 1, 2.5), *launched(120, 2, 2.5)), T4)
    assert [shape(row) for row in found.rows] == 2 * [(name, 1, 64, 32, None)]


@pytest.mark.parametrize(
    ("name", "dims", "types", "dim", "expected"),
    [
        ("aten::add", ([64, 32], [64, 32]), ("long int", "long int"), "", "add of type long int, outside the schema"),
        ("aten::add", ([64, 32], [64, 32]), ("c10::Half", "float"), "", ("pointwise", 1, 2048, 1, None)),
        ("aten::_softmax", ([8, 64, 32],), (), "1", "softmax along another dimension than the last"),
        ("aten::_softmax", ([8, 64, 32],), (), "-1", ("softmax", 1, 512, 32, None)),
        ("aten::_softmax", ([8, 64, 32],), (), "2", ("softmax", 1, 512, 32, None)),
        ("aten::native_layer_norm", ([8, 64, 32], [], [32]), (), "", ("layernorm", 1, 512, 32, None)),
        ("aten::native_layer_norm", ([8, 64, 32], [], [64, 32]), (), "", ("layernorm", 1, 8, 2048, None)),
    ],
)
def test_rows_of_an_operator_are_those_it_works_on_and_types_outside_the_schema_are_counted(
    tmp_path: Path,
    name: str,
    dims: tuple[list[int], ...],
    types: tuple[str, ...],
    dim: str,
    expected: str | tuple[str, int, int, int, None],
) -> None:
    call = called(name, 0, 100, 1, *dims, types=types, dim=dim)
    other = called("aten::relu", 200, 300, 9, [8, 8]), *launched(250, 9, 1.5)
    found = import_file("kineto", trace_of(tmp_path, call, *launched(50, 1, 2.5), *other), T4)
    if isinstance(expected, str):
        assert found.skipped == {expected: 1}
    else:
        assert shape(found.rows[0]) == expected


@pytest.mark.parametrize(("time_us", "error_us"), [(3, 0.5), (3.25, None)])
def test_a_trace_says_its_cuda_and_whether_it_has_whole_microseconds(
    tmp_path: Path, time_us: float, error_us: float | None
) -> None:
    events = called("aten::relu", 0, 100, 1, [64, 32]), *launched(50, 1, time_us)
    (row,) = import_file("kineto", trace_of(tmp_path, *events, cuda_runtime_version=12040), T4).rows
    assert (row.cuda, row.timer_us) == (CudaVersion(12, 4), error_us)


# Whole traces as their projects published them: type, and rows by operator.
WHOLE_TRACES = {
    "h100_gaunernst_bert-small-uncased.json.gz": ("bf16", {"linear": 26, "layernorm": 10, "add": 10, "gelu": 5}),
    "resnet50_train_fp32_b32_V100-DGXS-32GB.pt.trace.json.gz": (
        "fp32",
        {"linear": 6, "bmm": 12, "add": 3090, "relu": 294},
    ),
    "sam_vit_bf16_A100-40GB.trace.json.gz": (
        "bf16",
        {"linear": 51, "bmm": 191, "conv_fwd": 3, "add": 19, "relu": 12, "layernorm": 9, "gelu": 2}
        | {"pointwise": 14},  # of broadcast, strided or converted operands
    ),
}


@pytest.mark.parametrize("name", WHOLE_TRACES)
def test_every_kernel_of_a_published_trace_is_in_a_row_or_counted(measured_folder: Path, name: str) -> None:
    path = measured_folder.parent / "traces" / "raw" / name
    if not path.is_file():
        pytest.skip("no published traces beside the measured tables")
    found = import_file("kineto", path, ImportOptions())
    dtype, ops = WHOLE_TRACES[name]
    assert Counter(row.op for row in found.rows) == ops
    assert {row.dtype.value for row in found.rows} == {dtype}
    kernels = sum(event.get("cat", "").lower() == "kernel" for event in load_trace(path)["traceEvents"])
    in_rows = sum(int(row.extra["kernels"]) for row in found.rows)
    assert in_rows + skipped(found) == kernels


def test_every_kernel_of_a_trace_is_in_a_row_or_counted() -> None:
    events = json.loads((SAMPLES / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    durations = [event["dur"] for event in events if event.get("cat") == "kernel"]
    found = import_file("kineto", SAMPLES / "trace.json", ImportOptions())
    assert sum(row.time_us for row in found.rows) == pytest.approx(sum(durations) - 1.25 - 20.0)
    assert skipped(found) == 2


def test_a_gpu_without_a_spec_is_described_with_the_nearest(command: RunGpusim, tmp_path: Path) -> None:
    trace = json.loads((SAMPLES / "trace.json").read_text(encoding="utf-8"))
    device = {"id": 0, "name": "NVIDIA A100-PG509-200", "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    trace["deviceProperties"] = [device | {"totalGlobalMem": 42505273344, "warpSize": 32}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    done = command("import", "kineto", path, "-o", "m.csv")
    assert "a100-pg509-200: no spec describes this GPU (compute capability 8.0, 108 SMs, 40 GiB)" in done.stderr
    assert "nearest: A100-PCIe-40GB or A100-SXM4-40GB; import with --gpu A100-PCIe-40GB" in done.stderr
    assert "no spec" not in command("import", "kineto", path, "-o", "m.csv", "--gpu", "A100-PCIe-40GB").stderr
    trace["deviceProperties"] = [{"id": 0, "name": "AMD Radeon Graphics", "computeMajor": 9, "warpSize": 64}]
    path.write_text(json.dumps(trace), encoding="utf-8")
    assert "not an NVIDIA GPU" in command("import", "kineto", path, "-o", "m.csv").stderr


def test_a_trace_may_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress((SAMPLES / "trace.json").read_bytes()))
    assert len(import_file("kineto", path, ImportOptions()).rows) == 4
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(SourceError, match=r"trace\.json\.gz: the gzip stream is broken"):
        import_file("kineto", path, ImportOptions())


def test_an_operator_of_no_length_is_counted(tmp_path: Path) -> None:
    path = edited("trace.json", '"dur": 3.25', '"dur": 0')(tmp_path)
    found = import_file("kineto", path, ImportOptions())
    assert found.skipped["operator of no length: the trace has whole microseconds"] == 1


@pytest.mark.parametrize(("kept", "missing"), [("cpu_op", "GPU kernels"), ("kernel", "operators")])
def test_a_trace_of_one_side_alone_is_refused_with_the_remedy(kept: str, missing: str, tmp_path: Path) -> None:
    trace = json.loads((SAMPLES / "trace.json").read_text(encoding="utf-8"))
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") == kept]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    with pytest.raises(
        SourceError, match=rf"no {missing} in the trace; profile with activities=\[ProfilerActivity\.CPU"
    ):
        import_file("kineto", path, ImportOptions())


def test_a_name_in_a_trace_may_hold_control_characters(tmp_path: Path) -> None:
    path = edited("trace.json", '"name": "python"', '"name": "S(1): \x01<module>\t"')(tmp_path)
    assert len(import_file("kineto", path, ImportOptions()).rows) == 4


def convolution(folder: Path, *, transposed: str, strides: Sequence[int]) -> Import:
    """A convolution with a bias, as PyTorch calls it on a GPU: a kernel of cuDNN, then one that adds the bias."""
    arguments = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", transposed, "[0, 0]", "1"]
    inner = "aten::cudnn_convolution" + ("_transpose" if transposed == "True" else "")
    calls = (
        ("aten::convolution", 0, 90, arguments),
        ("aten::_convolution", 5, 80, [*arguments, "False", "False", "True", "True"]),
        (inner, 10, 20, ["", "", *("[1, 1]",) * 3, "1", "True", "False", "True"]),
        ("aten::add_", 40, 20, ["", "", "1"]),
    )
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length}
        | {"args": {"External id": number, "Concrete Inputs": concrete, "Input type": ["c10::Half", "c10::Half"]}}
        for number, (name, start, length, concrete) in enumerate(calls, 1)
    ]
    for event in events:
        event["args"] |= {"Input Dims": [[2, 8, 6, 6], [8, 8, 3, 3]], "Input Strides": [strides, [72, 9, 3, 1]]}
    for number, length in ((3, 7.5), (4, 2.5)):
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel{number}", "ts": 100 * number, "dur": length}
        events.append(kernel | {"args": {"External id": number}})
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return import_file("kineto", path, T4)


def test_the_bias_of_a_convolution_is_not_a_convolution(tmp_path: Path) -> None:
    found = convolution(tmp_path, transposed="False", strides=(288, 36, 6, 1))
    assert [(shape(row), row.time_us, row.layout) for row in found.rows] == [(("conv_fwd", 2, 72, 8, 72), 7.5, "nchw")]
    assert found.skipped == {"add of tensors of different shapes": 1}


def test_images_may_lie_with_their_channels_last(tmp_path: Path) -> None:
    (row,) = convolution(tmp_path, transposed="False", strides=(288, 1, 48, 8)).rows
    assert row.layout == "nhwc"


def test_a_transposed_convolution_is_not_a_forward_one(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no operator to import: 1 x transposed convolution, 1 x add of"):
        convolution(tmp_path, transposed="True", strides=(288, 36, 6, 1))


def test_a_trace_without_shapes_is_refused_with_the_remedy(tmp_path: Path) -> None:
    trace = json.loads((SAMPLES / "trace.json").read_text(encoding="utf-8"))
    for event in trace["traceEvents"]:
        event["args"].pop("Input Dims", None)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    with pytest.raises(SourceError, match=r"no operator to import: 6 x .*profile with record_shapes=True"):
        import_file("kineto", path, ImportOptions())


# Tables that others published --------------------------------------------------------------------


def test_neusights_n_is_the_length_of_the_sums_and_its_milliseconds_become_microseconds() -> None:
    found = import_file("neusight", SAMPLES / "neusight.csv", ImportOptions())
    linear, bmm, layernorm, convolution = found.rows
    assert (shape(linear), types(linear)) == (("linear", 1, 100, 1000, 4096), ("fp32", "fp32", "tn", "dense"))
    assert (linear.gpu, linear.time_us, linear.tile_m, linear.tile_n) == ("v100-pcie-32gb", 512.5, 128, 32)
    assert (shape(bmm), bmm.layout, bmm.grid) == (("bmm", 16, 128, 96, 64), "nn", (2, 4, 16))
    assert (shape(layernorm), layernorm.gpu, layernorm.threads) == (("layernorm", 1, 2048, 1024, None), "t4", 128)
    assert shape(convolution) == ("conv_fwd", 4, 4 * 56 * 56, 64, 32 * 9)
    assert {(row.method, row.l2, row.source) for row in found.rows} == {("event", "warm", "neusight")}
    assert found.skipped == {"operator addu is outside the schema": 1}


def test_a_table_of_launches_gives_the_kernels_that_multiply_with_their_reductions() -> None:
    found = import_file("traces", SAMPLES / "launches.csv", ImportOptions())
    split, batched = found.rows
    assert (shape(split), types(split)) == (("linear", 1, 512, 1024, 768), ("bf16", "fp32", "tn", "dense"))
    assert (split.gpu, split.time_us, split.timer_us, split.grid) == ("a100-sxm4-80gb", 25.0, 0.5, (8, 8, 3))
    assert (shape(batched), types(batched)) == (("bmm", 16, 128, 96, 64), ("tf32", "fp32", "nn", "dense"))
    assert (batched.cuda, batched.timer_us) == (CudaVersion(12, 1), None)
    assert (batched.threads, batched.source) == (128, "inference")
    assert found.skipped == {
        "kernel whose name is not that of a matrix multiplication": 1,
        "launch that others disturbed: median 1.5 times the shortest, or more": 1,
        "kernel of a convolution whose other kernels are not listed": 1,
    }


def test_a_launch_whose_tiles_do_not_cover_its_product_makes_no_row(tmp_path: Path) -> None:
    # As in a trace whose operator has the shape of another call (pytorch-labs/segment-anything-fast)
    table = edited("launches.csv", "8x8x3", "8x7x1")(tmp_path)
    found = import_file("traces", table, ImportOptions())
    assert [row.op for row in found.rows] == ["bmm"]
    assert found.skipped["launch whose tiles do not cover the GEMM: of another operator, or of a part of it"] == 1


def test_the_kernels_of_a_call_make_one_convolution(tmp_path: Path) -> None:
    columns = "board,source,op,cn,cc,ch,cw,ck,cr,cs,stride,pad,dilation,groups,dtype,kernel,time_us,time_min_us"
    names = [*columns.split(","), "batch", "m", "n", "k", "grid", "op_kernel_idx", "op_n_kernels"]
    size = {"cn": "32", "cc": "64", "ch": "56", "cw": "56", "ck": "128", "cr": "3", "cs": "3", "groups": "1"}
    call = {**size, "board": "a100-sxm4-40gb", "source": "training", "stride": "2x2", "pad": "1x1", "dilation": "1x1"}
    call |= {"dtype": "f32", "op": "cudnn_convolution/fprop", "grid": "1x1x1", "op_n_kernels": "2"}
    turn, product = "cudnn::ops::nchwToNhwcKernel<float>", "sm80_xmma_fprop_implicit_gemm_tf32f32_nhwckrsc_nhwc"
    gradient = {"op": "cudnn_convolution_backward_weight/wgrad", "op_n_kernels": "1"}
    lines = [
        call | {"kernel": turn, "time_us": "30.5", "op_kernel_idx": "0"},
        call | {"kernel": product, "time_us": "20.25", "op_kernel_idx": "1"},
        call | {"kernel": product, "time_us": "20.25", "op_kernel_idx": "1"},  # the transpose is missing
        call | gradient | {"kernel": product, "time_us": "9.5", "time_min_us": "9.4", "op_kernel_idx": "0"},
        call | gradient | {"kernel": product, "time_us": "9.5", "time_min_us": "4.5", "op_kernel_idx": "0"},
        call | gradient | {"kernel": product, "time_us": "9.5", "dilation": "2x2", "op_kernel_idx": "0"},
        call | gradient | {"kernel": product, "time_us": "9.5", "stride": "", "op_kernel_idx": "0"},
        call | {"op": "convolution_backward/bwd:?", "kernel": product, "time_us": "9.5"},
    ]
    table = tmp_path / "launches.csv"
    rows = [",".join(line.get(name, "") for name in names) for line in lines]
    table.write_text("\n".join([",".join(names), *rows]) + "\n", encoding="utf-8")
    found = import_file("traces", table, ImportOptions())
    forward, weights = found.rows
    assert shape(forward) == ("conv_fwd", 32, 32 * 28 * 28, 128, 64 * 9)
    assert (forward.time_us, forward.kernel, forward.dtype, forward.layout) == (50.75, product, Dtype.TF32, "nchw")
    assert (weights.op, weights.time_us, weights.layout) == ("conv_bwd_weights", 9.5, "nhwc")
    assert sorted(found.skipped.values()) == [1, 1, 1, 2]


@pytest.mark.parametrize(
    ("kernels", "of_images"),
    [
        (["volta_sgemm_64x64_nt", "volta_sgemm_64x64_tn", "cudnn::cnn::reduce_wgrad_nchw_helper<float>"], 1),
        (["winogradForwardData4x4", "volta_sgemm_64x64_nt", "winogradWgradData4x4", "volta_sgemm_64x64_nt"], 2),
        (["scalePackedTensor_kernel", "dgrad_engine<float>", "wgrad_alg0_engine<float>"], 2),
        (["volta_sgemm_64x64_nt", "nchwToNhwcKernel", "nchwToNhwcKernel", "sm80_xmma_wgrad_implicit_gemm"], 1),
    ],
)
def test_a_call_for_both_gradients_makes_a_row_of_each(tmp_path: Path, kernels: list[str], of_images: int) -> None:
    found = import_file("traces", call_for_both_gradients(tmp_path, kernels), ImportOptions())
    times_us = [10.0**place for place in range(len(kernels))]
    images, filters = found.rows
    assert (images.op, images.time_us) == ("conv_bwd_inputs", sum(times_us[:of_images]))
    assert (filters.op, filters.time_us) == ("conv_bwd_weights", sum(times_us[of_images:]))


def test_a_call_whose_kernels_do_not_tell_the_gradients_apart_makes_no_row(tmp_path: Path) -> None:
    table = call_for_both_gradients(tmp_path, ["volta_sgemm_64x64_nt", "volta_sgemm_64x64_tn"])
    with pytest.raises(ValueError, match="do not tell them apart"):
        import_file("traces", table, ImportOptions())


def call_for_both_gradients(folder: Path, kernels: list[str]) -> Path:
    """A table of one call's launches, of 1, 10, 100 us and so on."""
    size = {"cn": "8", "cc": "64", "ch": "28", "cw": "28", "ck": "64", "cr": "3", "cs": "3", "groups": "1"}
    call = {**size, "stride": "1x1", "pad": "1x1", "dilation": "1x1", "dtype": "f32", "board": "v100-sxm2-32gb"}
    call |= {"op": "convolution_backward/bwd:?", "grid": "1x1x1", "op_n_kernels": str(len(kernels))}
    lines = [
        call | {"kernel": name, "op_kernel_idx": str(place), "time_us": str(10**place)}
        for place, name in enumerate(kernels)
    ]
    names = [*lines[0], "batch", "m", "n", "k"]
    table = folder / "launches.csv"
    rows = [",".join(line.get(name, "") for name in names) for line in lines]
    table.write_text("\n".join([",".join(names), *rows]) + "\n", encoding="utf-8")
    return table


def test_layers_take_their_shapes_from_the_model_split_over_the_gpus() -> None:
    options = ImportOptions(gpu="RTX-3090", dtype=Dtype.FP16, model_config=SAMPLES / "config.json")
    found = import_file("llmservingsim", SAMPLES / "layers.csv", options)
    assert {row.extra["layer"]: shape(row)[2:] for row in found.rows} == {
        "q_proj": (7, 512, 1024),
        "k_proj": (7, 128, 1024),
        "o_proj": (7, 1024, 512),
        "down_proj": (7, 1024, 1408),
        "lm_head": (7, 16000, 1024),
    }
    assert [row.time_us for row in found.rows] == [49.731, 20.125, 47.311, 151.002, 1238.54]
    assert {(row.gpu, row.method, row.l2, row.layout) for row in found.rows} == {("rtx-3090", "profiler", "cold", "tn")}
    assert skipped(found) == 2


def test_layers_need_the_model_and_the_data_type() -> None:
    layers, config = SAMPLES / "layers.csv", SAMPLES / "config.json"
    with pytest.raises(SourceError, match=r"layers\.csv: layers are named without shapes; add --model-config"):
        import_file("llmservingsim", layers, ImportOptions(gpu="rtx-3090"))
    with pytest.raises(SourceError, match=r"layers\.csv:3: the file does not name the data type; add --dtype"):
        import_file("llmservingsim", layers, ImportOptions(gpu="rtx-3090", model_config=config))


def test_aiconfigurator_tables_are_read_from_parquet_and_from_text(tmp_path: Path) -> None:
    found = import_file("aiconfigurator", table(tmp_path), ImportOptions())
    plain, quantised = found.rows
    assert (shape(plain), types(plain)) == (("linear", 1, 1, 4096, 1024), ("bf16", "fp32", "tn", "dense"))
    assert (plain.gpu, plain.time_us, plain.source) == ("h200-sxm-141gb", 12.3456, "aiconfigurator-vllm-0.24.0")
    assert (quantised.dtype, quantised.extra["gemm_dtype"]) == (Dtype.FP8, "fp8")
    assert found.skipped == {"type nvfp4 is outside the schema": 1}
    text = import_file("aiconfigurator", SAMPLES / "gemm_perf.txt", ImportOptions())
    assert [types(row)[:2] for row in text.rows] == [("bf16", "fp32"), ("int8", "int32")]
    assert {(row.gpu, row.l2) for row in text.rows} == {("a100-sxm4-80gb", "cold")}
    # six linears in a graph, replayed nine times; one layer in an engine, by a timer that ticks every 1.024 us
    assert [(row.method, row.load, row.output) for row in text.rows] == [("graph", "54", ""), ("layer", "1", "fp16")]
    assert [row.timer_us for row in text.rows] == [None, pytest.approx(0.3413, rel=1e-3)]
    assert text.rows[1].source == "aiconfigurator-trtllm-1.2.0-sq"


def test_deepbench_sheets_name_their_types_and_units(tmp_path: Path) -> None:
    mixed = [
        ("GEMM", None, None, None, None, None, None),
        GEMM_HEADING,
        (1760, 128, 1760, "N", "N", 12, None),
        (35, 700, 2048.0, "T", "N", 8, None),
        (),
        ("Recurrent layers",),
        ("Hidden units", "Batch", "Steps", "Time (usec)"),
        (1760, 16, 50, 400),
    ]
    single = [
        ("M", "N", "K", "a_t", "b_t", "Results"),
        (None, None, None, None, None, "(msec)"),
        (1760, 128, 1760, 0, 1, 0.125),
        (1760, 7133, 1760, False, True, "Not Supported"),
        ("Average", None, None, None, None, 0.125),
    ]
    path = workbook(tmp_path, {"Results - FP16 ip, Mixed math": mixed, "Results - FP32": single})
    found = import_file("deepbench", path, ImportOptions(gpu="v100-sxm2-16gb"))
    assert [shape(row) for row in found.rows] == [
        ("gemm", 1, 1760, 128, 1760),
        ("gemm", 1, 35, 700, 2048),
        ("gemm", 1, 1760, 128, 1760),
    ]
    assert {row.order for row in found.rows} == {"column"}
    assert [types(row)[:3] for row in found.rows] == [
        ("fp16", "fp32", "nn"),
        ("fp16", "fp32", "tn"),
        ("fp32", "fp32", "nt"),
    ]
    assert [row.time_us for row in found.rows] == [12.0, 8.0, 125.0]
    assert {(row.method, row.l2, row.source) for row in found.rows} == {("stream", "warm", "deepbench")}
    assert {(row.load, row.cuda, row.timer_us) for row in found.rows} == {("400", CudaVersion(10), 0.5)}
    assert [row.padded_to for row in found.rows] == [8, 8, None]
    ran = found.rows[1].operator
    assert isinstance(ran, Gemm)
    assert (found.rows[1].m, ran.m) == (35, 40)
    assert skipped(found) == 3


def test_a_heading_over_several_columns_holds_for_each(tmp_path: Path) -> None:
    path = workbook(
        tmp_path,
        {
            "GEMM Results": [
                ("GEMM Results", None, None, None, None, None),
                ("Size", None, None, "Time (usec)", None, "Remarks"),
                ("M", "N", "K", "FP32", "FP16", "By"),
                (512, 512, 512, 30, 10, None),
            ]
        },
    )
    book = openpyxl.load_workbook(path)
    for merged in ("A1:F1", "A2:C2", "D2:E2"):
        book.worksheets[0].merge_cells(merged)
    book.save(path)
    found = import_file("deepbench", path, ImportOptions(gpu="t4", layout="nn"))
    assert [(row.dtype, row.time_us, row.layout) for row in found.rows] == [
        (Dtype.FP32, 30.0, "nn"),
        (Dtype.FP16, 10.0, "nn"),
    ]


def test_deepbench_convolutions_give_a_row_for_each_direction(tmp_path: Path) -> None:
    row = (700, 161, 1, 4, 32, 20, 5, 0, 0, 2, 2, 100, 200, 300, 600, "IMPLICIT_GEMM")
    found = import_file(
        "deepbench", workbook(tmp_path, {"Results": [CONV_HEADING, row]}), ImportOptions(gpu="t4", dtype=Dtype.FP32)
    )
    assert [(row.op, row.time_us) for row in found.rows] == [
        ("conv_fwd", 100.0),
        ("conv_bwd_inputs", 200.0),
        ("conv_bwd_weights", 300.0),
    ]
    for row_of in found.rows:
        assert shape(row_of)[1:] == (4, 4 * 79 * 341, 32, 100)
        assert (row_of.layout, row_of.extra["algo"], row_of.extra["filter_w"]) == ("nchw", "IMPLICIT_GEMM", "20")


def test_a_unit_that_contradicts_the_rate_beside_it_is_refused(tmp_path: Path) -> None:
    heading = ("M", "N", "K", "Time (msec)", "TERAFLOPS")
    path = workbook(tmp_path, {"Results - FP32": [heading, (1024, 1024, 1024, 200, 10.7)]})
    with pytest.raises(MeasuredError, match=r"row 2: Time \(msec\) \(column D\): 200000 us contradicts 10\.7"):
        import_file("deepbench", path, ImportOptions(gpu="t4"))


# Malformed files ---------------------------------------------------------------------------------


def edited(name: str, old: str, new: str) -> Callable[[Path], Path]:
    """A sample with one text replaced."""

    def write(folder: Path) -> Path:
        text = (SAMPLES / name).read_text(encoding="utf-8")
        assert old in text
        path = folder / name
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        return path

    return write


def bytes_of(name: str, data: bytes) -> Callable[[Path], Path]:
    """A file of these bytes."""

    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


NCU_OF_ONE = """\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\"
\"\",\"\",\"{unit}\"
\"0\",\"ampere_sgemm_128x64_nn\",\"{time}\"
"""
T4 = ImportOptions(gpu="t4")
SHAPE = ImportOptions(gpu="t4", m=8, n=8, k=8)
MALFORMED: dict[str, tuple[str, Callable[[Path], Path], ImportOptions, str]] = {
    "a size that is not a number": (
        "cutlass",
        edited("cutlass.gemm.csv", "1024,512,256", "1024,many,256"),
        T4,
        ":2: n: ",
    ),
    "a time that is none": (
        "cutlass",
        edited("cutlass.gemm.csv", "0.0125", "fast"),
        T4,
        ":2: Runtime: expected a time",
    ),
    "a negative time": ("cutlass", edited("cutlass.gemm.csv", "0.0251", "-1"), T4, ":3: Runtime: expected a positive"),
    "a missing column": ("cutlass", edited("cutlass.gemm.csv", "Runtime", "Run"), T4, ":1: Runtime: no such column"),
    "a line cut short": ("cutlass", edited("cutlass.gemm.csv", ",146,0.0125,136.7,21516.8", ""), T4, ":2: 39 columns"),
    "an empty file": ("cutlass", bytes_of("runs.csv", b""), T4, ":1: empty file; expected a header"),
    "a page without values": (
        "ncu",
        edited("ncu.csv", '"CC"', '"Metric Name"'),
        SHAPE,
        ":4: Metric Unit: no such column",
    ),
    "a locale that nothing shows": (
        "ncu",
        bytes_of("ncu.csv", NCU_OF_ONE.format(unit="us", time="117.344").encode()),
        *(SHAPE, ":3: gpu__time_duration.sum: '117.344' may be 117.344 or 117344, and no other number of the file"),
    ),
    "what ncu prints": (
        *("ncu", bytes_of("ncu.txt", b"==PROF== Connected\n  k (8, 1, 1)\n    Section: GPU Speed Of Light\n"), SHAPE),
        ":1: what ncu prints in a terminal, which is no table; add --csv",
    ),
    "what the CUTLASS profiler prints": (
        *("cutlass", bytes_of("stdout.log", b"=====\n  Problem ID: 1\n\n  Runtime: 1.5  ms\n"), T4),
        ":2: what cutlass_profiler prints in a terminal, which is no table; add --output=runs.csv",
    ),
    "what nsys prints": (
        *(
            "nsys",
            bytes_of("stats.txt", b"\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Name\n"),
            T4,
        ),
        ":2: what nsys prints in a terminal, which is no table; use nsys export",
    ),
    "what PyTorch prints": (
        *("kineto", bytes_of("table.txt", b"-----\n  Name   Self CPU %   Self CUDA %\n"), T4),
        ":2: what PyTorch's key_averages().table() prints in a terminal, which is no table; call prof.export",
    ),
    "a file of another kind": (
        *("ncu", edited("cutlass.gemm.csv", "Problem,", "Problem,"), SHAPE),
        ":1: a file of kind cutlass; import it as cutlass",
    ),
    "a column that the table lacks": (
        *("csv", edited("table.csv", "Latency (ms)", "Latency (s)"), OF_TABLE),
        ":2: time_us: 'Latency(ms)' is not understood",
    ),
    "a table that does not say how it was timed": (
        *("csv", edited("table.csv", "depth", "depth"), ImportOptions(gpu="t4", columns=OF_TABLE.columns)),
        ":1: nothing states dtype, method, l2; add --map dtype=COLUMN",
    ),
    "a size that is a fraction": (
        *("csv", edited("table.csv", "1024,512", "1024.5,512"), OF_TABLE),
        ":2: m: expected a positive integer, got '1024.5'",
    ),
    "an unknown unit": (
        "ncu",
        edited("ncu.csv", '"us"', '"jiffies"'),
        SHAPE,
        ":6: gpu__time_duration.sum: unknown unit",
    ),
    "what ncu could not do": (
        "ncu",
        bytes_of("ncu.csv", b"==PROF== Connected\n==WARNING== No kernels were profiled.\n==ERROR== ERR_NVGPUCTRPERM\n"),
        *(SHAPE, ":3: no kernel is listed; ncu reports: ERR_NVGPUCTRPERM; profile again"),
    ),
    "no line of units": ("ncu", edited("ncu.csv", '"","","","",""', '"","","","","k"'), SHAPE, ":5: "),
    "a comma for a point": ("ncu", edited("ncu.csv", '"12.50"', '"12,50"'), SHAPE, ":6: gpu__time_duration.sum: exp"),
    "a grid that is none": ("ncu", edited("ncu.csv", "(16, 8, 1)", "16"), SHAPE, ":6: Grid Size: expected (x, y, z)"),
    "a latency that is none": ("neusight", edited("neusight.csv", "1.0241", ""), T4, ":3: Latency: expected a time"),
    "a table of another kind": ("neusight", edited("neusight.csv", "OPName", "Op"), T4, ":1: OPName: no such column"),
    "a vector without its length": (
        "neusight",
        edited("neusight.csv", "1024,,,,,,\naddu", ",,,,,,\naddu"),
        T4,
        ":4: H: ",
    ),
    "a grid of two numbers": ("traces", edited("launches.csv", "8x8x3", "8x8"), T4, ":2: grid: expected XxYxZ"),
    "a trace cut short": ("kineto", edited("trace.json", '"traceName": "trace.json"\n}', ""), T4, ":26: column 1: "),
    "a trace without events": ("kineto", edited("trace.json", "traceEvents", "events"), T4, ":1: no list traceEvents"),
    "an event without a time": ("kineto", edited("trace.json", '"ts": 1010.000,', ""), T4, ": traceEvents[1].ts: exp"),
    "a kernel without a length": (
        "kineto",
        edited("trace.json", '"dur": 9.568', '"dur": "?"'),
        T4,
        ": traceEvents[3].dur: ",
    ),
    "no Parquet": ("aiconfigurator", bytes_of("t.parquet", b"PAR1 and no more"), T4, ": not a complete Parquet file: "),
    "a Git LFS pointer": (
        *("aiconfigurator", bytes_of("t.parquet", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), T4),
        ":1: a Git LFS pointer, not the table; fetch it with git lfs pull",
    ),
    "a Parquet column missing": (
        "aiconfigurator",
        lambda folder: table(folder, k=[]),
        T4,
        ": schema: k: no such column",
    ),
    "a Parquet value missing": (
        *("aiconfigurator", lambda folder: table(folder, latency=[0.01, None, 0.02]), T4),
        ": row 2: latency: expected a time, got ''",
    ),
    "no workbook": ("deepbench", bytes_of("d.xlsx", b"PK and no more"), T4, ": not a complete .xlsx workbook: "),
    "a cell that is not a size": (
        *("deepbench", lambda folder: workbook(folder, {"FP32": [GEMM_HEADING, (8, "x", 8, "N", "N", 5, 1)]}), T4),
        ": sheet 'FP32', row 2: N (column B): expected a positive integer, got 'x'",
    ),
    "a cell that is not a letter": (
        *("deepbench", lambda folder: workbook(folder, {"FP32": [GEMM_HEADING, (8, 8, 8, "Q", "N", 5, None)]}), T4),
        ": sheet 'FP32', row 2: A Transpose (column D): expected t or n, got 'q'",
    ),
    "a heading without a unit": (
        *("deepbench", lambda folder: workbook(folder, {"FP32": [("M", "N", "K", "Time"), (8, 8, 8, 5)]}), T4),
        ": sheet 'FP32', row 2: Time (column D): the heading names no unit; add --time-unit",
    ),
    "a sheet without a type": (
        *("deepbench", lambda folder: workbook(folder, {"Results": [("M", "N", "K", "Time (ms)"), (8, 8, 8, 5)]}), T4),
        ": sheet 'Results', row 2: the file does not name the data type; add --dtype",
    ),
    "no database": ("nsys", bytes_of("r.nsys-rep", b"QDSS" * 400), T4, ": file is not a database; export the report"),
    "a database without kernels": ("nsys", bytes_of("r.sqlite", b""), T4, ": StringIds: no such table; profile with"),
    "a table without kernels": ("nsys", empty_report, T4, ": CUPTI_ACTIVITY_KIND_KERNEL: no kernels; profile with"),
    "a kernel table of another make": (
        *("nsys", lambda folder: report(folder, ranges=False, kernel_columns="start, end"), T4),
        ": CUPTI_ACTIVITY_KIND_KERNEL.deviceId: no such column; export with a newer nsys",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_refused_with_its_place_and_the_remedy(case: str, tmp_path: Path) -> None:
    kind, write, options, problem = MALFORMED[case]
    path = write(tmp_path)
    with pytest.raises(MeasuredError) as error:
        import_file(kind, path, options)
    assert str(error.value).startswith(f"{path}{problem}")
    assert "; " in str(error.value)
    assert "\n" not in str(error.value)


TEXTS = {
    "cutlass": ("cutlass.gemm.csv", T4),
    "ncu": ("ncu.csv", SHAPE),
    "neusight": ("neusight.csv", T4),
    "llmservingsim": ("layers.csv", ImportOptions(gpu="t4", dtype=Dtype.FP16, model_config=SAMPLES / "config.json")),
    "aiconfigurator": ("gemm_perf.txt", T4),
    "kineto": ("trace.json", T4),
    "traces": ("launches.csv", T4),
}


@given(kind=st.sampled_from(sorted(TEXTS)), data=st.data())
def test_a_file_cut_anywhere_is_read_or_refused(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name, options = TEXTS[kind]
    whole = (SAMPLES / name).read_bytes()
    path = tmp_path_factory.mktemp("cut") / name
    path.write_bytes(whole[: data.draw(st.integers(min_value=0, max_value=len(whole) - 1))])
    with contextlib.suppress(MeasuredError):
        assert import_file(kind, path, options).rows


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats()
    | st.sampled_from(["", "aten::mm", "float", "[1]"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "name", "ts"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(data=st.data(), value=ANYTHING)
def test_a_trace_with_anything_anywhere_is_read_or_refused(
    data: st.DataObject, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = json.loads((SAMPLES / "trace.json").read_text(encoding="utf-8"))
    event = data.draw(st.sampled_from(trace["traceEvents"]))
    place: Any = data.draw(st.sampled_from((trace, event, event["args"])))
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    path = tmp_path_factory.mktemp("any") / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    try:
        rows = import_file("kineto", path, T4).rows
    except MeasuredError:
        return
    write_measured(path.parent / "measured.csv", rows)
    assert len(read_measured(path.parent / "measured.csv")) == len(rows)


@pytest.mark.parametrize(
    "case", ["a time that is none", "no workbook", "no Parquet", "no database", "a trace cut short"]
)
def test_nothing_is_written_of_a_malformed_file(case: str, command: RunGpusim, tmp_path: Path) -> None:
    kind, write, _, problem = MALFORMED[case]
    folder = tmp_path / "source"
    folder.mkdir()
    path = write(folder)
    assert f"{path}{problem}" in refused(command("import", kind, path, "-o", tmp_path / "measured.csv", "--gpu", "t4"))
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_not_there_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.csv: cannot be read: "):
        import_file(kind, tmp_path / "none.csv", ImportOptions(gpu="t4"))


@pytest.mark.parametrize(
    ("kind", "package", "extra"), [("aiconfigurator", "pyarrow", "parquet"), ("deepbench", "openpyxl", "xlsx")]
)
def test_a_missing_reader_is_named_with_its_extra(
    kind: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = sources(tmp_path)[kind]
    for module in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SourceError, match=rf"need {package}; pip install 'gpusim\[{extra}\]'"):
        import_file(kind, path, ImportOptions(gpu="t4"))


# What a file expands to --------------------------------------------------------------------------


def test_a_cell_in_the_last_corner_of_a_sheet_costs_nothing(tmp_path: Path) -> None:
    path = workbook(tmp_path, {"FP32": [GEMM_HEADING, (1024, 64, 512, "N", "T", 40, 1.678)]})
    book = openpyxl.load_workbook(path)
    book["FP32"]["XFD1048576"] = 1
    book["FP32"].merge_cells("A5:XFC5")
    book.save(path)
    found = import_file("deepbench", path, ImportOptions(gpu="t4"))
    assert [shape(row) for row in found.rows] == [("gemm", 1, 1024, 64, 512)]


def test_a_workbook_that_expands_beyond_what_is_read_is_refused(tmp_path: Path) -> None:
    path = workbook(tmp_path, {"FP32": [GEMM_HEADING]})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/bomb", bytes(17 * MIB))
    assert path.stat().st_size < MIB / 10
    with pytest.raises(SourceError, match=r"DeepBench\.xlsx: expands to more than 16 MiB, the most that is read"):
        import_file("deepbench", path, ImportOptions(gpu="t4"))


def test_a_workbook_with_any_damaged_byte_is_read_or_refused(tmp_path: Path) -> None:
    path = workbook(tmp_path, {"FP32": [GEMM_HEADING, (1024, 64, 512, "N", "T", 40, 1.678)]})
    whole = path.read_bytes()
    for place in range(30, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(SourceError):
            import_file("deepbench", path, ImportOptions(gpu="t4"))


def test_a_packed_trace_that_expands_beyond_what_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(bytes(MOST_BYTES + 1), compresslevel=1))
    with pytest.raises(SourceError, match=r"it expands to more than 256 MiB, the most that is read"):
        import_file("kineto", path, ImportOptions(gpu="t4"))


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW StringIds AS WITH RECURSIVE n(id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n) SELECT * FROM n",
        "CREATE TABLE StringIds (id, value GENERATED ALWAYS AS (hex(zeroblob(1000000000))))",
    ],
)
def test_only_what_a_table_stores_is_read_of_a_report(statement: str, tmp_path: Path) -> None:
    path = report(tmp_path, ranges=False)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE StringIds")
        database.execute(statement)
        database.commit()
    with pytest.raises(SourceError, match=r"StringIds(\.value)?: no such (table|column)"):
        import_file("nsys", path, SHAPE)


def test_text_in_a_report_that_is_not_utf_8_is_read(tmp_path: Path) -> None:
    path = report(tmp_path, ranges=False)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE StringIds SET value = CAST(x'7367656d6dff' AS TEXT) WHERE id = 13")
        database.commit()
    assert [row.kernel[:6] for row in import_file("nsys", path, SHAPE).rows] == ["ampere", "sgemm\ufffd"]


def test_queries_of_a_report_have_a_limit_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(nsys, "STEPS_BETWEEN_CHECKS", 1)
    with pytest.raises(SourceError, match=r"report\.sqlite: interrupted"):
        import_file("nsys", report(tmp_path, ranges=False), SHAPE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_cannot_be_imported(kind: str) -> None:
    with pytest.raises(MeasuredError, match=r"/dev/zero: cannot be read: not a regular file"):
        import_file(kind, Path("/dev/zero"), SHAPE)


@pytest.mark.parametrize(
    ("kind", "sample", "old", "new"),
    [
        ("llmservingsim", "config.json", '"hidden_size": 1024', f'"hidden_size": {2**63}'),
        ("cutlass", "cutlass.gemm.csv", ",4,2,1,", f",{2**62},2,1,"),
    ],
)
def test_numbers_that_the_schema_does_not_take_are_refused(
    kind: str, sample: str, old: str, new: str, tmp_path: Path
) -> None:
    path = edited(sample, old, new)(tmp_path)
    options = replace(sources(tmp_path)[kind][1], gpu="t4")
    if kind == "llmservingsim":
        path, options = SAMPLES / "layers.csv", replace(options, model_config=path)
    with pytest.raises(
        SourceError, match=r":\d+: [a-z ]+ .*\(over 64 bits\).*: expected numbers from 1 to 9223372036854775807"
    ):
        import_file(kind, path, options)


def test_a_filter_larger_than_the_image_is_refused(tmp_path: Path) -> None:
    rows = [CONV_HEADING, (1, 1, 3, 2, 4, 5, 5, 0, 0, 1, 1, 10, 10, 10, 30, 1)]
    with pytest.raises(SourceError, match=r"row 2: sizes 2 x 0 x 4 x 75: expected numbers from 1"):
        import_file("deepbench", workbook(tmp_path, {"FP32": rows}), ImportOptions(gpu="t4"))


def test_calls_nested_without_end_are_refused(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "sgemm", "ts": 1, "dur": 1, "args": {"External id": 1}}
    calls = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": i, "dur": 1000 - 2 * i} for i in range(300)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([kernel, *calls]), encoding="utf-8")
    with pytest.raises(SourceError, match=r"calls more than 200 deep within each other"):
        import_file("kineto", path, ImportOptions(gpu="t4"))


@pytest.mark.parametrize("name", ["xmma_gemm_" + "a1e1" * 200 + "!", "cutlass3x_sm90_" * 20_000, "gemm_" * 50_000])
def test_no_name_of_a_kernel_takes_long_to_read(name: str) -> None:
    began = time.process_time()
    product_kernel(name)
    assert time.process_time() - began < 1.0


# Names of kernels --------------------------------------------------------------------------------


FP8_TILE = ("fp8", "fp32", "tn", (64, 256))
TF32_TILE = ("tf32", "fp32", "nt", (64, 128))


@pytest.mark.parametrize(
    ("name", "dtype", "accumulate", "layout", "tile"),
    [
        ("volta_sgemm_128x64_tn", "fp32", "fp32", "tn", (128, 64)),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "fp16", "fp32", "nn", (128, 128)),
        ("volta_h884gemm_256x64_ldg8_tn", "fp16", "fp16", "tn", (256, 64)),
        ("turing_fp16_s1688gemm_fp16_256x64_ldg8_f2f_nt", "fp16", "fp32", "nt", (256, 64)),
        ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", "bf16", "fp32", "tn", (64, 64)),
        ("ampere_dgemm_128x64_nn", "fp64", "fp64", "nn", (128, 64)),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4", "tf32", "fp32", "tn", (128, 128)),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(Params)", "fp32", "fp32", "tn", (64, 64)),
        ("cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16", "int8", "int32", "tn", (256, 128)),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off",
            *("bf16", "fp32", "tn", (64, 128)),
        ),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x64x128_stage4", "fp8", "fp32", "tn", (128, 64)),
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_nn_align8", "bf16", "fp32", "nn", (32, 32)),
        ("volta_fp16_sgemm_fp16_128x32_nt", "fp16", "fp32", "nt", (128, 32)),
        ("cutlass3x_sm100_tensorop_s64x256x32gemm_f8_f8_f32_f16_f16_64x256x128_1x1x1_0_tnn_align4_1sm_bias", *FP8_TILE),
        ("cutlass3x_sm90_tensorop_s64x128x8tf32gemm_f32_f32_f32_f32_f32_64x128x32_1x1x1_0_ntn_align4", *TF32_TILE),
        ("nvjet_qqtst_64x256_128x6_2x1_v_bz_coopA_algo2_TNN", *FP8_TILE),
        ("nvjet_sm120_tst_mma_64x32x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN", "bf16", "fp32", "tn", (64, 32)),
        ("void cutlass::device_kernel<GemmUniversal<cutlass::bfloat16_t, float> >(Params)", "bf16", "", "", None),
        ("void cutlass::Kernel<gemm::Gemm<NumericArrayConverter<float, float, 4> > >(Params)", "fp32", "", "", None),
        ("sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize96x128x32_stage4", "fp16", "fp16", "nn", (96, 128)),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", "fp16", "fp32", "tn", (128, 256)),
        ("nvjet_sm100_tst_64x8_64x16_2x4_h_bz_splitK_TNT", "bf16", "fp32", "tn", (64, 8)),
        ("void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4>", "fp16", "", "", None),
        ("gemmSN_NN_kernel<float, 256, 4, 2, 8, 7, 4, false, cublasGemvTensor<float> >", "fp32", "", "nn", (64, 7)),
        ("gemmSN_TN_kernel<float, (int)128, (int)16, (int)2, (int)4, (int)10, (int)11>", "fp32", "", "tn", (8, 10)),
        ("void gemmSN_NN_kernel<double, int=128, int=2, int=4, int=8, int=4, int=4>", "fp64", "", "nn", (64, 4)),
    ],
)
def test_a_kernels_name_tells_types_layout_and_tile(
    name: str, dtype: str, accumulate: str, layout: str, tile: tuple[int, int] | None
) -> None:
    fact = product_kernel(name)
    assert fact is not None
    assert fact.dtype is Dtype(dtype)
    assert (fact.accumulate, fact.layout, fact.tile) == (accumulate, layout, tile)


@pytest.mark.parametrize(
    ("name", "grid", "covers"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", (4, 8, 1), True),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", (4, 7, 1), False),
        # Persistent: a CTA goes on with the next tile
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_stage4", (4, 7, 1), True),
        ("nvjet_hsh_128x64_64x4_2x1_v_bz_coopA_TNT", (4, 7, 1), True),
        ("gemv2N_kernel<float, 128, 8>", (1, 1, 1), True),  # states no tile
    ],
)
def test_a_grid_of_tiles_covers_a_product_or_is_of_another(name: str, grid: tuple[int, int, int], covers: bool) -> None:
    fact = product_kernel(name)
    assert fact is not None
    assert fact.covers(grid, 512 * 512) is covers


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4>",
        "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4",
        "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half>",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const> > >",
    ],
)
def test_other_kernels_are_not_products(name: str) -> None:
    assert product_kernel(name) is None


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("volta_sgemm_32x32_sliced1x4_tn", "volta_sgemm_32x32_tn", False),
        ("volta_sgemm_64x64_tn", "volta_fp16_s884gemm_fp16_64x64_ldg8_f2f_tn", False),
        (
            "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
            "turing_fp16_s1688gemm_fp16_128x128_f2f_stages_32x1_tn",
            True,
        ),
        (
            "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x32x64_stage3_ffma",
            "cutlass_80_tensorop_s1688gemm_64x32_64x3_tn_align4",
            True,
        ),
        (
            "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x1_nn_align8",
            "cutlass_80_tensorop_bf16_s16816gemm_bf16_32x32_64x1_nn_align8",
            False,
        ),
        ("gemv2N_kernel_8x4_fp32", "gemv2N_kernel_8x4_fp32", True),
    ],
)
def test_names_are_of_one_kernel_where_they_state_the_same_tile_steps_and_instruction(
    name: str, other: str, same: bool
) -> None:
    one, another = product_kernel(name), product_kernel(other)
    assert one is not None
    assert another is not None
    assert one.may_be(another) is another.may_be(one) is same


def test_an_argument_of_a_kernel_with_quantised_inputs_is_not_their_type() -> None:
    fact = product_kernel("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 6144u, 128u, cutlass::bfloat16_t>")
    assert fact is not None
    assert fact.dtype is None


# The command -------------------------------------------------------------------------------------


def test_the_command_writes_what_validate_reads_and_counts_the_rest(command: RunGpusim, tmp_path: Path) -> None:
    done = command("import", "neusight", SAMPLES / "neusight.csv", "-o", "measured.csv")
    assert (done.returncode, done.stdout) == (0, "")
    skipped = "gpusim: skipped 1 (2.0 % of the time): operator addu is outside the schema\n"
    used = "gpusim: 98.0 % of the time in the file became rows\n"
    assert done.stderr == f"{skipped}{used}gpusim: wrote measured.csv: 4 rows\n"
    assert len(read_measured(tmp_path / "measured.csv")) == 4
    validated = command("validate", "measured.csv", "--format", "json")
    assert sum(entry["rows"] for entry in json.loads(validated.stdout)["tables"]) == 4


@pytest.mark.parametrize(("said", "gpu"), [("Tesla V100-PCIE-32GB", "v100-pcie-32gb"), ("Voodoo 2", "voodoo-2")])
def test_a_gpu_given_by_option_is_stored_by_its_id(said: str, gpu: str) -> None:
    rows = import_file("neusight", SAMPLES / "neusight.csv", ImportOptions(gpu=said)).rows
    assert {row.gpu for row in rows} == {gpu}


def test_the_same_file_gives_the_same_bytes(command: RunGpusim, tmp_path: Path) -> None:
    for name in ("first.csv", "second.csv"):
        command("import", "kineto", SAMPLES / "trace.json", "-o", name)
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()


def test_help_says_where_each_kind_of_file_comes_from(command: RunGpusim) -> None:
    lines = [line.split() for line in command("import", "--help").stdout.splitlines()]
    for kind in KINDS:
        assert any(line[:1] == [kind] and len(line) > 2 for line in lines), kind
    # ncu locks the clock to its base otherwise, and predictions would be held against a slower GPU
    assert any("--clock-control none" in " ".join(line) for line in lines if line[:1] == ["ncu"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("cutlas", "runs.csv", "-o", "m.csv"), "unknown kind 'cutlas'; did you mean cutlass?"),
        (("cutlass", SAMPLES / "cutlass.gemm.csv", "-o", "m.csv"), ":2: the file does not name the GPU; add --gpu"),
        (("neusight", SAMPLES / "neusight.csv", "-o", "none/m.csv"), "-o none/m.csv: no folder none"),
        (("neusight", SAMPLES / "neusight.csv", "-o", "."), "is a folder or a device; name a file"),
        (("neusight", SAMPLES / "neusight.csv", "-o", SAMPLES / "neusight.csv"), "is the file to import"),
        (("neusight", SAMPLES / "neusight.csv", "-o", "m.csv", "--dtype", "bf61"), "unknown data type 'bf61'"),
        (
            ("neusight", SAMPLES / "neusight.csv", "-o", "m.csv", "--acc-dtype", "fp23"),
            "--acc-dtype: expected one",
        ),
        (("ncu", SAMPLES / "ncu.csv", "-o", "m.csv", "--gpu", "t4"), "recorded without shapes; add -m, -n and -k"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    arguments: tuple[str | Path, ...], problem: str, command: RunGpusim, tmp_path: Path
) -> None:
    assert problem in refused(command("import", *arguments))
    assert not (tmp_path / "m.csv").exists()


def test_the_columns_of_any_table_are_mapped(command: RunGpusim, tmp_path: Path) -> None:
    mapping = "gpu=board,op=bmm,m=rows,n=cols,k=depth,time_us=Latency (ms) * 1000,threads=32*warps"
    options = ("--dtype", "bf16", "--method", "stream", "--l2", "warm", "--layout", "tn")
    done = command("import", "csv", SAMPLES / "table.csv", "-o", "m.csv", "--map", mapping, *options)
    assert done.returncode == 0, done.stderr
    first, second = read_measured(tmp_path / "m.csv")
    assert (shape(first), types(first), first.gpu) == (
        ("bmm", 1, 1024, 512, 256),
        ("bf16", "", "tn", "dense"),
        "a100-sxm4-80gb",
    )
    assert (first.time_us, first.threads, second.time_us, second.threads) == (12.5, 256, 25.0, 128)
    for text, problem in (("rows", "expected COLUMN=EXPRESSION"), ("rows=m", "'rows' is no column of measured tables")):
        assert problem in refused(command("import", "csv", SAMPLES / "table.csv", "-o", "n.csv", "--map", text))


# Files that public reports showed ---------------------------------------------------------------

GIVEN = ImportOptions(gpu="a100-sxm4-80gb", m=1024, n=1024, k=1024)


@pytest.mark.parametrize(
    ("kind", "name", "times_us"),
    [
        ("ncu", "05/ncu_details_de.csv", [117.344, 120.416]),
        ("ncu", "05/ncu_details_en.csv", [650.112]),
        ("ncu", "05/ncu_raw_de.csv", [117.344]),
        ("ncu", "05/ncu_raw_de_ns_only.csv", [117.344]),
        ("ncu", "05/ncu_raw_de_time_only.csv", [117.344]),
        ("ncu", "05/ncu_raw_de_us.csv", [117.34]),
        ("cutlass", "02/functional.csv", [62634.6, 64359.9, 62529.1]),  # what converts on the way is left out
        ("cutlass", "01/profile.gemm.csv", [481022, 88576.4, 70350.3, 86516.7, 68362.1, 34615.3, 31299.4]),
        ("cutlass", "01/stdout.log", [481022, 88576.4, 70350.3, 86516.7, 68362.1, 34615.3, 31299.4]),
        ("kineto", "17/pg509.json", [58.0]),
    ],
)
def test_reported_files_are_read(kind: str, name: str, times_us: list[float], measured_folder: Path) -> None:
    path = measured_folder.parent / "cases" / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    found = import_file(kind, path, GIVEN)
    assert [row.time_us for row in found.rows] == pytest.approx(times_us)
