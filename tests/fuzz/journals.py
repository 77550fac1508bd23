"""Damages journals of interrupted commands and resumes them: python tests/fuzz/journals.py --count 1000 --seed 1.

The journals are real ones: of a run, of a validation, and of the timings of a calibration. However one of them was
damaged, the command that resumes it gives what nobody interrupted gives, and says in one line if a record was lost.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import harness

from gpusim.cli import run_cli
from gpusim.evidence.sources import MeasuredSystem
from gpusim.execution.executor import Inline
from gpusim.execution.journal import JOURNAL, Journal, journal_in
from gpusim.experiment.loading import load_experiment
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.plans import ranked_gemms
from gpusim.progress import no_progress
from gpusim.specs import load_spec
from gpusim.studies.calibration.parameters import FittedBoard, Known
from gpusim.studies.calibration.timer import FittedBoards, KernelRun, Timer
from gpusim.studies.run import run_experiment
from gpusim.studies.validation.report import validate
from gpusim.workloads.gemm import Gemm

EXPERIMENT = """\
title: Interrupted
gpus: [T4, A100-SXM4-40GB]
dtypes: [fp16, fp32]
detail: bound
gemms: [{square: '128:512:128'}]
"""
ROWS = [f"t4,linear,1,{m},512,512,fp16,,tn,dense,{m / 8},graph,warm,,made up" for m in range(64, 1024, 64)]
TIMED = [Gemm(m, 64, 64, Dtype.FP16) for m in (64, 128, 192, 256)]
TRIALS = [(("dram.efficiency_fraction", share),) for share in (0.7, 0.8, 0.9)]

Lines = list[bytes]
Resume = Callable[[Path], tuple[object, int]]
"""Goes on with the journal in a folder: the results, and how many records it reported as damaged."""


class Interrupted(BaseException):
    """In place of Ctrl-C, which the command line handles."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, the journal that it leaves when it is interrupted at its very end, and what it gives."""

    name: str
    file: str
    journal: bytes
    results: object
    resume: Resume


# The commands -----------------------------------------------------------------------------------


def interrupted_at_the_end(done: int, total: int) -> None:
    if done == total:
        raise Interrupted


def of_run(folder: Path) -> Command:
    experiment = folder / "interrupted.yaml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    with contextlib.suppress(Interrupted):
        _ = run_experiment(load_experiment(str(experiment)), folder / "run", progress=interrupted_at_the_end)

    def resume(out: Path) -> tuple[object, int]:
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            status = run_cli(["run", str(experiment), "-o", str(out), "--jobs", "1"])
        if status:
            raise RuntimeError(f"status {status}: {errors.getvalue()}")
        damaged = [line for line in errors.getvalue().splitlines() if " damaged " in line]
        files = {path.name: path.read_bytes() for path in out.iterdir()}
        return files, int(damaged[0].split()[1]) if len(damaged) == 1 else len(damaged)

    return taken("run", folder / "run", JOURNAL, resume)


def of_validation(folder: Path) -> Command:
    table = folder / "runs.csv"
    table.write_text("\n".join([harness.MEASURED_HEADER, *ROWS]) + "\n", encoding="utf-8")
    predict = partial(validate, [table], detail="bound")
    with contextlib.suppress(Interrupted), journal_in(folder / "validate") as journal:
        _ = predict(journal=journal, progress=interrupted_at_the_end)

    def resume(out: Path) -> tuple[object, int]:
        with journal_in(out) as journal:
            report = predict(journal=journal).as_dict()
        for figures in (*report["tables"], report["overall"]):
            del figures["seconds"]
        return report, journal.damaged

    return taken("validate", folder / "validate", JOURNAL, resume)


def of_calibration(folder: Path) -> Command:
    """The timings of a calibration, without its fit, which takes a minute."""
    spec = load_spec("t4")
    boards = {
        "t4": FittedBoard(
            MeasuredSystem(spec.system), dict.fromkeys(("dram.efficiency_fraction",), Known("assumed")), spec.sha256
        )
    }
    plans = [(gemm, ranked_gemms(spec.system, gemm, Options())[0].plan) for gemm in TIMED]
    runs = [KernelRun("t4", gemm, Options(), plan.kernel, plan.split_k, plan.mode, "graph") for gemm, plan in plans]

    def resume(out: Path) -> tuple[object, int]:
        journal = Journal(out / "mine.yaml.journal")
        timer = Timer(boards, Inline(FittedBoards(boards)), journal, no_progress)
        return timer.log_times(runs, TRIALS).tolist(), journal.damaged

    (folder / "calibrate").mkdir()
    _ = resume(folder / "calibrate")
    return taken("calibrate", folder / "calibrate", "mine.yaml.journal", resume)


def taken(name: str, folder: Path, file: str, resume: Resume) -> Command:
    """A command with its journal, and with what it gives when it starts from nothing."""
    journal = (folder / file).read_bytes()
    (folder / file).unlink()
    results, _ = resume(folder)
    return Command(name, file, journal, results, resume)


# The damage -------------------------------------------------------------------------------------


def position(text: bytes, chooser: random.Random) -> int:
    return chooser.randrange(len(text)) if text else 0


def digit_changed(line: bytes, chooser: random.Random) -> bytes:
    places = [place for place, byte in enumerate(line) if chr(byte).isdigit()]
    if not places:
        return line
    place = chooser.choice(places)
    return line[:place] + str(chooser.randrange(10)).encode() + line[place + 1 :]


def byte_flipped(line: bytes, chooser: random.Random) -> bytes:
    place = position(line, chooser)
    return line[:place] + bytes([line[place] ^ 1 << chooser.randrange(8)]) + line[place + 1 :] if line else line


def cut_off(line: bytes, chooser: random.Random) -> bytes:
    return line[: position(line, chooser)]


def inserted(line: bytes, chooser: random.Random) -> bytes:
    place = position(line, chooser)
    what = chooser.choice(
        [b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\0", b"\xef\xbb\xbf", b"[" * 9999, b"\r", b"\n", b"}"]
    )
    return line[:place] + what + line[place:]


def value_replaced(line: bytes, chooser: random.Random) -> bytes:
    """Another value in valid JSON: a number of hundreds of digits, NaN, a list in place of a number."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return line
    parents = [one for one in containers(entry) if one]
    if not parents:
        return line
    parent = chooser.choice(parents)
    key = chooser.choice(list(parent)) if isinstance(parent, dict) else chooser.randrange(len(parent))
    if chooser.random() < 1 / 3:
        del parent[key]
    else:
        parent[key] = chooser.choice(
            [10**400, -1, 0, 1e300, float("nan"), float("inf"), None, True, "", [], {}, [[1, 2, 3]]]
        )
    return json.dumps(entry).encode()


def containers(value: Any) -> Iterator[Any]:
    """Every object and list in a document."""
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers(item)


def in_one_line(change: Callable[[bytes, random.Random], bytes]) -> Callable[[Lines, random.Random], Lines]:
    def changed(lines: Lines, chooser: random.Random) -> Lines:
        at = chooser.randrange(len(lines)) if lines else 0
        return [change(line, chooser) if place == at else line for place, line in enumerate(lines)]

    return changed


def shuffled(lines: Lines, chooser: random.Random) -> Lines:
    return chooser.sample(lines, len(lines))


def doubled(lines: Lines, chooser: random.Random) -> Lines:
    return lines + chooser.choices(lines, k=chooser.randint(1, 5)) if lines else lines


def removed(lines: Lines, chooser: random.Random) -> Lines:
    return [line for line in lines if chooser.random() < 2 / 3]


def torn(lines: Lines, chooser: random.Random) -> Lines:
    text = b"\n".join(lines)
    return text[: position(text, chooser)].split(b"\n")


def foreign(lines: Lines, chooser: random.Random) -> Lines:
    line = chooser.choice([b'{"key": "of another version", "record": {}}', b"[]", b"null", chooser.randbytes(99)])
    return [*lines, line]


DAMAGE: dict[str, Callable[[Lines, random.Random], Lines]] = {
    "a digit changed": in_one_line(digit_changed),
    "a bit flipped": in_one_line(byte_flipped),
    "a line cut off": in_one_line(cut_off),
    "bytes inserted": in_one_line(inserted),
    "a value replaced or missing": in_one_line(value_replaced),
    "lines reordered": shuffled,
    "lines doubled": doubled,
    "lines removed": removed,
    "the file cut off": torn,
    "a line of something else": foreign,
}


# Counting ---------------------------------------------------------------------------------------


def resumed(command: Command, damages: Sequence[str], chooser: random.Random, folder: Path) -> str:
    """Damage a journal, resume it, and name the outcome: ``defect`` for a forbidden one."""
    lines = command.journal.splitlines()
    for damage in damages:
        lines = DAMAGE[damage](lines, chooser)
    folder.mkdir()
    (folder / command.file).write_bytes(b"\n".join(lines) + chooser.choice([b"", b"\n"]))
    sound = set(command.journal.splitlines())
    lost = sum(line not in sound for line in b"\n".join(lines).split(b"\n") if line)
    try:
        results, damaged = command.resume(folder)
    except Exception:  # noqa: BLE001 - that is what is looked for
        return f"defect: {traceback.format_exc()}"
    if results != command.results:
        return "defect: other results"
    if damaged != lost:
        return f"defect: {lost} lines damaged, {damaged} reported"
    return "some damaged, computed again, same results" if damaged else "none damaged, same results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Damage this many journals and print the outcomes; 1 if any is forbidden."""
    asked = harness.command_line(__doc__.partition("\n")[0]).parse_args(arguments)
    chooser = random.Random(asked.seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = [of_run(folder), of_validation(folder), of_calibration(folder)]
        for place in range(asked.count):
            command = commands[place % len(commands)]
            damages = chooser.choices(list(DAMAGE), k=chooser.randint(1, 3))
            outcome = resumed(command, damages, chooser, folder / f"damaged-{place}")
            if outcome.startswith("defect"):
                print(f"{command.name}, {', '.join(damages)}: {outcome}")
            outcomes[f"{command.name}: {outcome.partition(chr(10))[0]}"] += 1
    for outcome, times in sorted(outcomes.items()):
        print(f"{times:6d}  {outcome}")
    return int(any("defect" in outcome for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
