"""The host that launches kernels: gaps, launch intervals, and overheads of timing methods."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from gpusim.record import Microseconds, Record


class Host(Record):
    """Driver, CPU and software around the kernels of a GPU [us]."""

    graph_gap_us: Microseconds = Field(description="Gap between dependent kernels of a CUDA graph [us].")
    stream_gap_us: Microseconds = Field(
        description="Gap between kernels that were queued in one stream long before [us]."
    )
    stream_interval_us: Microseconds = Field(description="Shortest interval between launches into a stream [us].")
    library_interval_us: Microseconds = Field(
        description="Shortest interval between calls of a library that selects a kernel [us]."
    )
    operator_dispatch_us: dict[str, Microseconds] = Field(
        description="Host time that CUDA events around a call of a framework's own operator take in, by its kind [us]."
    )
    method_overhead_us: dict[str, Microseconds] = Field(
        description="Host time that a timing method adds, by method [us]."
    )

    def with_overheads(self, overheads: Mapping[str, float]) -> Host:
        """The same host with other overheads of some timing methods [us]."""
        if not overheads:
            return self
        # What events around a call take in is then the same for all operators.
        dispatch = {} if "event" in overheads else self.operator_dispatch_us
        known = {**self.method_overhead_us, **overheads}
        return self.model_copy(update={"method_overhead_us": known, "operator_dispatch_us": dispatch})
