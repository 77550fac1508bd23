"""Executes the shell blocks of docs/tutorials, and writes what each prints into the block of text below it.

    python benchmarks/tutorials.py [PAGE...]            execute, write the outputs
    python benchmarks/tutorials.py --check [PAGE...]    execute, end with status 1 if a page shows another output

The blocks of a page run one after the other in one folder, which is empty at first. A block without a block of text
below it is executed, and what it prints is not shown.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "tutorials"
BLOCK = re.compile(
    r"^```sh\n(?P<commands>.*?)^```\n(?P<below>\n```text\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
COLUMNS = "110"
SIGPIPE_STATUS = 128 + signal.SIGPIPE
"""Exit status of a block that ends with ``| head``, which reads no further."""


def executed(page: str) -> str:
    """The text of a page with the outputs of its blocks."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "bin" / "gpusim"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpusim "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        (folder / "work").mkdir()
        return BLOCK.sub(lambda found: _with_output(found, folder), page)


def _with_output(found: re.Match[str], folder: Path) -> str:
    """A block, and below it what it prints."""
    settings = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": COLUMNS,
        "GPUSIM_PROGRESS": "off",
    }
    command = ["bash", "-e", "-o", "pipefail", "-c", found["commands"]]
    done = subprocess.run(  # noqa: S603 -- our own pages
        command, cwd=folder / "work", env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, SIGPIPE_STATUS):
        sys.exit(f"status {done.returncode}: {found['commands']}")
    block = f"```sh\n{found['commands']}```\n"
    return f"{block}\n```text\n{_without_blanks(done.stdout)}\n```\n" if found["below"] else block


def _without_blanks(text: str) -> str:
    """Text without spaces at the end of lines, and without empty lines at its own."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def main(arguments: Sequence[str]) -> int:
    """Execute the pages; write them, or compare."""
    names = [name for name in arguments if name != "--check"]
    stale = []
    for path in [Path(name) for name in names] or sorted(FOLDER.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = executed(before)
        if before != after:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(after, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"{', '.join(stale)}: other output than the page shows; run benchmarks/tutorials.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
