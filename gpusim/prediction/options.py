"""Options of a prediction."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from gpusim.errors import excerpt
from gpusim.hardware.gpu import Unit
from gpusim.prediction.results import DETAILS, SIMULATED
from gpusim.prediction.selection import CORES
from gpusim.workloads.conditions import L2_STATES, OPERANDS, checked_load


@dataclass(frozen=True, slots=True)
class Options:
    """How to predict."""

    detail: str = "sampled"
    l2: str = "cold"
    kernel: str | None = None
    """Pin a kernel by its printed name; None lets the ranking choose."""
    load: str = "sustained"
    """``sustained``: repeated for so long that the power limit sets the clock. ``burst``: too short for it, at maximum
    clock. A whole number: so many calls back to back; the limit applies to a running average of their
    power. ``flushed``: single calls, each after a kernel that overwrites L2, as Triton's ``do_bench`` makes them."""
    unit: Unit | None = None
    """``cuda`` or ``tensor`` cores; None takes whichever the ranking puts first."""
    operands: str = "random"
    """``random``, ``positive`` or ``zeros``: what the operands hold. It changes energy, and through it the clock."""
    source: str = ""
    """Who measures the runs that the interval is for, as measured tables name it: a source that a fit has seen is known
    better. It changes the interval alone."""
    torch: str = ""
    """Version of PyTorch whose kernels run, such as ``2.1``; empty for the newest that is known."""
    limits: bool | None = None
    """Whether to find what would help, by further simulations, or further estimates of ``estimate``; without them a
    bottleneck is the busiest resource. None: of what is simulated."""

    @property
    def finds_limits(self) -> bool:
        """Whether a prediction finds what would help."""
        return self.detail in SIMULATED if self.limits is None else self.limits and self.detail != "bound"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("detail", self.detail, DETAILS),
            ("l2", self.l2, L2_STATES),
            ("unit", self.unit or "cuda", tuple(CORES)),
            ("operands", self.operands, OPERANDS),
        ):
            if value not in known:
                near = difflib.get_close_matches(str(value)[:100], known, n=1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise ValueError(f"{name}: '{excerpt(str(value))}' is not one of {', '.join(map(repr, known))}{hint}")
        if self.torch and not re.fullmatch(r"\d{1,3}\.\d{1,3}", self.torch):
            raise ValueError(f"torch: expected a version such as '2.1', got '{excerpt(str(self.torch))}'")
        try:
            object.__setattr__(self, "load", checked_load(self.load))
        except ValueError as error:
            raise ValueError(f"load {excerpt(str(self.load))}: {error}") from None
