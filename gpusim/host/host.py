"""The host that launches kernels: gaps, launch intervals, and overheads of timing methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from gpusim.record import Microseconds, Record, record_key
from gpusim.units import bytes_per_us

Factor = Annotated[float, Field(ge=0.01, le=100)]
LongMicroseconds = Annotated[float, Field(ge=0, le=1e6)]
"""Host time of a large image, or of a pass: tens of milliseconds [us]."""


class Host(Record):
    """Driver, CPU and software around the kernels of a GPU [us]."""

    graph_gap_us: Microseconds = Field(description="Gap between dependent kernels of a CUDA graph [us].")
    stream_gap_us: Microseconds = Field(
        description="Gap between kernels that were queued in one stream long before [us]."
    )
    warm_icache_gap_us: Microseconds | None = Field(
        default=None,
        description="Gap between queued kernels whose code the instruction caches hold; none: stream_gap_us [us].",
    )
    library_gap_us: Microseconds = Field(
        default=0.0,
        description="What a stream waits beyond stream_gap_us before a kernel that a library launches [us].",
    )
    stream_interval_us: Microseconds = Field(description="Shortest interval between launches into a stream [us].")
    library_interval_us: Microseconds = Field(
        description="Shortest interval between calls of a library that selects a kernel [us]."
    )
    pageable_copy_gb_per_s: float = Field(
        ge=0.01,
        le=10_000,
        description="Rate of a copy from pageable memory of the host to the GPU, which the host waits for [GB/s].",
    )
    library_handle_us: Microseconds = Field(
        description="A call that creates a library's handle and destroys it, besides its kernels [us]."
    )
    call_interval_us: dict[str, Microseconds] = Field(
        default={},
        description="Shortest interval between calls that launch several kernels, by operator, where longer [us].",
    )
    operator_dispatch_us: dict[str, Microseconds] = Field(
        description="Host time that CUDA events around a call of a framework's own operator take in, by its kind [us]."
    )
    method_overhead_us: dict[str, Microseconds] = Field(
        description="What a timing method adds to the time of the kernels, by method [us]."
    )
    framework_call_us: dict[str, Microseconds] = Field(
        default={}, description="Host time of a call of an eager framework that launches kernels, by its kind [us]."
    )
    framework_factors: dict[str, Factor] = Field(
        default={}, description="Host time of all calls relative to framework_call_us, by framework and version."
    )
    framework_factor_of_several: Factor = Field(
        default=1.0,
        description="Host time of all calls where several processes launch, one for each GPU, relative to one alone: "
        "cores of a processor clock lower the more of them work.",
    )

    framework_step_us: dict[str, LongMicroseconds] = Field(
        default={},
        description="Host time of a pass beside its calls, such as a data loader's, by framework and version [us].",
    )

    framework_item_us: dict[str, LongMicroseconds] = Field(
        default={},
        description="Host time of an item of inference, while the GPU waits, by framework and version [us].",
    )

    serving_step_us: LongMicroseconds = Field(
        default=0.0,
        description="Host time of a step of a serving engine beside its launches, while the GPU waits [us].",
    )

    framework_load_us: dict[str, LongMicroseconds] = Field(
        default={},
        description="Host time of an item of training that the loop itself loads, by framework and version [us].",
    )

    framework_load_of_several_us: dict[str, LongMicroseconds] = Field(
        default={},
        description="The same where a launcher starts several processes, each with one thread [us].",
    )

    def pass_us(self, framework: str, waiting_items: int, loaded_items: int = 0, processes: int = 1) -> float:
        """Host time of a pass beside its calls [us]; 0 of a framework that is not listed.

        Args:
            waiting_items: items that the host prepares, or whose results it takes, while the GPU waits.
            loaded_items: items of training.
            processes: that a launcher started, one for each GPU.
        """
        key = record_key(framework)
        per_item_us = waiting_items * self.framework_item_us.get(key, 0.0)
        load_us = self.framework_load_us.get(key, 0.0)
        if processes > 1:
            load_us = self.framework_load_of_several_us.get(key, load_us)
        return self.framework_step_us.get(key, 0.0) + per_item_us + loaded_items * load_us

    def pageable_copy_us(self, size_bytes: float) -> float:
        """Time of a copy of so many bytes from pageable memory to the GPU [us]."""
        return size_bytes / bytes_per_us(self.pageable_copy_gb_per_s)

    def call_us(self, kind: str, framework: str = "") -> float:
        """Host time of a framework's call that launches kernels [us].

        Args:
            kind: of the call; one that the record does not list takes as long as an elementwise function, and that of
                a gradient as long as the call of the forward pass.
            framework: and its version, such as ``pytorch-21.03``; one that the record does not list has no factor.
        """
        times = self.framework_call_us
        factor = self.framework_factors.get(record_key(framework), 1.0)
        known = next((name for name in (kind, kind.removesuffix("_backward"), "elementwise") if name in times), "")
        return factor * times.get(known, 0.0)

    def of_several(self) -> Host:
        """The host as each of several processes finds it that launch at once."""
        factor = self.framework_factor_of_several
        times = {kind: factor * time_us for kind, time_us in self.framework_call_us.items()}
        return self.model_copy(update={"framework_call_us": times}) if factor != 1.0 else self

    def with_overheads(self, overheads: Mapping[str, float]) -> Host:
        """The host with other overheads of some timing methods [us]."""
        if not overheads:
            return self
        # What events around a call take in is then the same for all operators.
        dispatch = {} if "event" in overheads else self.operator_dispatch_us
        known = {**self.method_overhead_us, **overheads}
        return self.model_copy(update={"method_overhead_us": known, "operator_dispatch_us": dispatch})

    def timing_us(self, method: str) -> float:
        """What a timing method adds, or the shortest interval between launches that it sees [us]."""
        match method:
            case "profiler":
                return 0.0
            case "graph":
                return self.graph_gap_us
            case "stream":
                return max(self.stream_interval_us, self.library_interval_us)
        return self.method_overhead_us[method]
