"""Some hundred random command lines; ``python tests/fuzz/commands.py`` feeds more."""

from __future__ import annotations

import os
import signal

import commands
import harness
import pytest


def test_hostile_command_lines_are_refused_in_one_line_or_answered() -> None:
    assert commands.main(["--count", "120", "--seed", "1"]) == 0


def test_the_harness_tells_a_traceback_a_hang_a_crash_and_memory_from_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "HANG_S", 1)
    ends = {"refuse": _refuse, "raise": _raise, "hang": _hang, "crash": _crash, "memory": _memory}
    count = harness.fed(list(ends), lambda name: ends[name]())
    assert count.outcomes.pop(harness.REFUSED) == 1
    assert {outcome.split(" with status")[0] for outcome in count.outcomes} == {
        "traceback: KeyError",
        "hang",
        "crash",
        "more memory than allowed",
    }
    assert count.defects == 4


def _refuse() -> tuple[str, str]:
    return harness.command(["gemm", "--arch", "no such GPU", "-m", "1", "-n", "1", "-k", "1"])


def _raise() -> tuple[str, str]:
    raise KeyError


def _hang() -> tuple[str, str]:
    while True:
        pass


def _crash() -> tuple[str, str]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _memory() -> tuple[str, str]:
    return harness.ACCEPTED, str(len(bytes(2 * harness.MEMORY_BYTES)))
