"""Nodes, and times of collectives, as objects for JSON and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpusim.collectives.node import Node
from gpusim.collectives.timing import CollectiveTime
from gpusim.report.formatting import bytes_text, time_text
from gpusim.report.text_table import TextTable


def node_object(node: Node) -> dict[str, Any]:
    """What a node's file states, without sources."""
    return node.model_dump(mode="json", exclude_none=True)


def nodes_table(nodes: Sequence[Mapping[str, Any]]) -> TextTable:
    """A line per node."""
    rows = tuple(
        (node["name"], str(node["gpus"]), ", ".join(node["boards"]), _joined_by(node), ", ".join(node["aliases"]))
        for node in nodes
    )
    return TextTable("Nodes", ("node", ">GPUs", "kinds of GPU", "joined by", "also called"), rows)


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
