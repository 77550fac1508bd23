"""A GPU as validated numbers, with units in their names.

A :class:`Gpu` is one board. It knows no YAML and no file: ``gpusim.specs`` reads a spec, strips
each value's source and kind, and validates the numbers against these models. No hardware value has a
default here: what a spec does not say, the machine does not know.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpusim.numbers.formats import format_named
from gpusim.record import Microseconds, Record, Unsourced
from gpusim.units import MEGA, MIB, TERA, bytes_per_cycle
from gpusim.workloads.gemm import Sparsity

Unit = Literal["cuda", "tensor"]
FormatName = Annotated[str, AfterValidator(format_named)]
ArithmeticPipe = Literal["alu", "sfu"]

NO_LIMIT = 1e9
"""A rate, a capacity or a power that stands for a resource which never limits, as on a textbook machine."""

# Ranges of physical values: at least a factor of four beyond the extremes of the shipped boards, Volta to Hopper, for
# studies of machines that nobody builds. Outside lie slips of the unit, the key or the sign.
Mhz = Annotated[float, Field(ge=10, le=20_000)]
"""SM clock [MHz]: 135 to 2,100 on the shipped boards."""
Cycles = Annotated[float, Field(ge=0, le=10_000)]
"""Duration [SM cycles]: at most 203 on the shipped boards."""
Latency = Annotated[int, Field(ge=1, le=10_000)]
"""Latency [SM cycles]: 19 (shared memory) to 414 (far L2)."""
BytesPerCycle = Annotated[float, Field(ge=1, le=NO_LIMIT)]
"""Bandwidth [B/SM cycle]: 64 (one SM) to some 5,000 (L2)."""
Share = Annotated[float, Field(ge=0.01, le=1)]
"""Fraction of a rate or a capacity that is reached: 0.36 to 1."""
Kib = Annotated[float, Field(ge=0, le=4096)]
"""Memory of one SM [KiB]: 48 to 256."""
Volt = Annotated[float, Field(ge=0.1, le=5)]
"""Core voltage [V]: 0.7 to 1.1."""
Watt = Annotated[float, Field(ge=0, le=10_000)]
"""Power [W]: boards take up to 700."""
Picojoule = Annotated[float, Field(ge=0, le=10_000)]
"""Energy of an operation or a byte [pJ]: up to 133."""
Celsius = Annotated[float, Field(ge=-50, le=200)]
"""Temperature [degrees C]: chips run at 30 to 90."""
RelativeEnergy = Annotated[float, Field(ge=0.001, le=100)]
"""Energy relative to that of another operation."""
Extent = Annotated[int, Field(ge=1, le=4096)]
"""Extent of an instruction: up to 256."""
TeraPerSecond = Annotated[float, Field(ge=0.001, le=1_000_000)]
"""Peak rate [TFLOP/s or TOP/s]: 7 to 3,958."""


class Clock(Record):
    """SM clock limits [MHz]. ``max`` is the highest clock the board boosts to on its own."""

    base_mhz: Mhz = Field(description="Guaranteed SM clock [MHz].")
    boost_mhz: Mhz = Field(description="SM clock that the vendor states its peak rates for [MHz].")
    tensor_boost_mhz: Mhz | None = Field(
        default=None,
        description="SM clock of the stated Tensor Core peaks, FP64 excepted, where it differs from boost_mhz [MHz].",
    )
    max_mhz: Mhz = Field(description="Highest SM clock that the board boosts to on its own [MHz].")
    min_mhz: Mhz = Field(description="Lowest SM clock [MHz].")


class Sm(Record):
    """A streaming multiprocessor: its schedulers and what CTAs compete for."""

    count: int = Field(ge=1, le=2_048, description="Streaming multiprocessors (SMs) of the board.")
    sub_partitions: int = Field(ge=1, le=32, description="Sub-partitions of an SM, each with a warp scheduler.")
    issue_per_cycle: float = Field(
        ge=0.1, le=16, description="Warp instructions that a sub-partition issues per SM cycle."
    )
    warp_size: int = Field(ge=8, le=128, description="Threads of a warp.")
    max_warps: int = Field(ge=1, le=512, description="Most warps resident on an SM.")
    max_ctas: int = Field(ge=1, le=512, description="Most CTAs (thread blocks) resident on an SM.")
    max_threads_per_cta: int = Field(ge=32, le=8_192, description="Most threads of a CTA.")
    registers: int = Field(ge=4096, le=1_048_576, description="32-bit registers of an SM.")
    register_allocation_unit: int = Field(
        ge=1, le=4_096, description="Unit in which registers are allocated to a warp [32-bit registers]."
    )
    max_registers_per_thread: int = Field(ge=16, le=2_048, description="Most 32-bit registers of a thread.")
    cta_launch_cycles: Cycles = Field(
        description="Time from a free CTA slot to the first instruction of the next CTA [SM cycles]."
    )


BANK_BYTES = 4
"""What a bank of shared memory passes in a cycle [B] (CUDA C++ Programming Guide)."""


class SharedMemory(Record):
    """Shared memory of one SM, and the L1 it is carved out of."""

    unified_l1_kib: Kib = Field(description="Memory of an SM that L1 and shared memory divide [KiB].")
    carveouts_kib: tuple[Kib, ...] = Field(
        min_length=1, strict=False, description="Sizes of shared memory that can be configured per SM [KiB]."
    )
    max_kib_per_cta: Kib = Field(description="Most shared memory of a CTA, the reserved part excepted [KiB].")
    reserved_bytes_per_cta: int = Field(
        ge=0, le=65_536, description="Shared memory that the system reserves per CTA [B]."
    )
    allocation_unit_bytes: int = Field(
        ge=1, le=65_536, description="Unit in which shared memory is allocated to a CTA [B]."
    )
    banks: int = Field(ge=1, le=256, description="Shared memory banks of an SM.")
    bandwidth_bytes_per_cycle: BytesPerCycle = Field(description="Peak shared memory bandwidth of an SM [B/SM cycle].")
    sustained_fraction: Share = Field(
        description="Fraction of the peak bandwidth that a kernel's mix of accesses sustains [0 to 1]."
    )
    latency_cycles: Latency = Field(description="Latency of a load without bank conflicts [SM cycles].")
    broadcast_fraction: Share = Field(
        description="Port time of a CUDA-core kernel's 128-bit reads relative to reads that share no address [0 to 1].",
    )
    epilogue_pass_cycles: Cycles = Field(
        description="What a pass of a Tensor Core kernel's epilogue takes besides its instructions [SM cycles].",
    )

    @property
    def sustained_bytes_per_cycle(self) -> float:
        """Bandwidth under a kernel's mix of accesses [B/cycle]."""
        return self.bandwidth_bytes_per_cycle * self.sustained_fraction

    @property
    def port_share(self) -> float:
        """Share of what the banks pass that the load/store units can take; lines of L1 are filled with the rest."""
        return min(1.0, self.bandwidth_bytes_per_cycle / (self.banks * BANK_BYTES))

    @property
    def capacity_bytes(self) -> int:
        """Largest shared-memory carve-out of an SM [B]."""
        return int(max(self.carveouts_kib) * 1024)


class LoadStore(Record):
    """Path between an SM and L2: L1 as a pass-through for streaming tiles."""

    l1_latency_cycles: Latency = Field(description="Latency of an L1 hit [SM cycles].")
    l1_bytes_per_cycle: BytesPerCycle = Field(description="Bandwidth of loads that hit in L1 [B/SM cycle].")
    l2_port_bytes_per_cycle: BytesPerCycle = Field(description="Bandwidth from L2 to one SM [B/SM cycle].")
    l2_port_write_bytes_per_cycle: BytesPerCycle = Field(description="Bandwidth from one SM to L2 [B/SM cycle].")
    bulk_copy_cycles: Cycles = Field(description="Latency of a bulk copy (TMA) beyond that of a load [SM cycles].")
    tlb_reach_mib: float = Field(ge=0.001, le=NO_LIMIT, description="Memory whose translations an SM holds [MiB].")
    tlb_refill_cycles: Cycles = Field(
        description="Time of an SM's loads that a translation takes which it has to fetch [SM cycles]."
    )
    staging_fma_slots: float = Field(
        ge=0,
        le=1_000,
        description="FMA-pipe issue slots that a CUDA-core kernel spends to stage 32 elements in shared memory; none "
        "where cp.async copies what is not turned.",
    )
    computed_address_cost: float = Field(
        ge=0.1,
        le=100,
        description="FMA-pipe slots with which a convolution stages an element whose address it computes, over those "
        "of one that looks offsets up.",
    )
    gather_mma_slots: float = Field(
        ge=0,
        le=100,
        description="Tensor Core issue slots that a convolution's kernel spends to gather 32 words of 32 bits through "
        "registers; none where cp.async copies them.",
    )
    async_copy: bool = Field(description="Whether cp.async copies global to shared memory without registers.")


class L2(Record):
    """The L2 cache, all partitions together. Latency is seen by a warp, in SM cycles at boost."""

    capacity_mib: float = Field(ge=0.125, le=NO_LIMIT, description="Capacity of all L2 partitions together [MiB].")
    usable_fraction: Share = Field(
        description="Fraction of the capacity that holds lines which CTAs read out of step [0 to 1]."
    )
    drift_steps: float = Field(
        ge=0,
        le=100,
        description="Main-loop steps between the first and the last of the CTAs that read an operand panel together.",
    )
    lag_steps: float = Field(
        ge=0,
        le=100,
        description="Main-loop steps that most of the CTAs that read an operand panel together are within.",
    )
    drift_fraction: float = Field(
        ge=0,
        le=1,
        description="Fraction of the steps of a main loop by which these CTAs drift apart where that is more than "
        "drift_steps; lag_steps grows in proportion [0 to 1].",
    )
    fetch_bytes: int = Field(ge=1, le=4_096, description="Aligned unit that an L2 miss reads from DRAM [B].")
    partitions: int = Field(
        ge=1, le=64, description="L2 partitions; a hit in another partition than the SM's has the far latency."
    )
    bandwidth_bytes_per_cycle: BytesPerCycle = Field(
        description="Achievable L2 bandwidth of the whole GPU at boost clock [B/SM cycle]."
    )
    write_cost: float = Field(ge=0.1, le=10, description="Time of a written byte in L2 over that of a read one.")
    latency_cycles: Latency = Field(description="Latency of a hit in the near partition at boost clock [SM cycles].")
    far_latency_cycles: Latency = Field(
        description="Latency of a hit in the far partition at boost clock, or in the only one [SM cycles]."
    )

    @property
    def capacity_bytes(self) -> int:
        return int(self.capacity_mib * MIB)


class Dram(Record):
    """Device memory."""

    technology: str = Field(description="Memory technology, such as HBM2e or GDDR6.")
    capacity_gb: float = Field(ge=0.25, le=10_000, description="Device memory [GB].")
    visible_fraction: Share = Field(
        description="Fraction of the device memory that programs see, contexts included: the rest is the driver's, or "
        "holds ECC [0 to 1]."
    )
    peak_bandwidth_gb_per_s: float = Field(ge=1, le=NO_LIMIT, description="Peak bandwidth [GB/s].")
    efficiency_fraction: Share = Field(
        description="Fraction of the peak bandwidth that streaming reads achieve [0 to 1]."
    )
    without_ecc_fraction: Share | None = Field(
        default=None,
        description="The same where ECC is switched off, of boards that keep its bits among the data [0 to 1].",
    )
    mixed_write_cost: float = Field(
        ge=0.1,
        le=10,
        description="DRAM time of a written byte over that of a read one, in streams that read and write all the time.",
    )
    page_bytes: float = Field(ge=64, le=65_536, description="DRAM page that a row activation opens in one bank [B].")
    open_pages: int = Field(ge=1, le=NO_LIMIT, description="Pages that can be open at once: one in each bank.")
    activation_bytes: float = Field(
        ge=0,
        le=65_536,
        description="Transfer lost to one row activation, as the bytes that could have been read meanwhile [B].",
    )
    page_part_stride_bytes: int = Field(
        ge=64,
        le=10**9,
        description="From one part of a page to the next, over parts of others: rows so far apart share a page [B].",
    )
    conflict_stride_bytes: float = Field(
        ge=64, le=NO_LIMIT, description="Rows at least so far apart lie in the same banks, where one page is open [B]."
    )
    conflict_cost: float = Field(
        ge=0.1, le=10, description="Activation in a bank whose page must be closed first, over one in a bank without."
    )
    latency_ns: float = Field(ge=1, le=10_000, description="Latency of a load that misses L2 and hits the TLB [ns].")
    tlb_miss_ns: float = Field(ge=0, le=100_000, description="Latency added while an SM first translates a page [ns].")

    @property
    def visible_gib(self) -> float:
        """Memory that programs see [GiB]. Vendors count the capacity in units of 2^30 bytes, too."""
        return self.capacity_gb * self.visible_fraction


class PipeRate(Record):
    """An execution pipe for arithmetic beside multiply-accumulates."""

    threads_per_cycle: float = Field(
        ge=1, le=NO_LIMIT, description="Results per SM cycle of an SM, all sub-partitions together."
    )
    latency_cycles: float = Field(ge=1, le=10_000, description="Latency of a dependent instruction [SM cycles].")


class Instruction(Record):
    """One warp-level multiply-accumulate instruction and how a sub-partition issues it.

    ``shape`` is (m, n, k) of one warp instruction; a CUDA-core FMA is (1, 32, 1). For ``2:4`` shapes k
    counts the dense-equivalent elements.
    """

    unit: Unit = Field(description="Execution unit: cuda (CUDA cores) or tensor (Tensor Cores).")
    inputs: tuple[FormatName, ...] = Field(
        strict=False, description="Data types of A and B that the instruction multiplies."
    )
    accumulate: FormatName = Field(description="Data type of the accumulator.")
    sparsity: Sparsity = Field(description="Structure of A: dense, or 2:4 for structured sparsity.")
    shape: Annotated[tuple[Extent, Extent, Extent], Unsourced()] = Field(
        strict=False, description="Extents m, n, k of one warp instruction; k counts dense-equivalent elements for 2:4."
    )
    issue_interval_cycles: float = Field(
        ge=0.01, le=10_000, description="Issue interval on a sub-partition at the published peak rate [SM cycles]."
    )
    sustained_fraction: Share = Field(
        description="Fraction of the peak rate that a register-only microbenchmark sustains [0 to 1]."
    )
    latency_cycles: float = Field(ge=1, le=10_000, description="Latency of a dependent instruction [SM cycles].")

    @property
    def fma(self) -> int:
        """Multiply-adds of one warp instruction (dense-equivalent)."""
        m, n, k = self.shape
        return m * n * k

    @property
    def energy_key(self) -> str:
        """Key of ``power.relative_energy``: unit and first format, such as tensor_fp16."""
        return f"{self.unit}_{self.inputs[0]}"


class FrontEnd(Record):
    """What starts kernels on the GPU."""

    kernel_latency_us: Microseconds = Field(description="Duration of an empty kernel: start, drain and flush [us].")
    memset_us: Microseconds = Field(
        description="From the start of a memset of some bytes to that of the kernel that waits for it [us]."
    )
    cta_interval_cycles: Cycles = Field(
        description="Least time between CTAs that start, on whichever SMs they do [SM cycles]."
    )


class Power(Record):
    """Inputs of the clock governor. Energies of the core are stated at ``energy_voltage_v``."""

    board_limit_w: float = Field(ge=1, le=NO_LIMIT, description="Power limit of the board [W].")
    averaging_ms: float = Field(
        ge=0, le=10_000, description="Time constant of the average power that the governor holds to the limit [ms]."
    )
    idle_w: Watt = Field(description="Power of the board that no clock and no voltage of the core changes [W].")
    leakage_w_per_sm: Watt = Field(description="Leakage of the chip, per SM, at energy_voltage_v and 65 degrees C [W].")
    leakage_per_k: float = Field(ge=0, le=0.1, description="Relative rise of the leakage [1/K].")
    coolant_c: Celsius = Field(description="Temperature of what cools the board [degrees C].")
    limit_temperature_c: Celsius = Field(description="Temperature at which the chip settles at its limit [degrees C].")
    warm_up_s: float = Field(ge=0.01, le=10_000, description="Time constant of the chip's temperature [s].")
    energy_voltage_v: Volt = Field(description="Core voltage that the energies are stated at [V].")
    min_voltage_v: Volt = Field(description="Lowest core voltage [V].")
    min_voltage_mhz: Mhz = Field(description="Highest SM clock that min_voltage_v sustains [MHz].")
    voltage_mv_per_mhz: float = Field(ge=0, le=10, description="Rise of the core voltage above that clock [mV/MHz].")
    clock_pj_per_sm_cycle: Picojoule = Field(description="Energy of a cycle of the clocks and idle pipes, per SM [pJ].")
    cuda_pj_per_fma: Picojoule = Field(
        description="Energy of an FP32 multiply-add of CUDA cores, its instruction included [pJ]."
    )
    tensor_pj_per_fma: Picojoule = Field(
        description="Energy of an FP16 multiply-add of Tensor Cores into FP32, its instruction included [pJ]."
    )
    relative_energy: dict[str, RelativeEnergy] = Field(
        description="Energy of a multiply-add by unit and format (tensor_int8), relative to those two; also "
        "fp16_accumulator, of Tensor Cores, and sparse, of 2:4."
    )
    positive_energy_fraction: Share = Field(
        description="Energy of arithmetic and on-chip transfers on random numbers from 0 to 1, relative to those of "
        "both signs [0 to 1]."
    )
    zeros_energy_fraction: Share = Field(
        description="Energy of arithmetic and on-chip transfers on zeros, relative to random operands [0 to 1]."
    )
    instruction_pj_per_lane: Picojoule = Field(
        description="Energy to fetch, decode and feed one instruction of a thread [pJ]."
    )
    shared_pj_per_byte: Picojoule = Field(description="Energy of a shared memory access [pJ/B].")
    l2_pj_per_byte: Picojoule = Field(description="Energy of an L2 access, the way to the SM included [pJ/B].")
    dram_pj_per_byte: Picojoule = Field(description="Energy of a DRAM access; does not scale with core voltage [pJ/B].")

    def voltage_v(self, clock_mhz: float) -> float:
        """Core voltage at a clock [V]: flat up to ``min_voltage_mhz``, then linear."""
        return self.min_voltage_v + 1e-3 * self.voltage_mv_per_mhz * max(0.0, clock_mhz - self.min_voltage_mhz)

    def pj_per_fma(self, instruction: Instruction) -> float:
        """Energy of a multiply-add of an instruction, dense-equivalent, at ``energy_voltage_v`` [pJ]."""
        relative = self.relative_energy[instruction.energy_key]
        if instruction.unit == "cuda":
            return relative * self.cuda_pj_per_fma
        relative *= self.relative_energy["fp16_accumulator"] if instruction.accumulate == "fp16" else 1.0
        relative *= self.relative_energy["sparse"] if instruction.sparsity == "2:4" else 1.0
        return relative * self.tensor_pj_per_fma


class BoardLink(Record):
    """Links of one kind that leave the board, to other GPUs or to the host."""

    count: int = Field(ge=1, le=256, description="Links of the board.")
    gb_per_s: float = Field(ge=0.01, le=10_000, description="Line rate of one link in one direction [GB/s].")
    sustained_fraction: Share = Field(
        description="Fraction of the line rate at which stores of kernels arrive [0 to 1]."
    )


class Gpu(Record):
    """One board. Every rate is per SM cycle unless its name says otherwise; names end in units, fractions are 0 to 1.

    A value that is missing, unknown or out of its range is a ``ValidationError`` of pydantic.
    """

    name: str = Field(description="Name of the board; a file without one is a base that boards extend.")
    aliases: tuple[str, ...] = Field(
        default=(), strict=False, description="Other names of the board, such as the one that nvidia-smi prints."
    )
    short_names: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Names that several boards could go by and that select this one; the choice is logged.",
    )
    architecture: str = Field(description="Architecture, such as ampere.")
    compute_capability: str = Field(pattern=r"^\d+\.\d$", description="CUDA compute capability, such as 8.0.")
    clock: Clock = Field(description="Clocks of the SMs.")
    sm: Sm = Field(description="Streaming multiprocessor.")
    shared_memory: SharedMemory = Field(description="Shared memory of an SM, and the L1 it is configured from.")
    load_store: LoadStore = Field(description="Path between an SM and L2.")
    l2: L2 = Field(description="L2 cache.")
    dram: Dram = Field(description="Device memory: its bandwidth and latency.")
    pipes: dict[ArithmeticPipe, PipeRate] = Field(
        description="Pipes beside those of the instructions: alu (integers, comparisons) and sfu (functions)."
    )
    instructions: dict[str, Instruction] = Field(
        description="Multiply-accumulate instructions, by key; stated_peaks names the same keys."
    )
    front_end: FrontEnd = Field(description="Start and end of kernels.")
    power: Power = Field(description="Inputs of the clock governor.")
    links: dict[str, BoardLink] = Field(default={}, description="Links that leave the board: nvlink, pcie.")
    stated_peaks: dict[str, TeraPerSecond] = Field(
        default={},
        description="Peak rate that the vendor states, by key of instructions [TFLOP/s or TOP/s]; checked within 1 %.",
    )

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability as numbers, major and minor: 10.0 comes after 9.0."""
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)

    @property
    def arithmetic(self) -> tuple[str, str, tuple[tuple[str, str, tuple[str, ...]], ...]]:
        """What decides the types in which a framework computes: name, compute capability, types of instructions."""
        types = tuple((one.unit, one.sparsity, tuple(one.inputs)) for one in self.instructions.values())
        return self.name, self.compute_capability, types

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
