"""A step: the host and the streams in SimPy, residency in L2, one clock for all kernels, its parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.api import predict
from gpusim.execution.models import model_step
from gpusim.hardware.machine import Machine
from gpusim.launch import Launch
from gpusim.models.policy import PolicyError
from gpusim.models.task import Phase, Task, Tensor
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict as predict_operator
from gpusim.prediction.selection import UnsupportedError
from gpusim.sim.outcome import LaunchOutcome
from gpusim.sim.simulate import simulate
from gpusim.step.cuda_streams import TaskLaunch, simulate_streams
from gpusim.step.options import StepOptions
from gpusim.step.predict import predict_step
from gpusim.step.residency import resident_fractions
from gpusim.step.schedule import run
from gpusim.system import System
from gpusim.workloads.collective import Collective
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import Elementwise

SMALL = Elementwise(64, 1024, Dtype.FP16, "relu")
LARGE = Gemm(4096, 4096, 4096, Dtype.FP16, op="linear")


def _task(
    operator: Operator = SMALL, name: str = "layer", phase: Phase = "forward", call: str = "elementwise",
    reads: tuple[Tensor, ...] = (), writes: tuple[Tensor, ...] = (),
) -> Task:  # fmt: skip
    return Task(name, phase, operator, reads, writes, call)


def test_a_stream_starts_a_kernel_a_gap_after_its_launch_and_after_the_one_before() -> None:
    spans = simulate_streams([TaskLaunch(10, 5), TaskLaunch(1, 5), TaskLaunch(100, 5)], gap_us=2)
    assert [(span.launched_us, span.start_us, span.end_us) for span in spans] == [
        (10, 12, 17),
        (11, 19, 24),  # launched while the first ran
        (111, 113, 118),  # the GPU idled
    ]


def test_a_kernel_waits_for_the_other_stream_that_it_depends_on() -> None:
    spans = simulate_streams(
        [TaskLaunch(1, 50), TaskLaunch(1, 5, "communication", after=(0,)), TaskLaunch(1, 5)], gap_us=0
    )
    assert [(span.launch, span.start_us) for span in sorted(spans, key=lambda one: one.launch)] == [
        (0, 1),
        (1, 51),
        (2, 51),
    ]


def test_a_stream_waits_longer_before_a_kernel_with_a_further_gap() -> None:
    spans = simulate_streams([TaskLaunch(1, 5), TaskLaunch(1, 5, further_gap_us=3), TaskLaunch(1, 5)], gap_us=2)
    assert [span.start_us for span in spans] == [3, 13, 20]


def test_a_steps_products_wait_for_their_library_in_a_stream_and_not_in_a_graph(t4: System) -> None:
    host = t4.host.model_copy(update={"library_gap_us": 4.0})
    tasks = [_task(LARGE, call="linear"), _task()]
    for options, longer_us in ((StepOptions(), 4.0), (StepOptions(graphs=True), 0.0)):
        steps_us = [run(one, tasks, [1000.0, 1000.0], options).step_us for one in (host, t4.host)]
        assert steps_us[0] - steps_us[1] == pytest.approx(longer_us)


def test_a_compiled_host_calls_libraries_for_products_and_launches_other_kernels_itself(t4: System) -> None:
    host = t4.host.model_copy(update={"stream_interval_us": 3.0, "library_interval_us": 8.0})
    exchange = Task("sum", "forward", Collective("all_reduce", 1024, 2), (), (), "all_reduce")
    tasks = [_task(LARGE, call="linear"), _task(), _task(), exchange]
    timed = run(host, tasks, [0.5] * len(tasks), StepOptions(compiled_host=True))
    assert timed.step_us == pytest.approx(8.0 + 3.0 + 3.0 + 8.0)
    calls = run(host, tasks, [0.5] * len(tasks), StepOptions())
    assert calls.step_us > timed.step_us  # a framework's calls take longer


def test_a_graph_is_not_launched_by_a_compiled_host() -> None:
    with pytest.raises(PolicyError, match="compiled-host: launches each kernel, and graphs none"):
        _ = model_step("llama3_8b", mode="inference", graphs=True, compiled_host=True)


def test_the_host_waits_where_a_value_is_read_back() -> None:
    spans = simulate_streams([TaskLaunch(1, 50, read_back=True), TaskLaunch(1, 5)], gap_us=0)
    assert [span.launched_us for span in spans] == [1, 52]


TIMES = st.sampled_from((0.0, 0.1, 1.0, 3.3, 17.0))


@given(
    calls=st.lists(st.tuples(TIMES, TIMES, st.booleans(), TIMES), min_size=1, max_size=40),
    gap_us=TIMES,
)
def test_a_stream_alone_runs_as_it_does_beside_another(
    calls: list[tuple[float, float, bool, float]], gap_us: float
) -> None:
    launches = [TaskLaunch(call, us, read_back=read, further_gap_us=gap) for call, us, read, gap in calls]
    beside = [*launches, TaskLaunch(1.0, 1.0, "communication")]  # two streams are simulated event by event
    spans = simulate_streams(beside, gap_us)
    assert simulate_streams(launches, gap_us) == [span for span in spans if span.stream == "compute"]


def test_a_step_is_bound_by_the_host_where_its_calls_take_longer_than_its_kernels(t4: System) -> None:
    tasks = [_task()] * 20
    call_us = t4.host.call_us("elementwise")
    assert run(t4.host, tasks, [1.0] * 20, StepOptions()).step_us == pytest.approx(20 * call_us)
    gap_us = t4.host.stream_gap_us
    assert run(t4.host, tasks, [100.0] * 20, StepOptions()).step_us == pytest.approx(20 * (100 + gap_us))


def test_a_graph_costs_the_host_nothing(t4: System) -> None:
    graphs = run(t4.host, [_task()] * 20, [1.0] * 20, StepOptions(graphs=True))
    assert graphs.step_us == pytest.approx(20 * (1 + t4.host.graph_gap_us))


def test_an_engine_launches_from_a_list(t4: System) -> None:
    tasks, durations_us = [_task()] * 20, [1.0] * 20
    steps_us = [run(t4.host, tasks, durations_us, StepOptions(listed=listed)).step_us for listed in (True, False)]
    gap_us = max(t4.host.stream_interval_us, 1 + t4.host.stream_gap_us)
    assert steps_us == pytest.approx([20 * gap_us, 20 * t4.host.call_us("elementwise")])


def test_a_copy_of_inputs_takes_as_long_as_its_bytes(t4: System) -> None:
    gb_per_s = t4.host.pageable_copy_gb_per_s
    assert t4.host.pageable_copy_us(1e6 * gb_per_s) == pytest.approx(1000)
    assert t4.with_values([("host.pageable_copy_gb_per_s", 2 * gb_per_s)]).host.pageable_copy_us(
        1e6 * gb_per_s
    ) == pytest.approx(500)


def test_a_step_of_a_loop_that_rests_runs_at_the_highest_clock(t4: System) -> None:
    tasks = [_task(LARGE, call="linear")] * 4
    steady, rested = (predict_step(t4, tasks, StepOptions(rests=rests, limits=False)) for rests in (False, True))
    assert steady.clock_mhz < rested.clock_mhz == t4.gpu.clock.max_mhz
    assert rested.step_us < steady.step_us
    assert rested.power_w > t4.gpu.power.board_limit_w


def test_a_further_kernel_of_a_call_costs_the_host_a_launch(t4: System) -> None:
    tasks = [_task(), _task(call="")]
    host_us = t4.host.call_us("elementwise") + t4.host.stream_interval_us
    assert run(t4.host, tasks, [1.0, 1.0], StepOptions()).step_us == pytest.approx(host_us)


def test_the_host_times_of_a_framework_have_its_factor(t4: System) -> None:
    host = t4.host.model_copy(update={"framework_factors": {"pytorch_21_03": 0.5}})
    assert host.call_us("linear", "pytorch-21.03") == t4.host.call_us("linear") / 2
    assert host.call_us("unheard-of") == t4.host.call_us("elementwise")


def test_what_the_host_does_beside_calls_delays_every_pass(t4: System) -> None:
    times = {"framework_step_us": {"pytorch_21_03": 500.0}, "framework_item_us": {"pytorch_21_03": 20.0}}
    host = t4.host.model_copy(update=times)
    assert host.pass_us("pytorch-21.03", 0) == 500
    assert host.pass_us("pytorch-21.03", 8) == 660
    assert host.pass_us("pytorch-99.99", 8) == 0
    calls = run(host, [_task()] * 20, [1.0] * 20, StepOptions()).step_us
    assert run(host, [_task()] * 20, [1.0] * 20, StepOptions(host_us=660)).step_us == pytest.approx(calls + 660)


def test_a_loop_that_loads_its_items_delays_training_by_each(t4: System) -> None:
    host = t4.host.model_copy(update={"framework_load_us": {"pytorch_21_12": 300.0}})
    assert host.pass_us("pytorch-21.12", 0, loaded_items=4) == 1200
    assert host.pass_us("pytorch-21.12", 4) == 0


def test_processes_that_a_launcher_starts_load_with_one_thread_each(t4: System) -> None:
    loads = {"framework_load_us": {"pytorch_2_1": 20000.0}, "framework_load_of_several_us": {"pytorch_2_1": 15000.0}}
    host = t4.host.model_copy(update=loads)
    assert host.pass_us("pytorch-2.1", 0, 4) == 80000.0
    assert host.pass_us("pytorch-2.1", 0, 4, processes=8) == 60000.0
    alike = t4.host.model_copy(update={"framework_load_us": loads["framework_load_us"]})
    assert alike.pass_us("pytorch-2.1", 0, 4, processes=8) == 80000.0


def test_calls_take_longer_where_several_processes_make_them(t4: System) -> None:
    host = t4.host.model_copy(update={"framework_factor_of_several": 1.25})
    assert host.of_several().call_us("linear") == 1.25 * host.call_us("linear")
    assert t4.host.of_several() is t4.host
    tasks = [_task(call="linear") for _ in range(8)]
    alone, shared = (run(one, tasks, [1.0] * 8, StepOptions()).step_us for one in (host, host.of_several()))
    assert shared == pytest.approx(1.25 * alone)


def test_the_host_waits_for_how_many_rows_a_mask_picks(t4: System) -> None:
    tasks = [_task(call="nonzero"), _task()]
    waited = run(t4.host, tasks, [1000.0, 10.0], StepOptions())
    free = run(t4.host, [_task(), _task()], [1000.0, 10.0], StepOptions())
    assert waited.step_us > free.step_us
    assert run(t4.host, tasks, [1000.0, 10.0], StepOptions(graphs=True)).step_us < free.step_us


def test_a_loop_that_reads_a_result_pays_for_the_first_launch_of_each_step(t4: System) -> None:
    tasks = [_task(call="linear")] * 3
    free = run(t4.host, tasks, [1000.0] * 3, StepOptions()).step_us
    waiting = run(t4.host, tasks, [1000.0] * 3, StepOptions(synchronised=True)).step_us
    assert waiting == pytest.approx(free + t4.host.call_us("linear"))


@pytest.mark.parametrize("accumulation", [1, 2, 3, 64])
def test_an_update_comes_once_after_all_passes(t4: System, accumulation: int) -> None:
    tasks = [_task(), _task(phase="backward"), _task(phase="update")]
    ran = run(t4.host, tasks, [1000.0, 2000.0, 500.0], StepOptions(accumulation=accumulation))
    gap_us = t4.host.stream_gap_us
    assert ran.pass_us == pytest.approx(3000 + 2 * gap_us)
    assert ran.step_us == pytest.approx(accumulation * ran.pass_us + 500 + gap_us)


def test_l2_holds_what_was_touched_last() -> None:
    first, second, large = Tensor("first", 30), Tensor("second", 60), Tensor("large", 1000)
    tasks = [
        _task(writes=(first,)),
        _task(reads=(first,), writes=(second,)),
        _task(reads=(first, second)),
        _task(writes=(large,)),
        _task(reads=(large, first)),
    ]
    assert resident_fractions(tasks, 100) == [0.0, 1.0, 1.0, 0.0, 100 / 1030]


def test_a_tensor_that_was_partly_replaced_is_partly_resident() -> None:
    first, second = Tensor("first", 60), Tensor("second", 60)
    tasks = [_task(writes=(first,)), _task(writes=(second,)), _task(reads=(first,))]
    assert resident_fractions(tasks, 100)[-1] == pytest.approx(40 / 60)


def test_a_step_of_one_operator_takes_its_predicted_time_and_a_gap(t4: System) -> None:
    step = predict_step(t4, [_task(LARGE, call="linear")])
    alone = predict_operator(t4, LARGE, Options())
    assert step.kernel_us == pytest.approx(alone.kernel_time_us, rel=0.01)
    assert step.step_us == pytest.approx(step.kernel_us + t4.host.stream_gap_us)
    assert step.power_w == pytest.approx(alone.counters.power_w, rel=0.02)
    assert step.tflops == pytest.approx(alone.tflops, rel=0.01)


def test_products_run_at_a_higher_clock_beside_kernels_that_take_less_power(t4: System) -> None:
    light = _task(Elementwise(4096, 4096, Dtype.FP32, "relu"))
    product = _task(LARGE, "product", call="linear")
    alone, mixed = predict_step(t4, [product]), predict_step(t4, [product, *[light] * 40])
    assert alone.clock_mhz < mixed.clock_mhz
    assert len({one.result.timing.clock_mhz for one in mixed.computed}) == 1, "their predictions are those at one clock"
    times = [next(one.time_us for one in step.computed if one.task.name == "product") for step in (alone, mixed)]
    assert times[1] == pytest.approx(times[0], rel=0.03), "a product longer than the governor's average gains nothing"


def test_what_the_kernel_before_wrote_is_read_faster(t4: System) -> None:
    tensor = Tensor("activations", SMALL.operand_bytes)
    cold = predict_step(t4, [_task(writes=(tensor,)), _task()])
    warm = predict_step(t4, [_task(writes=(tensor,)), _task(reads=(tensor,))])
    assert warm.tasks[1].time_us < cold.tasks[1].time_us
    assert warm.tasks[1].time_us == pytest.approx(
        predict("t4", SMALL, l2="warm", load="burst").kernel_time_us, rel=0.05
    )


def test_what_l2_holds_of_tensors_far_larger_than_it_is_lost_before_it_is_read(t4: System) -> None:
    operator = Elementwise(4096, 4096, Dtype.FP32, "relu")
    tensor = Tensor("activations", operator.operand_bytes)
    tasks = [_task(operator, writes=(tensor,)), _task(operator, reads=(tensor,))]
    assert 0 < resident_fractions(tasks, t4.gpu.l2.capacity_bytes)[1] < 1
    launched: list[Launch] = []

    def simulated(machine: Machine, launch: Launch, detail: str = "sampled", **given: Any) -> LaunchOutcome:
        launched.append(launch)
        return simulate(machine, launch, detail, **given)

    step = predict_step(t4, tasks, simulate=simulated)
    assert {launch.cold for launch in launched} == {True}
    assert step.tasks[0].time_us == step.tasks[1].time_us


def test_what_a_step_launches_again_is_prepared_once(t4: System, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [_task(), _task(LARGE, "product")]
    first = predict_step(t4, tasks)
    monkeypatch.setattr("gpusim.step.kernels.prepare", None)  # nothing is prepared any more
    assert predict_step(t4, tasks) == first
    other = replace(t4)
    with pytest.raises(TypeError, match="NoneType"):
        _ = predict_step(other, tasks)


def test_operators_add_up_to_the_kernels_of_the_step(t4: System) -> None:
    tasks = [_task(LARGE, "first", call="linear"), _task(), _task(LARGE, "second", "backward", "linear")]
    step = predict_step(t4, [*tasks, _task(phase="update")], StepOptions(accumulation=4))
    operators = step.operators()
    assert [(one.name, one.count) for one in operators] == [("first", 8), ("layer", 5)]
    assert sum(one.time_us for one in operators) == pytest.approx(step.kernel_us)
    assert sum(step.times_by(lambda one: one.task.phase).values()) == pytest.approx(step.kernel_us)
    assert step.flops == 8 * LARGE.flops
    assert step.kernels == 13
    assert 0 < step.tensor_active_fraction < 1
    assert replace(step, power_w=70.0).energy_j == pytest.approx(70e-6 * step.step_us)


def test_an_operator_that_the_gpu_cannot_run_is_named_by_its_layer(t4: System) -> None:
    with pytest.raises(UnsupportedError, match=r"^encoder\.0\.query: T4 .*fp8"):
        predict_step(t4, [_task(Gemm(64, 64, 64, Dtype.FP8, op="linear"), "encoder.0.query")])
