"""Options of a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step runs."""

    accumulation: int = 1
    """Forward and backward passes for each update."""
    allreduce_per_microbatch: bool = False
    """Data parallel GPUs all-reduce gradients after each backward pass, not after the last one alone."""
    delay_allreduce: bool = False
    """Data parallel GPUs all-reduce all gradients at once after the backward pass, not in buckets while it runs."""
    postdivide_gradients: bool = False
    """A kernel of its own divides all-reduced gradients by the number of GPUs, not the copy into each bucket before."""
    graphs: bool = False
    """Replayed as a CUDA graph: the host makes one call, and the gaps are those of a graph."""
    serving_overhead: bool = False
    """Each step takes the host's ``serving_step_us`` besides, while the GPU waits."""
    compiled_host: bool = False
    """A compiled program launches each kernel into a stream: not a framework's calls, but those of libraries."""
    listed: bool = False
    """Kernels are launched one after the other from a list, as an engine does, not by calls of a framework."""
    synchronised: bool = False
    """The host waits for the end of each step before it begins the next, as a loop does that reads a result."""
    framework: str = ""
    """Whose host times count, such as ``pytorch-21.03``; empty: those of the host's record as they are."""
    torch: str = ""
    """Release of PyTorch whose kernels run, such as ``2.1``; empty for the newest that is known."""
    host_us: float = 0.0
    """Host time of each pass beside its calls [us]."""
    copied_bytes: float = 0.0
    """Inputs that each pass copies from pageable memory of the host while the GPU waits [B]."""
    rests: bool = False
    """The loop rests after each step for longer than the governor averages over: a step runs at the highest clock."""
    limits: bool = True
    """Whether to find what would help each operator, by further simulations."""
