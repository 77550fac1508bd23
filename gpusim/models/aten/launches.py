"""What eager PyTorch launches for recorded calls: tasks, and how much of the calls has a kernel model of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpusim.models.arithmetic import Arithmetic
from gpusim.models.aten import (  # noqa: F401 -- each registers the calls that it knows
    attention,
    channels,
    compiled,
    convolutions,
    gathers,
    images,
    losses,
    moves,
    norms,
    pointwise,
    products,
    recurrent,
    reductions,
    updates,
)
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import LOWERINGS, Launches, NoModelError
from gpusim.models.policy import PolicyError
from gpusim.models.task import Task
from gpusim.workloads.attention import Attention
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, Pointwise

_FREE = frozenset(
    {"as_strided", "resize", "set", "squeeze", "unsqueeze", "transpose", "t", "detach", "swapaxes", "alias"}
)
"""Calls in place that change the view of a tensor alone."""
_MOVED = frozenset({"clone", "copy", "roll", "constant_pad_nd", "attention", "bmm", "mm", "addmm"})
"""Calls whose results may have other dimensions than the tensor that is used next."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Calls of one name that have no model of their own, and are simulated as copies."""

    count: int = 0
    size_bytes: float = 0.0
    """Bytes that they read and write [B]."""


@dataclass(frozen=True, slots=True)
class Launched:
    """Tasks of calls, in the order of the launches."""

    tasks: tuple[Task, ...]
    size_bytes: float
    """What all calls read and write [B]."""
    flops: float
    """Operations of products, convolutions and attention."""
    unknown: Mapping[str, Unknown] = field(default_factory=dict)
    """Calls without a model of their own, by name."""

    @property
    def known_fraction(self) -> float:
        """Share of the bytes of all calls that belongs to calls with a model."""
        unknown = sum(one.size_bytes for one in self.unknown.values())
        return 1.0 - unknown / self.size_bytes if self.size_bytes else 1.0


def launched(calls: Iterable[Call], arithmetic: Arithmetic) -> Launched:
    """Kernels that calls launch on a GPU, under a policy.

    Raises:
        PolicyError: the framework refuses the precision on the GPU.
    """
    launches = Launches(arithmetic)
    unknown: dict[str, Unknown] = {}
    total_bytes = 0.0
    for call in calls:
        base = call.base.rstrip("_")
        if base in _FREE or not _computes(call):
            continue
        size_bytes = sum(one.size_bytes for one in (*call.tensors, *call.returned))
        total_bytes += size_bytes
        kind, lower = LOWERINGS.get(call.base) or LOWERINGS.get(base) or ("", _unknown)
        launches.begin(call, _kind(call, kind or base.lstrip("_")))
        before = len(launches.tasks)
        try:
            lower(launches, _without_empty(call))
        except PolicyError:
            raise
        except (NoModelError, ValueError):  # an operator refuses such sizes
            del launches.tasks[before:]
            _copy(launches, call)
            one = unknown.get(call.name, Unknown())
            unknown[call.name] = Unknown(one.count + 1, one.size_bytes + size_bytes)
        for result in call.returned:
            launches.dims[result.storage] = len(result.shape)
            if base in _MOVED:
                del launches.dims[result.storage]
    tasks = tuple(launches.tasks)
    operators = (task.operator for task in tasks)
    flops = sum(one.flops for one in operators if isinstance(one, Gemm | Convolution | Attention))
    return Launched(tasks, total_bytes, float(flops), unknown)


def _unknown(_launches: Launches, _call: Call) -> None:
    raise NoModelError


def _kind(call: Call, kind: str) -> str:
    """Kind of the framework's call: those of an update are called alike."""
    if call.phase == "update":
        return kind if kind == "unscale" else "optimizer"
    return f"{kind}_backward" if kind in ("linear", "matmul") and call.phase == "backward" else kind


def _computes(call: Call) -> bool:
    """Whether there is anything to compute: tensors without elements launch nothing."""
    return any(one.elements for one in call.returned)


def _without_empty(call: Call) -> Call:
    """The call without results that have no elements."""
    if all(one is None or one.elements for one in call.results):
        return call
    results = tuple(one if one is not None and one.elements else None for one in call.results)
    return replace(call, results=results)


def _copy(launches: Launches, call: Call) -> None:
    """All that a call takes is read once, and all that it gives is written once."""
    results = [one for one in call.returned if one.elements]
    reads = [one for one in call.tensors if one.elements]
    launches.launch(_copy_of(reads, results), reads, results)


def _copy_of(reads: list[TensorView], results: list[TensorView]) -> Pointwise:
    accesses = (tuple(Access(one.distinct, one.dtype) for one in ones) for ones in (reads, results))
    return Pointwise(("copy",), max(one.elements for one in results), *accesses)
