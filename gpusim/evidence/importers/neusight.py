"""Tables of NeuSight: ``scripts/asplos/data/dataset/**/*.csv`` of https://github.com/sitar-lab/NeuSight (MIT).

Written by neusight/Dataset/collect.py: Latency is in milliseconds, the mean of the 5 shortest of 25 runs between CUDA
events, TF32 off. A GEMM takes [B, M, N] by [B, N, K] (or a weight of K x N): what NeuSight calls N is the length
of the sums and K the width of the result.
"""

from __future__ import annotations

from pathlib import Path

from gpusim.cuda_version import CudaVersion
from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.kernel_names import product_kernel
from gpusim.evidence.importers.rows import Import, ImportOptions, Operation, RecordedKernel, Timing, stated_us
from gpusim.numbers.formats import Dtype
from gpusim.workloads.convolution import ConvolutionShape
from gpusim.workloads.functions import SCHEMA_FUNCTIONS

TIMING = Timing("event", "warm", "neusight", load="26", cuda=CudaVersion(12))
"""One call to warm up and 25 timed ones (neusight/Tracing/trace.py), with PyTorch 2.1 and CUDA 12.1."""
REQUIRED = ("OPName", "Latency", "Device", "B")
PRODUCTS = {"linear": "tn", "bmm": "nn"}
"""Operators and their layout: PyTorch's weight lies as [K, N], a batch in rows."""
VECTORS = {"softmax": "softmax", "ln": "layernorm", **{name: name for name in SCHEMA_FUNCTIONS}}


def read(path: Path, options: ImportOptions) -> Import:
    """The operators of a table that the schema has."""
    found = Import(str(path), options, TIMING)
    for line, fields in csv_fields(str(path), read_text(path), _header):
        op = fields.get("OPName").lower()
        if op in PRODUCTS:
            _add_product(found, line, fields, op)
        elif op in VECTORS:
            shape = (1, fields.number("B"), fields.number("H"), None)
            _add(found, line, fields, Operation(VECTORS[op], shape, Dtype.FP32))
        elif op == "conv":
            _add_convolution(found, line, fields)
        else:
            found.skip(
                f"operator {excerpt(op) or 'empty'} is outside the schema", time_us=stated_us(fields, "Latency", "ms")
            )
    return found


def _header(where: str, names: list[str]) -> list[str]:
    return header_with(REQUIRED, where, names)


def _add_product(found: Import, line: int, fields: Fields, op: str) -> None:
    batch, m, sums, width = (fields.number(column) for column in "BMNK")
    fact = product_kernel(fields.get("Kernel Name"))
    tile = fact.tile if fact else None
    _add(found, line, fields, Operation(op, (batch, m, width, sums), Dtype.FP32, PRODUCTS[op]), tile)


def _add_convolution(found: Import, line: int, fields: Fields) -> None:
    """A convolution of square images; the table spells ``Kernel_Szie``."""
    size, side = fields.number("Kernel_Szie"), fields.number("Input_Size")
    pad = 0 if fields.get("Padding") == "0" else fields.number("Padding")
    stride = fields.number("Stride")
    images, channels, filters = (fields.number(column) for column in ("B", "Input_Channel", "Output_Channel"))
    shape = ConvolutionShape(images, channels, side, side, filters, size, size, (pad, pad), (stride, stride))
    _add(found, line, fields, Operation("conv_fwd", shape.gemm, Dtype.FP32, "nchw", extra=shape.columns))


def _add(
    found: Import,
    line: int,
    fields: Fields,
    operation: Operation,
    tile: tuple[int, int] | None = None,
) -> None:
    grid, block = (tuple(fields.whole(f"{name} {axis}") or 1 for axis in "xyz") for name in ("Grid", "Block"))
    known = bool(fields.get("Grid x"))
    kernel = RecordedKernel(
        fields.get("Kernel Name"),
        0.0,
        (grid[0], grid[1], grid[2]) if known else None,
        block[0] * block[1] * block[2] if fields.get("Block x") else None,
        tile,
    )
    time_us = fields.time_us("Latency", "ms")
    found.add(fields.where, line, operation, time_us, device=fields.get("Device"), kernel=kernel)
