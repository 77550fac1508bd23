"""Tables of the kernels of a library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpusim.library.catalogue import Kernel
from gpusim.numbers.formats import Dtype
from gpusim.report.text_table import TextTable
from gpusim.system import System

HEADINGS = ("for", "kernel", "types", "tile", "warps", ">stages", ">threads", ">registers", ">swizzle", "split-K")


def kernel_rows(system: System, dtype: Dtype | None = None) -> list[dict[str, Any]]:
    """The kernels of a library, JSON-ready; of kernels without a tile or stages these are None.

    Args:
        dtype: only kernels for this data type.
    """
    library, found = system.library, []
    for kind, kernels in (("gemm", library.kernels), ("convolution", library.convolution_kernels)):
        found += [row for kernel in kernels for row in _multiplying(kind, kernel, dtype)]
    for attention in library.attention_kernels:
        tile, family = attention.tile, attention.family
        extents = [tile.queries, tile.keys, tile.max_head_dim]
        made = {"tile": extents, "warps": list(tile.warps), "threads": 32 * attention.warps}
        found.append(
            _row(family.op, attention.printed_name, family.dtypes, family.source)
            | made
            | {"instruction": family.instruction, "registers": tile.registers}
        )
    for vector in library.vector_kernels:
        found.append(_row("rows and elements", vector.name, vector.dtypes, vector.source))
    return [row for row in found if dtype is None or dtype.value in row["dtypes"]]


def _multiplying(kind: str, kernel: Kernel, dtype: Dtype | None) -> Iterator[dict[str, Any]]:
    """A row of a kernel that multiplies tiles, under the name that it has with the first layout that it takes."""
    family = kernel.family
    if dtype is not None and dtype not in family.inputs:
        return
    layout = "tn" if "tn" in kernel.layouts else kernel.layouts[0]
    yield _row(kind, kernel.printed_name(layout, dtype or family.inputs[0]), family.inputs, family.source) | {
        "instruction": family.instruction,
        "layouts": list(kernel.layouts),
        "tile": [kernel.tile_m, kernel.tile_n, kernel.tile_k],
        "warps": [kernel.warps_m, kernel.warps_n, kernel.warps_k],
        "cluster": [kernel.cluster_m, kernel.cluster_n],
        "stages": kernel.stages,
        "threads": kernel.threads,
        "registers": kernel.registers,
        "alignment": kernel.alignment,
        "swizzle_width": family.swizzle_width,
        "split_k": list(family.split_k),
    }


def _row(kind: str, name: str, dtypes: Sequence[Dtype], source: str) -> dict[str, Any]:
    empty = dict.fromkeys(
        ("instruction", "tile", "warps", "stages", "threads", "registers", "swizzle_width", "split_k")
    )
    return {"for": kind, "kernel": name, "dtypes": [one.value for one in dtypes], "source": source, **empty}


def kernel_tables(title: str, rows: Sequence[dict[str, Any]]) -> list[TextTable]:
    """One line a kernel."""

    def extents(value: Sequence[int] | None) -> str:
        return "x".join(map(str, value)) if value else ""

    body = tuple(
        (
            row["for"],
            row["kernel"],
            " ".join(row["dtypes"]),
            extents(row["tile"]),
            extents(row["warps"]),
            *("" if row[name] is None else f"{row[name]:g}" for name in ("stages", "threads", "registers")),
            "" if row["swizzle_width"] is None else f"{row['swizzle_width']:g}",
            " ".join(row["split_k"] or ()),
        )
        for row in rows
    )
    return [TextTable(title, HEADINGS, body)]
