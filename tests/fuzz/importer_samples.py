"""Small files of every kind that the importers read, with invented numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
from pyarrow import parquet

from gpusim.evidence.importers import ImportOptions
from gpusim.numbers.formats import Dtype

SAMPLES = Path(__file__).resolve().parents[1] / "evidence" / "importers"
GEMM_HEADING = ("M", "N", "K", "A Transpose", "B Transpose", "Time (usec)", "TERAFLOPS")
CONV_HEADING = (
    *("W", "H", "C", "N", "K", "F_W", "F_H", "Pad_W", "Pad_H", "Stride_W", "Stride_H"),
    *("fwd_time (usec)", "bwd_inputs_time (usec)", "bwd_params_time (usec)", "total_time (usec)", "fwd_algo"),
)
Cells = Sequence[Sequence[object]]
OF_TABLE = ImportOptions(
    columns={"gpu": "board", "op": "bmm", "m": "rows", "n": "cols", "k": "depth", "time_us": "Latency (ms) * 1000"}
    | {"threads": "32 * warps"},
    dtype=Dtype.BF16,
    method="stream",
    l2="warm",
    layout="tn",
)
"""What table.csv states in columns of its own, and what it does not."""


def workbook(folder: Path, sheets: Mapping[str, Cells]) -> Path:
    """A workbook as DeepBench publishes them; sheets by name."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    path = folder / "DeepBench.xlsx"
    book.save(path)
    return path


def table(folder: Path, **changes: list[Any]) -> Path:
    """A gemm_perf.parquet of three rows."""
    columns: dict[str, list[Any]] = {
        "framework": ["VLLM"] * 3,
        "version": ["0.24.0"] * 3,
        "device": ["NVIDIA H200"] * 3,
        "op_name": ["gemm"] * 3,
        "kernel_source": ["vllm_default"] * 3,
        "gemm_dtype": ["bfloat16", "fp8", "nvfp4"],
        "m": [1, 16, 32],
        "n": [4096, 4096, 4096],
        "k": [1024, 1024, 1024],
        "latency": [0.0123456, 0.007, 0.005],
    }
    path = folder / "gemm_perf.parquet"
    parquet.write_table(pa.table({name: values for name, values in (columns | changes).items() if values}), path)
    return path


KERNEL_COLUMNS = (
    "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName,"
    " gridX, gridY, gridZ, blockX, blockY, blockZ"
)


def report(folder: Path, *, ranges: bool, kernel_columns: str = KERNEL_COLUMNS) -> Path:
    """An Nsight Systems export: two products, one with a split-K reduction, and an elementwise kernel."""
    path = folder / "report.sqlite"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    names = (
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x5_tn",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasLt::cublasSplitKParams<float>)",
        "void at::native::vectorized_elementwise_kernel<4>",
        "ampere_sgemm_32x128_nn",
    )
    database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names, 10))
    database.execute("CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT)")
    database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA A100-PCIE-40GB')")
    database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({kernel_columns})")
    if kernel_columns == KERNEL_COLUMNS:
        for place, (name, duration) in enumerate(((10, 12_500), (11, 1_250), (12, 2_000), (13, 30_000))):
            start = 100_000 * (place + 1)
            values = (start, start + duration, 0, 1, 7, 50 + place, 1, name, name, 16, 4, 2, 128, 1, 1)
            places = ", ".join("?" * len(values))
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({places})", values)  # noqa: S608
    database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId)")
    calls = [(1_100 + 100 * place, 1_150 + 100 * place, 5, 50 + place, 0) for place in range(4)]
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", calls)
    if ranges:
        database.execute("CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid, textId)")
        texts = (
            (1_000, 1_280, "aten::linear, op_id = 1, sizes = [[32, 1024], [512, 1024], [512]]"),
            (1_050, 1_270, "aten::addmm, op_id = 2, sizes = [[512], [32, 1024], [1024, 512], [], []]"),
            (1_290, 1_390, "aten::copy_, op_id = 3, sizes = [[32, 512], [32, 512], []]"),
            (1_395, 1_500, "aten::bmm, seq = 4, op_id = 4, sizes = [[6, 8, 64], [6, 64, 16]], input_op_ids = [(2,0)]"),
        )
        rows = [(start, end, 59, text, 5, None) for start, end, text in texts]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    return path


def sources(folder: Path) -> dict[str, tuple[Path, ImportOptions]]:
    """A file of every kind and what has to be said beside it."""
    gemms = [GEMM_HEADING, (1024, 64, 512, "N", "T", 40, 1.678), (1024, 128, 512, "T", "N", 50, 2.684)]
    return {
        "aiconfigurator": (table(folder), ImportOptions()),
        "csv": (SAMPLES / "table.csv", OF_TABLE),
        "cutlass": (SAMPLES / "cutlass.gemm.csv", ImportOptions(gpu="a100-sxm4-80gb")),
        "deepbench": (workbook(folder, {"Results - FP32": gemms}), ImportOptions(gpu="T4")),
        "kineto": (SAMPLES / "trace.json", ImportOptions()),
        "llmservingsim": (
            SAMPLES / "layers.csv",
            ImportOptions(gpu="rtx-3090", dtype=Dtype.BF16, model_config=SAMPLES / "config.json"),
        ),
        "ncu": (SAMPLES / "ncu.csv", ImportOptions(gpu="a100-pcie-40gb", m=1024, n=1024, k=1024)),
        "neusight": (SAMPLES / "neusight.csv", ImportOptions()),
        "nsys": (report(folder, ranges=True), ImportOptions()),
        "traces": (SAMPLES / "launches.csv", ImportOptions()),
    }
