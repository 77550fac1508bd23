"""The records that a prediction is made for: hashes, trial values, and that nothing else is read."""

import builtins
import io
import os
import pickle

import pytest

from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.system import System
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.vector import Softmax

GEMM = Gemm(512, 512, 512, Dtype.FP16)


@pytest.mark.parametrize("operator", [GEMM, Softmax(512, 1000, Dtype.FP32)], ids=["gemm", "softmax"])
def test_a_prediction_opens_no_file(t4: System, operator: Gemm | Softmax, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = predict(t4, operator, Options())  # imports what it needs

    def refuse(*_: object, **__: object) -> object:
        raise AssertionError("a file is opened")

    for module, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "stat"), (os, "scandir")):
        monkeypatch.setattr(module, name, refuse)
    assert predict(t4, operator, Options()) == expected


def test_a_system_is_the_same_in_another_process(t4: System) -> None:
    there = pickle.loads(pickle.dumps(t4))  # noqa: S301 - made here
    assert (there, there.content_hash) == (t4, t4.content_hash)


def test_trial_values_reach_the_record_that_holds_them(t4: System) -> None:
    changed = t4.with_values(
        [("sm.count", 41), ("host.graph_gap_us", 9.0), ("library.heuristic_bias.simt.sliced_k", 0.5)]
    )
    assert (changed.gpu.sm.count, changed.host.graph_gap_us) == (41, 9.0)
    assert changed.library.heuristic_bias.simt["sliced_k"] == 0.5
    assert changed.library.kernels is t4.library.kernels
    assert t4.with_values([]) == t4


def test_the_gap_of_the_host_follows_a_product(t4: System) -> None:
    late = t4.with_values([("host.graph_gap_us", 9.0)])
    here, there = (predict(system, GEMM, Options()) for system in (t4, late))
    assert there.time_us - here.time_us == pytest.approx(9.0 - t4.host.graph_gap_us)
