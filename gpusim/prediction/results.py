"""Results of predictions: plain records, units in names. Every analysis reads these and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from html import escape
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gpusim.confidence import Evidence
from gpusim.sim.causes import Cause

DETAILS = ("bound", "sampled", "full")
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


@dataclass(frozen=True, slots=True)
class Alternative:
    """One candidate of the kernel choice, with the ranking's cheap estimate [us]."""

    kernel: str
    split_k: int
    grid: tuple[int, int, int]
    estimate_us: float


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The prediction for one workload on one GPU."""

    arch: str
    detail: str
    op: str
    """As in measured tables."""
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
    l2: str
    """``cold`` or ``warm`` at the start."""
    load: str
    """``sustained``, at the clock that the power limit allows; ``burst``, too short for it; a number of calls; or
    ``flushed``, single calls that kernels between them keep apart."""
    operands: str
    """``random`` or ``zeros``."""
    time_us: float
    """Kernel time plus launch overhead: the interval between back-to-back launches from a CUDA graph."""
    time_us_p10: float | None
    """A tenth of measured runs such as this one are shorter. None for ``bound``, which is not a prediction."""
    time_us_p90: float | None
    """A tenth are longer."""
    evidence: Evidence
    """``validated``: measured runs of the same board, data type and kind of operator surround this one;
    ``interpolated``: those of the architecture do; ``extrapolated``: none do (:mod:`gpusim.confidence`)."""
    kernel_time_us: float
    """What a profiler calls the duration; several kernels (split-K and its reduction) include the gap."""
    launch_overhead_us: float
    cycles: int
    clock_mhz: float
    """Sustained SM clock, from the power governor."""
    tflops: float
    """Operations of the dense product a second [TFLOP/s; TOP/s for integers]: of a 2:4 one, its dense equivalent."""
    executed_tflops: float
    """The same without the products that a 2:4 operand leaves out."""
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
    bottleneck: str
    """The first of ``time_shares``."""
    time_shares: dict[str, float]
    """Shares of ``kernel_time_us``, the largest first; they add up to one. A resource of the machine: the busiest of
    the whole GPU. ``idle_sms``: that some SMs have more work than others. ``latency``: that nothing works at capacity.
    ``launch``: that kernels start and drain. For ``bound`` all of the time is the resource's with the highest bound."""
    busy_fractions: dict[str, float]
    """Share of the kernel's cycles in which each resource works, on the SM with the most CTAs."""
    gpu_busy_fractions: dict[str, float]
    """The same, averaged over all SMs."""
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
    stall_cycles: dict[str, int] = field(default_factory=dict)
    """Warp-cycles by cause; they add up to ``warp_cycles``."""
    warp_cycles: int = 0
    second_kernels: int = 0
    """Launches that add up the partial sums of a product; ``kernel_time_us`` has them as in a CUDA graph."""
    bounds_us: dict[str, float] = field(default_factory=dict)
    """Each closed-form bound by the resource it counts."""
    memory_gib: float = 0.0
    """Device memory that operands and results take."""
    fits: bool = True
    """They fit into the memory of the GPU."""
    consistent: bool = True
    """No bound and no capacity contradicts the time; where one does, ``notes`` name it and the time is wrong."""
    notes: tuple[str, ...] = ()
    """What a reader must know to read the figures right, a sentence each."""
    alternatives: tuple[Alternative, ...] = ()

    def __repr__(self) -> str:
        """The operator, the GPU, the time, and what limits it."""
        return f"<Result {self._title()}: {', '.join(value for _, value in self._summary())}>"

    def _repr_html_(self) -> str:
        """A table of the main figures, as notebooks show it."""
        rows = [*self._summary(), ("kernel", self.kernel), *(("note", note) for note in self.notes)]
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
        return f"<table><caption>{escape(self._title())}</caption>{cells}</table>"

    def _title(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        shape = f"{batch}{self.m}x{self.n}x{self.k}" if self.k else f"{self.op} of {self.m}x{self.n}"
        sparsity = "" if self.sparsity == "dense" else f" {self.sparsity}"
        return f"{shape} {self.dtype}{sparsity} on {self.arch}"

    def _summary(self) -> tuple[tuple[str, str], ...]:
        """The main figures by name."""
        unit = "TOP/s" if self.dtype.startswith("int") else "TFLOP/s"
        rate = f"{self.tflops:.4g} {unit}, {self.pct_of_peak:.1f} % of peak"
        return (
            ("time", f"{self.time_us:.4g} us"),
            ("rate", rate if self.k else f"{self.bandwidth_gb_per_s:.4g} GB/s"),
            ("bottleneck", self.bottleneck),
        )

    def nsight_metrics(self) -> dict[str, float]:
        """The same figures under their Nsight Compute names, to lay beside ``ncu --csv``."""
        # "sustained_active" is relative to the cycles in which an SM is active, and active SMs do as the busiest does;
        # "sustained_elapsed" is relative to the cycles of all SMs.
        of_active = self.busy_fractions["arithmetic"] if self.unit == "tensor" else 0.0
        values = (
            self.kernel_time_us * 1e3,
            float(self.cycles),
            float(self.dram_read_bytes),
            float(self.dram_write_bytes),
            float(self.l2_bytes),
            100 * self.l2_hit_fraction,
            100 * of_active,
            100 * self.tensor_active_fraction,
            self.waves,
        )
        return dict(zip(NSIGHT_METRICS, values, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready object: fields in the order above, then ``nsight``; floats to 12 significant digits."""
        record = self.figures()
        nsight = {name: record.pop(name) for name in NSIGHT_METRICS}
        alternatives = [json_ready(asdict(alternative)) for alternative in self.alternatives]
        return {**record, "alternatives": alternatives, "nsight": nsight}

    def figures(self) -> dict[str, Any]:
        """The same without the alternatives, with the Nsight Compute metrics beside the fields: a flat row."""
        record = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "alternatives"}
        named = [cause.value for cause in Cause if cause.value in self.stall_cycles]
        record["stall_cycles"] = {name: self.stall_cycles[name] for name in named}
        return {key: json_ready(value) for key, value in {**record, **self.nsight_metrics()}.items()}


def field_kinds() -> dict[str, type]:
    """The fields of a result and their types: text for one of several literals, the number for one that may be None."""
    return {name: _kind(hint) for name, hint in get_type_hints(Result).items()}


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
