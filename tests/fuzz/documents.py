"""Damaged YAML files and overrides: python tests/fuzz/documents.py --count 10000 --seed 1."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import harness

from gpusim.experiment.loading import open_experiment
from gpusim.files.checked_document import shipped_folder
from gpusim.files.yamlfile import SpecError
from gpusim.measure.suite import load_suite
from gpusim.specs import list_archs

NUMBERS = (
    *("0", "-0", "-1", "1", "2", "1.5", "1e-300", "1e300", "1e400", "-1e400", ".nan", ".inf", "-.INF", "nan", "inf"),
    *("true", "no", "~", "null", "''", "x", "0x10", "0o17", "1_000", "8:56:8", "2001-01-01", "9" * 19, "9" * 400, "٣"),
    *("[]", "[1]", "{}", "{a: 1}", "[[1, 2], [3]]", "'108'", "!!str 1", "!!float 1", "- 1", "*a", "&a 1", "1" * 5000),
)
TOKENS = (
    *("&a ", "*a", "<<: *a\n", "[", "]", "{", "}", "- ", "? ", ": ", "#", "|", ">", "'", '"', "\n", "\t", "---\n"),
    *("...\n", "%YAML 3.0\n", "!!bool ", "!!timestamp ", "!!python/name:os.system ", "!mine ", "!!set ", "!!binary "),
    *("&a [*a]", "&a {<<: *a}", "[" * 100, "{a: " * 1000, "- " * 300, "\x00", "\x07", "\u2028", "\ufeff", "\U0001f600"),
    *("extends: " + "x" * 300, "extends: ../../etc", "name: T4", "aliases: 3", "library: /dev/zero.yaml"),
)
SIZE = ("-m", "64", "-n", "64", "-k", "64", "--dtype", "fp32", "--detail", "bound", "--format", "json")
BOMB = "b0: &b0 [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"b{level}: &b{level} [{', '.join([f'*b{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


KEYS = (
    *("sm.count", "dram.latency_ns", "l2.capacity_mib", "name", "instructions", "shared_memory.carveouts_kib"),
    *(
        "gpus.0",
        "gemms.0.square",
        "plots.0.kind",
        "library.heuristic_bias.mma.tile_intensity",
        "k" * 3000,
        "a.b.c",
        "clock",
    ),
)


class Damaged(NamedTuple):
    """A file as it is written, or the value of an override, and what reads it."""

    kind: str
    name: str
    content: bytes

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.content[:2000]!r}"


def inputs(count: int, seed: int) -> list[Damaged]:
    """Shipped files with one to four changes each, and overrides of any value by anything."""
    pick = random.Random(seed)
    texts = {
        "spec": sorted(entry.path for entry in list_archs()),
        "catalogue": sorted((shipped_folder("arch_specs") / "kernels").glob("*.yaml")),
        "experiment": sorted(shipped_folder("experiments").glob("*.yaml")),
        "suite": sorted((shipped_folder("experiments") / "measure").glob("*.yaml")),
    }
    kinds = [*texts, "override", "experiment override", "neighbour"]
    return [_damaged(pick, pick.choice(kinds), texts) for _ in range(count)]


def _damaged(pick: random.Random, kind: str, texts: dict[str, list[Path]]) -> Damaged:
    if kind.endswith("override"):
        text = f"{pick.choice(KEYS)}={pick.choice((*NUMBERS, *TOKENS))}"
        return Damaged(kind, "", text.encode())
    path = pick.choice(texts["spec" if kind == "neighbour" else kind])
    text = path.read_text(encoding="utf-8")
    for _ in range(pick.choice((1, 1, 2, 4))):
        text = pick.choice(CHANGES)(pick, text)
    return Damaged(kind, path.name, _encoded(pick, text))


def _encoded(pick: random.Random, text: str) -> bytes:
    """Mostly UTF-8, at times of another encoding, cut off or with flipped bytes."""
    match pick.randrange(12):
        case 0:
            return text.encode(pick.choice(("utf-16", "utf-32", "utf-8-sig", "cp1252")), "replace")
        case 1:
            return text.encode()[: pick.randrange(len(text.encode()) + 1)]
        case 2:
            content = bytearray(text.encode())
            for _ in range(pick.choice((1, 3, 30))):
                if content:
                    content[pick.randrange(len(content))] ^= 1 << pick.randrange(8)
            return bytes(content)
    return text.encode()


def _change_number(pick: random.Random, text: str) -> str:
    words = text.split(" ")
    places = [place for place, word in enumerate(words) if any(sign.isdigit() for sign in word)] or [0]
    place = pick.choice(places)
    words[place] = pick.choice(NUMBERS) + ("," if words[place].endswith(",") else "")
    return " ".join(words)


def _insert_token(pick: random.Random, text: str) -> str:
    place = pick.randrange(len(text) + 1)
    return text[:place] + pick.choice(TOKENS) + text[place:]


def _move_line(pick: random.Random, text: str) -> str:
    """Drop, repeat, move, indent or rename a line."""
    lines = text.splitlines(keepends=True) or ["\n"]
    place, other = pick.randrange(len(lines)), pick.randrange(len(lines))
    line = lines.pop(place) if pick.random() < 0.5 else lines[place]
    if pick.random() < 0.7:
        line = pick.choice((line, "  " + line, line.lstrip(), line.replace("_", "-", 1), line[::-1], line.upper()))
        lines.insert(other, line)
    return "".join(lines)


def _swap_words(pick: random.Random, text: str) -> str:
    words = text.split(" ")
    words[pick.randrange(len(words))] = words[pick.randrange(len(words))]
    return " ".join(words)


def _nest(pick: random.Random, text: str) -> str:
    depth = pick.choice((10, 63, 65, 1000, 40_000))
    opening, closing = pick.choice((("[", "]"), ("{a: ", "}"), ("- ", "")))
    return text + "deep: " + opening * depth + "1" + closing * pick.choice((0, depth)) + "\n"


def _alias(pick: random.Random, text: str) -> str:
    """Anchor one value and refer to it from others, itself among them at times; or append a bomb."""
    if pick.random() < 0.3:
        return text + BOMB
    for marker in ("&a ", "*a ", "*a #"):
        places = [place for place, sign in enumerate(text) if text[place : place + 2] == ": "] or [0]
        place = pick.choice(places) + 2
        text = text[:place] + marker + text[place:]
    return text


CHANGES: tuple[Callable[[random.Random, str], str], ...] = (
    *(_change_number, _change_number, _change_number, _insert_token, _insert_token),
    *(_move_line, _move_line, _swap_words, _nest, _alias),
)


def feed(folder: Path, damaged: Damaged) -> tuple[str, str]:
    """Let what reads such a file read it."""
    path = folder / "damaged.yaml"
    for left in (path, *(folder / "kernels").glob("*")):
        left.unlink(missing_ok=True)
    if damaged.kind == "catalogue":
        path = folder / "kernels" / damaged.name
    path.write_bytes(damaged.content)
    text = damaged.content.decode(errors="replace")
    own = ("--arch-path", str(folder))
    commands = {
        "override": ("--arch", "t4", "--set", text),
        "catalogue": ("--arch", "a100-sxm4-40gb", *own),
        "neighbour": ("--arch", "teaching", *own),
    }
    readers: dict[str, Callable[[], object]] = {
        "experiment override": lambda: open_experiment("worked_example", [text]),
        "experiment": lambda: open_experiment(str(path)),
        "suite": lambda: load_suite(str(path)),
    }
    if damaged.kind in commands:
        return harness.command(["gemm", *commands[damaged.kind], *SIZE])
    return _read(readers[damaged.kind]) if damaged.kind in readers else _check_then_predict(path)


def _check_then_predict(path: Path) -> tuple[str, str]:
    """A spec that ``archs check`` accepts predicts, too."""
    ended = harness.command(["archs", "check", str(path)])
    return harness.command(["gemm", "--arch", str(path), *SIZE]) if ended[0] == harness.ACCEPTED else ended


def _read(read: Callable[[], object]) -> tuple[str, str]:
    """The contract of a loader: it returns, or refuses in one line."""
    try:
        read()
    except SpecError as error:
        problem = str(error)
        one_line = problem and "\n" not in problem and len(problem) < 10 * harness.SHOWN_CHARACTERS
        return (harness.REFUSED, "") if one_line else ("refusal that is not one line", problem[:1000])
    return harness.ACCEPTED, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Feed damaged documents and count how they end."""
    asked = harness.command_line("Feed the program YAML files and overrides that are damaged.").parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels").mkdir()
        return harness.reported(harness.fed(inputs(asked.count, asked.seed), partial(feed, folder)))


if __name__ == "__main__":
    sys.exit(main())
