"""Random programs on random machines: what a jump leaves out, and what holds whatever a program says."""

from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from textbook import machine

from gpusim.hardware.machine import Machine, Pipe
from gpusim.launch import Grid, Launch, Resources, Tensor, l2_read_bytes
from gpusim.program import (
    Alu,
    Barrier,
    Load,
    LoadShared,
    Mma,
    Op,
    Program,
    Read,
    Repeat,
    Role,
    Store,
    WaitLoad,
    executed,
)
from gpusim.sim.simulate import simulate

JUMP_TOLERANCE = 0.005  # what is left out beside what is simulated
MOST_OPERATIONS = 20_000  # of all warps of an SM: a few tenths of a second

TENSORS = (
    Tensor("in L2", 512.0),
    Tensor("in DRAM", 512.0, miss_fraction=1.0),
    Tensor("partly in L2", 512.0, miss_fraction=0.3, missing_blocks_fraction=0.5),
    Tensor("results", 512.0),
)


def joined(parts: list[Program]) -> Program:
    """One program after the other."""
    return tuple(op for part in parts for op in part)


def loads(turns_ahead: list[int]) -> st.SearchStrategy[Program]:
    """A load and a wait for the oldest block."""
    return st.builds(
        lambda tensor, size_bytes, ahead: (
            Load((Read(tensor.name, size_bytes, size_bytes),), size_bytes, 1.0, ahead),
            WaitLoad(),
        ),
        st.sampled_from(TENSORS[:3]),
        st.sampled_from([16.0, 64.0, 512.0]),
        st.sampled_from(turns_ahead),
    )


def work() -> st.SearchStrategy[Program]:
    """One operation that loads nothing."""
    count = st.integers(min_value=1, max_value=20).map(float)
    kinds: tuple[st.SearchStrategy[Op], ...] = (
        st.builds(lambda fma, sfu, latency: Alu((("fma", fma), ("sfu", sfu)), latency), count, count, count),
        st.builds(lambda instructions: Mma("ffma", instructions, 2, 64.0, 2.0, pipelined=True), count),
        st.builds(lambda instructions: Mma("hmma", instructions, 2, 64.0, 2.0, pipelined=False), count),
        st.just(LoadShared(128.0, 1.0)),
        st.just(Store("results", 64.0, 64.0, 1.0)),
        st.just(Barrier()),
    )
    return st.one_of(*kinds).map(lambda op: (op,))


def bodies(inner: Callable[[], st.SearchStrategy[Program]] | None = None) -> st.SearchStrategy[Program]:
    parts = [loads([0, 0, 1, 3]), work()]
    if inner is not None:
        parts.append(inner())
    return st.lists(st.one_of(parts), min_size=1, max_size=4).map(joined)


def loops(iterations: list[int], body: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    return st.builds(lambda ops, times: (Repeat(ops, times),), body, st.sampled_from(iterations))


def programs() -> st.SearchStrategy[Program]:
    """Loops in a row, some with a loop inside; what is loaded before some of them is waited for in them, or after."""
    nests = loops([3, 50, 300], bodies(lambda: loops([2, 7, 60], bodies())))
    after_loads = st.builds(lambda load, nest: (load[0], *nest, *load[1:]), loads([0]), nests)
    return st.lists(st.one_of(nests, after_loads), min_size=1, max_size=3).map(joined)


@st.composite
def random_launches(draw: st.DrawFn) -> tuple[Machine, Launch]:
    on = machine(
        sms=draw(st.sampled_from([1, 4])),
        shared_bytes_per_cycle=128.0,
        l2_port_bytes_per_cycle=64.0,
        l2_port_write_bytes_per_cycle=32.0,
        l2_bytes_per_cycle=200.0,
        dram_bytes_per_cycle=draw(st.sampled_from([50.0, 100.0])),
        dram_latency_cycles=400.0,
        pipes=(Pipe("tensor", 1.0), Pipe("fma", 0.5), Pipe("sfu", 0.125)),
        cta_interval_cycles=1.25,
        cta_launch_cycles=20.0,
    )
    role = Role(draw(st.sampled_from([1, 2, 3, 4, 8])), draw(programs()))
    resources = Resources(32, 1, on.limits.shared_bytes // draw(st.sampled_from([1, 2, 4])))
    grid = Grid(draw(st.integers(min_value=1, max_value=40)))
    one = Launch("random", grid, (role,), resources, TENSORS, draw(st.sampled_from([0.0, 0.4])))
    assume(operations_of_sm(on, one) <= MOST_OPERATIONS)
    return on, one


def operations_of_sm(on: Machine, one: Launch) -> int:
    """Operations that the warps of the busiest SM execute."""
    ops: list[tuple[Op, int]] = [item for role in one.roles for item in executed(role.program)]
    return -(-one.ctas // on.sm_count) * one.warps * sum(times for _, times in ops)


@settings(max_examples=250)
@given(random_launches())
def test_extrapolation_of_random_programs_stays_within_the_stated_tolerance(both: tuple[Machine, Launch]) -> None:
    on, one = both
    jumped, whole = (simulate(on, one, extrapolate=extrapolate) for extrapolate in (True, False))
    assert jumped.cycles == pytest.approx(whole.cycles, rel=JUMP_TOLERANCE)
    assert sum(jumped.stall_cycles.values()) == pytest.approx(sum(whole.stall_cycles.values()), rel=JUMP_TOLERANCE)
    for resource, busy in jumped.busy_cycles.items():
        assert busy <= jumped.cycles * (1 + 1e-9)
        assert busy == pytest.approx(whole.busy_cycles[resource], rel=JUMP_TOLERANCE, abs=1.0)


@settings(max_examples=50)
@given(random_launches())
def test_every_byte_that_a_program_asks_for_is_asked_of_l2(both: tuple[Machine, Launch]) -> None:
    on, one = both
    assume(operations_of_sm(on, one) * on.sm_count <= MOST_OPERATIONS)
    asked = sum(l2_read_bytes(one).values())
    for detail in ("sampled", "full"):
        outcome = simulate(on, one, detail)
        assert outcome.l2_read_bytes == pytest.approx(asked)
        assert outcome.dram_read_bytes <= asked * (1 + 1e-9)
