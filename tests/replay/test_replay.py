"""No recorded prediction moves unless a commit says so, with either driver; `make replay` records them again."""

from __future__ import annotations

from pathlib import Path

import corpus
import pytest
from conftest import shipped_spec
from corpus import Case, Figures, boards, moved, record, recorded, recorded_version, replay

from gpusim.sim.drivers.choice import VARIABLE
from gpusim.version import MODEL_VERSION

BY_BOARD: dict[str, list[tuple[Case, Figures]]] = {}
for _case, _figures in recorded():
    BY_BOARD.setdefault(_case["arch"], []).append((_case, _figures))


# The reference driver takes four times as long: the first board of each library, the others with the slow tests.
BOARDS = boards()
OF_LIBRARIES = {shipped_spec(board).system.library.name: board for board in reversed(BOARDS)}.values()
DRIVERS = [("1", board) for board in BOARDS] + [
    pytest.param("0", board, marks=() if board in OF_LIBRARIES else pytest.mark.slow) for board in BOARDS
]


@pytest.mark.parametrize(("compiled", "board"), DRIVERS)
def test_every_board_predicts_what_is_recorded(board: str, compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, compiled)
    assert board in BY_BOARD, f"no case of {board}: make replay"
    changes = [(case, moved(figures, replay(case))) for case, figures in BY_BOARD[board]]
    assert [change for change in changes if change[1]] == []


def test_the_recorded_figures_are_of_this_model_version() -> None:
    assert recorded_version() == MODEL_VERSION, "make replay"


@pytest.fixture
def corpus_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Case, Figures]]:
    """A recorded corpus of the first two cases."""
    two = recorded()[:2]
    monkeypatch.setattr(corpus, "RECORDED", tmp_path / "recorded.jsonl")
    record(two)
    return two


def test_moved_figures_are_recorded_under_a_new_model_version_only(
    corpus_of_two: list[tuple[Case, Figures]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (case, figures), other = corpus_of_two
    changed = [(case, {**figures, "cycles": figures["cycles"] + 1}), other]
    for cases in (changed, corpus_of_two[1:]):
        with pytest.raises(ValueError, match=r"1 recorded predictions moved .*: increase MODEL_VERSION in gpusim/ver"):
            record(cases)
    assert recorded() == corpus_of_two
    monkeypatch.setattr(corpus, "MODEL_VERSION", MODEL_VERSION + 1)
    record(changed)
    assert (recorded(), recorded_version()) == (changed, MODEL_VERSION + 1)


def test_a_new_case_moves_none(corpus_of_two: list[tuple[Case, Figures]]) -> None:
    more = [*corpus_of_two, ({"arch": "T4", "m": 1}, {"refused": True})]
    record(more)
    assert (recorded(), recorded_version()) == (more, MODEL_VERSION)


def test_figures_edited_by_hand_are_noticed(corpus_of_two: list[tuple[Case, Figures]]) -> None:
    _, figures = corpus_of_two[0]
    text = corpus.RECORDED.read_text(encoding="utf-8")
    corpus.RECORDED.write_text(text.replace(f'"cycles": {figures["cycles"]}', '"cycles": 1'), encoding="utf-8")
    with pytest.raises(ValueError, match=r"recorded\.jsonl was edited"):
        recorded_version()


def test_the_corpus_is_wide_enough() -> None:
    cases = [case for case, figures in recorded() if "refused" not in figures]
    assert len(cases) >= 300
    for name, values in (
        ("detail", {"bound", "full"}),
        ("layout", {"nn", "nt", "tn", "tt"}),
        ("sparsity", {"dense", "2:4"}),
        ("l2", {"cold", "warm"}),
        ("batch", {1, 4, 32}),
        ("dtype", {"fp64", "fp32", "tf32", "fp16", "bf16", "int8", "int4", "fp8"}),
    ):
        assert values <= {case.get(name) for case in cases}
    assert any("trace" in case for case in cases)
    assert {"add", "gelu", "softmax", "layernorm", "sum"} <= {case.get("op") for case in cases}
    assert sum(case["arch"] == "teaching" for case in cases) >= 2
