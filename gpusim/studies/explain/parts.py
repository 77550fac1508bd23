"""What the time of a prediction consists of: parts that add up to it.

Of an operator, the kernel time is divided as :mod:`gpusim.prediction.breakdown` does: the work of the busiest
resources, SMs that idle while others work, latency, and the start and the end of kernels. Latency, the time in which
nothing works at capacity, is divided by the ledger of the warps: by what they waited for. What they wait for the
busiest resource itself is first set off against its work: of a ledger of which the share ``f`` waits for a resource
that works for the share ``u`` of the time, ``f - u`` is latency, and none where ``u`` is greater. What remains of the
ledger is spread over the latency in proportion.

Of a step, the time is divided by kind of operator, and each kind by the same parts without the ledger; where no kernel
computes, GPUs exchange data, the GPU waits for the host, or a kernel starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpusim.prediction.results import Result
from gpusim.sim.causes import Cause
from gpusim.studies.workload import Predicted, total_us
from gpusim.workloads.attention import Attention
from gpusim.workloads.collective import Collective
from gpusim.workloads.convolution import Convolution
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Pointwise
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import Elementwise, LayerNorm, Softmax

if TYPE_CHECKING:
    from gpusim.step.model import ModelResult

_MEMORY = (Cause.LONG_SCOREBOARD, Cause.LG_THROTTLE)
_SHARED_MEMORY = (Cause.SHORT_SCOREBOARD, Cause.MIO_THROTTLE)
_ARITHMETIC = (Cause.MATH, Cause.MATH_PIPE_THROTTLE)
_ISSUE = (Cause.ISSUE, Cause.NOT_SELECTED)
CAUSES_OF_RESOURCE: Mapping[str, tuple[Cause, ...]] = {
    "arithmetic": _ARITHMETIC,
    "issue": _ISSUE,
    "shared_memory": _SHARED_MEMORY,
    "l2_port": _MEMORY,
    "l2": _MEMORY,
    "dram": _MEMORY,
}
"""Causes in the ledger that are waits for a resource."""
WAITS: Mapping[str, tuple[Cause, ...]] = {
    "wait_memory": _MEMORY,
    "wait_shared_memory": _SHARED_MEMORY,
    "wait_arithmetic": (*_ARITHMETIC, Cause.WAIT),
    "wait_issue": _ISSUE,
    "wait_barrier": (Cause.BARRIER,),
    "cta_launch": (Cause.LAUNCH,),
}
"""Parts of the latency, and the causes of the ledger that each of them counts."""
MEANINGS: Mapping[str, str] = {
    "tensor_cores": "the Tensor Cores multiply",
    "cuda_cores": "the CUDA cores compute",
    "shared_memory": "shared memory is read and written",
    "l2_port": "data pass between the SMs and L2",
    "l2": "L2 is read and written",
    "dram": "DRAM is read and written",
    "issue": "instructions are issued",
    "idle_sms": "SMs without work wait for the others: few CTAs, or the last wave",
    "latency": "nothing works at capacity",
    "wait_memory": "latency: warps wait for data from L2 or DRAM",
    "wait_shared_memory": "latency: warps wait for shared memory",
    "wait_arithmetic": "latency: warps wait for results of their own arithmetic, or for a pipe",
    "wait_issue": "latency: warps issue addresses, loads and stores",
    "wait_barrier": "latency: warps wait for others of their CTA",
    "cta_launch": "latency: CTAs start",
    "kernel_start": "launch and drain overhead",
    "launch_gap": "gap to the next kernel",
    "host": "the GPU waits for the host",
    "communication": "GPUs exchange data while none computes",
}
"""Meaning of a part."""
WORK = ("tensor_cores", "cuda_cores", "shared_memory", "l2_port", "l2", "dram", "issue")
"""Parts in which a resource works."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a time."""

    name: str
    us: float
    share: float
    """Fraction of the whole time."""


def parts_of(result: Predicted) -> tuple[Part, ...]:
    """The parts of a prediction, the largest first; they add up to its time."""
    found = _of_operator(result) if isinstance(result, Result) else _of_step(result)
    whole_us = total_us(result)
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Part(name, us, us / whole_us) for name, us in ordered if us)


def meaning_of(name: str) -> str:
    """What a part is, in words: of an operator, or of a kind of operators in a step.

    >>> meaning_of("gemm: dram"), meaning_of("host")
    ('DRAM is read and written', 'the GPU waits for the host')
    """
    return MEANINGS.get(name.rpartition(": ")[2], "")


def _of_operator(result: Result) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, share in result.utilization.time_shares.items():
        for part, fraction in (_waits(result) if name == "latency" else {named(name, result): 1.0}).items():
            found[part] = found.get(part, 0.0) + fraction * share * result.kernel_time_us
    found["launch_gap"] = result.time_us - result.kernel_time_us
    return found


def named(name: str, result: Result) -> str:
    """A share of the kernel time as a part is called."""
    if name == "arithmetic":
        return "tensor_cores" if result.launch.unit == "tensor" else "cuda_cores"
    return "kernel_start" if name == "launch" else name


def _waits(result: Result) -> dict[str, float]:
    """Shares of the latency by what warps waited for; they add up to one."""
    busy, gpu_busy = result.utilization.busy_fractions, result.utilization.gpu_busy_fractions
    busiest = max(gpu_busy, key=lambda name: gpu_busy[name])
    own = [cause.value for cause in CAUSES_OF_RESOURCE.get(busiest, ())]
    ledger = dict(result.counters.stall_cycles)
    worked = max(busy.values()) * result.counters.warp_cycles
    waited = sum(ledger.get(name, 0) for name in own)
    left = max(0.0, 1.0 - worked / waited) if waited else 0.0
    remaining = {name: cycles * (left if name in own else 1.0) for name, cycles in ledger.items()}
    whole = sum(remaining.values())
    if not whole:
        return {"latency": 1.0}
    return {part: sum(remaining.get(cause.value, 0.0) for cause in causes) / whole for part, causes in WAITS.items()}


def _of_step(result: ModelResult) -> dict[str, float]:
    step = result.step
    found: dict[str, float] = {}
    for one in step.computed:
        kind = _kind_of(one.task.operator)
        for name, share in one.result.utilization.time_shares.items():
            part = f"{kind}: {named(name, one.result)}"
            found[part] = found.get(part, 0.0) + share * one.total_us
    found["communication"] = step.exposed_us + step.run.slowed_us
    idle_us = step.step_us - sum(found.values())
    waited = step.waiting_fraction
    return {**found, "host": waited * idle_us, "launch_gap": (1.0 - waited) * idle_us}


def _kind_of(operator: Operator | Collective) -> str:
    match operator:
        case Gemm():
            return "gemm"
        case Convolution():
            return "convolution"
        case Attention():
            return "attention"
        case Softmax() | LayerNorm():
            return operator.op
        case Elementwise() | Pointwise():
            return "elementwise"
    return "reduction"
