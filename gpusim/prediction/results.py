"""Results of predictions: plain records, units in names. Every analysis reads these and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, is_dataclass
from html import escape
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gpusim.confidence import CalibratedOn, Evidence, Timed
from gpusim.numbers.formats import FORMATS

DETAILS = ("bound", "estimate", "sampled", "full")
"""Levels of detail, from closed forms to every CTA."""
SIMULATED = ("sampled", "full")
"""Those in which events are simulated, with the stalls of warps."""
TENSOR_CYCLES = "sm__pipe_tensor_cycles_active.avg"
NSIGHT_METRICS = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_bytes.sum",
    "lts__t_sector_hit_rate.pct",
    f"{TENSOR_CYCLES}.pct_of_peak_sustained_active",
    f"{TENSOR_CYCLES}.pct_of_peak_sustained_elapsed",
    "launch__waves_per_multiprocessor",
)
NOT_METRICS = ("overrides", "alternatives")
"""Fields of a result that a row of an experiment lacks: its GPU has columns of its own for replaced values."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One candidate of the kernel choice, with the ranking's cheap estimate [us]."""

    kernel: str
    split_k: int
    grid: tuple[int, int, int]
    estimate_us: float


@dataclass(frozen=True, slots=True)
class OperatorColumns:
    """The operator, named as in measured tables."""

    op: str
    batch: int
    m: int
    n: int
    k: int
    """0 of an operator on m rows of n elements."""
    dtype: str
    accumulate: str
    output_dtype: str
    sparsity: str
    layout: str
    order: str
    """How C of a GEMM lies, ``row`` or ``column``; empty of other operators."""

    @property
    def shape(self) -> str:
        """Batch, m, n and k as far as there are any."""
        size = f"{self.m}x{self.n}x{self.k}" if self.k else f"{self.m}x{self.n}"
        return size if self.batch == 1 else f"{self.batch} x {size}"

    @property
    def type_text(self) -> str:
        """The data type, with the sparsity of a sparse operator."""
        return self.dtype if self.sparsity == "dense" else f"{self.dtype} {self.sparsity}"

    @property
    def rate_unit(self) -> str:
        """Unit of arithmetic rates."""
        return FORMATS[self.dtype].rate_unit


@dataclass(frozen=True, slots=True)
class Conditions:
    """In what state the kernel starts, on what data, and how often."""

    l2: str
    """``cold`` or ``warm`` at the start."""
    load: str
    """``sustained``, at the clock that the power limit allows; ``burst``, too short for it; a number of calls; or
    ``flushed``, single calls that kernels between them keep apart."""
    operands: str
    """``random`` or ``zeros``."""


@dataclass(frozen=True, slots=True)
class KernelTiming:
    """Time, clock and rates."""

    time_us: float
    """Kernel time plus launch overhead: the interval between back-to-back launches from a CUDA graph."""
    time_us_p10: float | None
    """A tenth of measured runs such as this one are shorter. None for ``bound``, which is not a prediction."""
    time_us_p90: float | None
    """A tenth are longer."""
    evidence: Evidence
    """``validated``: runs that the same source measured of the same board, data type and kind of operator surround this
    one; ``interpolated``: those of the architecture do; ``extrapolated``: none do (:mod:`gpusim.confidence`)."""
    calibrated_on: CalibratedOn
    """Whose measured runs the board's values were fitted to: ``board``, its own; ``architecture``, those of other
    boards of its architecture; ``nothing``."""
    kernel_time_us: float
    """What a profiler calls the duration; several kernels (split-K and its reduction) include the gap."""
    launch_overhead_us: float
    cycles: int
    clock_mhz: float
    """Sustained SM clock, from the power governor."""
    max_clock_mhz: float
    """Highest SM clock of the board."""
    power_limit_w: float
    """Board limit."""
    tflops: float
    """Operations of the dense product a second [TFLOP/s; TOP/s for integers]: of a 2:4 one, its dense equivalent."""
    executed_tflops: float
    """Operations a second without the products that a 2:4 operand leaves out."""
    bandwidth_gb_per_s: float
    """Operands and results, each once, over ``kernel_time_us`` [GB/s]: what tells most of an operator on rows."""
    pct_of_peak: float
    """Of ``peak_tflops``; above 100 where the board runs at a higher clock than its peak is stated for."""
    peak_tflops: float
    """Peak rate of the kernel's instruction at ``peak_clock_mhz``, dense equivalent for a 2:4 one."""
    peak_clock_mhz: float
    """Clock that the vendor states the peak for."""
    bound_us: float
    """Closed-form lower bound on ``kernel_time_us``, at the board's highest clock."""


@dataclass(frozen=True, slots=True)
class Utilization:
    """What takes the time."""

    bottleneck: str
    """What would help most if it were twice as good: a resource (``arithmetic``, ``issue``, ``shared_memory``,
    ``l2_port``, ``l2``, ``l2_capacity``, ``dram``), ``sms``, ``idle_sms`` where SMs have nothing to do, ``power`` where
    the limit of the board holds the clock, ``launch``, or ``latency``. Where nothing would help alone:
    ``balanced: A, B`` of what is busy together, else ``latency``."""
    next_bottleneck: str
    """What would help most besides; where nothing would, the busiest other resource."""
    clock_limit: Literal["power", "maximum"]
    """What holds the SM clock."""
    savings: dict[str, float]
    """Share of ``time_us`` that each resource saves if it is twice as good, the largest first. Resources that are not
    named save no more than the first. Empty for ``bound``."""
    time_shares: dict[str, float]
    """Shares of ``kernel_time_us``, the largest first; they add up to one. A resource of the machine: its work on the
    whole GPU, divided with those that work for about as long. ``idle_sms``: that some SMs have more work than others.
    ``latency``: that nothing works at capacity. ``launch``: that kernels start and drain. For ``bound`` all of the time
    is the resource's with the highest bound."""
    busy_fractions: dict[str, float]
    """Share of the kernel's cycles in which each resource works, on the SM with the most CTAs."""
    gpu_busy_fractions: dict[str, float]
    """Share of the kernel's cycles in which each resource works, averaged over all SMs."""


@dataclass(frozen=True, slots=True)
class LaunchConfiguration:
    """The kernel and how it lies on the SMs."""

    sm_count: int
    sms_used: int
    """SMs that get a CTA."""
    useful_fraction: float
    """Multiply-adds of the product over those that are executed; the rest pads tiles."""
    kernel: str
    unit: Literal["cuda", "tensor"]
    """Cores that multiply."""
    split_k: int
    grid: tuple[int, int, int]
    threads: int
    waves: float
    occupancy: int
    """Resident CTAs per SM."""
    occupancy_limiter: str


@dataclass(frozen=True, slots=True)
class Counters:
    """What counters of all kernels of the operator would read."""

    dram_bytes: int
    dram_read_bytes: int
    dram_write_bytes: int
    l2_bytes: int
    shared_bytes: int
    l2_hit_fraction: float
    tensor_active_fraction: float
    """Share of cycles in which the Tensor Core pipes work, averaged over all SMs; 0 for kernels on CUDA cores."""
    power_w: float
    energy_mj: float
    stall_cycles: dict[str, int]
    """Warp-cycles by cause; they add up to ``warp_cycles``."""
    warp_cycles: int


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The prediction for one operator on one GPU."""

    arch: str
    overrides: dict[str, Any]
    """Values of the spec that were replaced, by key path."""
    detail: str
    operator: OperatorColumns
    conditions: Conditions
    timing: KernelTiming
    utilization: Utilization
    launch: LaunchConfiguration
    counters: Counters
    bounds_us: dict[str, float]
    """Each closed-form bound by the resource it counts."""
    memory_gib: float
    """Device memory that operands and results take."""
    fits: bool
    """They fit into the memory of the GPU."""
    consistent: bool
    """No bound and no capacity contradicts the time; where one does, ``notes`` name it and the time is wrong."""
    notes: tuple[str, ...]
    """What a reader must know to read the figures right, a sentence each."""
    alternatives: tuple[Alternative, ...]

    @property
    def time_us(self) -> float:
        return self.timing.time_us

    @property
    def kernel_time_us(self) -> float:
        return self.timing.kernel_time_us

    @property
    def timed(self) -> Timed:
        """The time with its interval."""
        return Timed(self.arch, self.time_us, self.timing.time_us_p10, self.timing.time_us_p90)

    @property
    def calibrated_on(self) -> CalibratedOn:
        return self.timing.calibrated_on

    @property
    def tflops(self) -> float:
        return self.timing.tflops

    @property
    def bottleneck(self) -> str:
        return self.utilization.bottleneck

    @property
    def kernel(self) -> str:
        return self.launch.kernel

    def __repr__(self) -> str:
        """The operator, the GPU, the time, and what limits it."""
        return f"<Result {self._title()}: {', '.join(value for _, value in self._summary())}>"

    def _repr_html_(self) -> str:
        """A table of the main figures, as notebooks show it."""
        rows = [*self._summary(), ("kernel", self.kernel), *(("note", note) for note in self.notes)]
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>{escape(self._title())}</caption>{cells}</table>"

    def _title(self) -> str:
        operator = self.operator
        shape = operator.shape if operator.k else f"{operator.op} of {operator.shape}"
        return f"{shape} {operator.type_text} on {self.arch}"

    def _summary(self) -> tuple[tuple[str, str], ...]:
        """The main figures by name."""
        rate = f"{self.tflops:.4g} {self.operator.rate_unit}, {self.timing.pct_of_peak:.1f} % of peak"
        return (
            ("time", f"{self.time_us:.4g} us"),
            ("rate", rate if self.operator.k else f"{self.timing.bandwidth_gb_per_s:.4g} GB/s"),
            ("bottleneck", self.bottleneck),
        )

    def nsight_metrics(self) -> dict[str, float]:
        """The figures that Nsight Compute has, under its names, to lay beside ``ncu --csv``."""
        counters, launch = self.counters, self.launch
        # "sustained_active" is relative to the cycles in which an SM is active, and active SMs do as the busiest does;
        # "sustained_elapsed" is relative to the cycles of all SMs.
        of_active = self.utilization.busy_fractions["arithmetic"] if launch.unit == "tensor" else 0.0
        values = (
            self.kernel_time_us * 1e3,
            float(self.timing.cycles),
            float(counters.dram_read_bytes),
            float(counters.dram_write_bytes),
            float(counters.l2_bytes),
            100 * counters.l2_hit_fraction,
            100 * of_active,
            100 * counters.tensor_active_fraction,
            launch.waves,
        )
        return dict(zip(NSIGHT_METRICS, values, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object: the fields of all parts in their order, then ``nsight``; floats to 12 digits."""
        alternatives = [asdict(alternative) for alternative in self.alternatives]
        record = values_of(self) | {"alternatives": alternatives, "nsight": self.nsight_metrics()}
        return {name: json_ready(value) for name, value in record.items()}

    def metrics(self) -> dict[str, Any]:
        """A JSON-ready row: the fields of all parts but those of NOT_METRICS, then the Nsight Compute metrics."""
        record = values_of(self) | self.nsight_metrics()
        for name in NOT_METRICS:
            del record[name]
        return {name: json_ready(value) for name, value in record.items()}


def values_of(record: Any) -> dict[str, Any]:
    """The fields of a result; in place of a part its fields."""
    found: dict[str, Any] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        found |= values_of(value) if is_dataclass(value) else {item.name: value}
    return found


def field_kinds(record: Any = Result) -> dict[str, type]:
    """The names of :func:`values_of` and their types: text for one of several literals, the number for one or None."""
    kinds: dict[str, type] = {}
    for name, hint in get_type_hints(record).items():
        kinds |= field_kinds(hint) if is_dataclass(hint) else {name: _kind(hint)}
    return kinds


def _kind(hint: Any) -> type:
    origin = get_origin(hint)
    if origin is UnionType:
        return _kind(get_args(hint)[0])
    kind: type = str if origin is Literal else origin or hint
    return kind


def json_ready(value: Any) -> Any:
    """Tuples to lists, floats to 12 significant digits: the last bits differ between machines."""
    match value:
        case float():
            return float(f"{value:.12g}")
        case dict():
            return {key: json_ready(item) for key, item in value.items()}
        case tuple() | list():
            return [json_ready(item) for item in value]
    return value
