"""What a GPU is: plain, validated numbers with their units in their names.

A :class:`GpuArch` is one board. It knows no YAML and no file: ``gpusim.specfile`` reads a spec, strips
each value's source and kind, and validates the numbers against these models. No hardware value has a
default here: what a spec does not say, the machine does not know.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from gpusim.units import MEGA, MIB, TERA, bytes_per_cycle

Unit = Literal["cuda", "tensor"]


class _Part(BaseModel):
    """A frozen part of a GPU; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Clock(_Part):
    """SM clock limits [MHz]. ``max`` is the highest clock the board boosts to on its own."""

    base_mhz: PositiveFloat
    boost_mhz: PositiveFloat
    tensor_boost_mhz: PositiveFloat | None = Field(
        default=None, description="that the vendor's Tensor Core peaks stand for, FP64 apart, if it is another one"
    )
    max_mhz: PositiveFloat
    min_mhz: PositiveFloat


class Sm(_Part):
    """A streaming multiprocessor: its schedulers and what CTAs compete for."""

    count: PositiveInt
    sub_partitions: PositiveInt
    issue_per_cycle: PositiveFloat = Field(description="warp instructions per sub-partition and cycle")
    warp_size: PositiveInt
    max_warps: PositiveInt
    max_ctas: PositiveInt
    max_threads_per_cta: PositiveInt
    registers: PositiveInt = Field(description="32-bit registers per SM")
    register_allocation_unit: PositiveInt = Field(description="registers, per warp")
    max_registers_per_thread: PositiveInt
    cta_launch_cycles: float = Field(ge=0, description="from a free slot to the first instruction")


class SharedMemory(_Part):
    """Shared memory of one SM, and the L1 it is carved out of."""

    unified_l1_kib: PositiveFloat
    carveouts_kib: tuple[float, ...]
    max_kib_per_cta: PositiveFloat
    reserved_bytes_per_cta: int = Field(ge=0)
    allocation_unit_bytes: PositiveInt
    banks: PositiveInt
    bandwidth_bytes_per_cycle: PositiveFloat
    sustained_fraction: float = Field(gt=0, le=1, description="of that bandwidth, under a kernel's mix of accesses")
    latency_cycles: PositiveInt
    broadcast_fraction: float = Field(
        gt=0, le=1, description="port time of a CUDA-core kernel's 128-bit reads, of reads that share nothing"
    )
    turned_fill_ways: float = Field(ge=1, description="bank conflict of writing an operand turned by 90 degrees")
    rearrange_pass_cycles: float = Field(
        ge=0, description="latency of a pass of results through shared memory: write, meet, read, meet, store"
    )

    @property
    def sustained_bytes_per_cycle(self) -> float:
        """Bandwidth under a kernel's mix of accesses [B/cycle]."""
        return self.bandwidth_bytes_per_cycle * self.sustained_fraction

    @property
    def capacity_bytes(self) -> int:
        """Largest shared-memory carve-out of an SM [B]."""
        return int(max(self.carveouts_kib) * 1024)


class LoadStore(_Part):
    """Path between an SM and L2: L1 as a pass-through for streaming tiles."""

    l1_latency_cycles: PositiveInt
    l2_port_bytes_per_cycle: PositiveFloat = Field(description="L2 to one SM, per SM cycle")
    bulk_copy_cycles: float = Field(ge=0, description="that a bulk copy (TMA) answers later than a load")
    fill_pipe_instructions: float = Field(
        ge=0, description="FMA-pipe slots that a CUDA-core kernel loses per 32 elements it moves into shared memory"
    )
    tlb_entries: PositiveInt = Field(description="pages that an SM's first TLB remembers")
    tlb_page_mib: PositiveFloat
    tlb_miss_cycles: float = Field(ge=0, description="that a page it does not remember holds up the SM's loads")
    async_copy: bool = Field(description="cp.async: global to shared without registers")
    matrix_load: bool = Field(description="ldmatrix")


class L2(_Part):
    """The L2 cache, all partitions together. Latency is seen by a warp, in SM cycles at boost."""

    capacity_mib: PositiveFloat
    usable_fraction: float = Field(gt=0, le=1, description="of the capacity, for lines that are read in pieces")
    merged_fraction: float = Field(ge=0, lt=1, description="of the pieces of a sector that narrow stores write")
    fetch_bytes: PositiveInt = Field(description="aligned unit that a miss reads from DRAM")
    partitions: PositiveInt
    bandwidth_bytes_per_cycle: PositiveFloat = Field(description="achievable, whole GPU, per SM cycle at boost")
    latency_cycles: PositiveInt = Field(description="hit in the near partition")
    far_latency_cycles: PositiveInt = Field(description="hit in the far partition; equals near if there is one")

    @property
    def capacity_bytes(self) -> int:
        return int(self.capacity_mib * MIB)


class Dram(_Part):
    """Device memory."""

    technology: str
    capacity_gb: PositiveFloat
    peak_bandwidth_gb_per_s: PositiveFloat
    efficiency_fraction: float = Field(gt=0, le=1, description="streaming reads, of peak")
    page_bytes: PositiveFloat = Field(description="what a row activation opens in one bank")
    activation_bytes: float = Field(ge=0, description="what could have been read while a page is opened")
    latency_ns: PositiveFloat = Field(description="seen by a warp, L2 miss, TLB hit")
    tlb_miss_ns: float = Field(ge=0, description="added while an SM first translates pages it has not used")


class Instruction(_Part):
    """One warp-level multiply-accumulate instruction and how a sub-partition issues it.

    ``shape`` is (m, n, k) of one warp instruction; a CUDA-core FMA is (1, 32, 1). For ``2:4`` shapes k
    counts the dense-equivalent elements.
    """

    unit: Unit
    inputs: tuple[str, ...] = Field(description="data types of A and B it multiplies")
    accumulate: str
    sparsity: Literal["dense", "2:4"]
    shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    issue_interval_cycles: PositiveFloat = Field(description="per sub-partition, from the published peak rate")
    sustained_fraction: float = Field(gt=0, le=1, description="of that rate, in a register-only microbenchmark")
    latency_cycles: PositiveFloat
    energy_pj_per_fma: float = Field(ge=0, description="at the energy voltage of the power section")

    @property
    def fma(self) -> int:
        """Multiply-adds of one warp instruction (dense-equivalent)."""
        m, n, k = self.shape
        return m * n * k


class Launch(_Part):
    """What lies around a kernel on the GPU and in the driver [us]."""

    kernel_latency_us: float = Field(ge=0, description="kernel duration of an empty kernel: start, drain, flush")
    graph_gap_us: float = Field(ge=0, description="between dependent kernels replayed from a CUDA graph")
    stream_gap_us: float = Field(ge=0, description="between kernels that were launched into one stream long before")
    stream_interval_us: float = Field(ge=0, description="shortest interval between launches into a stream")
    library_interval_us: float = Field(ge=0, description="the same between calls of a library that picks a kernel")
    method_overhead_us: dict[str, float] = Field(description="what a way of timing adds on the host, by method")


class Likings(_Part):
    """How a library's choice departs from the shortest estimated time.

    All are in logarithms of time: 0.1 makes up for an estimate that is 10 % longer.
    """

    results_exponent: float = Field(description="credit per logarithm of a CTA's results: libraries like large tiles")
    split_exponent: float = Field(description="charge per logarithm of the CTAs that share a tile's k")
    reduce_charge: float = Field(description="charge of a second kernel that adds the partial sums")
    vector_credit: float = Field(description="credit of kernels made for vectors, where they serve")
    plain: dict[str, float] = Field(description="credit of a kernel, by its label, in single products")
    batched: dict[str, float] = Field(description="the same in batches, which libraries choose for apart")


def cuda_name(major: int) -> str:
    """The key of a major version of CUDA.

    >>> cuda_name(10)
    'cuda_10'
    """
    return f"cuda_{major}"


def cuda_version(name: str) -> int | None:
    """The major version that a key names, if it names one.

    >>> cuda_version("cuda_10"), cuda_version("cuda_10.1")
    (10, None)
    """
    found = re.fullmatch(r"cuda_(\d+)", name)
    return int(found[1]) if found else None


class KernelChoice(Likings):
    """The likings of the newest library that is known, and those of older ones."""

    older: dict[str, Likings] = Field(description="of libraries up to a major version of CUDA, such as cuda_10")


class Power(_Part):
    """Inputs of the clock governor. Energies of the core are stated at ``energy_voltage_v``."""

    board_limit_w: PositiveFloat
    idle_w: float = Field(ge=0, description="board at full clock with no kernel")
    active_static_w: float = Field(ge=0, description="added once any SM works, at max voltage; scales with V^2")
    averaging_ms: float = Field(ge=0, description="time constant of the average that the governor holds to the limit")
    energy_voltage_v: PositiveFloat
    max_voltage_v: PositiveFloat = Field(description="at the highest clock")
    min_voltage_v: PositiveFloat
    min_voltage_mhz: PositiveFloat = Field(description="highest clock that min voltage sustains")
    instruction_pj_per_lane: float = Field(ge=0, description="to fetch, decode and feed one instruction of a thread")
    shared_pj_per_byte: float = Field(ge=0)
    l2_pj_per_byte: float = Field(ge=0)
    dram_pj_per_byte: float = Field(ge=0, description="does not scale with core voltage")

    def voltage_v(self, clock_mhz: float, max_clock_mhz: float) -> float:
        """Core voltage at a clock [V]: flat up to ``min_voltage_mhz``, then linear to the maximum."""
        if clock_mhz <= self.min_voltage_mhz:
            return self.min_voltage_v
        share = (clock_mhz - self.min_voltage_mhz) / (max_clock_mhz - self.min_voltage_mhz)
        return self.min_voltage_v + min(1.0, share) * (self.max_voltage_v - self.min_voltage_v)


class GpuArch(_Part):
    """One board. Every rate is per SM cycle unless its name says otherwise."""

    name: str
    aliases: tuple[str, ...]
    architecture: str
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    kernel_catalogues: tuple[str, ...] = Field(description="files of arch_specs/kernels, without .yaml")
    clock: Clock
    sm: Sm
    shared_memory: SharedMemory
    load_store: LoadStore
    l2: L2
    dram: Dram
    instructions: dict[str, Instruction]
    launch: Launch
    kernel_choice: KernelChoice
    power: Power
    stated_peaks: dict[str, PositiveFloat] = Field(
        description="vendor figures: TFLOP/s (TOP/s) by instruction key, at boost; checked within 1 %"
    )

    def with_cuda(self, major: int | None) -> GpuArch:
        """The board as the libraries of a major version of CUDA use it; None stands for the newest."""
        versions = {cuda_version(name): likings for name, likings in self.kernel_choice.older.items()}
        until = min((one for one in versions if one is not None and major is not None and one >= major), default=None)
        if until is None:
            return self
        older = KernelChoice(**versions[until].model_dump(), older={})
        return self.model_copy(update={"kernel_choice": older})

    def stated_clock_mhz(self, instruction: Instruction) -> float:
        """Clock that the vendor's peak of an instruction stands for [MHz]."""
        if instruction.unit == "tensor" and "fp64" not in instruction.inputs:
            return self.clock.tensor_boost_mhz or self.clock.boost_mhz
        return self.clock.boost_mhz

    def peak_tflops(self, instruction: Instruction, clock_mhz: float | None = None) -> float:
        """Peak rate of an instruction [TFLOP/s or TOP/s], 2 operations per multiply-add; by default as stated."""
        fma_per_cycle = self.sm.count * self.sm.sub_partitions * instruction.fma / instruction.issue_interval_cycles
        return 2 * fma_per_cycle * (clock_mhz or self.stated_clock_mhz(instruction)) * MEGA / TERA

    def dram_bytes_per_cycle(self, clock_mhz: float) -> float:
        """Achievable DRAM bandwidth [B/SM cycle] at an SM clock."""
        return bytes_per_cycle(self.dram.peak_bandwidth_gb_per_s * self.dram.efficiency_fraction, clock_mhz)
