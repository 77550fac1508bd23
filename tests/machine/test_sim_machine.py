"""The machine, by hand: programs of a few operations whose every cycle is worked out beside the test.

Unless a test says otherwise the machine is the textbook's: global memory answers after 200 cycles and shared memory
after 20, links are too fast to be seen, and instructions issue every cycle.
"""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import machine

from gpusim.hardware.machine import Machine, Pipe
from gpusim.launch import Grid, Launch, Resources, Tensor
from gpusim.program import (
    AcquireStage,
    Alu,
    Barrier,
    Compute,
    Drain,
    Load,
    LoadBulk,
    LoadShared,
    Mma,
    Op,
    Program,
    Read,
    ReleaseStage,
    Repeat,
    Role,
    SplitKFixup,
    Store,
    StoreShared,
    WaitLoad,
    WaitStage,
    WarpgroupMma,
)
from gpusim.sim.causes import Cause
from gpusim.sim.drivers.reference import ReferenceState
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate

DETAILS = ("sampled", "full")


def reads(step_bytes: float, warps: int = 1) -> tuple[Read, ...]:
    """A block of so many bytes, read by all warps of a CTA together."""
    return (Read("x", step_bytes / warps, step_bytes / warps),)


def launch(
    program: Program,
    *,
    ctas: int = 1,
    slots: int = 1,
    warps: int = 1,
    step_bytes: float = 1.0,
    from_dram: bool = False,
    **fields: Any,
) -> Launch:
    """A launch of a program that reads x and writes y; nothing misses L2 unless all does."""
    roles = (Role(warps, program),)
    tensors = (Tensor("x", step_bytes, miss_fraction=float(from_dram)), Tensor("y", 0.0))
    # shared memory for so many CTAs an SM
    resources = Resources(threads=32, registers=1, shared_bytes=machine().limits.shared_bytes // slots)
    given: dict[str, Any] = {"grid": Grid(ctas), "roles": roles, "resources": resources, "tensors": tensors}
    return Launch("test", **(given | fields))


def play(on: Machine, one: Launch, detail: str = "full") -> LaunchOutcome:
    return simulate(on, one, detail)


def causes(outcome: LaunchOutcome) -> dict[Cause, int]:
    """Warp-cycles of the causes that occur."""
    return {cause: cycles for cause, cycles in outcome.stall_cycles.items() if cycles}


# One operation each


@pytest.mark.parametrize("detail", DETAILS)
def test_a_warp_computes_for_its_own_latency(detail: str) -> None:
    outcome = play(machine(), launch((Compute(7.0),)), detail)
    assert outcome.cycles == 7
    assert causes(outcome) == {Cause.WAIT: 7}


def test_an_operation_that_ends_within_a_cycle_holds_the_warp_to_its_end() -> None:
    outcome = play(machine(), launch((Compute(2.5), Compute(2.5))))
    assert outcome.cycles == 6  # 2.5 -> 3, 3 + 2.5 -> 6


def test_a_cta_waits_for_its_launch() -> None:
    on = machine(cta_launch_cycles=150.0)
    outcome = play(on, launch((Compute(10.0),), warps=2))
    assert outcome.cycles == 150 + 10
    assert causes(outcome) == {Cause.LAUNCH: 2 * 150, Cause.WAIT: 2 * 10}


def test_warps_meet_at_a_barrier_and_only_the_early_ones_wait() -> None:
    # 1280 B at 128 B/cycle: the first warp is through at 10, the second at 20
    on = machine(shared_bytes_per_cycle=128.0)
    outcome = play(on, launch((StoreShared(1280.0, 0.0), Barrier(), Compute(5.0)), warps=2))
    assert outcome.cycles == 20 + 5
    assert causes(outcome) == {Cause.MIO_THROTTLE: 10 + 20, Cause.BARRIER: 20 - 10, Cause.WAIT: 2 * 5}


def test_a_warp_that_has_ended_books_nothing_while_its_siblings_live() -> None:
    on = machine(shared_bytes_per_cycle=128.0)
    outcome = play(on, launch((StoreShared(1280.0, 0.0),), warps=3))
    assert outcome.cycles == 30
    assert causes(outcome) == {Cause.MIO_THROTTLE: 10 + 20 + 30}


def test_a_shared_memory_read_waits_for_the_port_and_then_for_the_latency() -> None:
    on = machine(shared_bytes_per_cycle=128.0)
    outcome = play(on, launch((LoadShared(1280.0, 0.0),)))
    assert outcome.cycles == 10 + 20
    assert causes(outcome) == {Cause.MIO_THROTTLE: 10, Cause.SHORT_SCOREBOARD: 20}


def test_a_store_holds_the_warp_until_it_is_accepted_and_the_kernel_until_it_has_arrived() -> None:
    on = machine(l2_port_write_bytes_per_cycle=64.0)
    outcome = play(on, launch((Store("y", 640.0, 640.0, 1.0),)))
    assert causes(outcome) == {Cause.LG_THROTTLE: 10}  # 640 / 64
    assert outcome.cycles == 10 + 200  # and L2 is 200 cycles away


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(
    ("held_bytes", "compute", "each"),
    [(1e6, 900.0, 900), (0.0, 900.0, 900 + 500), (1e6, 300.0, 500)],
)
def test_dram_writes_back_what_l2_holds_while_later_ctas_compute(
    held_bytes: float, compute: float, each: int, detail: str
) -> None:
    # 5000 B of results a CTA at 10 B/cycle: 500 cycles, hidden but for what L2 has no room for, or DRAM no time
    on = machine(sms=1, dram_bytes_per_cycle=10.0, l2_copy_bytes=held_bytes)
    one = launch((Compute(compute), Store("y", 5000.0, 5000.0, 0.0)), ctas=20, slots=1)
    outcome = play(on, dataclasses.replace(one, write_back_cost=1.0), detail)
    assert outcome.cycles == pytest.approx(20 * each, rel=0.03)


def test_results_that_an_earlier_run_left_in_l2_push_nothing_out() -> None:
    on = machine(sms=1, dram_bytes_per_cycle=10.0, l2_copy_bytes=0.0)
    one = launch((Compute(900.0), Store("y", 5000.0, 5000.0, 0.0)), ctas=20, slots=1)
    held = tuple(dataclasses.replace(tensor, missing_blocks_fraction=0.0) for tensor in one.tensors)
    outcome = play(on, dataclasses.replace(one, tensors=held, write_back_cost=1.0), "sampled")
    assert outcome.cycles == pytest.approx(20 * 900, rel=0.03)


def test_partial_sums_go_to_l2_and_back_once_for_each_cta_of_the_chain() -> None:
    on = machine(l2_port_bytes_per_cycle=64.0, l2_port_write_bytes_per_cycle=64.0)
    outcome = play(on, launch((SplitKFixup(640.0, 3),)))
    # read and written: twice the bytes; sums and fence, flag, poll, read: four times the way
    assert outcome.cycles == 3 * (2 * 10 + 4 * 200)
    assert causes(outcome) == {Cause.LONG_SCOREBOARD: 3 * 820}


@pytest.mark.parametrize(("sub_partitions", "cycles"), [(1, 4 * 8), (2, 2 * 8), (4, 8)])
def test_a_sub_partition_issues_one_instruction_a_cycle(sub_partitions: int, cycles: int) -> None:
    # 4 warps with 8 instructions each, dealt evenly
    on = machine(sub_partitions=sub_partitions)
    assert play(on, launch((StoreShared(0.0, 8.0),), warps=4)).cycles == cycles


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(("ctas", "rounds"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_ctas_run_in_rounds_of_the_slots_of_all_sms(ctas: int, rounds: int, detail: str) -> None:
    # 2 SMs with 2 slots each
    on = machine(sms=2)
    outcome = play(on, launch((Compute(100.0),), ctas=ctas, slots=2), detail)
    assert outcome.cycles == rounds * 100


# The main loop at its limits: what one step more costs


def load(step_bytes: float = 1.0, *, ahead: int = 0, instructions: float = 0.0, warps: int = 1) -> Load:
    return Load(reads(step_bytes, warps), step_bytes / warps, instructions, ahead)


def loop(steps: int, *body: Op, ahead: int = 0, step_bytes: float = 1.0, tail: Program = ()) -> Program:
    """Fill the ring, repeat, end."""
    first = (load(step_bytes, instructions=1.0),) * min(ahead, steps)
    return (*first, Repeat(body, steps), *tail)


def stream(steps: int, *work: Op, ahead: int, step_bytes: float = 1.0) -> Program:
    """Wait for the oldest block, load another one, work."""
    turn = WaitLoad(), load(step_bytes, ahead=ahead), *work
    return loop(steps, *turn, ahead=ahead, step_bytes=step_bytes)


def mma(instructions: float, *, k_groups: int = 1, operand_bytes: float = 0.0, others: float = 0.0) -> Mma:
    return Mma("ffma", instructions, k_groups, operand_bytes, others, pipelined=True)


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(
    ("warps", "cycles_a_step"),
    # 16 instructions of 2 cycles; 4 sub-partitions have a pipe each
    [(1, 32), (4, 32), (5, 64), (8, 64), (16, 128)],
)
def test_a_loop_of_multiplies_runs_at_the_rate_of_the_pipe_exactly(warps: int, cycles_a_step: int, detail: str) -> None:
    on = machine(mma_interval=2.0)
    for steps in (1, 2, 10, 200):
        program = loop(steps, mma(16.0, k_groups=4), tail=(Drain(),))
        outcome = play(on, launch(program, warps=warps), detail)
        assert outcome.cycles == steps * cycles_a_step + 4  # and the latency of the last


def test_a_slower_pipe_takes_longer_in_proportion() -> None:
    on = machine(mma_interval=2.0 / 0.8)
    outcome = play(on, launch(loop(10, mma(16.0), tail=(Drain(),))))
    assert outcome.cycles == 10 * 16 * 2 / 0.8 + 4


def test_warps_of_a_sub_partition_take_turns_on_its_pipe() -> None:
    # 2 warps with 10 steps of 8 multiplies of 4 cycles, in 8 k-groups: 32 cycles a step, fed for 28 of them; the
    # last slice overlaps what follows, but for its 4 cycles and its latency of 4 at the end
    on = machine(mma_interval=4.0, sub_partitions=1)
    outcome = play(on, launch(loop(10, mma(8.0, k_groups=8), tail=(Drain(),)), warps=2))
    assert outcome.cycles == 2 * 10 * 32 + 4
    lifetimes = (2 * 10 * 32 + 4) + (2 * 10 * 32 + 4 - 32)
    fed, drained = 2 * 10 * 28, 2 * (4 + 4)
    assert causes(outcome) == {
        Cause.MATH: fed,
        Cause.WAIT: drained,
        Cause.MATH_PIPE_THROTTLE: lifetimes - fed - drained,
    }


def test_a_loop_with_more_instructions_than_multiplies_runs_at_the_issue_rate() -> None:
    # 4 multiplies of 1 cycle and 12 other instructions: 16 slots a step, 8 warps on 4 schedulers
    on = machine()
    programs = (loop(steps, mma(4.0, others=12.0), tail=(Drain(),)) for steps in (20, 50))
    short, long = (play(on, launch(program, warps=8)).cycles for program in programs)
    assert long - short == 30 * 2 * 16


@pytest.mark.parametrize("detail", DETAILS)
def test_a_loop_of_operand_reads_runs_at_the_rate_of_the_shared_memory_port(detail: str) -> None:
    # 8 warps read 1280 B a step at 128 B/cycle: 80 cycles; their 2 x 4 multiplies a pipe take 8
    on = machine(shared_bytes_per_cycle=128.0)
    step = mma(4.0, k_groups=4, operand_bytes=1280.0)
    programs = (loop(steps, step, tail=(Drain(),)) for steps in (40, 200))
    short, long = (play(on, launch(program, warps=8), detail).cycles for program in programs)
    assert long - short == 160 * 80
    # bound and latency: the first read answers after 20, the last multiply after 4
    assert 40 * 80 + 20 + 4 <= short <= 40 * 80 + 20 + 4 + 80


def test_k_groups_that_wait_for_each_other_take_the_latency_of_each() -> None:
    # not pipelined: each of 8 k-groups reads (20 cycles) and multiplies (4); nothing overlaps
    on = machine()
    one = Mma("ffma", 8.0, 8, 8.0, 0.0, pipelined=False)
    outcome = play(on, launch((Repeat((one,), 5),)))
    assert outcome.cycles == 5 * 8 * (20 + 4)
    assert causes(outcome) == {Cause.SHORT_SCOREBOARD: 5 * 8 * 20, Cause.MATH: 5 * 8 * 4}


@pytest.mark.parametrize("detail", DETAILS)
def test_accumulating_onto_the_same_registers_takes_a_latency_a_slice(detail: str) -> None:
    # 8 k-groups of one instruction, each adds to what the one before left 4 cycles later; the next step goes on
    # with the same registers
    on = machine()
    short, long = (
        play(on, launch(loop(steps, mma(8.0, k_groups=8), tail=(Drain(),))), detail).cycles for steps in (10, 100)
    )
    assert long - short == 90 * 8 * 4


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(("ahead", "cycles_a_step"), [(1, 200.0), (2, 100.0), (4, 50.0), (8, 25.0)])
def test_a_ring_of_loads_hides_its_depth_of_the_latency(ahead: int, cycles_a_step: float, detail: str) -> None:
    # nothing but loads: as many steps as the ring is deep arrive every 200 cycles
    on = machine()
    outcome = play(on, launch(stream(160, ahead=ahead)), detail)
    # filling the ring takes an issue slot a load
    assert outcome.cycles == pytest.approx(160 * cycles_a_step, abs=ahead)
    assert outcome.stall_cycles[Cause.LONG_SCOREBOARD] == pytest.approx(outcome.cycles, abs=ahead)


DRAM = 100.0  # B/cycle


@pytest.mark.parametrize("detail", DETAILS)
def test_a_loop_of_loads_runs_at_the_bandwidth_of_dram(detail: str) -> None:
    # 1000 B a step: 10 cycles at 100 B/cycle; 32 steps in flight cover more than the 200 cycles of latency
    on = machine(dram_bytes_per_cycle=DRAM)
    for steps in (40, 100, 1000):
        one = launch(stream(steps, ahead=32, step_bytes=1000.0), step_bytes=1000.0, from_dram=True)
        assert play(on, one, detail).cycles == steps * 10 + 200


def test_dram_serves_all_sms_in_turn() -> None:
    # 8 SMs, one CTA each: 8000 B a step of all
    on = machine(sms=8, dram_bytes_per_cycle=DRAM)
    program = stream(100, ahead=32, step_bytes=1000.0)
    one = launch(program, ctas=8, step_bytes=1000.0, from_dram=True)
    assert play(on, one, "full").cycles == 100 * 80 + 200
    # the sampled SM is served at its share; which of the eight it is, is one round of the others
    assert play(on, one, "sampled").cycles == pytest.approx(100 * 80 + 200, abs=7 * 10)


def test_too_few_bytes_in_flight_leave_dram_idle() -> None:
    # Little's law: 4 steps of 1000 B in flight, back after 200 + 10 and refilled at once: 4 steps every 210
    # cycles (10 a step would take 40)
    on = machine(dram_bytes_per_cycle=DRAM)
    programs = (stream(steps, ahead=4, step_bytes=1000.0) for steps in (40, 400))
    short, long = (play(on, launch(program, step_bytes=1000.0, from_dram=True)).cycles for program in programs)
    assert long - short == 90 * 210


@pytest.mark.parametrize(
    ("links", "rate"),
    [({"l2_port_bytes_per_cycle": 64.0}, 64.0), ({"l2_bytes_per_cycle": 50.0}, 50.0)],
)
def test_a_loop_of_hits_runs_at_the_narrowest_link_on_the_way(links: dict[str, Any], rate: float) -> None:
    one = launch(stream(100, ahead=32, step_bytes=640.0), step_bytes=640.0)
    assert play(machine(**links), one).cycles == 100 * 640 / rate + 200


def recurrence(steps: int, ahead: int, compute: int, service: int, latency: int) -> int:
    """When the last of ``steps`` has been computed: each needs its load, and a load leaves a ring's depth before.

    The server takes ``service`` cycles a load, in turn; the answer comes ``latency`` cycles later.
    """
    free = done = 0
    waited: list[int] = []
    arrives: list[int] = []
    for step in range(steps):
        # the ring is filled at the start, a slot a load; then a load leaves when its turn's data has come
        left = step if step < ahead else waited[step - ahead]
        free = max(left, free) + service
        arrives.append(free + latency)
        if step >= ahead - 1 or step == steps - 1:
            while len(waited) <= step and len(waited) <= step - ahead + 1:
                waited.append(max(done, arrives[len(waited)]))
                done = waited[-1] + compute
    while len(waited) < steps:
        waited.append(max(done, arrives[len(waited)]))
        done = waited[-1] + compute
    return done


@given(
    steps=st.integers(min_value=1, max_value=60),
    ahead=st.integers(min_value=1, max_value=8),
    compute=st.integers(min_value=1, max_value=80),
    service=st.integers(min_value=1, max_value=60),
)
def test_a_loop_of_loads_and_arithmetic_follows_its_recurrence(
    steps: int, ahead: int, compute: int, service: int
) -> None:
    on = machine(dram_bytes_per_cycle=DRAM)
    program = stream(steps, Compute(float(compute)), ahead=ahead, step_bytes=100.0 * service)
    one = launch(program, step_bytes=100.0 * service, from_dram=True)
    assert play(on, one).cycles == recurrence(steps, ahead, compute, service, 200)


@given(
    steps=st.integers(min_value=1, max_value=400),
    ahead=st.integers(min_value=1, max_value=8),
    compute=st.integers(min_value=1, max_value=80),
    ctas=st.integers(min_value=1, max_value=40),
)
def test_a_jump_over_periods_and_generations_of_a_regular_loop_loses_no_cycle(
    steps: int, ahead: int, compute: int, ctas: int
) -> None:
    on = machine(sms=2)
    one = launch(stream(steps, Compute(float(compute)), ahead=ahead), ctas=ctas, slots=2)
    sampled, full = play(on, one, "sampled"), play(on, one, "full")
    assert sampled.cycles == full.cycles
    assert sum(sampled.stall_cycles.values()) == sum(full.stall_cycles.values())


# Loops: any number, nested


@pytest.mark.parametrize("extrapolate", [True, False])
@pytest.mark.parametrize("detail", DETAILS)
@settings(max_examples=30)
@given(
    before=st.integers(min_value=0, max_value=200),
    after=st.integers(min_value=0, max_value=200),
    outer=st.integers(min_value=0, max_value=20),
    inner=st.integers(min_value=0, max_value=100),
)
def test_every_loop_is_executed_as_often_as_it_says(
    detail: str, extrapolate: bool, before: int, after: int, outer: int, inner: int
) -> None:
    program = (
        Repeat((Compute(3.0),), before),
        Repeat((Compute(5.0), Repeat((Compute(2.0), Repeat((Compute(1.0),), 3)), inner)), outer),
        Repeat((Compute(7.0),), after),
    )
    outcome = simulate(machine(), launch(program), detail, extrapolate=extrapolate)
    assert outcome.cycles == before * 3 + outer * (5 + inner * (2 + 3)) + after * 7
    assert causes(outcome) == ({Cause.WAIT: outcome.cycles} if outcome.cycles else {})


@pytest.mark.parametrize("extrapolate", [True, False])
@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("ctas", [1, 3])
def test_two_loops_in_a_row_take_the_cycles_of_both(detail: str, extrapolate: bool, ctas: int) -> None:
    # 300 blocks at the rate of DRAM, 10 cycles each, the last after 200; then 400 turns that each load and wait 200
    on = machine(dram_bytes_per_cycle=DRAM)
    again = Repeat((Load((Read("x again", 1.0, 1.0),), 1.0), WaitLoad()), 400)
    program = (*stream(300, ahead=32, step_bytes=1000.0), again)
    tensors = (Tensor("x", 1000.0, miss_fraction=1.0), Tensor("x again", 1.0))
    outcome = simulate(on, launch(program, ctas=ctas, tensors=tensors), detail, extrapolate=extrapolate)
    assert outcome.cycles == ctas * (300 * 10 + 200 + 400 * 200)
    assert outcome.dram_read_bytes == ctas * 300 * 1000
    assert outcome.l2_read_bytes == ctas * (300 * 1000 + 400)


@pytest.mark.parametrize("extrapolate", [True, False])
@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(("outer", "inner"), [(5, 200), (200, 5), (40, 40)])
def test_two_nested_loops_take_their_product(detail: str, extrapolate: bool, outer: int, inner: int) -> None:
    # an outer iteration: 9 cycles of its own, then iterations of 16 instructions of 2 cycles each and what follows the
    # last, 4
    on = machine(mma_interval=2.0)
    nested = (Compute(9.0), Repeat((mma(16.0, k_groups=1),), inner), Drain())
    outcome = simulate(on, launch((Repeat(nested, outer),), warps=4), detail, extrapolate=extrapolate)
    assert outcome.cycles == outer * (9 + inner * 32 + 4)
    assert sum(outcome.stall_cycles.values()) == 4 * outcome.cycles


@pytest.mark.parametrize("extrapolate", [True, False])
@pytest.mark.parametrize("detail", DETAILS)
def test_a_loop_in_a_loop_fills_its_ring_anew(detail: str, extrapolate: bool) -> None:
    # each of 30 outer iterations: a ring of 4 is filled, an issue slot each; 64 blocks come 4 every 200 cycles
    program = (Repeat(stream(64, ahead=4), 30),)
    outcome = simulate(machine(), launch(program), detail, extrapolate=extrapolate)
    assert outcome.cycles == pytest.approx(30 * 64 / 4 * 200, abs=30 * 4)
    assert outcome.l2_read_bytes == 30 * 64


def test_many_turns_cost_no_more_events_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0
    schedule = ReferenceState.schedule

    def counted(state: ReferenceState, at: int, kind: int, subject: int) -> None:
        nonlocal waits
        waits += 1
        schedule(state, at, kind, subject)

    monkeypatch.setattr(ReferenceState, "schedule", counted)
    program = (Repeat((Compute(3.0),), 10**6), Repeat((Compute(5.0), Repeat((Compute(2.0),), 10**6)), 3))
    assert simulate(machine(), launch(program)).cycles == 3 * 10**6 + 3 * (5 + 2 * 10**6)
    assert waits < 1000


# Blocks, first in, first out


@pytest.mark.parametrize("detail", DETAILS)
def test_a_wait_without_a_load_returns_at_once(detail: str) -> None:
    assert play(machine(), launch((WaitLoad(), Compute(3.0), WaitLoad())), detail).cycles == 3
    assert play(machine(), launch((load(), WaitLoad(), WaitLoad(), Compute(3.0))), detail).cycles == 203


@pytest.mark.parametrize("detail", DETAILS)
def test_waits_take_the_oldest_block_first(detail: str) -> None:
    # the second is asked for 100 cycles later and comes 100 later; the third wait has none left
    program = (load(), Compute(100.0), load(), WaitLoad(), WaitLoad(), WaitLoad())
    outcome = play(machine(), launch(program), detail)
    assert outcome.cycles == 300
    assert causes(outcome) == {Cause.WAIT: 100, Cause.LONG_SCOREBOARD: 200}


@pytest.mark.parametrize("detail", DETAILS)
def test_a_load_that_is_predicated_off_takes_its_issue_slots_and_brings_nothing(detail: str) -> None:
    outcome = play(machine(), launch((Load((), 0.0, instructions=9.0), WaitLoad(), Compute(1.0))), detail)
    assert outcome.cycles == 8 + 1  # leaves in the cycle that issues the last
    assert outcome.l2_read_bytes == 0


def test_blocks_that_ctas_share_come_from_dram_once() -> None:
    # 4 x 3 CTAs, 10 blocks each: x is picked by the column, y by the row
    program = (Repeat((Load((Read("x", 8.0, 8.0), Read("y", 2.0, 2.0)), 10.0), WaitLoad()), 10),)
    tensors = (Tensor("x", 8.0, ("x",), miss_fraction=0.3), Tensor("y", 2.0, ("y",), miss_fraction=0.3))
    one = launch(program, slots=2, grid=Grid(4, 3), tensors=tensors)
    outcome = play(machine(sms=2), one, "full")
    assert outcome.l2_read_bytes == 12 * 10 * 10
    assert outcome.dram_read_bytes == 10 * (4 * 8 + 3 * 2)
    warm = play(machine(sms=2), dataclasses.replace(one, cold=False), "full")
    assert warm.dram_read_bytes == 0
    assert play(machine(sms=2), one, "sampled").dram_read_bytes == pytest.approx(0.3 * 12 * 10 * 10)


def test_a_tensor_with_blocks_for_one_cta_misses_its_fraction_in_either_detail() -> None:
    program = (Repeat((load(100.0), WaitLoad()), 10),)
    one = launch(program, ctas=4, tensors=(Tensor("x", 100.0, miss_fraction=0.25),))
    for detail in DETAILS:
        assert play(machine(), one, detail).dram_read_bytes == pytest.approx(4 * 10 * 25)


# Arithmetic on named pipes


@pytest.mark.parametrize("detail", DETAILS)
def test_pipes_work_side_by_side_and_the_slowest_decides(detail: str) -> None:
    # 16 on the ALU at one every 2 cycles, 8 on the SFU at one every 8; 24 issue slots
    on = machine(pipes=(Pipe("alu", 0.5), Pipe("sfu", 0.125)))
    one = launch((Alu((("alu", 16.0), ("sfu", 8.0)), latency_cycles=20.0),))
    outcome = play(on, one, detail)
    assert outcome.cycles == 64
    assert causes(outcome) == {Cause.MATH: 64}
    assert outcome.busy_cycles["arithmetic"] == 64 / 4  # the SFU's, of one sub-partition of four


def test_a_chain_of_dependent_instructions_takes_its_latency() -> None:
    outcome = play(machine(), launch((Alu((("fma", 5.0),), latency_cycles=20.0),)))
    assert outcome.cycles == 20
    assert causes(outcome) == {Cause.MATH: 5, Cause.WAIT: 15}


def test_arithmetic_waits_for_the_pipe_that_others_use_and_not_for_another() -> None:
    on = machine(sub_partitions=1)
    both = Role(1, (Alu((("alu", 30.0),), 4.0),)), Role(1, (Alu((("alu", 30.0),), 4.0),))
    other = Role(1, (Alu((("alu", 30.0),), 4.0),)), Role(1, (Alu((("sfu", 30.0),), 4.0),))
    assert [play(on, launch((), roles=roles)).cycles for roles in (both, other)] == [60, 60]  # issue slots bind here
    wide = machine(sub_partitions=1, issue_per_cycle=4.0)
    assert [play(wide, launch((), roles=roles)).cycles for roles in (both, other)] == [60, 30]


def test_multiply_accumulates_and_other_arithmetic_share_a_pipe() -> None:
    on = machine(sub_partitions=1, issue_per_cycle=4.0)
    together = play(on, launch((mma(100.0, k_groups=10), Alu((("fma", 50.0),), 4.0), Drain()))).cycles
    apart = play(on, launch((mma(100.0, k_groups=10), Alu((("alu", 50.0),), 4.0), Drain()))).cycles
    assert (together, apart) == (150, 140)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ((Alu((("fp64", 1.0),), 4.0),), "test: the machine has no pipe 'fp64'; it has tensor, fma, alu, sfu"),
        ((Mma("dmma", 1.0, 1, 0.0, 0.0, pipelined=True),), "test: the machine has no instruction 'dmma'"),
    ],
)
def test_what_the_machine_does_not_have_is_refused_by_name(program: Program, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        play(machine(), launch(program))


def test_a_tensor_that_the_launch_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="test: a program names tensor 'z', the launch has"):
        launch((Store("z", 1.0, 1.0, 0.0),))


@pytest.mark.parametrize("detail", DETAILS)
def test_warps_that_wait_for_each_other_for_ever_are_an_error(detail: str) -> None:
    # two roles of a warp each: a consumer of a third stage that no producer fills
    producer: Program = (Repeat((AcquireStage(4), LoadBulk(reads(1.0), 1.0, 0.0)), 2),)
    consumer: Program = (Repeat((WaitStage(), ReleaseStage(pending=0)), 3),)
    stuck = launch((), roles=(Role(1, producer), Role(1, consumer)))
    with pytest.raises(ValueError, match="test: 1 of 2 warps of CTA 0 wait for ever"):
        play(machine(), stuck, detail)


def test_an_unknown_detail_is_refused() -> None:
    with pytest.raises(ValueError, match="detail: 'sampeld' is neither 'sampled' nor 'full'"):
        play(machine(), launch((Compute(1.0),)), "sampeld")


# Producers and consumers


def specialised(
    mma_cycles: float,
    epilogue_cycles: float = 0.0,
    *,
    stages: int,
    steps: int,
    tiles: int = 1,
    instances: int = 1,
    step_bytes: float = 1.0,
    l2_bytes: float | None = None,
    consumers: int = 4,
) -> Launch:
    """A producer and consumers, a warp on each sub-partition; a step multiplies for so long."""
    block = (Read("x", step_bytes if l2_bytes is None else l2_bytes, step_bytes),)
    producer: Program = (Repeat((AcquireStage(stages), LoadBulk(block, step_bytes, 0.0)), steps),)
    turn = WaitStage(), WarpgroupMma("ffma", mma_cycles, 0.0, 0.0), ReleaseStage(pending=1)
    consumer: Program = (Repeat(turn, steps), Drain(), ReleaseStage(pending=0), Compute(epilogue_cycles))
    roles = (Role(1, producer), Role(consumers, consumer, instances))
    return launch((), ctas=tiles, roles=roles, persistent=True)


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(("stages", "cycles_a_step"), [(2, 200.0), (5, 50.0), (16, 20.0)])
def test_a_ring_runs_at_its_depth_a_latency_or_at_the_pipe(stages: int, cycles_a_step: float, detail: str) -> None:
    # a stage is released when the next one's MMA has been issued: all but one are on their way
    on = machine(shared_latency_cycles=1)
    short, long = (play(on, specialised(20.0, stages=stages, steps=steps), detail).cycles for steps in (160, 1600))
    assert (long - short) / 1440 == pytest.approx(cycles_a_step, rel=0.03)


def test_a_producer_waits_for_a_free_stage_and_consumers_for_a_full_one() -> None:
    # Steps 0 and 1 arrive at 200; operands take 1, so 0 is multiplied until 231 and 1 until 261. At 231 the first stage
    # is free for step 2, which arrives at 431; when its MMA is issued, 1's stage is free for 3: 631.
    on = machine(shared_latency_cycles=1)
    outcome = play(on, specialised(30.0, stages=2, steps=4, consumers=1))
    assert outcome.cycles == 631 + 1 + 30
    assert causes(outcome) == {
        Cause.BARRIER: 431,  # the producer's life: it leaves when it has asked for step 3
        Cause.LONG_SCOREBOARD: 200 + (431 - 231) + (631 - 431),
        Cause.SHORT_SCOREBOARD: 1 + 1,  # operands of steps 0 and 3
        Cause.MATH: 30 + 30,  # of the same: 1 and 2 are multiplied while the consumer waits for data
    }


def test_a_bulk_copy_answers_later_than_a_load() -> None:
    plain, later = (machine(shared_latency_cycles=1, bulk_copy_cycles=c) for c in (0.0, 100.0))
    one, other = (play(on, specialised(20.0, stages=2, steps=1)).cycles for on in (plain, later))
    assert other - one == 100


@pytest.mark.parametrize("detail", DETAILS)
def test_a_persistent_producer_loads_the_next_tile_during_the_epilogue(detail: str) -> None:
    # 10 steps of 20 cycles and an epilogue of 500: from the second tile on no load is waited for
    on = machine(shared_latency_cycles=1)
    one, five = (
        play(on, specialised(20.0, 500.0, stages=16, steps=10, tiles=tiles), detail).cycles for tiles in (1, 5)
    )
    assert one == 200 + 1 + 10 * 20 + 500
    assert five - one == pytest.approx(4 * (10 * 20 + 500), abs=4)


@pytest.mark.parametrize("detail", DETAILS)
def test_instances_that_take_turns_hide_each_others_epilogues(detail: str) -> None:
    # as above, but 40 steps of 20 cycles hide the other instance's 500
    on = machine(shared_latency_cycles=1)
    short, long = (
        play(on, specialised(20.0, 500.0, stages=16, steps=40, tiles=tiles, instances=2), detail).cycles
        for tiles in (4, 40)
    )
    assert long - short == pytest.approx(36 * 40 * 20, rel=0.01)


@pytest.mark.parametrize("detail", DETAILS)
def test_no_consumer_multiplies_the_next_tile_before_all_have_stored_theirs(detail: str) -> None:
    # 4 warps write 5000 B each at 50 B/cycle of the port: 400 cycles that 10 steps of 20 do not hide
    on = machine(l2_port_write_bytes_per_cycle=50.0, shared_latency_cycles=1)
    one = specialised(20.0, stages=16, steps=10, tiles=5)
    producer, consumer = one.roles
    stored = (*consumer.program, Barrier(), Store("y", 5000.0, 5000.0, 0.0), Barrier())
    storing = dataclasses.replace(one, roles=(producer, dataclasses.replace(consumer, program=stored)))
    assert play(on, storing, detail).cycles - play(on, one, detail).cycles == pytest.approx(5 * 400, rel=0.11)


def test_what_a_cluster_shares_passes_every_port_in_full_and_l2_once() -> None:
    # 1000 B a step at 50 B/cycle of the port: 20 cycles; L2 has half as much to deliver
    on = machine(l2_port_bytes_per_cycle=50.0, shared_latency_cycles=1)
    half = specialised(1.0, stages=16, steps=200, step_bytes=1000.0, l2_bytes=500.0)
    for detail in DETAILS:
        assert play(on, half, detail).cycles == pytest.approx(200 * 20 + 200, rel=0.01)
        assert play(on, half, detail).l2_read_bytes == 200 * 500
