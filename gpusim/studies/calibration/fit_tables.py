"""The tables of ``gpusim calibrate`` from its JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusim.report.text_table import TextTable


def calibration_tables(report: Mapping[str, Any]) -> list[TextTable]:
    """Fitted values, the heuristic bias, and the errors before and after."""
    tables = [_parameter_table(report), _bias_table(report["bias"], "")]
    tables += [_bias_table(found, f" of {name}") for name, found in report["older"].items()]
    tables.append(_error_table(report))
    tables.append(_without_table(report))
    tables.append(_timing_table(report))
    if report["choices"]:
        tables.append(_choice_table(report["choices"]))
    if report["left_out"]:
        tables.append(_left_out_table(report))
    return tables


def library_tables(report: Mapping[str, Any]) -> list[TextTable]:
    """The weights that libraries share, and how shapes left out of the fit come out."""
    rows = [
        (
            *(one["table"], one["gpu"], one["dtype"], str(one["timed"]), _figure(one["mape"], 1)),
            *(str(one["recorded"]), _figure(one["log_loss"], 2), _figure(one["same_kernel_pct"], 1)),
        )
        for one in report["scores"]
    ]
    headings = ("table", "GPU", "type", ">timed", ">MAPE %", ">recorded", ">log-loss", ">same kernel %")
    tables = [
        _bias_table(report["bias"], f" {report['library']}"),
        TextTable(
            "Rows in cross-validation by shape, with shared weights and with weights of each library",
            headings,
            tuple(rows),
        ),
    ]
    return [*tables, _left_out_table(report)] if report["left_out"] else tables


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _parameter_table(report: Mapping[str, Any]) -> TextTable:
    rows = [
        (
            one["key_path"],
            f"{one['before']:.4g}",
            one["kind"],
            f"{one['after']:.4g}",
            f"{one['low']:.4g} to {one['high']:.4g}",
            _remark(one),
        )
        for one in report["parameters"]
    ]
    headings = ("value", ">before", "kind", ">after", ">95 %", "")
    title = f"{report['arch']}: values, fitted to {report['sampled_rows']} of {report['rows']} rows"
    return TextTable(title, headings, tuple(rows))


def _remark(one: Mapping[str, Any]) -> str:
    stated = f"the spec had {one['stated']}" if one["stated"] else ""
    remark = "at its limit" if one["at_limit"] else f"unchanged: {one['reason']}" if one["reason"] else ""
    return "; ".join(filter(None, (stated, remark)))


def _bias_table(bias: Mapping[str, float], whose: str) -> TextTable:
    rows = tuple((name, f"{value:+.3f}") for name, value in bias.items() if value)
    return TextTable(f"Heuristic bias of the library{whose} (logarithms of time)", ("weight", ">bias"), rows)


def _error_table(report: Mapping[str, Any]) -> TextTable:
    rows = []
    for one in report["errors"]:
        metrics = [
            f"{one[f'{when}_{metric}']:.1f}"
            for when in ("before", "after", "held_out")
            for metric in ("mape", "median_ape")
        ]
        rows.append((one["table"], one["gpu"], one["dtype"], one["op"], str(one["rows"]), *metrics))
    headings = (
        "table", "GPU", "type", "op", ">rows", ">MAPE % before", ">median %", ">MAPE % after", ">median %",
        ">MAPE % held out", ">median %",
    )  # fmt: skip
    return TextTable("Errors with the kernels that a prediction selects", headings, tuple(rows))


def _without_table(report: Mapping[str, Any]) -> TextTable:
    rows = []
    for one in report["without"]:
        errors = (one["mape"], one["median_ape"], one["bias"])
        metrics = ["not testable", "", ""] if one["mape"] is None else [f"{value:.1f}" for value in errors]
        rows.append((one["kind"], one["name"], str(one["rows"]), *metrics))
    headings = ("without", "", ">rows", ">MAPE %", ">median %", ">median error %")
    return TextTable("Errors on a source or a GPU that the fit left out", headings, tuple(rows))


def _timing_table(report: Mapping[str, Any]) -> TextTable:
    """A line for each source's own value, or for none."""
    rows = []
    for one in report["own_timing"]:
        values = one["values"]
        rows.append(
            (
                one["source"],
                str(one["rows"]),
                " + ".join(of["key_path"].split(".")[1] for of in values) or "none",
                " + ".join(f"{of['own_us']:.3g}" for of in values),
                " + ".join(f"{of['neutral_us']:.3g}" for of in values),
                *(f"{100 * one['share']:.1f}", f"{one['mape_without']:.1f}", f"{one['mape']:.1f}"),
            )
        )
    headings = (
        *("source", ">rows", "own value", ">us", ">neutral us", ">share of time %"),
        *(">MAPE % with neutral", ">MAPE % with own"),
    )
    return TextTable("Timing values of each source: errors with neutral values and with its own", headings, tuple(rows))


def _choice_table(found: Mapping[str, Any]) -> TextTable:
    row = (str(found["rows"]), f"{found['log_loss']:.2f}", f"{found['same_kernel_pct']:.1f}")
    return TextTable("Recorded kernels in cross-validation by shape", (">rows", ">log-loss", ">same kernel %"), (row,))


def _left_out_table(report: Mapping[str, Any]) -> TextTable:
    rows = tuple((str(count), reason) for reason, count in report["left_out"].items())
    return TextTable("Rows that were not used", (">rows", "reason"), rows)
