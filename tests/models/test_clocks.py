"""The clocks of a step: of each stretch over which the governor averages power."""

import pytest

from gpusim.prediction.power import Energy, Sustained, power_w
from gpusim.specs import load_spec
from gpusim.step.clocks import clocks_of
from gpusim.step.cuda_streams import TaskSpan

V100 = load_spec("v100-sxm2-16gb").system.gpu
LIMIT_W = V100.power.board_limit_w
AVERAGE_US = V100.power.averaging_ms * 1e3
HOT, COLD = Energy(LIMIT_W * AVERAGE_US * 1e-6, 0.0), Energy(0.0, 0.0)
"""Energies of a kernel as long as the governor averages: one that alone draws the limit, and none."""


def spans_of(*kernels: tuple[int, float]) -> list[TaskSpan]:
    """Kernels one after the other, each with the time that the GPU waits after it."""
    found, now_us = [], 0.0
    for task, wait_us in kernels:
        found.append(TaskSpan(task, "compute", 0.0, now_us, now_us + AVERAGE_US))
        now_us += AVERAGE_US + wait_us
    return found


def bound_by_sms(_: int, clock_mhz: float) -> float:
    return AVERAGE_US * 1300 / clock_mhz


def bound_by_memory(_: int, _clock_mhz: float) -> float:
    return AVERAGE_US


def test_each_stretch_runs_at_the_highest_clock_within_the_limit() -> None:
    found = clocks_of(V100, spans_of((0, 0), (1, 0)), [HOT, COLD], Sustained(1300.0, LIMIT_W), bound_by_sms)
    hot, cold = found.longer
    assert hot > 1 > cold == pytest.approx(1300 / V100.clock.max_mhz)
    assert power_w(V100, HOT, hot * AVERAGE_US, 1300 / hot) == pytest.approx(LIMIT_W, rel=0.01)
    assert 1300 / hot < found.mean_mhz < V100.clock.max_mhz
    assert found.mean_w < LIMIT_W


def test_a_long_average_gives_all_kernels_one_clock() -> None:
    slow = V100.model_copy(
        update={"power": V100.power.model_copy(update={"averaging_ms": 100 * V100.power.averaging_ms})}
    )
    found = clocks_of(slow, spans_of((0, 0), (1, 0)), [HOT, COLD], Sustained(1300.0, LIMIT_W), bound_by_sms)
    assert found.longer[0] == found.longer[1] == pytest.approx(1300 / found.mean_mhz)


def test_time_in_which_the_gpu_waits_lets_its_clock_rise() -> None:
    at = Sustained(1300.0, LIMIT_W)
    busy, waiting = (
        clocks_of(V100, spans_of((0, wait_us), (1, 0)), [HOT, COLD], at, bound_by_sms).longer[0]
        for wait_us in (0, AVERAGE_US)
    )
    assert waiting < busy


def test_kernels_that_wait_for_memory_take_as_long_at_any_clock() -> None:
    found = clocks_of(V100, spans_of((0, 0), (1, 0)), [HOT, COLD], Sustained(1300.0, LIMIT_W), bound_by_memory)
    assert found.longer == (1.0, 1.0)
    assert found.mean_mhz != 1300.0


def test_a_step_that_no_limit_holds_is_not_asked_for_at_another_clock() -> None:
    def refused(task: int, clock_mhz: float) -> float:
        raise AssertionError(task, clock_mhz)

    at = Sustained(V100.clock.max_mhz, 100.0)
    found = clocks_of(V100, spans_of((0, 0), (1, 0)), [COLD, COLD], at, refused)
    assert (found.longer, found.mean_mhz, found.mean_w) == ((1.0, 1.0), at.clock_mhz, 100.0)
    assert clocks_of(V100, [], [COLD], at, refused).longer == (1.0,)


def test_only_tasks_of_stretches_beyond_the_limit_are_asked_for_at_another_clock() -> None:
    asked = []

    def duration_us(task: int, clock_mhz: float) -> float:
        asked.append(task)
        return bound_by_sms(task, clock_mhz)

    hotter = Energy(2 * HOT.core_j, 0.0)
    at = Sustained(V100.clock.max_mhz, LIMIT_W)
    found = clocks_of(V100, spans_of((0, 0), (1, 0)), [hotter, COLD], at, duration_us)
    assert set(asked) == {0}
    assert found.longer[0] > found.longer[1] == 1.0


def test_a_task_of_several_passes_takes_the_mean_of_them() -> None:
    at = Sustained(1300.0, LIMIT_W)
    after_products = clocks_of(V100, spans_of((0, 0), (0, AVERAGE_US)), [HOT, COLD], at, bound_by_sms)
    first, second = (
        clocks_of(V100, spans_of((0, wait_us)), [HOT, COLD], at, bound_by_sms).longer[0] for wait_us in (0, 0)
    )
    assert after_products.longer[0] == pytest.approx((first + second) / 2)
    assert after_products.longer[1] == 1.0
