"""No recorded prediction moves with the compiled driver."""

from __future__ import annotations

import pytest
from corpus import Case, Figures, boards, moved, recorded, replay

BY_BOARD: dict[str, list[tuple[Case, Figures]]] = {}
for _case, _figures in recorded():
    if "trace" not in _case:
        BY_BOARD.setdefault(_case["arch"], []).append((_case, _figures))


@pytest.mark.parametrize("board", boards())
def test_every_board_predicts_compiled_what_is_recorded(board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_COMPILED", "1")
    changes = [(case, moved(figures, replay(case))) for case, figures in BY_BOARD[board]]
    assert [change for change in changes if change[1]] == []
