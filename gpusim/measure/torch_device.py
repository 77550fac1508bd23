"""The NVIDIA GPU visible to PyTorch: operators in CUDA graphs, kernels from its profiler.

All work, including graph capture, uses one stream. No clock, limit or other setting of the card is changed.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from gpusim.measure.device import (
    MAX_LAUNCHES,
    DeviceLostError,
    Identity,
    MicroResult,
    NoDeviceError,
    Prepared,
    ProfiledKernel,
    Telemetry,
    UnavailableError,
)
from gpusim.measure.microbenchmarks import Microbenchmarks
from gpusim.measure.profiler_trace import kernels_of_trace
from gpusim.measure.suite import Microbenchmark
from gpusim.measure.telemetry import SensorRecorder, Sensors
from gpusim.measure.torch_capture import captured
from gpusim.measure.torch_operators import Operands, OperatorCall, TorchTensor, call_of, float32_precision
from gpusim.workloads.operators import Operator

COLD_FOOTPRINT = 2
"""Rotating operands cover this many times the L2 before one is reused."""
FLUSH_FOOTPRINT = 4
"""Data read before a replay whose operands are too small to rotate, as a multiple of the L2."""
WARM_UP_CALLS = 3
REASON_CHARACTERS = 300
"""Longest reason taken from an error [characters]: PyTorch lists all of its backends."""
PROFILED_CALLS = 4
"""The first one of a profile is not counted."""
PROFILE_LEADS_MS = (1, 16, 128, 128, 128, 128)
"""Idle time before the profiled calls: CUPTI of CUDA 12.6 to 13.0 loses kernels at the beginning of a trace. The next
longer one is used once a trace had no complete call; after the last no more traces are made."""
CYCLES_PER_MS = 2_000_000
"""Approximate SM clock of a recent GPU."""
MARKER_CYCLES = 1000


class TorchDevice:
    """The first GPU visible to PyTorch."""

    def __init__(self, *, profile: bool = True) -> None:
        if not torch.cuda.is_available():
            built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
            raise NoDeviceError(
                f"PyTorch {torch.__version__} ({built}) finds no NVIDIA GPU; run this on a machine with one"
            )
        # Keep the profiler's hooks between graphs.
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        self.device = "cuda:0"
        self._leads_ms = list(PROFILE_LEADS_MS) if profile else []
        try:
            self._properties = torch.cuda.get_device_properties(0)
            uuid = str(getattr(self._properties, "uuid", ""))
            self._sensors = Sensors(f"GPU-{uuid.removeprefix('GPU-')}" if uuid else "")
            self._l2_bytes = int(self._properties.L2_cache_size)
            self._identity = self._identify()
            torch.cuda.set_stream(torch.cuda.Stream())
            self._flushed = torch.zeros(FLUSH_FOOTPRINT * self._l2_bytes // 4, dtype=torch.float32, device=self.device)
            self._microbenchmarks = Microbenchmarks(self.device)
            torch.cuda.synchronize()
        except (RuntimeError, AssertionError) as error:  # in use, too old for this PyTorch, without memory
            reason = str(error).strip().splitlines()[0]
            raise NoDeviceError(
                f"PyTorch {torch.__version__} cannot use the GPU: {reason}; free it, or install"
                " a PyTorch that supports it"
            ) from None

    @property
    def identity(self) -> Identity:
        """Names and versions of the device and its software."""
        return self._identity

    @contextmanager
    def prepare(self, operator: Operator) -> Iterator[Prepared]:
        """Prepare an operator: operands on the GPU, warmed up, libraries' choices made."""
        prepared: TorchOperator | None = None
        try:
            with translated_errors(), float32_precision(operator):
                call = call_of(operator, self.device)
                prepared = TorchOperator(operator, call, self._sets(call), self._flush, self._leads_ms)
                prepared.warm_up()
            yield prepared
        finally:
            if prepared is not None:
                prepared.release()
            with suppress(RuntimeError):  # a lost device has been reported already
                torch.cuda.empty_cache()

    def microbenchmark(self, item: Microbenchmark) -> MicroResult:
        """Run one microbenchmark."""
        try:
            with translated_errors():
                return self._microbenchmarks.run(item)
        finally:
            with suppress(RuntimeError):
                torch.cuda.empty_cache()

    def telemetry(self) -> AbstractContextManager[Telemetry]:
        """Sensors, read in the background."""
        return SensorRecorder(self._sensors.read)

    def _flush(self, footprint_bytes: int) -> None:
        """Evict operands from L2 that are too few to evict each other."""
        if footprint_bytes < COLD_FOOTPRINT * self._l2_bytes:
            self._flushed.sum()  # reading all of it evicts the content of L2

    def _sets(self, call: OperatorCall) -> list[Operands]:
        """Enough operand sets to exceed L2, and at most one per launch of a graph."""
        first = call.operands()
        size = sum(bytes_of(tensor) for tensor in first)
        count = 1 + math.ceil(COLD_FOOTPRINT * self._l2_bytes / max(size, 1))
        return [first, *(call.operands() for _ in range(min(count, MAX_LAUNCHES) - 1))]

    def _identify(self) -> Identity:
        properties = self._properties
        versions = {
            "driver": self._sensors.driver or "unknown",
            "cuda": str(torch.version.cuda),
            "torch": str(torch.__version__),
            "cudnn": _cudnn_version(),
            "cublas": _package_version("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cublas-cu11"),
            "cusparselt": _package_version("nvidia-cusparselt-cu13", "nvidia-cusparselt-cu12"),
        }
        facts = {
            "compute_capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": str(properties.multi_processor_count),
            "memory_bytes": str(properties.total_memory),
            "l2_bytes": str(self._l2_bytes),
            **self._sensors.facts(),
        }
        name = torch.cuda.get_device_name(0)
        return Identity(name, self._l2_bytes, tuple(versions.items()), tuple(facts.items()))


class TorchOperator:
    """Operator with its sets of operands."""

    def __init__(
        self,
        operator: Operator,
        call: OperatorCall,
        sets: Sequence[Operands],
        flush: Callable[[int], None],
        leads_ms: list[int],
    ) -> None:
        self._operator = operator
        self._call = call
        self._sets = list(sets)
        self._flush = flush
        self._leads_ms = leads_ms
        self._graph: Any = None
        self._captured: tuple[int, bool] | None = None

    @property
    def algorithm(self) -> str:
        """The algorithm that was requested from the library, if any."""
        return self._call.algorithm

    def warm_up(self) -> None:
        """Warm up: libraries load, choose algorithms and allocate."""
        for index in range(WARM_UP_CALLS):
            self._call.run(*self._sets[index % len(self._sets)])
        torch.cuda.synchronize()

    def once(self) -> None:
        """Run it once and wait for it."""
        with translated_errors(), float32_precision(self._operator):
            self._call.run(*self._sets[0])
            torch.cuda.synchronize()

    def replay(self, launches: int, replays: int, *, cold: bool) -> Sequence[float]:
        """Duration of each replay of a graph [us], replays queued so that the GPU never waits for the host."""
        with translated_errors():
            self._capture(launches, cold)
            rotating = self._sets[:launches] if cold else []
            footprint = sum(bytes_of(tensor) for operands in rotating for tensor in operands)
            events = [
                (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(replays)
            ]
            self._graph.replay()
            for begin, end in events:
                if cold:
                    self._flush(footprint)
                begin.record()
                self._graph.replay()
                end.record()
            torch.cuda.synchronize()
            return [1e3 * float(begin.elapsed_time(end)) for begin, end in events]

    def kernels(self) -> Sequence[ProfiledKernel]:
        """The kernels of one call, from the profiler; none where it cannot run."""
        lead_ms = 0
        while self._leads_ms and lead_ms < max(PROFILE_LEADS_MS):
            lead_ms = self._leads_ms[0]
            try:
                with translated_errors(), float32_precision(self._operator):
                    kernels = self._profiled(lead_ms)
            except UnavailableError:
                break  # the time is valid without a kernel name
            if kernels:
                return kernels
            del self._leads_ms[0]  # for later operators as well: they would need the longer one too
        return ()

    def _profiled(self, lead_ms: int) -> Sequence[ProfiledKernel]:
        """The kernels of several profiled calls."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            torch.cuda._sleep(lead_ms * CYCLES_PER_MS)  # noqa: SLF001 -- no public name
            for index in range(PROFILED_CALLS):
                torch.cuda._sleep(MARKER_CYCLES)  # noqa: SLF001 -- no public name
                self._call.run(*self._sets[index % len(self._sets)])
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            return kernels_of_trace(path)

    def release(self) -> None:
        """Release the memory."""
        with suppress(RuntimeError):  # a lost device has been reported already
            self._drop_graph()
        self._sets.clear()

    def _capture(self, launches: int, cold: bool) -> None:
        """A graph of ``launches`` calls, with rotating operands if cold."""
        if self._captured == (launches, cold):
            return
        self._drop_graph()
        sets = self._sets if cold else self._sets[:1]
        graph = torch.cuda.CUDAGraph()
        # Keep results alive for one rotation of the operands, so that they rotate too.
        results: deque[TorchTensor] = deque(maxlen=min(len(sets), launches))
        torch.cuda.synchronize()
        with float32_precision(self._operator), captured(graph):
            for index in range(launches):
                results.append(self._call.run(*sets[index % len(sets)]))
        self._graph, self._captured = graph, (launches, cold)

    def _drop_graph(self) -> None:
        if self._graph is not None:
            self._graph.reset()
        self._graph, self._captured = None, None


def bytes_of(tensor: TorchTensor) -> int:
    """Size of a tensor [B]; for a sparse tensor the sum of its parts."""
    try:
        return int(tensor.nbytes)
    except (RuntimeError, NotImplementedError, AttributeError):
        parts = (getattr(tensor, name, None) for name in ("packed", "meta"))
        return sum(int(part.nbytes) for part in parts if part is not None)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn an error of PyTorch or its libraries into a reason to skip, unless the device is lost."""
    try:
        yield
    except (UnavailableError, DeviceLostError):
        raise
    except Exception as error:  # whatever a library raises: the suite continues
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0][:REASON_CHARACTERS]
        try:
            torch.cuda.synchronize()
        except RuntimeError as lost:
            raise DeviceLostError(f"{reason}; then {str(lost).splitlines()[0]}") from error
        raise UnavailableError(reason) from error


def _cudnn_version() -> str:
    """Version of cuDNN; ``unknown`` for builds without cuDNN, which can still run matrix multiplications."""
    try:
        return str(torch.backends.cudnn.version())
    except (RuntimeError, ValueError, OSError):
        return "unknown"


def _package_version(*names: str) -> str:
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"
