"""Models that write token by token: lengths, passes, and the batch that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.api import load_system
from gpusim.models.decoding import DecodingError, pass_graph
from gpusim.models.lengths import Lengths
from gpusim.models.loading import load_model
from gpusim.models.policy import Policy, PolicyError
from gpusim.step.translation import predict_translation, samples

NEWSTEST = load_model("gnmt_v2_greedy").content.decoding
HALF = Policy("inference", "fp16", version="1.7")


def test_the_longest_of_128_translations_is_as_published() -> None:
    assert NEWSTEST is not None
    assert NEWSTEST.written.longest(1) == pytest.approx(28.57, rel=0.01)
    assert NEWSTEST.written.longest(128) == pytest.approx(1780 / 24, rel=0.01)


@pytest.mark.parametrize("batch", [1, 3, 128])
def test_steps_are_as_many_as_the_longest_sequence_has_tokens(batch: int) -> None:
    lengths = Lengths(mean=20, shape=9, most=60, source="a test")
    tokens = [one for one in samples(lengths, batch) if "token" in one.passes]
    assert sum(one.times for one in tokens) == pytest.approx(lengths.longest(batch))
    assert all(one.times > 0 for one in tokens)
    assert tokens[0].active == batch
    assert [one.active for one in tokens] == sorted((one.active for one in tokens), reverse=True)


def test_a_sequence_by_itself_ends_once() -> None:
    lengths = Lengths(mean=20, shape=9, most=60, source="a test")
    assert sum(one.times for one in samples(lengths, 1) if "ending" in one.passes) == pytest.approx(1)


def test_sequences_of_one_length_end_together() -> None:
    *_, last = samples(Lengths(mean=12, most=12, source="a test"), 8)
    assert last.times == pytest.approx(1)
    assert (last.active, last.written) == (8, 12)
    assert last.passes == ("token", "ending")


def test_a_pass_takes_inputs_and_its_own_results(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    text = """
title: Wrong
source: a test
item: tok
optimizer: adam
sizes: {batch: 2}
inputs: {source: [batch, 8]}
layers:
  - {op: tanh, only: prompt}
  - {op: relu, only: token}
"""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DecodingError, match="relu takes tanh of another pass"):
        _ = pass_graph(load_model(str(path)), {}, ("token",))


def test_a_batch_is_its_prompt_and_its_tokens() -> None:
    system, model = load_system("a100-sxm4-40gb"), load_model("gnmt_v2_greedy")
    small = {"batch": 4, "hidden": 64, "vocabulary": 256, "source_len": 4}
    found = predict_translation(system, model, small, HALF)
    assert found.items == 4 * 57
    assert found.throughput == pytest.approx(4 * 57 / found.step_ms * 1e3)
    assert set(found.step.times_by(lambda one: one.task.name.split(".")[0])) == {"encode", "decode", "search", "end"}
    assert found.step.idle_fraction > 0.5  # the host launches tiny kernels


def test_a_model_of_tokens_is_not_trained() -> None:
    with pytest.raises(PolicyError, match="run it in inference"):
        _ = predict_translation(load_system("t4"), load_model("gnmt_v2_greedy"), {}, Policy())
