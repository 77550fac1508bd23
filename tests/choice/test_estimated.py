"""Detail ``estimate``: the closed form of the chosen kernel, with all else as in ``sampled``."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.confidence import ESTIMATE_DISTANCE, SIGMAS_OF_80_PERCENT, duration_of, family_of
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.results import Result
from gpusim.specs import load_spec
from gpusim.system import System
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator, parse_operator

A100 = load_spec("A100-SXM4-80GB").system
DETAILS = ("estimate", "sampled")
T4 = load_spec("T4").system
H100 = load_spec("H100-SXM5-80GB").system
KINDS: tuple[tuple[System, dict[str, object]], ...] = (
    (A100, {"m": 4096, "n": 4096, "k": 4096, "dtype": "fp16"}),
    (A100, {"m": 512, "n": 512, "k": 512, "dtype": "fp16", "sparsity": "2:4"}),
    (A100, {"m": 16, "n": 4096, "k": 8192, "dtype": "bf16", "op": "linear", "bias": "yes"}),
    (T4, {"m": 1024, "n": 1024, "k": 1024, "dtype": "fp32"}),
    (T4, {"m": 96, "n": 64, "k": 128, "batch": 48, "dtype": "int8"}),
    (H100, {"m": 512, "n": 4096, "k": 4096, "layout": "tn", "dtype": "fp8", "scales": "row", "quantise": "kernel"}),
    (A100, {"m": 16, "n": 4096, "k": 4096, "layout": "tn", "dtype": "fp16", "b_dtype": "int4", "group": 128}),
    (A100, {"op": "gelu", "m": 4096, "n": 4096, "dtype": "fp32"}),
    (A100, {"op": "softmax", "m": 4096, "n": 2048, "dtype": "fp16"}),
    (T4, {"op": "layernorm", "m": 4096, "n": 2048, "dtype": "fp32"}),
    (A100, {"op": "sum", "m": 2048, "n": 4096, "dtype": "fp16"}),
    (A100, {"op": "attention_fwd", "batch": 2, "heads": 8, "m": 1024, "n": 1024, "k": 64, "dtype": "fp16"}),
)


def operators() -> Iterator[tuple[System, Operator]]:
    """An operator of each kind."""
    from gpusim.workloads.convolution import Convolution, ConvolutionShape

    for system, values in KINDS:
        yield system, parse_operator(values)
    for op in ("conv_fwd", "conv_bwd_inputs", "conv_bwd_weights"):
        for side, groups in ((3, 1), (3, 64)):
            shape = ConvolutionShape(16, 64, 56, 56, 64, side, side, groups=groups)
            yield A100, Convolution(shape, Dtype.FP16, op=op, layout="nhwc")


def of(system: System, operator: Operator, detail: str, **options: object) -> Result:
    return predict(system, operator, Options(detail=detail, limits=False, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(("system", "operator"), list(operators()), ids=lambda one: getattr(one, "op", ""))
def test_everything_but_the_cycles_is_as_in_sampled(system: System, operator: Operator) -> None:
    estimated, sampled = (of(system, operator, detail, load="burst") for detail in ("estimate", "sampled"))
    assert estimated.as_dict().keys() == sampled.as_dict().keys()
    assert (estimated.launch, estimated.operator, estimated.bounds_us) == (
        sampled.launch,
        sampled.operator,
        sampled.bounds_us,
    )
    one, other = estimated.counters, sampled.counters
    assert (one.dram_read_bytes, one.l2_bytes, one.dram_write_bytes) == pytest.approx(
        (other.dram_read_bytes, other.l2_bytes, other.dram_write_bytes), abs=1.0
    )
    assert estimated.consistent
    distance = abs(math.log(estimated.kernel_time_us / sampled.kernel_time_us))
    spread = ESTIMATE_DISTANCE.get((family_of(operator), duration_of(sampled.kernel_time_us)), 0.0)
    assert distance <= 3 * spread
    if family_of(operator) == "product" and not getattr(operator, "quantise", ""):
        assert not any(one.stall_cycles.values())


def test_the_estimate_is_that_of_the_ranking() -> None:
    """On A100, whose boost clock, at which kernels are ranked, is its highest; but for one that starts whole."""
    for size in (64, 500, 1024, 4096):
        result = of(A100, Gemm(size, size, size, Dtype.FP16), "estimate", load="burst")
        clock_mhz = result.timing.clock_mhz
        assert abs(result.kernel_time_us - result.alternatives[0].estimate_us) * clock_mhz <= 2.0


@pytest.mark.parametrize("values", [values for _, values in KINDS[-5:]], ids=lambda one: one["op"])
def test_what_no_ranking_estimates_is_simulated(values: dict[str, object]) -> None:
    estimated, sampled = (of(A100, parse_operator(values), detail) for detail in ("estimate", "sampled"))
    assert replace(estimated, detail="sampled") == sampled


def test_the_power_limit_holds_the_clock_of_an_estimate_as_it_does_of_a_simulation() -> None:
    gemm = Gemm(8192, 8192, 8192, Dtype.FP32)
    estimated, sampled = (of(T4, gemm, detail) for detail in ("estimate", "sampled"))
    assert estimated.utilization.clock_limit == "power"
    assert estimated.timing.clock_mhz == pytest.approx(sampled.timing.clock_mhz, rel=0.03)
    assert estimated.counters.power_w == pytest.approx(T4.gpu.power.board_limit_w, rel=0.02)


def test_what_would_help_an_estimate_is_what_would_help_a_simulation() -> None:
    for gemm, helps in ((Gemm(8192, 8192, 8192, Dtype.FP32), "power"), (Gemm(1, 8192, 8192, Dtype.FP16), "dram")):
        assert [predict(T4, gemm, Options(detail, limits=True)).bottleneck for detail in DETAILS] == [helps] * 2


def test_the_interval_of_an_estimate_has_its_distance_from_a_simulation() -> None:
    gemm = Gemm(512, 512, 512, Dtype.FP16)
    estimated, sampled = (of(A100, gemm, detail).timing for detail in ("estimate", "sampled"))
    further = SIGMAS_OF_80_PERCENT * ESTIMATE_DISTANCE["product", "short"]
    for name in ("time_us_p10", "time_us_p90"):
        one, other = (abs(math.log(getattr(timing, name) / timing.time_us)) for timing in (estimated, sampled))
        assert one == pytest.approx(math.hypot(other, further))
    assert estimated.evidence == sampled.evidence


@settings(max_examples=60)
@given(
    st.sampled_from([A100, T4, H100]),
    st.tuples(*(st.integers(1, 9000) for _ in range(3))),
    st.sampled_from([Dtype.FP16, Dtype.FP32]),
    st.sampled_from(["cold", "warm"]),
)
def test_no_estimate_contradicts_the_bound(system: System, size: tuple[int, int, int], dtype: Dtype, l2: str) -> None:
    result = of(system, Gemm(*size, dtype), "estimate", l2=l2)
    assert result.consistent
    assert result.kernel_time_us >= max(result.bounds_us.values()) * (1 - 1e-9)
    shares = result.utilization.time_shares
    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares.values()) >= -1e-9


def test_random_products_are_no_further_from_the_simulation_than_intervals_say() -> None:
    draw, logs = random.Random(3), []
    for number in range(60):
        m, n, k = (8 * max(1, round(2 ** draw.uniform(0, 9))) for _ in range(3))
        gemm = Gemm(m, n, k, Dtype.FP16)
        estimated, sampled = (of((A100, T4, H100)[number % 3], gemm, detail) for detail in ("estimate", "sampled"))
        spread = ESTIMATE_DISTANCE["product", duration_of(sampled.kernel_time_us)]
        logs.append(math.log(estimated.kernel_time_us / sampled.kernel_time_us) / spread)
    inside = sum(abs(one) <= SIGMAS_OF_80_PERCENT for one in logs)
    assert inside >= 0.7 * len(logs)


def test_what_would_help_is_found_only_where_it_is_asked_for() -> None:
    gemm = Gemm(8192, 8192, 8192, Dtype.FP32)
    alone, asked = predict(T4, gemm, Options("estimate")), predict(T4, gemm, Options("estimate", limits=True))
    assert (alone.utilization.savings, alone.bottleneck) == ({}, "arithmetic")
    assert asked.bottleneck == "power" == next(iter(asked.utilization.savings))
    assert alone.timing == asked.timing
