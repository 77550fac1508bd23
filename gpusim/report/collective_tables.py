"""Nodes, times of collectives, and their errors against measured ones, as objects for JSON and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from gpusim.collectives.node import Node
from gpusim.collectives.timing import CollectiveTime
from gpusim.report.formatting import bytes_text, time_text
from gpusim.report.text_table import TextTable

ERRORS = {
    ">MAPE %": "mape",
    ">median %": "median_ape",
    ">p90 %": "p90_ape",
    ">bias %": "bias",
    ">bound's MAPE %": "bound_mape",
}


def node_object(node: Node) -> dict[str, Any]:
    """What a node's file states, without sources."""
    return node.model_dump(mode="json", exclude_none=True)


def nodes_table(nodes: Sequence[Mapping[str, Any]]) -> TextTable:
    """A line per node."""
    rows = tuple(
        (node["name"], str(node["gpus"]), ", ".join(node["boards"]), _joined_by(node), ", ".join(node["aliases"]))
        for node in nodes
    )
    return TextTable("Nodes", ("node", ">GPUs", "boards", "joined by", "also called"), rows)


def _joined_by(node: Mapping[str, Any]) -> str:
    if node["switched"]:
        return "NVSwitch" + (" that sums" if "multicast_gb_per_s" in node else "")
    if node["ring_links"]:
        return "NVLink between " + ", ".join(node["ring_links"])
    return "PCIe" if node["peer_to_peer"] else "PCIe and host memory"


def node_table(values: Sequence[tuple[str, object, str, str]], name: str) -> TextTable:
    """Every value of a node with its source."""
    rows = tuple((key, str(value), kind, source) for key, value, kind, source in values)
    return TextTable(name, ("key", ">value", "kind", "source"), rows)


def time_object(found: CollectiveTime) -> dict[str, Any]:
    """One collective with its time and what the library chose."""
    return {
        "op": found.collective.op,
        "size_bytes": found.collective.size_bytes,
        "gpus": found.collective.ranks,
        "time_us": found.time_us,
        "bound_us": found.bound_us,
        "bus_gb_per_s": found.bus_gb_per_s,
        "link": found.route.link,
        "algorithm": found.plan.algorithm,
        "protocol": found.plan.protocol,
    }


def times_table(found: Sequence[Mapping[str, Any]], node: str) -> TextTable:
    """A line per size."""
    rows = tuple(
        (
            one["op"],
            str(one["gpus"]),
            bytes_text(one["size_bytes"]),
            time_text(one["time_us"]),
            f"{one['bus_gb_per_s']:.1f}",
            time_text(one["bound_us"]),
            one["link"],
            one["algorithm"],
            one["protocol"],
        )
        for one in found
    )
    headings = ("collective", ">GPUs", ">size", ">time", ">bus GB/s", ">bound", "link", "algorithm", "protocol")
    return TextTable(f"Collectives on {node}", headings, rows)


def collective_validation_tables(report: Mapping[str, Any]) -> list[TextTable]:
    """A line per table, node, operation, GPUs and size; a line per size for all; what was skipped."""
    headings = ("table", "node", "collective", "type", ">nodes", ">GPUs", "size", ">rows", ">skipped", *ERRORS)
    rows = [
        (
            PurePath(one["file"]).stem,
            one["gpu"],
            one["op"],
            one["dtype"],
            str(one["nodes"]),
            str(one["gpus"]),
            one["size"],
            *_figures(one),
        )
        for one in report["tables"]
        if one["predicted"]
    ]
    rows += [("all", "", "", "", "", "", one["size"], *_figures(one)) for one in report["sizes"]]
    tables = [TextTable("Predicted against measured collectives", headings, tuple(rows))]
    skipped = report["overall"]["skip_reasons"]
    if skipped:
        counts = tuple((str(count), reason) for reason, count in skipped.items())
        tables.append(TextTable("Not predicted", (">rows", "reason"), counts))
    return tables


def _figures(one: Mapping[str, Any]) -> tuple[str, ...]:
    errors = ("-" if one[name] is None else f"{one[name]:.1f}" for name in ERRORS.values())
    return (str(one["rows"]), str(one["skipped"]), *errors)
