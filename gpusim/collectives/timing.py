"""The time of a collective.

Each GPU passes parts of the buffer on around the ring. Its links are busy with all parts but the last one that
arrives, which it copies for itself while it sends nothing: that is why two GPUs reach less than eight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.collectives.choice import Plan, duration_us, plans, ring_hops_us, tree_hops_us
from gpusim.collectives.nccl import PROTOCOLS, Nccl
from gpusim.collectives.node import NETWORK, NVLINK, Node
from gpusim.collectives.route import Route, route_of
from gpusim.hardware.gpu import Gpu
from gpusim.units import GIGA, MEGA
from gpusim.workloads.collective import Collective


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Time of a collective on GPUs of a node, or of several nodes."""

    collective: Collective
    route: Route
    plan: Plan
    """Algorithm and protocol that the library chooses."""
    time_us: float
    """From the first kernel's start to the last one's end, if all GPUs begin together [us]."""
    bound_us: float
    """What each GPU has to send, at the line rate of its links [us]."""
    ctas: int
    """CTAs of the library's kernel, each on an SM of its own."""
    dram_gb_per_s: float
    """Rate at which each GPU's memory is read and written meanwhile [GB/s]."""

    @property
    def bus_gb_per_s(self) -> float:
        """Bytes that each GPU has to send, over the time [GB/s]: nccl-tests' bus bandwidth."""
        return self.collective.sent_bytes / GIGA / (self.time_us / MEGA)


def time_collective(collective: Collective, node: Node, gpu: Gpu, nccl: Nccl) -> CollectiveTime:
    """The time of a collective as the library carries it out.

    Raises:
        InputError: the node has fewer GPUs than the collective and no network, or its links are not stated.
    """
    route = route_of(node, gpu, nccl, collective.ranks)
    plan = plans(collective, route, nccl)[0]
    time_us = _time_us(collective, route, nccl, plan)
    ctas = nccl.channels_of(route.capability) if route.link == NVLINK else nccl.pcie_channels
    dram_gb_per_s = nccl.dram_passes * collective.sent_bytes / GIGA / (time_us / MEGA)
    return CollectiveTime(
        collective, route, plan, time_us, _bound_us(collective, node, gpu, route), ctas, dram_gb_per_s
    )


def _time_us(collective: Collective, route: Route, nccl: Nccl, plan: Plan) -> float:
    match plan.algorithm:
        case "ring":
            return _ring_us(collective, route, nccl, plan)
        case "tree":
            return _tree_us(collective, route, nccl, plan)
        case "multicast":
            assert route.multicast_gb_per_s is not None  # else it is not a plan
            latency = nccl.base_latency.ring[PROTOCOLS.index("Simple")] + nccl.hop_latency[route.link].multicast_us
            return latency + duration_us(collective.size_bytes, route.multicast_gb_per_s)


def _ring_us(collective: Collective, route: Route, nccl: Nccl, plan: Plan) -> float:
    at = PROTOCOLS.index(plan.protocol)
    # A message waits for its flag alone, a part of a ring for the part before it.
    hop_at = PROTOCOLS.index("LL") if collective.is_point_to_point else at
    hop_us = _hop_us(route, nccl.hop_latency[route.link].ring, hop_at)
    between_us = nccl.hop_latency[NETWORK].ring[hop_at]
    rate = _rate(route, nccl, plan) * (1.0 if collective.is_point_to_point else route.ring_share)
    time_us = nccl.base_latency.ring[at] + ring_hops_us(collective, route.nodes, hop_us, between_us)
    time_us += duration_us(collective.sent_bytes, rate)
    part_bytes = collective.size_bytes / collective.ranks
    if collective.op == "all_to_all":
        time_us += duration_us(part_bytes, route.copy_gb_per_s)  # what it keeps
    elif plan.protocol == "Simple" and collective.op not in ("broadcast", "send_recv"):
        time_us += hop_us + duration_us(part_bytes, route.take_gb_per_s)
    return time_us


def _tree_us(collective: Collective, route: Route, nccl: Nccl, plan: Plan) -> float:
    """Up a chain of all GPUs and down again: every link carries the whole buffer in both directions."""
    at = PROTOCOLS.index(plan.protocol)
    hop_us = _hop_us(route, nccl.hop_latency[route.link].tree, at)
    between_us = nccl.hop_latency[NETWORK].tree[at]
    latency = nccl.base_latency.tree[at] + tree_hops_us(collective, route.nodes, hop_us, between_us)
    return latency + duration_us(2 * collective.size_bytes, _rate(route, nccl, plan))


def _hop_us(route: Route, by_protocol: tuple[float, float, float], at: int) -> float:
    """Latency of a hop with the protocol at a place of ``PROTOCOLS`` [us]; LL's flags may go through host memory."""
    return route.flag_us if route.flag_us is not None and PROTOCOLS[at] == "LL" else by_protocol[at]


def _rate(route: Route, nccl: Nccl, plan: Plan) -> float:
    """Payload that each GPU sends in a protocol [GB/s]."""
    match plan.protocol:
        case "LL":  # 8 of 16 bytes are flags
            limit = nccl.max_ll_gb_per_s.get(route.capability, math.inf) if route.link == NVLINK else math.inf
            return min(limit, route.sustained_gb_per_s / 2)
        case "LL128":
            return route.sustained_gb_per_s * nccl.ll128_rate[route.capability]
        case "Simple":
            return route.sustained_gb_per_s


def _bound_us(collective: Collective, node: Node, gpu: Gpu, route: Route) -> float:
    """Every GPU sends its share at the line rate; a switch that sums takes each buffer once."""
    each = node.gpus_each(collective.ranks)
    ports = node.nvlink_ports(gpu, each) if route.link == NVLINK else gpu.links[route.link].count
    sent = min(collective.sent_bytes, collective.size_bytes) if route.multicast_gb_per_s else collective.sent_bytes
    rate = ports * gpu.links[route.link].gb_per_s
    return duration_us(sent, min(rate, node.network_gb_per_s or rate) if route.nodes > 1 else rate)
