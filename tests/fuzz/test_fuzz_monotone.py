"""The law of tests/fuzz/monotone.py on some hundred doublings, and that the driver finds a violation."""

from dataclasses import replace

from monotone import DRAM, Doubling, doublings

from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm


def test_twice_the_size_is_not_faster_and_twice_the_bandwidth_not_slower() -> None:
    assert [str(one) for one in doublings(count=250, seed=3) if one.surprises and not one.chosen] == []


def test_a_doubling_is_a_violation_beyond_its_slack_and_only_there() -> None:
    gemm, options = Gemm(256, 256, 256, Dtype.FP32), Options(load="burst")
    result = predict(load_spec("T4").system, gemm, options)
    latency_us = load_spec("T4").gpu.dram.latency_ns * 1e-3

    def after(what: str, by_us: float) -> Doubling:
        return Doubling("T4", gemm, options, what, result, _taking(result, result.kernel_time_us + by_us))

    assert result.launch.waves <= 1
    slack_us = max(latency_us, 0.02 * result.kernel_time_us)
    assert [after("k", by).surprises for by in (-1.01 * slack_us, -0.99 * slack_us, 1.0)] == [True, False, False]
    assert [after(DRAM, by).surprises for by in (1.01 * slack_us, 0.99 * slack_us, -1.0)] == [True, False, False]
    assert not after("k", -1.0).chosen  # the same kernel


def test_a_product_whose_larger_one_runs_on_a_faster_kernel_is_told_apart() -> None:
    gemm, options = Gemm(256, 256, 256, Dtype.FP32), Options(load="burst")
    arch = load_spec("T4").system
    slow = predict(arch, gemm, replace(options, kernel="volta_sgemm_128x128_tn"))
    fast = predict(arch, gemm, options)
    passed_over = Doubling("T4", gemm, options, "k", slow, fast)
    assert passed_over.surprises
    assert passed_over.chosen
    impossible = Doubling("T4", gemm, options, "k", slow, _taking(fast, fast.kernel_time_us / 2))
    assert impossible.surprises
    assert not impossible.chosen


def _taking(result: Result, kernel_time_us: float) -> Result:
    return replace(result, timing=replace(result.timing, kernel_time_us=kernel_time_us))
