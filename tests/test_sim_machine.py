"""The machine, by hand: programs of a few operations whose every cycle is worked out beside the test.

Unless a test says otherwise the machine is the textbook's: global memory answers after 200 cycles and shared
memory after 20, links are too fast to be seen, and a nanosecond is a cycle.
"""

import dataclasses
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.hardware.gpu import Gpu
from gpusim.hardware.occupancy import Occupancy
from gpusim.lowering.gemm.launches import lower
from gpusim.lowering.gemm.plan import plan
from gpusim.lowering.launch import Launch
from gpusim.lowering.locality import Traffic
from gpusim.prediction.predict import Options, predict
from gpusim.program import (
    AcquireStage,
    Barrier,
    Compute,
    Drain,
    EndStep,
    Exchange,
    Load,
    LoadBulk,
    LoadShared,
    Multiply,
    MultiplyAsync,
    Op,
    Program,
    ReleaseStage,
    Repeat,
    Role,
    Store,
    StoreShared,
    WaitLoad,
    WaitStage,
)
from gpusim.sim.causes import Cause
from gpusim.sim.gpu import Outcome, simulate
from gpusim.specs import load_spec, with_overrides
from gpusim.specs.catalogues import load_kernels
from gpusim.workloads.gemm import Dtype, Gemm

DETAILS = ("sampled", "full")
CLOCK_MHZ = 1000.0


def machine(overrides: Mapping[str, object] | None = None, *, sms: int = 1, sub_partitions: int = 4) -> Gpu:
    """The textbook's machine with other values."""
    spec = load_spec("teaching")
    return with_overrides(spec, {"sm.count": sms, "sm.sub_partitions": sub_partitions, **(overrides or {})}).gpu


def launch(
    arch: Gpu,
    program: Program,
    *,
    ctas: int = 1,
    slots: int = 1,
    warps: int = 1,
    steps: int = 1,
    ahead: int = 1,
    step_bytes: float = 1.0,
    from_dram: bool = False,
) -> Launch:
    """A launch of a program on the FMA pipe; nothing misses L2 unless all does."""
    kernel = load_kernels(arch.kernel_catalogues)[0]
    template = lower(plan(arch, Gemm(32, 32, 32, Dtype.FP32), kernel))[0]
    asked = ctas * steps * step_bytes
    return dataclasses.replace(
        template,
        roles=(Role(warps, program),),
        instruction=arch.instructions["ffma"],
        ctas=ctas,
        grid=(ctas, 1, 1),
        occupancy=Occupancy(slots, "cta_slots", {"cta_slots": slots}),
        steps=steps,
        stages_ahead=ahead,
        load_bytes_per_step=step_bytes,
        received_bytes_per_step=step_bytes,
        load_port_bytes_per_step=step_bytes,
        traffic=Traffic(asked, asked if from_dram else 0.0, 0.0),
        tiling=None,
    )


def play(arch: Gpu, one: Launch, detail: str = "full") -> Outcome:
    return simulate(arch, one, CLOCK_MHZ, detail)


def causes(outcome: Outcome) -> dict[Cause, int]:
    """Warp-cycles of the causes that occur."""
    return {cause: cycles for cause, cycles in outcome.stall_cycles.items() if cycles}


# The textbook's example


@pytest.mark.parametrize("detail", DETAILS)
def test_the_textbook_multiplication_takes_392_cycles_without_tensor_cores(detail: str) -> None:
    result = predict(load_spec("teaching").gpu, Gemm(32, 32, 32, Dtype.FP32, layout="nt"), Options(detail=detail))
    assert result.cycles == 392  # 200 + 8 x 20 + 8 x 4
    assert result.time_us == 0.392
    # 8 warps an SM, each: one global load, 8 shared-memory reads, 8 FFMA
    ledger = {cause: cycles for cause, cycles in result.stall_cycles.items() if cycles}
    assert ledger == {"long_scoreboard": 8 * 200, "short_scoreboard": 8 * 8 * 20, "math": 8 * 8 * 4}
    assert result.warp_cycles == 8 * 392


@pytest.mark.parametrize("detail", DETAILS)
def test_the_textbook_multiplication_takes_221_cycles_with_tensor_cores(detail: str) -> None:
    result = predict(load_spec("teaching").gpu, Gemm(32, 32, 32, Dtype.FP16), Options(detail=detail))
    assert result.cycles == 221  # 200 + 20 + 1
    ledger = {cause: cycles for cause, cycles in result.stall_cycles.items() if cycles}
    assert ledger == {"long_scoreboard": 8 * 200, "short_scoreboard": 8 * 20, "math": 8 * 1}
    assert result.warp_cycles == 8 * 221


# One operation each


@pytest.mark.parametrize("detail", DETAILS)
def test_a_warp_computes_for_its_own_latency(detail: str) -> None:
    outcome = play(arch := machine(), launch(arch, (Compute(7.0),)), detail)
    assert outcome.cycles == 7
    assert causes(outcome) == {Cause.WAIT: 7}


def test_an_operation_that_ends_within_a_cycle_holds_the_warp_to_its_end() -> None:
    outcome = play(arch := machine(), launch(arch, (Compute(2.5), Compute(2.5))))
    assert outcome.cycles == 6  # 2.5 -> 3, 3 + 2.5 -> 6


def test_a_cta_waits_for_its_launch() -> None:
    arch = machine({"sm.cta_launch_cycles": 150.0})
    outcome = play(arch, launch(arch, (Compute(10.0),), warps=2))
    assert outcome.cycles == 150 + 10
    assert causes(outcome) == {Cause.LAUNCH: 2 * 150, Cause.WAIT: 2 * 10}


def test_warps_meet_at_a_barrier_and_only_the_early_ones_wait() -> None:
    # 1280 B at 128 B/cycle: the first warp is through at 10, the second at 20
    arch = machine({"shared_memory.bandwidth_bytes_per_cycle": 128.0})
    outcome = play(arch, launch(arch, (StoreShared(1280.0, 0.0), Barrier(), Compute(5.0)), warps=2))
    assert outcome.cycles == 20 + 5
    assert causes(outcome) == {Cause.MIO_THROTTLE: 10 + 20, Cause.BARRIER: 20 - 10, Cause.WAIT: 2 * 5}


def test_a_warp_that_has_ended_books_nothing_while_its_siblings_live() -> None:
    arch = machine({"shared_memory.bandwidth_bytes_per_cycle": 128.0})
    outcome = play(arch, launch(arch, (StoreShared(1280.0, 0.0),), warps=3))
    assert outcome.cycles == 30
    assert causes(outcome) == {Cause.MIO_THROTTLE: 10 + 20 + 30}


def test_a_shared_memory_read_waits_for_the_port_and_then_for_the_latency() -> None:
    arch = machine({"shared_memory.bandwidth_bytes_per_cycle": 128.0})
    outcome = play(arch, launch(arch, (LoadShared(1280.0, 0.0),)))
    assert outcome.cycles == 10 + 20
    assert causes(outcome) == {Cause.MIO_THROTTLE: 10, Cause.SHORT_SCOREBOARD: 20}


def test_a_store_holds_the_warp_until_it_is_accepted_and_the_kernel_until_it_has_arrived() -> None:
    arch = machine({"load_store.l2_port_bytes_per_cycle": 64.0})
    outcome = play(arch, launch(arch, (Store(640.0, 1.0),)))
    assert causes(outcome) == {Cause.LG_THROTTLE: 10}  # 640 / 64
    assert outcome.cycles == 10 + 200  # and L2 is 200 cycles away


def test_partial_sums_go_to_l2_and_back_once_for_each_cta_of_the_chain() -> None:
    arch = machine({"load_store.l2_port_bytes_per_cycle": 64.0})
    outcome = play(arch, launch(arch, (Exchange(640.0, 3),)))
    assert outcome.cycles == 3 * (2 * 10 + 2 * 200)  # read and written: twice the bytes, twice the way
    assert causes(outcome) == {Cause.LONG_SCOREBOARD: 3 * 420}


@pytest.mark.parametrize(("sub_partitions", "cycles"), [(1, 4 * 8), (2, 2 * 8), (4, 8)])
def test_a_sub_partition_issues_one_instruction_a_cycle(sub_partitions: int, cycles: int) -> None:
    # 4 warps with 8 instructions each, dealt evenly
    arch = machine(sub_partitions=sub_partitions)
    assert play(arch, launch(arch, (StoreShared(0.0, 8.0),), warps=4)).cycles == cycles


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(("ctas", "rounds"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_ctas_run_in_rounds_of_the_slots_of_all_sms(ctas: int, rounds: int, detail: str) -> None:
    # 2 SMs with 2 slots each
    arch = machine(sms=2)
    outcome = play(arch, launch(arch, (Compute(100.0),), ctas=ctas, slots=2), detail)
    assert outcome.cycles == rounds * 100


# The main loop at its limits: what one step more costs


def loop(*body: Op, ahead: int = 0, tail: Program = ()) -> Program:
    """Fill the ring, repeat, end."""
    first = tuple(Load(step, 1.0, fill_shared=False) for step in range(ahead))
    return (*first, Repeat((*body, EndStep())), *tail)


def multiply(instructions: float, *, slices: int = 1, operand_bytes: float = 0.0, others: float = 0.0) -> Multiply:
    return Multiply(instructions, slices, operand_bytes, others, pipelined=True)


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(
    ("warps", "cycles_a_step"),
    # 16 instructions of 2 cycles; 4 sub-partitions have a pipe each
    [(1, 32), (4, 32), (5, 64), (8, 64), (16, 128)],
)
def test_a_loop_of_multiplies_runs_at_the_rate_of_the_pipe_exactly(warps: int, cycles_a_step: int, detail: str) -> None:
    arch = machine({"instructions.ffma.issue_interval_cycles": 2.0})
    program = loop(multiply(16.0, slices=4), tail=(Drain(),))
    for steps in (1, 2, 10, 200):
        outcome = play(arch, launch(arch, program, warps=warps, steps=steps), detail)
        assert outcome.cycles == steps * cycles_a_step + 4  # and the latency of the last


def test_a_pipe_that_does_not_sustain_its_rate_takes_longer_in_proportion() -> None:
    values = {"instructions.ffma.issue_interval_cycles": 2.0, "instructions.ffma.sustained_fraction": 0.8}
    arch = machine(values)
    outcome = play(arch, launch(arch, loop(multiply(16.0), tail=(Drain(),)), steps=10))
    assert outcome.cycles == 10 * 16 * 2 / 0.8 + 4


def test_warps_of_a_sub_partition_take_turns_on_its_pipe() -> None:
    # 2 warps with 10 steps of 8 multiplies of 4 cycles, in 8 slices: 32 cycles a step, fed for 28 of them; the
    # last slice overlaps what follows, but for its 4 cycles and its latency of 4 at the end
    arch = machine({"instructions.ffma.issue_interval_cycles": 4.0}, sub_partitions=1)
    outcome = play(arch, launch(arch, loop(multiply(8.0, slices=8), tail=(Drain(),)), warps=2, steps=10))
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
    arch = machine()
    program = loop(multiply(4.0, others=12.0), tail=(Drain(),))
    short, long = (play(arch, launch(arch, program, warps=8, steps=steps)).cycles for steps in (20, 50))
    assert long - short == 30 * 2 * 16


@pytest.mark.parametrize("detail", DETAILS)
def test_a_loop_of_operand_reads_runs_at_the_rate_of_the_shared_memory_port(detail: str) -> None:
    # 8 warps read 1280 B a step at 128 B/cycle: 80 cycles; their 2 x 4 multiplies a pipe take 8
    arch = machine({"shared_memory.bandwidth_bytes_per_cycle": 128.0})
    program = loop(multiply(4.0, slices=4, operand_bytes=1280.0), tail=(Drain(),))
    short, long = (play(arch, launch(arch, program, warps=8, steps=steps), detail).cycles for steps in (40, 200))
    assert long - short == 160 * 80
    # bound and latency: the first read answers after 20, the last multiply after 4
    assert 40 * 80 + 20 + 4 <= short <= 40 * 80 + 20 + 4 + 80


def test_slices_that_wait_for_each_other_take_the_latency_of_each() -> None:
    # not pipelined: each of 8 slices reads (20 cycles) and multiplies (4); nothing overlaps
    arch = machine()
    one = Multiply(8.0, 8, 8.0, 0.0, pipelined=False)
    outcome = play(arch, launch(arch, (Repeat((one, EndStep())),), steps=5))
    assert outcome.cycles == 5 * 8 * (20 + 4)
    assert causes(outcome) == {Cause.SHORT_SCOREBOARD: 5 * 8 * 20, Cause.MATH: 5 * 8 * 4}


@pytest.mark.parametrize("detail", DETAILS)
def test_accumulating_onto_the_same_registers_takes_a_latency_a_slice(detail: str) -> None:
    # 8 slices of one instruction, each adds to what the one before left 4 cycles later; the next step goes on
    # with the same registers
    arch = machine()
    short, long = (
        play(arch, launch(arch, loop(multiply(8.0, slices=8), tail=(Drain(),)), steps=steps), detail).cycles
        for steps in (10, 100)
    )
    assert long - short == 90 * 8 * 4


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(("ahead", "cycles_a_step"), [(1, 200.0), (2, 100.0), (4, 50.0), (8, 25.0)])
def test_a_ring_of_loads_hides_its_depth_of_the_latency(ahead: int, cycles_a_step: float, detail: str) -> None:
    # nothing but loads: as many steps as the ring is deep arrive every 200 cycles
    arch = machine()
    program = loop(WaitLoad(0), Load(ahead, 1.0, fill_shared=False), ahead=ahead)
    outcome = play(arch, launch(arch, program, steps=160, ahead=ahead), detail)
    # filling the ring takes an issue slot a load
    assert outcome.cycles == pytest.approx(160 * cycles_a_step, abs=ahead)
    assert outcome.stall_cycles[Cause.LONG_SCOREBOARD] == pytest.approx(outcome.cycles, abs=ahead)


DRAM = {"dram.peak_bandwidth_gb_per_s": 100.0}  # at 1 GHz: 100 B/cycle


@pytest.mark.parametrize("detail", DETAILS)
def test_a_loop_of_loads_runs_at_the_bandwidth_of_dram(detail: str) -> None:
    # 1000 B a step: 10 cycles at 100 B/cycle; 32 steps in flight cover more than the 200 cycles of latency
    arch = machine(DRAM)
    program = loop(WaitLoad(0), Load(32, 1.0, fill_shared=False), ahead=32)
    for steps in (40, 100, 1000):
        one = launch(arch, program, steps=steps, ahead=32, step_bytes=1000.0, from_dram=True)
        assert play(arch, one, detail).cycles == steps * 10 + 200


def test_dram_serves_all_sms_in_turn() -> None:
    # 8 SMs, one CTA each: 8000 B a step of all
    arch = machine(DRAM, sms=8)
    program = loop(WaitLoad(0), Load(32, 1.0, fill_shared=False), ahead=32)
    one = launch(arch, program, ctas=8, steps=100, ahead=32, step_bytes=1000.0, from_dram=True)
    assert play(arch, one, "full").cycles == 100 * 80 + 200
    # the sampled SM is served at its share; which of the eight it is, is one round of the others
    assert play(arch, one, "sampled").cycles == pytest.approx(100 * 80 + 200, abs=7 * 10)


def test_too_few_bytes_in_flight_leave_dram_idle() -> None:
    # Little's law: 4 steps of 1000 B in flight, back after 200 + 10 and refilled at once: 4 steps every 210
    # cycles (10 a step would take 40)
    arch = machine(DRAM)
    program = loop(WaitLoad(0), Load(4, 1.0, fill_shared=False), ahead=4)
    short, long = (
        play(arch, launch(arch, program, steps=steps, ahead=4, step_bytes=1000.0, from_dram=True)).cycles
        for steps in (40, 400)
    )
    assert long - short == 90 * 210


@pytest.mark.parametrize(
    ("link", "rate"),
    [("load_store.l2_port_bytes_per_cycle", 64.0), ("l2.bandwidth_bytes_per_cycle", 50.0)],
)
def test_a_loop_of_hits_runs_at_the_narrowest_link_on_the_way(link: str, rate: float) -> None:
    arch = machine({link: rate})
    program = loop(WaitLoad(0), Load(32, 1.0, fill_shared=False), ahead=32)
    one = launch(arch, program, steps=100, ahead=32, step_bytes=640.0)
    assert play(arch, one).cycles == 100 * 640 / rate + 200


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


@settings(derandomize=True, deadline=None)
@given(
    steps=st.integers(min_value=1, max_value=60),
    ahead=st.integers(min_value=1, max_value=8),
    compute=st.integers(min_value=1, max_value=80),
    service=st.integers(min_value=1, max_value=60),
)
def test_a_loop_of_loads_and_arithmetic_follows_its_recurrence(
    steps: int, ahead: int, compute: int, service: int
) -> None:
    arch = machine(DRAM)
    program = loop(WaitLoad(0), Load(ahead, 1.0, fill_shared=False), Compute(float(compute)), ahead=ahead)
    one = launch(arch, program, steps=steps, ahead=ahead, step_bytes=100.0 * service, from_dram=True)
    assert play(arch, one).cycles == recurrence(steps, ahead, compute, service, 200)


@settings(derandomize=True, deadline=None)
@given(
    steps=st.integers(min_value=1, max_value=400),
    ahead=st.integers(min_value=1, max_value=8),
    compute=st.integers(min_value=1, max_value=80),
    ctas=st.integers(min_value=1, max_value=40),
)
def test_a_jump_over_periods_and_generations_of_a_regular_loop_loses_no_cycle(
    steps: int, ahead: int, compute: int, ctas: int
) -> None:
    arch = machine(sms=2)
    program = loop(WaitLoad(0), Load(ahead, 1.0, fill_shared=False), Compute(float(compute)), ahead=ahead)
    one = launch(arch, program, ctas=ctas, slots=2, steps=steps, ahead=ahead)
    sampled, full = play(arch, one, "sampled"), play(arch, one, "full")
    assert sampled.cycles == full.cycles
    assert sum(sampled.stall_cycles.values()) == sum(full.stall_cycles.values())


# Loops with a count of their own


@pytest.mark.parametrize("detail", DETAILS)
@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    steps=st.integers(min_value=1, max_value=200),
    before=st.integers(min_value=0, max_value=20),
    after=st.integers(min_value=0, max_value=20),
    inner=st.integers(min_value=0, max_value=5),
)
def test_every_loop_is_played_as_often_as_it_says(detail: str, steps: int, before: int, after: int, inner: int) -> None:
    program = (
        Repeat((Compute(3.0),), before),
        Repeat((Compute(5.0), Repeat((Compute(2.0),), inner), EndStep())),
        Repeat((Compute(7.0), Repeat((Compute(11.0),), inner)), after),
    )
    outcome = play(arch := machine(), launch(arch, program, steps=steps), detail)
    assert outcome.cycles == before * 3 + steps * (5 + inner * 2) + after * (7 + inner * 11)
    assert causes(outcome) == {Cause.WAIT: outcome.cycles}


def test_a_program_has_one_main_loop() -> None:
    body = (Compute(1.0),)
    with pytest.raises(ValueError, match=r"a program has one main loop, not 2: give the other loops a count"):
        Role(1, (Repeat(body), Repeat(body)))
    with pytest.raises(ValueError, match=r"the main loop stands inside another loop: give it a count"):
        Role(1, (Repeat((Repeat(body),), 3),))


def test_a_loop_within_the_main_loop_can_feed_the_multiply_pipe() -> None:
    step = Multiply(4.0, 1, 0.0, 0.0, pipelined=True)
    assert Role(1, (Repeat((Repeat((step,), 3), EndStep())),)).multiplies
    assert not Role(1, (Repeat((EndStep(),)), Repeat((step,), 3))).multiplies


# Producers and consumers


def specialised(
    arch: Gpu,
    multiply_cycles: float,
    epilogue_cycles: float = 0.0,
    *,
    stages: int,
    steps: int,
    tiles: int = 1,
    teams: int = 1,
    step_bytes: float = 1.0,
    consumers: int = 4,
) -> Launch:
    """A producer and consumers, a warp on each sub-partition; a step multiplies for so long."""
    producer: Program = (Repeat((AcquireStage(), LoadBulk(0.0))),)
    step = MultiplyAsync(multiply_cycles, 0.0, 0.0)
    loop_of_consumer = Repeat((WaitStage(), step, ReleaseStage(), EndStep()))
    consumer: Program = (loop_of_consumer, Drain(), ReleaseStage(), Compute(epilogue_cycles))
    one = launch(arch, (), ctas=tiles, steps=steps, ahead=stages - 1, step_bytes=step_bytes)
    return dataclasses.replace(one, roles=(Role(1, producer), Role(consumers, consumer, teams)), persistent=True)


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize(("stages", "cycles_a_step"), [(2, 200.0), (5, 50.0), (16, 20.0)])
def test_a_ring_runs_at_its_depth_a_latency_or_at_the_pipe(stages: int, cycles_a_step: float, detail: str) -> None:
    # a stage is released when the next one's multiplies have been handed over: all but one are on their way
    arch = machine({"shared_memory.latency_cycles": 1})
    short, long = (
        play(arch, specialised(arch, 20.0, stages=stages, steps=steps), detail).cycles for steps in (160, 1600)
    )
    assert (long - short) / 1440 == pytest.approx(cycles_a_step, rel=0.03)


def test_a_producer_waits_for_a_free_stage_and_consumers_for_a_full_one() -> None:
    # Steps 0 and 1 arrive at 200; operands take 1, so 0 is multiplied until 231 and 1 until 261. At 231 the first stage
    # is free for step 2, which arrives at 431; when its multiplies are handed over, 1's stage is free for 3: 631.
    arch = machine({"shared_memory.latency_cycles": 1})
    outcome = play(arch, specialised(arch, 30.0, stages=2, steps=4, consumers=1))
    assert outcome.cycles == 631 + 1 + 30
    assert causes(outcome) == {
        Cause.BARRIER: 431,  # the producer's life: it leaves when it has asked for step 3
        Cause.LONG_SCOREBOARD: 200 + (431 - 231) + (631 - 431),
        Cause.SHORT_SCOREBOARD: 1 + 1,  # operands of steps 0 and 3
        Cause.MATH: 30 + 30,  # of the same: 1 and 2 are multiplied while the consumer waits for data
    }


def test_a_bulk_copy_answers_later_than_a_load() -> None:
    plain, later = (
        machine({"shared_memory.latency_cycles": 1, "load_store.bulk_copy_cycles": c}) for c in (0.0, 100.0)
    )
    one, other = (play(arch, specialised(arch, 20.0, stages=2, steps=1)).cycles for arch in (plain, later))
    assert other - one == 100


@pytest.mark.parametrize("detail", DETAILS)
def test_a_persistent_producer_loads_the_next_tile_during_the_epilogue(detail: str) -> None:
    # 10 steps of 20 cycles and an epilogue of 500: from the second tile on no load is waited for
    arch = machine({"shared_memory.latency_cycles": 1})
    one, five = (
        play(arch, specialised(arch, 20.0, 500.0, stages=16, steps=10, tiles=tiles), detail).cycles for tiles in (1, 5)
    )
    assert one == 200 + 1 + 10 * 20 + 500
    assert five - one == pytest.approx(4 * (10 * 20 + 500), abs=4)


@pytest.mark.parametrize("detail", DETAILS)
def test_teams_that_take_turns_hide_each_others_epilogues(detail: str) -> None:
    # as above, but 40 steps of 20 cycles hide the other team's 500
    arch = machine({"shared_memory.latency_cycles": 1})
    short, long = (
        play(arch, specialised(arch, 20.0, 500.0, stages=16, steps=40, tiles=tiles, teams=2), detail).cycles
        for tiles in (4, 40)
    )
    assert long - short == pytest.approx(36 * 40 * 20, rel=0.01)


@pytest.mark.parametrize("detail", DETAILS)
def test_no_consumer_multiplies_the_next_tile_before_all_have_stored_theirs(detail: str) -> None:
    # 4 warps write 5000 B each at 50 B/cycle of the port: 400 cycles that 10 steps of 20 do not hide
    arch = machine({"load_store.l2_port_bytes_per_cycle": 50.0, "shared_memory.latency_cycles": 1})
    one = specialised(arch, 20.0, stages=16, steps=10, tiles=5)
    producer, consumer = one.roles
    stored = (*consumer.program, Barrier(), Store(5000.0, 0.0), Barrier())
    storing = dataclasses.replace(one, roles=(producer, dataclasses.replace(consumer, program=stored)))
    assert play(arch, storing, detail).cycles - play(arch, one, detail).cycles == pytest.approx(5 * 400, rel=0.11)


def test_what_a_cluster_shares_passes_every_port_in_full_and_l2_once() -> None:
    # 1000 B a step at 50 B/cycle of the port: 20 cycles; L2 has half as much to deliver
    arch = machine({"load_store.l2_port_bytes_per_cycle": 50.0, "shared_memory.latency_cycles": 1})
    one = specialised(arch, 1.0, stages=16, steps=200, step_bytes=1000.0)
    half = dataclasses.replace(one, load_bytes_per_step=500.0)
    for detail in DETAILS:
        assert play(arch, half, detail).cycles == pytest.approx(200 * 20 + 200, rel=0.01)
        assert play(arch, half, detail).l2_read_bytes == 200 * 500
