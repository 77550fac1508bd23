"""NCCL's tuning constants: what the library believes of links, with which it chooses, and what its kernels reach.

The library estimates the time of every algorithm with every protocol and takes the shortest. ``LL`` sends a flag with
every 8 bytes, ``LL128`` with every 128, ``Simple`` fills a buffer and then raises one flag.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from gpusim.collectives.node import GigabytesPerSecond
from gpusim.record import Microseconds, Record

Algorithm = Literal["ring", "tree", "multicast"]
Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

ByProtocol = Annotated[tuple[Microseconds, Microseconds, Microseconds], Field(strict=False)]
"""Microseconds for LL, LL128 and Simple."""
Factor = Annotated[float, Field(gt=0, le=1)]


class BaseLatency(Record):
    """What a collective costs beside its hops [us], for LL, LL128 and Simple."""

    ring: ByProtocol = Field(description="Of a ring: LL, LL128, Simple [us].")
    tree: ByProtocol = Field(description="Of a tree: LL, LL128, Simple [us].")


class HopLatency(Record):
    """Latency from one GPU to the next over one kind of link [us], for LL, LL128 and Simple."""

    ring: ByProtocol = Field(description="In a ring: LL, LL128, Simple [us].")
    tree: ByProtocol = Field(description="In a tree: LL, LL128, Simple [us].")
    multicast_us: Microseconds = Field(description="Of an all-reduce that the switch sums [us].")


class Nccl(Record):
    """A version of the library."""

    version: str = Field(description="Version whose source states the constants.")
    base_latency: BaseLatency = Field(description="Latencies beside those of hops.")
    hop_latency: dict[str, HopLatency] = Field(description="Latencies of hops by kind of link: nvlink, pcie, network.")
    ring_plateau: dict[str, float] = Field(
        default={},
        description="Factor of the latency that the choice reckons with for a long all-reduce of several nodes in a"
        " ring, by compute capability.",
    )
    nvlink_gb_per_s: dict[str, GigabytesPerSecond] = Field(
        description="Rate of one NVLink that the choice reckons with, by compute capability [GB/s]."
    )
    pcie_fraction: Factor = Field(description="Share of the line rate of PCIe that the choice reckons with [0 to 1].")
    max_ll_gb_per_s: dict[str, GigabytesPerSecond] = Field(
        description="Highest rate of LL within a node, by compute capability [GB/s]."
    )
    multicast_channel_gb_per_s: Annotated[tuple[float, ...], Field(strict=False)] = Field(
        description="Rates that a channel may have where the switch sums, one channel a GPU [GB/s]."
    )
    tree_correction: dict[str, Annotated[tuple[Factor, ...], Field(strict=False)]] = Field(
        description="Factor of a tree's rate, by protocol, for buffers of 64 B, 128 B and so on."
    )
    message_ll_bytes: int = Field(ge=0, description="Longest message that is sent with LL [B].")
    ll128_gpus: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        description="Compute capabilities whose NVLink keeps 128 B together, so that LL128 may be used."
    )
    ll128_rate: dict[str, Factor] = Field(
        description="Rate of LL128 relative to that of Simple, by compute capability [0 to 1]."
    )
    ring_share: dict[str, Factor] = Field(
        description="Share of what the links sustain that rings reach over NVLink, by compute capability [0 to 1]."
    )
    channels: dict[str, int] = Field(description="CTAs of a collective over NVLink, by compute capability.")
    pcie_channels: int = Field(ge=0, description="CTAs of a collective over PCIe.")
    dram_passes: float = Field(
        ge=0, description="How often a byte that a GPU sends is read from its memory or written there."
    )
    copy_bytes_per_cycle: float = Field(
        gt=0, le=1024, description="Rate at which a CTA copies what arrived for its GPU alone [B/SM cycle]."
    )

    def channels_of(self, capability: str) -> int:
        """CTAs of a collective over NVLink; one where nothing is known of the compute capability."""
        return self.channels.get(capability, 1)
