"""Recorded kernels without the shapes of their operators.

Their shapes come from beside the file: one for all (``-m``, ``-n``, ``-k``), or a CSV of shapes with a line for
every matrix multiplication, in the order of the launches. A split-K reduction belongs to the kernel before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusim.evidence.fields import csv_fields, header_with, read_text
from gpusim.evidence.importers.kernel_names import NO_PRODUCT, ProductKernel, converting, is_reduction, product_kernel
from gpusim.evidence.importers.rows import Import, Operation, RecordedKernel, SourceError
from gpusim.workloads.gemm import GEMM_OPS, LAYOUTS, ORDERS, StorageOrder

SHAPE_COLUMNS = ("m", "n", "k")
ELAPSED_CYCLES = "sm__cycles_elapsed.max"


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One kernel, its place in the file, and the name of the GPU there."""

    where: str
    line: int
    kernel: RecordedKernel
    device: str
    count: int = 1
    """Launches of it, whose median the kernel has."""


def add_launches(found: Import, launches: Sequence[RecordedLaunch]) -> None:
    """Add a row for every matrix multiplication among the launches; count the rest.

    Raises:
        SourceError: shapes are missing, or not as many as there are multiplications.
    """
    products: list[tuple[RecordedLaunch, ProductKernel]] = []
    follows = False
    for launch in launches:
        fact = product_kernel(launch.kernel.name)
        if fact is not None and fact.converts_to:
            found.skip(converting(fact), launch.count, launch.count * launch.kernel.time_us)
        elif fact is not None:
            products.append((launch, fact))
        elif follows and is_reduction(launch.kernel.name):
            product, of_name = products[-1]
            products[-1] = (replace(product, kernel=joined((product.kernel, launch.kernel), product.kernel)), of_name)
        else:
            found.skip(NO_PRODUCT, launch.count, launch.count * launch.kernel.time_us)
        follows = fact is not None
    for (launch, fact), stated in zip(products, _stated(found, len(products)), strict=True):
        dtype = stated.dtype or fact.dtype
        if dtype is None and found.options.dtype is None:
            raise SourceError(
                f"{launch.where}: kernel {launch.kernel.name[:60]} does not state its data type; add --dtype"
            )
        operation = replace(
            stated,
            dtype=dtype,
            layout=stated.layout or fact.layout,
            accumulate=fact.accumulate,
            sparsity=fact.sparsity,
            extra=launch.kernel.extra,
        )
        kernel = replace(launch.kernel, tile=fact.tile)
        found.add(launch.where, launch.line, operation, kernel.time_us, device=launch.device, kernel=kernel)
        found.repeated_us += (launch.count - 1) * kernel.time_us


def joined(kernels: Sequence[RecordedKernel], main: RecordedKernel) -> RecordedKernel:
    """Kernels of one operator as one: times and counts are added, the rest is that of the main kernel.

    Counts have names in ``.sum``, as Nsight Compute writes them; elapsed cycles add up too.
    """
    names = dict.fromkeys(name for kernel in kernels for name in kernel.extra)
    extra = {
        name: _sum(kernels, name) if name.endswith(".sum") or name == ELAPSED_CYCLES else main.extra.get(name, "")
        for name in names
    }
    return replace(main, time_us=math.fsum(kernel.time_us for kernel in kernels), extra=extra)


def _sum(kernels: Sequence[RecordedKernel], name: str) -> str:
    """A count over the kernels that have it."""
    counts = [float(text) for kernel in kernels if (text := kernel.extra.get(name))]
    return f"{math.fsum(counts):.12g}" if counts else ""


def _stated(found: Import, count: int) -> list[Operation]:
    """What options state of each of ``count`` matrix multiplications."""
    options = found.options
    if count == 0:
        return []
    if options.shapes is not None:
        shapes = _shapes_of_file(options.shapes)
        if len(shapes) != count:
            raise SourceError(
                f"{options.shapes}: {len(shapes)} shapes for the {count} matrix multiplications of {found.file};"
                " give a line for each, in launch order"
            )
        return shapes
    if options.m is None or options.n is None or options.k is None:
        raise SourceError(
            f"{found.file}: kernels are recorded without shapes; add -m, -n and -k, or --shapes SHAPES.csv with"
            f" columns {', '.join(SHAPE_COLUMNS)} and a line for each of {count} matrix multiplications"
        )
    return [Operation("linear", (options.batch, options.m, options.n, options.k), None)] * count


def _shapes_of_file(path: Path) -> list[Operation]:
    """The lines of a CSV of shapes: m, n, k and, where they are known, op, batch, dtype, layout and order."""

    def header(where: str, names: list[str]) -> list[str]:
        return header_with(SHAPE_COLUMNS, where, names)

    shapes = []
    for _, fields in csv_fields(str(path), read_text(path), header):
        m, n, k = (fields.number(column) for column in SHAPE_COLUMNS)
        op = fields.one_of("op", GEMM_OPS, unknown=("",)) or "linear"
        dtype = fields.dtype("dtype") if fields.get("dtype") else None
        layout = fields.one_of("layout", LAYOUTS, unknown=("",))
        order: StorageOrder = "column" if fields.one_of("order", ORDERS, unknown=("",)) == "column" else "row"
        shapes.append(Operation(op, (fields.whole("batch") or 1, m, n, k), dtype, layout, order=order))
    return shapes
