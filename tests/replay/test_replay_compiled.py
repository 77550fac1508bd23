"""No recorded prediction moves where launches are played compiled."""

from __future__ import annotations

import pytest
from corpus import Case, Figures, boards, moved, recorded, replay

from gpusim.sim.compiled import play

BY_BOARD: dict[str, list[tuple[Case, Figures]]] = {}
for _case, _figures in recorded():
    if "trace" not in _case:
        BY_BOARD.setdefault(_case["arch"], []).append((_case, _figures))


@pytest.mark.parametrize("board", boards())
def test_every_board_predicts_compiled_what_is_recorded(board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left = []
    played = play.played

    def noted(*args: object, **options: object) -> object:
        outcome = played(*args, **options)  # type: ignore[arg-type]
        left.extend(["to the processes"] if outcome is None else [])
        return outcome

    monkeypatch.setenv("GPUSIM_COMPILED", "1")
    monkeypatch.setattr("gpusim.sim.drivers.choice._play", lambda: noted)
    changes = [(case, moved(figures, replay(case))) for case, figures in BY_BOARD[board]]
    assert [change for change in changes if change[1]] == []
    assert left == []
