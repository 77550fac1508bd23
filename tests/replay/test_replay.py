"""No recorded prediction moves unless a commit says so; `make replay` records them again."""

from __future__ import annotations

import pytest
from corpus import Case, Figures, boards, moved, recorded, replay

BY_BOARD: dict[str, list[tuple[Case, Figures]]] = {}
for _case, _figures in recorded():
    BY_BOARD.setdefault(_case["arch"], []).append((_case, _figures))


@pytest.mark.parametrize("board", boards())
def test_every_board_says_what_it_said(board: str) -> None:
    assert board in BY_BOARD, f"no case of {board}: make replay"
    changes = [(case, moved(figures, replay(case))) for case, figures in BY_BOARD[board]]
    assert [change for change in changes if change[1]] == []


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
