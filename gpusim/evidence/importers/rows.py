"""The result of an importer: rows of the measured schema, and counts of what makes no row.

An importer finds operators in a file and adds them to an :class:`Import`; what it cannot make a row of it
skips with a reason. What the file does not say comes from :class:`ImportOptions`, and a missing one is refused by
name.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpusim.cuda_version import CudaVersion
from gpusim.evidence.boards import gpu_of_device
from gpusim.evidence.fields import TIMES_US, Fields, MeasuredError
from gpusim.evidence.importers.devices import Device, without_spec
from gpusim.evidence.measured import MAX_NAME_CHARACTERS, MeasuredRow
from gpusim.numbers.formats import Dtype
from gpusim.units import LARGEST_SIZE
from gpusim.workloads.gemm import GEMM_OPS, StorageOrder

Shape = tuple[int, int, int, int | None]
"""Batch, m, n and k of an operator; k is None where it has none."""


class SourceError(MeasuredError):
    """A file to import is malformed, or lacks what an option then has to state; the text is one line."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options beside the file; None or empty if not given."""

    gpu: str = ""
    """Replaces what the file says, as do ``method``, ``l2``, ``source``, ``load`` and ``cuda``."""
    method: str = ""
    l2: str = ""
    source: str = ""
    load: str = ""
    cuda: CudaVersion | None = None
    dtype: Dtype | None = None
    """Used where the file names none, as do ``accumulate``, ``layout`` and ``time_unit``."""
    accumulate: str = ""
    layout: str = ""
    time_unit: str = ""
    m: int | None = None
    """Shape of every matrix multiplication of a file that records kernels without shapes."""
    n: int | None = None
    k: int | None = None
    batch: int = 1
    shapes: Path | None = None
    """CSV of such shapes, one a launch."""
    model_config: Path | None = None
    """``config.json`` of the model whose layers were timed."""
    decimal: str = ""
    """``point`` or ``comma``: what separates decimals in a listing that is printed by locale."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of the schema, and what each is in the columns of the file."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What was timed, as columns of the measured schema; None or empty where the file does not say it."""

    op: str
    shape: Shape
    dtype: Dtype | None
    layout: str = ""
    accumulate: str = ""
    sparsity: str = "dense"
    order: StorageOrder = "row"
    """How C of a GEMM lies."""
    output: str = ""
    padded_to: int | None = None
    """Multiple to which leading dimensions were padded; ``shape`` has the sizes before."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Columns beside those of the schema."""


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """Kernel as a profiler recorded it."""

    name: str
    time_us: float
    grid: tuple[int, int, int] | None = None
    threads: int | None = None
    """Threads of a CTA."""
    tile: tuple[int, int] | None = None
    """Rows and columns of C that a CTA computes."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Counters by name."""


NO_KERNEL = RecordedKernel("", 0.0)


def stated_us(fields: Fields, column: str, unit: str = "us") -> float:
    """The time in a line that makes no row [us]; zero where it states none."""
    try:
        return fields.time_us(column, unit)
    except MeasuredError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """How a program times its runs, according to its code and documentation: columns of the measured schema."""

    method: str
    l2: str
    source: str
    load: str = ""
    cuda: CudaVersion | None = None
    timer_us: float | None = None


@dataclass(slots=True)
class Import:
    """Rows of one file, and what was skipped by reason."""

    file: str
    options: ImportOptions
    timing: Timing
    """How files of this kind are timed; options replace its values."""
    rows: list[MeasuredRow] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Time that was skipped by reason, where the file states one."""
    repeated_us: float = 0.0
    """Time of launches beside the one of each row that a summary states."""
    devices: dict[str, Device] = field(default_factory=dict)
    """What the file says of the GPUs that it names, by name."""

    def skip(self, reason: str, count: int = 1, time_us: float = 0.0) -> None:
        """Count what makes no row of the schema: lines of a table, kernels of a trace.

        Args:
            time_us: time of all of them together; zero where none was measured.
        """
        self.skipped[reason] += count
        self.skipped_us[reason] += time_us

    @property
    def notes(self) -> list[str]:
        """What to know of the rows: GPUs among theirs that no spec describes, a sentence each."""
        by_id = {gpu_of_device(name): device for name, device in self.devices.items() if name}
        gpus = dict.fromkeys(row.gpu for row in self.rows)
        notes = [without_spec(gpu, by_id.get(gpu, Device(gpu))) for gpu in gpus]
        return [note for note in notes if note]

    @property
    def used_us(self) -> float:
        """Time of the rows, and of the launches that they stand for."""
        return math.fsum(row.time_us for row in self.rows) + self.repeated_us

    @property
    def total_us(self) -> float:
        """Time of the rows and of what was skipped."""
        return self.used_us + math.fsum(self.skipped_us.values())

    def add(
        self,
        where: str,
        line: int,
        operation: Operation,
        time_us: float,
        *,
        device: str = "",
        kernel: RecordedKernel | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Add the row of one timed operator.

        Args:
            where: place in the file, for errors.
            line: its number.
            device: what the file calls the GPU.
            kernel: the one that did the work.
            timing: replaces that of the file where an operator was timed otherwise.

        Raises:
            SourceError: the file does not name the GPU or the data type, and no option does, or a number is outside
                what the schema takes.
        """
        options, timing, kernel = self.options, timing or self.timing, kernel or NO_KERNEL
        gpu = _gpu(where, options.gpu or device)
        dtype = operation.dtype or options.dtype
        if dtype is None:
            raise SourceError(f"{where}: the file does not name the data type; add --dtype, as in --dtype bf16")
        if not TIMES_US[0] <= time_us <= TIMES_US[1]:
            raise SourceError(f"{where}: a time of {time_us:g} us; correct or remove the row")
        _check(where, "sizes", operation.shape)
        _check(where, "tile", kernel.tile or ())
        _check(where, "grid and threads", (*(kernel.grid or ()), kernel.threads))
        batch, m, n, k = operation.shape
        tile_m, tile_n = kernel.tile or (None, None)
        try:
            row = MeasuredRow(
                file=self.file,
                line=line,
                gpu=gpu,
                op=operation.op,
                batch=batch,
                m=m,
                n=n,
                k=k,
                dtype=dtype,
                accumulate=operation.accumulate or options.accumulate or dtype.default_accumulate,
                layout=operation.layout or options.layout,
                sparsity=operation.sparsity,
                time_us=time_us,
                method=options.method or timing.method,
                l2=options.l2 or timing.l2,
                kernel=kernel.name.strip(),
                threads=kernel.threads,
                tile_m=tile_m,
                tile_n=tile_n,
                grid=kernel.grid,
                source=options.source or timing.source,
                stated_load=options.load or timing.load,
                output=operation.output,
                cuda=options.cuda or timing.cuda,
                timer_us=timing.timer_us,
                padded_to=operation.padded_to,
                order=operation.order if operation.op in GEMM_OPS else "",
                extra=operation.extra,
            )
        except ValueError as error:
            raise SourceError(f"{where}: {error}; correct or remove the row") from None
        self.rows.append(row)


def _gpu(where: str, name: str) -> str:
    """The id of a GPU from its name in the file or an option."""
    gpu = gpu_of_device(name) if name else ""
    if not gpu:
        raise SourceError(f"{where}: the file does not name the GPU; add --gpu, as in --gpu a100-sxm4-80gb")
    if len(gpu) > MAX_NAME_CHARACTERS:
        raise SourceError(f"{where}: a GPU's name of {len(gpu)} characters; name it with --gpu")
    return gpu


def _check(where: str, what: str, numbers: Sequence[int | None]) -> None:
    """Refuse numbers that no row of the schema may hold."""
    known = [number for number in numbers if number is not None]
    if any(not 1 <= number <= LARGEST_SIZE for number in known):
        shown = " x ".join(str(number) if abs(number) <= LARGEST_SIZE else "(over 64 bits)" for number in known)
        raise SourceError(
            f"{where}: {what} {shown}: expected numbers from 1 to {LARGEST_SIZE}; correct or remove the row"
        )
