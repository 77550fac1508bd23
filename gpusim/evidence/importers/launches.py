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
from gpusim.evidence.importers.kernel_names import ProductKernel, is_reduction, product_kernel
from gpusim.evidence.importers.rows import Import, RecordedKernel, SourceError
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import GEMM_OPS, LAYOUTS

SHAPE_COLUMNS = ("m", "n", "k")
ELAPSED_CYCLES = "sm__cycles_elapsed.max"


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One kernel, its place in the file, and the name of the GPU there."""

    where: str
    line: int
    kernel: RecordedKernel
    device: str


@dataclass(frozen=True, slots=True)
class _Shape:
    """The product that a launch computes."""

    op: str
    size: tuple[int, int, int, int]
    dtype: Dtype | None
    layout: str


def add_launches(found: Import, launches: Sequence[RecordedLaunch]) -> None:
    """Add a row for every matrix multiplication among the launches; count the rest.

    Raises:
        SourceError: shapes are missing, or not as many as there are multiplications.
    """
    products: list[tuple[RecordedLaunch, ProductKernel]] = []
    follows = False
    for launch in launches:
        fact = product_kernel(launch.kernel.name)
        if fact is not None:
            products.append((launch, fact))
        elif follows and is_reduction(launch.kernel.name):
            product, of_name = products[-1]
            products[-1] = (replace(product, kernel=joined((product.kernel, launch.kernel), product.kernel)), of_name)
        else:
            found.skip("kernel whose name is no matrix multiplication's")
        follows = fact is not None
    for (launch, fact), shape in zip(products, _shapes(found, len(products)), strict=True):
        dtype = shape.dtype or fact.dtype
        if dtype is None and found.options.dtype is None:
            raise SourceError(
                f"{launch.where}: kernel {launch.kernel.name[:60]} does not say its data type; add --dtype"
            )
        found.add(
            launch.where,
            launch.line,
            shape.op,
            shape.size,
            dtype,
            launch.kernel.time_us,
            device=launch.device,
            accumulate=fact.accumulate,
            layout=shape.layout or fact.layout,
            sparsity=fact.sparsity,
            kernel=launch.kernel,
            tile=fact.tile,
            extra=launch.kernel.extra,
        )


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


def _shapes(found: Import, count: int) -> list[_Shape]:
    """A shape for each of ``count`` matrix multiplications."""
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
    return [_Shape("linear", (options.batch, options.m, options.n, options.k), None, "")] * count


def _shapes_of_file(path: Path) -> list[_Shape]:
    """The lines of a CSV of shapes: m, n, k and, where they are known, op, batch, dtype and layout."""

    def header(where: str, names: list[str]) -> list[str]:
        return header_with(SHAPE_COLUMNS, where, names)

    shapes = []
    for _, fields in csv_fields(str(path), read_text(path), header):
        m, n, k = (fields.number(column) for column in SHAPE_COLUMNS)
        op = fields.one_of("op", GEMM_OPS, unknown=("",)) or "linear"
        dtype = fields.dtype("dtype") if fields.get("dtype") else None
        layout = fields.one_of("layout", LAYOUTS, unknown=("",))
        shapes.append(_Shape(op, (fields.whole("batch") or 1, m, n, k), dtype, layout))
    return shapes
