"""A kernel launch: a grid of CTAs, the programs of their warps, and the tensors that these touch.

Nothing that can be read off the programs stands here a second time, and nothing of the machine that runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from gpusim.program import Load, LoadBulk, Role, Store, executed, lookahead, operations

Axis = Literal["batch", "split", "x", "y"]


class Coordinates(NamedTuple):
    """Where a CTA stands in its grid."""

    batch: int
    split: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Extents of a grid, and the order in which its CTAs are launched.

    Splits of a tile are launched a whole plane apart, as are the GEMMs of a batch. A plane is walked in stripes of
    ``swizzle_width`` CTAs along x (threadblock swizzle), each of them row by row, or of as many along y, each of them
    column by column.

    Raises:
        ValueError: An extent is less than 1.
    """

    x: int
    y: int = 1
    splits: int = 1
    batch: int = 1
    swizzle_width: int | None = None
    """None for plain order: stripes as wide as the grid."""
    stripes_across_y: bool = False

    def __post_init__(self) -> None:
        if min(self.x, self.y, self.splits, self.batch, self.swizzle_width or 1) < 1:
            raise ValueError(f"{self}: every extent must be 1 or more")

    @property
    def ctas(self) -> int:
        return self.x * self.y * self.splits * self.batch

    @property
    def extents(self) -> tuple[int, int, int]:
        """Size of the grid as CUDA takes it: x, y, z."""
        return self.x, self.y, self.splits * self.batch

    def coordinates(self, cta: int) -> Coordinates:
        """Where a CTA stands, by its number in launch order.

        >>> [Grid(4, 2, swizzle_width=2).coordinates(cta)[2:] for cta in range(5)]
        [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)]
        >>> [Grid(2, 4, swizzle_width=2, stripes_across_y=True).coordinates(cta)[2:] for cta in range(5)]
        [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
        """
        plane, place = divmod(cta, self.x * self.y)
        batch, split = divmod(plane, self.splits)
        across, along = (self.y, self.x) if self.stripes_across_y else (self.x, self.y)
        stripe_width = self.swizzle_width or across
        stripe, within = divmod(place, stripe_width * along)
        row, column = divmod(within, min(stripe_width, across - stripe * stripe_width))
        at = stripe * stripe_width + column, row
        return Coordinates(batch, split, *(at[::-1] if self.stripes_across_y else at))


class Resources(NamedTuple):
    """What a CTA occupies of an SM: threads, 32-bit registers of each, and shared memory [B]."""

    threads: int
    registers: int
    """Registers of a thread."""
    shared_bytes: int


class Runs(NamedTuple):
    """How a block lies in memory: in runs of neighbouring bytes, one in each of several rows."""

    size_bytes: float
    """Length of a run [B]."""
    row_bytes: float
    """Distance from a run to the next run of the block [B]."""
    axis: Axis | None = None
    """Axis along which the next CTA's run lies beside this one; None: the run of the same CTA's next block does."""
    begins_bytes: float = 0.0
    """Rows begin on multiples of this; 0: on lines [B]."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Data in global memory: how it is divided among the CTAs, and how much of it L2 holds.

    Sizes are in bytes, fractions from 0 to 1.
    """

    name: str
    block_bytes: float
    """What L2 holds of a block that CTAs share, or of what a CTA stores [B]."""
    axes: tuple[Axis, ...] | None = None
    """Coordinates of the grid that pick a CTA's blocks: CTAs that agree in them read the same blocks, which ``full``
    keeps by name. None: no two CTAs read the same one, and its bytes are those of the loads."""
    miss_fraction: float = 0.0
    """Bytes that come from DRAM, of those that loads request from L2: in ``sampled``, and where no block is shared."""
    missing_blocks_fraction: float = 1.0
    """Share of the blocks of which something comes from DRAM, if anything does; of results, of those that L2 does not
    hold from an earlier run."""
    far_hits_fraction: float = 0.0
    """Part of the reads that L2 answers whose lines only the far partition holds. The near one keeps copies of what
    its SMs read."""
    far_misses_fraction: float = 1.0
    """Part of the reads that DRAM answers whose lines have their home in the far partition. A block of several lines
    comes with the last of them, which is one of those."""
    read_cost: float = 1.0
    """DRAM time of what is read over that of a stream of as many bytes: above 1 where pages are opened for little. In
    ``sampled``, and where no block is shared."""
    runs: Runs | None = None
    """What ``full`` counts lines and DRAM pages by; None: a block lies together."""


class Work(NamedTuple):
    """What CTAs do: their roles, and the blocks that these load and store."""

    roles: tuple[Role, ...]
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: a grid of CTAs, the programs of their warps, and the tensors that these name.

    Raises:
        ValueError: Tensors share a name, a program names none of them, or a role has no warps.
    """

    name: str
    grid: Grid
    roles: tuple[Role, ...]
    """Roles of a CTA. The first requests a persistent CTA's next tile; progress is counted in iterations of the last
    role's loops."""
    resources: Resources
    tensors: tuple[Tensor, ...] = ()
    write_back_cost: float = 0.0
    """DRAM time of the dirty data that what enters L2 (read on a miss, or written) pushes out, of the time that reading
    it takes in a stream: in ``sampled``."""
    write_cost: float = 1.0
    """DRAM time of a byte that is written back over that of a byte read in a stream."""
    persistent: bool = False
    """Whether a CTA keeps its warps from tile to tile, each of which goes on to the next as soon as it is done."""
    cold: bool = True
    """Whether nothing was used lately: the first loads of an SM miss the TLB too, and L2 holds the data of other runs.
    Otherwise L2 holds what fits of the launch's own."""
    edges: tuple[Work, Work, Work] | None = None
    """Work of the CTAs that are last along x, along y, and along both, in programs that differ in amounts only. None:
    all CTAs do the same, such as the mean of all."""

    def __post_init__(self) -> None:
        known = {tensor.name for tensor in self.tensors}
        if len(known) != len(self.tensors):
            raise ValueError(f"{self.name}: tensors share a name; give each its own")
        if not self.roles or any(role.warps < 1 or role.instances < 1 for role in self.roles):
            raise ValueError(f"{self.name}: a launch needs a role, and a role a warp and an instance")
        if unknown := sorted(self._named_tensors() - known):
            raise ValueError(f"{self.name}: a program names tensor '{unknown[0]}', the launch has {sorted(known)}")

    def _named_tensors(self) -> set[str]:
        named: set[str] = set()
        for role in self.roles:
            for op in operations(role.program):
                match op:
                    case Load() | LoadBulk():
                        named.update(read.tensor for read in op.reads)
                    case Store():
                        named.add(op.tensor)
        return named

    @property
    def ctas(self) -> int:
        """CTAs of the grid; of a persistent launch, tiles."""
        return self.grid.ctas

    @property
    def warps(self) -> int:
        """Warps that work on a CTA's tile."""
        return sum(role.warps for role in self.roles)

    @property
    def works(self) -> tuple[Work, ...]:
        """What CTAs do: within the grid, and at its edges."""
        return Work(self.roles, self.tensors), *(self.edges or ())

    def work_at(self, at: Coordinates) -> int:
        """Index of a CTA's work in :attr:`works`."""
        return (at.x == self.grid.x - 1) + 2 * (at.y == self.grid.y - 1) if self.edges else 0

    @property
    def lookahead(self) -> int:
        """Blocks of a CTA that are on their way while one is used, at most."""
        return max(lookahead(role.program) for role in self.roles)


def l2_read_bytes(launch: Launch) -> dict[str, float]:
    """What the loads of all CTAs request from L2, by tensor [B]."""
    requested = dict.fromkeys((tensor.name for tensor in launch.tensors), 0.0)
    for role in launch.roles:
        for op, times in executed(role.program):
            if isinstance(op, Load | LoadBulk):
                for read in op.reads:
                    requested[read.tensor] += launch.ctas * role.warps * times * read.l2_bytes
    return requested
