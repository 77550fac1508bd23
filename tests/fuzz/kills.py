"""Kills `gpusim run` of a large experiment at random moments, again and again, resumes it, and compares the files.

    python tests/fuzz/kills.py --count 20 --shapes 10000 --seed 1

Killed are the command, its process group, or one of its workers: while it starts, while it predicts, and while it
writes its files. Whatever was interrupted, the files of the run that finishes are those of an uninterrupted one, byte
for byte, and only predictions that were under way are made a second time.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import harness
import interrupts

COUNTING = Path(__file__).parent / "counting"
JOBS = 2
PER_SHAPE = 6
"""Predictions of each shape: three GPUs, two data types."""
SMALLEST, LARGEST = 16, 8192
EXPERIMENT = """\
title: Killed
gpus: [V100-SXM2-32GB, T4, A100-SXM4-80GB]
dtypes: [fp16, fp32]
gemms:
"""
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
MOMENTS = {"starting": 0.2, "predicting": 0.65, "writing": 0.15}
"""Share of the kills that fall into each phase of a run."""
TARGETS = {"command": 0.35, "group": 0.35, "worker": 0.3}
LOST_BY_A_KILL = 64
"""Predictions that were under way or not yet in the journal, at most."""
POLL_S = 0.002
TIMEOUT_S = 1800


@dataclass
class Predicted:
    """The predictions that a run has finished, from its first start on, read from the file that lists them."""

    file: Path
    times: Counter[bytes] = field(default_factory=Counter)
    _read: int = 0

    def update(self) -> int:
        """Read what is new; how many predictions were made, repeated ones included."""
        with suppress(FileNotFoundError), self.file.open("rb") as listed:
            _ = listed.seek(self._read)
            lines = listed.read().rpartition(b"\n")[0]
            self._read += len(lines) + bool(lines)
            self.times.update(lines.split())
        return self.times.total()

    @property
    def repeated(self) -> int:
        return self.times.total() - len(self.times)


@dataclass(frozen=True)
class Run:
    """A run of the experiment in a folder of its own, with nothing stored by others."""

    experiment: Path
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def take_machine_code(self, other: Run) -> None:
        """What another run has compiled, which takes half a minute, but none of the outcomes that it has stored."""
        for compiled in other.cache.glob("machine-code-*"):
            _ = shutil.copytree(compiled, self.cache / compiled.name)

    def start(self) -> subprocess.Popen[bytes]:
        arguments = ("run", str(self.experiment), "--jobs", str(JOBS))
        environment = {
            "PYTHONPATH": f"{COUNTING}{os.pathsep}{interrupts.REPOSITORY}",
            "COUNTED_PREDICTIONS": str(self.folder / "predicted"),
            "GPUSIM_CACHE": str(self.cache),
        }
        self.folder.mkdir(exist_ok=True)
        return interrupts.start(arguments, self.out, environment)

    def predicted(self) -> Predicted:
        return Predicted(self.folder / "predicted")


@dataclass(frozen=True)
class Undisturbed:
    """What a run gives and takes without an interrupt."""

    files: dict[str, bytes]
    predictions: int
    starting_s: float
    """Until the first prediction is known."""
    writing_s: float
    """From the last one to the end."""


def experiment_in(folder: Path, predictions: int, chooser: random.Random) -> Path:
    """An experiment of random shapes, log-uniform, aligned and not."""
    sizes = [[_size(chooser) for _ in "mnk"] for _ in range(math.ceil(predictions / PER_SHAPE))]
    path = folder / "killed.yaml"
    path.write_text(EXPERIMENT + "".join(f"- {{m: {m}, n: {n}, k: {k}}}\n" for m, n, k in sizes), encoding="utf-8")
    return path


def _size(chooser: random.Random) -> int:
    size = math.exp(chooser.uniform(math.log(SMALLEST), math.log(LARGEST)))
    return int(size // 8) * 8 if chooser.random() < 2 / 3 else int(size)


def undisturbed(run: Run) -> Undisturbed:
    """The files that every other run has to give."""
    began = time.monotonic()
    first = last = began
    predicted = run.predicted()
    with run.start() as process:
        known = 0
        while process.poll() is None:
            now, total = time.monotonic(), predicted.update()
            first, last = (now, now) if not known else (first, now if total > known else last)
            known = total
            time.sleep(POLL_S)
        errors = process.communicate()[1].decode()
    if process.returncode:
        sys.exit(f"the uninterrupted run ended with {process.returncode}: {errors}")
    if predicted.repeated or not predicted.times:
        sys.exit(f"the uninterrupted run made {predicted.update()} predictions, {predicted.repeated} of them twice")
    ended = time.monotonic()
    return Undisturbed(interrupts.files_in(run.out), len(predicted.times), first - began, ended - last)


class Killer:
    """Kills runs, and counts how each kill ended."""

    def __init__(self, asked: argparse.Namespace, folder: Path, run: Run, reference: Undisturbed) -> None:
        self.chooser = random.Random(asked.seed)
        phases = self.chooser.choices(list(MOMENTS), list(MOMENTS.values()), k=asked.count)
        self.phases = sorted(phases, key="writing".__eq__)  # in the order of a run
        """Phases in which the runs to come are killed."""
        self.repeated = 0
        self.outcomes: Counter[str] = Counter()
        self.defects: list[str] = []
        self._folder, self._undisturbed, self._reference = folder, run, reference
        self._starting_s = reference.starting_s  # less where nothing has to be compiled any more
        self._writing_s = reference.writing_s  # less where the machine was busy before

    def kill_all(self) -> None:
        """Kill as often as asked; a run that finishes before is followed by another one, in an empty folder."""
        runs = 0
        while self.phases and not self.defects:
            runs += 1
            run = Run(self._undisturbed.experiment, self._folder / f"run-{runs}")
            run.take_machine_code(self._undisturbed)
            self._until_finished(run)

    def _until_finished(self, run: Run) -> None:
        """Start a run, kill it, start it again, until one finishes."""
        predicted = run.predicted()
        before, finished = len(self.phases), False
        while not finished and not self.defects:
            finished = self._one(run, predicted)
        _ = predicted.update()
        kills = before - len(self.phases)
        self.repeated += predicted.repeated
        if differing := differences(interrupts.files_in(run.out), self._reference.files):
            self.defects.append(f"after {kills} kills {', '.join(differing)} differ")
        if predicted.repeated > kills * LOST_BY_A_KILL:
            self.defects.append(f"{kills} kills, and {predicted.repeated} predictions were made again")
        made = predicted.times.total()
        print(f"{kills} kills, {made} predictions, {predicted.repeated} of them repeated", flush=True)

    def _one(self, run: Run, predicted: Predicted) -> bool:
        """Start a run and make the next kill, if there is one left; whether the run finished."""
        phase = self.phases[0] if self.phases else ""
        target = self.chooser.choices(list(TARGETS), list(TARGETS.values()))[0]
        if phase != "predicting" and target == "worker":
            target = "command"  # there are no workers yet, or no more
        with run.start() as process:
            due = self._moment(phase, predicted) if phase else lambda: False
            while process.poll() is None and not due():
                time.sleep(POLL_S)
            number = self.chooser.choice(SIGNALS) if target != "worker" else signal.SIGKILL
            struck = process.poll() is None and strike(process.pid, target, number)
            errors = process.communicate(timeout=TIMEOUT_S)[1].decode(errors="replace")
        if not interrupts.all_gone(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            self.defects.append(f"{target} {number.name} while {phase}: a process is left behind")
        if not struck:
            self._writing_s /= 2
            if process.returncode:
                self.defects.append(f"a run that was not killed ended with {process.returncode}: {errors}")
            return True
        _ = self.phases.pop(0)
        outcome = judged(process.returncode, errors, number, target)
        self.outcomes[f"{phase}: {target} {number.name}: {outcome.partition(chr(10))[0]}"] += 1
        if outcome.startswith("defect"):
            self.defects.append(outcome)
        return process.returncode == 0

    def _moment(self, phase: str, predicted: Predicted) -> Callable[[], bool]:
        """A random moment in a phase of a run that starts now: a function that says whether it has come."""
        before, total = predicted.update(), self._reference.predictions
        left = total - len(predicted.times)
        further = self.chooser.uniform(0, 2 * left / (1 + self.phases.count("predicting")))  # some for each later kill
        writing_s = self._writing_s + (0 if left else self._starting_s)
        delay_s = self.chooser.uniform(0, self._starting_s if phase == "starting" else writing_s)
        began = since = time.monotonic()

        def due() -> bool:
            nonlocal since
            now, made = time.monotonic(), predicted.update() - before
            if made:
                self._starting_s = min(self._starting_s, now - began)
            if phase == "predicting":
                return made > further
            if phase == "writing" and len(predicted.times) < total:
                since = now
            return now > since + delay_s or (phase == "starting" and made > 0)

        return due


def strike(process: int, target: str, number: signal.Signals) -> bool:
    """Send a signal; whether there was something to send it to."""
    with suppress(ProcessLookupError):
        if target == "group":
            os.killpg(process, number)
            return True
        victims = workers_of(process) if target == "worker" else [process]
        for victim in victims[:1]:
            os.kill(victim, number)
            return True
    return False


def workers_of(process: int) -> list[int]:
    """Worker processes of a command."""
    found = []
    with suppress(FileNotFoundError):
        for child in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split():
            with suppress(FileNotFoundError):
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def judged(status: int, errors: str, number: signal.Signals, target: str) -> str:
    """The outcome of a kill; ``defect`` for a forbidden one."""
    if target != "worker":
        return interrupts.judged(status, errors, number)
    if "Traceback" in errors:
        return f"defect: a traceback\n{errors}"
    if status == 0:
        return "finished without it"
    return "reported" if "worker" in errors else f"defect: status {status}: {errors}"


def differences(files: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Names of files that are missing, too many, or not the same."""
    return sorted(name for name in {*files, *expected} if files.get(name) != expected.get(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill runs, print how each kill ended, and compare the files; 1 if any differ."""
    parser = harness.command_line(__doc__.partition("\n")[0], 20)
    parser.add_argument("--shapes", type=int, default=10_000, help="predictions of the experiment")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        experiment = experiment_in(folder, asked.shapes, random.Random(asked.seed))
        run = Run(experiment, folder / "undisturbed")
        reference = undisturbed(run)
        print(f"{reference.predictions} predictions, {', '.join(sorted(reference.files))}", flush=True)
        killer = Killer(asked, folder, run, reference)
        killer.kill_all()
    for outcome, times in sorted(killer.outcomes.items()):
        print(f"{times:6d}  {outcome}")
    for defect in killer.defects:
        print(f"defect: {defect}")
    if not killer.defects:
        print(f"{asked.count} kills, {killer.repeated} predictions repeated, the same files")
    return int(bool(killer.defects))


if __name__ == "__main__":
    sys.exit(main())
