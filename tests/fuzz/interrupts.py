"""Ends `run` and `validate` by signals at random moments, again and again, and then lets each finish.

    python tests/fuzz/interrupts.py --count 60 --seed 1

However a command was interrupted, it prints no traceback, leaves no process behind, and the next one in the same folder
goes on: its files are the same, byte for byte, as those of a command that nobody interrupted, and no others lie there.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import harness

REPOSITORY = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
START_S = 0.2
"""In this time the interpreter starts and imports; a third of the signals falls into it."""
INTERRUPTIONS = 5
"""How often one command is interrupted, at most, before it is left to end."""
GONE_AFTER_S = 10.0
"""Until then the workers of a killed command have ended, even those that were starting on a busy machine."""
TIMEOUT_S = 120

EXPERIMENT = """\
title: Interrupted
gpus: [T4, A100-SXM4-40GB]
dtypes: [fp16, fp32]
gemms: [{square: '128:1024:128'}]
plots: [time]
"""
ROWS = [
    f"t4,linear,1,{m},512,{k},fp16,,tn,dense,{m / 8},graph,warm,,made up"
    for m in (64, 512, 1024)
    for k in range(256, 4096, 384)
]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that writes to a folder, and its output without an interrupt."""

    arguments: tuple[str, ...]
    files: dict[str, bytes]
    seconds: float


def start(
    arguments: Sequence[str], out: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """The program in a process group of its own, as a terminal starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "gpusim", *arguments, "-o", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        start_new_session=True,
    )


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() if path.is_file() else b"a folder" for path in folder.iterdir()}


def undisturbed(arguments: tuple[str, ...], out: Path) -> Command:
    """A command with what it takes and gives."""
    began = time.monotonic()
    with start(arguments, out) as process:
        errors = process.communicate(timeout=TIMEOUT_S)[1].decode()
    if process.returncode:
        sys.exit(f"{arguments} ended with {process.returncode}: {errors}")
    return Command(arguments, files_in(out), time.monotonic() - began)


def commands(folder: Path) -> list[Command]:
    """A run and a validation, each on one process and on two."""
    experiment, table = folder / "interrupted.yaml", folder / "runs.csv"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    table.write_text("\n".join([harness.MEASURED_HEADER, *ROWS]) + "\n", encoding="utf-8")
    asked = [("run", str(experiment)), ("validate", str(table))]
    found = [
        undisturbed((*arguments, "--jobs", jobs), folder / f"{arguments[0]}-{jobs}")
        for arguments in asked
        for jobs in ("1", "2")
    ]
    for one, two in (found[:2], found[2:]):
        if one.files != two.files:
            sys.exit(f"{one.arguments}: other files on two processes")
    return found


def running(group: int) -> list[str]:
    """Processes of a group that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(status.parent.name)
    return found


def all_gone(group: int) -> bool:
    """Whether all processes of a group end in time."""
    deadline = time.monotonic() + GONE_AFTER_S
    while running(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def interrupted(command: Command, out: Path, moment_s: float, number: signal.Signals, whole_group: bool) -> str:
    """Interrupt a command at a moment; the outcome begins with ``defect`` if it is forbidden."""
    with start(command.arguments, out) as process:
        time.sleep(moment_s)
        send = os.killpg if whole_group else os.kill
        with suppress(ProcessLookupError):
            send(process.pid, number)
        try:
            errors = process.communicate(timeout=TIMEOUT_S)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "defect: does not end"
    if not all_gone(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
        return "defect: a process is left behind"
    return judged(process.returncode, errors, number)


def judged(status: int, errors: str, number: signal.Signals) -> str:
    """The outcome of an interrupt."""
    if "Traceback" in errors:
        # In the first 30 ms the interpreter has no handler yet and prints its own traceback: while it imports the
        # package, and then what sets the handlers.
        main = str(REPOSITORY / "gpusim" / "__main__.py")
        ours = main in errors and "from gpusim.files.interrupts import" not in errors
        return f"defect: a traceback\n{errors}" if ours else "interrupted before the program began"
    if number == signal.SIGKILL:  # the interpreter counts the semaphores of its workers' queues
        errors = "".join(line for line in errors.splitlines(keepends=True) if "resource_tracker" not in line)
    if unexpected := [line for line in errors.splitlines() if not line.startswith("gpusim: ")]:
        return f"defect: says {unexpected}"
    if status == 0:
        return "ended before"
    if status == 128 + number:
        return "interrupted, cleaned up"
    return "killed" if status == -number else f"defect: status {status} after {number.name}"


def rounds(chooser: random.Random, known: Sequence[Command], count: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Each interrupt, and each end, with its outcome."""
    done = 0
    while done < count:
        command, out = chooser.choice(known), folder / f"out-{done}"
        for _ in range(min(chooser.randint(1, INTERRUPTIONS), count - done)):
            number = chooser.choice(SIGNALS)
            early = chooser.random() < 1 / 3
            moment_s = chooser.uniform(0, START_S if early else 1.1 * command.seconds)
            whole_group = chooser.random() < 1 / 2
            label = f"{' '.join(command.arguments[::2])} {number.name} after {moment_s:.3f} s, group: {whole_group}"
            yield label, interrupted(command, out, moment_s, number, whole_group)
            done += 1
        finished = undisturbed(command.arguments, out)
        names = {*finished.files, *command.files}
        differing = {name for name in names if finished.files.get(name) != command.files.get(name)}
        yield f"{command.arguments} to its end", f"defect: {differing} differ" if differing else "the same files"


def main(arguments: Sequence[str] | None = None) -> int:
    """Interrupt commands and print the outcomes; 1 if any is forbidden."""
    asked = harness.command_line(__doc__.partition("\n")[0], 60).parse_args(arguments)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        known = commands(Path(folder))
        for label, outcome in rounds(random.Random(asked.seed), known, asked.count, Path(folder)):
            outcomes[outcome.partition("\n")[0]] += 1
            if outcome.startswith("defect"):
                print(f"{label}: {outcome}")
    for outcome, times in outcomes.most_common():
        print(f"{times:6d}  {outcome}")
    return int(any(outcome.startswith("defect") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
