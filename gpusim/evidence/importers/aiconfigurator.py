"""GEMM tables of AIConfigurator: ``gemm_perf.parquet``, or the older ``gemm_perf.txt``.

They lie under systems/data of https://github.com/ai-dynamo/aiconfigurator (Apache-2.0).

Written by its collectors (collector/helper.py, collector/vllm/collect_gemm.py): latency is in milliseconds, from CUDA
graphs of six linear layers, each with weights of its own, in turn (``MeasuredRow.l2_of``). Quantised types include what
quantises the activations. SmoothQuant exists for TensorRT alone, whose layer profiler timed it
(collector/trtllm/collect_gemm_trt.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpusim.errors import excerpt
from gpusim.evidence.fields import MAX_ROWS, Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.rows import Import, ImportOptions, Operation, SourceError, Timing, stated_us
from gpusim.files.inputs import regular_size_bytes
from gpusim.numbers.formats import Dtype
from gpusim.units import MIB

REQUIRED = ("framework", "version", "device", "gemm_dtype", "m", "n", "k", "latency")
EXTRA = ("kernel_source", "gemm_dtype", "power", "power_limit")
TYPES = {name: Dtype(name.removesuffix("_static")) for name in ("float16", "bfloat16", "fp8", "fp8_static")}
TYPES["sq"] = Dtype.INT8  # SmoothQuant: INT8 weights and activations
LAYER_PROFILED = "sq"
GRAPH_CALLS = {"vllm": "54"}
"""By framework: a CUDA graph of 6 linears is replayed 3 times before and 6 times between the events
(collector/vllm/collect_gemm.py, collector/helper.py)."""
LAYER_TIMER_US = 1.024 / 3
"""TensorRT's layer profiler ticks every 1.024 us: all its times are multiples of that. With f = time / tick modulo 1 a
time is read one tick too long with probability f, else too short, and the mean of 2 f (1 - f) over all f is a third.
The layer runs once in an inference, between larger ones."""
QUANTISED_OUTPUT = "fp16"
"""What a layer of SmoothQuant writes (Xiao et al., arXiv:2211.10438, figure 6)."""
MOST_METADATA = 64 * MIB
"""Largest metadata of a Parquet file [bytes]: its schema and the places of its columns."""
PARQUET_MAGIC = b"PAR1"
LFS_POINTER = b"version https://git-lfs"


def read(path: Path, options: ImportOptions) -> Import:
    """The rows whose both operands have a type of the schema."""
    found = Import(str(path), options, Timing("graph", "cold", "aiconfigurator"))
    for line, fields in _fields(path):
        kind, dtype = fields.get("op_name") or "gemm", fields.get("gemm_dtype")
        if kind != "gemm":
            found.skip(
                f"operator {excerpt(kind)} is not a matrix multiplication", time_us=stated_us(fields, "latency", "ms")
            )
        elif dtype not in TYPES:
            found.skip(
                f"type {excerpt(dtype) or 'empty'} is outside the schema", time_us=stated_us(fields, "latency", "ms")
            )
        else:
            _add(found, line, fields, TYPES[dtype])
    return found


def _add(found: Import, line: int, fields: Fields, dtype: Dtype) -> None:
    layer_profiled = fields.get("gemm_dtype") == LAYER_PROFILED
    framework, version = (fields.get(column).lower() for column in ("framework", "version"))
    source = f"aiconfigurator-{framework}-{version}"
    timing = Timing("graph", "cold", source, GRAPH_CALLS.get(framework, ""))
    if layer_profiled:
        timing = Timing("layer", "cold", f"{source}-{LAYER_PROFILED}", load="1", timer_us=LAYER_TIMER_US)
    m, n, k = (fields.number(column) for column in "mnk")
    extra = {name: fields.get(name) for name in EXTRA}
    operation = Operation(
        "linear",
        (1, m, n, k),
        dtype,
        layout="tn",
        output=QUANTISED_OUTPUT if layer_profiled else "",
        extra={name: text for name, text in extra.items() if text},
    )
    time_us = fields.time_us("latency", "ms")
    found.add(fields.where, line, operation, time_us, device=fields.get("device"), timing=timing)


def _fields(path: Path) -> Iterator[tuple[int, Fields]]:
    """The rows of a table with their numbers, from Parquet or CSV."""
    try:
        regular_size_bytes(path)
        with path.open("rb") as file:
            head = file.read(len(LFS_POINTER))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None
    if head == LFS_POINTER:
        raise SourceError(f"{path}:1: a Git LFS pointer, not the table; fetch it with git lfs pull")
    if head.startswith(PARQUET_MAGIC) or path.suffix == ".parquet":
        return _parquet_fields(path)
    return csv_fields(str(path), read_text(path), _header)


def _header(where: str, names: list[str]) -> list[str]:
    return header_with(REQUIRED, where, names)


def _parquet_fields(path: Path) -> Iterator[tuple[int, Fields]]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise SourceError(f"{path}: Parquet files need pyarrow; pip install 'gpusim[parquet]'") from None
    number = 0
    try:
        table = parquet.ParquetFile(path, thrift_string_size_limit=MOST_METADATA, thrift_container_size_limit=MAX_ROWS)
        names = [str(name) for name in table.schema_arrow.names]
        _header(f"{path}: schema", names)
        wanted = [name for name in names if name in (*REQUIRED, "op_name", *EXTRA)]
        for batch in table.iter_batches(1_000, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                if number > MAX_ROWS:
                    raise SourceError(f"{path}: more than {MAX_ROWS} rows; split the table")
                yield number, Fields(f"{path}: row {number}", {name: _text(value) for name, value in row.items()})
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        problem = excerpt(str(error).partition("\n")[0])
        raise SourceError(f"{path}: not a complete Parquet file: {problem}; download it again") from None


def _text(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
