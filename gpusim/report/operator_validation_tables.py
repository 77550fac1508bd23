"""Errors of operators against measured ones as tables: a line per measured table, more on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from gpusim.host.timing_methods import HOST_METHODS
from gpusim.report.error_columns import ALL, COUNTED, ERRORS, counted_cells, error_cells, percent_text
from gpusim.report.formatting import shape_text, time_text
from gpusim.report.text_table import TextTable

YARDSTICKS = (">in p10-p90 %", ">bound's MAPE %", ">noise % (rows)")


def operator_validation_tables(report: Mapping[str, Any], *, by_stratum: bool, more: bool) -> list[TextTable]:
    """The tables to print.

    Args:
        report: the JSON object.
        by_stratum: also errors by the range of m and by memory or compute bound.
        more: also more metrics, recorded against chosen tiles, and the worst rows.
    """
    tables = [_error_table(report, more=more)]
    if by_stratum:
        tables.append(_strata_table(report))
    if any(_host_overheads(table) for table in report["tables"]):
        tables.append(_overhead_table(report))
    if report["kernel_choice"]:
        tables.append(_choice_table(report))
    if report["speedups"]:
        tables.append(_speedup_table(report["speedups"]))
    if more:
        tables += [_confusion_table(score) for score in report["kernel_choice"]]
        tables += [_worst_table(table) for table in report["tables"] if table["worst"]]
        tables += [_worst_pairs_table(report["speedups"])] if report["speedups"] else []
    if any(table["skipped"] for table in report["tables"]):
        tables.append(_skipped_table(report))
    return tables


def _stem(table: Mapping[str, Any]) -> str:
    """A measured file without its folder."""
    return PurePath(table["file"]).stem


def _place(table: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Table, GPU, data type and operator."""
    return _stem(table), table["gpu"], _type(table), table["op"]


def _type(table: Mapping[str, Any]) -> str:
    return table["dtype"] if table["sparsity"] == "dense" else f"{table['dtype']} {table['sparsity']}"


def _error_table(report: Mapping[str, Any], *, more: bool) -> TextTable:
    """A line of errors per table, and one for all."""
    metrics = {**ERRORS, **({">median bias %": "median_bias"} if more else {})}
    ratios = {**({">geomean ratio": "geomean_ratio"} if more else {}), ">Spearman": "spearman"}
    body = [
        (
            *place,
            *counted_cells(table),
            *error_cells(table, metrics.values()),
            *(_ratio(table[name]) for name in ratios.values()),
            *_yardsticks(table),
            f"{table['seconds']:.1f}",
        )
        for place, table in (
            *((_place(table), table) for table in report["tables"]),
            (ALL, report["overall"]),
        )
    ]
    headings = ("table", "GPU", "type", "op", *COUNTED, *metrics, *ratios, *YARDSTICKS, ">s")
    return TextTable(f"Predicted against measured ({report['detail']})", headings, tuple(body))


def _strata_table(report: Mapping[str, Any]) -> TextTable:
    """Errors of each table by range of m and by memory or compute bound."""
    body = [
        (
            *place,
            stratum["m"],
            stratum["bound_by"],
            str(stratum["rows"]),
            *error_cells(stratum),
            *(_ratio(stratum[name]) for name in ("geomean_ratio", "spearman")),
            *_yardsticks(stratum),
        )
        for place, table in (
            *((_place(table), table) for table in report["tables"]),
            (ALL, report["overall"]),
        )
        for stratum in table["strata"]
    ]
    headings = ("table", "GPU", "type", "op", "m", "bound by", ">rows", *ERRORS, ">geomean ratio", ">Spearman")
    return TextTable("By m and by memory or compute bound (closed form)", (*headings, *YARDSTICKS), tuple(body))


def _host_overheads(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Overheads of the timing methods whose readings contain host time."""
    return [one for one in table["method_overheads"] if one["method"] in HOST_METHODS]


def _overhead_table(report: Mapping[str, Any]) -> TextTable:
    """Host time in readings; the value of a spec is that of the hosts it was fitted to."""
    given = report["overheads_us"]
    body = tuple(
        (
            *_place(table),
            str(one["rows"]),
            one["method"],
            time_text(one["median_us"]),
            percent_text(one["median_pct"]),
            "--overhead" if one["method"] in given else "spec",
        )
        for table in report["tables"]
        for one in _host_overheads(table)
    )
    headings = ("table", "GPU", "type", "op", ">rows", "method", ">adds (median)", ">% of predicted", "value from")
    title = "Host time that each timing method adds to the kernels (--overhead METHOD=US sets that of your host)"
    return TextTable(title, headings, body)


def _yardsticks(metrics: Mapping[str, Any]) -> tuple[str, str, str]:
    """Readings in their intervals, the error of the closed-form bound, and that of readings with its rows."""
    known = metrics["noise_rows"]
    noise = f"{metrics['noise_pct']:.2f} ({known})" if known else "-"
    return percent_text(metrics["inside_pct"]), percent_text(metrics["bound_mape"]), noise


def _choice_table(report: Mapping[str, Any]) -> TextTable:
    """How the kernel choice compares with recorded kernels, per GPU and operator."""
    shares = {
        ">same tile %": "same_tile_pct",
        ">same split-K %": "same_split_pct",
        ">both %": "same_tile_and_split_pct",
    }
    costs = {
        ">time lost (+) or won (-) %": "time_pct",
        ">MAPE % as chosen": "chosen_mape",
        ">MAPE % as recorded": "pinned_mape",
    }
    body = tuple(
        (
            score["gpu"],
            score["op"],
            str(score["recorded"]),
            *error_cells(score, shares.values()),
            str(score["pinned"]),
            *error_cells(score, costs.values()),
        )
        for score in (*report["kernel_choice"], {"gpu": "all", "op": "", **report["overall"]["kernel_choice"]})
    )
    headings = ("GPU", "op", ">recorded", *shares, ">in catalogue", *costs)
    return TextTable("Kernel choice against recorded kernels", headings, body)


def _confusion_table(score: Mapping[str, Any]) -> TextTable:
    """Rows by recorded tile (down) and chosen tile (across)."""
    cells = {(cell["recorded"], cell["chosen"]): cell["rows"] for cell in score["confusion"]}
    chosen = sorted({tile for _, tile in cells}, key=_tile_order)
    body = tuple(
        (tile, *(str(cells.get((tile, other), "")) for other in chosen))
        for tile in sorted({tile for tile, _ in cells}, key=_tile_order)
    )
    title = f"Recorded tile (down) against chosen tile (across), {score['gpu']} {score['op']}, rows"
    return TextTable(title, ("recorded", *(f">{tile}" for tile in chosen)), body)


def _tile_order(tile: str) -> tuple[int, ...]:
    """Small tiles first; the kernels without one before them."""
    return tuple(int(extent) for extent in tile.split("x")) if tile[0].isdigit() else ()


def _worst_table(table: Mapping[str, Any]) -> TextTable:
    """The rows of one table with the largest errors, and the causes of their predicted times."""
    body = tuple(
        (
            str(row["line"]),
            shape_text(row),
            row["layout"],
            time_text(row["measured_us"]),
            time_text(row["predicted_us"]),
            f"{row['error_pct']:+.1f}",
            row["bottleneck"],
            row["dominant_stall"],
            f"{row['clock_mhz']:.0f}" + (" (power)" if row["power_limited"] else ""),
            f"{row['waves']:.2f}",
            _split(row["kernel"], row["split_k"]),
            _split(row["recorded_kernel"], row["recorded_split_k"]),
        )
        for row in table["worst"]
    )
    headings = (">line", ">m x n x k", "layout", ">measured", ">predicted", ">error %", "bottleneck", "stall")
    kernels = ("clock MHz", ">waves", "kernel", "recorded kernel")
    return TextTable(f"Largest errors in {' '.join(_place(table))}", (*headings, *kernels), body)


def _split(kernel: str, split_k: int | None) -> str:
    """A kernel's name, with its split-K where there is one."""
    return f"{kernel} split-K {split_k}" if kernel and split_k and split_k > 1 else kernel


def _speedup_table(speedups: Mapping[str, Any]) -> TextTable:
    """Predicted against measured ratios, a line per operator and data type."""
    groups = [(one["op"], _type(one), one) for one in speedups["groups"]]
    ratios = {">measured median": "measured_median", ">predicted median": "predicted_median"}
    slow = {">slow-downs": "slowdowns", ">found": "slowdowns_found", ">missed": "slowdowns_missed"}
    body = tuple(
        (
            op,
            dtype,
            str(one["pairs"]),
            *(_ratio(one[name]) for name in ratios.values()),
            *error_cells(one),
            _ratio(one["spearman"]),
            percent_text(one["faster_named_pct"]),
            *(str(one[name]) for name in (*slow.values(), "slowdowns_invented")),
            percent_text(one["bound_mape"]),
        )
        for op, dtype, one in (*groups, ("all", "", speedups))
    )
    headings = ("op", "type", ">shapes", *ratios, *ERRORS, ">Spearman", ">faster GPU named %", *slow, ">invented")
    title = (
        f"Speedup of {speedups['gpu_b']} over {speedups['gpu_a']}, predicted against measured; "
        f"runs without a counterpart: {speedups['unpaired_a']} on {speedups['gpu_a']}, "
        f"{speedups['unpaired_b']} on {speedups['gpu_b']}; without a prediction: {speedups['skipped']}"
    )
    return TextTable(title, (*headings, ">bound's MAPE %"), body)


def _worst_pairs_table(speedups: Mapping[str, Any]) -> TextTable:
    """The shapes with the largest errors of the ratio, with the error on either GPU."""
    first, second = speedups["gpu_a"], speedups["gpu_b"]
    body = tuple(
        (
            row["op"],
            row["dtype"],
            shape_text(row),
            row["layout"],
            _ratio(row["measured"]),
            _ratio(row["predicted"]),
            *(f"{row[name]:+.1f}" for name in ("error_pct", "error_a_pct", "error_b_pct")),
            *(row[f"{what}_{side}"] for side in "ab" for what in ("bottleneck", "kernel")),
        )
        for row in speedups["worst"]
    )
    headings = ("op", "type", ">m x n x k", "layout", ">measured", ">predicted", ">error %")
    sides = (
        f">error % {first}",
        f">error % {second}",
        "bottleneck",
        f"kernel {first}",
        "bottleneck",
        f"kernel {second}",
    )
    return TextTable(f"Largest errors of the speedups of {second} over {first}", (*headings, *sides), body)


def _skipped_table(report: Mapping[str, Any]) -> TextTable:
    """How many rows have no prediction, and why."""
    reasons: Sequence[tuple[str, ...]] = [
        (*_place(table), str(count), reason)
        for table in report["tables"]
        for reason, count in table["skip_reasons"].items()
    ]
    return TextTable("Skipped rows", ("table", "GPU", "type", "op", ">rows", "reason"), tuple(reasons))


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
