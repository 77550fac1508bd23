"""The machine: which values of a spec reach it, and that nothing else decides what a launch takes."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from textbook import machine

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.machine import Machine, SmLimits
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.program import Compute, Load, Mma, Op, Read, Repeat, Role, WaitLoad
from gpusim.sim.key import outcome_key
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec

GPU = load_spec("A100-SXM4-80GB").gpu
CLOCK_MHZ = 1000.0

IN_THE_MACHINE = {
    *("sm.count", "sm.sub_partitions", "sm.issue_per_cycle", "sm.warp_size", "sm.cta_launch_cycles"),
    "front_end.cta_interval_cycles",
    *("sm.max_warps", "sm.max_ctas", "sm.max_threads_per_cta"),
    *("sm.registers", "sm.register_allocation_unit", "sm.max_registers_per_thread"),
    *("shared_memory.carveouts_kib", "shared_memory.max_kib_per_cta"),
    *("shared_memory.reserved_bytes_per_cta", "shared_memory.allocation_unit_bytes"),
    *("shared_memory.bandwidth_bytes_per_cycle", "shared_memory.sustained_fraction", "shared_memory.latency_cycles"),
    *("load_store.l2_port_bytes_per_cycle", "load_store.l2_port_write_bytes_per_cycle", "load_store.bulk_copy_cycles"),
    *("l2.capacity_mib", "l2.partitions", "l2.bandwidth_bytes_per_cycle", "l2.latency_cycles", "l2.far_latency_cycles"),
    *("l2.write_cost", "l2.fetch_bytes", "dram.page_bytes", "dram.activation_bytes"),
    *("dram.open_pages", "l2.usable_fraction"),
    *("dram.page_part_stride_bytes", "dram.conflict_stride_bytes", "dram.conflict_cost"),
    *("dram.peak_bandwidth_gb_per_s", "dram.efficiency_fraction", "dram.latency_ns", "dram.tlb_miss_ns"),
    *("instructions.*.issue_interval_cycles", "instructions.*.sustained_fraction", "instructions.*.latency_cycles"),
    "pipes.*.threads_per_cycle",
}
"""Values that a simulated cycle may depend on, whatever is launched."""

IN_THE_LAUNCH = {
    # the lowering turns them into amounts of a program, or into the traffic of its tensors
    *(
        "shared_memory.broadcast_fraction",
        "shared_memory.epilogue_pass_cycles",
    ),
    *("load_store.staging_fma_slots", "load_store.computed_address_cost", "load_store.gather_mma_slots"),
    *("load_store.async_copy", "load_store.tlb_reach_mib", "load_store.tlb_refill_cycles"),
    *("l2.drift_steps", "l2.drift_fraction", "l2.lag_steps"),
    "dram.mixed_write_cost",
    *("instructions.*.shape", "pipes.*.latency_cycles"),
}

BESIDE_THEM = {
    # clocks and power; what lies around a kernel; stated peaks; what only a reader wants to know
    *("clock.", "power.", "front_end.", "stated_peaks."),
    *("shared_memory.unified_l1_kib", "shared_memory.banks"),
    *("load_store.l1_latency_cycles", "load_store.l1_bytes_per_cycle"),
    "dram.capacity_gb",
    "dram.visible_fraction",
    "links.",  # between GPUs
}
"""Values of which neither holds; a name that ends in a point stands for all below it."""


def numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every number of a record by its key path; a list counts as one."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, dict):
        for name, item in value.items():
            yield from numbers(item, (*path, name))
    elif isinstance(value, tuple) and value and isinstance(value[0], int | float):
        yield path, tuple(2 * item for item in value)
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int):
        yield path, 2 * value or 1
    elif isinstance(value, float):
        yield path, 0.5 * value or 1.0


def changed(value: Any, path: tuple[str, ...], to: Any) -> Any:
    """A record with another number."""
    name, *rest = path
    if isinstance(value, dict):
        return value | {name: changed(value[name], tuple(rest), to) if rest else to}
    return value.model_copy(update={name: changed(getattr(value, name), tuple(rest), to) if rest else to})


def test_every_value_of_a_spec_has_a_place() -> None:
    reference = Machine.of(GPU, CLOCK_MHZ)
    reaching: set[str] = set()
    other: set[str] = set()
    for path, to in numbers(GPU):
        gpu: Gpu = changed(GPU, path, to)
        # all instructions alike, and all pipes
        section, *rest = path
        named = ".".join((section, "*", *rest[1:]) if section in ("instructions", "pipes") else path)
        (other if Machine.of(gpu, CLOCK_MHZ) == reference else reaching).add(named)
    assert reaching == IN_THE_MACHINE
    beside = {name: name if name in BESIDE_THEM else f"{name.split('.')[0]}." for name in other}
    assert {name for name, entry in beside.items() if entry not in BESIDE_THEM} == IN_THE_LAUNCH
    assert set(beside.values()) >= BESIDE_THEM


def test_a_machine_is_in_cycles_and_bytes() -> None:
    slow, fast = (Machine.of(GPU, clock_mhz) for clock_mhz in (700.0, 1400.0))
    assert slow.dram_bytes_per_cycle == pytest.approx(2 * fast.dram_bytes_per_cycle)
    assert fast.tlb_miss_cycles == pytest.approx(2 * slow.tlb_miss_cycles)
    by_hand = GPU.dram.peak_bandwidth_gb_per_s * GPU.dram.efficiency_fraction / 1.4
    assert fast.dram_bytes_per_cycle == pytest.approx(by_hand)
    assert slow.l2_bytes_per_cycle == fast.l2_bytes_per_cycle  # L2 runs at a clock of the SMs
    assert fast.l2_latency_cycles == GPU.l2.latency_cycles
    assert fast.l2_far_cycles == GPU.l2.far_latency_cycles - GPU.l2.latency_cycles
    mean = fast.dram_latency_cycles + 0.5 * fast.l2_far_cycles
    assert mean == pytest.approx(GPU.dram.latency_ns * 1.4)
    fma = next(pipe for pipe in fast.pipes if pipe.name == "fma")
    sfu = next(pipe for pipe in fast.pipes if pipe.name == "sfu")
    sustained = GPU.instructions["ffma"].sustained_fraction
    assert (fma.instructions_per_cycle, sfu.instructions_per_cycle) == (64 / 4 / 32 * sustained, 16 / 4 / 32)


# The key of an outcome


LOAD = Load((Read("x", 64.0, 64.0),), port_bytes=64.0)
MMA = Mma("ffma", 4.0, 2, 0.0, 1.0, pipelined=True)
TENSORS = (Tensor("x", 128.0, miss_fraction=0.5),)


def launch(*body: Op, iterations: int = 9, rows: int = 1) -> Launch:
    return Launch("test", Grid(3 // rows, rows), (Role(2, (Repeat(body, iterations),)),), Resources(64, 1, 0), TENSORS)


LAUNCH = launch(LOAD, WaitLoad(), MMA)


def test_equal_machines_and_launches_have_one_hash_and_one_outcome() -> None:
    again = launch(LOAD, WaitLoad(), dataclasses.replace(MMA))
    assert outcome_key(machine(), LAUNCH) == outcome_key(machine(), again)
    assert simulate(machine(), LAUNCH) == simulate(machine(), again)
    assert len({outcome_key(machine(), LAUNCH, detail) for detail in ("sampled", "full")}) == 2


def test_what_a_launch_does_not_use_is_not_in_its_hash() -> None:
    plain = machine()
    others = tuple(dataclasses.replace(one, latency_cycles=99.0) if one.name == "hmma" else one for one in plain.mmas)
    pipes = tuple(one for one in plain.pipes if one.name in ("fma", "tensor"))
    same = dataclasses.replace(plain, mmas=others, pipes=pipes, limits=plain.limits._replace(gpu="another"))
    assert outcome_key(same, LAUNCH) == outcome_key(plain, LAUNCH)
    assert simulate(same, LAUNCH) == simulate(plain, LAUNCH)


def test_where_nothing_passes_dram_its_speed_is_in_the_hash_of_the_full_detail_only() -> None:
    held = dataclasses.replace(LAUNCH, tensors=(Tensor("x", 128.0, miss_fraction=0.0),))
    plain = machine()
    faster = dataclasses.replace(plain, dram_bytes_per_cycle=9e3, dram_latency_cycles=900.0, tlb_miss_cycles=90.0)
    assert outcome_key(faster, held) == outcome_key(plain, held)
    assert simulate(faster, held) == simulate(plain, held)
    assert outcome_key(faster, held, "full") != outcome_key(plain, held, "full")
    written_back = dataclasses.replace(held, write_back_cost=1.0)
    assert outcome_key(faster, written_back) != outcome_key(plain, written_back)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Machine)])
def test_every_value_of_a_machine_is_in_the_hash(name: str) -> None:
    plain = machine()
    value = getattr(plain, name)
    other: Any
    match value:
        case SmLimits():
            other = value._replace(max_warps=1)
        case tuple():
            other = tuple(dataclasses.replace(one, instructions_per_cycle=7.0) for one in value)
        case _:
            other = 2 * value + 1
    changes: dict[str, Any] = {name: other}
    assert outcome_key(dataclasses.replace(plain, **changes), LAUNCH) != outcome_key(plain, LAUNCH)


def test_every_amount_of_a_program_is_in_the_hash() -> None:
    launches = (
        LAUNCH,
        launch(LOAD, WaitLoad(), MMA, iterations=10),
        launch(LOAD, WaitLoad(), MMA, Compute(1.0)),
        launch(LOAD, MMA, WaitLoad()),
        launch(dataclasses.replace(LOAD, port_bytes=65.0), WaitLoad(), MMA),
        launch(LOAD, WaitLoad(), MMA, rows=3),
        dataclasses.replace(LAUNCH, cold=False),
    )
    assert len({outcome_key(machine(), one) for one in launches}) == len(launches)


def test_programs_see_less_memory_than_a_board_has() -> None:
    seen = {name: load_spec(name).system.gpu.dram.visible_gib for name in ("t4", "rtx-3090", "a100-sxm4-40gb")}
    stated = {"t4": (14.56, 14.76), "rtx-3090": (23.5, 23.7), "a100-sxm4-40gb": (39.3, 39.6)}  # by PyTorch's messages
    assert all(stated[name][0] <= gib <= stated[name][1] for name, gib in seen.items())
