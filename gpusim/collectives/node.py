"""A node: GPUs of one kind, and what joins them."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated

from pydantic import Field

from gpusim.errors import InputError
from gpusim.hardware.gpu import BoardLink, Gpu
from gpusim.record import Microseconds, Record

GigabytesPerSecond = Annotated[float, Field(ge=0.01, le=1e5)]
"""Bandwidth in one direction [GB/s]: 1 to 450."""

NVLINK = "nvlink"
PCIE = "pcie"
"""Keys of the links of a GPU."""
NETWORK = "network"
"""Key of the network that joins nodes."""


class Node(Record):
    """A server or a part of one. Links themselves stand in the spec of the GPU."""

    name: str = Field(description="Name of the node.")
    aliases: tuple[str, ...] = Field(default=(), strict=False, description="Other names of the node.")
    boards: tuple[str, ...] = Field(
        min_length=1,
        strict=False,
        description="Names of the GPUs that it comes with; the first unless one is chosen.",
    )
    gpus: int = Field(ge=1, le=256, description="GPUs of the node.")
    board_deviation: float = Field(
        ge=0,
        le=1,
        description="Standard deviation of the speed of GPUs of one kind, relative to their median [0 to 1].",
    )
    switched: bool = Field(description="A switch joins all NVLink ports, so that any GPUs use all of theirs.")
    multicast_gb_per_s: GigabytesPerSecond | None = Field(
        default=None,
        description="Buffer over time of long all-reduces that the switch itself sums, where it can [GB/s].",
    )
    ring_links: dict[str, int] = Field(
        default={},
        description="NVLink ports that the rings of so many GPUs use on each of them, where there is no switch;"
        " larger groups meet over PCIe.",
    )
    peer_to_peer: bool = Field(description="GPUs write to each other over PCIe, without a copy in host memory.")
    host_memory_gb_per_s: GigabytesPerSecond | None = Field(
        default=None,
        description="Rate at which a GPU passes data on through host memory, while it reads as much [GB/s].",
    )
    host_memory_read_gb_per_s: GigabytesPerSecond | None = Field(
        default=None, description="Rate at which a GPU reads data that it does not pass on from host memory [GB/s]."
    )
    host_memory_hop_us: Microseconds | None = Field(
        default=None, description="Latency of passing a flag on through host memory [us]."
    )
    network_gb_per_s: GigabytesPerSecond | None = Field(
        default=None, description="Rate of all network adapters to other nodes, in one direction [GB/s]."
    )

    def gpus_each(self, gpus: int) -> int:
        """GPUs of a group in each node: all where one node holds them, else whole nodes joined by their network.

        Raises:
            InputError: it has fewer GPUs, and its network is not stated or other nodes would not be whole.
        """
        if gpus <= self.gpus:
            return gpus
        if self.network_gb_per_s is None:
            raise InputError(f"{self.name}: has {self.gpus} GPUs, {gpus} asked for; ask for fewer or for another node")
        if gpus % self.gpus:
            raise InputError(f"{self.name}: has {self.gpus} GPUs, {gpus} asked for; ask for those of whole nodes")
        return self.gpus

    def slowest(self, gpus: int) -> float:
        """Time of the slowest of some boards relative to a median one: the largest of as many normal deviates.

        G. Blom's approximation of their mean, 1958.
        """
        if gpus == 1:
            return 1.0
        return 1 + self.board_deviation * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))

    def nvlink_ports(self, gpu: Gpu, ranks: int) -> int:
        """NVLink ports of each GPU that rings of ``ranks`` GPUs use; 0 if the ring must take PCIe.

        Raises:
            InputError: larger rings are stated, and these are not.
        """
        if NVLINK not in gpu.links:
            return 0
        if self.switched:
            return gpu.links[NVLINK].count
        if str(ranks) not in self.ring_links and any(int(size) > ranks for size in self.ring_links):
            stated = ", ".join(self.ring_links)
            raise InputError(f"{self.name}: states rings of {stated} GPUs, not of {ranks}; add ring_links.{ranks}")
        return self.ring_links.get(str(ranks), 0)


def sustained_gb_per_s(link: BoardLink, count: int) -> float:
    """Rate that ``count`` links carry in one direction [GB/s]."""
    return count * link.gb_per_s * link.sustained_fraction
