"""Collectives: what GPUs that hold parts of one model exchange.

Sizes count as those of NVIDIA's nccl-tests: the buffer of an all-reduce, a broadcast or a message, the gathered result
of an all-gather, the operand of a reduce-scatter, and what one GPU holds in an all-to-all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"]
COLLECTIVE_OPS: tuple[str, ...] = get_args(CollectiveOp)


@dataclass(frozen=True, slots=True)
class Collective:
    """One exchange between ``ranks`` GPUs of a node.

    Raises:
        ValueError: an unknown operation, fewer than two GPUs, or a size that is not positive.

    >>> Collective("all_reduce", 1e6, 4).sent_bytes
    1500000.0
    """

    op: CollectiveOp
    size_bytes: float
    ranks: int

    def __post_init__(self) -> None:
        if self.op not in COLLECTIVE_OPS:
            raise ValueError(f"op: expected one of {', '.join(COLLECTIVE_OPS)}, got '{self.op}'")
        if self.ranks < 2:
            raise ValueError(f"ranks: a collective needs two GPUs, got {self.ranks}")
        if not self.size_bytes > 0:
            raise ValueError(f"size_bytes: expected a positive size, got {self.size_bytes}")

    @property
    def ring_steps(self) -> int:
        """Sends of one GPU in a ring for one part of the buffer; each passes ``size / ranks`` on."""
        match self.op:
            case "all_reduce":
                return 2 * (self.ranks - 1)
            case "broadcast" | "send_recv":
                return 1
        return self.ranks - 1

    @property
    def flops(self) -> int:
        """None that count: a sum of gradients is not work of the model."""
        return 0

    @property
    def is_point_to_point(self) -> bool:
        """Made of single messages, which the library does not tune."""
        return self.op in ("all_to_all", "send_recv")

    @property
    def message_bytes(self) -> float:
        """Size of a message, where the exchange is made of messages [B]."""
        return self.size_bytes / self.ranks if self.op == "all_to_all" else self.size_bytes

    @property
    def sent_bytes(self) -> float:
        """What each GPU sends at least [B], with which nccl-tests defines the bus bandwidth."""
        if self.op in ("broadcast", "send_recv"):
            return self.size_bytes
        return self.size_bytes * self.ring_steps / self.ranks
