"""The bottleneck that a prediction names is what helps most, against predictions with each resource doubled."""

from __future__ import annotations

import pytest
from limits_table import named_bottlenecks

from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.prediction.selection import UnsupportedError
from gpusim.report.limit_text import limit_text
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm


def of(arch: str, m: int, n: int, k: int, *, detail: str = "sampled", load: str = "sustained") -> Result:
    return predict(load_spec(arch).system, Gemm(m, n, k, Dtype.FP16), Options(detail=detail, load=load))


def test_what_is_named_helps_most_or_nothing_helps() -> None:
    found = named_bottlenecks(40, seed=5)
    assert len(found) > 30
    wrong = [(one.board, str(one.operator), one.result.bottleneck, one.ratios) for one in found if not one.right]
    assert len(wrong) <= 0.1 * len(found), wrong


@pytest.mark.slow
def test_what_is_named_helps_most_in_nineteen_of_twenty() -> None:
    found = named_bottlenecks()
    assert sum(one.right for one in found) >= 0.95 * len(found)


def test_a_clock_that_the_power_limit_holds_is_named_with_what_limits_next() -> None:
    result = of("t4", 4096, 4096, 4096)
    used = result.utilization
    assert (used.bottleneck, used.next_bottleneck, used.clock_limit) == ("power", "shared_memory", "power")
    assert used.savings["power"] > 0.4
    at = f"{result.timing.clock_mhz:.0f} MHz ({100 * result.timing.clock_mhz / 1590:.0f} % of the maximum clock)"
    assert limit_text(result) == f"Tensor Cores at {at}, held by the 70 W limit; next limit: shared-memory bandwidth"
    assert of("t4", 4096, 4096, 4096, load="burst").utilization.clock_limit == "maximum"


def test_half_a_wave_is_not_held_up_by_the_number_of_sms() -> None:
    result = of("a100-sxm4-80gb", 512, 512, 512)
    assert result.launch.sms_used < result.launch.sm_count
    assert result.utilization.savings.get("idle_sms", 0.0) < 0.03


def test_small_gemms_wait_for_their_launch_and_large_vectors_for_dram() -> None:
    assert of("h100-sxm5-80gb", 64, 64, 64).bottleneck == "launch"
    streamed = of("a100-sxm4-80gb", 16, 16384, 16384, load="burst")
    assert streamed.bottleneck == "dram"
    assert streamed.utilization.savings["dram"] > 0.15


def test_savings_are_in_order_and_none_are_looked_for_where_they_are_not_wanted() -> None:
    system, gemm = load_spec("a100-sxm4-80gb").system, Gemm(2048, 2048, 2048, Dtype.FP16)
    found, without = predict(system, gemm), predict(system, gemm, Options(limits=False))
    savings = list(found.utilization.savings.values())
    assert savings == sorted(savings, reverse=True)
    assert without.utilization.savings == {}
    assert without.timing == found.timing
    assert without.bottleneck == max(
        found.utilization.gpu_busy_fractions, key=found.utilization.gpu_busy_fractions.__getitem__
    )


def test_a_whole_gpu_is_limited_as_its_sampled_sm() -> None:
    sampled, full = (of("t4", 512, 512, 512, detail=detail) for detail in ("sampled", "full"))
    assert full.bottleneck == sampled.bottleneck


def test_an_operator_whose_flops_64_bits_do_not_count_is_refused_in_one_line() -> None:
    with pytest.raises(UnsupportedError, match=r"^2e\+27 FLOP: a simulation counts up to 2\^63; reduce a size$"):
        of("t4", 10**9, 10**9, 10**9)


def test_the_next_bottleneck_is_another_one() -> None:
    for shape in ((16, 4096, 4096), (4096, 4096, 64), (512, 512, 512)):
        used = of("a100-sxm4-80gb", *shape).utilization
        assert used.next_bottleneck not in used.bottleneck.removeprefix("balanced: ").split(", ")
