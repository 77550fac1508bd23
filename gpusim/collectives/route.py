"""The route of a collective: the links that its GPUs use, and what they carry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpusim.collectives.nccl import Nccl
from gpusim.collectives.node import NVLINK, PCIE, Node, sustained_gb_per_s
from gpusim.errors import InputError
from gpusim.hardware.gpu import Gpu
from gpusim.units import GIGA, MEGA


@dataclass(frozen=True, slots=True)
class Route:
    """Rates of a group of GPUs in one direction [GB/s]."""

    link: str
    """``nvlink`` or ``pcie``."""
    capability: str
    sustained_gb_per_s: float
    """At which each GPU sends to the next while it receives as much."""
    believed_gb_per_s: float
    """Rate with which the library chooses [GB/s]."""
    ring_share: float
    """Fraction of the line rate that the library's rings reach."""
    take_gb_per_s: float
    """Rate at which a GPU takes data that it does not pass on [GB/s]; it sends nothing meanwhile."""
    copy_gb_per_s: float
    """Rate at which a GPU copies within its own memory [GB/s]."""
    flag_us: float | None
    """Latency of a flag through host memory; None where GPUs write to each other."""
    multicast_gb_per_s: float | None
    """Rate of all-reduces that the switch sums [GB/s]; None where it cannot."""
    nodes: int = 1
    """Nodes that the GPUs are in, each with as many."""


def route_of(node: Node, gpu: Gpu, nccl: Nccl, ranks: int) -> Route:
    """The links that ``ranks`` GPUs of a node, or of several like it, use.

    Rings pass each adapter of a node once, so that together they carry what its adapters carry. The library reckons
    with the links of a node for two of them.

    Raises:
        InputError: the node has fewer GPUs and no network, or the spec of the GPU lacks its links.
    """
    each = node.gpus_each(ranks)
    if PCIE not in gpu.links:
        raise InputError(f"{gpu.name}: its spec states no links.pcie; add them")
    ports = node.nvlink_ports(gpu, each)
    route = _over_nvlink(node, gpu, nccl, each, ports) if ports else _over_pcie(node, gpu, nccl)
    if each == ranks or node.network_gb_per_s is None:
        return route
    nodes, network = ranks // each, node.network_gb_per_s
    believed = route.believed_gb_per_s if nodes == 2 else min(network, route.believed_gb_per_s)
    sustained = min(network, route.sustained_gb_per_s)
    return replace(
        route,
        nodes=nodes,
        sustained_gb_per_s=sustained,
        believed_gb_per_s=believed,
        multicast_gb_per_s=None,
    )


def _over_nvlink(node: Node, gpu: Gpu, nccl: Nccl, ranks: int, ports: int) -> Route:
    believed = nccl.nvlink_gb_per_s.get(gpu.compute_capability)
    if believed is None:
        known = ", ".join(nccl.nvlink_gb_per_s)
        raise InputError(
            f"{gpu.name}: NCCL states no NVLink of compute capability {gpu.compute_capability}, only {known}"
        )
    copy = _copy_gb_per_s(gpu, nccl)
    return Route(
        link=NVLINK,
        capability=gpu.compute_capability,
        sustained_gb_per_s=sustained_gb_per_s(gpu.links[NVLINK], ports),
        believed_gb_per_s=ports * believed,
        ring_share=nccl.ring_share.get(gpu.compute_capability, 1.0),
        take_gb_per_s=copy,
        copy_gb_per_s=copy,
        flag_us=None,
        multicast_gb_per_s=node.multicast_gb_per_s if ranks > 2 else None,
    )


def _over_pcie(node: Node, gpu: Gpu, nccl: Nccl) -> Route:
    pcie, copy = gpu.links[PCIE], _copy_gb_per_s(gpu, nccl)
    direct = Route(
        link=PCIE,
        capability=gpu.compute_capability,
        sustained_gb_per_s=sustained_gb_per_s(pcie, pcie.count),
        believed_gb_per_s=pcie.count * pcie.gb_per_s * nccl.pcie_fraction,
        ring_share=1.0,
        take_gb_per_s=copy,
        copy_gb_per_s=copy,
        flag_us=None,
        multicast_gb_per_s=None,
    )
    if node.peer_to_peer:
        return direct
    through, read, flag_us = node.host_memory_gb_per_s, node.host_memory_read_gb_per_s, node.host_memory_hop_us
    if through is None or read is None or flag_us is None:
        raise InputError(f"{node.name}: peer_to_peer is false; state host_memory_gb_per_s, _read_gb_per_s and _hop_us")
    return replace(direct, sustained_gb_per_s=through, take_gb_per_s=read, flag_us=flag_us)


def _copy_gb_per_s(gpu: Gpu, nccl: Nccl) -> float:
    return nccl.channels_of(gpu.compute_capability) * nccl.copy_bytes_per_cycle * gpu.clock.max_mhz * MEGA / GIGA
