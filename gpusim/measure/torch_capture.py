"""Capture of CUDA graphs through PyTorch, with clean-up after a failed capture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def captured(graph: Any) -> Iterator[None]:
    """Capture the work submitted to the current stream while the context is open."""
    pool = torch.cuda.graph_pool_handle()
    # Relaxed: libraries may allocate or query events during the capture.
    graph.capture_begin(pool=pool, capture_error_mode="relaxed")
    try:
        yield
        graph.capture_end()
    except BaseException:
        with suppress(RuntimeError):  # the first error is the one to report
            graph.capture_end()
        _stop_allocating_for(pool)
        raise


def _stop_allocating_for(pool: Any) -> None:
    """End the capture that PyTorch before 2.12 leaves open after a failure; until then no GPU memory is released."""
    for name in ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"):
        with suppress(AttributeError, RuntimeError):  # newer versions have ended it already; older ones use this name
            getattr(torch._C, name)(torch.cuda.current_device(), pool)  # noqa: SLF001 -- no public name
