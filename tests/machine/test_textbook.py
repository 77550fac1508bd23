"""The textbook's example: a 32 x 32 multiplication by hand, through the whole of a prediction."""

import pytest

from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

DETAILS = ("sampled", "full")


@pytest.mark.parametrize("detail", DETAILS)
def test_the_textbook_multiplication_takes_392_cycles_without_tensor_cores(detail: str) -> None:
    result = predict(load_spec("teaching").system, Gemm(32, 32, 32, Dtype.FP32, layout="nt"), Options(detail=detail))
    assert result.timing.cycles == 392  # 200 + 8 x 20 + 8 x 4
    assert result.time_us == 0.392
    # 8 warps an SM, each: one global load, 8 shared-memory reads, 8 FFMA
    ledger = {cause: cycles for cause, cycles in result.counters.stall_cycles.items() if cycles}
    assert ledger == {"long_scoreboard": 8 * 200, "short_scoreboard": 8 * 8 * 20, "math": 8 * 8 * 4}
    assert result.counters.warp_cycles == 8 * 392


@pytest.mark.parametrize("detail", DETAILS)
def test_the_textbook_multiplication_takes_221_cycles_with_tensor_cores(detail: str) -> None:
    result = predict(load_spec("teaching").system, Gemm(32, 32, 32, Dtype.FP16), Options(detail=detail))
    assert result.timing.cycles == 221  # 200 + 20 + 1
    ledger = {cause: cycles for cause, cycles in result.counters.stall_cycles.items() if cycles}
    assert ledger == {"long_scoreboard": 8 * 200, "short_scoreboard": 8 * 20, "math": 8 * 1}
    assert result.counters.warp_cycles == 8 * 221
