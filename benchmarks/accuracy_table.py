"""Tables of errors on measured runs of operators: all figures, and a line for each GPU and data type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sections import row

from gpusim.studies.validation.accuracy import metrics
from gpusim.studies.validation.report import Table, ValidationReport
from gpusim.workloads.attention import ATTENTION_OPS
from gpusim.workloads.convolution import CONVOLUTION_OPS
from gpusim.workloads.gemm import GEMM_OPS


def accuracy_summary(report: ValidationReport) -> str:
    """Errors by kind of operator, GPU and data type, as Markdown: tables that share them are one line."""
    lines = [
        "| predicted | GPU | type | rows | mean error | median | closed-form bound |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    keys = dict.fromkeys(_key(table) for table in report.tables)
    for key in sorted(keys, key=lambda one: (ORDER.index(one[0]), *one[1:])):
        tables = [table for table in report.tables if _key(table) == key]
        scored = [item for table in tables for item in table.scored]
        of_all = metrics(scored, [reason for table in tables for _, reason in table.skipped])
        errors = (percent(of_all[name]) for name in ("mape", "median_ape", "bound_mape"))
        lines.append(row((*key, _rows(of_all), *errors)))
    return "\n".join([*lines, ""])


GEMMS, CONVOLUTIONS, ATTENTION, MEMORY_BOUND = "GEMMs", "convolutions", "attention", "elementwise, softmax, layer norm"
ORDER = (GEMMS, CONVOLUTIONS, ATTENTION, MEMORY_BOUND)


def kind_of(table: Table) -> str:
    """The kind of a table's operator: one of ``ORDER``."""
    of_ops = ((GEMMS, GEMM_OPS), (CONVOLUTIONS, CONVOLUTION_OPS), (ATTENTION, ATTENTION_OPS))
    return next((kind for kind, ops in of_ops if table.op in ops), MEMORY_BOUND)


def _key(table: Table) -> tuple[str, str, str]:
    """Kind of operator, GPU and data type."""
    dtype = table.dtype if table.sparsity == "dense" else f"{table.dtype} {table.sparsity}"
    return kind_of(table), table.gpu, dtype


def accuracy_tables(report: ValidationReport) -> str:
    """All figures as Markdown: a table of products and attention, one of other operators, speedups, kernels chosen."""
    metrics_of_all = report.as_dict()
    products = [table for table in metrics_of_all["tables"] if table["op"] in (*GEMM_OPS, *ATTENTION_OPS)]
    others = [table for table in metrics_of_all["tables"] if table not in products]
    tables = [_products(products), *([_by_operator(others)] if others else [])]
    return "\n".join([*tables, *_sentences(metrics_of_all)])


def _products(tables: list[dict[str, Any]]) -> str:
    """A line for each table; measurement noise is given where it is known for all rows."""
    headings = ("measured runs", "GPU", "type", "rows", "mean error", "median", "90 % below", "bias", "in interval")
    yardsticks = ("closed-form bound", "noise", "sha256 of the table")
    lines = [row((*headings, *yardsticks)), "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for table in tables:
        cells = (
            f"{Path(table['file']).stem} ({table['op']})",
            table["gpu"],
            table["dtype"] if table["sparsity"] == "dense" else f"{table['dtype']} {table['sparsity']}",
            _rows(table),
            *(percent(table[name]) for name in ("mape", "median_ape", "p90_ape")),
            percent(table["bias"], signed=True),
            percent(table["inside_pct"]),
            percent(table["bound_mape"]),
            percent(table["noise_pct"] if table["noise_rows"] == table["predicted"] else None),
            f"`{table['sha256'][:12]}`",
        )
        lines.append(row(cells))
    return "\n".join([*lines, ""])


def _by_operator(tables: list[dict[str, Any]]) -> str:
    """Mean errors: a line for each table and GPU, a column for each operator."""
    ops = list(dict.fromkeys(table["op"] for table in tables))
    lines = [
        row(("measured runs, mean error", "GPU", "type", "rows", *ops, "sha256 of the table")),
        "|---" * 3 + "|---:" * (1 + len(ops)) + "|---|",
    ]
    runs = dict.fromkeys((table["file"], table["gpu"], table["dtype"]) for table in tables)
    for run in runs:
        found = {table["op"]: table for table in tables if (table["file"], table["gpu"], table["dtype"]) == run}
        first = next(iter(found.values()))
        errors = (percent(found[op]["mape"]) if op in found else "" for op in ops)
        rows = sum(table["predicted"] for table in found.values())
        lines.append(row((Path(run[0]).stem, *run[1:], str(rows), *errors, f"`{first['sha256'][:12]}`")))
    return "\n".join([*lines, ""])


def _sentences(report: dict[str, Any]) -> Iterator[str]:
    """Paragraphs on the speedup between two GPUs and on the kernel choice."""
    ratio = report["speedups"]
    if ratio and ratio["pairs"]:
        medians = f"measured median {ratio['measured_median']:.2f}, predicted {ratio['predicted_median']:.2f}"
        slow = f"{ratio['slowdowns_found']} of {ratio['slowdowns']} slow-downs found"
        yield (
            f"Speedup of {ratio['gpu_b']} over {ratio['gpu_a']} on {ratio['pairs']} shapes timed on both: {medians}; "
            f"median error {percent(ratio['median_ape'])}; faster GPU named for {percent(ratio['faster_named_pct'])}; "
            f"{slow}, {ratio['slowdowns_invented']} invented.\n"
        )
    shares = [
        f"{score['gpu']} {score['op']} {percent(score['same_tile_pct'])} of {score['recorded']}"
        for score in report["kernel_choice"]
    ]
    if shares:
        yield f"Tile chosen as recorded: {', '.join(shares)}.\n"


def _rows(of_all: dict[str, Any]) -> str:
    return str(of_all["predicted"]) if not of_all["skipped"] else f"{of_all['predicted']} of {of_all['rows']}"


def percent(value: float | None, *, signed: bool = False) -> str:
    """A percentage with one digit, empty for None."""
    return "" if value is None else f"{value:{'+' if signed else ''}.1f} %"
