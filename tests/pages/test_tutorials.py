"""The tutorials: their commands run in a shell, and print what the pages show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tutorials
from conftest import REPOSITORY, environment

QUICK = ("index", "student", "kernel_writer")
PAGES = sorted((REPOSITORY / "docs" / "tutorials").glob("*.md"))


def checked(*pages: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "tutorials.py"), "--check", *map(str, pages)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page.stem in QUICK else [pytest.mark.slow]) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_tutorial_print_what_it_shows(page: Path) -> None:
    done = checked(page)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_person_of_the_index_has_a_page_and_every_page_a_person() -> None:
    index = (tutorials.FOLDER / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\w+)\.md\)", index)) == sorted(page.stem for page in PAGES if page.stem != "index")


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        ("     392", "     391", "other output than the page shows"),
        ("worked_example -o", "worked_xample -o", "unknown experiment"),
    ],
)
def test_a_stale_output_and_a_command_that_fails_are_found(tmp_path: Path, was: str, now: str, problem: str) -> None:
    page = tmp_path / "page.md"
    shutil.copy(tutorials.FOLDER / "student.md", page)
    text = page.read_text(encoding="utf-8").partition("## Change it")[0]
    assert text.count(was) == 1
    page.write_text(text.replace(was, now), encoding="utf-8")
    done = checked(page)
    assert done.returncode == 1
    assert problem in done.stderr
