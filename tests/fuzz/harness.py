"""Feeds the program many inputs and counts how each ends: shared by the fuzz drivers.

An input is fed in a child process with bounded memory and time, so that a crash of the interpreter, a hang or an
expanding file ends the child and not the count. The program keeps its word if an input is accepted (status 0, or 1 for
a result outside what was asked) or refused in one line (status 2); everything else is a defect.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from types import FrameType
from typing import Any, NoReturn

from gpusim.cli import run_cli

HANG_S = 10
"""An input that computes for longer hangs; so does one that sleeps for :data:`PATIENCE` times as long."""
PATIENCE = 12
MEMORY_BYTES = 2**30
"""Memory limit for an input beyond that of a fresh child process."""
ACCEPTED, OUTSIDE, REFUSED = "accepted", "outside what was asked", "refused in one line"
FINE = (ACCEPTED, OUTSIDE, REFUSED)
SHOWN_CHARACTERS = 400
MEASURED_HEADER = "gpu,op,batch,m,n,k,dtype,acc_dtype,layout,sparsity,time_us,method,l2,kernel,source"
"""Columns of the measured tables that drivers write."""
FORK = multiprocessing.get_context("fork")

os.environ["GPUSIM_TRACEBACK"] = "1"  # or a defect would be one line and status 1, as what is outside a request


@dataclass
class Count:
    """Outcomes of a run of inputs, and the first input of each kind of defect."""

    outcomes: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[Any, str]] = field(default_factory=dict)

    @property
    def defects(self) -> int:
        """Inputs for which the program broke its contract."""
        return sum(number for outcome, number in self.outcomes.items() if outcome not in FINE)

    def add(self, item: Any, outcome: str, detail: str) -> None:
        """Count one input."""
        self.outcomes[outcome] += 1
        if outcome not in FINE:
            self.first.setdefault(outcome, (item, detail))

    def show(self) -> None:
        """Print the counts and an example of each defect."""
        for outcome, number in self.outcomes.most_common():
            print(f"{number:8d}  {outcome}")
        for outcome, (item, detail) in self.first.items():
            print(f"\n{outcome}: {str(item)[:SHOWN_CHARACTERS]}\n{detail}")


class HangError(BaseException):
    """An input took longer than :data:`HANG_S`; no ``except Exception`` catches it."""


def command(arguments: Sequence[str]) -> tuple[str, str]:
    """Run a command in this process; how it ended, and what shows it."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run_cli(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    # A check of several files says of each whether it is fine.
    said = "" if arguments[:2] == ["archs", "check"] else out.getvalue()
    return judged(status, said, err.getvalue())


def judged(status: int, out: str, err: str) -> tuple[str, str]:
    """The outcome of a command that ended."""
    shown = f"status {status}, stderr: {err[-SHOWN_CHARACTERS:]}"
    if "Traceback" in err:
        return "traceback on stderr", shown
    if out.startswith(("{", "[")) and _json_constants(out):
        return "NaN or infinity in JSON", shown
    if status == 2:
        one_line = err.splitlines()[-1:] and err.splitlines()[-1].startswith("gpusim: ")
        return (REFUSED, "") if one_line and not out else ("refusal without its line", shown)
    return {0: (ACCEPTED, ""), 1: (OUTSIDE, "")}.get(status, (f"status {status}", shown))


def _json_constants(out: str) -> list[str]:
    """NaN and infinities among the values of what is printed as JSON, though JSON has neither."""
    found: list[str] = []
    with contextlib.suppress(ValueError):
        json.loads(out, parse_constant=found.append)
    return found


def fed(inputs: Sequence[Any], feed: Callable[[Any], tuple[str, str]]) -> Count:
    """Feed every input, in child processes that end with the first one they do not survive.

    Args:
        inputs: what to feed, in order.
        feed: runs one input and says how it ended, and what shows it; what it raises is a traceback.
    """
    count = Count()
    fed_so_far = 0
    while fed_so_far < len(inputs):
        receiver, sender = FORK.Pipe(duplex=False)
        child = FORK.Process(target=_feed_until_one_breaks, args=(inputs[fed_so_far:], feed, sender))
        child.start()
        sender.close()
        for outcome, detail in _outcomes(receiver, child):
            count.add(inputs[fed_so_far], outcome, detail)
            fed_so_far += 1
        child.join()
    return count


def _outcomes(receiver: Connection, child: ForkProcess) -> Iterator[tuple[str, str]]:
    """What a child reports, and how it ended if that was not its own will."""
    while True:
        if not receiver.poll(PATIENCE * HANG_S):
            child.kill()
            yield "hang that no signal ends", ""
            return
        try:
            report = receiver.recv()
        except EOFError:
            child.join()
            yield f"crash with status {child.exitcode}", ""
            return
        if report is None:
            return
        yield report


def _feed_until_one_breaks(inputs: Sequence[Any], feed: Callable[[Any], tuple[str, str]], sender: Connection) -> None:
    """Life of a child: report each input; stop after one that left memory or time in doubt."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path of a user's
        pages = int(file.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, hard))
    signal.signal(signal.SIGPROF, _hang)
    for item in inputs:
        report, sound = _reported(item, feed)
        sender.send(report)
        if not sound:
            break
    sender.send(None)


def _reported(item: Any, feed: Callable[[Any], tuple[str, str]]) -> tuple[tuple[str, str], bool]:
    """How an input ended, and whether the process can take another one."""
    try:
        try:
            signal.setitimer(signal.ITIMER_PROF, HANG_S)  # CPU time, as the machine may be busy with other work
            return feed(item), True
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)  # it may go off before this ends
    except HangError:
        return ("hang", traceback.format_exc()[-2 * SHOWN_CHARACTERS :]), False
    except MemoryError:
        return ("more memory than allowed", traceback.format_exc()[-2 * SHOWN_CHARACTERS :]), False
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return (f"traceback: {type(error).__name__}", traceback.format_exc()[-3 * SHOWN_CHARACTERS :]), True


def _hang(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise HangError


def command_line(what: str, count: int = 1000) -> argparse.ArgumentParser:
    """The options that all drivers have: ``--count`` and ``--seed``."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--count", type=int, default=count, help="inputs to try")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def reported(count: Count) -> int:
    """Print the counts; exit status 1 where there is a defect."""
    count.show()
    return 1 if count.defects else 0
