"""The library's choice: the time that NCCL expects of each algorithm and protocol, and the shortest.

These are the formulas of ``ncclTopoTuneModel`` and ``ncclTopoGetAlgoTime`` (NVIDIA/nccl src/graph/tuning.cc); caps of
rates per channel are left out, which no node here reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpusim.collectives.nccl import PROTOCOLS, Algorithm, Nccl, Protocol
from gpusim.collectives.node import NETWORK, NVLINK
from gpusim.collectives.route import Route
from gpusim.units import GIGA, MEGA
from gpusim.workloads.collective import Collective

LL_SHARE = {"all_reduce": 1 / 4}
"""Share of the rate that LL is expected to reach in a ring; a third in all others."""
LL128_SHARE = 0.92
"""120 of 128 bytes, as the library rounds it."""
TREE_SHARE = 0.92
TREE_LL_SHARE = 1 / 3.8
TREE_LL128_SHARE = 7 / 9
MULTICAST_SHARE = 5 / 6


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to carry out a collective."""

    algorithm: Algorithm
    protocol: Protocol
    expected_us: float
    """Time that the library expects [us]."""


def plans(collective: Collective, route: Route, nccl: Nccl) -> tuple[Plan, ...]:
    """All ways, the one that the library takes first. Messages are not tuned: short ones go with LL."""
    if collective.is_point_to_point:
        short = collective.message_bytes <= nccl.message_ll_bytes
        protocol: Protocol = "LL" if short else "Simple"
        return (Plan("ring", protocol, _ring_us(collective, route, nccl, protocol)),)
    protocols = _protocols(route, nccl)
    found = [Plan("ring", protocol, _ring_us(collective, route, nccl, protocol)) for protocol in protocols]
    if collective.op == "all_reduce":
        found += [Plan("tree", protocol, _tree_us(collective, route, nccl, protocol)) for protocol in protocols]
        if route.multicast_gb_per_s is not None:
            found.append(Plan("multicast", "Simple", _multicast_us(collective, route, nccl)))
    return tuple(sorted(found, key=lambda plan: plan.expected_us))


def _protocols(route: Route, nccl: Nccl) -> tuple[Protocol, ...]:
    has_ll128 = route.link == NVLINK and route.capability in nccl.ll128_gpus
    return tuple(one for one in PROTOCOLS if one != "LL128" or has_ll128)


def _ring_us(collective: Collective, route: Route, nccl: Nccl, protocol: Protocol) -> float:
    rate, at = route.believed_gb_per_s, PROTOCOLS.index(protocol)
    if protocol == "LL":
        rate = min(_max_ll(route, nccl), rate * LL_SHARE.get(collective.op, 1 / 3))
    elif protocol == "LL128":
        rate *= LL128_SHARE
    hop_us, between_us = nccl.hop_latency[route.link].ring[at], nccl.hop_latency[NETWORK].ring[at]
    latency = nccl.base_latency.ring[at] + ring_hops_us(collective, route.nodes, hop_us, between_us)
    if route.nodes > 1 and collective.op == "all_reduce" and protocol == "Simple":
        latency *= nccl.ring_plateau.get(route.capability, 1.0)
    return latency + duration_us(collective.sent_bytes, rate)


def _tree_us(collective: Collective, route: Route, nccl: Nccl, protocol: Protocol) -> float:
    rate, at = route.believed_gb_per_s * TREE_SHARE, PROTOCOLS.index(protocol)
    if protocol == "LL":
        rate = min(rate * TREE_LL_SHARE, _max_ll(route, nccl))
    elif protocol == "LL128":
        rate *= TREE_LL128_SHARE
    factors = nccl.tree_correction[protocol]
    size = max(0, math.floor(math.log2(max(1.0, collective.size_bytes / 64))))
    rate *= factors[size] if size < len(factors) else 1.0
    hop_us, between_us = nccl.hop_latency[route.link].tree[at], nccl.hop_latency[NETWORK].tree[at]
    latency = nccl.base_latency.tree[at] + tree_hops_us(collective, route.nodes, hop_us, between_us)
    return latency + duration_us(2 * collective.size_bytes, rate)


def ring_hops_us(collective: Collective, nodes: int, hop_us: float, between_us: float) -> float:
    """Latency of a ring's steps, of which some go from node to node [us]."""
    between = collective.ring_steps * (nodes - 1) // (collective.ranks - 1) if nodes > 1 else 0
    return (collective.ring_steps - between) * hop_us + between * between_us


def tree_hops_us(collective: Collective, nodes: int, hop_us: float, between_us: float) -> float:
    """Latency up and down a tree of nodes, in each of which a chain joins its GPUs [us]."""
    return 2 * ((collective.ranks // nodes - 1) * hop_us + math.floor(math.log2(nodes)) * between_us)


def _multicast_us(collective: Collective, route: Route, nccl: Nccl) -> float:
    """One channel a GPU; their rates are taken from a list, and together exceed the links by no more than one part."""
    ranks = collective.ranks
    most = route.believed_gb_per_s * ranks / (ranks - 1)
    rates = [rate for rate in nccl.multicast_channel_gb_per_s if rate * ranks <= most]
    rate = ranks * max(rates, default=min(nccl.multicast_channel_gb_per_s)) * MULTICAST_SHARE
    return nccl.hop_latency[route.link].multicast_us + duration_us(collective.size_bytes, rate)


def _max_ll(route: Route, nccl: Nccl) -> float:
    return nccl.max_ll_gb_per_s.get(route.capability, math.inf)


def duration_us(size_bytes: float, rate_gb_per_s: float) -> float:
    """Time of so many bytes at a rate [us].

    >>> duration_us(1e6, 10.0)
    100.0
    """
    return size_bytes / (rate_gb_per_s * GIGA) * MEGA
