"""CUDA graphs through PyTorch, captured so that one which fails leaves nothing behind for those after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def captured(graph: Any) -> Iterator[None]:
    """Capture what is put into the current stream while the context is open."""
    pool = torch.cuda.graph_pool_handle()
    # Relaxed: a library that allocates or asks for an event's state while it is captured may.
    graph.capture_begin(pool=pool, capture_error_mode="relaxed")
    try:
        yield
        graph.capture_end()
    except BaseException:
        with suppress(RuntimeError):  # the first error is the one to tell
            graph.capture_end()
        _stop_allocating_for(pool)
        raise


def _stop_allocating_for(pool: Any) -> None:
    """What PyTorch before 2.12 leaves open after a failed capture; no memory is given back to the GPU until then."""
    for name in ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"):
        with suppress(AttributeError, RuntimeError):  # a newer PyTorch has ended it, an older one calls it so
            getattr(torch._C, name)(torch.cuda.current_device(), pool)  # noqa: SLF001 -- no public name
